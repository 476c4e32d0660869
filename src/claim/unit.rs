//! One unit of work on one connection: begun, and ended for certain.
//!
//! The invariant: a connection goes back to its pool only after its transaction has ended and the server has said so. A unit
//! that is dropped half-way, because its future was cancelled or its handler panicked, closes the connection, and the server
//! rolls back. A pool that is handed a connection in that state would give the open transaction to its next borrower. What is
//! open behind a commit is empty, and ends with what the pool asks the connection before it takes it.

use std::{
    future::Future,
    pin::pin,
    time::{Duration, Instant},
};

use futures_timer::Delay;
use futures_util::{
    StreamExt,
    future::{Either, select},
};
use sqlx::{
    AssertSqlSafe, Connection, PgPool, Postgres, Transaction,
    error::DatabaseError,
    pool::PoolConnection,
    postgres::{PgDatabaseError, PgSeverity},
};

use super::{BoxError, ClaimErrorKind, Inbox, ProcessError, answer::Receipt};
use crate::pure::{Routing, Sql, render};

/// The longest wait for the answer to a ROLLBACK: a statement that the handler walked away from may still be running.
const ROLLBACK_LIMIT: Duration = Duration::from_secs(5);

/// The longest wait for the answer to a COMMIT. A synchronous standby may delay it for seconds; beyond this it is settled on
/// another connection.
const COMMIT_LIMIT: Duration = Duration::from_secs(60);

/// A connection of a pool, and how the unit on it ended.
#[derive(Debug)]
pub(super) struct Unit<'i> {
    inbox: &'i Inbox,
    connection: Option<PoolConnection<Postgres>>,
    ended: bool,
}

/// What became of a COMMIT.
#[derive(Debug)]
pub(super) enum Commit {
    Done,
    /// The answer was lost, with the connection or behind it.
    Unanswered(sqlx::Error),
}

impl<'i> Unit<'i> {
    pub(super) async fn acquire(inbox: &'i Inbox, pool: &PgPool) -> Result<Self, ProcessError> {
        let connection = pool.acquire().await.map_err(ProcessError::Connection)?;
        Ok(Self {
            inbox,
            connection: Some(connection),
            ended: false,
        })
    }

    pub(super) async fn begin(&mut self) -> Result<Transaction<'_, Postgres>, ProcessError> {
        // A unit that does not begin has nothing to abandon, and its connection is closed.
        self.ended = true;
        // Never none before the unit has ended.
        let Some(connection) = self.connection.as_deref_mut() else {
            return Err(ProcessError::Connection(sqlx::Error::PoolClosed));
        };
        let begun = match self.inbox.routing() {
            // Whatever the role's default is.
            Routing::ProcessedAt => connection.begin_with("begin isolation level read committed").await,
            Routing::MessageId => connection.begin().await,
        };
        self.ended = begun.is_err();
        begun.map_err(ProcessError::Connection)
    }

    /// Ends the unit. The connection goes back to the pool if it is `clean`: the transaction has ended, and the server has
    /// said so. Otherwise it is closed.
    pub(super) fn end(mut self, clean: bool) {
        self.ended = true;
        if clean && !self.is_in_transaction() {
            drop(self.connection.take());
        }
    }

    /// Whether the driver counts a transaction yet. It ends the innermost one that it knows of: where a handler has begun one
    /// inside and leaked it, its ROLLBACK was a ROLLBACK TO.
    fn is_in_transaction(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.is_in_transaction())
    }
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            // Not left to the pool, whose clean-up is itself a task that can be cancelled.
            drop(connection.detach());
        }
        if !self.ended {
            self.inbox.count_unit("abandoned");
        }
    }
}

