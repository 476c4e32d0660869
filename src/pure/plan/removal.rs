//! What has expired, and what keeps it from being removed.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};

use super::{Action, FindingCode, Planner, Severity, Step};
use crate::pure::{
    Attachment, Bounds, Clocks, Day, FoundRelation, OnExpiry, Ownership, Policy, RelationKind, show_duration,
};

impl Planner<'_> {
    /// Points 5, 6 and 7.
    pub(super) fn remove(&mut self) {
        let mut expired: Vec<&FoundRelation> = self
            .found
            .relations
            .iter()
            .filter(|relation| self.is_expired_of_ours(relation))
            .collect();
        expired.sort_by_key(|relation| (relation.day(), relation.oid));
        let (mut detach, mut mark, mut drop) = (Vec::new(), Vec::new(), Vec::new());
        let mut on_hold = BTreeSet::new();
        for relation in expired {
            if let Some((day, since)) = relation.day().and_then(|day| Some((day, *self.found.held.get(&day)?))) {
                if on_hold.insert(day) {
                    let held_for = show_duration(self.now - since);
                    self.report_on(
                        relation,
                        FindingCode::BlockedByHold,
                        Severity::Info,
                        format!("expired, but {day} has been on hold for {held_for}"),
                        "release it with `inboxd hold … --release` when the day is no longer needed".to_owned(),
                    );
                }
                continue;
            }
            match (relation.attachment, relation.detached_at) {
                (Attachment::Attached, _) => detach.push(relation),
                (Attachment::Loose, None) => mark.push(relation),
                // Detached while the clock was ahead: that grace would end when it is there again.
                (Attachment::Loose, Some(at)) if at > self.now => mark.push(relation),
                (Attachment::Loose, Some(at)) if self.grace_is_over(at) => drop.push(relation),
                (Attachment::Loose, Some(_)) | (Attachment::PendingDetach, _) => {}
            }
        }
        if !self.may_remove(detach.len() + drop.len()) {
            return;
        }
        let has_default = self
            .found
            .relations
            .iter()
            .any(|relation| relation.bounds == Some(Bounds::Default));
        if has_default && !detach.is_empty() {
            self.report(
                FindingCode::BlockedByDefault,
                Severity::Warn,
                format!(
                    "{} expired partitions cannot be detached while there is a default partition",
                    detach.len()
                ),
                "move the rows of the default partition away and detach it".to_owned(),
            );
            detach.clear();
        }
        let expired_by = format!("the whole day is older than the retention of {}", self.retention());
        self.due.detach = days_of(&detach);
        for relation in self.capped(detach, "detached", &self.found.confirmed.detach) {
            self.steps
                .push(Step::on(self.found, relation, Action::Detach, expired_by.clone()));
        }
        for relation in mark {
            let reason = match relation.detached_at {
                None => "it is detached, but not on record: its grace begins now".to_owned(),
                Some(at) => format!("its detach is on record at {at}, which is still to come: its grace begins now"),
            };
            self.steps
                .push(Step::on(self.found, relation, Action::MarkDetached, reason));
        }
        let grace = show_duration(self.policy.drop_grace);
        match &self.policy.on_expiry {
            OnExpiry::Drop => {
                self.due.drop = days_of(&drop);
                for relation in self.capped(drop, "dropped", &self.found.confirmed.drop) {
                    let reason = format!("expired, and detached for longer than the grace of {grace}");
                    self.steps.push(Step::on(self.found, relation, Action::Drop, reason));
                }
            }
            OnExpiry::Keep {
                archive_schema: Some(schema),
            } => {
                for relation in drop {
                    let reason =
                        format!("expired, and detached for longer than the grace of {grace}; kept in schema {schema}");
                    self.steps.push(Step::on(self.found, relation, Action::Archive, reason));
                }
            }
            OnExpiry::Keep { archive_schema: None } => {}
        }
    }

    pub(super) fn grace_is_over(&self, detached_at: DateTime<Utc>) -> bool {
        // A grace that ends after the last instant there is never ends.
        detached_at
            .checked_add_signed(self.policy.drop_grace)
            .is_some_and(|over| over <= self.now)
    }

    /// Whether a relation is ours to remove once nothing blocks it. Safety conditions, in order: a plain table; exactly one
    /// day; that day before today; all of it past the retention; named as this day's; marked as this inbox's and this
    /// day's or, while attached, not marked at all.
    fn is_expired_of_ours(&self, relation: &FoundRelation) -> bool {
        let Some(day) = relation.day() else { return false };
        let marked = relation
            .marker
            .as_ref()
            .map(|marker| marker.inbox == self.found.inbox_id && marker.day == day);
        relation.kind == RelationKind::Table
            && self.is_expired(day)
            && self.is_named_for(relation, day)
            && match relation.attachment {
                Attachment::Loose => marked == Some(true),
                Attachment::Attached | Attachment::PendingDetach => marked != Some(false),
            }
    }

    /// Whether all of a day is older than the retention, and before today.
    pub(super) fn is_expired(&self, day: Day) -> bool {
        day < self.today
            && self
                .retention()
                .horizon(self.now)
                .is_some_and(|horizon| day.end() <= horizon)
    }

    /// Whether a detached partition stands where the policy wants it kept.
    pub(super) fn is_archived(&self, relation: &FoundRelation, day: Day) -> bool {
        let OnExpiry::Keep {
            archive_schema: Some(schema),
        } = &self.policy.on_expiry
        else {
            return false;
        };
        relation.schema == *schema
            && (relation.name == self.found.table.partition(day) || relation.name == self.found.table.adopted())
    }

    pub(super) fn is_named_for(&self, relation: &FoundRelation, day: Day) -> bool {
        let table = &self.found.table;
        if relation.schema != *table.schema() {
            return false;
        }
        // An adopted table is told from a day's by its bounds while it is a partition, and by its name afterwards.
        match (relation.name == table.adopted(), &relation.bounds) {
            (true, None) => true,
            (is_named_adopted, Some(bounds)) if bounds.day().is_none() => is_named_adopted,
            _ => relation.name == table.partition(day),
        }
    }

    /// Point 7, and the server's identity of point 5.
    fn may_remove(&mut self, waiting: usize) -> bool {
        let blocked = if self.found.ownership == Ownership::OtherServer {
            Some((
                FindingCode::OtherServer,
                "the database is a copy of the one that this inbox was made in".to_owned(),
                "creation goes on; if this copy is meant to live on as itself, run `inboxd takeover`",
            ))
        } else {
            distrust(self.now, self.policy, self.found.clocks)
                .map(|(message, remedy)| (FindingCode::BlockedByClock, message, remedy))
        };
        let Some((code, message, remedy)) = blocked else {
            return true;
        };
        self.report(
            code,
            Severity::Warn,
            format!("{message}; {waiting} removals wait"),
            remedy.to_owned(),
        );
        false
    }

    /// What one run may take: each day that was confirmed, and of the others, the oldest first, as many as the cap has left.
    fn capped<'f>(
        &mut self,
        candidates: Vec<&'f FoundRelation>,
        verb: &str,
        confirmed: &BTreeSet<Day>,
    ) -> Vec<&'f FoundRelation> {
        let cap = usize::try_from(self.policy.max_drops_per_run).unwrap_or(usize::MAX);
        let is_confirmed = |relation: &FoundRelation| relation.day().is_some_and(|day| confirmed.contains(&day));
        let all = candidates.len();
        let lifted = candidates.iter().filter(|relation| is_confirmed(relation)).count();
        let mut left = cap.saturating_sub(lifted);
        let taken: Vec<_> = candidates
            .into_iter()
            .filter(|relation| {
                let is_taken = is_confirmed(relation) || left > 0;
                if is_taken && !is_confirmed(relation) {
                    left -= 1;
                }
                is_taken
            })
            .collect();
        let waiting = all - taken.len();
        if waiting > 0 {
            self.report(
                FindingCode::BlockedByCap,
                Severity::Warn,
                format!("{waiting} more partitions are due to be {verb}, beyond the {cap} of max_drops_per_run"),
                "later runs take them, or the next one alone after `inboxd confirm drops`; if that many were not meant to go, \
                 lengthen the retention or hold their days now"
                    .to_owned(),
            );
        }
        taken
    }
}

fn days_of(relations: &[&FoundRelation]) -> BTreeSet<Day> {
    relations.iter().filter_map(|relation| relation.day()).collect()
}

/// Point 7: why the clock is not trusted, and what to do; none when it is.
pub(crate) fn distrust(now: DateTime<Utc>, policy: &Policy, clocks: Clocks) -> Option<(String, &'static str)> {
    let skew = (now - clocks.host).abs();
    let leap = clocks.trusted.map_or(TimeDelta::zero(), |trusted| now - trusted);
    if skew > policy.max_clock_skew {
        let message = format!(
            "the database's clock and this host's differ by {}, of at most {}",
            show_duration(skew),
            show_duration(policy.max_clock_skew)
        );
        return Some((
            message,
            "set the wrong clock right; nothing is removed until they agree",
        ));
    }
    if leap > policy.max_clock_leap {
        let message = format!(
            "the database's clock is {} past the highest time that earlier runs trusted, of at most {}",
            show_duration(leap),
            show_duration(policy.max_clock_leap)
        );
        let remedy = "if the clock is right (the service was down that long), run `inboxd confirm clock` (or `inboxd run --confirm-clock`) once";
        return Some((message, remedy));
    }
    None
}
