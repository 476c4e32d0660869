//! Who is in the way of a statement.

use std::fmt;

use sqlx::{PgConnection, Row};

use super::error::{DbError, Doing};
use crate::pure::{Ident, TableName};

/// Stands between what a step failed with and who was in its way, in the step's record.
const IN_THE_WAY: &str = "; in the way: ";

/// Who was in the way of a step, as a clause for its record; nothing when nobody is known.
pub(crate) fn clause(blockers: &[Blocker]) -> String {
    if blockers.is_empty() {
        return String::new();
    }
    let named: Vec<String> = blockers.iter().map(ToString::to_string).collect();
    format!("{IN_THE_WAY}{}", named.join(", "))
}

/// A step that could not be done in time, and who was in its way then.
#[cfg(feature = "service")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockedStep {
    /// Schema and table of its inbox.
    pub(crate) table: (String, String),
    pub(crate) relation: String,
    pub(crate) by: String,
}

/// The steps of a run that others were in the way of. What the database said of them is left out.
///
/// # Errors
/// When the database fails.
#[cfg(feature = "service")]
pub(crate) async fn blocked_steps(connection: &mut PgConnection, run: uuid::Uuid) -> Result<Vec<BlockedStep>, DbError> {
    let rows: Vec<(String, String, String, Option<String>)> =
        sqlx::query_as(include_str!("../../sql/journal/blocked_steps.sql"))
            .bind(run)
            .fetch_all(connection)
            .await
            .doing(|| "read who was in the way of the last run".to_owned())?;
    let blocked = rows.into_iter().filter_map(|(schema, table, relation, error)| {
        let by = error?.rsplit_once(IN_THE_WAY)?.1.to_owned();
        Some(BlockedStep {
            table: (schema, table),
            relation,
            by,
        })
    });
    Ok(blocked.collect())
}

/// Whom a step waits for, beside those that lock the inbox itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Whoever uses the partition.
    Users,
    /// Whoever uses the partition, and every older snapshot of the database.
    Snapshots,
    /// Whoever writes into the partition.
    Writers,
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
    waits: WaitsFor,
) -> Result<Vec<Blocker>, DbError> {
    let rows = sqlx::query(include_str!("../../sql/lock/blockers.sql"))
        .bind(inbox.schema().as_str())
        .bind(inbox.table().as_str())
        .bind(partition.as_str())
        .bind(waits == WaitsFor::Snapshots)
        .bind(waits == WaitsFor::Writers)
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
