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
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    config::{Config, Database},
    counters::Counters,
    cron::Schedule,
    reading::Reader,
};
use crate::{
    clock::Clock,
    maintain::{PassOutcome, PassRequest, Replica, RunOutcome, RunReport, Trigger, plan_all, random_uuid, run_pass_as},
    postgres::{self, DbError, ErrorKind, catalog, history, lock::LockHolder, schema},
    pure::{Action, InboxSpec, Plan, Severity},
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
    /// Why the last pass failed as a whole, in our words.
    error: Option<String>,
    /// What is wrong with an inbox after the last pass.
    not_ready: Vec<String>,
    /// Whether the server was a standby.
    standby: bool,
    /// The run in hand.
    going: Option<Uuid>,
}

/// What a worker and HTTP share.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared(Arc<Mutex<WorkerState>>);

impl Shared {
    /// The run that this worker has in hand.
    pub(super) fn going(&self) -> Option<Uuid> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).going
    }

    fn update(&self, change: impl FnOnce(&mut WorkerState)) {
        // A panic cannot leave the state half-written: each change is a few assignments.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
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

/// What a worker listens to.
pub(super) struct Asked {
    triggers: mpsc::Receiver<Trigger>,
    runs: mpsc::Receiver<RunRequest>,
}

/// Asks for passes.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    triggers: mpsc::Sender<Trigger>,
    runs: mpsc::Sender<RunRequest>,
}

impl Asker {
    /// Asks for a pass; when one is already waiting, that one will do.
    pub(super) fn ask(&self, trigger: Trigger) {
        // Full: a pass is waiting already. Closed: the service is shutting down.
        let _ = self.triggers.try_send(trigger);
    }

    /// Asks for a run of a person's own, whose end is told; none when another such is waiting, or at shutdown.
    pub(super) fn ask_for_run(&self, id: Uuid, inbox: Option<String>) -> Option<oneshot::Receiver<Ended>> {
        let (told, ended) = oneshot::channel();
        self.runs.try_send(RunRequest { id, inbox, told }).ok()?;
        Some(ended)
    }
}

/// A run that a person asked for.
#[derive(Debug)]
struct RunRequest {
    id: Uuid,
    /// The only inbox that it is about; none for all.
    inbox: Option<String>,
    told: oneshot::Sender<Ended>,
}

/// What became of a pass.
#[derive(Debug)]
pub(super) enum Ended {
    /// It ran.
    Ran(RunReport),
    /// Another process is running one.
    Busy {
        /// Who.
        holder: Option<LockHolder>,
        /// Its run, where it is on record.
        run: Option<Uuid>,
    },
    /// The server is a standby.
    Standby,
    /// It failed as a whole.
    Failed {
        /// What kind of error it was.
        kind: ErrorKind,
        /// Why, in our words.
        why: String,
    },
}

/// One database's worker.
pub(super) struct Worker {
    pub(super) config: Arc<Config>,
    pub(super) database: Arc<Database>,
    pub(super) replica: Replica,
    pub(super) clock: Clock,
    pub(super) shared: Shared,
    pub(super) counters: Counters,
    /// Told that what it has read is old, after each run.
    pub(super) reader: Reader,
    pub(super) shutdown: CancellationToken,
}

impl Worker {
    /// A worker's asker, and what it listens to.
    pub(super) fn channel() -> (Asker, Asked) {
        let ((trigger, triggers), (run, runs)) = (mpsc::channel(1), mpsc::channel(1));
        let asker = Asker {
            triggers: trigger,
            runs: run,
        };
        (asker, Asked { triggers, runs })
    }

