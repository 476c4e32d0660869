//! Point 15: what a digest is made of, and when.

use chrono::TimeDelta;

use super::model::*;
use crate::pure::{
    Action, Covers, DigestSlot, FindingCode, Found, FoundRelation, Ownership, Policy, RelationKind, Retention, plan,
    plan::digest::digest_scope,
};

/// 2026-12-10 is the 9840th day since 2000-01-01: of slot 0.
const NOON: &str = "2026-12-10T12:00:00Z";

fn with_digest() -> Policy {
    Policy {
        seal_days: true,
        digest: true,
        ..policy()
    }
}

/// All days up to yesterday are sealed, and nothing is built.
fn sealed() -> Found {
    let now = at(NOON);
    let mut found = healthy(now, &with_digest());
    for relation in &mut found.relations {
        relation.is_sealed = relation.day().unwrap() < day("2026-12-10");
    }
    found.digest = Some([0, 1, 2].map(|slot| DigestSlot {
        name: ident(&format!("inbox_digest_{slot}")),
        oid: 1_000_000 + slot,
        covers: None,
        bytes: 0,
    }));
    found
}

fn digest_steps(found: &Found, policy: &Policy) -> Vec<String> {
    digest_steps_at(NOON, found, policy)
}

fn digest_steps_at(time: &str, found: &Found, policy: &Policy) -> Vec<String> {
    let mut steps = shown(&plan(at(time), policy, found));
    steps.retain(|step| step.contains("digest"));
    steps
}

fn covers(from: &str, to: &str) -> Covers {
    Covers {
        from: at(from),
        to: at(to),
    }
}

/// A week up to the beginning of a day.
fn week_to(day_after: &str) -> Option<Covers> {
    let to = day(day_after);
    Some(Covers {
        from: to.plus(-7).start(),
        to: to.start(),
    })
}

#[test]
fn it_is_built_once_a_day_in_the_slot_of_today() {
    let now = at(NOON);
    let (found, first) = run(sealed(), &with_digest(), now);
    assert_eq!(shown(&first), ["build_digest inbox_digest_0"]);
    assert!(
        first.steps[0].reason.contains("the 7 days"),
        "{}",
        first.steps[0].reason
    );
    assert_eq!(shown(&plan(now, &with_digest(), &found)), Vec::<String>::new());
}

#[test]
fn days_that_are_to_be_sealed_first_are_part_of_it() {
    let mut found = sealed();
    relation_of(&mut found, "2026-12-09").is_sealed = false;
    let steps = shown(&plan(at(NOON), &with_digest(), &found));
    assert_eq!(steps, ["seal 2026-12-09", "build_digest inbox_digest_0"]);
}

#[test]
fn the_slot_of_tomorrow_is_emptied_whatever_is_in_it_but_not_right_before_midnight() {
    let mut found = sealed();
    let slots = found.digest.as_mut().unwrap();
    slots[0].covers = week_to("2026-12-10");
    slots[1].covers = week_to("2026-12-08");
    slots[2].covers = week_to("2026-12-09");
    for (time, steps) in [
        (NOON, &["clear_digest inbox_digest_1"][..]),
        ("2026-12-10T23:49:59Z", &["clear_digest inbox_digest_1"]),
        ("2026-12-10T23:50:00Z", &[]),
    ] {
        found.clocks = trusted(at(time));
        assert_eq!(digest_steps_at(time, &found, &with_digest()), steps, "{time}");
    }
    found.clocks = trusted(at(NOON));
    let (found, _) = run(found, &with_digest(), at(NOON));
    assert_eq!(digest_steps(&found, &with_digest()), Vec::<String>::new());
}

#[test]
fn it_covers_the_sealed_days_up_to_yesterday_and_ends_at_the_first_that_is_not() {
    type Change = fn(&mut FoundRelation);
    let changes: [Change; 4] = [
        |relation| relation.is_sealed = false,
        |relation| relation.kind = RelationKind::ForeignTable,
        |relation| relation.attachment = crate::pure::Attachment::PendingDetach,
        |relation| {
            relation.attachment = crate::pure::Attachment::Loose;
            relation.bounds = None;
        },
    ];
    let whole = digest_scope(at(NOON), &sealed()).unwrap();
    assert_eq!((Some(whole.covers), whole.leaves.len()), (week_to("2026-12-10"), 7));
    for change in changes {
        let mut found = sealed();
        change(relation_of(&mut found, "2026-12-05"));
        let scope = digest_scope(at(NOON), &found).unwrap();
        let wanted = covers("2026-12-06T00:00:00Z", "2026-12-10T00:00:00Z");
        assert_eq!((scope.covers, scope.leaves.len()), (wanted, 4));
        change(relation_of(&mut found, "2026-12-09"));
        assert_eq!(digest_scope(at(NOON), &found), None);
    }
}

#[test]
fn nothing_is_done_about_it_while_it_would_not_be_safe_or_is_not_asked_for() {
    type Change = (&'static str, fn(&mut Found, &mut Policy));
    let changes: [Change; 10] = [
        ("not asked for", |_, policy| policy.digest = false),
        ("no day is sealed", |_, policy| policy.seal_days = false),
        ("one day is remembered", |_, policy| policy.retention = days(1)),
        ("all are", |_, policy| policy.retention = Retention::Forever),
        ("of another routing", |_, policy| {
            policy.routing = crate::pure::Routing::MessageId;
        }),
        ("functions that ask none", |found, _| found.digest = None),
        ("old functions", |found, _| found.sealing = None),
        ("a copied database", |found, _| found.ownership = Ownership::OtherServer),
        ("a skewed clock", |found, _| found.clocks.host += TimeDelta::hours(1)),
        ("claims of yesterday may come", |found, _| {
            found.sealing = Some(TimeDelta::hours(13));
        }),
    ];
    for (what, change) in changes {
        let (mut found, mut policy) = (sealed(), with_digest());
        found.digest.as_mut().unwrap()[1].covers = week_to("2026-12-08");
        change(&mut found, &mut policy);
        assert_eq!(digest_steps(&found, &policy), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn where_yesterday_cannot_be_sealed_there_is_none_and_that_is_told() {
    let mut found = sealed();
    found.digest.as_mut().unwrap()[2].covers = week_to("2026-12-09");
    let yesterday = relation_of(&mut found, "2026-12-09");
    (yesterday.is_sealed, yesterday.is_subscribed) = (false, true);
    let plan = plan(at(NOON), &with_digest(), &found);
    assert!(!plan.steps.iter().any(|step| step.action == Action::BuildDigest));
    assert_eq!(plan.findings.len(), 1, "{:?}", plan.findings);
    assert_eq!(plan.findings[0].code, FindingCode::NoDigest);
}

#[test]
fn a_build_that_has_failed_for_a_day_is_told() {
    let mut found = sealed();
    found.digest.as_mut().unwrap()[2].covers = week_to("2026-12-09");
    assert!(plan(at(NOON), &with_digest(), &found).findings.is_empty(), "it is due");
    found.digest.as_mut().unwrap()[2].covers = week_to("2026-12-06");
    let told = plan(at(NOON), &with_digest(), &found);
    assert_eq!(told.findings[0].code, FindingCode::NoDigest);
    assert_eq!(digest_steps(&found, &with_digest()), ["build_digest inbox_digest_0"]);
}