/// Commits, if there is something to commit: in the same round trip, and before, the server compares the transaction with the
/// claim's. In an aborted one the comparison fails, where COMMIT alone would be answered with ROLLBACK and the driver report
/// success. Another one than the claim's, or none, means that the handler ended the transaction itself.
///
/// It is no COMMIT of the driver's: where a handler has begun a transaction inside and leaked it, that would be a RELEASE.
///
/// # Errors
/// When nothing was committed.
pub(super) async fn commit(mut tx: Transaction<'_, Postgres>, receipt: &Receipt) -> Result<Commit, ProcessError> {
    let Some(transaction_id) = &receipt.transaction_id else {
        return Err(ProcessError::TransactionEnded);
    };
    let query = render(
        include_str!("../../sql/client/commit.sql"),
        &[("transaction_id", Sql::text(transaction_id))],
    );
    let mut is_of_the_claim = false;
    let committing = async {
        let mut answers = sqlx::raw_sql(AssertSqlSafe(query)).fetch_many(&mut *tx);
        while let Some(answer) = answers.next().await {
            is_of_the_claim |= answer?.is_right();
        }
        Ok(())
    };
    match within(COMMIT_LIMIT, committing).await {
        Some(Ok(())) => Ok(Commit::Done),
        // An error, and not the end of the session: the server has rolled back.
        Some(Err(error)) if is_plain_error(&error) => Err(match ClaimErrorKind::of(&error) {
            _ if is_of_the_claim => ProcessError::Commit(error),
            ClaimErrorKind::Aborted => ProcessError::ErrorPassedOver(error),
            _ if is_division_by_zero(&error) => ProcessError::TransactionEnded,
            _ => ProcessError::Commit(error),
        }),
        Some(Err(error)) => Ok(Commit::Unanswered(error)),
        None => Ok(Commit::Unanswered(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))),
    }
}

fn is_division_by_zero(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(DatabaseError::code).as_deref() == Some("22012")
}

/// Whether the server answered with an error after which the session goes on. A pooler's word that the server is gone is
/// none, however severe it calls that.
fn is_plain_error(error: &sqlx::Error) -> bool {
    ClaimErrorKind::of(error) != ClaimErrorKind::Connection
        && error
            .as_database_error()
            .and_then(|error| error.try_downcast_ref::<PgDatabaseError>())
            .is_some_and(|error| error.severity() == PgSeverity::Error)
}

/// Rolls back on a connection that is idle. False when it is not, or when the server does not say so in time; the connection
/// is to be closed then.
pub(super) async fn roll_back(tx: Transaction<'_, Postgres>, idle: bool) -> bool {
    idle && matches!(within(ROLLBACK_LIMIT, tx.rollback()).await, Some(Ok(())))
}

/// Runs a handler within the time that it is allowed, and times it.
pub(super) async fn run<T, E: Into<BoxError>>(
    inbox: &Inbox,
    handler: impl Future<Output = Result<T, E>>,
) -> Result<T, ProcessError> {
    let began = Instant::now();
    let result = match inbox.handler_timeout() {
        None => handler.await,
        Some(limit) => match within(limit, handler).await {
            Some(result) => result,
            None => return Err(ProcessError::HandlerTimeout { limit }),
        },
    };
    inbox.count_handler(began.elapsed());
    result.map_err(|error| ProcessError::Handler(error.into()))
}

/// The output of a future, unless it takes longer.
pub(super) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    match select(pin!(future), pin!(sleep(limit))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// Waits so long, by the timer of tokio where that is the consumer's runtime, and by one that asks no runtime elsewhere. That one
/// has a thread of its own, which is woken at each beginning and end of a wait, and each delivery has several that never end.
pub(super) async fn sleep(pause: Duration) {
    #[cfg(feature = "middleware")]
    if tokio::runtime::Handle::try_current().is_ok() {
        return tokio::time::sleep(pause).await;
    }
    Delay::new(pause).await;
}

/// A pause before the next attempt: longer each time, and never the same for two who collided.
pub(super) async fn pause(attempt: u32) {
    use std::hash::{BuildHasher, RandomState};
    const SHORTEST_MS: u64 = 10;
    const LONGEST_MS: u64 = 1_000;
    let ceiling = (SHORTEST_MS << attempt.min(7)).min(LONGEST_MS);
    let jitter = RandomState::new().hash_one(attempt) % ceiling;
    sleep(Duration::from_millis(ceiling / 2 + jitter / 2)).await;
}
