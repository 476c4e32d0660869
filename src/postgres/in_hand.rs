//! What another session of ours has in hand: whether it is still the same, and its end.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::error::{DbError, Doing};

/// The process that serves a session. Its number alone could be another's by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backend {
    pub(crate) pid: i32,
    began_at: DateTime<Utc>,
}

/// The process that serves this session.
///
/// # Errors
/// When the database fails.
pub(crate) async fn backend(connection: &mut PgConnection) -> Result<Backend, DbError> {
    let (pid, began_at) = sqlx::query_as(include_str!("../../sql/lock/session_pid.sql"))
        .fetch_one(connection)
        .await
        .doing(|| "ask for the session's process".to_owned())?;
    Ok(Backend { pid, began_at })
}

/// What a session was seen to do. Two that are equal are one that has not gone on in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It has a statement in hand.
    InHand {
        /// When that began, by the server's clock.
        began_at: Option<DateTime<Utc>>,
        /// Whether it builds a key or a digest, which has a limit of its own.
        builds: bool,
    },
    /// It waits for us.
    Idle {
        /// When its last statement began, by the server's clock.
        last_began_at: Option<DateTime<Utc>>,
    },
    /// It is no more.
    Gone,
}

/// Looks at a session.
///
/// # Errors
/// When the database fails.
pub(crate) async fn look(connection: &mut PgConnection, backend: Backend) -> Result<Seen, DbError> {
    let found: Option<(bool, Option<DateTime<Utc>>, bool)> =
        sqlx::query_as(include_str!("../../sql/lock/statement.sql"))
            .bind(backend.pid)
            .bind(backend.began_at)
            .fetch_optional(connection)
            .await
            .doing(|| "look at the statement in hand".to_owned())?;
    Ok(match found {
        None => Seen::Gone,
        Some((true, began_at, builds)) => Seen::InHand { began_at, builds },
        Some((false, last_began_at, _)) => Seen::Idle { last_began_at },
    })
}

/// Cancels it. What it did is rolled back, but for a concurrent detach, which the next run finalizes.
///
/// # Errors
/// When the database fails.
pub(crate) async fn cancel(connection: &mut PgConnection, backend: Backend) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/lock/cancel.sql"))
        .bind(backend.pid)
        .bind(backend.began_at)
        .execute(connection)
        .await
        .doing(|| "cancel the statement in hand".to_owned())?;
    Ok(())
}

/// Ends the session. What it did is rolled back as by [`cancel`], and the run lock is free.
///
/// # Errors
/// When the database fails.
pub(crate) async fn end(connection: &mut PgConnection, backend: Backend) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/lock/end_session.sql"))
        .bind(backend.pid)
        .bind(backend.began_at)
        .execute(connection)
        .await
        .doing(|| "end the session".to_owned())?;
    Ok(())
}
