//! Health as a function of the status: which check says what.

use super::*;
use crate::{
    postgres::journal::LastRun,
    pure::{Consumers, Retention, Routing},
    service::status::{Check, PartitionStatus},
};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn noon() -> DateTime<Utc> {
    at("2026-12-01T12:00:00.5Z")
}

pub(in crate::service) fn inbox() -> InboxStatus {
    InboxStatus {
        inbox: "orders".to_owned(),
        table: "public.inbox".parse().unwrap(),
        routing: Routing::ProcessedAt,
        consumers: Consumers::One,
        retention: Retention::For(TimeDelta::days(7)),
        ahead_days: 7,
        canary: None,
        oldest_transaction_seconds: None,
        severity: Severity::Info,
        // To the end of 8 December, less what is cut off.
        runway_seconds: Some(7 * 86_400 + 12 * 3_600 - 1),
        findings: Vec::new(),
        steps: Vec::new(),
        partitions: Vec::new(),
    }
}

pub(in crate::service) fn database(inboxes: Vec<InboxStatus>) -> DatabaseStatus {
    DatabaseStatus {
        error: None,
        now: Some(noon()),
        clock_skew_seconds: Some(0.0),
        inboxes,
        last_run: Some(LastRun {
            id: uuid::Uuid::nil(),
            trigger: "schedule".to_owned(),
            started_at: at("2026-12-01T11:59:00Z"),
            finished_at: Some(at("2026-12-01T11:59:01Z")),
            outcome: Some("done".to_owned()),
            error: None,
            steps_done: 0,
            steps_failed: 0,
            steps_not_done: 0,
            last_success_at: Some(at("2026-12-01T11:59:01Z")),
        }),
        ..DatabaseStatus::unreadable("main", "")
    }
}

fn of(databases: Vec<DatabaseStatus>) -> Health {
    health(&Status {
        version: "1.2.3",
        deployment: "test".to_owned(),
        severity: Severity::Info,
        databases,
        next_runs: Vec::new(),
    })
}

fn finding(code: FindingCode, severity: Severity, message: &str) -> Finding {
    Finding {
        code,
        severity,
        relation: None,
        day: None,
        message: message.to_owned(),
        remedy: format!("mend {message}"),
    }
}

pub(in crate::service) fn partition(state: PartitionState, expires_at: &str) -> PartitionStatus {
    PartitionStatus {
        relation: "inbox_2026_11_20".to_owned(),
        day: None,
        state,
        bounds: None,
        expires_at: Some(at(expires_at)),
        dropped_after: None,
        held_since: None,
        held_by: None,
        held_because: None,
        estimated_rows: Some(10),
        dead_rows: Some(1),
        xid_age: Some(5),
        vacuumed_at: None,
        bytes: None,
    }
}

/// The only entry of a check.
#[track_caller]
fn only<'h>(health: &'h Health, name: &str) -> &'h HealthCheck {
    let [check] = health.checks[name].as_slice() else {
        panic!("{name}: {:?}", health.checks[name]);
    };
    check
}

#[test]
fn all_is_well_and_every_check_is_there() {
    let health = of(vec![database(vec![inbox()])]);
    assert_eq!(health.status, HealthStatus::Pass);
    for name in INBOX_CHECKS {
        let check = only(&health, name);
        assert_eq!(
            (check.status, &check.output, check.component_type),
            (HealthStatus::Pass, &None, "inbox"),
            "{name}"
        );
    }
    for name in [
        "database",
        "schema_version",
        "last_success",
        "standby",
        "writable",
        "clock_skew",
    ] {
        assert_eq!(only(&health, name).component_type, "datastore", "{name}");
    }
    assert_eq!(only(&health, "days_ahead").observed_value, Some(7.0));
    assert_eq!(only(&health, "runway").observed_unit, Some("s"));
    assert_eq!(only(&health, "last_success").observed_value, Some(59.5));
}

