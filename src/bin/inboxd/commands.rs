//! Each command, composed from the library.

use std::{collections::HashMap, io::IsTerminal, process::ExitCode};

use anyhow::{Context, Result};
use inboxd::{
    Event, Scenario, Severity,
    clock::Clock,
    maintain::{init, plan_all, takeover},
    postgres::{self, DbError},
    service::{
        DatabaseStatus, Guarded, Status,
        config::{Config, Database, Log},
        read_status, serve,
    },
    simulate,
};
use sqlx::PgConnection;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{Layer, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    args::{Arguments, Command, Serve, Simulate},
    carried,
    embedded::Private,
    operate::{self, Operating},
    run, text,
};

/// `run`, `restore`: another run is going.
pub(crate) const BUSY: u8 = 4;

pub(crate) async fn execute(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { config, json, command } = arguments;
    match command {
        Command::Completions { shell } => return Ok(carried::completions(shell)),
        Command::Man { folder } => return carried::manual(&folder),
        _ => {}
    }
    let config = match Config::load(config.as_deref(), environment()) {
        Ok(config) => config,
        // 1 would tell a probe of a mere warning.
        Err(error) if matches!(command, Command::Check) => return cannot_check(json, &error.into()),
        Err(error) => return Err(error.into()),
    };
    let is_service = matches!(command, Command::Serve(_));
    let exporting = if is_service {
        Exporting::start()?
    } else {
        Exporting::default()
    };
    log(&config.log, is_service, &exporting);
    let clock = Clock::system();
    match command {
        Command::Serve(options) => {
            let code = run_service(config, options, clock, json).await;
            exporting.end().await;
            code
        }
        Command::Init => initialize(&config, &clock, json).await,
        Command::Plan => show_plan(&config, &clock, json).await,
        Command::Run(options) => run::once(&config, options, &clock, json).await,
        Command::Simulate(options) => show_simulation(&config, options, &clock, json).await,
        Command::Takeover => take_over(&config, json).await,
        Command::Status => show_status(&config, &clock, json).await,
        Command::Check => check(&config, &clock, json).await,
        other => {
            let operating = Operating::new(&config, &clock, json)?;
            operate::execute(operating, other).await
        }
    }
}

/// The variables of this process. A name that is no text is none of ours; in a value, what is no text is marked.
fn environment() -> HashMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .collect()
}

/// The service logs to standard error; other commands only what goes wrong, for their output is the answer.
fn log(log: &Log, is_service: bool, exporting: &Exporting) {
    let filter = if is_service {
        log.filter.clone()
    } else {
        "warn".to_owned()
    };
    // The text was checked with the configuration.
    let filter = tracing_subscriber::EnvFilter::try_new(filter).unwrap_or_default();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = if log.json { lines.json().boxed() } else { lines.boxed() };
    tracing_subscriber::registry()
        .with(lines)
        .with(exporting.layer())
        .with(filter)
        .init();
}

/// The export of spans, where it is built in and an endpoint is configured.
#[derive(Default)]
struct Exporting {
    #[cfg(feature = "otlp")]
    otlp: Option<inboxd::service::otlp::Exporting>,
}

#[cfg(feature = "otlp")]
impl Exporting {
    fn start() -> Result<Self> {
        let otlp = inboxd::service::otlp::Exporting::start(&environment());
        let otlp = otlp.map_err(|error| anyhow::anyhow!("cannot export spans over OTLP: {error}"))?;
        Ok(Self { otlp })
    }

    fn layer<S>(&self) -> Option<impl Layer<S> + Send + Sync + use<S>>
    where
        S: tracing::Subscriber + for<'span> tracing_subscriber::registry::LookupSpan<'span> + Send + Sync,
    {
        self.otlp.as_ref().map(inboxd::service::otlp::Exporting::layer)
    }

    async fn end(self) {
        if let Some(otlp) = self.otlp {
            otlp.end().await;
        }
    }
}

#[cfg(not(feature = "otlp"))]
impl Exporting {
    fn start() -> Result<Self> {
        Ok(Self::default())
    }

