//! The worker: runs passes one at a time, whoever asks for them, and tries again after a failure.
//!
//! Its invariant: a pass is never dropped half-way. It runs as a task of its own, which is awaited; a panic in it is
//! caught and counted, and shutdown asks it to stop between two steps.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    config::{Config, Database},
    cron::Schedule,
};
use crate::{
    clock::Clock,
    maintain::{PassOutcome, PassRequest, Replica, RunOutcome, Trigger, operate::Pause, plan_all, run_pass},
    postgres::{self, DbError, ErrorKind},
    pure::{Plan, Severity},
};

/// The pause before the first retry; it doubles up to [`LONGEST_RETRY_PAUSE`].
const FIRST_RETRY_PAUSE: Duration = Duration::from_secs(5);
/// An outage of hours is noticed to be over within five minutes.
const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(300);
/// How late a pass may be before the service counts as not ready.
const PASS_MAY_BE_LATE_BY: chrono::TimeDelta = chrono::TimeDelta::minutes(5);

/// How long a replica tries to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// How long the schedule's heart, which beats every half minute, may be silent.
const HEART_MAY_BE_SILENT_FOR: Duration = Duration::from_secs(180);

/// What the last pass left, for `/readyz`.
#[derive(Debug, Clone, Default)]
struct WorkerState {
    /// When the last pass ended, by the host's clock, whatever came of it.
    last_pass_at: Option<DateTime<Utc>>,
    /// Why the last pass failed as a whole.
    error: Option<String>,
    /// What is wrong with an inbox after the last pass.
    not_ready: Vec<String>,
    /// Whether the server was a standby.
    standby: bool,
    /// Whether the schedule was paused.
    paused: bool,
    /// Panics since the start.
    panics: u64,
}

/// What a worker and HTTP share.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared(Arc<Mutex<WorkerState>>);

impl Shared {
    fn update(&self, change: impl FnOnce(&mut WorkerState)) {
        // A panic cannot leave the state half-written: each change is a few assignments.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn was_paused(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).paused
    }

