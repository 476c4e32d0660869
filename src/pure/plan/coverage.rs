//! Which instants the attached partitions hold together.

use chrono::{DateTime, TimeDelta, Utc};

use crate::pure::{Attachment, Bounds, Day, FoundRelation, Span};

/// The spans of the attached partitions, joined where they touch, oldest first.
pub(super) struct Coverage(Vec<Span>);

impl Coverage {
    pub(super) fn of(relations: &[FoundRelation]) -> Self {
        let mut spans: Vec<Span> = relations
            .iter()
            .filter(|relation| relation.attachment == Attachment::Attached)
            .filter_map(|relation| relation.bounds.as_ref().and_then(Bounds::span))
            .collect();
        // None, unbounded below, comes first.
        spans.sort_by_key(|span| span.from);
        let mut joined: Vec<Span> = Vec::new();
        for span in spans {
            match joined.last_mut() {
                Some(last) if last.to.is_none_or(|to| span.from.is_none_or(|from| from <= to)) => {
                    // Unbounded above, when one of the two is.
                    last.to = last.to.zip(span.to).map(|(one, other)| one.max(other));
                }
                _ => joined.push(span),
            }
        }
        Self(joined)
    }

    /// Whether every instant of the day is held, by one partition or by several.
    pub(super) fn covers(&self, day: Day) -> bool {
        self.0.iter().any(|span| span.covers(day))
    }

    /// The time from `now` to the first instant that is not held; none when the partitions never end.
    pub(super) fn runway(&self, now: DateTime<Utc>) -> Option<TimeDelta> {
        match self.0.iter().find(|span| span.contains(now)) {
            Some(span) => Some(span.to? - now),
            None => Some(TimeDelta::zero()),
        }
    }
}
