//! Points 5, 6 and 11: what is detached, put on record and dropped, and what never is.

use chrono::TimeDelta;

use super::model::*;
use crate::pure::{
    Attachment, Bounds, FindingCode, Found, LeftByDrain, Ownership, Policy, RelationKind, Retention, Severity, plan,
};

const NOON: &str = "2026-12-10T12:00:00Z";

#[test]
fn a_day_expires_the_instant_its_whole_range_is_older_than_the_retention() {
    for (now, expired) in [
        ("2026-12-08T23:59:59.999999Z", false),
        ("2026-12-09T00:00:00Z", true),
        ("2026-12-09T00:00:00.000001Z", true),
    ] {
        let now = at(now);
        let mut found = healthy(now, &policy());
        found
            .relations
            .retain(|relation| relation.day() != Some(day("2026-12-01")));
        attach(&mut found, day("2026-12-01"));
        let expected: &[&str] = if expired { &["detach 2026-12-01"] } else { &[] };
        assert_eq!(shown(&plan(now, &policy(), &found)), expected, "{now}");
    }
}

#[test]
fn a_retention_with_hours_expires_its_days_at_that_hour() {
    let policy = Policy {
        retention: "1d 6h".parse().unwrap(),
        ..policy()
    };
    for (now, expired) in [("2026-12-10T05:59:59.999999Z", false), ("2026-12-10T06:00:00Z", true)] {
        let now = at(now);
        let mut found = empty(now);
        attach_days(&mut found, day("2026-12-08"), day("2026-12-17"));
        let expected: &[&str] = if expired { &["detach 2026-12-08"] } else { &[] };
        assert_eq!(shown(&plan(now, &policy, &found)), expected, "{now}");
    }
}

#[test]
fn a_detached_partition_is_dropped_the_instant_its_grace_is_over() {
    let detached = at("2026-12-09T00:10:00.123456Z");
    for (micros, expected) in [
        (-1, &[][..]),
        (0, &["drop 2026-12-01"][..]),
        (1, &["drop 2026-12-01"][..]),
    ] {
        let now = detached + policy().drop_grace + TimeDelta::microseconds(micros);
        let mut found = healthy(now, &policy());
        loose(&mut found, day("2026-12-01"), Some(detached));
        assert_eq!(shown(&plan(now, &policy(), &found)), expected, "{micros}");
    }
}

#[test]
fn an_expired_day_is_detached_then_dropped_and_then_forgotten() {
    let now = at("2026-12-10T00:10:00Z");
    let mut found = healthy(now, &policy());
    attach(&mut found, day("2026-12-01"));
    let (found, plan) = run(found, &policy(), now);
    assert_eq!(shown(&plan), ["detach 2026-12-01"]);
    assert!(plan.steps[0].reason.contains("retention of 7d"));
    let (found, plan) = run(found, &policy(), now + TimeDelta::hours(23));
    assert_eq!(shown(&plan), [""; 0]);
    let (found, plan) = run(found, &policy(), now + TimeDelta::hours(24));
    assert_eq!(
        shown(&plan),
        ["create 2026-12-18", "detach 2026-12-03", "drop 2026-12-01"]
    );
    assert!(
        found
            .relations
            .iter()
            .all(|relation| relation.day() != Some(day("2026-12-01")))
    );
}

#[test]
fn s20_a_retention_cut_from_30_to_3_is_shown_and_waits_behind_the_cap() {
    let now = at(NOON);
    let mut policy = Policy {
        retention: days(30),
        ..policy()
    };
    let mut found = healthy(now, &policy);
    policy.retention = days(3);
    found.claim_retention = Some(days(3));
    let plan = plan(now, &policy, &found);
    assert_eq!(shown(&plan), each("detach", "2026-11-10", "2026-11-13"));
    let finding = only(&plan, FindingCode::BlockedByCap);
    assert_eq!(finding.severity, Severity::Warn);
    assert!(
        finding.message.starts_with("23 more partitions are due to be detached"),
        "{}",
        finding.message
    );
}

