//! The configuration: one TOML file plus environment, every value checked before the first connection.

mod check;
mod http;
mod inbox;
mod keys;
mod problems;
mod raw;
#[cfg(test)]
mod tests;
mod tokens;
mod webhook;

use std::{collections::HashMap, net::SocketAddr, path::Path};

use sqlx::postgres::PgConnectOptions;

pub use self::{
    keys::{Accepts, KEYS, Key, reference},
    tokens::{Access, Tokens},
    webhook::{Secret, Webhook},
};
use super::cron::Schedule;
use crate::{maintain::Retries, postgres::Timeouts, pure::InboxSpec};

/// The prefix of environment variables that set a key: `INBOXD_SCHEDULE__CRON` sets `schedule.cron`.
const ENV_PREFIX: &str = "INBOXD_";

/// Variables with that prefix that are no keys: options of the command line, and what a `before_drop` command is told, which
/// may run inboxd itself.
const ENV_OPTIONS: &[&str] = &[
    "INBOXD_CONFIG",
    "INBOXD_STATE_DIR",
    "INBOXD_JSON",
    "INBOXD_INBOX",
    "INBOXD_SCHEMA",
    "INBOXD_TABLE",
    "INBOXD_DAY",
    "INBOXD_FROM",
    "INBOXD_TO",
];

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name under which a set of replicas manages its inboxes.
    pub deployment: String,
    /// The databases, at least one, each with its inboxes.
    pub databases: Vec<Database>,
    /// When a pass runs.
    pub schedule: Schedule,
    /// The limits of maintenance statements.
    pub timeouts: Timeouts,
    /// How a step is retried.
    pub retries: Retries,
    /// How HTTP is served.
    pub http: Http,
    /// Where changes of health are posted; none where that is not configured.
    pub webhook: Option<Webhook>,
    /// How logs look.
    pub log: Log,
}

/// How HTTP is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Where.
    pub listen: SocketAddr,
    /// Names by which it may be asked, beside loopback's and the address itself, in lower case.
    pub hosts: Vec<String>,
    /// Who may ask.
    pub tokens: Tokens,
    /// Whether metrics are shown without a token.
    pub open_metrics: bool,
}

/// One database with its inboxes.
#[derive(Clone)]
pub struct Database {
    /// Its name in the configuration.
    pub name: String,
    /// How to connect; none when no URL is configured.
    pub options: Option<PgConnectOptions>,
    /// Its inboxes.
    pub inboxes: Vec<InboxSpec>,
}

impl Database {
    /// How to connect.
    ///
    /// # Errors
    /// When no URL is configured.
    pub fn connect_options(&self) -> Result<&PgConnectOptions, NoDatabase> {
        self.options.as_ref().ok_or(NoDatabase)
    }
}

/// No database is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no database is configured: set DATABASE_URL or `[database] url` (postgres://user:password@host/database); \
     `inboxd serve --embedded` tries it with a private PostgreSQL"
)]
pub struct NoDatabase;

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = self
            .options
            .as_ref()
            .map_or_else(|| "no URL".to_owned(), crate::postgres::describe);
        f.debug_struct("Database")
            .field("name", &self.name)
            .field("place", &place)
            .field("inboxes", &self.inboxes)
            .finish()
    }
}

/// How logs look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Whether each line is a JSON object.
    pub json: bool,
    /// What is logged, as tracing's filter directives.
    pub filter: String,
}

/// Everything that is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read, is no TOML, or has a key that is not known.
    #[error("configuration: {0}")]
    Unreadable(String),
    /// Values outside their accepted range, a line each.
    #[error("configuration: {}", .0.join("\nconfiguration: "))]
    Refused(Vec<String>),
}

impl Config {
    /// Reads the file, if one is given, then the environment on top of it, and checks every value.
    ///
    /// `environment` holds the variables of the process: those that begin with `INBOXD_` set keys (`__` stands for the
    /// dot), `DATABASE_URL` sets `database.url`, and access tokens may be held by others that the file names.
    ///
    /// # Errors
    /// Names each key, its value and what is accepted. Nothing is connected to.
    pub fn load(file: Option<&Path>, environment: HashMap<String, String>) -> Result<Self, ConfigError> {
        let database_url = environment.get("DATABASE_URL").filter(|url| !url.is_empty()).cloned();
        let ours = environment
            .iter()
            .filter(|(key, _)| key.starts_with(ENV_PREFIX) && !ENV_OPTIONS.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let mut builder = config::Config::builder();
        if let Some(file) = file {
            builder = builder.add_source(config::File::from(file).format(config::FileFormat::Toml));
        }
        let source = config::Environment::with_prefix("INBOXD")
            .prefix_separator("_")
            .separator("__")
            .source(Some(ours));
        let raw: raw::Raw = builder
            .add_source(source)
            .build()
            .and_then(config::Config::try_deserialize)
            .map_err(|error| ConfigError::Unreadable(tell(&error)))?;
        check::check(raw, database_url, &environment).map_err(ConfigError::Refused)
    }
}

fn may_be_secret(key: &str) -> bool {
    key.starts_with("database") || key.starts_with("webhook") || key.contains("_tokens")
}

/// What the reader found, without what may be a password.
fn tell(error: &config::ConfigError) -> String {
    let shown = || error.to_string();
    let hidden =
        |key: &str| format!("{key} is of the wrong type; it is not shown, for it may hold a password or a token");
    match error {
        config::ConfigError::At {
            key: Some(key), error, ..
        } if may_be_secret(key) => match **error {
            // Of the wrong type, and serde shows what it found.
            config::ConfigError::Message(ref message) if message.starts_with("invalid") => hidden(key),
            _ => shown(),
        },
        config::ConfigError::Type { key: Some(key), .. } if may_be_secret(key) => hidden(key),
        // The parser quotes the line that it stumbled over, whatever stands in it.
        config::ConfigError::FileParse { .. } => shown()
            .lines()
            .filter(|line| {
                !line
                    .trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit())
                    .starts_with('|')
            })
            .collect::<Vec<_>>()
            .join(": "),
        _ => shown(),
    }
}
