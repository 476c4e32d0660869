//! The ends of the calendar, lengths that no clock can add, and many partitions.

use chrono::TimeDelta;

use super::model::*;

use crate::pure::{Action, Ahead, Day, Policy, Retention, Routing, plan};

#[test]
fn two_thousand_partitions_are_planned_like_eight() {
    let now = at("2026-12-10T12:00:00Z");
    for routing in [policy().routing, by_message_id().routing] {
        let policy = Policy {
            routing,
            retention: days(2_000),
            ahead: Ahead::new(366).unwrap(),
            max_drops_per_run: u32::MAX,
            ..policy()
        };
        let mut found = healthy(now, &policy);
        let plan_of_all = plan(now, &policy, &found);
        assert_eq!((plan_of_all.steps, plan_of_all.findings), (vec![], vec![]));
        found.relations.reverse();
        assert_eq!(plan(now, &policy, &found).steps, []);
        let policy = Policy {
            retention: days(1),
            ..policy
        };
        let steps = plan(now, &policy, &found).steps;
        assert_eq!(steps.len(), 1_999);
        assert!(steps.is_sorted_by_key(|step| step.day));
    }
}

#[test]
fn no_length_of_time_overflows_at_any_clock() {
    let lengths = [
        TimeDelta::MAX,
        TimeDelta::days(100_000_000),
        TimeDelta::days(36_500),
        TimeDelta::zero(),
        TimeDelta::days(-100_000_000),
        TimeDelta::MIN,
    ];
    for now in [
        "1970-01-01T00:00:00Z",
        "2026-12-10T12:00:00Z",
        "9999-12-31T23:59:59.999999Z",
    ] {
        let now = at(now);
        let yesterday = Day::containing(now).plus(-1);
        for length in lengths {
            for template in [policy(), by_message_id()] {
                let mut found = empty(now);
                attach(&mut found, yesterday);
                loose(&mut found, yesterday.plus(-1), Some(now - TimeDelta::days(9)));
                found.held = [(yesterday.plus(-2), now)].into();
                let grace = Policy {
                    drop_grace: length,
                    retention: Retention::For(TimeDelta::hours(1)),
                    ..template.clone()
                };
                let over = plan(now, &grace, &found)
                    .steps
                    .iter()
                    .any(|step| step.action == Action::Drop);
                assert!(!over || length <= TimeDelta::zero(), "a grace of {length} is not over");
                let clock = Policy {
                    max_clock_skew: length,
                    max_clock_leap: length,
                    ..template.clone()
                };
                let _ = plan(now, &clock, &found);
                if template.routing == Routing::ProcessedAt {
                    found.claim_retention = None;
                    let retention = Policy {
                        retention: Retention::For(length),
                        ..template
                    };
                    let steps = plan(now, &retention, &found).steps;
                    assert!(
                        length < TimeDelta::days(9) || steps.iter().all(|step| step.action == Action::Create),
                        "nothing is older than {length}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_last_day_of_the_calendar_is_made_once() {
    let now = at("9999-12-30T12:00:00Z");
    let (found, plan) = run(empty(now), &policy(), now);
    assert_eq!(shown(&plan), each("create", "9999-12-30", "9999-12-31"));
    let (_, plan) = run(found, &policy(), now);
    assert_eq!(shown(&plan), [""; 0]);
}

#[test]
fn the_first_day_of_the_calendar_has_no_day_before_it() {
    let now = at("1970-01-02T12:00:00Z");
    let plan = plan(now, &by_message_id(), &empty(now));
    let expected = [
        each("create", "1970-01-02", "1970-01-09"),
        each("create", "1970-01-01", "1970-01-01"),
    ];
    assert_eq!(shown(&plan), expected.concat());
}
