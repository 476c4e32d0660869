//! The state of a deployment, as `status`, `check` and HTTP show it.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;

use super::{
    config::{Config, Database},
    cron::Schedule,
    in_the_way::{InTheWay, clauses, in_the_way, name_who_keeps_runs_away},
    worker::CanaryStatus,
};
use crate::{
    clock::Clock,
    maintain::{
        PlannedInbox,
        operate::{self, Pause},
        plan_all,
    },
    postgres::{
        DbError, ErrorKind, catalog,
        catalog::{Observed, Replica, Server},
        decisions,
        journal::{self, LastRun},
    },
    pure::{
        Attachment, Consumers, Day, Finding, FoundRelation, InboxSpec, Retention, Routing, Severity, Span, Step,
        TableName,
    },
};

/// How late a run may be before it counts as missing: a slow run, and the retries of a failed one, fit in.
const RUN_MAY_BE_LATE_BY: TimeDelta = TimeDelta::minutes(15);

/// Stands for what a database said.
pub(super) const THE_LOG_SAYS_WHY: &str = "the log says why";

/// Everything at a glance.
#[derive(Debug, Clone, PartialEq, serde::Serialize, utoipa::ToSchema)]
pub struct Status {
    /// The version of this program.
    pub version: &'static str,
    /// The deployment.
    pub deployment: String,
    /// The worst of all findings and checks, in all databases.
    pub severity: Severity,
    /// The databases, in the order of their names.
    pub databases: Vec<DatabaseStatus>,
    /// The next three runs.
    pub next_runs: Vec<DateTime<Utc>>,
}

impl Status {
    /// Puts the databases together.
    #[must_use]
    pub fn of(config: &Config, databases: Vec<DatabaseStatus>, host_now: DateTime<Utc>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            deployment: config.deployment.clone(),
            severity: databases
                .iter()
                .map(|database| database.severity)
                .max()
                .unwrap_or(Severity::Info),
            databases,
            next_runs: config.schedule.next(host_now, 3),
        }
    }
}

impl Status {
    /// Without what a database said, for those who may not see its log.
    #[must_use]
    pub fn without_database_text(mut self) -> Self {
        for database in &mut self.databases {
            if let Some(run) = &mut database.last_run {
                run.error = run.error.take().map(|_| THE_LOG_SAYS_WHY.to_owned());
            }
            for check in &mut database.checks {
                if check.code == CheckCode::RunFailed {
                    check.message = format!("the last run failed as a whole; {THE_LOG_SAYS_WHY}");
                }
            }
        }
        self
    }
}

/// One database at a glance.
#[derive(Debug, Clone, PartialEq, serde::Serialize, utoipa::ToSchema)]
pub struct DatabaseStatus {
    /// Its name in the configuration.
    pub database: String,
    /// The worst of its findings and checks; fail when it cannot be read.
    pub severity: Severity,
    /// Why it cannot be read; none when it can, and then the rest is there.
    pub error: Option<String>,
    /// What kind of error that is.
    pub error_kind: Option<ErrorKind>,
    /// Its clock.
    pub now: Option<DateTime<Utc>>,
    /// How far its clock is ahead of this host's, in seconds; negative when it is behind.
    pub clock_skew_seconds: Option<f64>,
    /// Whether the server is a standby.
    pub standby: bool,
    /// The pause of the schedule; none while it is not paused.
    pub paused: Option<Pause>,
    /// What concerns the service rather than one inbox.
    pub checks: Vec<Check>,
    /// The replicas of the deployment that are alive.
    pub replicas: Vec<Replica>,
    /// The inboxes.
    pub inboxes: Vec<InboxStatus>,
    /// The last run; none before the first.
    pub last_run: Option<LastRun>,
    /// Who was in the way of its steps, as health tells it.
    #[serde(skip)]
    pub(super) in_the_way: Vec<InTheWay>,
}

impl DatabaseStatus {
    /// A database that cannot be read.
    #[must_use]
    pub fn unreadable(database: &str, error: impl Into<String>) -> Self {
        Self {
            database: database.to_owned(),
            severity: Severity::Fail,
            error: Some(error.into()),
            error_kind: None,
            now: None,
            clock_skew_seconds: None,
            standby: false,
            paused: None,
            checks: Vec::new(),
            replicas: Vec::new(),
            inboxes: Vec::new(),
            last_run: None,
            in_the_way: Vec::new(),
        }
    }
}

