//! What a step does to what was found: the catalog after it, foretold.

use chrono::{DateTime, Utc};

use super::{
    Action, Attachment, Bounds, Found, FoundInbox, FoundRelation, LeftByDrain, Marker, OnExpiry, Policy, RelationKind,
    STORAGE_PARAMETERS, Span, Step, plan::digest_scope,
};

impl Found {
    /// Does to this what PostgreSQL and the run would do in a step. A step about a table that is not there does nothing.
    pub(crate) fn apply(&mut self, step: &Step, policy: &Policy, now: DateTime<Utc>) {
        if step.action == Action::Create {
            return self.create(step);
        }
        if matches!(step.action, Action::BuildDigest | Action::ClearDigest) {
            return self.digest(step, now);
        }
        let Some(index) = self
            .relations
            .iter()
            .position(|relation| Some(relation.oid) == step.oid)
        else {
            return;
        };
        let (inbox, parent) = (self.inbox_id, self.inbox.clone());
        let relation = &mut self.relations[index];
        let marker = |detached_at| {
            step.day.map(|day| Marker {
                inbox,
                day,
                detached_at,
            })
        };
        match step.action {
            Action::Create | Action::BuildDigest | Action::ClearDigest => {}
            Action::Finalize => {
                relation.attachment = Attachment::Loose;
                relation.bounds = None;
                let is_ours = |found: &Marker| found.inbox == inbox && Some(found.day) == step.day;
                if relation.marker.as_ref().is_none_or(is_ours) {
                    relation.marker = marker(None);
                }
            }
            Action::Attach => {
                relation.attachment = Attachment::Attached;
                relation.bounds = step.day.map(|day| Bounds::Range(Span::of(day)));
            }
            Action::Detach => {
                // What was confirmed goes once.
                step.day.map(|day| self.confirmed.detach.remove(&day));
                relation.attachment = Attachment::Loose;
                relation.bounds = None;
                relation.marker = marker(Some(now));
                relation.detached_at = Some(now);
            }
            Action::MarkAttached => {
                relation.marker = marker(None);
                relation.detached_at = None;
            }
            Action::MarkDetached => {
                relation.marker = marker(Some(now));
                relation.detached_at = Some(now);
            }
            Action::RepairMarker => {
                relation.marker = marker(None);
                self.made.extend(step.day);
            }
            Action::RepairKey => relation.has_key = true,
            Action::Seal => relation.is_sealed = true,
            Action::RepairStorage => relation
                .storage
                .extend(STORAGE_PARAMETERS.iter().map(ToString::to_string)),
            Action::RepairOwner | Action::RepairGrants | Action::RepairReplicaIdentity => {
                if let FoundInbox::Fit(parent) = parent {
                    match step.action {
                        Action::RepairOwner => relation.owner = parent.owner,
                        Action::RepairGrants => relation.grants = parent.grants,
                        _ => relation.replica_identity = parent.replica_identity,
                    }
                }
            }
            Action::Archive => {
                if let OnExpiry::Keep {
                    archive_schema: Some(schema),
                } = &policy.on_expiry
                {
                    relation.schema = schema.clone();
                }
            }
            Action::Drain => {
                relation.attachment = Attachment::Loose;
                relation.bounds = None;
                relation.marker = None;
                relation.left_by_drain = Some(LeftByDrain::Drained { inbox, at: now });
            }
            Action::DropDrained => {
                self.relations.remove(index);
            }
            Action::Drop => {
                step.day.map(|day| self.confirmed.drop.remove(&day));
                self.relations.remove(index);
            }
        }
    }

    fn digest(&mut self, step: &Step, now: DateTime<Utc>) {
        let covers = digest_scope(now, self).map(|scope| scope.covers);
        let mut slots = self.digest.iter_mut().flatten();
        if let Some(slot) = slots.find(|slot| Some(slot.oid) == step.oid) {
            slot.covers = covers.filter(|_| step.action == Action::BuildDigest);
        }
    }

    fn create(&mut self, step: &Step) {
        let (Some(day), FoundInbox::Fit(parent)) = (step.day, &self.inbox) else {
            return;
        };
        self.relations.push(FoundRelation {
            schema: step.schema.clone(),
            name: step.relation.clone(),
            oid: self.relations.iter().map(|relation| relation.oid).max().unwrap_or(0) + 1,
            kind: RelationKind::Table,
            attachment: Attachment::Attached,
            bounds: Some(Bounds::Range(Span::of(day))),
            marker: Some(Marker {
                inbox: self.inbox_id,
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
        });
        self.made.insert(day);
    }
}
