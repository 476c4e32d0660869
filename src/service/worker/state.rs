//! What a worker and the schedule leave for HTTP to tell.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{super::cron::Schedule, Ended, Session};

/// How late a pass may be before the service counts as not ready.
pub(super) const PASS_MAY_BE_LATE_BY: chrono::TimeDelta = chrono::TimeDelta::minutes(5);
/// Beside the first pass of another replica days may be missing. One that has not made them in so long does not make them.
const ANOTHER_MAY_TAKE: Duration = Duration::from_secs(60);
/// How long the schedule's heart, which beats every half minute, may be silent.
const HEART_MAY_BE_SILENT_FOR: Duration = Duration::from_secs(180);

/// What the last pass left, for `/readyz`.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkerState {
    /// When the last pass ended, whatever came of it: by the host's clock, and by one that does not step.
    pub(super) last_pass_at: Option<(DateTime<Utc>, Instant)>,
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
    /// Since when each pass has met another's, if the last one has.
    pub(super) busy_since: Option<Instant>,
    /// What the last pass failed with, whole, as the log has it.
    pub(super) logged: Option<String>,
    /// The run in hand.
    pub(super) going: Option<Uuid>,
    /// What it shows of itself.
    pub(super) session: Option<Arc<Session>>,
}

impl WorkerState {
    /// A pass has ended like this, and this is what was missing after it. From when on that is told: see `has_begun`.
    pub(super) fn begins(&mut self, ended: &Ended, nothing_is_missing: bool, now: Instant) {
        self.busy_since = match ended {
            Ended::Busy { .. } => self.busy_since.or(Some(now)),
            _ => None,
        };
        self.has_begun |= match ended {
            Ended::Busy { .. } => {
                let since = self.busy_since.unwrap_or(now);
                nothing_is_missing || now.duration_since(since) >= ANOTHER_MAY_TAKE
            }
            // On a standby they are made by whoever keeps its primary.
            Ended::Standby => false,
            _ => true,
        };
    }
}

/// What a worker and HTTP share.
#[derive(Debug, Clone, Default)]
pub(in crate::service) struct Shared(Arc<Mutex<WorkerState>>);

impl Shared {
    /// The run that this worker has in hand.
    pub(in crate::service) fn going(&self) -> Option<Uuid> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).going
    }

    /// A pass is in hand.
    pub(in crate::service) fn has_in_hand(&self, session: Arc<Session>) {
        self.update(|state| state.session = Some(session));
    }

    /// How long the pass in hand has shown no progress; none where there is no pass in hand.
    pub(in crate::service) fn pass_is_silent_for(&self) -> Option<Duration> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(state.session.as_ref()?.silent_for())
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
        let Some((last, since)) = state.last_pass_at else {
            return vec!["no pass has ended since the start".to_owned()];
        };
        let mut why = Vec::new();
        why.extend(state.error);
        if state.standby {
            why.push("the server is a standby".to_owned());
        }
        why.extend(state.not_ready);
        if is_overdue(schedule, last, since.elapsed(), now) {
            why.push(format!("no pass has ended since {}", last.to_rfc3339()));
        }
        why
    }
}

/// Whether what happened last at an instant, so long ago by a clock that does not step, should have happened again. The host's
/// clock is asked too: it alone goes on while the machine is suspended.
pub(super) fn is_overdue(schedule: &Schedule, last: DateTime<Utc>, elapsed: Duration, now: DateTime<Utc>) -> bool {
    let Some(due) = schedule.next(last, 1).first().map(|due| *due + PASS_MAY_BE_LATE_BY) else {
        return false;
    };
    due < now.max(last + chrono::TimeDelta::from_std(elapsed).unwrap_or_default())
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
        shared.update(|state| state.last_pass_at = Some((at("2026-12-01T00:00:05Z"), Instant::now())));
        assert!(shared.why_not_ready(&schedule, at("2026-12-01T00:15:00Z")).is_empty());
        assert_eq!(
            shared.why_not_ready(&schedule, at("2026-12-01T00:15:01Z")),
            ["no pass has ended since 2026-12-01T00:00:05+00:00"]
        );
    }

    #[test]
    fn s15_a_clock_that_steps_back_hides_no_pass_that_is_overdue() {
        let schedule: Schedule = "*/10 * * * *".parse().unwrap();
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let last = at("2026-12-01T12:00:05Z");
        for now in ["2026-12-01T12:00:10Z", "2026-12-01T11:00:00Z", "2025-01-01T00:00:00Z"] {
            let is_overdue = |seconds| is_overdue(&schedule, last, Duration::from_secs(seconds), at(now));
            // To ten past, and five minutes.
            assert!(!is_overdue(895), "{now}");
            assert!(is_overdue(896), "{now}");
        }
        assert!(
            is_overdue(&schedule, last, Duration::ZERO, at("2026-12-01T12:15:01Z")),
            "suspended"
        );
    }

    #[test]
    fn what_is_missing_is_told_although_the_run_of_another_never_ends() {
        let (mut state, start) = (WorkerState::default(), Instant::now());
        let busy = Ended::Busy {
            holder: None,
            run: None,
        };
        for (second, has_begun) in [(0, false), (59, false), (60, true)] {
            state.begins(&busy, false, start + Duration::from_secs(second));
            assert_eq!(state.has_begun, has_begun, "{second}");
        }
        let mut state = WorkerState::default();
        state.begins(&busy, true, start);
        assert!(state.has_begun, "all is there");
        let mut state = WorkerState::default();
        state.begins(&busy, false, start);
        state.begins(&Ended::Standby, true, start + Duration::from_secs(50));
        state.begins(&busy, false, start + Duration::from_secs(70));
        assert!(!state.has_begun, "it is another's run by now");
    }
}
