//! How far one partition is settled without a gap. Pure: it knows no broker, no time and no message.

use std::collections::BTreeMap;

/// What was taken of a partition, from the first offset that is not settled on.
///
/// A committed offset says that everything before it is settled, so what is settled out of order waits for what lies before
/// it. The offsets of a partition may have gaps of their own (compaction, transactions): only what was taken counts.
#[derive(Debug, Default)]
pub(super) struct Watermark {
    /// Whether each is settled. The first never is.
    taken: BTreeMap<i64, bool>,
    /// Behind the highest that was ever taken.
    end: Option<i64>,
    /// The first that was taken: there the group stands already.
    began: Option<i64>,
}

impl Watermark {
    /// A message was taken.
    pub(super) fn take(&mut self, offset: i64) {
        self.began.get_or_insert(offset);
        self.end = self.end.max(offset.checked_add(1));
        self.taken.insert(offset, false);
    }

    /// Nothing is to be done about a message any more. False when it was not taken, or is settled already.
    pub(super) fn settle(&mut self, offset: i64) -> bool {
        let Some(settled @ false) = self.taken.get_mut(&offset) else {
            return false;
        };
        *settled = true;
        while let Some(first) = self.taken.first_entry().filter(|first| *first.get()) {
            first.remove();
        }
        true
    }

    /// How many messages would be delivered again if this ended now.
    pub(super) fn lag(&self) -> usize {
        self.taken.len()
    }

    /// Where to go on from: everything that was taken before it is settled. None while that is nothing.
    pub(super) fn position(&self) -> Option<i64> {
        let first_open = self.taken.first_key_value().map(|(offset, _)| *offset);
        first_open.or(self.end).filter(|position| Some(*position) != self.began)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    fn taken(offsets: impl IntoIterator<Item = i64>) -> Watermark {
        let mut watermark = Watermark::default();
        for offset in offsets {
            watermark.take(offset);
        }
        watermark
    }

    #[test]
    fn m3_the_position_never_passes_a_gap() {
        let mut watermark = taken([4, 5, 6, 9]);
        assert_eq!((watermark.position(), watermark.lag()), (None, 4));
        for (settled, counts, position, lag) in [
            (5, true, None, 4),
            (9, true, None, 4),
            (3, false, None, 4),
            (4, true, Some(6), 2),
            (6, true, Some(10), 0),
            (6, false, Some(10), 0),
        ] {
            assert_eq!(watermark.settle(settled), counts, "{settled}");
            assert_eq!(
                (watermark.position(), watermark.lag()),
                (position, lag),
                "after {settled}"
            );
        }
        watermark.take(12);
        assert_eq!((watermark.position(), watermark.lag()), (Some(12), 1));
    }

    proptest! {
        /// Against the definition: all that was taken before the position is settled, and what is at the position is not.
        #[test]
        fn m3_the_position_is_where_a_naive_look_finds_it(
            offsets in btree_set(0i64..200, 1..60),
            order in any::<Vec<prop::sample::Index>>(),
        ) {
            let offsets: Vec<i64> = offsets.into_iter().collect();
            let mut watermark = taken(offsets.iter().copied());
            let mut open: BTreeSet<i64> = offsets.iter().copied().collect();
            let mut before = offsets[0];
            for index in order {
                let offset = *index.get(&offsets);
                prop_assert_eq!(watermark.settle(offset), open.remove(&offset));
                let position = open.first().copied().unwrap_or(offsets[offsets.len() - 1] + 1);
                prop_assert_eq!(watermark.position().unwrap_or(offsets[0]), position);
                prop_assert!(position >= before, "it went back");
                before = position;
                prop_assert_eq!(watermark.lag(), offsets.iter().filter(|offset| **offset >= position).count());
            }
        }
    }
}
