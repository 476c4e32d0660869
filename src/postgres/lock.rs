//! The run lock: one maintenance pass at a time in a database, whoever runs it. And the lock of a day, under which it is
//! decided what becomes of its table.
//!
//! The run lock is a session's, on the connection that does the work: when that connection dies, lock and work end
//! together. That of a day ends with its transaction.

use std::{fmt, time::Duration};

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::error::{DbError, Doing};
use crate::pure::Day;

/// "inboxd run" for `pg_locks`: the bytes of "inboxd" and a version.
const RUN_LOCK: i64 = 0x696e_626f_7864_0001;

/// The session that holds the run lock.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct LockHolder {
    /// Its backend.
    pub pid: i32,
    /// Its application name; none without the right to see it.
    pub application_name: Option<String>,
    /// Where it connects from, or `local`.
    pub client_address: Option<String>,
    /// Since when it is connected.
    pub connected_at: Option<DateTime<Utc>>,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.application_name.as_deref().unwrap_or("unknown");
        let from = self.client_address.as_deref().unwrap_or("unknown");
        write!(f, "pid {} ({name:?} from {from})", self.pid)
    }
}

/// Takes the run lock if it is free. `Err(Some(holder))` inside tells who has it; the holder may have gone meanwhile.
///
/// # Errors
/// When the database fails.
pub async fn try_lock(connection: &mut PgConnection) -> Result<Result<(), Option<LockHolder>>, DbError> {
    let locked: bool = sqlx::query_scalar(include_str!("../../sql/lock/try.sql"))
        .bind(RUN_LOCK)
        .fetch_one(&mut *connection)
        .await
        .doing(|| "take the run lock".to_owned())?;
    if locked {
        return Ok(Ok(()));
    }
    Ok(Err(holder(connection).await?))
}

/// Who has the run lock; none when it is free.
pub(crate) async fn holder(connection: &mut PgConnection) -> Result<Option<LockHolder>, DbError> {
    let row = sqlx::query(include_str!("../../sql/lock/holder.sql"))
        .bind(RUN_LOCK)
        .fetch_optional(connection)
        .await
        .doing(|| "ask who holds the run lock".to_owned())?;
    row.map(|row| {
        Ok::<_, sqlx::Error>(LockHolder {
            pid: row.try_get("pid")?,
            application_name: row.try_get("application_name")?,
            client_address: row.try_get("client_address")?,
            connected_at: row.try_get("connected_at")?,
        })
    })
    .transpose()
    .doing(|| "read who holds the run lock".to_owned())
}

/// Takes the lock of a day until the transaction ends. Whoever reads under it whether the day is on hold, or its table
/// gone, may act on that in this transaction.
pub(crate) async fn lock_day(connection: &mut PgConnection, inbox_id: Uuid, day: Day) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/lock/day.sql"))
        .bind(inbox_id)
        .bind(NaiveDate::from(day))
        .execute(connection)
        .await
        .doing(|| format!("lock what becomes of {day}"))?;
    Ok(())
}

/// Waits no longer than this for any lock, until the transaction ends.
pub(crate) async fn wait_at_most(connection: &mut PgConnection, patience: Duration) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/lock/patience.sql"))
        .bind(i64::try_from(patience.as_millis()).unwrap_or(i64::MAX))
        .execute(connection)
        .await
        .doing(|| "bound the wait for a lock".to_owned())?;
    Ok(())
}

/// Gives the run lock back.
///
/// # Errors
/// When the database fails; the lock then ends with the connection.
pub async fn release(connection: &mut PgConnection) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/lock/release.sql"))
        .bind(RUN_LOCK)
        .execute(connection)
        .await
        .doing(|| "release the run lock".to_owned())?;
    Ok(())
}
