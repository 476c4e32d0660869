//! What holds for any catalog, policy and clock.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use proptest::prelude::*;

use super::{
    arbitrary::{World, any_world},
    model::*,
};
use crate::pure::{
    Action, Attachment, Bounds, Day, FindingCode, FoundRelation, Ownership, Plan, RelationKind, Removals, Routing,
    Severity, Span, Step, plan,
};

fn target<'w>(world: &'w World, step: &Step) -> &'w FoundRelation {
    world
        .found
        .relations
        .iter()
        .find(|relation| Some(relation.oid) == step.oid)
        .unwrap()
}

fn is_removal(step: &Step) -> bool {
    matches!(step.action, Action::Detach | Action::MarkDetached | Action::Drop)
}

fn removals(plan: &Plan) -> impl Iterator<Item = &Step> {
    plan.steps.iter().filter(|step| is_removal(step))
}

fn count(plan: &Plan, action: Action) -> usize {
    plan.steps.iter().filter(|step| step.action == action).count()
}

fn created(world: &World) -> Vec<Step> {
    let steps = plan(world.now, &world.policy, &world.found).steps;
    steps.into_iter().filter(|step| step.action == Action::Create).collect()
}

fn spans(world: &World) -> Vec<(Attachment, Span)> {
    let relations = world.found.relations.iter();
    relations
        .filter_map(|relation| Some((relation.attachment, relation.bounds.as_ref()?.span()?)))
        .collect()
}

