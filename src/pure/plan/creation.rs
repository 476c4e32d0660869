//! Which days are missing, and what keeps one from being made.

use super::{Finding, FindingCode, Planner, Severity, Step, attached, examine::kind_name};
use crate::pure::{Attachment, Bounds, Day, FoundRelation, Routing, Span};

impl Planner<'_> {
    /// Points 3 and 4.
    pub(super) fn create(&mut self) {
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
        let mut gaps: Vec<Gap> = Vec::new();
        for offset in 1..=oldest.days_until(self.today) {
            let day = self.today.plus(-offset);
            if self.coverage.covers(day) {
                continue;
            }
            let never_made = !self.found.made.contains(&day);
            if never_made && self.policy.routing == Routing::MessageId {
                let reason = "messages created on this day can still be delivered, and it never had a partition";
                self.create_missing(day, reason.to_owned());
                continue;
            }
            match gaps.last_mut() {
                Some(gap) if gap.first == day.next() && gap.never_made == never_made => gap.first = day,
                _ => gaps.push(Gap {
                    first: day,
                    last: day,
                    never_made,
                }),
            }
        }
        for gap in gaps {
            self.report_gap(gap);
        }
    }

    fn create_missing(&mut self, day: Day, reason: String) {
        if self.coverage.covers(day) || self.is_held_by_pending(day) {
            return;
        }
        let name = self.found.table.partition(day);
        let wanted = Span::of(day);
        let overlaps = |relation: &&FoundRelation| {
            let span = relation.bounds.as_ref().and_then(Bounds::span);
            span.is_some_and(|span| span.overlaps(&wanted))
        };
        let schema = self.found.table.schema();
        if let Some(taken) = self
            .found
            .relations
            .iter()
            .find(|relation| relation.name == name && relation.schema == *schema)
        {
            if self.will_attach(taken) {
                return;
            }
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
        // Only the step's record tells of it afterwards: the new partition hides that there was another.
        let reason = match self.found.made.contains(&day) {
            true => format!("{reason}; the one it had is gone, and with it the memory of its claims"),
            false => reason,
        };
        self.steps.push(Step::create(self.found, day, reason));
    }

    /// Whether no partition, attached or pending, holds any of the day.
    pub(super) fn is_free(&self, day: Day) -> bool {
        let day = Span::of(day);
        !self.found.relations.iter().any(|relation| {
            relation
                .bounds
                .as_ref()
                .and_then(Bounds::span)
                .is_some_and(|span| span.overlaps(&day))
        })
    }

    /// Whether an interrupted detach still occupies the day, which is then reported.
    fn is_held_by_pending(&mut self, day: Day) -> bool {
        let held = self.found.relations.iter().find(|relation| {
            let span = relation.bounds.as_ref().and_then(Bounds::span);
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
        let to_be_attached = self
            .found
            .relations
            .iter()
            .filter(|relation| self.will_attach(relation));
        let known = attached(&self.found.relations)
            .chain(to_be_attached)
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

    fn report_gap(
        &mut self,
        Gap {
            first,
            last,
            never_made,
        }: Gap,
    ) {
        let days = if first == last {
            first.to_string()
        } else {
            format!("{first} to {last}")
        };
        let (severity, message, remedy) = if never_made {
            let message = format!("{days}: no partition was ever made, and so no claim");
            (Severity::Info, message, "nothing to do; it leaves with the retention")
        } else {
            let message = format!("{days}: the partition is gone, and with it the memory of its claims");
            (
                Severity::Warn,
                message,
                "if a copy exists, attach it again; else it leaves with the retention",
            )
        };
        let remedy = remedy.to_owned();
        self.findings.push(Finding {
            code: FindingCode::Gap,
            severity,
            relation: None,
            day: Some(first),
            message,
            remedy,
        });
    }
}

/// Past days in a row without a partition.
struct Gap {
    first: Day,
    last: Day,
    never_made: bool,
}
