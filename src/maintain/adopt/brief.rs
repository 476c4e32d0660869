//! The transactions that claims may wait for: short, tried again and again, and telling who is in the way.

use std::time::{Duration, Instant};

use rand::RngExt;
use sqlx::{Connection, PgConnection};

use super::AdoptRequest;
use crate::postgres::{DbError, ErrorKind, blockers, lock};

/// Long enough that whoever waited behind us has gone on before we come again.
const PAUSE: Duration = Duration::from_millis(250);
/// How often a going run is waited for, half a second each.
const RUN_LOCK_ATTEMPTS: u32 = 20;

/// Does something in a transaction, and again while it fails for want of a lock: as often as the request says. How long the
/// last try lasted, once it had come through.
pub(in crate::maintain) async fn briefly(
    connection: &mut PgConnection,
    request: AdoptRequest<'_>,
    doing: impl AsyncFn(&mut PgConnection) -> Result<(), DbError>,
) -> Result<Duration, DbError> {
    let table = &request.spec.table;
    let mut attempt = 0;
    loop {
        attempt += 1;
        let begun = Instant::now();
        let error = match once(connection, &doing).await {
            Ok(()) => return Ok(begun.elapsed()),
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

async fn once(
    connection: &mut PgConnection,
    doing: &impl AsyncFn(&mut PgConnection) -> Result<(), DbError>,
) -> Result<(), DbError> {
    let mut transaction = connection.begin().await.map_err(|error| DbError::new("begin", error))?;
    match doing(&mut transaction).await {
        Ok(()) => transaction
            .commit()
            .await
            .map_err(|error| DbError::new("commit", error)),
        Err(error) => {
            // At once, so that nobody waits for it a moment longer than need be.
            let _ = transaction.rollback().await;
            Err(error)
        }
    }
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
