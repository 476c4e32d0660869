//! What becomes of a default partition that somebody else made, and of what a drain leaves.

use super::{Action, FindingCode, Planner, Severity, Step, attached, removal::distrust};
use crate::pure::{Attachment, Bounds, FoundRelation, LeftByDrain, OnExpiry, Ownership, RelationKind, show_duration};
#[cfg(feature = "maintain")]
use crate::pure::{Day, Found, Policy};

impl Planner<'_> {
    /// Point 13, before anything is created beside it.
    pub(super) fn drain(&mut self) {
        let default = attached(&self.found.relations)
            .find(|relation| relation.bounds == Some(Bounds::Default) && relation.kind == RelationKind::Table);
        if let Some(relation) = default
            && self.policy.drain_default
            && self.may_let_go()
        {
            let reason = "it hides missing days and prevents every concurrent detach";
            self.steps
                .push(Step::on(self.found, relation, Action::Drain, reason.to_owned()));
        }
    }

    /// Its rows that are not remembered any more go with it.
    fn may_let_go(&self) -> bool {
        self.found.ownership == Ownership::Ours && distrust(self.now, self.policy, self.found.clocks).is_none()
    }

    /// The rest of point 13.
    pub(super) fn drop_what_drains_left(&mut self) {
        let is_drained_now = self.steps.iter().any(|step| step.action == Action::Drain);
        let found = self.found;
        for relation in &found.relations {
            let ours = relation
                .left_by_drain
                .as_ref()
                .filter(|left| left.inbox() == found.inbox_id && relation.attachment == Attachment::Loose);
            match ours {
                Some(LeftByDrain::Copies { .. }) if !is_drained_now && self.may_let_go() => {
                    let reason = "a drain that was not finished left it; it holds copies only";
                    self.steps
                        .push(Step::on(found, relation, Action::DropDrained, reason.to_owned()));
                }
                Some(LeftByDrain::Drained { at, .. }) => self.drop_drained(relation, *at),
                Some(LeftByDrain::Copies { .. }) | None => {}
            }
        }
    }

    fn drop_drained(&mut self, relation: &FoundRelation, at: chrono::DateTime<chrono::Utc>) {
        if relation.kind != RelationKind::Table {
            return;
        }
        let grace = show_duration(self.policy.drop_grace);
        if self.policy.on_expiry == OnExpiry::Drop && self.grace_is_over(at) && self.may_let_go() {
            let reason = format!("it was drained, and out of the inbox for longer than the grace of {grace}");
            self.steps
                .push(Step::on(self.found, relation, Action::DropDrained, reason));
            return;
        }
        let remedy = match self.policy.on_expiry {
            OnExpiry::Drop => format!("nothing to do; it is dropped after the grace of {grace}"),
            OnExpiry::Keep { .. } => "nothing to do; drop it when you need it no more".to_owned(),
        };
        self.report_on(
            relation,
            FindingCode::DefaultPartition,
            Severity::Info,
            "it was the default partition, and is drained: what it held is in the partitions of its days".to_owned(),
            remedy,
        );
    }
}

/// Which rows of a default partition are remembered, and which days claims must find without it.
#[cfg(feature = "maintain")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DrainScope {
    /// The first day that is remembered; none where nothing is ever forgotten.
    pub(crate) first: Option<Day>,
    /// The last day that must exist.
    pub(crate) last: Day,
    /// Older days on hold.
    pub(crate) held: Vec<Day>,
    /// The days that have no partition and need one, rows or not.
    pub(crate) needed: Vec<Day>,
}

/// The scope of a drain, of the same policy that the plan follows.
#[cfg(feature = "maintain")]
pub(crate) fn drain_scope(now: chrono::DateTime<chrono::Utc>, policy: &Policy, found: &Found) -> DrainScope {
    let policy = &super::agreed(policy, found);
    let mut planner = Planner::new(now, policy, found);
    planner.create();
    let needed = planner.steps.iter().filter_map(|step| step.day).collect();
    let first = planner.retention().horizon(now).map(Day::containing);
    DrainScope {
        first,
        last: planner.today.plus(policy.ahead.days()),
        held: found
            .held
            .keys()
            .copied()
            .filter(|day| first.is_some_and(|first| *day < first))
            .collect(),
        needed,
    }
}
