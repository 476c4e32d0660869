//! Health: the status, as one named check for each thing that can go wrong. A pure function; HTTP, metrics and whoever
//! else asks render the same value.
//!
//! The form is that of `application/health+json` (draft-inadarei-api-health-check), hence names in camelCase.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    in_the_way::{InTheWay, clauses},
    status::{CheckCode, DatabaseStatus, InboxStatus, PartitionState, Status},
    worker::CanaryStatus,
};
use crate::{
    postgres::ErrorKind,
    pure::{Day, Finding, FindingCode, Severity},
};

/// An expired partition leaves within a run. A day later the cap, a lock or a hold is in the way, and a person should know.
const EXPIRY_MAY_BE_LATE_BY: TimeDelta = TimeDelta::hours(24);
/// Dead rows come from rolled-back claims only. Below this many they cost nothing, whatever their share.
const FEW_DEAD_ROWS: i64 = 100_000;
/// More findings of one kind are counted, not listed.
const MOST_LISTED: usize = 5;

/// How well something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// All is well.
    Pass,
    /// A person should look, in days.
    Warn,
    /// Claims fail, or soon will, or could double, or it cannot be told.
    Fail,
}

impl HealthStatus {
    /// The status as one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

impl From<Severity> for HealthStatus {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Info => Self::Pass,
            Severity::Warn => Self::Warn,
            Severity::Fail => Self::Fail,
        }
    }
}

/// The health of a deployment.
#[derive(Debug, Clone, PartialEq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// The worst of all checks.
    pub status: HealthStatus,
    /// The version of the API.
    pub version: &'static str,
    /// The version of the program.
    pub release_id: &'static str,
    /// The deployment.
    pub service_id: String,
    /// What this is.
    pub description: &'static str,
    /// The checks by name, each with an entry for each inbox or database that it looked at.
    pub checks: BTreeMap<&'static str, Vec<HealthCheck>>,
}

/// One check of one inbox or database.
#[derive(Debug, Clone, PartialEq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// The inbox, or the database.
    pub component_id: String,
    /// `inbox` or `datastore`.
    pub component_type: &'static str,
    /// The database.
    pub database: String,
    /// What was measured; none where there is no number, or none can be had.
    pub observed_value: Option<f64>,
    /// In what it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_unit: Option<&'static str>,
    /// How well it is.
    pub status: HealthStatus,
    /// The database's clock when it was looked at.
    pub time: Option<DateTime<Utc>>,
    /// What is so; none when there is nothing to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// What to do; none when there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The checks of an inbox, in the order in which they are told.
const INBOX_CHECKS: [&str; 20] = [
    "table",
    "ownership",
    "runway",
    "canary",
    "days_ahead",
    "gaps",
    "key",
    "claim_functions",
    "digest",
    "privileges",
    "publications",
    "default_partition",
    "foreign_children",
    "partition_drift",
    "overdue_expiry",
    "pending_detach",
    "blocked_drops",
    "xid_age",
    "dead_rows",
    "replicas",
];

/// The check that a finding belongs to.
fn check_of(code: FindingCode) -> &'static str {
    match code {
        FindingCode::InboxMissing | FindingCode::InboxUnfit | FindingCode::Adoption => "table",
        FindingCode::OtherDeployment | FindingCode::OtherServer => "ownership",
        FindingCode::Runway => "runway",
        FindingCode::Gap | FindingCode::NameTaken | FindingCode::NotAttached => "gaps",
        FindingCode::MissingKey => "key",
        FindingCode::ClaimDrift => "claim_functions",
        FindingCode::NoDigest => "digest",
        FindingCode::MissingPrivilege | FindingCode::PlainInsert => "privileges",
        FindingCode::Publication => "publications",
        FindingCode::DefaultPartition => "default_partition",
        FindingCode::ForeignChild | FindingCode::WrongBounds | FindingCode::WrongName | FindingCode::WrongMarker => {
            "foreign_children"
        }
        FindingCode::OwnerDrift | FindingCode::ReplicaIdentityDrift | FindingCode::TablespaceDrift => "partition_drift",
        FindingCode::OldTransactions => "xid_age",
        FindingCode::ReplicasDisagree => "replicas",
        FindingCode::BlockedByCap
        | FindingCode::BlockedByHold
        | FindingCode::BlockedByClock
        | FindingCode::BlockedByDefault => "blocked_drops",
    }
}

