//! The worker: runs passes one at a time, whoever asks for them, and tries again after a failure.
//!
//! Its invariant: a pass is never dropped half-way while the server answers. It runs as a task of its own, which is awaited;
//! a panic in it is caught and counted, and shutdown asks it to stop between two steps. A guard bounds it: see there.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use uuid::Uuid;

use super::{
    caught::caught,
    config::{Config, Database},
    counters::Counters,
    reading::Reader,
};
use crate::{
    clock::Clock,
    maintain::{Replica, Trigger, operate::Pause, random_uuid},
    postgres::{self, DbError, ErrorKind},
};

mod ask;
mod canaries;
mod guard;
mod pass;
mod state;

use ask::RunRequest;
pub(super) use ask::{Asked, Asker, Ended};
pub use canaries::CanaryStatus;
pub(super) use canaries::{Canaries, Met};
pub(super) use guard::{Guard, Session};
use pass::{Passed, Work};
pub(super) use state::{Heart, Shared};

/// The pause before the first retry; it doubles up to [`LONGEST_RETRY_PAUSE`].
const FIRST_RETRY_PAUSE: Duration = Duration::from_secs(5);
/// An outage of hours is noticed to be over within five minutes.
const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(300);
/// How long a replica tries to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

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
    /// Asked for a round of canaries after each pass.
    pub(super) canaries: mpsc::Sender<()>,
    /// Told after each pass that health may be another.
    pub(super) judge: Arc<Notify>,
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
                    caught("the worker", self.run_on_request(request)).await;
                    continue;
                }
                () = retry => Trigger::Retry,
            };
            let whole = caught("the worker", self.pass(trigger)).await.unwrap_or(false);
            failures = if whole { 0 } else { failures + 1 };
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
        let session = Arc::new(Session::new());
        let told = session.clone();
        self.shared.has_in_hand(session.clone());
        let name = self.database.name.clone();
        let pass = async move {
            let work = Work {
                config: &config,
                database: &database,
                replica: &replica,
                clock: &clock,
                shutdown: &shutdown,
                counters: &counters,
                session: &told,
            };
            work.pass(id, trigger, inbox.as_deref()).await
        };
        let span = tracing::info_span!("run", id = %id, database = name, trigger = trigger.as_str());
        let mut passing = tokio::spawn(pass.instrument(span));
        let guard = Guard {
            database: &self.database,
            timeouts: self.config.timeouts,
            // A pass says that it pauses.
            pauses: Duration::ZERO,
            shutdown: &self.shutdown,
            session: &session,
        };
        let passed = tokio::select! {
            passed = &mut passing => passed,
            why = guard.gives_up() => {
                passing.abort();
                // Unless it came to its end just now.
                passing.await.or_else(|ended| match ended.is_cancelled() {
                    true => Ok(Err(DbError::noticed(ErrorKind::Unreachable, why))),
                    false => Err(ended),
                })
            }
        };
        let passed = match passed {
            Ok(Ok(passed)) => passed,
            Ok(Err(error)) => {
                let (database, trigger) = (&self.database.name, trigger.as_str());
                if self.shared.is_news(&error.to_string()) {
                    tracing::warn!(database, %error, trigger, "the pass failed; it is tried again");
                } else {
                    tracing::debug!(database, %error, trigger, "the pass failed again");
                }
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
        self.shared.update(|state| (state.going, state.session) = (None, None));
        if passed.lets_canaries_fly() {
            // Full: a round is waiting already.
            let _ = self.canaries.try_send(());
        }
        passed
    }

    fn note(&self, passed: &Passed) {
        let now = self.clock.now();
        let (was_paused, was_standby) = (self.shared.was_paused(), self.shared.was_standby());
        self.shared.update(|state| {
            state.last_pass_at = Some((now, Instant::now()));
            state.begins(&passed.ended, passed.not_ready.is_empty(), Instant::now());
            match &passed.ended {
                // What was known before it failed still stands.
                Ended::Failed { why, .. } => state.error = Some(why.clone()),
                ended => {
                    state.error = None;
                    state.logged = None;
                    state.not_ready.clone_from(&passed.not_ready);
                    state.standby = matches!(ended, Ended::Standby);
                    // A standby does not say, and a run of a person's own does not ask.
                    state.paused = match ended {
                        Ended::Paused(_) => true,
                        Ended::Ran(report) if report.trigger != Trigger::Manual => false,
                        _ => state.paused,
                    };
                }
            }
        });
        let pause = match &passed.ended {
            Ended::Paused(pause) => Some(pause),
            _ => None,
        };
        if self.shared.was_paused() != was_paused {
            self.tell_of_a_pause(pause);
        }
        if self.shared.was_standby() && !was_standby {
            let database = &self.database.name;
            tracing::info!(
                database,
                "the server is a standby; nothing is written until it is promoted"
            );
        }
        self.judge.notify_one();
    }

    /// A line when the schedule is paused, and one when it goes on; none in between.
    fn tell_of_a_pause(&self, pause: Option<&Pause>) {
        let database = &self.database.name;
        match pause {
            Some(Pause {
                paused_at,
                paused_by,
                reason,
                ..
            }) => tracing::info!(
                database,
                %paused_at,
                paused_by,
                reason,
                "the schedule is paused; nothing is created or removed until `inboxd resume`"
            ),
            None => tracing::info!(database, "the schedule is no longer paused"),
        }
    }
}

fn retry_pause(failures: u32) -> Duration {
    let doubled = FIRST_RETRY_PAUSE.saturating_mul(1 << (failures - 1).min(10));
    doubled
        .min(LONGEST_RETRY_PAUSE)
        .mul_f64(rand::RngExt::random_range(&mut rand::rng(), 0.75..1.25))
}
