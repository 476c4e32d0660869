//! What the page says, of statuses that are made up.

use chrono::{DateTime, TimeDelta, Utc};

use super::{problems::Act, *};
use crate::{
    postgres::history::{RecordedStep, RunRecord},
    pure::{Consumers, Day, Finding, FindingCode, Retention, Routing, Severity, Span},
    service::{
        health::health,
        page::timeline::{self, Kind, State},
        status::{InboxStatus, PartitionState, PartitionStatus, Status},
    },
};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn now() -> DateTime<Utc> {
    at("2026-12-10T12:00:00Z")
}

fn day(offset: i64) -> Day {
    Day::containing(now()).plus(offset)
}

fn partition(offset: i64, state: PartitionState, bytes: i64) -> PartitionStatus {
    let day = day(offset);
    PartitionStatus {
        relation: format!("inbox_{}", day.underscored()),
        day: Some(day),
        state,
        bounds: (state != PartitionState::Detached).then(|| Span::of(day)),
        expires_at: Some(day.end() + TimeDelta::days(3)),
        dropped_after: (state == PartitionState::Detached).then(|| now() + TimeDelta::hours(5)),
        held_since: None,
        held_by: None,
        held_because: None,
        estimated_rows: Some(10),
        dead_rows: Some(0),
        xid_age: Some(1),
        vacuumed_at: None,
        bytes: Some(bytes),
    }
}

/// Three days behind, today, two ahead.
fn inbox(name: &str) -> InboxStatus {
    let live = (-3..0).map(|offset| partition(offset, PartitionState::Live, 1024 * 1024 * (4 + offset)));
    let today = [partition(0, PartitionState::Today, 8192)];
    let ahead = (1..=2).map(|offset| partition(offset, PartitionState::Ahead, 8192));
    InboxStatus {
        inbox: name.to_owned(),
        table: "public.inbox".parse().unwrap(),
        routing: Routing::ProcessedAt,
        consumers: Consumers::One,
        retention: Retention::For(TimeDelta::days(3)),
        ahead_days: 2,
        canary: None,
        oldest_transaction_seconds: None,
        severity: Severity::Info,
        runway_seconds: Some(2 * 86_400 + 43_200),
        findings: Vec::new(),
        steps: Vec::new(),
        partitions: live.chain(today).chain(ahead).collect(),
    }
}

fn finding(code: FindingCode, severity: Severity, day: Option<Day>) -> Finding {
    Finding {
        code,
        severity,
        relation: None,
        day,
        message: format!("{code:?} is so"),
        remedy: "run `inboxd init`".to_owned(),
    }
}

fn status(inboxes: Vec<InboxStatus>) -> Status {
    let database = DatabaseStatus {
        now: Some(now()),
        error: None,
        severity: Severity::Info,
        inboxes,
        ..DatabaseStatus::unreadable("main", "")
    };
    Status {
        version: "0.1.0",
        deployment: "test".to_owned(),
        severity: Severity::Info,
        databases: vec![database],
        next_runs: vec![now() + TimeDelta::minutes(5)],
    }
}

fn with_findings(name: &str, findings: Vec<Finding>) -> InboxStatus {
    InboxStatus {
        findings,
        ..inbox(name)
    }
}

fn said(status: &Status) -> Problems {
    problems(&health(status), status)
}

/// The days as `offset class`, those in a row with the same class once.
fn classes(inbox: &InboxStatus) -> Vec<String> {
    let cells = timeline::timeline(inbox, now()).cells;
    let told = cells.iter().map(|cell| cell.kind.class().to_owned());
    let mut told: Vec<String> = told.collect();
    told.dedup();
    told
}

#[test]
fn one_sentence_says_whether_all_is_well() {
    assert_eq!(
        said(&status(vec![inbox("a")])).sentence,
        "All is well: 1 inbox, with partitions for 2 d 12 h to come."
    );
    let two = status(vec![inbox("a"), inbox("b")]);
    assert_eq!(
        said(&two).sentence,
        "All is well: 2 inboxes, each with partitions for at least 2 d 12 h to come."
    );
    let drift = finding(FindingCode::ClaimDrift, Severity::Warn, None);
    let warned = status(vec![with_findings("a", vec![drift.clone()])]);
    assert_eq!(
        said(&warned).sentence,
        "Claims go on, but one thing should be looked at in the next days."
    );
    let runway = finding(FindingCode::Runway, Severity::Fail, None);
    let mut failing = status(vec![with_findings("a", vec![drift, runway])]);
    assert_eq!(
        said(&failing).sentence,
        "Act now: a: Runway is so, and one more check fails."
    );
    failing.databases = vec![DatabaseStatus::unreadable("main", "the database cannot be reached")];
    assert_eq!(
        said(&failing).sentence,
        "Act now: main: the database cannot be reached."
    );
    assert_eq!(said(&failing).class, "fail");
}