/// Whether the attached partitions together hold every instant of the day.
fn is_covered(world: &World, day: Day) -> bool {
    let mut cuts: Vec<_> = spans(world)
        .iter()
        .filter(|(attachment, _)| *attachment == Attachment::Attached)
        .flat_map(|(_, span)| [span.from, span.to])
        .flatten()
        .filter(|cut| day.start() < *cut && *cut < day.end())
        .collect();
    cuts.push(day.start());
    cuts.iter().all(|cut| {
        spans(world)
            .iter()
            .any(|(attachment, span)| *attachment == Attachment::Attached && span.contains(*cut))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nothing_within_the_retention_and_nothing_from_today_on_is_removed(world in any_world()) {
        for step in removals(&plan(world.now, &world.policy, &world.found)) {
            let day = step.day.unwrap();
            prop_assert!(day.end() <= world.now, "{step:?}");
            let retention = world.retention().unwrap();
            prop_assert!(day.end() + retention <= world.now, "{step:?} within {retention}");
        }
    }

    #[test]
    fn nothing_that_is_held_foreign_off_grid_misnamed_or_mismarked_is_removed(world in any_world()) {
        for step in removals(&plan(world.now, &world.policy, &world.found)) {
            let relation = target(&world, step);
            let day = step.day.unwrap();
            prop_assert_eq!(relation.kind, RelationKind::Table);
            prop_assert_eq!(&relation.name, &world.found.table.partition(day));
            prop_assert_eq!(&relation.schema, world.found.table.schema());
            prop_assert!(!world.found.held.contains_key(&day));
            if let Some(marker) = &relation.marker {
                prop_assert_eq!((marker.inbox, marker.day), (INBOX, day));
            }
            if step.action == Action::Detach {
                prop_assert_eq!(relation.attachment, Attachment::Attached);
                prop_assert_eq!(&relation.bounds, &Some(Bounds::Range(Span::of(day))));
            } else {
                prop_assert_eq!(relation.attachment, Attachment::Loose);
                prop_assert!(relation.marker.is_some(), "a loose table is ours by its marker only");
            }
        }
    }

    #[test]
    fn nothing_is_removed_under_an_untrusted_clock_on_another_server_or_for_another_deployment(world in any_world()) {
        let plan = plan(world.now, &world.policy, &world.found);
        let clocks = world.found.clocks;
        let skewed = (clocks.host - world.now).abs() > world.policy.max_clock_skew;
        let leapt = clocks.trusted.is_some_and(|trusted| world.now - trusted > world.policy.max_clock_leap);
        if skewed || leapt || world.found.ownership != Ownership::Ours {
            prop_assert_eq!(removals(&plan).count(), 0);
        }
        if matches!(world.found.ownership, Ownership::OtherDeployment(_)) {
            prop_assert_eq!(plan.steps.len(), 0);
        }
        // Creation does not ask the clock, nor the server.
        let mut other = world.clone();
        other.found.ownership = Ownership::OtherServer;
        other.found.clocks.host = world.now + TimeDelta::days(4_000);
        prop_assert_eq!(created(&other), created(&world.in_order()));
    }

    #[test]
    fn at_most_the_cap_is_detached_and_at_most_the_cap_is_dropped_beside_what_was_confirmed(world in any_world()) {
        let world = world.in_order();
        let plan = plan(world.now, &world.policy, &world.found);
        let cap = world.policy.max_drops_per_run as usize;
        let confirmed = &world.found.confirmed;
        for (action, confirmed) in [(Action::Detach, &confirmed.detach), (Action::Drop, &confirmed.drop)] {
            let days: Vec<_> = plan.steps.iter().filter(|step| step.action == action).filter_map(|step| step.day).collect();
            let others = days.iter().filter(|day| !confirmed.contains(day)).count();
            let lifted = days.len() - others;
            prop_assert!(days.len() <= cap.max(lifted) && others <= cap.saturating_sub(lifted), "{:?}", shown(&plan));
        }
    }

    #[test]
    fn a_confirmation_adds_confirmed_removals_and_changes_nothing_else(world in any_world()) {
        let mut without = world.clone();
        without.found.confirmed = Removals::default();
        let (with, without) = (
            plan(world.now, &world.policy, &world.found),
            plan(world.now, &world.policy, &without.found),
        );
        prop_assert_eq!(&with.due, &without.due);
        let confirmed = &world.found.confirmed;
        for step in with.steps.iter().filter(|step| !without.steps.contains(step)) {
            let days = if step.action == Action::Detach { &confirmed.detach } else { &confirmed.drop };
            prop_assert!(is_removal(step) && days.contains(&step.day.unwrap()), "{step:?}");
        }
        // A day that is confirmed and due goes now, whatever the cap.
        for (action, due, confirmed) in [
            (Action::Detach, &with.due.detach, &confirmed.detach),
            (Action::Drop, &with.due.drop, &confirmed.drop),
        ] {
            for day in due.intersection(confirmed) {
                prop_assert!(with.steps.iter().any(|step| step.action == action && step.day == Some(*day)), "{day}");
            }
        }
    }

    #[test]
    fn a_drop_waits_for_its_grace_and_a_detach_is_recorded_once(world in any_world()) {
        let world = world.in_order();
        for step in removals(&plan(world.now, &world.policy, &world.found)) {
            let detached_at = target(&world, step).detached_at;
            match step.action {
                Action::Drop => prop_assert!(world.now - detached_at.unwrap() >= world.policy.drop_grace),
                Action::MarkDetached => prop_assert!(detached_at.is_none_or(|at| at > world.now), "{detached_at:?}"),
                _ => {}
            }
        }
    }

    #[test]
    fn steps_finalize_then_create_today_first_then_detach_mark_and_drop_the_oldest_first(world in any_world()) {
        let world = world.in_order();
        let plan = plan(world.now, &world.policy, &world.found);
        let today = Day::containing(world.now);
        let rank = |step: &Step| match step.action {
            Action::Finalize => (0, 0),
            Action::MarkAttached => (0, 1),
            Action::Drain => (0, 2),
            // Today and ahead in order, then back from yesterday.
            Action::Create => match today.days_until(step.day.unwrap()) {
                offset @ 0.. => (1, offset),
                offset => (2, -offset),
            },
            // In the order of the catalog; each is a step of its own.
            Action::Attach => (3, 0),
            Action::RepairKey
            | Action::RepairOwner
            | Action::RepairGrants
            | Action::RepairStorage
            | Action::RepairReplicaIdentity
            | Action::RepairMarker => (4, 0),
            Action::Seal => (5, today.days_until(step.day.unwrap())),
            Action::BuildDigest => (5, i64::MAX - 1),
            Action::ClearDigest => (5, i64::MAX),
            Action::Detach => (6, today.days_until(step.day.unwrap())),
            Action::MarkDetached => (7, today.days_until(step.day.unwrap())),
            Action::Archive | Action::Drop => (8, today.days_until(step.day.unwrap())),
            Action::DropDrained => (9, 0),
        };
        prop_assert!(plan.steps.is_sorted_by_key(rank), "{:?}", shown(&plan));
        let pending = world.found.relations.iter().filter(|relation| relation.attachment == Attachment::PendingDetach);
        prop_assert_eq!(count(&plan, Action::Finalize), pending.count());
        let removing = [Action::Create, Action::Finalize, Action::Attach, Action::Detach, Action::MarkDetached, Action::Drop];
        let lasting: Vec<_> = plan.steps.iter().filter(|step| removing.contains(&step.action)).collect();
        let targets: BTreeSet<_> = lasting.iter().map(|step| (&step.schema, &step.relation)).collect();
        prop_assert_eq!(targets.len(), lasting.len(), "one step a relation, beside repairs");
    }

    #[test]
    fn a_created_day_was_wanted_and_missing_and_its_name_and_range_are_free(world in any_world()) {
        let world = world.in_order();
        let today = Day::containing(world.now);
        for step in plan(world.now, &world.policy, &world.found).steps {
            if step.action != Action::Create {
                continue;
            }
            let day = step.day.unwrap();
            let offset = today.days_until(day);
            prop_assert!(offset <= world.policy.ahead.days());
            if offset < 0 {
                prop_assert_eq!(world.policy.routing, Routing::MessageId);
                prop_assert!(!world.found.made.contains(&day));
                if let Some(retention) = world.retention() {
                    prop_assert!(day.end() + retention > world.now, "{day} has expired");
                }
            }
            prop_assert_eq!(&step.relation, &world.found.table.partition(day));
            let mut relations = world.found.relations.iter();
            prop_assert!(!relations.any(|other| other.name == step.relation && other.schema == step.schema));
            prop_assert!(!spans(&world).iter().any(|(_, span)| span.overlaps(&Span::of(day))));
        }
    }

    #[test]
    fn every_wanted_day_is_covered_or_created_or_a_failure_is_reported_on_it(world in any_world()) {
        let world = world.in_order();
        let plan = plan(world.now, &world.policy, &world.found);
        for offset in 0..=world.policy.ahead.days() {
            let day = Day::containing(world.now).plus(offset);
            let created = plan.steps.iter().any(|step| matches!(step.action, Action::Create | Action::Attach) && step.day == Some(day));
            let reported = plan.findings.iter().any(|finding| {
                finding.severity == Severity::Fail && (finding.day == Some(day) || finding.message.contains(&day.to_string()))
            });
            prop_assert!(is_covered(&world, day) || created || reported, "{day} is passed over: {plan:#?}");
            prop_assert!(!(is_covered(&world, day) && created), "{day} is made twice");
        }
    }

    #[test]
    fn repeated_at_one_instant_a_run_reaches_a_fixed_point_and_never_repeats_itself(world in any_world()) {
        let World { now, policy, mut found } = world.in_order();
        let first = plan(now, &policy, &found);
        let cap = policy.max_drops_per_run as usize;
        let is_calm = !first.steps.iter().any(|step| step.action.asks_for_another_look())
            && !first.findings.iter().any(|finding| finding.code == FindingCode::BlockedByCap)
            && policy.drop_grace > TimeDelta::zero();
        // Detached and dropped at `cap` a round; a finalize costs a round, its mark another.
        let rounds = if is_calm { 1 } else { 4 + 2 * found.relations.len().div_ceil(cap.max(1)) };
        let mut done = BTreeSet::new();
        for round in 0.. {
            let plan = plan(now, &policy, &found);
            if plan.steps.is_empty() {
                break;
            }
            prop_assert!(round < rounds, "round {round} of {rounds}: {:?}", shown(&plan));
            for step in &plan.steps {
                let this = (step.action.as_str(), step.schema.clone(), step.relation.clone());
                prop_assert!(done.insert(this), "{step:?} again");
            }
            found = apply(found, &plan, now);
        }
    }

    #[test]
    fn every_finding_has_a_message_and_a_remedy_and_every_step_a_reason_and_its_locks(world in any_world()) {
        let plan = plan(world.now, &world.policy, &world.found);
        prop_assert!(plan.findings.iter().all(|finding| !finding.message.is_empty() && !finding.remedy.is_empty()));
        prop_assert!(plan.steps.iter().all(|step| !step.reason.is_empty() && !step.locks.is_empty()));
    }
}
