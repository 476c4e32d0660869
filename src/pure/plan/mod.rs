//! The plan: what one run would do to one inbox, and why. A pure function of what was found.

mod coverage;
mod examine;
mod finding;
mod step;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};

use self::{coverage::Coverage, examine::kind_name};
pub use self::{
    finding::{Finding, FindingCode, Severity},
    step::{Action, Lock, Step},
};
use super::{Attachment, Day, Found, FoundInbox, FoundRelation, Ownership, Policy, Routing, Span, show_duration};

/// What a run would do to one inbox, with the findings that a person should see.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Plan {
    /// The database's clock when the catalog was read.
    pub now: DateTime<Utc>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// What was noticed.
    pub findings: Vec<Finding>,
    /// Seconds until the first claim would fail for want of a partition; none when the partitions never end.
    pub runway_seconds: Option<i64>,
}

impl Plan {
    /// The worst severity among the findings; [`Severity::Info`] when there is none.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.findings
            .iter()
            .map(|finding| finding.severity)
            .max()
            .unwrap_or(Severity::Info)
    }
}

/// Decides what one run does to one inbox. This list *is* the policy:
///
/// 1. An inbox that is missing, does not fit, or belongs to another deployment is left alone altogether.
/// 2. A detach that was interrupted is finalized first: nothing else can be detached before.
/// 3. Today and each of `ahead` days after it must be held by partitions. What is missing is created, today first.
///    Ahead counts from the database's clock, never from the newest row. A name that is taken, or bounds that overlap,
///    are reported, and the other days go on.
/// 4. In `message_id` routing the days back to the retention's horizon must exist too, and are created oldest last,
///    but only where no partition of that day was ever made: an emptied day would accept its messages a second time.
/// 5. A partition expires when its whole day is older than `now - retention`, of the configured retention and that of the
///    claim functions the longer. Oldest first, it is detached if *all* of these hold: it is a plain table; its bounds are
///    exactly one UTC day; that day lies before today; its name is that day's, in the inbox's schema; its marker does not
///    contradict; the day is not on hold; the clock is trusted; the server is the one that the inbox was made on; no
///    default partition stands in the way; the run's cap is not used up.
/// 6. A detached partition of ours (by its marker, never by its name alone; a name that says otherwise is a
///    contradiction) that has expired, and whose time of detach is unknown, gets it recorded now, so that its grace
///    begins. One whose grace is over is dropped under the same conditions, with a cap of its own.
/// 7. The clock is trusted unless it differs from the host's by more than `max_clock_skew`, or has come further than
///    `max_clock_leap` past the highest time that earlier runs trusted. An untrusted clock creates, and removes nothing.
/// 8. Nothing from today on is ever removed, and nothing that is not of points 5 and 6 is ever touched: it is reported.
///
/// Planning again at the same instant never repeats a step that was applied; it gives none at all, unless a cap was used
/// up, a detach was finalized (its grace must begin), or the grace is zero.
#[must_use]
pub fn plan(now: DateTime<Utc>, policy: &Policy, found: &Found) -> Plan {
    let mut planner = Planner {
        now,
        today: Day::containing(now),
        policy,
        found,
        coverage: Coverage::of(&found.relations),
        steps: Vec::new(),
        findings: Vec::new(),
    };
    let runway = planner.coverage.runway(now);
    if planner.may_manage() {
        planner.examine();
        planner.finalize();
        planner.create();
        planner.remove();
        planner.judge_runway(runway);
    }
    let Planner { steps, findings, .. } = planner;
    Plan {
        now,
        steps,
        findings,
        runway_seconds: runway.map(|runway| runway.num_seconds()),
    }
}

fn attached(relations: &[FoundRelation]) -> impl Iterator<Item = &FoundRelation> {
    relations
        .iter()
        .filter(|relation| relation.attachment == Attachment::Attached)
}

struct Planner<'a> {
    now: DateTime<Utc>,
    today: Day,
    policy: &'a Policy,
    found: &'a Found,
    coverage: Coverage,
    steps: Vec<Step>,
    findings: Vec<Finding>,
}