#[test]
fn what_fails_stands_before_what_warns_and_the_same_trouble_is_told_once_with_its_places() {
    let drift = || finding(FindingCode::ClaimDrift, Severity::Warn, None);
    let mut inboxes: Vec<InboxStatus> = (0..8).map(|n| with_findings(&format!("i{n}"), vec![drift()])).collect();
    inboxes[3]
        .findings
        .push(finding(FindingCode::MissingKey, Severity::Fail, None));
    let problems = said(&status(inboxes));
    let told: Vec<_> = problems
        .groups
        .iter()
        .map(|group| (group.class, group.name.as_str()))
        .collect();
    assert_eq!(told, [("fail", "key"), ("warn", "claim functions")]);
    assert_eq!((problems.groups[1].places.len(), problems.groups[1].more), (5, 3));
    let code: Vec<_> = problems.groups[0]
        .remedy
        .iter()
        .map(|piece| (piece.is_code, piece.text.as_str()))
        .collect();
    assert_eq!(code, [(false, "run "), (true, "inboxd init")]);
    assert!(problems.passed > 100);
}

#[test]
fn what_a_person_can_do_about_a_check_is_offered_with_it() {
    let over = finding(FindingCode::BlockedByCap, Severity::Warn, None);
    let problems = said(&status(vec![with_findings("a", vec![over])]));
    assert_eq!(problems.groups[0].act, Some(Act::ConfirmDrops));
    assert!(problems.groups[0].places[0].is_over_the_cap);
    let held = finding(FindingCode::BlockedByHold, Severity::Warn, None);
    assert_eq!(said(&status(vec![with_findings("a", vec![held])])).groups[0].act, None);
    let clock = finding(FindingCode::BlockedByClock, Severity::Warn, None);
    let acts: Vec<_> = said(&status(vec![with_findings("a", vec![clock])]))
        .groups
        .iter()
        .map(|group| group.act)
        .collect();
    assert!(acts.contains(&Some(Act::ConfirmClock)), "{acts:?}");
}

#[test]
fn the_days_go_from_the_oldest_table_to_the_last_one_ahead() {
    let mut inbox = inbox("a");
    inbox.partitions.insert(0, partition(-4, PartitionState::Expired, 10));
    inbox.partitions.insert(0, partition(-5, PartitionState::Detached, 10));
    assert_eq!(classes(&inbox), ["detached", "expired", "live", "today", "ahead"]);
    let timeline = timeline::timeline(&inbox, now());
    assert_eq!(timeline.cells[0].note, "dropped in 5 h");
    assert_eq!(timeline.cells.len(), 8);
    assert_eq!(timeline.summary, "2 ahead, today, 3 live, 1 expired, 1 detached");
}

#[test]
fn a_day_that_lost_its_partition_is_missing_and_one_that_never_had_one_is_not() {
    let mut one = inbox("a");
    one.partitions
        .retain(|partition| ![Some(day(-2)), Some(day(2))].contains(&partition.day));
    assert_eq!(classes(&one), ["live", "never", "live", "today", "ahead", "gap"]);
    one.findings = vec![finding(FindingCode::Gap, Severity::Warn, Some(day(-2)))];
    assert_eq!(classes(&one), ["live", "gap", "live", "today", "ahead", "gap"]);
    // A finding names the first of several days, also before the oldest partition.
    one.partitions.retain(|partition| partition.day >= Some(day(0)));
    one.findings = vec![finding(FindingCode::Gap, Severity::Warn, Some(day(-3)))];
    assert_eq!(classes(&one), ["gap", "today", "ahead", "gap"]);
    // Without any partition all days that must exist are missing, today first.
    one.partitions.clear();
    one.findings.clear();
    assert_eq!(classes(&one), ["gap"]);
}

#[test]
fn a_partition_of_several_days_fills_them_and_a_restored_twin_hides_what_is_detached() {
    let mut one = inbox("a");
    one.partitions.retain(|partition| partition.day >= Some(day(0)));
    let wide = Span {
        from: None,
        to: Some(day(0).start()),
    };
    one.partitions.push(PartitionStatus {
        day: None,
        bounds: Some(wide),
        state: PartitionState::Foreign,
        ..partition(-1, PartitionState::Foreign, 1)
    });
    one.partitions.push(partition(-2, PartitionState::Detached, 1));
    one.partitions.push(partition(-2, PartitionState::Live, 1));
    assert_eq!(classes(&one), ["live", "wide", "today", "ahead"]);
}

#[test]
fn bars_are_in_proportion_and_an_empty_inbox_is_not_drawn_full() {
    let bars = |inbox: &InboxStatus| -> Vec<i64> {
        timeline::timeline(inbox, now())
            .cells
            .iter()
            .map(|cell| cell.bar)
            .collect()
    };
    assert_eq!(bars(&inbox("a")), [7, 13, 20, 1, 1, 1]);
    let mut empty = inbox("a");
    for partition in &mut empty.partitions {
        partition.bytes = Some(8192);
    }
    assert!(bars(&empty).iter().all(|bar| *bar == 1));
}