#[test]
fn the_claim_functions_longer_retention_rules_until_they_are_made_again() {
    let now = at(NOON);
    for made_with in [days(30), Retention::Forever] {
        let mut found = healthy(now, &policy());
        attach(&mut found, day("2026-12-01"));
        found.claim_retention = Some(made_with);
        let plan = plan(now, &policy(), &found);
        assert_eq!(shown(&plan), [""; 0], "{made_with}");
    }
    for made_with in [None, Some(days(7)), Some(days(1))] {
        let mut found = healthy(now, &policy());
        attach(&mut found, day("2026-12-01"));
        found.claim_retention = made_with;
        assert_eq!(shown(&plan(now, &policy(), &found)), ["detach 2026-12-01"]);
    }
    let mut found = empty(now);
    found.claim_retention = Some(days(30));
    let steps = shown(&plan(now, &by_message_id(), &found));
    assert_eq!(
        *steps.last().unwrap(),
        "create 2026-11-10",
        "it decides what may be claimed, too"
    );
}

#[test]
fn detaching_and_dropping_have_a_cap_each_and_begin_with_the_oldest() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    for back in [25, 21, 23, 22, 24, 20] {
        attach(&mut found, day("2026-12-10").plus(-back));
        loose(
            &mut found,
            day("2026-11-10").plus(-back),
            Some(now - TimeDelta::days(2)),
        );
    }
    let expected = [
        each("detach", "2026-11-15", "2026-11-18"),
        each("drop", "2026-10-16", "2026-10-19"),
    ];
    let plan = plan(now, &policy(), &found);
    assert_eq!(shown(&plan), expected.concat());
    let messages: Vec<_> = with_code(&plan, FindingCode::BlockedByCap)
        .iter()
        .map(|finding| finding.message.as_str())
        .collect();
    assert!(messages[0].contains("2 more") && messages[0].contains("detached"));
    assert!(messages[1].contains("2 more") && messages[1].contains("dropped"));
}

#[test]
fn s21_a_held_day_stays_in_any_state_and_the_others_go_on() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    attach_days(&mut found, day("2026-11-01"), day("2026-11-02"));
    loose(&mut found, day("2026-10-01"), None);
    loose(&mut found, day("2026-10-02"), Some(now - TimeDelta::days(9)));
    loose(&mut found, day("2026-10-03"), Some(now - TimeDelta::days(9)));
    let since = now - TimeDelta::hours(50);
    found.held = ["2026-11-01", "2026-10-01", "2026-10-02"]
        .map(|text| (day(text), since))
        .into();
    let plan = plan(now, &policy(), &found);
    assert_eq!(shown(&plan), ["detach 2026-11-02", "drop 2026-10-03"]);
    let holds = with_code(&plan, FindingCode::BlockedByHold);
    assert_eq!(holds.len(), 3);
    assert!(holds.iter().all(|hold| hold.message.contains("2d 2h")));
}

#[test]
fn a_day_on_hold_that_has_not_expired_is_not_worth_a_word() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    found.held = [(day("2026-12-05"), now), (day("2026-12-10"), now)].into();
    let plan = plan(now, &policy(), &found);
    assert_eq!((plan.steps, plan.findings), (vec![], vec![]));
}

#[test]
fn s24_a_partition_whose_drop_failed_is_planned_again_until_it_is_gone() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    loose(&mut found, day("2026-11-01"), Some(at("2026-11-09T00:10:00Z")));
    for hours in [0, 1, 24, 700] {
        let now = now + TimeDelta::hours(hours);
        found.clocks = trusted(now);
        let steps = shown(&plan(now, &policy(), &found));
        assert!(steps.contains(&"drop 2026-11-01".to_owned()), "{steps:?}");
    }
}

#[test]
fn s24_one_that_is_detached_but_not_on_record_waits_a_whole_grace_from_now() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    loose(&mut found, day("2026-12-01"), None);
    let (found, plan) = run(found, &policy(), now);
    assert_eq!(shown(&plan), ["mark_detached 2026-12-01"]);
    let (found, plan) = run(found, &policy(), now + policy().drop_grace - TimeDelta::microseconds(1));
    assert!(!shown(&plan).contains(&"drop 2026-12-01".to_owned()));
    let (_, plan) = run(found, &policy(), now + policy().drop_grace);
    assert!(shown(&plan).contains(&"drop 2026-12-01".to_owned()));
}

#[test]
fn s15_one_that_was_detached_while_the_clock_was_ahead_waits_a_whole_grace_from_now_and_no_longer() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    loose(&mut found, day("2026-12-01"), Some(now + TimeDelta::days(400)));
    let (found, plan) = run(found, &policy(), now);
    assert_eq!(shown(&plan), ["mark_detached 2026-12-01"]);
    let (found, plan) = run(found, &policy(), now + policy().drop_grace - TimeDelta::microseconds(1));
    assert!(!shown(&plan).contains(&"drop 2026-12-01".to_owned()));
    let (_, plan) = run(found, &policy(), now + policy().drop_grace);
    assert!(shown(&plan).contains(&"drop 2026-12-01".to_owned()));
}

