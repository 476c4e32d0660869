//! `run`: one pass now, and what a consumer would see after it.

use std::process::ExitCode;

use anyhow::{Context, Result};
use inboxd::{
    clock::Clock,
    maintain::{Canary, LONGEST_CANARY_ROUND, PassOutcome, PassRequest, RunOutcome, Trigger, canaries, run_pass},
    postgres::DbError,
    service::{
        Guarded,
        config::{Config, Database},
    },
};
use sqlx::postgres::PgConnectOptions;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    args::Run,
    commands::{Answers, BUSY, each_under, print},
    text,
};

/// Some steps failed.
const PARTIAL: u8 = 3;
/// What a shell makes of a process that SIGINT, or SIGTERM, has ended.
const INTERRUPTED: u8 = 130;
const TERMINATED: u8 = 143;

/// A pass, and what a consumer would see after it.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Ran {
    #[serde(flatten)]
    pub(crate) outcome: PassOutcome,
    pub(crate) canaries: Vec<Canary>,
}

/// The pass has done its work; that these could not be tried is no failure of it.
async fn try_claims(database: &Database, options: &PgConnectOptions) -> Vec<Canary> {
    let mut met = Vec::new();
    let flown = canaries(options, database.inboxes.iter(), LONGEST_CANARY_ROUND, |canary| {
        met.push(canary)
    })
    .await;
    if let Err(error) = flown {
        tracing::warn!(database = database.name, %error, "the canaries could not fly");
    }
    met
}

pub(crate) async fn once(config: &Config, options: Run, clock: &Clock, json: bool) -> Result<ExitCode> {
    let shutdown = CancellationToken::new();
    let mut signals = Signals::new()?;
    let insisted = async {
        signals.next().await;
        eprintln!("inboxd: ending after the step in hand; at once if asked again");
        shutdown.cancel();
        signals.next().await
    };
    tokio::select! {
        answers = passes(config, options, clock, &shutdown) => {
            print(json, &answers, text::outcomes)?;
            Ok(exit_code(&answers))
        }
        code = insisted => {
            eprintln!("inboxd: ended in the middle of a step, which the server ends; the next run puts right what is left");
            Ok(ExitCode::from(code))
        }
    }
}

/// What asks the process to end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("listen for SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
        })
    }

    /// Waits for one; its exit code.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPTED,
            _ = self.terminate.recv() => TERMINATED,
        }
    }
}

/// A pass in each database, until the shutdown.
async fn passes(config: &Config, options: Run, clock: &Clock, shutdown: &CancellationToken) -> Answers<Ran> {
    let guarded = Guarded::new(config);
    // Asked between steps, and while something else than the database is waited for.
    let stop = || {
        guarded.is_awake();
        shutdown.is_cancelled()
    };
    each_under(&guarded, config, async |database, connection| {
        let request = PassRequest {
            deployment: &config.deployment,
            specs: &database.inboxes,
            replica: None,
            trigger: Trigger::Manual,
            confirm_clock: options.confirm_clock,
            retries: config.retries,
            clock,
            stop: &stop,
        };
        let outcome = run_pass(connection, request).await?;
        let canaries = match (&outcome, database.connect_options()) {
            (PassOutcome::Ran(_), Ok(options)) => try_claims(database, options).await,
            _ => Vec::new(),
        };
        Ok::<_, DbError>(Ran { outcome, canaries })
    })
    .await
}

fn exit_code(answers: &Answers<Ran>) -> ExitCode {
    let partial = |ran: &Ran| matches!(&ran.outcome, PassOutcome::Ran(report) if report.outcome == RunOutcome::Partial);
    if answers.exit_code() != ExitCode::SUCCESS {
        ExitCode::FAILURE
    } else if answers.done().any(partial) {
        ExitCode::from(PARTIAL)
    } else if answers
        .done()
        .any(|ran| matches!(ran.outcome, PassOutcome::Busy { .. }))
    {
        ExitCode::from(BUSY)
    } else {
        ExitCode::SUCCESS
    }
}
