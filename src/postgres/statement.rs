//! Statements from outside: whether another session of ours still has the same in hand, its end, and who is in the way of one.

use std::fmt;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row};

use super::error::{DbError, Doing};
use crate::pure::{Ident, TableName};

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

/// A session that is in the way of a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Blocker {
    pid: i32,
    application: Option<String>,
    /// None without the right to see it.
    state: Option<String>,
    age_seconds: Option<f64>,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let application = self.application.as_deref().filter(|name| !name.is_empty());
        write!(
            f,
            "pid {} ({}, {}",
            self.pid,
            application.unwrap_or("without an application name"),
            self.state.as_deref().unwrap_or("in a state that our role may not see")
        )?;
        match self.age_seconds {
            Some(age) => write!(f, ", its transaction {age:.1} s old)"),
            None => f.write_str(")"),
        }
    }
}

/// Who is in the way of a step on a partition of an inbox, or would be: at most three, the oldest transaction first.
///
/// # Errors
/// When the database fails.
pub(crate) async fn blockers(
    connection: &mut PgConnection,
    inbox: &TableName,
    partition: &Ident,
    waits_for_snapshots: bool,
) -> Result<Vec<Blocker>, DbError> {
    let rows = sqlx::query(include_str!("../../sql/lock/blockers.sql"))
        .bind(inbox.schema().as_str())
        .bind(inbox.table().as_str())
        .bind(partition.as_str())
        .bind(waits_for_snapshots)
        .fetch_all(connection)
        .await
        .doing(|| "ask who is in the way".to_owned())?;
    let blocker = |row: sqlx::postgres::PgRow| {
        Ok::<_, sqlx::Error>(Blocker {
            pid: row.try_get("pid")?,
            application: row.try_get("application_name")?,
            state: row.try_get("state")?,
            age_seconds: row.try_get("age_seconds")?,
        })
    };
    rows.into_iter()
        .map(blocker)
        .collect::<Result<_, _>>()
        .doing(|| "read who is in the way".to_owned())
}