/// The health of what a status shows.
#[must_use]
pub fn health(status: &Status) -> Health {
    let mut checks: BTreeMap<&'static str, Vec<HealthCheck>> = BTreeMap::new();
    for database in &status.databases {
        for (name, check) in of_database(database) {
            checks.entry(name).or_default().push(check);
        }
        for inbox in &database.inboxes {
            for (name, check) in of_inbox(database, inbox) {
                checks.entry(name).or_default().push(check);
            }
        }
    }
    let worst = checks.values().flatten().map(|check| check.status).max();
    Health {
        status: worst.unwrap_or(HealthStatus::Pass),
        version: "1",
        release_id: status.version,
        service_id: status.deployment.clone(),
        description: "the inboxes of this deployment, and what keeps them",
        checks,
    }
}

impl HealthCheck {
    fn of(database: &DatabaseStatus) -> Self {
        Self {
            component_id: database.database.clone(),
            component_type: "datastore",
            database: database.database.clone(),
            observed_value: None,
            observed_unit: None,
            status: HealthStatus::Pass,
            time: database.now,
            output: None,
            remedy: None,
        }
    }

    fn measured(mut self, value: Option<f64>, unit: &'static str) -> Self {
        self.observed_value = value;
        self.observed_unit = Some(unit);
        self
    }

    fn judged(mut self, status: HealthStatus, output: String, remedy: &str) -> Self {
        if status > self.status || self.output.is_none() {
            self.output = Some(output);
            self.remedy = (status > HealthStatus::Pass).then(|| remedy.to_owned());
            self.status = self.status.max(status);
        }
        self
    }
}

fn of_database(database: &DatabaseStatus) -> Vec<(&'static str, HealthCheck)> {
    let check = || HealthCheck::of(database);
    if let Some(error) = &database.error {
        let is_schema = database.error_kind == Some(ErrorKind::Missing);
        let (name, remedy) = if is_schema {
            ("schema_version", "run `inboxd init`")
        } else {
            (
                "database",
                "see that it is up and lets inboxd in; the log has what it said",
            )
        };
        let failed = (name, check().judged(HealthStatus::Fail, error.clone(), remedy));
        return if is_schema {
            vec![("database", check()), failed]
        } else {
            vec![failed]
        };
    }
    let since_success = database
        .last_run
        .as_ref()
        .and_then(|run| run.last_success_at)
        .zip(database.now)
        .map(|(at, now)| (now - at).as_seconds_f64());
    let mut runs = check().measured(since_success, "s");
    let mut standby = check().measured(Some(f64::from(u8::from(database.standby))), "standbys");
    let mut writable = check();
    let mut schedule = check();
    for said in &database.checks {
        let about = match said.code {
            CheckCode::Standby => &mut standby,
            CheckCode::ReadOnly => &mut writable,
            CheckCode::Paused => &mut schedule,
            CheckCode::NoRun
            | CheckCode::RunOverdue
            | CheckCode::RunPartial
            | CheckCode::RunFailed
            | CheckCode::RunUnfinished => &mut runs,
        };
        *about = about
            .clone()
            .judged(said.severity.into(), said.message.clone(), &said.remedy);
    }
    vec![
        ("database", check()),
        (
            "schema_version",
            check().measured(Some(crate::postgres::schema::SCHEMA_VERSION as f64), "version"),
        ),
        ("last_success", runs),
        ("schedule", schedule),
        ("standby", standby),
        ("writable", writable),
        ("clock_skew", clock_skew(database, check())),
    ]
}