    fn layer(&self) -> Option<tracing_subscriber::layer::Identity> {
        None
    }

    async fn end(self) {}
}

pub(crate) fn print<T: serde::Serialize>(json: bool, value: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
    let text = if json {
        serde_json::to_string_pretty(value).context("write JSON")?
    } else {
        text(value)
    };
    if text.is_empty() {
        return Ok(()); // Everything failed, and standard error has said so.
    }
    // A reader that has gone (`inboxd status | head`) is no error.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), format!("{}\n", text.trim_end()).as_bytes());
    Ok(())
}

async fn run_service(mut config: Config, options: Serve, clock: Clock, json: bool) -> Result<ExitCode> {
    let shutdown = CancellationToken::new();
    // Before anything is started, so that no signal finds the default handler.
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let private = if options.embedded {
        Some(Private::start(&mut config, &options, &clock).await?)
    } else {
        None
    };
    for database in &config.databases {
        database.connect_options()?;
    }
    let next: Vec<String> = config
        .schedule
        .next(clock.now(), 3)
        .iter()
        .map(chrono::DateTime::to_rfc3339)
        .collect();
    let places: Vec<String> = config
        .databases
        .iter()
        .filter_map(|database| database.options.as_ref().map(postgres::describe))
        .collect();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        deployment = config.deployment,
        databases = places.join(", "),
        inboxes = config.databases.iter().map(|database| database.inboxes.len()).sum::<usize>(),
        schedule = %config.schedule,
        next_runs = next.join(", "),
        // Its Debug shows neither passwords nor tokens.
        config = ?config,
        "inboxd starts"
    );
    let tables: Vec<_> = config
        .databases
        .iter()
        .flat_map(|database| &database.inboxes)
        .map(|spec| spec.table.clone())
        .collect();
    let mut serving = serve(config, clock, shutdown.clone()).await?;
    let address = serving.address();
    tracing::info!(%address, "HTTP is served: /livez, /readyz, /v1/status");
    serving.tell_systemd();
    if let Some(private) = &private {
        print(json, &private.greeting(&tables, address), text::greeting)?;
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

/// What a command did to each database.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Answers<T> {
    pub(crate) databases: Vec<Answer<T>>,
}

/// What a command did to one database.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Answer<T> {
    pub(crate) database: String,
    #[serde(flatten)]
    pub(crate) result: Answered<T>,
}

#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
pub(crate) enum Answered<T> {
    Done(T),
    Failed { error: String },
}

/// What a command did to the inboxes of one database.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Inboxes<T> {
    pub(crate) inboxes: Vec<T>,
}

impl<T> Answers<T> {
    pub(crate) fn done(&self) -> impl Iterator<Item = &T> {
        self.databases.iter().filter_map(|answer| match &answer.result {
            Answered::Done(done) => Some(done),
            Answered::Failed { .. } => None,
        })
    }

