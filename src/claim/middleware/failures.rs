//! How often the work of each message has failed here. The broker's count holds for all consumers and over their restarts,
//! but not every broker has one.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::claim::MessageId;

/// How many messages are remembered: a bound for the case that nothing succeeds any more, at about half a megabyte.
const REMEMBERED: usize = 10_000;

/// The failures of the messages that have neither succeeded nor been given up.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<MessageId, u32>>);

impl Failures {
    /// Counts a failure; how many there are now.
    pub(super) fn count(&self, id: MessageId) -> u32 {
        let mut counts = self.counts();
        if counts.len() >= REMEMBERED && !counts.contains_key(&id) {
            // Any of them: it is tried a few times more, no worse.
            let forgotten = counts.keys().next().copied();
            forgotten.map(|id| counts.remove(&id));
        }
        let count = counts.entry(id).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// Whether it has failed since it last succeeded.
    pub(super) fn has(&self, id: MessageId) -> bool {
        self.counts().contains_key(&id)
    }

    /// It has succeeded, or was given up.
    pub(super) fn forget(&self, id: MessageId) {
        self.counts().remove(&id);
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<MessageId, u32>> {
        // Each change is one call, so a panic leaves nothing half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(nth: usize) -> MessageId {
        MessageId::from_name(nth.to_string()).unwrap()
    }

    #[test]
    fn failures_of_one_message_add_up_until_it_is_forgotten() {
        let failures = Failures::default();
        assert_eq!(
            (failures.count(id(1)), failures.count(id(2)), failures.count(id(1))),
            (1, 1, 2)
        );
        failures.forget(id(1));
        assert_eq!((failures.count(id(1)), failures.count(id(2))), (1, 2));
    }

    #[test]
    fn no_more_than_a_bound_is_remembered_and_the_newest_always_is() {
        let failures = Failures::default();
        for nth in 0..REMEMBERED + 5 {
            failures.count(id(nth));
        }
        assert_eq!(failures.counts().len(), REMEMBERED);
        assert_eq!(failures.count(id(REMEMBERED + 4)), 2);
    }
}