/// The clock is judged where it counts: an inbox whose removals wait for it says so.
fn clock_skew(database: &DatabaseStatus, check: HealthCheck) -> HealthCheck {
    let blocked = database
        .inboxes
        .iter()
        .flat_map(|inbox| &inbox.findings)
        .find(|finding| finding.code == FindingCode::BlockedByClock);
    let check = check.measured(database.clock_skew_seconds, "s");
    match blocked {
        Some(finding) => check.judged(finding.severity.into(), finding.message.clone(), &finding.remedy),
        None => check,
    }
}

fn of_inbox(database: &DatabaseStatus, inbox: &InboxStatus) -> Vec<(&'static str, HealthCheck)> {
    let mut checks: BTreeMap<&'static str, HealthCheck> = INBOX_CHECKS
        .into_iter()
        .map(|name| {
            let check = HealthCheck {
                component_id: inbox.inbox.clone(),
                component_type: "inbox",
                ..HealthCheck::of(database)
            };
            (name, with_findings(name, check, &inbox.findings))
        })
        .collect();
    let mut change = |name: &'static str, changed: &dyn Fn(HealthCheck) -> HealthCheck| {
        if let Some(check) = checks.remove(name) {
            checks.insert(name, changed(check));
        }
    };
    let count = |state: PartitionState| {
        let count = inbox
            .partitions
            .iter()
            .filter(|partition| partition.state == state)
            .count();
        Some(count as f64)
    };
    let found = |name: &str| {
        let count = inbox
            .findings
            .iter()
            .filter(|finding| check_of(finding.code) == name)
            .count();
        Some(count as f64)
    };
    let dead: i64 = inbox
        .partitions
        .iter()
        .filter_map(|partition| partition.dead_rows)
        .sum();
    let live: i64 = inbox
        .partitions
        .iter()
        .filter_map(|partition| partition.estimated_rows)
        .sum();
    let oldest = inbox.partitions.iter().filter_map(|partition| partition.xid_age).max();
    let overdue = overdue(inbox, database.now);
    let of_this = |told: &&InTheWay| told.inbox.as_ref() == Some(&inbox.inbox);
    let in_the_way = clauses(database.in_the_way.iter().filter(of_this));
    for name in [
        "gaps",
        "key",
        "digest",
        "privileges",
        "publications",
        "default_partition",
        "foreign_children",
        "partition_drift",
        "blocked_drops",
    ] {
        change(name, &|check| check.measured(found(name), "findings"));
    }
    change("runway", &|check| {
        check.measured(inbox.runway_seconds.map(|seconds| seconds as f64), "s")
    });
    change("canary", &|check| canary(check, inbox));
    change("days_ahead", &|check| days_ahead(check, inbox, database.now));
    change("pending_detach", &|check| {
        pending(
            check.measured(count(PartitionState::PendingDetach), "partitions"),
            &in_the_way,
        )
    });
    change("overdue_expiry", &|check| late(check, overdue, &in_the_way));
    change("xid_age", &|check| {
        check.measured(oldest.map(f64::from), "transactions")
    });
    change("dead_rows", &|check| dead_rows(check, dead, live));
    INBOX_CHECKS
        .into_iter()
        .filter_map(|name| Some((name, checks.remove(name)?)))
        .collect()
}

/// All findings of a check in one: the worst decides, and its remedy stands first.
fn with_findings(name: &'static str, mut check: HealthCheck, findings: &[Finding]) -> HealthCheck {
    let mut ours: Vec<&Finding> = findings
        .iter()
        .filter(|finding| check_of(finding.code) == name)
        .collect();
    ours.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let Some(worst) = ours.first() else {
        return check;
    };
    check.status = worst.severity.into();
    let mut said: Vec<String> = ours
        .iter()
        .take(MOST_LISTED)
        .map(|finding| match &finding.relation {
            Some(relation) => format!("{relation}: {}", finding.message),
            None => finding.message.clone(),
        })
        .collect();
    if ours.len() > MOST_LISTED {
        said.push(format!("and {} more", ours.len() - MOST_LISTED));
    }
    let remedies: BTreeSet<&str> = ours
        .iter()
        .take(MOST_LISTED)
        .map(|finding| finding.remedy.as_str())
        .collect();
    check.output = Some(said.join("; "));
    check.remedy = Some(remedies.into_iter().collect::<Vec<_>>().join("; "));
    check
}