/// What a [`Check`] is about. The names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckCode {
    /// The server is a standby.
    Standby,
    /// Nobody may write by default.
    ReadOnly,
    /// The schedule is paused.
    Paused,
    /// No run is on record.
    NoRun,
    /// A run should have begun long ago.
    RunOverdue,
    /// Steps of the last run failed or were left out.
    RunPartial,
    /// The last run failed as a whole.
    RunFailed,
    /// The last run has not ended.
    RunUnfinished,
}

/// One thing that concerns the service rather than one inbox.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
pub struct Check {
    /// What it is about.
    pub code: CheckCode,
    /// How bad it is.
    pub severity: Severity,
    /// What is so.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// One inbox at a glance.
#[derive(Debug, Clone, PartialEq, serde::Serialize, utoipa::ToSchema)]
pub struct InboxStatus {
    /// Its name.
    pub inbox: String,
    /// Its table.
    pub table: TableName,
    /// What chooses a partition.
    pub routing: Routing,
    /// Who shares it.
    pub consumers: Consumers,
    /// How long a claim is remembered: the longest of what is configured here, by live replicas, and in the claim functions.
    pub retention: Retention,
    /// Days that must exist after today.
    pub ahead_days: i64,
    /// What the last canary met: a claim that is tried after each run of the service, and rolled back. None before the first.
    pub canary: Option<CanaryStatus>,
    /// Seconds since the oldest transaction began that holds the inbox; none when none does, or it may not be seen.
    pub oldest_transaction_seconds: Option<i64>,
    /// The worst of its findings.
    pub severity: Severity,
    /// Seconds until the first claim would fail for want of a partition; none when the partitions never end.
    pub runway_seconds: Option<i64>,
    /// What was noticed.
    pub findings: Vec<Finding>,
    /// What the next run would do.
    pub steps: Vec<Step>,
    /// Its partitions, oldest first.
    pub partitions: Vec<PartitionStatus>,
}

/// What is becoming of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartitionState {
    /// It holds days to come.
    Ahead,
    /// It holds today.
    Today,
    /// It holds days within the retention.
    Live,
    /// Older than the retention; the next run takes it out.
    Expired,
    /// Its detach was interrupted; the next run ends it.
    PendingDetach,
    /// Taken out; dropped after its grace.
    Detached,
    /// Attached, but not a day's partition of ours.
    Foreign,
}

impl PartitionState {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Ahead,
        Self::Today,
        Self::Live,
        Self::Expired,
        Self::PendingDetach,
        Self::Detached,
        Self::Foreign,
    ];

    /// The state as one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ahead => "ahead",
            Self::Today => "today",
            Self::Live => "live",
            Self::Expired => "expired",
            Self::PendingDetach => "pending_detach",
            Self::Detached => "detached",
            Self::Foreign => "foreign",
        }
    }
}

/// One partition at a glance.
#[derive(Debug, Clone, PartialEq, serde::Serialize, utoipa::ToSchema)]
pub struct PartitionStatus {
    /// Its name.
    pub relation: String,
    /// Its day; none when it holds no single day.
    pub day: Option<Day>,
    /// What is becoming of it.
    pub state: PartitionState,
    /// The time that it holds; none once it is detached.
    pub bounds: Option<Span>,
    /// When it leaves the inbox; none when it never does.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it is dropped; none while it is attached.
    pub dropped_after: Option<DateTime<Utc>>,
    /// Since when it is on hold.
    pub held_since: Option<DateTime<Utc>>,
    /// Who put it on hold.
    pub held_by: Option<String>,
    /// Why it is on hold.
    pub held_because: Option<String>,
    /// The statistics collector's estimate of its rows.
    pub estimated_rows: Option<i64>,
    /// The statistics collector's estimate of its dead rows, as rolled-back claims leave them.
    pub dead_rows: Option<i64>,
    /// Transactions since its oldest row that is not frozen; the server stops taking writes at some 2,140 million.
    pub xid_age: Option<i32>,
    /// When it was last vacuumed.
    pub vacuumed_at: Option<DateTime<Utc>>,
    /// Its size on disk with its index, in bytes; none while somebody has it locked.
    pub bytes: Option<i64>,
}

