//! `GET /v1/status`: inboxes, partitions, runway, last and next run.

use axum::{Json, extract::State};

use super::{Context, Problem, STATUS_TIMEOUT};
use crate::{
    postgres::{DbError, ErrorKind},
    service::status::{Status, read_status},
};

/// 200 with the status; 503 while the database is away or not initialized.
pub(super) async fn status(State(context): State<Context>) -> Result<Json<Status>, Problem> {
    let reading = async {
        let mut connection = context
            .pool
            .acquire()
            .await
            .map_err(|error| DbError::new("connect", error))?;
        read_status(&mut connection, &context.config, &context.clock).await
    };
    match tokio::time::timeout(STATUS_TIMEOUT, reading).await {
        Ok(Ok(status)) => Ok(Json(status)),
        Ok(Err(error)) => {
            tracing::warn!(%error, "cannot read the status");
            Err(match error.kind() {
                ErrorKind::Missing => Problem::unavailable("the database is not initialized; run `inboxd init`"),
                _ => Problem::unavailable("the database cannot be read; the log says why"),
            })
        }
        Err(_) => Err(Problem::unavailable("the database did not answer in time")),
    }
}
