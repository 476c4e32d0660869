//! Points 1 and 7: whose inbox it is, and whether the clock is believed.

use chrono::TimeDelta;

use super::model::*;
use crate::pure::{FindingCode, Found, FoundInbox, Ownership, Severity, plan};

const NOON: &str = "2026-12-10T12:00:00Z";

/// Two days to detach, two to drop, one to put on record, and tomorrow to make.
fn busy() -> Found {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    found.relations.pop();
    attach_days(&mut found, day("2026-12-01"), day("2026-12-02"));
    loose(&mut found, day("2026-11-29"), Some(now - TimeDelta::days(3)));
    loose(&mut found, day("2026-11-30"), Some(now - TimeDelta::days(2)));
    loose(&mut found, day("2026-11-28"), None);
    found
}

const ALL: [&str; 6] = [
    "create 2026-12-17",
    "detach 2026-12-01",
    "detach 2026-12-02",
    "mark_detached 2026-11-28",
    "drop 2026-11-29",
    "drop 2026-11-30",
];

#[test]
fn under_a_trusted_clock_all_is_done_in_order() {
    assert_eq!(shown(&plan(at(NOON), &policy(), &busy())), ALL);
}

#[test]
fn an_inbox_that_is_missing_or_unfit_is_left_alone_altogether() {
    let now = at(NOON);
    for (inbox, code) in [
        (FoundInbox::Missing, FindingCode::InboxMissing),
        (FoundInbox::Unfit("it is a view".to_owned()), FindingCode::InboxUnfit),
    ] {
        let mut found = busy();
        pending(&mut found, day("2026-11-20"));
        found.inbox = inbox;
        let plan = plan(now, &policy(), &found);
        assert_eq!(shown(&plan), [""; 0]);
        assert_eq!((plan.findings.len(), only(&plan, code).severity), (1, Severity::Fail));
    }
}

#[test]
fn s19_another_deployments_inbox_gets_no_step_at_all() {
    let now = at(NOON);
    let mut found = busy();
    pending(&mut found, day("2026-11-20"));
    found.ownership = Ownership::OtherDeployment("blue".to_owned());
    let plan = plan(now, &policy(), &found);
    assert_eq!(shown(&plan), [""; 0]);
    let finding = only(&plan, FindingCode::OtherDeployment);
    assert_eq!((plan.findings.len(), finding.severity), (1, Severity::Fail));
    assert!(finding.message.contains("\"blue\""));
}

#[test]
fn s19_on_another_server_days_are_created_and_nothing_is_removed() {
    let mut found = busy();
    found.ownership = Ownership::OtherServer;
    let plan = plan(at(NOON), &policy(), &found);
    assert_eq!(shown(&plan), ALL[..1]);
    let finding = only(&plan, FindingCode::OtherServer);
    assert_eq!(finding.severity, Severity::Warn);
    assert!(finding.message.contains("4 removals wait"), "{}", finding.message);
}

#[test]
fn s15_a_clock_that_leapt_400_days_creates_and_removes_nothing() {
    let before = at(NOON);
    let now = before + TimeDelta::days(400);
    for (host, trusted) in [(now, Some(before)), (before, Some(now)), (before, None)] {
        for policy in [policy(), by_message_id()] {
            let mut found = healthy(before, &policy);
            loose(&mut found, day("2026-11-30"), Some(before - TimeDelta::days(2)));
            loose(&mut found, day("2026-11-29"), None);
            (found.clocks.host, found.clocks.trusted) = (host, trusted);
            let plan = plan(now, &policy, &found);
            let steps = shown(&plan);
            assert_eq!(steps[..8], each("create", "2028-01-14", "2028-01-21"));
            assert!(steps.iter().all(|step| step.starts_with("create")), "{steps:?}");
            assert_eq!(only(&plan, FindingCode::BlockedByClock).severity, Severity::Warn);
        }
    }
}

#[test]
fn s15_a_clock_that_jumps_back_never_touches_a_future_partition() {
    let leapt = at(NOON) + TimeDelta::days(400);
    let now = at(NOON);
    for policy in [policy(), by_message_id()] {
        let mut found = healthy(now, &policy);
        attach_days(&mut found, day("2028-01-07"), day("2028-01-21"));
        for (host, trusted) in [(now, Some(leapt)), (now, None), (now, Some(now)), (leapt, Some(leapt))] {
            (found.clocks.host, found.clocks.trusted) = (host, trusted);
            assert_eq!(shown(&plan(now, &policy, &found)), [""; 0], "{host} {trusted:?}");
        }
    }
}

#[test]
fn the_clock_is_trusted_up_to_the_limits_and_not_a_microsecond_beyond() {
    let now = at(NOON);
    let (skew, leap, tick) = (
        policy().max_clock_skew,
        policy().max_clock_leap,
        TimeDelta::microseconds(1),
    );
    for (host, trusted, removes) in [
        (now + skew, Some(now), true),
        (now - skew, Some(now), true),
        (now + skew + tick, Some(now), false),
        (now - skew - tick, Some(now), false),
        (now, Some(now - leap), true),
        (now, Some(now - leap - tick), false),
        (now, Some(now + leap + leap), true),
        (now, None, true),
    ] {
        let mut found = busy();
        (found.clocks.host, found.clocks.trusted) = (host, trusted);
        let plan = plan(now, &policy(), &found);
        assert_eq!(shown(&plan), ALL[..if removes { 6 } else { 1 }], "{host} {trusted:?}");
        assert_eq!(with_code(&plan, FindingCode::BlockedByClock).is_empty(), removes);
    }
}

#[test]
fn an_interrupted_detach_is_finalized_under_a_clock_that_is_not_trusted() {
    // Claims do not see the partition any more, and nothing is lost by ending what has begun.
    let now = at(NOON);
    let mut found = busy();
    pending(&mut found, day("2026-11-20"));
    found.clocks.host = now + TimeDelta::hours(1);
    assert_eq!(
        shown(&plan(now, &policy(), &found)),
        ["finalize 2026-11-20", "create 2026-12-17"]
    );
}

#[test]
fn s19_while_replicas_disagree_the_longer_retention_and_the_larger_ahead_rule() {
    let now = at("2026-12-10T12:00:00Z");
    let mut found = healthy(now, &policy());
    attach_days(&mut found, day("2026-11-20"), day("2026-12-02"));
    assert!(shown(&plan(now, &policy(), &found)).contains(&"detach 2026-11-20".to_owned()));
    found.replicas = vec![other_replica(days(30), 9), other_replica(days(3), 2)];
    let plan = plan(now, &policy(), &found);
    assert_eq!(
        shown(&plan),
        each("create", "2026-12-18", "2026-12-19"),
        "nothing leaves, and two days more are ahead"
    );
    assert_eq!(with_code(&plan, FindingCode::ReplicasDisagree).len(), 2);
}

#[test]
fn replicas_that_agree_are_not_worth_a_word() {
    let now = at("2026-12-10T12:00:00Z");
    let mut found = healthy(now, &policy());
    found.replicas = vec![other_replica(days(7), 7)];
    assert!(plan(now, &policy(), &found).findings.is_empty());
}
