//! What a worker and the schedule leave for HTTP to tell.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::super::cron::Schedule;

/// How late a pass may be before the service counts as not ready.
pub(super) const PASS_MAY_BE_LATE_BY: chrono::TimeDelta = chrono::TimeDelta::minutes(5);
/// How long the schedule's heart, which beats every half minute, may be silent.
const HEART_MAY_BE_SILENT_FOR: Duration = Duration::from_secs(180);

/// What the last pass left, for `/readyz`.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkerState {
    /// When the last pass ended, by the host's clock, whatever came of it.
    pub(super) last_pass_at: Option<DateTime<Utc>>,
    /// Why the last pass failed as a whole, in our words.
    pub(super) error: Option<String>,
    /// What is wrong with an inbox after the last pass.
    pub(super) not_ready: Vec<String>,
    /// Whether the server was a standby.
    pub(super) standby: bool,
    /// Whether the schedule was paused.
    pub(super) paused: bool,
    /// Whether what must be there has been made, or why not is known: from then on what is missing is worth telling.
    pub(super) has_begun: bool,
    /// What the last pass failed with, whole, as the log has it.
    pub(super) logged: Option<String>,
    /// The run in hand.
    pub(super) going: Option<Uuid>,
    /// When it last showed that it makes progress.
    pub(super) pulse: Option<Instant>,
}

/// What a worker and HTTP share.
#[derive(Debug, Clone, Default)]
pub(in crate::service) struct Shared(Arc<Mutex<WorkerState>>);

impl Shared {
    /// The run that this worker has in hand.
    pub(in crate::service) fn going(&self) -> Option<Uuid> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).going
    }

    /// The pass in hand makes progress.
    pub(in crate::service) fn beat(&self) {
        self.update(|state| state.pulse = Some(Instant::now()));
    }

    /// How long the pass in hand has shown no progress; none where there is no pass in hand.
    pub(in crate::service) fn pass_is_silent_for(&self) -> Option<Duration> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(state.pulse?.elapsed())
    }

    /// Sets the last sign of life back, where the machine has run for that long.
    #[cfg(test)]
    pub(in crate::service) fn was_silent_since(&self, ago: Duration) -> bool {
        let long_ago = Instant::now().checked_sub(ago);
        self.update(|state| state.pulse = long_ago);
        long_ago.is_some()
    }

    /// Whether its health is worth telling.
    pub(in crate::service) fn has_begun(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).has_begun
    }

    /// Whether a failure is another than the last, and so worth a line of the log.
    pub(super) fn is_news(&self, failure: &str) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = state.logged.as_deref() != Some(failure);
        state.logged = Some(failure.to_owned());
        is_news
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut WorkerState)) {
        // A panic cannot leave the state half-written: each change is a few assignments.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn was_standby(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).standby
    }

    pub(super) fn was_paused(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).paused
    }

    /// Why a database's inboxes are not known to be kept; empty when they are.
    pub(in crate::service) fn why_not_ready(&self, schedule: &Schedule, now: DateTime<Utc>) -> Vec<String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(last) = state.last_pass_at else {
            return vec!["no pass has ended since the start".to_owned()];
        };
        let mut why = Vec::new();
        why.extend(state.error);
        if state.standby {
            why.push("the server is a standby".to_owned());
        }
        why.extend(state.not_ready);
        if schedule
            .next(last, 1)
            .first()
            .is_some_and(|due| *due + PASS_MAY_BE_LATE_BY < now)
        {
            why.push(format!("no pass has ended since {}", last.to_rfc3339()));
        }
        why
    }
}

/// The heartbeat of the schedule: the scheduler's task lives as long as it beats. What is configured proves nothing.
#[derive(Debug, Clone)]
pub(in crate::service) struct Heart(Arc<Mutex<Instant>>);

impl Heart {
    pub(in crate::service) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(in crate::service) fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How long ago it beat.
    pub(in crate::service) fn silent_for(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Why the schedule is not alive, if it is not.
    pub(in crate::service) fn why_not_alive(&self) -> Option<String> {
        let silent_for = self.silent_for();
        (silent_for > HEART_MAY_BE_SILENT_FOR).then(|| {
            format!(
                "the schedule has been dead for {} s; restart the service",
                silent_for.as_secs()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_a_schedule_whose_heart_is_silent_is_told_whatever_is_configured() {
        let heart = Heart::new();
        assert_eq!(heart.why_not_alive(), None);
        let Some(long_ago) = Instant::now().checked_sub(HEART_MAY_BE_SILENT_FOR + Duration::from_secs(1)) else {
            return; // A machine that has just started has no such instant.
        };
        *heart.0.lock().unwrap() = long_ago;
        assert!(heart.why_not_alive().unwrap().contains("dead for 181 s"));
        heart.beat();
        assert_eq!(heart.why_not_alive(), None);
    }

    #[test]
    fn s4_a_pass_that_is_overdue_is_told_by_its_age() {
        let shared = Shared::default();
        let schedule: Schedule = "*/10 * * * *".parse().unwrap();
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        assert_eq!(
            shared.why_not_ready(&schedule, at("2026-12-01T00:00:00Z")),
            ["no pass has ended since the start"]
        );
        shared.update(|state| state.last_pass_at = Some(at("2026-12-01T00:00:05Z")));
        assert!(shared.why_not_ready(&schedule, at("2026-12-01T00:15:00Z")).is_empty());
        assert_eq!(
            shared.why_not_ready(&schedule, at("2026-12-01T00:15:01Z")),
            ["no pass has ended since 2026-12-01T00:00:05+00:00"]
        );
    }
}
