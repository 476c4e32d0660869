//! The digest of the days that are sealed.

use chrono::{DateTime, Utc};

use super::{Action, FindingCode, Planner, Severity, Step, distrust};
use crate::pure::{
    Attachment, Bounds, Covers, DIGEST_SLOTS, Day, DigestSlot, Found, FoundRelation, Ident, Ownership, RelationKind,
    show_duration,
};

/// What a digest of today is to be made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DigestScope {
    /// What it will cover.
    pub(crate) covers: Covers,
    /// The partitions of these days.
    pub(crate) leaves: Vec<Leaf>,
}

/// A partition, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) schema: Ident,
    pub(crate) name: Ident,
    pub(crate) oid: u32,
}

impl Planner<'_> {
    /// Point 15.
    pub(super) fn digest(&mut self) {
        let found = self.found;
        let (Some(slots), Some(tolerance)) = (&found.digest, found.sealing) else {
            return;
        };
        if !self.policy.keeps_digest() || found.ownership != Ownership::Ours {
            return;
        }
        let started_ago = self.now - self.today.start();
        let is_trusted = distrust(self.now, self.policy, found.clocks).is_none();
        // Until then a claim after a step back may look into the tables of yesterday's claims.
        let is_settled = is_trusted && started_ago > tolerance;
        let is_sealed = |relation: &FoundRelation| {
            let is_to_be = |step: &Step| step.action == Action::Seal && step.oid == Some(relation.oid);
            relation.is_sealed || self.steps.iter().any(is_to_be)
        };
        let scope = scope(self.now, found, is_sealed);
        let (today, tomorrow) = (slot_of(slots, self.today), slot_of(slots, self.today.next()));
        match scope {
            _ if is_built(today, self.today) => {}
            Some(scope) if is_settled => {
                let from = scope
                    .covers
                    .from
                    .map_or_else(|| "the first day".to_owned(), |from| Day::containing(from).to_string());
                let reason = format!("the {} days from {from} to yesterday are sealed", scope.leaves.len());
                self.steps
                    .push(Step::on_digest(found, today, Action::BuildDigest, reason));
            }
            _ if is_settled || !is_trusted => {
                let message = format!(
                    "there is no digest of the days before today, which began {} ago: claims look into each day",
                    show_duration(started_ago)
                );
                let remedy =
                    "see the `seal` step of the last run: yesterday, and the days before it, must be sealed".to_owned();
                self.report(FindingCode::NoDigest, Severity::Warn, message, remedy);
            }
            _ => {}
        }
        if is_settled && tomorrow.covers.is_some() {
            let reason = "its digest is of days that no claim asks it for any more".to_owned();
            self.steps
                .push(Step::on_digest(found, tomorrow, Action::ClearDigest, reason));
        }
    }
}

fn slot_of(slots: &[DigestSlot; DIGEST_SLOTS], day: Day) -> &DigestSlot {
    &slots[day.digest_slot()]
}

fn is_built(slot: &DigestSlot, today: Day) -> bool {
    slot.covers.is_some_and(|covers| covers.to == today.start())
}

/// What today's digest can be made of: none where yesterday is not sealed.
pub(crate) fn digest_scope(now: DateTime<Utc>, found: &Found) -> Option<DigestScope> {
    scope(now, found, |relation| relation.is_sealed)
}

/// All sealed days that follow each other up to yesterday.
fn scope(now: DateTime<Utc>, found: &Found, is_sealed: impl Fn(&FoundRelation) -> bool) -> Option<DigestScope> {
    let today = Day::containing(now);
    let attached = || {
        found
            .relations
            .iter()
            .filter(|relation| relation.attachment != Attachment::Loose)
    };
    let mut leaves = Vec::new();
    let mut first = today;
    // Bounded: each partition is of another day.
    while let Some(relation) = attached().find(|relation| holds_only(relation, first.plus(-1)) && first > Day::FIRST) {
        if relation.kind != RelationKind::Table || relation.attachment != Attachment::Attached || !is_sealed(relation) {
            break;
        }
        first = first.plus(-1);
        leaves.push(Leaf {
            schema: relation.schema.clone(),
            name: relation.name.clone(),
            oid: relation.oid,
        });
    }
    // Of the days before the first that there ever was nothing can be found.
    let is_older = |day: Day| day < first;
    let is_first = !found.made.iter().copied().any(is_older)
        && !found.relations.iter().any(|relation| {
            let is_of_one_day = relation.bounds.as_ref().is_none_or(|bounds| bounds.day().is_some());
            let named = found.table.day_of(relation.name.as_str());
            !is_of_one_day || relation.day().or(named).is_some_and(is_older)
        });
    (!leaves.is_empty()).then(|| DigestScope {
        covers: Covers {
            from: (!is_first).then(|| first.start()),
            to: today.start(),
        },
        leaves,
    })
}

/// Whether it is the partition of this one day.
fn holds_only(relation: &FoundRelation, day: Day) -> bool {
    relation.bounds.as_ref().and_then(Bounds::day) == Some(day)
}
