//! Any outage heals, and a year of runs stays in bounds.

use chrono::{DateTime, TimeDelta, Utc};
use proptest::{collection::vec, prelude::*};

use super::model::*;
use crate::pure::{Ahead, Attachment, Bounds, Day, Found, Policy, Routing};

fn is_covered(found: &Found, day: Day) -> bool {
    found.relations.iter().any(|relation| {
        relation.attachment == Attachment::Attached
            && relation
                .bounds
                .as_ref()
                .and_then(Bounds::span)
                .is_some_and(|span| span.covers(day))
    })
}

fn all_ahead_is_covered(found: &Found, policy: &Policy, now: DateTime<Utc>) -> bool {
    (0..=policy.ahead.days()).all(|offset| is_covered(found, Day::containing(now).plus(offset)))
}

/// Runs at one instant until nothing is left to do.
fn settle(mut found: Found, policy: &Policy, now: DateTime<Utc>) -> Found {
    for _ in 0..2_000 {
        let (next, plan) = run(found, policy, now);
        if plan.steps.is_empty() {
            return next;
        }
        found = next;
    }
    panic!("no end of steps");
}

fn expired(found: &Found, policy: &Policy, now: DateTime<Utc>) -> usize {
    let horizon = policy.retention.horizon(now).unwrap();
    found
        .relations
        .iter()
        .filter(|relation| relation.day().is_some_and(|day| day.end() <= horizon))
        .count()
}

/// A length in days, rounded up.
fn whole_days(length: TimeDelta) -> usize {
    let day = TimeDelta::days(1).num_seconds();
    usize::try_from((length.num_seconds() + day - 1) / day).unwrap()
}

fn sane_policy() -> impl Strategy<Value = Policy> {
    (prop::bool::ANY, 1i64..20, 1i64..480, 1i64..96, 2u32..6).prop_map(|(by_id, ahead, hours, grace, cap)| Policy {
        routing: if by_id {
            Routing::MessageId
        } else {
            Routing::ProcessedAt
        },
        ahead: Ahead::new(ahead).unwrap(),
        retention: crate::pure::Retention::For(TimeDelta::hours(hours)),
        drop_grace: TimeDelta::hours(grace),
        max_drops_per_run: cap,
        ..policy()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn s6_an_outage_of_any_length_heals_in_one_run(policy in sane_policy(), days in 0i64..800, seconds in 0i64..86_400) {
        let before = at("2026-12-10T12:00:00Z");
        let found = settle(empty(before), &policy, before);
        let now = Day::containing(before).plus(days).start() + TimeDelta::seconds(seconds);
        let (found, _) = run(found, &policy, now);
        prop_assert!(all_ahead_is_covered(&found, &policy, now), "creation waits for nothing");
        let found = settle(found, &policy, now);
        prop_assert!(all_ahead_is_covered(&found, &policy, now));
        let (found, plan) = run(found, &policy, now);
        prop_assert!(plan.runway_seconds.unwrap() >= policy.ahead.days() * 86_400);
        // By message id the remembered days that never had a partition have one now.
        if policy.routing == Routing::MessageId {
            let oldest = Day::containing(policy.retention.horizon(now).unwrap());
            for offset in 0..oldest.days_until(Day::containing(now)) {
                prop_assert!(is_covered(&found, oldest.plus(offset)));
            }
        }
        // What the outage left behind goes when its grace is over.
        let later = now + policy.drop_grace;
        let found = settle(found, &policy, later);
        let left = expired(&found, &policy, later);
        let grace_days = whole_days(policy.drop_grace);
        prop_assert!(left <= grace_days + 2, "{left} expired partitions stay");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_year_of_daily_runs_with_outages_never_lacks_today_and_never_hoards(
        policy in sane_policy(),
        runs in vec((prop::bool::weighted(0.85), 0i64..86_400), 366),
        outages in vec((0usize..366, 1usize..60), 0..4),
    ) {
        let first = day("2027-12-30");
        let mut found = empty(first.start());
        let grace_days = whole_days(policy.drop_grace);
        let horizon = policy.retention.horizon(first.start()).unwrap();
        let retention_days = whole_days(first.start() - horizon);
        let ahead = usize::try_from(policy.ahead.days()).unwrap();
        // After an outage: two more than a day's expiries leave a run, so a backlog lasts this many runs at most.
        let backlog = retention_days + ahead + 2;
        let mut in_a_row = 0;
        for (index, (up, seconds)) in runs.into_iter().enumerate() {
            if !up || outages.iter().any(|(start, length)| (*start..start + length).contains(&index)) {
                in_a_row = 0;
                continue;
            }
            in_a_row += 1;
            let now = first.plus(i64::try_from(index).unwrap()).start() + TimeDelta::seconds(seconds);
            let (next, plan) = run(found, &policy, now);
            found = next;
            prop_assert!(all_ahead_is_covered(&found, &policy, now), "{now}: {:?}", shown(&plan));
            let kept = expired(&found, &policy, now);
            if in_a_row > 2 * backlog + grace_days + 2 {
                prop_assert!(kept <= retention_days + grace_days + 1, "{now}: {kept} expired partitions");
                prop_assert!(kept <= grace_days + 2, "{now}: {kept} expired partitions");
            }
            let most = ahead + backlog + grace_days + 2;
            if in_a_row > 2 * backlog + grace_days + 2 {
                prop_assert!(found.relations.len() <= most, "{now}: {} of {most}", found.relations.len());
            }
        }
    }
}
