//! Point 14: which days take no row any more.

use chrono::TimeDelta;

use super::model::*;
use crate::pure::{Found, Ownership, Policy, RelationKind, plan};

const NOON: &str = "2026-12-10T12:00:00Z";

fn sealing() -> Policy {
    Policy {
        seal_days: true,
        ..policy()
    }
}

#[test]
fn days_that_are_over_are_sealed_oldest_first_and_once() {
    let now = at(NOON);
    let (found, first) = run(healthy(now, &sealing()), &sealing(), now);
    assert_eq!(shown(&first), each("seal", "2026-12-03", "2026-12-09"));
    assert!(
        first.steps[6].reason.contains("ended 12h ago"),
        "{}",
        first.steps[6].reason
    );
    assert_eq!(shown(&plan(now, &sealing(), &found)), Vec::<String>::new());
}

#[test]
fn yesterday_stays_open_for_as_long_as_the_clock_may_step_back_into_it() {
    for (now, is_sealed) in [
        ("2026-12-10T00:00:00Z", false),
        ("2026-12-10T01:00:00Z", false),
        ("2026-12-10T01:00:01Z", true),
    ] {
        let steps = shown(&plan(at(now), &sealing(), &healthy(at(now), &sealing())));
        assert_eq!(steps.contains(&"seal 2026-12-09".to_owned()), is_sealed, "{now}");
        assert!(steps.contains(&"seal 2026-12-08".to_owned()), "{now}");
    }
}

#[test]
fn no_day_is_sealed_while_it_would_not_be_safe() {
    let now = at(NOON);
    type Change = (&'static str, fn(&mut Found, &mut Policy));
    let changes: [Change; 8] = [
        ("not asked for", |_, policy| policy.seal_days = false),
        ("of another routing", |_, policy| {
            policy.routing = crate::pure::Routing::MessageId;
        }),
        ("old functions", |found, _| found.sealing = None),
        ("a function is gone", |found, _| found.has_functions = false),
        ("a copied database", |found, _| found.ownership = Ownership::OtherServer),
        ("a skewed clock", |found, _| found.clocks.host += TimeDelta::hours(1)),
        ("a clock that leapt", |found, _| {
            found.clocks.trusted = Some(at("2026-11-10T12:00:00Z"));
        }),
        ("the clock may step back by a day", |found, policy| {
            found.sealing = Some(TimeDelta::days(8));
            policy.seal_days = true;
        }),
    ];
    for (what, change) in changes {
        let (mut found, mut policy) = (healthy(now, &sealing()), sealing());
        change(&mut found, &mut policy);
        let steps = shown(&plan(now, &policy, &found));
        assert!(!steps.iter().any(|step| step.starts_with("seal")), "{what}: {steps:?}");
    }
}

/// A claim on an older day does not look into a younger one.
#[test]
fn a_day_that_cannot_be_sealed_keeps_younger_ones_open() {
    let now = at(NOON);
    type Change = fn(&mut crate::pure::FoundRelation);
    let changes: [Change; 3] = [
        |relation| relation.is_subscribed = true,
        |relation| relation.kind = RelationKind::ForeignTable,
        |relation| relation.name = crate::pure::Ident::new("by_hand").unwrap(),
    ];
    for change in changes {
        let mut found = healthy(now, &sealing());
        change(relation_of(&mut found, "2026-12-06"));
        let steps = shown(&plan(now, &sealing(), &found));
        let seals: Vec<_> = steps.into_iter().filter(|step| step.starts_with("seal")).collect();
        assert_eq!(seals, each("seal", "2026-12-03", "2026-12-05"));
    }
}
