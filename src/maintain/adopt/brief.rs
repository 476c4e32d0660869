//! The transactions that claims may wait for: short, tried again and again, and telling who is in the way.

use std::time::{Duration, Instant};

use rand::RngExt;
use sqlx::{Connection, PgConnection};

use super::AdoptRequest;
use crate::postgres::{DbError, ErrorKind, blockers, ddl, lock};

/// Long enough that whoever waited behind us has gone on before we come again.
const PAUSE: Duration = Duration::from_millis(250);
/// Of the time that a claim may wait for us: what the wait for the lock may take. The rest is for what is done under it.
const SHARE_OF_THE_WAIT: f64 = 0.75;
/// How often a going run is waited for, half a second each.
const RUN_LOCK_ATTEMPTS: u32 = 20;

/// Does something in a transaction, and again while it fails for want of a lock: as often as the request says.
pub(super) async fn briefly<T>(
    connection: &mut PgConnection,
    request: AdoptRequest<'_>,
    doing: impl AsyncFn(&mut PgConnection) -> Result<T, DbError>,
) -> Result<T, DbError> {
    let table = &request.spec.table;
    let mut attempt = 0;
    loop {
        attempt += 1;
        let error = match once(connection, &doing).await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if !error.kind().is_retryable() {
            return Err(error);
        }
        // Should it fail, that is no reason to say less about the step itself.
        let in_the_way = blockers::blockers(connection, table, table.table(), blockers::WaitsFor::Users)
            .await
            .unwrap_or_default();
        let in_the_way = blockers::clause(&in_the_way);
        if attempt >= request.attempts {
            return Err(DbError::noticed(
                error.kind(),
                format!(
                    "{error}{in_the_way}; tried {attempt} times; nothing has changed, try again in a quieter moment"
                ),
            ));
        }
        let attempts = request.attempts;
        (request.tell)(&format!(
            "try {attempt} of {attempts}: {}{in_the_way}",
            error.kind().describe()
        ));
        let pause = PAUSE.mul_f64(rand::rng().random_range(0.5..1.5));
        tokio::time::sleep(pause).await;
    }
}

async fn once<T>(
    connection: &mut PgConnection,
    doing: &impl AsyncFn(&mut PgConnection) -> Result<T, DbError>,
) -> Result<T, DbError> {
    let mut transaction = connection.begin().await.map_err(|error| DbError::new("begin", error))?;
    match doing(&mut transaction).await {
        Ok(done) => transaction
            .commit()
            .await
            .map(|()| done)
            .map_err(|error| DbError::new("commit", error)),
        Err(error) => {
            // At once, so that nobody waits for it a moment longer than need be.
            let _ = transaction.rollback().await;
            Err(error)
        }
    }
}

/// Locks the table, and does what is to be done under the lock; when it had the lock. The transaction ends right afterwards.
///
/// A claim that came just behind us waits from our asking for the lock until the transaction ends. Where that would be longer
/// than the lock timeout, all is rolled back and tried again: only the commit itself is not in our hands.
pub(super) async fn locked(
    on: &mut PgConnection,
    request: AdoptRequest<'_>,
    doing: impl AsyncFnOnce(&mut PgConnection) -> Result<(), DbError>,
) -> Result<Instant, DbError> {
    let asked_at = Instant::now();
    let limit = request.lock_timeout;
    ddl::be_brief(on, &request.spec.table, limit.mul_f64(SHARE_OF_THE_WAIT), limit).await?;
    let locked_at = Instant::now();
    doing(on).await?;
    if asked_at.elapsed() > limit {
        let what = "what is done under the lock was not done in time; it was undone";
        return Err(DbError::noticed(ErrorKind::StatementTimeout, what));
    }
    Ok(locked_at)
}

/// Keeps passes and other adoptions out, as a pass does.
pub(in crate::maintain) async fn lock_run(
    connection: &mut PgConnection,
    request: AdoptRequest<'_>,
) -> Result<(), DbError> {
    let mut holder = None;
    for attempt in 0..RUN_LOCK_ATTEMPTS {
        match lock::try_lock(connection).await? {
            Ok(()) => return Ok(()),
            Err(found) => holder = found,
        }
        if attempt == 0 {
            (request.tell)("another run is going; waiting for its end");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let who = holder.map_or_else(|| "somebody".to_owned(), |holder| holder.to_string());
    Err(DbError::noticed(
        ErrorKind::LockTimeout,
        format!("another run is going: {who} holds the run lock; try again when it has ended"),
    ))
}