    /// 1 when a database failed, whatever became of the others.
    pub(crate) fn exit_code(&self) -> ExitCode {
        let failed = self
            .databases
            .iter()
            .any(|answer| matches!(answer.result, Answered::Failed { .. }));
        if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Asks each database in turn. One that fails says so on standard error, and the others go on.
pub(crate) async fn each<T, E>(
    config: &Config,
    ask: impl AsyncFn(&Database, &mut PgConnection) -> Result<T, E>,
) -> Answers<T>
where
    E: Into<anyhow::Error>,
{
    each_under(&Guarded::new(config), config, ask).await
}

/// The same under a guard that whoever asks knows.
pub(crate) async fn each_under<T, E>(
    guarded: &Guarded,
    config: &Config,
    ask: impl AsyncFn(&Database, &mut PgConnection) -> Result<T, E>,
) -> Answers<T>
where
    E: Into<anyhow::Error>,
{
    let mut databases = Vec::new();
    for database in &config.databases {
        let asking = async {
            let asked = guarded.session(config, database, async |connection| ask(database, connection).await);
            asked.await?.map_err(Into::into)
        };
        let result = match asking.await {
            Ok(done) => Answered::Done(done),
            Err(error) => {
                let error = text::error(&error);
                match config.databases.len() {
                    1 => eprintln!("inboxd: {error}"),
                    _ => eprintln!("inboxd: database {}: {error}", database.name),
                }
                Answered::Failed { error }
            }
        };
        databases.push(Answer {
            database: database.name.clone(),
            result,
        });
    }
    Answers { databases }
}

async fn initialize(config: &Config, clock: &Clock, json: bool) -> Result<ExitCode> {
    let answers = each(config, async |database, connection| {
        init(connection, &database.inboxes, &config.deployment, clock).await
    })
    .await;
    print(json, &answers, text::init)?;
    Ok(answers.exit_code())
}

async fn show_plan(config: &Config, clock: &Clock, json: bool) -> Result<ExitCode> {
    let answers = each(config, async |database, connection| {
        let (_, inboxes) = plan_all(connection, &database.inboxes, &config.deployment, clock).await?;
        Ok::<_, DbError>(Inboxes { inboxes })
    })
    .await;
    print(json, &answers, text::plan)?;
    Ok(answers.exit_code())
}

async fn show_simulation(config: &Config, options: Simulate, clock: &Clock, json: bool) -> Result<ExitCode> {
    let scenario = Scenario {
        outages: options.outage,
        jumps: options.jump,
    };
    let answers = each(config, async |database, connection| {
        let (observation, _) = plan_all(connection, &database.inboxes, &config.deployment, clock).await?;
        let now = observation.server.now;
        let end = now + chrono::TimeDelta::days(i64::from(options.days));
        let inboxes = database.inboxes.iter().zip(observation.inboxes);
        let inboxes = inboxes
            .map(|(spec, observed)| {
                let runs = std::iter::once(now).chain(config.schedule.between(now, end));
                Simulated {
                    inbox: spec.name.clone(),
                    events: simulate(&spec.policy, observed.found, runs, &scenario),
                }
            })
            .collect();
        Ok::<_, DbError>(Inboxes { inboxes })
    })
    .await;
    print(json, &answers, text::simulation)?;
    Ok(answers.exit_code())
}

/// What would happen to one inbox.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Simulated {
    pub(crate) inbox: String,
    pub(crate) events: Vec<Event>,
}

async fn take_over(config: &Config, json: bool) -> Result<ExitCode> {
    let answers = each(config, async |database, connection| {
        Ok::<_, DbError>(Inboxes {
            inboxes: takeover(connection, &database.inboxes, &config.deployment).await?,
        })
    })
    .await;
    print(json, &answers, text::takeover)?;
    Ok(answers.exit_code())
}

/// The status, with the errors of the databases that cannot be read.
async fn status(config: &Config, clock: &Clock) -> (Status, ExitCode) {
    let answers = each(config, async |database, connection| {
        read_status(connection, config, database, clock).await
    })
    .await;
    let code = answers.exit_code();
    let databases = answers.databases.into_iter().map(|answer| match answer.result {
        Answered::Done(status) => status,
        Answered::Failed { error } => DatabaseStatus::unreadable(&answer.database, error),
    });
    (Status::of(config, databases.collect(), clock.now()), code)
}

async fn show_status(config: &Config, clock: &Clock, json: bool) -> Result<ExitCode> {
    let (status, code) = status(config, clock).await;
    if json || status.databases.iter().any(|database| database.error.is_none()) {
        print(json, &status, text::status)?;
    }
    Ok(code)
}

/// What cannot be read is not well: its severity is fail.
async fn check(config: &Config, clock: &Clock, json: bool) -> Result<ExitCode> {
    let (status, _) = status(config, clock).await;
    print(json, &status, text::check)?;
    Ok(match status.severity {
        Severity::Info => ExitCode::SUCCESS,
        Severity::Warn => ExitCode::from(1),
        Severity::Fail => ExitCode::from(2),
    })
}

/// What cannot be asked is not well.
fn cannot_check(json: bool, error: &anyhow::Error) -> Result<ExitCode> {
    let error = text::error(error);
    print(json, &serde_json::json!({ "severity": "fail", "error": error }), |_| {
        format!("fail: {error}")
    })?;
    Ok(ExitCode::from(2))
}