    /// Why a database's inboxes are not known to be kept; empty when they are.
    pub(super) fn why_not_ready(&self, schedule: &Schedule, now: DateTime<Utc>) -> Vec<String> {
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
pub(super) struct Heart(Arc<Mutex<Instant>>);

impl Heart {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(super) fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Why the schedule is not alive, if it is not.
    pub(super) fn why_not_alive(&self) -> Option<String> {
        let silent_for = self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        (silent_for > HEART_MAY_BE_SILENT_FOR).then(|| {
            format!(
                "the schedule has been dead for {} s; restart the service",
                silent_for.as_secs()
            )
        })
    }
}

/// Asks for passes.
#[derive(Debug, Clone)]
pub(super) struct Asker(mpsc::Sender<Trigger>);

impl Asker {
    /// Asks for a pass; when one is already waiting, that one will do.
    pub(super) fn ask(&self, trigger: Trigger) {
        // Full: a pass is waiting already. Closed: the service is shutting down.
        let _ = self.0.try_send(trigger);
    }
}

/// One database's worker.
pub(super) struct Worker {
    pub(super) config: Arc<Config>,
    pub(super) database: Arc<Database>,
    pub(super) replica: Replica,
    pub(super) clock: Clock,
    pub(super) shared: Shared,
    pub(super) shutdown: CancellationToken,
}

impl Worker {
    /// A worker's asker, and what it listens to.
    pub(super) fn channel() -> (Asker, mpsc::Receiver<Trigger>) {
        let (sender, receiver) = mpsc::channel(1);
        (Asker(sender), receiver)
    }

    /// Works until shutdown; the pass in hand then stops after its step.
    pub(super) async fn work(self, mut asked: mpsc::Receiver<Trigger>) {
        self.work_until_shutdown(&mut asked).await;
        // Its configuration is no longer heeded; a database that is away forgets it once its heartbeat is old.
        let goodbye = async {
            let options = self.database.connect_options().ok()?;
            let mut connection = postgres::connect(options, "inboxd goodbye", self.config.timeouts)
                .await
                .ok()?;
            self.replica.goodbye(&mut connection).await.ok()
        };
        let _ = tokio::time::timeout(GOODBYE, goodbye).await;
    }

    async fn work_until_shutdown(&self, asked: &mut mpsc::Receiver<Trigger>) {
        let mut failures = 0;
        loop {
            let retry = async {
                match failures {
                    0 => std::future::pending().await,
                    _ => tokio::time::sleep(retry_pause(failures)).await,
                }
            };
            let trigger = tokio::select! {
                () = self.shutdown.cancelled() => return,
                trigger = asked.recv() => match trigger {
                    Some(trigger) => trigger,
                    None => return,
                },
                () = retry => Trigger::Retry,
            };
            failures = if self.pass(trigger).await { 0 } else { failures + 1 };
        }
    }

    /// Runs one pass to its end; true when nothing is left to retry.
    async fn pass(&self, trigger: Trigger) -> bool {
        let (config, database, replica) = (self.config.clone(), self.database.clone(), self.replica.clone());
        let (clock, shutdown) = (self.clock.clone(), self.shutdown.clone());
        let passed =
            tokio::spawn(async move { pass(&config, &database, &replica, &clock, &shutdown, trigger).await }).await;
        let now = self.clock.now();
        match passed {
            Ok(Ok(passed)) => {
                let whole = passed.whole;
                let was_paused = self.shared.was_paused();
                let paused = match &passed.paused {
                    Some(pause) => {
                        self.tell_of_a_pause(pause.as_ref(), was_paused);
                        pause.is_some()
                    }
                    None => was_paused,
                };
                self.shared.update(|state| {
                    *state = WorkerState {
                        last_pass_at: Some(now),
                        error: None,
                        not_ready: passed.not_ready,
                        standby: passed.standby,
                        paused,
                        panics: state.panics,
                    };
                });
                whole
            }
            Ok(Err(error)) => {
                tracing::warn!(database = self.database.name, %error, trigger = trigger.as_str(), "the pass failed; it is tried again");
                self.shared.update(|state| {
                    state.last_pass_at = Some(now);
                    state.error = Some(error.to_string());
                });
                false
            }
            Err(panic) => {
                self.shared.update(|state| {
                    state.last_pass_at = Some(now);
                    state.panics += 1;
                    state.error = Some(format!("the pass panicked, {} times since the start", state.panics));
                });
                tracing::error!(database = self.database.name, %panic, "the pass panicked; please report this. It is tried again");
                false
            }
        }
    }
}

impl Worker {
    /// A line when the schedule is paused, and one when it goes on; none in between.
    fn tell_of_a_pause(&self, pause: Option<&Pause>, was_paused: bool) {
        let database = &self.database.name;
        match pause {
            Some(Pause {
                paused_at,
                paused_by,
                reason,
                ..
            }) if !was_paused => tracing::warn!(
                database,
                %paused_at,
                paused_by,
                reason,
                "the schedule is paused; nothing is created or removed until `inboxd resume`"
            ),
            None if was_paused => tracing::info!(database, "the schedule is no longer paused"),
            _ => {}
        }
    }
}

fn retry_pause(failures: u32) -> Duration {
    let doubled = FIRST_RETRY_PAUSE.saturating_mul(1 << (failures - 1).min(10));
    doubled
        .min(LONGEST_RETRY_PAUSE)
        .mul_f64(rand::RngExt::random_range(&mut rand::rng(), 0.75..1.25))
}

struct Passed {
    whole: bool,
    not_ready: Vec<String>,
    standby: bool,
    /// The pause of the schedule, if there is one; none at all where that was not asked.
    paused: Option<Option<Pause>>,
}

/// One pass on a connection of its own: after a failover or an outage there is none to mend.
async fn pass(
    config: &Config,
    database: &Database,
    replica: &Replica,
    clock: &Clock,
    shutdown: &CancellationToken,
    trigger: Trigger,
) -> Result<Passed, DbError> {
    // A server that does not answer would keep the shutdown waiting; nothing has begun that could be cut in two.
    let options = database
        .connect_options()
        .map_err(|error| DbError::noticed(ErrorKind::Refused, error.to_string()))?;
    let mut connection = tokio::select! {
        connected = postgres::connect(options, "inboxd maintenance", config.timeouts) => connected?,
        () = shutdown.cancelled() => {
            return Ok(Passed {
                whole: true,
                not_ready: vec!["the service is shutting down".to_owned()],
                standby: false,
                paused: None,
            });
        }
    };
    let stop = || shutdown.is_cancelled();
    let request = PassRequest {
        deployment: &config.deployment,
        specs: &database.inboxes,
        replica: Some(replica),
        trigger,
        confirm_clock: false,
        retries: config.retries,
        clock,
        stop: &stop,
    };
    let passed = match run_pass(&mut connection, request).await? {
        PassOutcome::Ran(report) => {
            let steps = report.steps().count();
            let outcome = report.outcome.as_str();
            let trigger = trigger.as_str();
            if steps > 0 {
                tracing::info!(database = database.name, run = %report.id, outcome, trigger, steps, "the run has ended");
            } else {
                tracing::debug!(database = database.name, run = %report.id, outcome, trigger, "the run found nothing to do");
            }
            let plans = report.inboxes.iter().map(|inbox| (inbox.inbox.as_str(), &inbox.after));
            Passed {
                whole: report.outcome == RunOutcome::Done,
                not_ready: not_ready(plans),
                standby: false,
                paused: Some(None),
            }
        }
        PassOutcome::Busy { holder } => {
            let pid = holder.as_ref().map(|holder| holder.pid);
            tracing::info!(database = database.name, pid, "another replica is running the pass");
            let not_ready = look(&mut connection, config, database, clock).await?;
            Passed {
                // The other may still be at it, or fail: look again soon, not at the next tick.
                whole: not_ready.is_empty(),
                not_ready,
                standby: false,
                paused: Some(None),
            }
        }
        PassOutcome::Paused(pause) => Passed {
            whole: true,
            not_ready: look(&mut connection, config, database, clock).await?,
            standby: false,
            paused: Some(Some(pause)),
        },
        PassOutcome::Standby => {
            tracing::info!(
                database = database.name,
                "the server is a standby; nothing is written until it is promoted"
            );
            Passed {
                whole: true,
                not_ready: Vec::new(),
                standby: true,
                paused: None,
            }
        }
    };
    // The pass is over; whether the goodbye arrives does not matter.
    let _ = sqlx::Connection::close(connection).await;
    Ok(passed)
}

/// The same without a pass of our own.
async fn look(
    connection: &mut PgConnection,
    config: &Config,
    database: &Database,
    clock: &Clock,
) -> Result<Vec<String>, DbError> {
    let (_, planned) = plan_all(connection, &database.inboxes, &config.deployment, clock).await?;
    let plans = planned.iter().map(|planned| (planned.inbox.as_str(), &planned.plan));
    Ok(not_ready(plans))
}

/// What makes the service not ready: what fails or soon will, and days that do not exist after a pass.
fn not_ready<'a>(plans: impl Iterator<Item = (&'a str, &'a Plan)>) -> Vec<String> {
    let mut why = Vec::new();
    for (inbox, plan) in plans {
        for finding in plan
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Fail)
        {
            let on = finding
                .relation
                .as_deref()
                .map(|relation| format!("{relation}: "))
                .unwrap_or_default();
            why.push(format!("{inbox}: {on}{}; {}", finding.message, finding.remedy));
        }
        let missing = plan
            .steps
            .iter()
            .filter(|step| step.action == crate::pure::Action::Create)
            .count();
        if missing > 0 {
            why.push(format!("{inbox}: {missing} days have no partition yet"));
        }
    }
    why
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