    /// Works until shutdown; the pass in hand then stops after its step.
    pub(super) async fn work(self, mut asked: Asked) {
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

    async fn work_until_shutdown(&self, asked: &mut Asked) {
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
                trigger = asked.triggers.recv() => match trigger {
                    Some(trigger) => trigger,
                    None => return,
                },
                Some(request) = asked.runs.recv() => {
                    self.run_on_request(request).await;
                    continue;
                }
                () = retry => Trigger::Retry,
            };
            failures = if self.pass(trigger).await { 0 } else { failures + 1 };
        }
    }

    /// Runs one pass to its end; true when nothing is left to retry.
    async fn pass(&self, trigger: Trigger) -> bool {
        let passed = self.pass_as_a_task(random_uuid(), trigger, None).await;
        let whole = passed.whole;
        self.note(&passed);
        whole
    }

    /// One that a person asked for. A run of one inbox says nothing about the others.
    async fn run_on_request(&self, request: RunRequest) {
        let RunRequest { id, inbox, told } = request;
        let is_for_all = inbox.is_none();
        let passed = self.pass_as_a_task(id, Trigger::Manual, inbox).await;
        if is_for_all {
            self.note(&passed);
        }
        // Whoever asked may have gone.
        let _ = told.send(passed.ended);
    }

    /// In a task of its own: a panic ends that, and nothing that asks for a pass can cut it short.
    async fn pass_as_a_task(&self, id: Uuid, trigger: Trigger, inbox: Option<String>) -> Passed {
        let (config, database, replica) = (self.config.clone(), self.database.clone(), self.replica.clone());
        let (clock, shutdown, counters) = (self.clock.clone(), self.shutdown.clone(), self.counters.clone());
        self.shared.update(|state| state.going = Some(id));
        let begun = Instant::now();
        let passed = tokio::spawn(async move {
            let work = Work {
                config: &config,
                database: &database,
                replica: &replica,
                clock: &clock,
                shutdown: &shutdown,
                counters: &counters,
            };
            work.pass(id, trigger, inbox.as_deref()).await
        })
        .await;
        let passed = match passed {
            Ok(Ok(passed)) => passed,
            Ok(Err(error)) => {
                tracing::warn!(database = self.database.name, %error, trigger = trigger.as_str(), "the pass failed; it is tried again");
                Passed::failed(error.kind(), error.in_our_words())
            }
            Err(panic) => {
                tracing::error!(database = self.database.name, %panic, "the pass panicked; please report this. It is tried again");
                self.counters.panicked();
                let panics = self.counters.counts().panics;
                Passed::failed(
                    ErrorKind::Other,
                    format!("the pass panicked, {panics} times since the start"),
                )
            }
        };
        self.counters.run(passed.outcome(), begun.elapsed());
        self.reader.forget();
        self.shared.update(|state| state.going = None);
        passed
    }

    fn note(&self, passed: &Passed) {
        let now = self.clock.now();
        self.shared.update(|state| {
            state.last_pass_at = Some(now);
            match &passed.ended {
                // What was known before it failed still stands.
                Ended::Failed { why, .. } => state.error = Some(why.clone()),
                _ => {
                    state.error = None;
                    state.not_ready.clone_from(&passed.not_ready);
                    state.standby = matches!(passed.ended, Ended::Standby);
                }
            }
        });
    }
}

fn retry_pause(failures: u32) -> Duration {
    let doubled = FIRST_RETRY_PAUSE.saturating_mul(1 << (failures - 1).min(10));
    doubled
        .min(LONGEST_RETRY_PAUSE)
        .mul_f64(rand::RngExt::random_range(&mut rand::rng(), 0.75..1.25))
}

struct Passed {
    ended: Ended,
    /// Whether nothing is left to retry.
    whole: bool,
    not_ready: Vec<String>,
}

impl Passed {
    fn failed(kind: ErrorKind, why: String) -> Self {
        Self {
            ended: Ended::Failed { kind, why },
            whole: false,
            not_ready: Vec::new(),
        }
    }

    fn outcome(&self) -> &'static str {
        match &self.ended {
            Ended::Ran(report) => report.outcome.as_str(),
            Ended::Busy { .. } => "busy",
            Ended::Standby => "standby",
            Ended::Failed { .. } => "failed",
        }
    }
}

/// What a pass needs.
struct Work<'a> {
    config: &'a Config,
    database: &'a Database,
    replica: &'a Replica,
    clock: &'a Clock,
    shutdown: &'a CancellationToken,
    counters: &'a Counters,
}