#[test]
fn s28_beside_a_default_partition_days_are_made_and_drops_go_on_but_nothing_is_detached() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    found.relations.pop();
    attach_days(&mut found, day("2026-12-01"), day("2026-12-02"));
    loose(&mut found, day("2026-11-30"), Some(now - TimeDelta::days(2)));
    let default = attach(&mut found, day("2000-01-01"));
    (default.name, default.bounds) = (ident("inbox_default"), Some(Bounds::Default));
    let plan = plan(now, &policy(), &found);
    assert_eq!(shown(&plan), ["create 2026-12-17", "drop 2026-11-30"]);
    assert_eq!(only(&plan, FindingCode::DefaultPartition).severity, Severity::Fail);
    let blocked = only(&plan, FindingCode::BlockedByDefault);
    assert_eq!(blocked.severity, Severity::Warn);
    assert!(blocked.message.starts_with("2 expired"), "{}", blocked.message);
}

#[test]
fn s28_a_default_partition_is_drained_first_where_the_policy_says_so_and_dropped_after_the_grace() {
    let now = at(NOON);
    let policy = Policy {
        drain_default: true,
        ..policy()
    };
    let mut found = healthy(now, &policy);
    found.relations.pop();
    attach_days(&mut found, day("2026-12-01"), day("2026-12-01"));
    let default = attach(&mut found, day("2000-01-01"));
    (default.name, default.bounds, default.marker) = (ident("inbox_default"), Some(Bounds::Default), None);
    let (found, first) = run(found, &policy, now);
    assert_eq!(shown(&first), ["drain inbox_default", "create 2026-12-17"]);
    let (found, second) = run(found, &policy, now);
    assert_eq!(shown(&second), ["detach 2026-12-01"], "nothing prevents it any more");
    assert_eq!(only(&second, FindingCode::DefaultPartition).severity, Severity::Info);
    let (found, third) = run(found, &policy, now + policy.drop_grace);
    assert!(
        shown(&third).contains(&"drop_drained inbox_default".to_owned()),
        "{:?}",
        shown(&third)
    );
    assert!(found.relations.iter().all(|relation| relation.left_by_drain.is_none()));
}

#[test]
fn s28_nothing_is_drained_under_a_clock_or_on_a_server_that_is_not_trusted() {
    let now = at(NOON);
    let policy = Policy {
        drain_default: true,
        ..policy()
    };
    let mut found = healthy(now, &policy);
    let default = attach(&mut found, day("2000-01-01"));
    (default.name, default.bounds, default.marker) = (ident("inbox_default"), Some(Bounds::Default), None);
    let with = |change: fn(&mut Found)| {
        let mut found = found.clone();
        change(&mut found);
        shown(&plan(now, &policy, &found))
    };
    assert_eq!(with(|_| {}), ["drain inbox_default"]);
    assert_eq!(with(|found| found.ownership = Ownership::OtherServer), [""; 0]);
    assert_eq!(with(|found| found.clocks.host -= TimeDelta::hours(1)), [""; 0]);
    assert_eq!(
        with(|found| found.relations.last_mut().unwrap().kind = RelationKind::PartitionedTable),
        [""; 0]
    );
}

#[test]
fn s28_what_an_unfinished_drain_left_goes_once_there_is_nothing_to_drain() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    let left = |inbox| LeftByDrain::Copies {
        inbox,
        of: 7,
        pages: 0,
        since: 3,
    };
    for (name, inbox) in [("inbox_drain", INBOX), ("other_drain", OTHER_INBOX)] {
        let copies = loose(&mut found, day("2000-01-01"), None);
        (copies.name, copies.marker, copies.left_by_drain) = (ident(name), None, Some(left(inbox)));
        copies.kind = RelationKind::PartitionedTable;
    }
    assert_eq!(shown(&plan(now, &policy(), &found)), ["drop_drained inbox_drain"]);
    let default = attach(&mut found, day("2000-01-02"));
    (default.name, default.bounds, default.marker) = (ident("inbox_default"), Some(Bounds::Default), None);
    let policy = Policy {
        drain_default: true,
        ..policy()
    };
    assert_eq!(shown(&plan(now, &policy, &found)), ["drain inbox_default"]);
}

