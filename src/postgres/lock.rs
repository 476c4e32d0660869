//! The run lock: one maintenance pass at a time in a database, whoever runs it.
//!
//! A session lock on the connection that does the work: when that connection dies, lock and work end together.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row};

use super::error::{DbError, Doing};

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
    let row = sqlx::query(include_str!("../../sql/lock/holder.sql"))
        .bind(RUN_LOCK)
        .fetch_optional(connection)
        .await
        .doing(|| "ask who holds the run lock".to_owned())?;
    let holder = row
        .map(|row| {
            Ok::<_, sqlx::Error>(LockHolder {
                pid: row.try_get("pid")?,
                application_name: row.try_get("application_name")?,
                client_address: row.try_get("client_address")?,
                connected_at: row.try_get("connected_at")?,
            })
        })
        .transpose()
        .doing(|| "read who holds the run lock".to_owned())?;
    Ok(Err(holder))
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
