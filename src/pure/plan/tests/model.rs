//! A small stand-in for PostgreSQL and the run: builders of what is found, and what each step does to it.
//!
//! It refuses what PostgreSQL refuses, so a plan that could not be applied fails its test.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use crate::pure::{
    Action, Ahead, Attachment, Bounds, Clocks, Consumers, Day, Finding, FindingCode, Found, FoundInbox, FoundRelation,
    Ident, Marker, OnExpiry, Ownership, Parent, Plan, Policy, RelationKind, Removals, ReplicaIdentity, ReplicaPolicy,
    Retention, Routing, STORAGE_PARAMETERS, Span, Step, plan,
};

pub(in crate::pure) const INBOX: Uuid = Uuid::from_u128(7);
pub(in crate::pure) const OTHER_INBOX: Uuid = Uuid::from_u128(8);

pub(in crate::pure) fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

pub(in crate::pure) fn day(text: &str) -> Day {
    text.parse().unwrap()
}

pub(in crate::pure) fn ident(text: &str) -> Ident {
    Ident::new(text).unwrap()
}

pub(in crate::pure) fn days(days: i64) -> Retention {
    Retention::For(TimeDelta::days(days))
}

/// A week ahead, a week of retention, a day of grace, four removals a run.
pub(in crate::pure) fn policy() -> Policy {
    Policy {
        routing: Routing::ProcessedAt,
        consumers: Consumers::One,
        ahead: Ahead::DEFAULT,
        retention: days(7),
        on_expiry: OnExpiry::Drop,
        drop_grace: TimeDelta::days(1),
        max_drops_per_run: 4,
        max_clock_skew: TimeDelta::minutes(5),
        max_clock_leap: TimeDelta::days(7),
        drain_default: false,
        seal_days: false,
        digest: false,
    }
}

/// The same by the ids' time.
pub(in crate::pure) fn by_message_id() -> Policy {
    Policy {
        routing: Routing::MessageId,
        ..policy()
    }
}

/// An inbox of ours without any partition, under a trusted clock.
pub(in crate::pure) fn empty(now: DateTime<Utc>) -> Found {
    Found {
        table: "public.inbox".parse().unwrap(),
        inbox_id: INBOX,
        ownership: Ownership::Ours,
        inbox: FoundInbox::Fit(Parent {
            owner: "journal".to_owned(),
            grants: BTreeSet::new(),
            replica_identity: ReplicaIdentity::Default,
            tablespace: None,
        }),
        relations: Vec::new(),
        held: BTreeMap::new(),
        made: BTreeSet::new(),
        confirmed: Removals::default(),
        claim_retention: Some(Retention::For(TimeDelta::hours(1))),
        has_functions: true,
        claim_drift: Vec::new(),
        sealing: Some(TimeDelta::hours(1)),
        digest: None,
        plain_inserters: Vec::new(),
        unfit_publications: Vec::new(),
        lacking: Vec::new(),
        replicas: Vec::new(),
        clocks: trusted(now),
    }
}

/// Another replica of the deployment.
pub(in crate::pure) fn other_replica(retention: Retention, ahead: i64) -> ReplicaPolicy {
    ReplicaPolicy {
        replica: "other:7".to_owned(),
        retention,
        ahead: Ahead::new(ahead).unwrap(),
    }
}

/// All clocks agree.
pub(in crate::pure) fn trusted(now: DateTime<Utc>) -> Clocks {
    Clocks {
        host: now,
        trusted: Some(now),
    }
}

/// An inbox that has all its partitions, from the first remembered day to the last one ahead.
pub(in crate::pure) fn healthy(now: DateTime<Utc>, policy: &Policy) -> Found {
    let mut found = empty(now);
    let today = Day::containing(now);
    let first = policy.retention.horizon(now).map_or(today, Day::containing);
    attach_days(&mut found, first, today.plus(policy.ahead.days()));
    found
}

pub(in crate::pure) fn attach_days(found: &mut Found, first: Day, last: Day) {
    for offset in 0..=first.days_until(last) {
        attach(found, first.plus(offset));
    }
}

/// Adds a partition as the run would make it.
pub(in crate::pure) fn attach(found: &mut Found, day: Day) -> &mut FoundRelation {
    let FoundInbox::Fit(parent) = &found.inbox else {
        panic!("only a fitting inbox has partitions")
    };
    let relation = FoundRelation {
        schema: found.table.schema().clone(),
        name: found.table.partition(day),
        oid: found.relations.iter().map(|relation| relation.oid).max().unwrap_or(0) + 1,
        kind: RelationKind::Table,
        attachment: Attachment::Attached,
        bounds: Some(Bounds::Range(Span::of(day))),
        marker: Some(Marker {
            inbox: found.inbox_id,
            day,
            detached_at: None,
        }),
        detached_at: None,
        left_by_drain: None,
        has_key: true,
        is_sealed: false,
        is_subscribed: false,
        owner: parent.owner.clone(),
        grants: parent.grants.clone(),
        storage: STORAGE_PARAMETERS.iter().map(ToString::to_string).collect(),
        replica_identity: parent.replica_identity,
        tablespace: parent.tablespace.clone(),
        xid_age: Some(0),
        dead_rows: Some(0),
        vacuumed_at: None,
        estimated_rows: Some(0),
        bytes: None,
    };
    found.made.insert(day);
    found.relations.push(relation);
    found.relations.last_mut().unwrap()
}

/// Adds a partition of the day that holds `from` to `to` instead.
pub(in crate::pure) fn attach_span<'f>(
    found: &'f mut Found,
    name: &str,
    from: &str,
    to: &str,
) -> &'f mut FoundRelation {
    let relation = attach(found, day("2000-01-01"));
    let end = |text: &str| (!text.is_empty()).then(|| at(text));
    relation.name = ident(name);
    relation.bounds = Some(Bounds::Range(Span {
        from: end(from),
        to: end(to),
    }));
    relation.marker = None;
    found.made.remove(&day("2000-01-01"));
    found.relations.last_mut().unwrap()
}

