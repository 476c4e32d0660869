//! Our own database sessions: settings fixed at their start, whatever the role or database says.

use std::time::Duration;

use sqlx::{ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};

use super::error::{DbError, ErrorKind};

/// The limits of a session's statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// The longest wait for one lock.
    pub lock: Duration,
    /// The longest that one statement runs.
    pub statement: Duration,
}

impl Timeouts {
    /// Two seconds: longer than most business transactions last, shorter than anybody would notice.
    pub const DEFAULT_LOCK: Duration = Duration::from_secs(2);
    /// Half a minute: our statements take milliseconds; what takes longer waits for something.
    pub const DEFAULT_STATEMENT: Duration = Duration::from_secs(30);
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            lock: Self::DEFAULT_LOCK,
            statement: Self::DEFAULT_STATEMENT,
        }
    }
}

/// Connection options under which our sessions behave the same everywhere.
///
/// The settings travel in the connection's first packet. There they outrank those of the role and of the database, and
/// no statement runs before they hold.
#[must_use]
pub fn session_options(options: &PgConnectOptions, application_name: &str, timeouts: Timeouts) -> PgConnectOptions {
    let millis = |duration: Duration| duration.as_millis().max(1).to_string();
    options
        .clone()
        .application_name(application_name)
        .options([
            ("search_path", "pg_catalog,pg_temp".to_owned()),
            ("lock_timeout", millis(timeouts.lock)),
            ("statement_timeout", millis(timeouts.statement)),
            // Ours hold no transaction open while they think; one that does has lost its process.
            ("idle_in_transaction_session_timeout", "60000".to_owned()),
            ("default_transaction_isolation", "read committed".to_owned()),
            ("standard_conforming_strings", "on".to_owned()),
            ("client_min_messages", "warning".to_owned()),
            // A partition's tablespace is its inbox's, not the role's.
            ("default_tablespace", String::new()),
            ("jit", "off".to_owned()),
            // A dead peer is noticed within a minute instead of two hours, and its locks go.
            ("tcp_keepalives_idle", "30".to_owned()),
            ("tcp_keepalives_interval", "10".to_owned()),
            ("tcp_keepalives_count", "3".to_owned()),
        ])
        .disable_statement_logging()
}

/// What PostgreSQL and poolers answer to a first packet that they do not understand.
const PROTOCOL_VIOLATION: &str = "08P01";

const DIRECTLY: &str =
    "inboxd needs a session of its own; connect to PostgreSQL directly, not through a pooler such as pgbouncer";

/// Opens one connection of our own, and makes sure that our settings hold on it: a pooler in between may refuse or drop
/// them, and session locks taken through one would stay behind.
///
/// # Errors
/// When the server cannot be reached within ten seconds, refuses us, or our settings do not arrive.
pub async fn connect(
    options: &PgConnectOptions,
    application_name: &str,
    timeouts: Timeouts,
) -> Result<PgConnection, DbError> {
    let options = session_options(options, application_name, timeouts);
    let place = describe(&options);
    // Only the opening of a connection is ever cut short; what runs on it is bounded by the server.
    let connecting = tokio::time::timeout(Duration::from_secs(10), open(&options));
    let (connection, settings_hold) = match connecting.await {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => {
            let error = DbError::new(format!("cannot connect to {place}"), error);
            return Err(match error.sqlstate().as_deref() {
                Some(PROTOCOL_VIOLATION) => error.meaning(ErrorKind::Refused, DIRECTLY),
                _ => error,
            });
        }
        Err(_) => {
            return Err(DbError::noticed(
                ErrorKind::Unreachable,
                format!("cannot connect to {place}: no answer within 10 s"),
            ));
        }
    };
    if !settings_hold {
        return Err(DbError::noticed(
            ErrorKind::Refused,
            format!("{place}: our session settings do not arrive; {DIRECTLY}"),
        ));
    }
    Ok(connection)
}

async fn open(options: &PgConnectOptions) -> Result<(PgConnection, bool), sqlx::Error> {
    let mut connection = PgConnection::connect_with(options).await?;
    let settings_hold = sqlx::query_scalar(include_str!("../../sql/observe/settings_hold.sql"))
        // Not by name: a pooler may hand us a session in which that name is taken.
        .persistent(false)
        .fetch_one(&mut connection)
        .await?;
    Ok((connection, settings_hold))
}

/// Where the options lead to, without a password.
#[must_use]
pub fn describe(options: &PgConnectOptions) -> String {
    let host = options
        .get_socket()
        .map_or_else(|| options.get_host().to_owned(), |socket| socket.display().to_string());
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    format!(
        "database {database:?} at {host}:{} as {:?}",
        options.get_port(),
        options.get_username()
    )
}
