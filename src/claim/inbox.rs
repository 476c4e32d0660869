//! An inbox as a consumer sees it: what its claim functions were made with, and how this consumer uses them.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use metrics::SharedString;
use sqlx::{AssertSqlSafe, PgConnection, Row, postgres::PgRow};

use super::{ClaimConstants, call};
use crate::pure::{Consumers, Derived, Function, IdentError, Routing, Sql, TableName, render};

/// The oldest claim functions that this library can call.
const OLDEST_VERSION: u32 = 1;

/// Why an inbox could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Not a name that an inbox can have.
    #[error(transparent)]
    Name(#[from] IdentError),
    /// No claim function stands beside the table, or no such table.
    #[error(
        "database has no function {table}_claim(uuid, text, timestamptz, text): run `inboxd init`, or connect to the \
         database that holds inbox {table}"
    )]
    NotFound {
        /// The inbox.
        table: TableName,
    },
    /// The function is not inboxd's, or says what this version cannot read.
    #[error("the comment of function {table}_claim does not say what it was made with: run `inboxd init`")]
    Unreadable {
        /// The inbox.
        table: TableName,
    },
    /// The functions are older than this library can call.
    #[error(
        "the claim functions of inbox {table} have version {found}, at least {OLDEST_VERSION} is needed: run `inboxd init`"
    )]
    TooOld {
        /// The inbox.
        table: TableName,
        /// Their version.
        found: u32,
    },
    /// The role may not claim.
    #[error(
        "role {role:?} may not claim in inbox {table}: name it in the inbox's consumer_roles and run `inboxd init`"
    )]
    Privilege {
        /// The inbox.
        table: TableName,
        /// The role of the connection.
        role: String,
    },
    /// The database failed.
    #[error("cannot open the inbox")]
    Database(#[from] sqlx::Error),
}

/// An inbox that a consumer claims messages in. Cheap to clone; holds no connection.
///
/// # Examples
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use inboxd::claim::Inbox;
///
/// let inbox = Inbox::open(&mut *pool.acquire().await?, "sales.inbox")
///     .await?
///     .with_handler_timeout(Duration::from_secs(20));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Inbox {
    made: Arc<Made>,
    wait: Option<Duration>,
    attempts: u32,
    handler_timeout: Option<Duration>,
    settle_timeout: Duration,
    prepares: bool,
}

/// What is read once.
#[derive(Debug)]
struct Made {
    table: TableName,
    label: SharedString,
    constants: ClaimConstants,
    try_claim: Sql,
    prepared_claim: Arc<str>,
    claim_batch: Sql,
    /// The server ends a session whose transaction idles longer.
    session_limit: Option<Duration>,
}

impl Inbox {
    /// Five seconds: longer than most handlers take, and a pool full of duplicates of one slow message is free again soon.
    pub const DEFAULT_WAIT: Duration = Duration::from_secs(5);

    /// Three: a conflict that comes back twice is more than bad luck.
    pub const DEFAULT_ATTEMPTS: u32 = 3;

    /// Ten seconds: long enough for a connection pooler to notice a failover that was quick.
    pub const DEFAULT_SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

    /// Reads what the inbox's claim functions were made with, and whether this role may call them. The name is written as in
    /// SQL; without a schema it is in `public`.
    ///
    /// # Errors
    /// When the inbox is not there, was not made by `inboxd init`, is too old for this library, or may not be used by this
    /// role; each error names the remedy.
    pub async fn open(connection: &mut PgConnection, name: &str) -> Result<Self, OpenError> {
        let table: TableName = name.parse()?;
        let query = render(
            include_str!("../../sql/client/open.sql"),
            &[
                ("schema", Sql::text(table.schema().as_str())),
                (
                    "function",
                    Sql::text(table.derive(Derived::Function(Function::Claim))?.as_str()),
                ),
            ],
        );
        let row = sqlx::raw_sql(AssertSqlSafe(query)).fetch_optional(connection).await?;
        let Some(row) = row else {
            return Err(OpenError::NotFound { table });
        };
        let comment: Option<String> = row.try_get("comment")?;
        let Some(constants) = comment.as_deref().and_then(ClaimConstants::from_comment) else {
            return Err(OpenError::Unreadable { table });
        };
        if constants.version < OLDEST_VERSION {
            return Err(OpenError::TooOld {
                table,
                found: constants.version,
            });
        }
        if !row.try_get::<bool, _>("may_claim")? {
            return Err(OpenError::Privilege {
                table,
                role: row.try_get("role")?,
            });
        }
        let function = |function| {
            table
                .derive(Derived::Function(function))
                .map(|name| Sql::in_schema(table.schema(), &name))
        };
        Ok(Self {
            made: Arc::new(Made {
                label: SharedString::from_shared(table.to_string().into()),
                try_claim: function(Function::TryClaim)?,
                prepared_claim: call::prepared(function(Function::TryClaim)?).into(),
                claim_batch: function(Function::ClaimBatch)?,
                session_limit: session_limit(&row)?,
                constants,
                table,
            }),
            wait: Some(Self::DEFAULT_WAIT),
            attempts: Self::DEFAULT_ATTEMPTS,
            handler_timeout: None,
            settle_timeout: Self::DEFAULT_SETTLE_TIMEOUT,
            prepares: false,
        })
    }

