//! The plan: what one run would do to one inbox, and why. A pure function of what was found.

mod coverage;
mod creation;
mod digest;
mod drain;
mod examine;
mod finding;
mod removal;
mod repair;
mod seal;
mod step;
#[cfg(test)]
pub(super) mod tests;

use chrono::{DateTime, TimeDelta, Utc};

use self::coverage::Coverage;
pub(crate) use self::{digest::digest_scope, removal::distrust};
#[cfg(feature = "maintain")]
pub(crate) use self::{
    digest::{DigestScope, Leaf},
    drain::{DrainScope, drain_scope},
};
pub use self::{
    finding::{Finding, FindingCode, Severity},
    step::{Action, Lock, Step},
};
use super::{Attachment, Day, Found, FoundInbox, FoundRelation, Ownership, Policy, Removals, Retention, show_duration};

/// How often one run plans and applies. A finalized detach shows only then what is to become of its table, and a drained
/// default partition what it kept from being done: the run looks once more, and after nothing else, for the caps are a run's.
pub(crate) const ROUNDS: usize = 2;

/// What a run would do to one inbox, with the findings that a person should see.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Plan {
    /// The database's clock when the catalog was read.
    pub now: DateTime<Utc>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// What was noticed.
    pub findings: Vec<Finding>,
    /// The retention that rules: the longest of what is configured here, by live replicas, and in the claim functions.
    pub retention: Retention,
    /// Seconds until the first claim would fail for want of a partition; none when the partitions never end.
    pub runway_seconds: Option<i64>,
    /// All that is due to be removed, were there no cap; empty while something else blocks it.
    #[serde(skip)]
    pub due: Removals,
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
/// 1. An inbox that is missing, does not fit, is only being adopted, or belongs to another deployment is left alone altogether.
/// 2. A detach that was interrupted is finalized first: nothing else can be detached before. A partition that was attached
///    again by hand has its detach taken off the record.
/// 3. Today and each of `ahead` days after it must be held by partitions. What is missing is created, today first.
///    Ahead counts from the database's clock, never from the newest row. A name that is taken, or bounds that overlap,
///    are reported, and the other days go on.
/// 4. In `message_id` routing the days back to the retention's horizon must exist too, and are created oldest last,
///    but only where no partition of that day was ever made: an emptied day would accept its messages a second time.
/// 5. A partition expires when its whole day is older than `now - retention`, of the configured retention and that of the
///    claim functions the longer. Oldest first, it is detached if *all* of these hold: it is a plain table; its bounds are
///    exactly one UTC day; that day lies before today; its name is that day's, in the inbox's schema; its marker does not
///    contradict; the day is not on hold; the clock is trusted; the server is the one that the inbox was made on; no
///    default partition stands in the way; the run's cap is not used up, or a person has confirmed this very day.
/// 6. A detached partition of ours (by its marker, never by its name alone; a name that says otherwise is a
///    contradiction) that has expired, and whose time of detach is unknown or still to come (the clock has stepped back),
///    gets it recorded now, so that its grace begins. One whose grace is over is dropped under the same conditions, with a cap of its own.
/// 7. The clock is trusted unless it differs from the host's by more than `max_clock_skew`, or has come further than
///    `max_clock_leap` past the highest time that earlier runs trusted. An untrusted clock creates, and removes nothing.
/// 8. A partition is put right where no claim waits for it: marker, key (made again concurrently), privileges, storage
///    parameters; owner and replica identity only on days that no claim uses yet. Everything else is reported.
/// 9. One of ours that was detached by hand, is remembered, has its key and is not on record as detached, is attached again.
/// 10. What has expired is dropped, or kept, or moved to the archive's schema, as the policy says.
/// 11. Nothing from today on is ever removed, and nothing that is not of points 5 and 6 is ever touched: it is reported.
/// 12. While live replicas of the deployment are configured differently, the longer retention and the larger ahead rule.
/// 13. A default partition is drained where the policy says so, under the conditions of a removal (clock and server): what is
///     no longer remembered goes with it. Drained, it is dropped after the grace, or stays where what has expired is kept.
///     What a drain left unfinished is dropped once there is nothing to drain.
/// 14. Where the policy says so, a day that is over takes no row any more once its end is further back than claims allow the
///     server's clock to step: oldest first, none before an older one, under the conditions of a removal (clock and server),
///     and only where the claim functions can deal with it and no subscription brings late rows.
///
/// 15. Where the policy says so and the claim functions ask it, a digest is made each day of all sealed days up to yesterday
///     that follow each other without a gap, in the table of today; the table of tomorrow is emptied. Under the same conditions.
///
/// Planning again at the same instant never repeats a step that was applied; it gives none at all, unless a cap was used
/// up, a detach was finalized (its grace must begin), a default partition was drained, or the grace is zero.
#[must_use]
pub fn plan(now: DateTime<Utc>, policy: &Policy, found: &Found) -> Plan {
    let own = policy;
    let policy = &agreed(policy, found);
    let mut planner = Planner::new(now, policy, found);
    planner.was_overruled = (own.retention, own.ahead) != (policy.retention, policy.ahead);
    let runway = match found.inbox {
        FoundInbox::BeingAdopted { until } => until.map(|until| (until - now).max(TimeDelta::zero())),
        _ => planner.coverage.runway(now),
    };
    if planner.may_manage() {
        planner.examine();
        planner.finalize();
        planner.drain();
        planner.create();
        planner.attach_what_was_detached_by_hand();
        planner.repair();
        planner.seal();
        planner.digest();
        planner.remove();
        planner.drop_what_drains_left();
        planner.judge_runway(runway);
    }
    let retention = planner.retention();
    let Planner {
        steps, findings, due, ..
    } = planner;
    Plan {
        now,
        steps,
        findings,
        retention,
        runway_seconds: runway.map(|runway| runway.num_seconds()),
        due,
    }
}