#[test]
fn every_finding_has_a_check_that_is_there() {
    // One of each check's; the match itself is exhaustive.
    for code in [
        FindingCode::InboxUnfit,
        FindingCode::OtherServer,
        FindingCode::Runway,
        FindingCode::NameTaken,
        FindingCode::MissingKey,
        FindingCode::ClaimDrift,
        FindingCode::PlainInsert,
        FindingCode::Publication,
        FindingCode::DefaultPartition,
        FindingCode::WrongName,
        FindingCode::TablespaceDrift,
        FindingCode::OldTransactions,
        FindingCode::ReplicasDisagree,
        FindingCode::BlockedByCap,
    ] {
        let mut inbox = inbox();
        inbox.findings.push(finding(code, Severity::Warn, "it"));
        let health = of(vec![database(vec![inbox])]);
        let check = only(&health, check_of(code));
        assert_eq!(check.status, HealthStatus::Warn, "{code:?}");
        assert_eq!(check.remedy.as_deref(), Some("mend it"), "{code:?}");
        assert_eq!(health.status, HealthStatus::Warn);
    }
}

#[test]
fn the_worst_finding_decides_and_more_than_a_few_are_counted() {
    let mut inbox = inbox();
    for number in 0..7 {
        let severity = if number == 6 { Severity::Fail } else { Severity::Warn };
        inbox
            .findings
            .push(finding(FindingCode::MissingKey, severity, &format!("m{number}")));
    }
    let health = of(vec![database(vec![inbox])]);
    let check = only(&health, "key");
    assert_eq!((health.status, check.status), (HealthStatus::Fail, HealthStatus::Fail));
    assert_eq!(check.output.as_deref(), Some("m6; m0; m1; m2; m3; and 2 more"));
    assert_eq!(check.observed_value, Some(7.0));
}

#[test]
fn s1_a_falling_runway_fails_and_says_how_many_days_are_there() {
    let mut inbox = inbox();
    inbox.runway_seconds = Some(86_400);
    inbox
        .findings
        .push(finding(FindingCode::Runway, Severity::Fail, "soon"));
    let health = of(vec![database(vec![inbox])]);
    let days = only(&health, "days_ahead");
    assert_eq!((days.status, days.observed_value), (HealthStatus::Fail, Some(0.0)));
    assert_eq!(days.output.as_deref(), Some("0 of 7 days are there"));
    assert_eq!(only(&health, "runway").status, HealthStatus::Fail);
}

#[test]
fn who_was_in_the_way_of_a_step_is_told_where_its_partition_is_overdue_and_of_no_other_inbox() {
    let mut late = inbox();
    late.partitions = vec![partition(PartitionState::Expired, "2026-11-28T00:00:00Z")];
    let mut other = late.clone();
    other.inbox = "others".to_owned();
    let mut database = database(vec![late, other]);
    database.in_the_way = vec![InTheWay {
        inbox: Some("orders".to_owned()),
        words: "in the way of inbox_2026_11_20: pid 7 (psql, idle in transaction, its transaction 3.0 s old)"
            .to_owned(),
    }];
    let health = of(vec![database]);
    let told = |name: &str| {
        let check = health.checks["overdue_expiry"]
            .iter()
            .find(|check| check.component_id == name);
        check.unwrap().output.clone().unwrap()
    };
    assert!(told("orders").ends_with(
        "still there; in the way of inbox_2026_11_20: pid 7 (psql, idle in transaction, its transaction 3.0 s old)"
    ));
    assert!(told("others").ends_with("still there"), "{}", told("others"));
}

#[test]
fn an_expired_partition_is_overdue_a_day_later_unless_it_is_held() {
    for (state, expires_at, held, status) in [
        (
            PartitionState::Expired,
            "2026-11-30T12:00:01Z",
            false,
            HealthStatus::Pass,
        ),
        (
            PartitionState::Expired,
            "2026-11-30T12:00:00Z",
            false,
            HealthStatus::Warn,
        ),
        (
            PartitionState::PendingDetach,
            "2026-11-30T12:00:00Z",
            false,
            HealthStatus::Warn,
        ),
        (
            PartitionState::Expired,
            "2026-11-30T12:00:00Z",
            true,
            HealthStatus::Pass,
        ),
        (
            PartitionState::Detached,
            "2026-11-01T12:00:00Z",
            false,
            HealthStatus::Pass,
        ),
    ] {
        let mut inbox = inbox();
        let mut partition = partition(state, expires_at);
        partition.held_since = held.then(noon);
        inbox.partitions.push(partition);
        let health = of(vec![database(vec![inbox])]);
        assert_eq!(
            only(&health, "overdue_expiry").status,
            status,
            "{state:?} {expires_at} {held}"
        );
    }
}