#[test]
fn s36_a_detached_day_that_is_remembered_again_is_kept_and_reported() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    loose(&mut found, day("2026-12-01"), Some(now - TimeDelta::days(30)));
    found.claim_retention = Some(days(30));
    let plan = plan(now, &policy(), &found);
    assert_eq!(shown(&plan), [""; 0]);
    let finding = only(&plan, FindingCode::NotAttached);
    assert_eq!(
        (finding.severity, finding.day),
        (Severity::Warn, Some(day("2026-12-01")))
    );
}

#[test]
fn for_ever_removes_nothing() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    attach_days(&mut found, day("2020-01-01"), day("2020-01-03"));
    loose(&mut found, day("2020-01-04"), Some(at("2020-02-01T00:00:00Z")));
    let policy = Policy {
        retention: Retention::Forever,
        ..policy()
    };
    assert_eq!(shown(&plan(now, &policy, &found)), [""; 0]);
}

#[test]
fn nothing_from_today_on_is_removed_however_short_the_retention() {
    // No parser makes such a retention; the planner does not rely on it.
    for length in [TimeDelta::zero(), TimeDelta::days(-40)] {
        let now = at(NOON);
        let mut found = empty(now);
        attach_days(&mut found, day("2026-12-10"), day("2026-12-17"));
        loose(&mut found, day("2026-12-18"), Some(at("2026-12-01T00:00:00Z")));
        pending(&mut found, day("2026-12-19"));
        found.claim_retention = None;
        let policy = Policy {
            retention: Retention::For(length),
            ..policy()
        };
        assert_eq!(shown(&plan(now, &policy, &found)), ["finalize 2026-12-19"]);
    }
}

#[test]
fn a_cap_of_none_removes_nothing_and_says_so() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    attach(&mut found, day("2026-11-01"));
    loose(&mut found, day("2026-10-01"), Some(now - TimeDelta::days(9)));
    let policy = Policy {
        max_drops_per_run: 0,
        ..policy()
    };
    let plan = plan(now, &policy, &found);
    assert_eq!(shown(&plan), [""; 0]);
    assert_eq!(with_code(&plan, FindingCode::BlockedByCap).len(), 2);
}

#[test]
fn each_step_names_the_table_by_its_identifier_and_says_which_locks_it_takes() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    found.relations.pop();
    pending(&mut found, day("2026-10-01"));
    attach(&mut found, day("2026-11-01"));
    loose(&mut found, day("2026-10-02"), None);
    loose(&mut found, day("2026-10-03"), Some(now - TimeDelta::days(9)));
    let plan = plan(now, &policy(), &found);
    assert_eq!(plan.steps.len(), 5);
    for step in &plan.steps {
        let target = found.relations.iter().find(|relation| relation.name == step.relation);
        assert_eq!(step.oid, target.map(|relation| relation.oid));
        assert!(!step.locks.is_empty() && !step.reason.is_empty());
        let on_the_inbox: Vec<_> = step.locks.iter().filter(|lock| lock.on == "public.inbox").collect();
        assert!(
            on_the_inbox.iter().all(|lock| lock.mode == "SHARE UPDATE EXCLUSIVE"),
            "a claim would wait: {step:?}"
        );
        let detached = target.is_some_and(|relation| relation.attachment == Attachment::Loose);
        assert_eq!(on_the_inbox.is_empty(), detached, "{step:?}");
    }
}

#[test]
fn one_that_was_attached_again_by_hand_loses_its_old_detach_and_then_waits_a_whole_grace() {
    let now = at("2026-12-20T12:00:00Z");
    let mut found = healthy(at("2026-12-10T12:00:00Z"), &policy());
    found.clocks = trusted(now);
    let old = found
        .relations
        .iter_mut()
        .find(|relation| relation.day() == Some(day("2026-12-04")))
        .unwrap();
    old.detached_at = Some(at("2026-12-12T00:10:00Z"));
    let first = plan(now, &policy(), &found);
    assert_eq!(shown(&first)[0], "mark_attached 2026-12-04");
    let found = apply(found, &first, now);
    let again = plan(now + TimeDelta::minutes(10), &policy(), &found);
    assert!(
        !shown(&again).iter().any(|step| step.starts_with("drop")),
        "{:?}",
        shown(&again)
    );
}
