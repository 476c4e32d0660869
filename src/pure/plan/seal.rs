//! Which days take no row any more.

use super::{Action, Planner, Step, distrust};
use crate::pure::{Attachment, Day, FoundRelation, Ownership, Routing, show_duration};

impl Planner<'_> {
    /// Point 14.
    pub(super) fn seal(&mut self) {
        let Some(tolerance) = self.found.sealing else { return };
        let is_safe = self.policy.seal_days
            && self.policy.routing == Routing::ProcessedAt
            && self.found.has_functions
            && self.found.ownership == Ownership::Ours
            && distrust(self.now, self.policy, self.found.clocks).is_none();
        if !is_safe {
            return;
        }
        // Also what this run attaches: it comes first.
        let comes_back = |relation: &FoundRelation| {
            self.steps
                .iter()
                .any(|step| step.action == Action::Attach && step.oid == Some(relation.oid))
        };
        let mut over: Vec<(Day, &FoundRelation)> = self
            .found
            .relations
            .iter()
            .filter(|relation| relation.attachment == Attachment::Attached || comes_back(relation))
            .filter_map(|relation| Some((relation.day()?, relation)))
            .filter(|(day, _)| *day < self.today && !self.is_expired(*day))
            .collect();
        over.sort_by_key(|(day, relation)| (*day, relation.oid));
        for (day, relation) in over {
            if relation.is_sealed {
                continue;
            }
            let ended_ago = self.now - day.end();
            // A claim on an older day would not look into a younger one: no day is sealed before those that are older.
            if ended_ago <= tolerance || relation.is_subscribed || !self.is_ours(relation, day) {
                return;
            }
            let reason = format!("its day ended {} ago", show_duration(ended_ago));
            self.steps.push(Step::on(self.found, relation, Action::Seal, reason));
        }
    }
}
