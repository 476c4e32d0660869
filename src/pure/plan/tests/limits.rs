//! The ends of the calendar, lengths that no clock can add, and many partitions.

use super::model::*;
use crate::pure::{Ahead, Policy, plan};

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