#[test]
fn a_hold_is_told_in_words_and_a_long_retention_is_cut_at_its_old_end() {
    let mut held = inbox("a");
    held.partitions[0].held_since = Some(now());
    held.partitions[0].held_by = Some("ops".to_owned());
    held.partitions[0].held_because = Some("an audit".to_owned());
    let cell = timeline::timeline(&held, now()).cells.remove(0);
    assert!(
        cell.is_held && cell.title.contains("on hold by ops: an audit") && cell.note.contains("released"),
        "{cell:?}"
    );
    held.partitions = (-900..=2)
        .map(|offset| partition(offset, PartitionState::Live, 1))
        .collect();
    let long = timeline::timeline(&held, now());
    assert_eq!((long.cells.len(), long.left_out, long.density), (400, 503, "tiny"));
    assert_eq!(long.cells.last().unwrap().day, day(2));
    assert_eq!(long.strip(now()).marks.len(), 33);
    assert_eq!(long.cells[0].kind, Kind::Partition(State::Live));
}

#[test]
fn the_worst_inbox_comes_first_and_a_few_are_shown_in_full() {
    let failing = with_findings("zz", vec![finding(FindingCode::MissingKey, Severity::Fail, None)]);
    let names = |view: &Overview| -> Vec<String> { view.inboxes.iter().map(|row| row.name.clone()).collect() };
    let few = overview(&status(vec![inbox("a"), failing.clone()]), "");
    assert_eq!(names(&few), ["zz", "a"]);
    assert!(few.inboxes[0].timeline.is_some() && !few.is_searchable);
    let mut inboxes: Vec<InboxStatus> = (0..200).map(|n| inbox(&format!("i{n:03}"))).collect();
    inboxes.push(failing);
    let many = overview(&status(inboxes.clone()), "");
    assert_eq!((many.inboxes.len(), names(&many)[0].as_str()), (201, "zz"));
    assert!(many.inboxes[0].timeline.is_none() && many.is_searchable);
    assert_eq!(names(&overview(&status(inboxes), " I19")).len(), 10);
}

#[test]
fn an_inbox_is_told_with_what_concerns_it_and_nothing_of_the_others() {
    let failing = with_findings("b", vec![finding(FindingCode::MissingKey, Severity::Fail, None)]);
    let both = status(vec![inbox("a"), failing]);
    assert_eq!(super::inbox(&both, "a").unwrap().problems.class, "pass");
    let b = super::inbox(&both, "b").unwrap();
    assert_eq!(b.problems.class, "fail");
    assert_eq!(b.partitions[0].day, Some(day(2)));
    assert!(b.partitions.iter().all(|row| row.can_hold && !row.can_restore));
    assert!(super::inbox(&both, "c").is_none());
}

#[test]
fn runs_with_nothing_to_do_are_counted_in_one_line() {
    let run = |minute: i64, steps: usize, outcome: &str| PastRun {
        database: "main".to_owned(),
        record: RunRecord {
            id: uuid::Uuid::nil(),
            ordinal: minute,
            trigger: "schedule".to_owned(),
            version: "0.1.0".to_owned(),
            started_at: now() + TimeDelta::minutes(minute - 60),
            finished_at: Some(now() + TimeDelta::minutes(minute - 60) + TimeDelta::milliseconds(1250)),
            outcome: Some(outcome.to_owned()),
            has_error: false,
            steps_done: steps as i64,
            steps_failed: 0,
            steps_skipped: 0,
        },
        steps: (0..steps)
            .map(|n| (Some(if n == 0 { "a" } else { "b" }.to_owned()), step()))
            .collect(),
    };
    let past = [
        run(0, 2, "done"),
        run(10, 0, "done"),
        run(20, 0, "done"),
        run(30, 0, "failed"),
        run(40, 0, "done"),
    ];
    let told = |inbox: Option<&str>| -> Vec<String> {
        let entries = runs(&past, inbox, now(), 8).entries;
        let told = entries.iter().map(|entry| match entry {
            Entry::Idle(idle) => idle.count(),
            Entry::Run(run) => format!("{} {} {}", run.outcome, run.summary, run.took.as_deref().unwrap_or("")),
        });
        told.collect()
    };
    assert_eq!(
        told(None),
        ["1 run", "failed no step 1.2 s", "2 runs", "done 2 done 1.2 s"]
    );
    assert_eq!(told(Some("a"))[3], "done 1 done 1.2 s");
    assert_eq!(told(Some("c")), ["1 run", "failed no step 1.2 s", "3 runs"]);
}

fn step() -> RecordedStep {
    RecordedStep {
        ordinal: 1,
        table: None,
        day: None,
        relation: "inbox_2026_12_01".to_owned(),
        action: "repair_key".to_owned(),
        reason: "it is gone".to_owned(),
        outcome: "done".to_owned(),
        error_kind: None,
        attempts: 1,
        started_at: now(),
        duration_ms: 5,
    }
}