/// Point 12: while live replicas disagree, as in a rolling upgrade, the longer retention and the larger ahead rule.
fn agreed(policy: &Policy, found: &Found) -> Policy {
    let mut agreed = policy.clone();
    for replica in &found.replicas {
        agreed.retention = agreed.retention.longer(replica.retention);
        agreed.ahead = agreed.ahead.max(replica.ahead);
    }
    agreed
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
    /// Whether another replica's configuration rules.
    was_overruled: bool,
    found: &'a Found,
    coverage: Coverage,
    steps: Vec<Step>,
    findings: Vec<Finding>,
    due: Removals,
}

impl<'a> Planner<'a> {
    fn new(now: DateTime<Utc>, policy: &'a Policy, found: &'a Found) -> Self {
        Self {
            now,
            today: Day::containing(now),
            policy,
            was_overruled: false,
            found,
            coverage: Coverage::of(&found.relations),
            steps: Vec::new(),
            findings: Vec::new(),
            due: Removals::default(),
        }
    }
}

impl Planner<'_> {
    /// Point 1.
    fn may_manage(&mut self) -> bool {
        if let Ownership::OtherDeployment(name) = &self.found.ownership {
            self.report(
                FindingCode::OtherDeployment,
                Severity::Fail,
                format!("the inbox belongs to deployment {name:?}"),
                "if that one is gone for good, run `inboxd takeover`; else stop one of the two".to_owned(),
            );
            return false;
        }
        match &self.found.inbox {
            FoundInbox::Fit { .. } => true,
            FoundInbox::BeingAdopted { until } => {
                self.report_adoption(*until);
                false
            }
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

    /// Loud in the last twelve hours, for at the deadline every insert fails.
    fn report_adoption(&mut self, until: Option<DateTime<Utc>>) {
        let table = &self.found.table;
        let (severity, message) = match until {
            None => (
                Severity::Warn,
                format!("table {table} is not partitioned yet: its adoption was begun and not ended"),
            ),
            Some(until) => {
                let left = until - self.now;
                let at = until.format("%Y-%m-%d %H:%M UTC");
                if left <= TimeDelta::zero() {
                    let message = format!("its adoption was not ended by {at}: every insert into {table} fails");
                    (Severity::Fail, message)
                } else {
                    let left_for_people = show_duration(left);
                    let message = format!(
                        "its adoption must end by {at}, in {left_for_people}: from then on every insert into {table} fails"
                    );
                    let is_close = left < TimeDelta::hours(12);
                    (if is_close { Severity::Fail } else { Severity::Warn }, message)
                }
            }
        };
        let remedy = "end it with `inboxd adopt`, or take it back with `inboxd adopt --abort`".to_owned();
        self.report(FindingCode::Adoption, severity, message, remedy);
    }

    /// Point 2, and what a person attached again.
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
        for relation in attached(&self.found.relations).filter(|relation| relation.detached_at.is_some()) {
            let Some(day) = relation.day() else { continue };
            let is_ours = relation
                .marker
                .as_ref()
                .is_none_or(|marker| marker.inbox == self.found.inbox_id && marker.day == day);
            if is_ours {
                let reason =
                    "it was attached again: its detach goes off the record, so that a later one has its whole grace";
                self.steps
                    .push(Step::on(self.found, relation, Action::MarkAttached, reason.to_owned()));
            }
        }
    }

    fn retention(&self) -> Retention {
        self.found.claim_retention.map_or(self.policy.retention, |made_with| {
            self.policy.retention.longer(made_with)
        })
    }
}
