//! Whether deliveries are taken: closed while the database is away or no message can pass, open again once one does.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::sync::watch;

use crate::claim::unit::sleep;

/// What a consumer is doing, for a readiness probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// It has not been run yet.
    Idle,
    /// It takes deliveries.
    Running,
    /// The database is away. Nothing is taken; what is in hand is held.
    DatabaseAway,
    /// No message can be claimed until somebody has acted: a day has no partition, a privilege is missing. The log says what.
    Paused,
    /// The broker is away.
    BrokerAway,
    /// It takes no more deliveries and finishes those in hand.
    Draining,
}

impl State {
    /// Whether it takes deliveries.
    #[must_use]
    pub fn is_ready(self) -> bool {
        self == Self::Running
    }
}

/// The gate, and whether the end has come.
#[derive(Debug)]
pub(super) struct Gate {
    state: watch::Sender<State>,
    /// Whether one of the deliveries in hand is trying whether things are well again. The others wait for it: a database that
    /// comes back is not met by all of them at once.
    is_probed: AtomicBool,
    is_broker_away: AtomicBool,
}

/// The right to try while the gate is closed. It opens when this is dropped.
#[derive(Debug)]
pub(super) struct Probe<'g>(&'g Gate);

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            state: watch::Sender::new(State::Idle),
            is_probed: AtomicBool::new(false),
            is_broker_away: AtomicBool::new(false),
        }
    }

    pub(super) fn state(&self) -> State {
        *self.state.borrow()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Enters a state, unless it is draining, which ends with the run.
    fn enter(&self, state: State) {
        self.state.send_if_modified(|now| {
            let changes = *now != state && *now != State::Draining;
            if changes {
                *now = state;
            }
            changes
        });
    }

    /// Whether the broker is away. It does not close the gate, and what keeps it closed is said first.
    pub(super) fn set_broker_away(&self, is_away: bool) {
        self.is_broker_away.store(is_away, Ordering::SeqCst);
        if self.is_open() {
            self.enter(self.state_when_open());
        }
    }

    fn state_when_open(&self) -> State {
        match self.is_broker_away.load(Ordering::SeqCst) {
            true => State::BrokerAway,
            false => State::Running,
        }
    }

    /// A run begins, or ends.
    pub(super) fn reset(&self, state: State) {
        self.is_broker_away.store(false, Ordering::SeqCst);
        self.state.send_replace(state);
    }

    /// Closes it; whoever closes it first tries on.
    pub(super) fn close(&self, state: State) -> Option<Probe<'_>> {
        let first = !self.is_probed.swap(true, Ordering::SeqCst);
        if first {
            self.enter(state);
        }
        first.then(|| Probe(self))
    }

    pub(super) fn is_open(&self) -> bool {
        !self.is_probed.load(Ordering::SeqCst)
    }

    /// Returns once it is open; false when the end has come.
    pub(super) async fn wait_open(&self) -> bool {
        let mut state = self.state.subscribe();
        let settled = state
            .wait_for(|state| *state == State::Draining || self.is_open())
            .await;
        // It fails only once the sender is gone, which is ours.
        settled.is_ok_and(|state| *state != State::Draining)
    }

    /// Waits so long; false, at once, when the end has come.
    pub(super) async fn pause(&self, pause: Duration) -> bool {
        let mut state = self.state.subscribe();
        tokio::select! {
            biased;
            _ = state.wait_for(|state| *state == State::Draining) => false,
            () = sleep(pause) => true,
        }
    }
}

impl Probe<'_> {
    /// The reason has changed.
    pub(super) fn enter(&self, state: State) {
        self.0.enter(state);
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        self.0.is_probed.store(false, Ordering::SeqCst);
        self.0.enter(self.0.state_when_open());
    }
}

/// A pause that doubles from `first` to `longest`, and is never the same for two.
pub(super) fn backoff(first: Duration, longest: Duration, attempt: u32) -> Duration {
    let ceiling = first.saturating_mul(1 << attempt.min(16)).min(longest);
    let ceiling_micros = u64::try_from(ceiling.as_micros()).unwrap_or(u64::MAX).max(2);
    let jitter = RandomState::new().hash_one(attempt) % (ceiling_micros / 2);
    Duration::from_micros(ceiling_micros / 2 + jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_grows_to_its_bound_and_differs() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(10));
        for attempt in [0, 1, 5, 40, u32::MAX] {
            let ceiling = first.saturating_mul(1 << attempt.min(16)).min(longest);
            let pauses: std::collections::HashSet<_> = (0..50).map(|_| backoff(first, longest, attempt)).collect();
            assert!(pauses.len() > 40);
            assert!(pauses.iter().all(|pause| *pause >= ceiling / 2 && *pause <= ceiling));
        }
    }

    #[test]
    fn one_tries_while_the_gate_is_closed_and_it_opens_behind_it() {
        let gate = Gate::new();
        let probe = gate.close(State::DatabaseAway).unwrap();
        assert!(gate.close(State::Paused).is_none() && !gate.is_open());
        assert_eq!(gate.state(), State::DatabaseAway);
        drop(probe);
        assert!(gate.is_open() && gate.state().is_ready());
    }

    #[test]
    fn a_broker_that_is_away_is_said_once_the_database_is_back() {
        let gate = Gate::new();
        let probe = gate.close(State::DatabaseAway);
        gate.set_broker_away(true);
        assert_eq!(gate.state(), State::DatabaseAway);
        drop(probe);
        assert_eq!(gate.state(), State::BrokerAway);
        gate.set_broker_away(false);
        assert!(gate.state().is_ready());
    }
}