/// How many days after today have a partition without a gap before them; none when the partitions never end.
#[must_use]
pub fn existing_days_ahead(inbox: &InboxStatus, now: DateTime<Utc>) -> Option<i64> {
    // The runway is in whole seconds, cut off; its end is a midnight.
    let end = now.checked_add_signed(TimeDelta::try_seconds(inbox.runway_seconds?.checked_add(1)?)?)?;
    Some((end - Day::containing(now).end()).num_days().max(0))
}

/// What a consumer would see now, as far as the last canary knows.
fn canary(check: HealthCheck, inbox: &InboxStatus) -> HealthCheck {
    let check = check.measured(inbox.canary.as_ref().map(|canary| canary.duration_seconds), "s");
    match inbox.canary.as_ref().and_then(CanaryStatus::complaint) {
        Some((severity, output, remedy)) => check.judged(severity.into(), output, &remedy),
        None => check,
    }
}

/// It is judged by the runway, which knows that a new day is made minutes after midnight.
fn days_ahead(check: HealthCheck, inbox: &InboxStatus, now: Option<DateTime<Utc>>) -> HealthCheck {
    let days = now.and_then(|now| existing_days_ahead(inbox, now));
    let check = check.measured(days.map(|days| days as f64), "d");
    let runway = inbox
        .findings
        .iter()
        .find(|finding| finding.code == FindingCode::Runway);
    match (runway, days) {
        (Some(finding), Some(days)) => check.judged(
            finding.severity.into(),
            format!("{days} of {} days are there", inbox.ahead_days),
            &finding.remedy,
        ),
        _ => check,
    }
}

fn overdue(inbox: &InboxStatus, now: Option<DateTime<Utc>>) -> usize {
    let is_overdue = |at: DateTime<Utc>| now.is_some_and(|now| at + EXPIRY_MAY_BE_LATE_BY < now);
    inbox
        .partitions
        .iter()
        .filter(|partition| matches!(partition.state, PartitionState::Expired | PartitionState::PendingDetach))
        .filter(|partition| partition.held_since.is_none() && partition.expires_at.is_some_and(is_overdue))
        .count()
}

fn late(check: HealthCheck, overdue: usize, in_the_way: &str) -> HealthCheck {
    let check = check.measured(Some(overdue as f64), "partitions");
    if overdue == 0 {
        return check;
    }
    check.judged(
        HealthStatus::Warn,
        format!("{overdue} partitions expired more than a day ago and are still there{in_the_way}"),
        "see the steps of the last run, and blocked_drops",
    )
}

/// Claims are not touched by it, and the next run ends it: no alarm.
fn pending(check: HealthCheck, in_the_way: &str) -> HealthCheck {
    if check.observed_value == Some(0.0) {
        return check;
    }
    let output = "a detach was interrupted; the next run ends it, once every older snapshot of the database is gone";
    check.judged(HealthStatus::Pass, format!("{output}{in_the_way}"), "")
}

fn dead_rows(check: HealthCheck, dead: i64, live: i64) -> HealthCheck {
    let check = check.measured(Some(dead as f64), "rows");
    if dead < FEW_DEAD_ROWS || dead <= live {
        return check;
    }
    check.judged(
        HealthStatus::Warn,
        format!("more dead rows ({dead}) than live ones ({live}): most claims are rolled back"),
        "see why the consumers' transactions fail",
    )
}

#[cfg(test)]
pub(super) mod tests;
