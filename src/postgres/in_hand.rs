//! The statement that another session of ours has in hand: whether it is still the same, and its end.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::error::{DbError, Doing};

/// The process that serves this session.
///
/// # Errors
/// When the database fails.
pub(crate) async fn session_pid(connection: &mut PgConnection) -> Result<i32, DbError> {
    sqlx::query_scalar(include_str!("../../sql/lock/session_pid.sql"))
        .fetch_one(connection)
        .await
        .doing(|| "ask for the session's process".to_owned())
}

/// A statement that a session has in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InHand {
    /// By the server's clock.
    pub(crate) began_at: DateTime<Utc>,
    /// Whether it repairs a key, which has a limit of its own.
    pub(crate) repairs_key: bool,
}

/// When a session's statement began, by the server's clock; none when it has none in hand.
///
/// # Errors
/// When the database fails.
pub(crate) async fn in_hand(connection: &mut PgConnection, pid: i32) -> Result<Option<InHand>, DbError> {
    let found: Option<(DateTime<Utc>, bool)> = sqlx::query_as(include_str!("../../sql/lock/statement.sql"))
        .bind(pid)
        .fetch_optional(connection)
        .await
        .doing(|| "look at the statement in hand".to_owned())?;
    Ok(found.map(|(began_at, repairs_key)| InHand { began_at, repairs_key }))
}

/// Cancels it. What it did is rolled back, but for a concurrent detach, which the next run finalizes.
///
/// # Errors
/// When the database fails.
pub(crate) async fn cancel(connection: &mut PgConnection, pid: i32) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/lock/cancel.sql"))
        .bind(pid)
        .execute(connection)
        .await
        .doing(|| "cancel the statement in hand".to_owned())?;
    Ok(())
}