#[test]
fn s23_a_pending_detach_is_told_and_no_alarm() {
    let mut inbox = inbox();
    inbox
        .partitions
        .push(partition(PartitionState::PendingDetach, "2026-12-01T00:00:00Z"));
    let health = of(vec![database(vec![inbox])]);
    let check = only(&health, "pending_detach");
    assert_eq!((health.status, check.observed_value), (HealthStatus::Pass, Some(1.0)));
    assert!(check.output.as_ref().unwrap().contains("interrupted"));
}

#[test]
fn s37_dead_rows_warn_where_they_are_many_and_more_than_the_living() {
    for (dead, live, status) in [
        (99_999, 0, HealthStatus::Pass),
        (100_000, 100_000, HealthStatus::Pass),
        (100_001, 100_000, HealthStatus::Warn),
    ] {
        let mut inbox = inbox();
        let mut partition = partition(PartitionState::Today, "2026-12-09T00:00:00Z");
        (partition.dead_rows, partition.estimated_rows) = (Some(dead), Some(live));
        inbox.partitions.push(partition);
        let health = of(vec![database(vec![inbox])]);
        assert_eq!(only(&health, "dead_rows").status, status, "{dead} {live}");
        assert_eq!(only(&health, "xid_age").observed_value, Some(5.0));
    }
}

#[test]
fn a_database_that_cannot_be_read_fails_and_another_is_still_told_of() {
    let mut away = DatabaseStatus::unreadable("b", "the database cannot be reached; the log says why");
    away.error_kind = Some(ErrorKind::Unreachable);
    let mut empty = DatabaseStatus::unreadable("c", "run `inboxd init`");
    empty.error_kind = Some(ErrorKind::Missing);
    let health = of(vec![database(vec![inbox()]), away, empty]);
    assert_eq!(health.status, HealthStatus::Fail);
    let databases: Vec<_> = health.checks["database"]
        .iter()
        .map(|check| (check.component_id.as_str(), check.status))
        .collect();
    let expected = [
        ("main", HealthStatus::Pass),
        ("b", HealthStatus::Fail),
        ("c", HealthStatus::Pass),
    ];
    assert_eq!(databases, expected);
    let schema = &health.checks["schema_version"][1];
    assert_eq!((schema.component_id.as_str(), schema.status), ("c", HealthStatus::Fail));
    assert_eq!(schema.remedy.as_deref(), Some("run `inboxd init`"));
}

#[test]
fn s15_a_clock_that_is_not_trusted_is_told_at_the_clock_and_at_the_drops() {
    let mut inbox = inbox();
    inbox
        .findings
        .push(finding(FindingCode::BlockedByClock, Severity::Warn, "apart"));
    let mut database = database(vec![inbox]);
    database.clock_skew_seconds = Some(400.0);
    let health = of(vec![database]);
    let clock = only(&health, "clock_skew");
    assert_eq!((clock.status, clock.observed_value), (HealthStatus::Warn, Some(400.0)));
    assert_eq!(only(&health, "blocked_drops").status, HealthStatus::Warn);
}

#[test]
fn s33_a_standby_passes_and_says_so_and_a_read_only_database_warns() {
    let said = |code, severity, message: &str| Check {
        code,
        severity,
        message: message.to_owned(),
        remedy: "look".to_owned(),
    };
    let mut standby = database(vec![inbox()]);
    standby.standby = true;
    standby
        .checks
        .push(said(CheckCode::Standby, Severity::Info, "a standby"));
    let health = of(vec![standby]);
    let check = only(&health, "standby");
    assert_eq!((health.status, check.observed_value), (HealthStatus::Pass, Some(1.0)));
    assert_eq!((check.output.as_deref(), &check.remedy), (Some("a standby"), &None));

    let mut mute = database(vec![inbox()]);
    mute.checks.push(said(CheckCode::ReadOnly, Severity::Warn, "read only"));
    mute.checks.push(said(CheckCode::RunFailed, Severity::Warn, "failed"));
    let health = of(vec![mute]);
    assert_eq!(only(&health, "writable").status, HealthStatus::Warn);
    assert_eq!(only(&health, "last_success").output.as_deref(), Some("failed"));
}