/// Reads the status of one database.
///
/// # Errors
/// When the database fails, or its control schema is missing or of another version.
pub async fn read_status(
    connection: &mut PgConnection,
    config: &Config,
    database: &Database,
    clock: &Clock,
) -> Result<DatabaseStatus, DbError> {
    let asked_at = clock.now();
    let (mut observation, planned) = plan_all(connection, &database.inboxes, &config.deployment, clock).await?;
    let clock_skew_seconds = skew_seconds(observation.server.now, asked_at, clock.now());
    catalog::add_sizes(connection, &mut observation).await?;
    let oldest_transactions = catalog::oldest_transactions(connection).await?;
    let last_run = journal::last_run(connection, &config.deployment).await?;
    let in_the_way = in_the_way(connection, database, last_run.as_ref()).await?;
    let replicas = catalog::replicas(connection, &config.deployment).await?;
    let paused = operate::paused(connection, &config.deployment).await?;
    let now = observation.server.now;
    let mut inboxes: Vec<_> = database
        .inboxes
        .iter()
        .zip(planned)
        .zip(&observation.inboxes)
        .map(|((spec, planned), observed)| InboxStatus {
            oldest_transaction_seconds: oldest_transactions
                .get(&(spec.table.schema().to_string(), spec.table.table().to_string()))
                .copied(),
            ..inbox_status(spec, planned, observed, now)
        })
        .collect();
    tell_holds(connection, &config.deployment, &mut inboxes).await?;
    let standby = observation.server.in_recovery;
    let mut checks = checks(
        last_run.as_ref(),
        paused.as_ref(),
        &config.schedule,
        &observation.server,
        &in_the_way,
    );
    name_who_keeps_runs_away(connection, &mut checks).await?;
    let worst = inboxes
        .iter()
        .map(|inbox| inbox.severity)
        .chain(checks.iter().map(|check| check.severity))
        .max();
    Ok(DatabaseStatus {
        database: database.name.clone(),
        severity: worst.unwrap_or(Severity::Info),
        error: None,
        error_kind: None,
        now: Some(now),
        clock_skew_seconds: Some(clock_skew_seconds),
        standby,
        paused,
        checks,
        replicas,
        inboxes,
        last_run,
        in_the_way,
    })
}

/// Who holds what is on hold, and why. Only asked for where something is, which is seldom.
async fn tell_holds(
    connection: &mut PgConnection,
    deployment: &str,
    inboxes: &mut [InboxStatus],
) -> Result<(), DbError> {
    let held = |partition: &PartitionStatus| partition.held_since.is_some();
    if !inboxes.iter().flat_map(|inbox| &inbox.partitions).any(held) {
        return Ok(());
    }
    for (schema, table, day, _, by, reason) in decisions::holds(connection, deployment).await? {
        let of_table = |inbox: &&mut InboxStatus| {
            (inbox.table.schema().as_str(), inbox.table.table().as_str()) == (&*schema, &*table)
        };
        let Some(inbox) = inboxes.iter_mut().find(of_table) else {
            continue;
        };
        let day = Some(Day::from(day));
        for partition in inbox
            .partitions
            .iter_mut()
            .filter(|partition| partition.day == day && held(partition))
        {
            (partition.held_by, partition.held_because) = (Some(by.clone()), Some(reason.clone()));
        }
    }
    Ok(())
}

/// How far the database's clock, read between two looks at the host's, is ahead of it.
fn skew_seconds(database: DateTime<Utc>, before: DateTime<Utc>, after: DateTime<Utc>) -> f64 {
    let skew = if database < before {
        database - before
    } else {
        (database - after).max(TimeDelta::zero())
    };
    skew.as_seconds_f64()
}