/// Adds a detached partition of ours.
pub(in crate::pure) fn loose(found: &mut Found, day: Day, detached_at: Option<DateTime<Utc>>) -> &mut FoundRelation {
    let relation = attach(found, day);
    relation.attachment = Attachment::Loose;
    relation.bounds = None;
    relation.detached_at = detached_at;
    if let Some(marker) = &mut relation.marker {
        marker.detached_at = detached_at;
    }
    relation
}

/// Adds a partition whose concurrent detach was interrupted.
pub(in crate::pure) fn pending(found: &mut Found, day: Day) -> &mut FoundRelation {
    let relation = attach(found, day);
    relation.attachment = Attachment::PendingDetach;
    relation
}

pub(in crate::pure) fn relation_of<'f>(found: &'f mut Found, day: &str) -> &'f mut FoundRelation {
    let name = format!("inbox_{}", day.replace('-', "_"));
    found
        .relations
        .iter_mut()
        .find(|relation| relation.name.as_str() == name)
        .unwrap()
}

/// Does to what was found what PostgreSQL and the run would do, step by step.
pub(in crate::pure) fn apply(mut found: Found, plan: &Plan, now: DateTime<Utc>) -> Found {
    for step in &plan.steps {
        apply_step(&mut found, step, now);
    }
    found
}

/// Refuses what PostgreSQL would refuse, then does it.
fn apply_step(found: &mut Found, step: &Step, now: DateTime<Utc>) {
    if step.action == Action::Create {
        refuse_to_create(found, step);
    } else if matches!(step.action, Action::BuildDigest | Action::ClearDigest) {
        let mut slots = found.digest.iter().flatten();
        assert!(
            slots.any(|slot| slot.name == step.relation && Some(slot.oid) == step.oid),
            "{step:?}"
        );
    } else {
        let relation = found.relations.iter().find(|relation| Some(relation.oid) == step.oid);
        let relation = relation.unwrap_or_else(|| panic!("{step:?} is about a table that is not there"));
        assert_eq!(
            (&relation.schema, &relation.name, relation.day()),
            (&step.schema, &step.relation, step.day)
        );
        let attachment = match step.action {
            Action::Create | Action::BuildDigest | Action::ClearDigest => return,
            Action::Finalize => Attachment::PendingDetach,
            Action::Attach | Action::MarkDetached | Action::Archive | Action::Drop | Action::DropDrained => {
                Attachment::Loose
            }
            Action::MarkAttached
            | Action::Drain
            | Action::Detach
            | Action::RepairKey
            | Action::RepairOwner
            | Action::RepairGrants
            | Action::RepairStorage
            | Action::Seal
            | Action::RepairReplicaIdentity
            | Action::RepairMarker => Attachment::Attached,
        };
        assert_eq!(relation.attachment, attachment, "{step:?}");
        if step.action == Action::Attach {
            refuse_to_overlap(found, step);
        }
        if step.action == Action::Detach {
            for child in &found.relations {
                assert_ne!(
                    child.bounds,
                    Some(Bounds::Default),
                    "refused beside a default partition"
                );
                assert_ne!(child.attachment, Attachment::PendingDetach, "refused before a finalize");
            }
        }
    }
    found.apply(step, &policy(), now);
}

fn refuse_to_create(found: &Found, step: &Step) {
    for relation in &found.relations {
        let taken = relation.name == step.relation && relation.schema == step.schema;
        assert!(!taken, "{} exists already", step.relation);
    }
    refuse_to_overlap(found, step);
}

fn refuse_to_overlap(found: &Found, step: &Step) {
    let wanted = Span::of(step.day.unwrap());
    for relation in &found.relations {
        let span = relation.bounds.as_ref().and_then(Bounds::span);
        let overlaps = span.is_some_and(|span| span.overlaps(&wanted));
        assert!(!overlaps, "{} would overlap {}", step.relation, relation.name);
    }
}

/// One run under a trusted clock: the plan, and what it leaves.
pub(in crate::pure) fn run(mut found: Found, policy: &Policy, now: DateTime<Utc>) -> (Found, Plan) {
    found.clocks = trusted(now);
    let plan = plan(now, policy, &found);
    (apply(found, &plan, now), plan)
}

/// The steps in short: `create 2026-12-10`, or the relation's name where there is no day.
pub(in crate::pure) fn shown(plan: &Plan) -> Vec<String> {
    let name = |step: &Step| {
        step.day
            .map_or_else(|| step.relation.to_string(), |day| day.to_string())
    };
    plan.steps
        .iter()
        .map(|step| format!("{} {}", step.action.as_str(), name(step)))
        .collect()
}

/// The same for an action and a run of days.
pub(in crate::pure) fn each(action: &str, first: &str, last: &str) -> Vec<String> {
    let (first, last) = (day(first), day(last));
    let (count, sign) = (first.days_until(last).abs(), first.days_until(last).signum());
    (0..=count)
        .map(|offset| format!("{action} {}", first.plus(sign * offset)))
        .collect()
}

pub(in crate::pure) fn with_code(plan: &Plan, code: FindingCode) -> Vec<&Finding> {
    plan.findings.iter().filter(|finding| finding.code == code).collect()
}

/// The only finding of that code.
pub(in crate::pure) fn only(plan: &Plan, code: FindingCode) -> &Finding {
    match with_code(plan, code)[..] {
        [finding] => finding,
        _ => panic!("not exactly one {code:?}: {:#?}", plan.findings),
    }
}
