//! The worker: runs passes one at a time, whoever asks for them, and tries again after a failure.
//!
//! Its invariant: a pass is never dropped half-way. It runs as a task of its own, which is awaited; a panic in it is
//! caught and counted, and shutdown asks it to stop between two steps.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::config::{Config, Database};
use crate::{
    clock::Clock,
    maintain::{PassOutcome, PassRequest, RunOutcome, Trigger, plan_all, run_pass},
    postgres::{self, DbError, schema},
    pure::{FindingCode, Plan},
};

/// The pause before the first retry; it doubles up to [`LONGEST_RETRY_PAUSE`].
const FIRST_RETRY_PAUSE: Duration = Duration::from_secs(5);
/// An outage of hours is noticed to be over within five minutes.
const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(300);
/// How late a pass may be before the service counts as not ready.
const PASS_MAY_BE_LATE_BY: chrono::TimeDelta = chrono::TimeDelta::minutes(5);

/// What the last pass left, for `/readyz`.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkerState {
    /// When the last pass ended, by the host's clock, whatever came of it.
    last_pass_at: Option<DateTime<Utc>>,
    /// Why the last pass failed as a whole.
    error: Option<String>,
    /// What is wrong with an inbox after the last pass.
    not_ready: Vec<String>,
    /// Whether the server was a standby.
    standby: bool,
    /// Panics since the start.
    panics: u64,
}

/// What worker and HTTP share.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared(Arc<Mutex<WorkerState>>);

impl Shared {
    fn update(&self, change: impl FnOnce(&mut WorkerState)) {
        // A panic cannot leave the state half-written: each change is a few assignments.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Why the service is not ready; empty when it is.
    pub(super) fn why_not_ready(&self, config: &Config, now: DateTime<Utc>) -> Vec<String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(last) = state.last_pass_at else {
            return vec!["no pass has ended since the start".to_owned()];
        };
        let mut why = Vec::new();
        if let Some(error) = state.error {
            why.push(error);
        }
        if state.standby {
            why.push("the server is a standby".to_owned());
        }
        why.extend(state.not_ready);
        if config
            .schedule
            .next(last, 1)
            .first()
            .is_some_and(|due| *due + PASS_MAY_BE_LATE_BY < now)
        {
            why.push(format!("no pass has ended since {}", last.to_rfc3339()));
        }
        why
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

pub(super) struct Worker {
    pub(super) config: Arc<Config>,
    pub(super) database: Database,
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
        let (config, database, clock, shutdown) = (
            self.config.clone(),
            self.database.clone(),
            self.clock.clone(),
            self.shutdown.clone(),
        );
        let passed = tokio::spawn(async move { pass(&config, &database, &clock, &shutdown, trigger).await }).await;
        let now = self.clock.now();
        match passed {
            Ok(Ok(passed)) => {
                let whole = passed.whole;
                self.shared.update(|state| {
                    *state = WorkerState {
                        last_pass_at: Some(now),
                        error: None,
                        not_ready: passed.not_ready,
                        standby: passed.standby,
                        panics: state.panics,
                    };
                });
                whole
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, trigger = trigger.as_str(), "the pass failed; it is tried again");
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
                tracing::error!(%panic, "the pass panicked; please report this. It is tried again");
                false
            }
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
}

/// One pass on a connection of its own: after a failover or an outage there is none to mend.
async fn pass(
    config: &Config,
    database: &Database,
    clock: &Clock,
    shutdown: &CancellationToken,
    trigger: Trigger,
) -> Result<Passed, DbError> {
    // A server that does not answer would keep the shutdown waiting; nothing has begun that could be cut in two.
    let mut connection = tokio::select! {
        connected = postgres::connect(&database.options, "inboxd maintenance", config.timeouts) => connected?,
        () = shutdown.cancelled() => {
            return Ok(Passed {
                whole: true,
                not_ready: vec!["the service is shutting down".to_owned()],
                standby: false,
            });
        }
    };
    let stop = || shutdown.is_cancelled();
    let request = PassRequest {
        deployment: &config.deployment,
        specs: &config.inboxes,
        replica: None,
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
                tracing::info!(run = %report.id, outcome, trigger, steps, "the run has ended");
            } else {
                tracing::debug!(run = %report.id, outcome, trigger, "the run found nothing to do");
            }
            let plans = report.inboxes.iter().map(|inbox| (inbox.inbox.as_str(), &inbox.after));
            Passed {
                whole: report.outcome == RunOutcome::Done,
                not_ready: not_ready(plans),
                standby: false,
            }
        }
        PassOutcome::Busy { holder } => {
            let pid = holder.as_ref().map(|holder| holder.pid);
            tracing::info!(pid, "another replica is running the pass");
            schema::check(&mut connection).await?;
            let (_, planned) = plan_all(&mut connection, &config.inboxes, &config.deployment, clock).await?;
            let plans = planned.iter().map(|planned| (planned.inbox.as_str(), &planned.plan));
            Passed {
                whole: true,
                not_ready: not_ready(plans),
                standby: false,
            }
        }
        PassOutcome::Standby => {
            tracing::info!("the server is a standby; nothing is written until it is promoted");
            Passed {
                whole: true,
                not_ready: Vec::new(),
                standby: true,
            }
        }
    };
    // The pass is over; whether the goodbye arrives does not matter.
    let _ = sqlx::Connection::close(connection).await;
    Ok(passed)
}

/// What makes the service not ready: an inbox that it does not keep, or days that do not exist after a pass.
fn not_ready<'a>(plans: impl Iterator<Item = (&'a str, &'a Plan)>) -> Vec<String> {
    let mut why = Vec::new();
    for (inbox, plan) in plans {
        let unusable = [
            FindingCode::InboxMissing,
            FindingCode::InboxUnfit,
            FindingCode::OtherDeployment,
            FindingCode::Runway,
        ];
        for finding in plan.findings.iter().filter(|finding| unusable.contains(&finding.code)) {
            why.push(format!("{inbox}: {}; {}", finding.message, finding.remedy));
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
