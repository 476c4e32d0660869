//! Each command, composed from the library.

use std::{collections::HashMap, io::IsTerminal, process::ExitCode};

use anyhow::{Context, Result, anyhow};
use inboxd::{
    Severity,
    clock::Clock,
    maintain::{PassOutcome, PassRequest, RunOutcome, Trigger, init, plan_all, run_pass},
    postgres,
    service::{
        config::{Config, Database, Log},
        read_status, serve,
    },
};
use sqlx::PgConnection;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Arguments, Command, Run, Serve},
    embedded::Private,
    text,
};

/// `run`: some steps failed.
const PARTIAL: u8 = 3;
/// `run`: another run is going.
const BUSY: u8 = 4;

pub(crate) async fn execute(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { config, json, command } = arguments;
    let config = match Config::load(config.as_deref(), environment()) {
        Ok(config) => config,
        // 1 would tell a probe of a mere warning.
        Err(error) if matches!(command, Command::Check) => return cannot_check(json, &error.into()),
        Err(error) => return Err(error.into()),
    };
    log(&config.log, matches!(command, Command::Serve(_)));
    let clock = Clock::system();
    match command {
        Command::Serve(options) => run_service(config, options, clock, json).await,
        Command::Init => initialize(&config, &clock, json).await,
        Command::Plan => show_plan(&config, &clock, json).await,
        Command::Run(options) => run_once(&config, options, &clock, json).await,
        Command::Status => show_status(&config, &clock, json).await,
        Command::Check => check(&config, &clock, json).await,
    }
}

/// The variables of this process. A name that is no text is none of ours; in a value, what is no text is marked.
fn environment() -> HashMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .collect()
}

/// The service logs to standard error; other commands only what goes wrong, for their output is the answer.
fn log(log: &Log, is_service: bool) {
    let filter = if is_service {
        log.filter.clone()
    } else {
        "warn".to_owned()
    };
    // The text was checked with the configuration.
    let filter = tracing_subscriber::EnvFilter::try_new(filter).unwrap_or_default();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    if log.json {
        builder.json().init()
    } else {
        builder.init()
    }
}

fn database(config: &Config) -> Result<&Database> {
    config.database.as_ref().ok_or_else(|| {
        anyhow!(
            "no database is configured: set DATABASE_URL or `[database] url` (postgres://user:password@host/database); \
             `inboxd serve --embedded` tries it with a private PostgreSQL"
        )
    })
}

async fn connect(config: &Config) -> Result<PgConnection> {
    Ok(postgres::connect(&database(config)?.options, "inboxd", config.timeouts).await?)
}

fn print<T: serde::Serialize>(json: bool, value: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
    let text = if json {
        serde_json::to_string_pretty(value).context("write JSON")?
    } else {
        text(value)
    };
    // A reader that has gone (`inboxd status | head`) is no error.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), format!("{}\n", text.trim_end()).as_bytes());
    Ok(())
}

async fn run_service(config: Config, options: Serve, clock: Clock, json: bool) -> Result<ExitCode> {
    let shutdown = CancellationToken::new();
    // Before anything is started, so that no signal finds the default handler.
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let private = if options.embedded {
        Some(Private::start(&config, &options, &clock).await?)
    } else {
        None
    };
    let database = match &private {
        Some(private) => private.database(),
        None => database(&config)?.clone(),
    };
    let next: Vec<String> = config
        .schedule
        .next(clock.now(), 3)
        .iter()
        .map(chrono::DateTime::to_rfc3339)
        .collect();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        deployment = config.deployment,
        database = ?database,
        inboxes = config.inboxes.len(),
        schedule = %config.schedule,
        next_runs = next.join(", "),
        "inboxd starts"
    );
    let inboxes: Vec<_> = config.inboxes.iter().map(|spec| spec.table.clone()).collect();
    let serving = serve(config, database, clock, shutdown.clone()).await?;
    let address = serving.address();
    tracing::info!(%address, "HTTP is served: /livez, /readyz, /v1/status");
    if let Some(private) = &private {
        print(json, &private.greeting(&inboxes, address), text::greeting)?;
    }
    // The database goes last: the pass in hand still needs it.
    let database_shutdown = CancellationToken::new();
    let supervising = private.map(|private| tokio::spawn(private.supervise(database_shutdown.clone())));
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: ending after the step in hand"),
        _ = interrupt.recv() => tracing::info!("interrupted: ending after the step in hand"),
    }
    shutdown.cancel();
    serving.ended().await;
    database_shutdown.cancel();
    if let Some(supervising) = supervising {
        supervising.await.context("the private PostgreSQL's supervisor")??;
    }
    tracing::info!("inboxd has ended");
    Ok(ExitCode::SUCCESS)
}

async fn initialize(config: &Config, clock: &Clock, json: bool) -> Result<ExitCode> {
    let mut connection = connect(config).await?;
    let report = init(&mut connection, &config.inboxes, &config.deployment, clock).await?;
    print(json, &report, text::init)?;
    Ok(ExitCode::SUCCESS)
}

async fn show_plan(config: &Config, clock: &Clock, json: bool) -> Result<ExitCode> {
    let mut connection = connect(config).await?;
    let (_, planned) = plan_all(&mut connection, &config.inboxes, &config.deployment, clock).await?;
    print(json, &planned, |planned| text::plan(planned))?;
    Ok(ExitCode::SUCCESS)
}

async fn run_once(config: &Config, options: Run, clock: &Clock, json: bool) -> Result<ExitCode> {
    let mut connection = connect(config).await?;
    let shutdown = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let stopping = shutdown.clone();
    let listening = tokio::spawn(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        eprintln!("inboxd: ending after the step in hand");
        stopping.cancel();
    });
    let stop = || shutdown.is_cancelled();
    let request = PassRequest {
        deployment: &config.deployment,
        specs: &config.inboxes,
        replica: None,
        trigger: Trigger::Manual,
        confirm_clock: options.confirm_clock,
        retries: config.retries,
        clock,
        stop: &stop,
    };
    let outcome = run_pass(&mut connection, request).await?;
    listening.abort();
    print(json, &outcome, text::outcome)?;
    Ok(match outcome {
        PassOutcome::Ran(report) if report.outcome == RunOutcome::Done => ExitCode::SUCCESS,
        PassOutcome::Ran(_) => ExitCode::from(PARTIAL),
        PassOutcome::Busy { .. } => ExitCode::from(BUSY),
        PassOutcome::Standby => ExitCode::SUCCESS,
    })
}

async fn show_status(config: &Config, clock: &Clock, json: bool) -> Result<ExitCode> {
    let mut connection = connect(config).await?;
    let status = read_status(&mut connection, config, clock).await?;
    print(json, &status, text::status)?;
    Ok(ExitCode::SUCCESS)
}

async fn check(config: &Config, clock: &Clock, json: bool) -> Result<ExitCode> {
    let status = async {
        let mut connection = connect(config).await?;
        anyhow::Ok(read_status(&mut connection, config, clock).await?)
    };
    match status.await {
        Ok(status) => {
            print(json, &status, text::check)?;
            Ok(match status.severity {
                Severity::Info => ExitCode::SUCCESS,
                Severity::Warn => ExitCode::from(1),
                Severity::Fail => ExitCode::from(2),
            })
        }
        Err(error) => cannot_check(json, &error),
    }
}

/// What cannot be asked is not well.
fn cannot_check(json: bool, error: &anyhow::Error) -> Result<ExitCode> {
    let error = text::error(error);
    print(json, &serde_json::json!({ "severity": "fail", "error": error }), |_| {
        format!("fail: {error}")
    })?;
    Ok(ExitCode::from(2))
}