impl Planner<'_> {
    /// Point 1.
    fn may_manage(&mut self) -> bool {
        if let Ownership::OtherDeployment(name) = &self.found.ownership {
            self.report(
                FindingCode::OtherDeployment,
                Severity::Fail,
                format!("the inbox belongs to deployment {name:?}"),
                "stop one of the two, or configure another deployment name".to_owned(),
            );
            return false;
        }
        match &self.found.inbox {
            FoundInbox::Fit { .. } => true,
            FoundInbox::Missing => {
                self.report(
                    FindingCode::InboxMissing,
                    Severity::Fail,
                    format!("table {} does not exist", self.found.table),
                    "run `inboxd init`".to_owned(),
                );
                false
            }
            FoundInbox::Unfit(why) => {
                self.report(
                    FindingCode::InboxUnfit,
                    Severity::Fail,
                    format!("table {} cannot be an inbox: {why}", self.found.table),
                    "rename it, or configure another table".to_owned(),
                );
                false
            }
        }
    }

    /// Point 2.
    fn finalize(&mut self) {
        let pending: Vec<_> = self
            .found
            .relations
            .iter()
            .filter(|relation| relation.attachment == Attachment::PendingDetach)
            .collect();
        for relation in pending {
            let reason =
                "its detach was interrupted, and nothing else can be detached before it is finalized".to_owned();
            self.steps
                .push(Step::on(self.found, relation, Action::Finalize, reason));
        }
    }

    /// Points 3 and 4.
    fn create(&mut self) {
        // Fewer than `ahead` only at the end of the calendar, where days stop.
        let last = self.today.plus(self.policy.ahead.days());
        for offset in 0..=self.today.days_until(last) {
            let day = self.today.plus(offset);
            let reason = match offset {
                0 => "today has no partition".to_owned(),
                1 => "tomorrow has no partition".to_owned(),
                _ => format!("{offset} days ahead, of {} that must exist", self.policy.ahead.days()),
            };
            self.create_missing(day, reason);
        }
        let oldest = self.oldest_remembered_day();
        for offset in 1..=oldest.days_until(self.today) {
            let day = self.today.plus(-offset);
            if self.coverage.covers(day) {
                continue;
            }
            let never_made = !self.found.made.contains(&day);
            match self.policy.routing {
                Routing::MessageId if never_made => {
                    self.create_missing(
                        day,
                        "messages created on this day can still be delivered, and it never had a partition".to_owned(),
                    );
                }
                Routing::MessageId | Routing::ProcessedAt => self.report_gap(day, never_made),
            }
        }
    }

    fn create_missing(&mut self, day: Day, reason: String) {
        if self.coverage.covers(day) || self.is_held_by_pending(day) {
            return;
        }
        let name = self.found.table.partition(day);
        let wanted = Span::of(day);
        let overlaps = |relation: &&FoundRelation| {
            let span = relation.bounds.as_ref().and_then(super::Bounds::span);
            span.is_some_and(|span| span.overlaps(&wanted))
        };
        let schema = self.found.table.schema();
        if let Some(taken) = self
            .found
            .relations
            .iter()
            .find(|relation| relation.name == name && relation.schema == *schema)
        {
            // What is attached under that name holds another range.
            if taken.attachment == Attachment::Loose {
                let ours = taken
                    .marker
                    .as_ref()
                    .is_some_and(|marker| marker.inbox == self.found.inbox_id && marker.day == day);
                let (code, message, remedy) = if ours {
                    (
                        FindingCode::NotAttached,
                        "the partition is there, but it is not attached".to_owned(),
                        format!(
                            "attach it: alter table {} attach partition {} for values …",
                            self.found.table.quoted(),
                            self.found.table.quoted_sibling(&name)
                        ),
                    )
                } else {
                    (
                        FindingCode::NameTaken,
                        format!(
                            "a {} that is not inboxd's has the name that the partition of {day} needs",
                            kind_name(taken)
                        ),
                        "rename or drop it".to_owned(),
                    )
                };
                self.report_on(taken, code, Severity::Fail, message, remedy);
            } else {
                self.report_on(
                    taken,
                    FindingCode::NameTaken,
                    Severity::Fail,
                    format!("it has the name that the partition of {day} needs, but holds another range"),
                    "rename it; inboxd leaves it alone".to_owned(),
                );
            }
            return;
        }
        if let Some(relation) = self.found.relations.iter().find(overlaps) {
            self.report_on(
                relation,
                FindingCode::WrongBounds,
                Severity::Fail,
                format!("it holds part of {day}, so that day cannot have a partition of its own"),
                "move its rows, then detach it; inboxd leaves it alone".to_owned(),
            );
            return;
        }
        self.steps.push(Step::create(self.found, day, reason));
    }

    /// Whether an interrupted detach still occupies the day, which is then reported.
    fn is_held_by_pending(&mut self, day: Day) -> bool {
        let held = self.found.relations.iter().find(|relation| {
            let span = relation.bounds.as_ref().and_then(super::Bounds::span);
            relation.attachment == Attachment::PendingDetach && span.is_some_and(|span| span.overlaps(&Span::of(day)))
        });
        let Some(relation) = held else { return false };
        self.report_on(
            relation,
            FindingCode::NotAttached,
            Severity::Fail,
            format!(
                "its detach was interrupted: claims on {day} fail, and nothing else can hold that day before it is finalized"
            ),
            "inboxd finalizes it; if it was not meant to go, attach it again after that".to_owned(),
        );
        true
    }

    /// The first day that a claim made or created within retention can fall on.
    fn oldest_remembered_day(&self) -> Day {
        let known = attached(&self.found.relations)
            .filter_map(FoundRelation::day)
            .chain(self.found.made.iter().copied())
            .min()
            .unwrap_or(self.today);
        match (self.retention().horizon(self.now), self.policy.routing) {
            (Some(horizon), Routing::MessageId) => Day::containing(horizon),
            (Some(horizon), Routing::ProcessedAt) => Day::containing(horizon).max(known),
            // For ever has no horizon: an inbox begins as many days back as it looks ahead.
            (None, Routing::MessageId) => known.min(self.today.plus(-self.policy.ahead.days())),
            (None, Routing::ProcessedAt) => known,
        }
    }

    fn retention(&self) -> super::Retention {
        self.found.claim_retention.map_or(self.policy.retention, |made_with| {
            self.policy.retention.longer(made_with)
        })
    }

    fn report_gap(&mut self, day: Day, never_made: bool) {
        let (severity, message, remedy) = if never_made {
            (
                Severity::Info,
                format!("{day} never had a partition: no claim was made on it"),
                "nothing to do; it leaves with the retention",
            )
        } else {
            (
                Severity::Warn,
                format!("the partition of {day} is gone, and with it the memory of its claims"),
                "if a copy exists, attach it again",
            )
        };
        self.findings.push(Finding {
            code: FindingCode::Gap,
            severity,
            relation: None,
            day: Some(day),
            message,
            remedy: remedy.to_owned(),
        });
    }

    /// Points 5, 6 and 7.
    fn remove(&mut self) {
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
                        "release the hold when the day is no longer needed".to_owned(),
                    );
                }
                continue;
            }
            match (relation.attachment, relation.detached_at) {
                (Attachment::Attached, _) => detach.push(relation),
                (Attachment::Loose, None) => mark.push(relation),
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
            .any(|relation| relation.bounds == Some(super::Bounds::Default));
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
        for relation in self.capped(detach, "detached") {
            self.steps
                .push(Step::on(self.found, relation, Action::Detach, expired_by.clone()));
        }
        for relation in mark {
            let reason = "it is detached, but not on record: its grace begins now".to_owned();
            self.steps
                .push(Step::on(self.found, relation, Action::MarkDetached, reason));
        }
        for relation in self.capped(drop, "dropped") {
            let grace = show_duration(self.policy.drop_grace);
            self.steps.push(Step::on(
                self.found,
                relation,
                Action::Drop,
                format!("expired, and detached for longer than the grace of {grace}"),
            ));
        }
    }

    fn grace_is_over(&self, detached_at: DateTime<Utc>) -> bool {
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
        let Some(horizon) = self.retention().horizon(self.now) else {
            return false;
        };
        let marked = relation
            .marker
            .as_ref()
            .map(|marker| marker.inbox == self.found.inbox_id && marker.day == day);
        relation.kind == super::RelationKind::Table
            && day < self.today
            && day.end() <= horizon
            && self.is_named_for(relation, day)
            && match relation.attachment {
                Attachment::Loose => marked == Some(true),
                Attachment::Attached | Attachment::PendingDetach => marked != Some(false),
            }
    }

    fn is_named_for(&self, relation: &FoundRelation, day: Day) -> bool {
        let table = &self.found.table;
        relation.schema == *table.schema() && relation.name == table.partition(day)
    }

    /// Point 7, and the server's identity of point 5.
    fn may_remove(&mut self, waiting: usize) -> bool {
        let clocks = self.found.clocks;
        let skew = (self.now - clocks.host).abs();
        let leap = clocks.trusted.map_or(TimeDelta::zero(), |trusted| self.now - trusted);
        let blocked = if self.found.ownership == Ownership::OtherServer {
            Some((
                FindingCode::OtherServer,
                "the database is a copy of the one that this inbox was made in".to_owned(),
                "create goes on; make sure that the copy is meant to live on before anything is removed from it",
            ))
        } else if skew > self.policy.max_clock_skew {
            Some((
                FindingCode::BlockedByClock,
                format!(
                    "the database's clock and this host's differ by {}, of at most {}",
                    show_duration(skew),
                    show_duration(self.policy.max_clock_skew)
                ),
                "set the wrong clock right; nothing is removed until they agree",
            ))
        } else if leap > self.policy.max_clock_leap {
            Some((
                FindingCode::BlockedByClock,
                format!(
                    "the database's clock is {} past the highest time that earlier runs trusted, of at most {}",
                    show_duration(leap),
                    show_duration(self.policy.max_clock_leap)
                ),
                "if the clock is right (the service was down that long), run `inboxd run --confirm-clock` once",
            ))
        } else {
            None
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

    fn capped<'f>(&mut self, mut candidates: Vec<&'f FoundRelation>, verb: &str) -> Vec<&'f FoundRelation> {
        let cap = usize::try_from(self.policy.max_drops_per_run).unwrap_or(usize::MAX);
        if candidates.len() > cap {
            let waiting = candidates.len() - cap;
            candidates.truncate(cap);
            self.report(FindingCode::BlockedByCap, Severity::Info,
                format!("{waiting} more partitions are due to be {verb}, beyond the {cap} of max_drops_per_run"),
                "later runs take them; if that many were not meant to go, lengthen the retention or hold their days now".to_owned());
        }
        candidates
    }
}
