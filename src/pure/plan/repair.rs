//! What is put right on partitions that are there: only where no claim waits for it.

use super::{Action, Planner, Step, attached};
use crate::pure::{Attachment, Day, FoundInbox, FoundRelation, RelationKind, Routing, STORAGE_PARAMETERS};

impl Planner<'_> {
    /// Point 8.
    pub(super) fn repair(&mut self) {
        let FoundInbox::Fit(parent) = &self.found.inbox else {
            return;
        };
        let managed: Vec<(&FoundRelation, Day)> = attached(&self.found.relations)
            .filter_map(|relation| Some((relation, relation.day()?)))
            .filter(|(relation, day)| self.is_ours(relation, *day) && !self.is_expired(*day))
            .collect();
        for (relation, day) in managed {
            if relation.marker.is_none() {
                self.mend(
                    relation,
                    Action::RepairMarker,
                    "it does not say whose it is, which a dump or a crash would need",
                );
            }
            if !relation.has_key && self.policy.routing == Routing::ProcessedAt {
                self.mend(
                    relation,
                    Action::RepairKey,
                    "its key is gone, and claims on it fail rather than double",
                );
            }
            if relation.grants != parent.grants {
                self.mend(relation, Action::RepairGrants, "its privileges are not the inbox's");
            }
            if STORAGE_PARAMETERS
                .iter()
                .any(|parameter| !relation.storage.contains(*parameter))
            {
                self.mend(
                    relation,
                    Action::RepairStorage,
                    "it lacks storage parameters that spare it needless vacuums",
                );
            }
            if self.claims_can_wait(day) {
                if relation.owner != parent.owner {
                    self.mend(relation, Action::RepairOwner, "its owner is not the inbox's");
                }
                if relation.replica_identity != parent.replica_identity {
                    self.mend(
                        relation,
                        Action::RepairReplicaIdentity,
                        "its replica identity is not the inbox's",
                    );
                }
            }
        }
    }

    fn mend(&mut self, relation: &FoundRelation, action: Action, reason: &str) {
        self.steps
            .push(Step::on(self.found, relation, action, reason.to_owned()));
    }

    /// Whether no claim uses a day yet, so that a short ACCESS EXCLUSIVE on it is in nobody's way: a claim goes to today,
    /// in its last hour looks into tomorrow, and by `message_id` a producer's clock may be a day ahead.
    pub(super) fn claims_can_wait(&self, day: Day) -> bool {
        self.today.days_until(day) > 2
    }

    /// A plain table that is named as its day's and not marked as anything else.
    pub(super) fn is_ours(&self, relation: &FoundRelation, day: Day) -> bool {
        let marked_otherwise = relation
            .marker
            .as_ref()
            .is_some_and(|marker| marker.inbox != self.found.inbox_id || marker.day != day);
        relation.kind == RelationKind::Table && self.is_named_for(relation, day) && !marked_otherwise
    }

    /// Point 9.
    pub(super) fn attach_what_was_detached_by_hand(&mut self) {
        let detached: Vec<_> = self
            .found
            .relations
            .iter()
            .filter(|relation| self.will_attach(relation))
            .collect();
        for relation in detached {
            self.mend(
                relation,
                Action::Attach,
                "it was detached by hand while it is still needed",
            );
        }
    }

    /// Whether a table is a partition of ours that somebody detached, and that can go back as it is.
    pub(super) fn will_attach(&self, relation: &FoundRelation) -> bool {
        let marked = relation
            .marker
            .as_ref()
            .filter(|marker| marker.inbox == self.found.inbox_id);
        let Some(day) = marked
            .map(|marker| marker.day)
            .filter(|_| relation.attachment == Attachment::Loose)
        else {
            return false;
        };
        let on_record = relation.detached_at.is_some();
        self.is_ours(relation, day) && relation.has_key && !on_record && !self.is_expired(day) && self.is_free(day)
    }
}