    /// Sets how long a claim waits for a transaction that holds the same message, before it is [`super::Claim::InFlight`].
    /// Zero does not wait at all. The default is [`Inbox::DEFAULT_WAIT`].
    ///
    /// A bound costs each call a subtransaction, hence a transaction id more.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Lets a claim wait for its twin without bound. Each waiting claim keeps its connection: a pool can run dry behind one
    /// slow message.
    #[must_use]
    pub fn with_unbounded_wait(mut self) -> Self {
        self.wait = None;
        self
    }

    /// Sets how often a unit of work is tried that meets a serialization failure or a deadlock, at least once. The default is
    /// [`Inbox::DEFAULT_ATTEMPTS`].
    #[must_use]
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Bounds each handler: one that takes longer is dropped, and its connection closed. A statement of it that is running then
    /// goes on to its end on the server, which rolls back only after it; until then the message is in flight. Without a bound
    /// a handler takes as long as it takes.
    ///
    /// Warns in the log when the server would end the session of a handler that waits that long for something else
    /// (`idle_in_transaction_session_timeout`, `transaction_timeout`).
    #[must_use]
    pub fn with_handler_timeout(mut self, timeout: Duration) -> Self {
        if let Some(limit) = self.made.session_limit.filter(|limit| *limit < timeout) {
            tracing::warn!(
                inbox = %self.made.table,
                session_limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
                handler_timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
                "the server ends a transaction that idles for less time than a handler may take; \
                 raise idle_in_transaction_session_timeout or transaction_timeout for this role, or lower the handler's timeout"
            );
        }
        self.handler_timeout = Some(timeout);
        self
    }

    /// Bounds the time in which it is found out what became of a COMMIT whose answer was lost. The default is
    /// [`Inbox::DEFAULT_SETTLE_TIMEOUT`].
    #[must_use]
    pub fn with_settle_timeout(mut self, timeout: Duration) -> Self {
        self.settle_timeout = timeout;
        self
    }

    /// Lets the driver prepare the claim of a single message, once in each session, which saves the server most of the time
    /// for its plan.
    ///
    /// Only where connections reach the server itself, or through a pooler that keeps prepared statements (pgbouncer from 1.21
    /// with `max_prepared_statements`): behind any other one in transaction mode claims fail, with `prepared statement … does
    /// not exist`. Without it nothing is ever prepared.
    #[must_use]
    pub fn with_prepared_statements(mut self) -> Self {
        self.prepares = true;
        self
    }

    /// Its table.
    #[must_use]
    pub fn table(&self) -> &TableName {
        &self.made.table
    }

    /// What its claim functions were made with.
    #[must_use]
    pub fn constants(&self) -> &ClaimConstants {
        &self.made.constants
    }

    /// What chooses the day of a claim.
    #[must_use]
    pub fn routing(&self) -> Routing {
        self.made.constants.routing
    }

    /// Whether a claim must name its consumer.
    #[must_use]
    pub fn consumers(&self) -> Consumers {
        self.made.constants.consumers
    }

    /// How long a claim is remembered; none for ever.
    #[must_use]
    pub fn retention(&self) -> Option<TimeDelta> {
        self.made.constants.retention_seconds.and_then(TimeDelta::try_seconds)
    }

    pub(super) fn label(&self) -> SharedString {
        self.made.label.clone()
    }

    pub(super) fn try_claim(&self) -> Sql {
        self.made.try_claim.clone()
    }

    /// The claim to be prepared, if it is to be.
    pub(super) fn prepared_claim(&self) -> Option<Arc<str>> {
        self.prepares.then(|| self.made.prepared_claim.clone())
    }

    pub(super) fn batch_function(&self) -> Sql {
        self.made.claim_batch.clone()
    }

    pub(super) fn wait(&self) -> Option<Duration> {
        self.wait
    }

    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    pub(super) fn handler_timeout(&self) -> Option<Duration> {
        self.handler_timeout
    }

    pub(super) fn settle_timeout(&self) -> Duration {
        self.settle_timeout
    }
}

/// The shorter of the two limits after which the server ends a session in the middle of a transaction; 0 is none.
fn session_limit(row: &PgRow) -> Result<Option<Duration>, sqlx::Error> {
    let mut limits = Vec::new();
    for name in ["idle_limit_ms", "transaction_limit_ms"] {
        limits.extend(row.try_get::<Option<i64>, _>(name)?);
    }
    let shortest = limits
        .into_iter()
        .filter_map(|millis| u64::try_from(millis).ok())
        .filter(|millis| *millis > 0)
        .min();
    Ok(shortest.map(Duration::from_millis))
}
