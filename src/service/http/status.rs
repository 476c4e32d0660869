//! `GET /v1/status`: inboxes, partitions, runway, last and next run.

use axum::{Json, extract::State};

use super::{Context, Problem, openapi::ReadProblems};
use crate::service::status::Status;

/// Everything at a glance; 503 when no database can be read. One that cannot be, of several, says so in its own place.
#[utoipa::path(
    get,
    path = "/v1/status",
    tag = "look",
    responses((status = 200, description = "The status", body = Status), ReadProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn status(State(context): State<Context>) -> Result<Json<Status>, Problem> {
    context.some_status().await.map(Json)
}