/// What the history of runs says, by the database's clock.
fn checks(
    last_run: Option<&LastRun>,
    paused: Option<&Pause>,
    schedule: &Schedule,
    server: &Server,
    in_the_way: &[InTheWay],
) -> Vec<Check> {
    let Server {
        now,
        in_recovery: standby,
        read_only,
        ..
    } = *server;
    let warn = |code: CheckCode, message: String, remedy: &str| Check {
        code,
        severity: Severity::Warn,
        message,
        remedy: remedy.to_owned(),
    };
    if standby {
        let message = "the server is a standby: nothing is written until it is promoted".to_owned();
        return vec![Check {
            code: CheckCode::Standby,
            severity: Severity::Info,
            message,
            remedy: "nothing to do".to_owned(),
        }];
    }
    let mut checks = Vec::new();
    if let Some(pause) = paused {
        let since = pause.paused_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
        let (by, reason) = (&pause.paused_by, &pause.reason);
        checks.push(warn(
            CheckCode::Paused,
            format!("the schedule is paused since {since} by {by}: {reason}"),
            "run `inboxd resume`; until then nothing is created or removed unless a person runs it",
        ));
    }
    let Some(run) = last_run else {
        checks.push(warn(
            CheckCode::NoRun,
            "no run is on record".to_owned(),
            "start `inboxd serve`, or run `inboxd run`",
        ));
        return checks;
    };
    if read_only {
        checks.push(warn(
            CheckCode::ReadOnly,
            "transactions are read only by default: no run can write".to_owned(),
            "reset default_transaction_read_only for this role and database",
        ));
    }
    let due = schedule
        .next(run.started_at, 1)
        .first()
        .map(|due| *due + RUN_MAY_BE_LATE_BY);
    // Why none begins while the schedule is paused was said above.
    if paused.is_none() && due.is_some_and(|due| due < now) {
        checks.push(warn(
            CheckCode::RunOverdue,
            format!("no run has begun since {}", run.started_at.to_rfc3339()),
            "see whether `inboxd serve` is alive",
        ));
    }
    match run.outcome.as_deref() {
        Some("partial") => {
            let (count, who) = (run.steps_not_done, clauses(in_the_way.iter()));
            let message = format!("in the last run {count} steps failed or were left out{who}");
            checks.push(warn(
                CheckCode::RunPartial,
                message,
                "the next run tries again; the log says why",
            ));
        }
        Some("failed") => {
            let why = run.error.as_deref().unwrap_or("the log says why");
            checks.push(warn(
                CheckCode::RunFailed,
                format!("the last run failed as a whole: {why}"),
                "the next run tries again",
            ));
        }
        None if run.started_at + RUN_MAY_BE_LATE_BY < now => {
            checks.push(warn(
                CheckCode::RunUnfinished,
                "the last run has not ended: its process died, or it hangs".to_owned(),
                "see whether `inboxd serve` is alive",
            ));
        }
        _ => {}
    }
    checks
}

fn inbox_status(spec: &InboxSpec, planned: PlannedInbox, observed: &Observed, now: DateTime<Utc>) -> InboxStatus {
    let PlannedInbox { inbox, table, plan } = planned;
    let held = &observed.found.held;
    let mut partitions: Vec<PartitionStatus> = observed
        .found
        .relations
        .iter()
        // A stranger's table that only has a name like ours is a finding, not a partition.
        .filter(|relation| relation.attachment != Attachment::Loose || relation.marker.is_some())
        .map(|relation| {
            let held_since = relation.day().and_then(|day| held.get(&day).copied());
            partition_status(relation, plan.retention, spec.policy.drop_grace, held_since, now)
        })
        .collect();
    partitions.sort_by_key(|partition| (partition.bounds.and_then(|span| span.from), partition.day));
    InboxStatus {
        inbox,
        table,
        routing: spec.policy.routing,
        consumers: spec.policy.consumers,
        retention: plan.retention,
        ahead_days: spec.policy.ahead.days(),
        canary: None,
        oldest_transaction_seconds: None,
        severity: plan.severity(),
        runway_seconds: plan.runway_seconds,
        findings: plan.findings,
        steps: plan.steps,
        partitions,
    }
}

fn partition_status(
    relation: &FoundRelation,
    retention: Retention,
    drop_grace: TimeDelta,
    held_since: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> PartitionStatus {
    let bounds = relation.bounds.as_ref().and_then(crate::pure::Bounds::span);
    let day = relation.day();
    let expires_at = match (retention, day) {
        (Retention::For(length), Some(day)) => day.end().checked_add_signed(length),
        _ => None,
    };
    let state = match (relation.attachment, day) {
        (Attachment::PendingDetach, _) => PartitionState::PendingDetach,
        (Attachment::Loose, _) => PartitionState::Detached,
        (Attachment::Attached, None) => PartitionState::Foreign,
        (Attachment::Attached, Some(day)) if day.start() > now => PartitionState::Ahead,
        (Attachment::Attached, Some(day)) if day.end() > now => PartitionState::Today,
        (Attachment::Attached, Some(_)) if expires_at.is_some_and(|at| at <= now) => PartitionState::Expired,
        (Attachment::Attached, Some(_)) => PartitionState::Live,
    };
    let dropped_after = relation
        .detached_at
        .filter(|_| state == PartitionState::Detached)
        .and_then(|at| at.checked_add_signed(drop_grace));
    PartitionStatus {
        relation: relation.name.to_string(),
        day,
        state,
        bounds,
        expires_at,
        dropped_after,
        held_since,
        held_by: None,
        held_because: None,
        estimated_rows: relation.estimated_rows,
        dead_rows: relation.dead_rows,
        xid_age: relation.xid_age,
        vacuumed_at: relation.vacuumed_at,
        bytes: relation.bytes,
    }
}
