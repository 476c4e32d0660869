//! What systemd is told: that the service is up, how it fares, that it is alive, and that it ends.
//!
//! *Ready* is said once HTTP is served and every database has its worker, not once a database has answered: one that is away
//! at boot is waited for, and a unit that waited with it would be killed at `TimeoutStartSec`. How it fares stands in the
//! status. The watchdog is fed only while all that keeps the inboxes makes progress: fed by a timer alone, it would say no
//! more than that the timer runs.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::{sync::watch, task::AbortHandle};
use tokio_util::sync::CancellationToken;

use super::{
    health::{Health, HealthStatus},
    worker::{Heart, Shared},
};
use crate::postgres::{Timeouts, ddl::LONGEST_BUILD};

/// A worker asks whether to stop before each step and after each try of one. Between two of these lie at most so many
/// statements: a partition is made in some ten, which the guard of the pass ends in time.
const MOST_STATEMENTS: u32 = 20;
/// What a statement may be late by before the guard has ended it.
const SLACK: Duration = Duration::from_secs(15);

/// What is watched over, for systemd.
#[derive(Debug)]
pub(super) struct Systemd {
    pub(super) tasks: Vec<AbortHandle>,
    /// What each worker shows of itself, by its database.
    pub(super) workers: Vec<(String, Shared)>,
    pub(super) heart: Heart,
    pub(super) timeouts: Timeouts,
    /// How all fares, in a sentence.
    pub(super) said: watch::Receiver<String>,
    pub(super) shutdown: CancellationToken,
}

impl Systemd {
    /// Whether there is anybody to tell.
    pub(super) fn is_there() -> bool {
        std::env::var_os("NOTIFY_SOCKET").is_some()
    }

    /// Tells it until the shutdown, and that it has come.
    pub(super) async fn tell(mut self) {
        let said = self.said.borrow_and_update().clone();
        send(&[NotifyState::Ready, NotifyState::Status(&said)]);
        let watchdog = sd_notify::watchdog_enabled();
        // Three chances in its time.
        let mut tick = tokio::time::interval(watchdog.map_or(Duration::from_secs(60), |limit| limit / 3));
        let (mut was_wedged, mut is_said) = (false, true);
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => break,
                changed = self.said.changed(), if is_said => {
                    // Else its task has ended, which the next tick sees.
                    is_said = changed.is_ok();
                    let said = self.said.borrow_and_update().clone();
                    if is_said && !was_wedged {
                        send(&[NotifyState::Status(&said)]);
                    }
                }
                _ = tick.tick() => {
                    let wedged = self.wedged();
                    match &wedged {
                        None if watchdog.is_some() => send(&[NotifyState::Watchdog]),
                        Some(why) if !was_wedged => {
                            tracing::error!("{why}; systemd's watchdog is not fed any more");
                            send(&[NotifyState::Status(why)]);
                        }
                        None | Some(_) => {}
                    }
                    was_wedged = wedged.is_some();
                }
            }
        }
        send(&[
            NotifyState::Stopping,
            NotifyState::Status("ending after the step in hand"),
        ]);
    }

    /// What makes no progress any more, if anything.
    fn wedged(&self) -> Option<String> {
        if self.tasks.iter().any(AbortHandle::is_finished) && !self.shutdown.is_cancelled() {
            return Some("a task of the service has ended, which none should before the shutdown".to_owned());
        }
        if let Some(why) = self.heart.why_not_alive() {
            return Some(why);
        }
        let limit = longest_silence(self.timeouts);
        self.workers.iter().find_map(|(database, shared)| {
            let silent_for = shared.pass_is_silent_for().filter(|silent_for| *silent_for > limit)?;
            let silent_for = silent_for.as_secs();
            Some(format!(
                "the run over database {database:?} has made no progress for {silent_for} s"
            ))
        })
    }
}

/// The longest that a pass may go without a sign of life.
fn longest_silence(timeouts: Timeouts) -> Duration {
    // A repair drops what an interrupted one left, then builds.
    (timeouts.statement + SLACK) * MOST_STATEMENTS + 2 * LONGEST_BUILD
}

/// A manager that cannot be told is no reason to do anything else.
fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd could not be told");
    }
}

/// How all fares, in a line.
pub(super) fn sentence(health: &Health) -> String {
    let entries = || {
        let each = health.checks.iter();
        each.flat_map(|(name, checks)| checks.iter().map(move |check| (*name, check)))
    };
    let worst = health.status;
    if worst == HealthStatus::Pass {
        return "all is well".to_owned();
    }
    let mut bad = entries().filter(|(_, check)| check.status == worst);
    let Some((name, check)) = bad.next() else {
        return worst.as_str().to_owned();
    };
    let output = check.output.as_deref().unwrap_or("see /v1/health");
    let more = match bad.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let line = format!("{}: {name} of {}: {output}{more}", worst.as_str(), check.component_id);
    line.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::service::worker::Session;

    fn systemd(tasks: Vec<AbortHandle>, shared: Shared) -> Systemd {
        let (_, said) = watch::channel(String::new());
        Systemd {
            tasks,
            workers: vec![("main".to_owned(), shared)],
            heart: Heart::new(),
            timeouts: Timeouts {
                lock: Duration::from_secs(1),
                statement: Duration::from_secs(1),
            },
            said,
            shutdown: CancellationToken::new(),
        }
    }

    #[tokio::test]
    async fn a_task_that_has_ended_before_the_shutdown_stops_the_watchdogs_food() {
        let (lives, ends) = (tokio::spawn(std::future::pending::<()>()), tokio::spawn(async {}));
        let watched = systemd(vec![lives.abort_handle(), ends.abort_handle()], Shared::default());
        ends.await.unwrap();
        assert!(watched.wedged().unwrap().starts_with("a task of the service has ended"));
        watched.shutdown.cancel();
        assert_eq!(watched.wedged(), None, "then they are meant to");
        lives.abort();
    }

    #[test]
    fn a_pass_without_a_sign_of_life_stops_it_and_one_that_goes_on_for_hours_does_not() {
        let shared = Shared::default();
        let watched = systemd(Vec::new(), shared.clone());
        assert_eq!(watched.wedged(), None, "none is in hand");
        let limit = longest_silence(watched.timeouts);
        let session = Arc::new(Session::new());
        shared.has_in_hand(session.clone());
        assert_eq!(watched.wedged(), None);
        if !session.was_awake(limit + Duration::from_secs(1)) {
            return; // A machine that has just started has no such instant.
        }
        let why = watched.wedged().unwrap();
        assert!(
            why.starts_with("the run over database \"main\" has made no progress for"),
            "{why}"
        );
        session.is_awake();
        assert_eq!(watched.wedged(), None);
    }
}