impl Work<'_> {
    /// One pass on a connection of its own: after a failover or an outage there is none to mend.
    async fn pass(&self, id: Uuid, trigger: Trigger, inbox: Option<&str>) -> Result<Passed, DbError> {
        let Self { config, database, .. } = *self;
        // A server that does not answer would keep the shutdown waiting; nothing has begun that could be cut in two.
        let options = database
            .connect_options()
            .map_err(|error| DbError::noticed(ErrorKind::Refused, error.to_string()))?;
        let mut connection = tokio::select! {
            connected = postgres::connect(options, "inboxd maintenance", config.timeouts) => connected?,
            () = self.shutdown.cancelled() => {
                return Ok(Passed {
                    whole: true,
                    ..Passed::failed(ErrorKind::Other, "the service is shutting down".to_owned())
                });
            }
        };
        let one: Vec<InboxSpec>;
        let specs = match inbox {
            None => &database.inboxes,
            Some(name) => {
                one = database
                    .inboxes
                    .iter()
                    .filter(|spec| spec.name == name)
                    .cloned()
                    .collect();
                &one
            }
        };
        // Only before a drop can be told how much it gives back. Where that fails, the pass itself says what is wrong.
        let sizes = catalog::leaving_sizes(&mut connection).await.unwrap_or_default();
        let stop = || self.shutdown.is_cancelled();
        let request = PassRequest {
            deployment: &config.deployment,
            specs,
            // A heartbeat tells the configuration of all inboxes, so a pass over one inbox has none.
            replica: inbox.is_none().then_some(self.replica),
            trigger,
            confirm_clock: false,
            retries: config.retries,
            clock: self.clock,
            stop: &stop,
        };
        let passed = match run_pass_as(&mut connection, request, id).await? {
            PassOutcome::Ran(report) => {
                self.counters.steps(&report, |oid| sizes.get(&oid).copied());
                self.ran(report)
            }
            PassOutcome::Busy { holder } => self.busy(&mut connection, holder).await?,
            PassOutcome::Standby => {
                tracing::info!(
                    database = database.name,
                    "the server is a standby; nothing is written until it is promoted"
                );
                Passed {
                    ended: Ended::Standby,
                    whole: true,
                    not_ready: Vec::new(),
                }
            }
        };
        // The pass is over; whether the goodbye arrives does not matter.
        let _ = sqlx::Connection::close(connection).await;
        Ok(passed)
    }

    fn ran(&self, report: RunReport) -> Passed {
        let (database, steps, outcome) = (&self.database.name, report.steps().count(), report.outcome.as_str());
        let trigger = report.trigger.as_str();
        if steps > 0 {
            tracing::info!(database, run = %report.id, outcome, trigger, steps, "the run has ended");
        } else {
            tracing::debug!(database, run = %report.id, outcome, trigger, "the run found nothing to do");
        }
        let plans = report.inboxes.iter().map(|inbox| (inbox.inbox.as_str(), &inbox.after));
        Passed {
            whole: report.outcome == RunOutcome::Done,
            not_ready: not_ready(plans),
            ended: Ended::Ran(report),
        }
    }

    async fn busy(&self, connection: &mut PgConnection, holder: Option<LockHolder>) -> Result<Passed, DbError> {
        let Self { config, database, .. } = *self;
        let pid = holder.as_ref().map(|holder| holder.pid);
        tracing::info!(database = database.name, pid, "another replica is running the pass");
        schema::check(connection).await?;
        let run = history::run_going(connection, &config.deployment).await?;
        let (_, planned) = plan_all(connection, &database.inboxes, &config.deployment, self.clock).await?;
        let plans = planned.iter().map(|planned| (planned.inbox.as_str(), &planned.plan));
        let not_ready = not_ready(plans);
        Ok(Passed {
            // The other may still be at it, or fail: look again soon, not at the next tick.
            whole: not_ready.is_empty(),
            not_ready,
            ended: Ended::Busy { holder, run },
        })
    }
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
        let missing = plan.steps.iter().filter(|step| step.action == Action::Create).count();
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
