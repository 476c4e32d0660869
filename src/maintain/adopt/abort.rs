//! The way back: the table as it was before the preparation.

use sqlx::PgConnection;

use super::{
    AdoptRequest, Adopted, audit,
    brief::{briefly, lock_run, locked},
    look, must_not_be_partitioned, our_checks, refuse, writable,
};
use crate::{
    postgres::{DbError, ddl, journal, lock, schema},
    pure::{AdoptAction, Sql},
};

/// Takes back what the preparation did to the table, and takes the inbox off the record. The claim functions stay: consumers
/// may use them already, and on the table as it is they are exact.
///
/// # Errors
/// When the table was adopted already, or the lock cannot be had in time; nothing has changed then.
pub async fn abort_adoption(connection: &mut PgConnection, request: AdoptRequest<'_>) -> Result<Adopted, DbError> {
    writable(connection).await?;
    let seen = look(connection, request).await?;
    must_not_be_partitioned(request, &seen)?;
    if seen.table.is_none() {
        return Err(refuse(request, "is adopted already; `inboxd release` gives it back"));
    }
    let mut done = Vec::new();
    if schema::version(connection).await?.is_some() {
        lock_run(connection, request).await?;
    }
    let seen = look(connection, request).await?;
    let Some((table, _)) = &seen.table else {
        return Err(refuse(request, "is adopted already; `inboxd release` gives it back"));
    };
    let checks = our_checks(request.spec, table)?;
    let registered = seen.registered.as_ref().map(|registered| registered.id);
    if !checks.is_empty() || registered.is_some() {
        (request.tell)("taking it back");
        briefly(connection, request, async |on| {
            if let Some(id) = registered {
                audit(on, request, "abort_adoption", id, serde_json::json!({})).await?;
                journal::release_inbox(on, id).await?;
            }
            if checks.is_empty() {
                return Ok(());
            }
            locked(on, request, async |on| {
                ddl::drop_checks(on, Sql::table(&request.spec.table), &checks).await
            })
            .await
            .map(drop)
        })
        .await?;
        done.push(AdoptAction::DropChecks.as_str());
    }
    let now = look(connection, request).await?.state();
    lock::release(connection).await?;
    Ok(Adopted {
        inbox: request.spec.name.clone(),
        done,
        now,
        under_lock_ms: None,
    })
}
