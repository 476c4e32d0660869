//! The digest of the days that are sealed.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Action, FindingCode, Planner, Severity, Step, distrust};
use crate::pure::{
    Attachment, Bounds, Covers, DIGEST_SLOTS, Day, DigestSlot, Found, FoundRelation, Ident, Ownership, RelationKind,
    show_duration,
};

/// So long before midnight the table that tomorrow's claims ask is not emptied any more.
const LAST_TO_CLEAR: TimeDelta = TimeDelta::minutes(10);

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
        if !is_built(today, self.today) {
            let is_planned = is_settled && scope.is_some();
            // Between midnight and its build yesterday's does. Where there is neither, builds fail or days are not sealed.
            let yesterday = self.today.plus(-1);
            if (is_settled || !is_trusted) && !(is_planned && is_built(slot_of(slots, yesterday), yesterday)) {
                self.report_no_digest(started_ago);
            }
            if let Some(scope) = scope.filter(|_| is_settled) {
                let (count, from) = (scope.leaves.len(), Day::containing(scope.covers.from));
                let reason = format!("the {count} days from {from} to yesterday are sealed");
                self.steps
                    .push(Step::on_digest(found, today, Action::BuildDigest, reason));
            }
        }
        let is_left = self.today.next().start() - self.now;
        if is_settled && tomorrow.covers.is_some() && is_left > LAST_TO_CLEAR {
            let reason = "its digest is of days that no claim asks it for any more".to_owned();
            self.steps
                .push(Step::on_digest(found, tomorrow, Action::ClearDigest, reason));
        }
    }

    fn report_no_digest(&mut self, started_ago: TimeDelta) {
        let message = format!(
            "there is no digest of the days before today, which began {} ago: claims look into each day",
            show_duration(started_ago)
        );
        let remedy = "see the steps `seal` and `build_digest` of the last run".to_owned();
        self.report(FindingCode::NoDigest, Severity::Warn, message, remedy);
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
    (!leaves.is_empty()).then(|| DigestScope {
        covers: Covers {
            from: first.start(),
            to: today.start(),
        },
        leaves,
    })
}

/// Whether it is the partition of this one day.
fn holds_only(relation: &FoundRelation, day: Day) -> bool {
    relation.bounds.as_ref().and_then(Bounds::day) == Some(day)
}
