//! `GET /v1/inboxes/{inbox}`: one inbox with all that is known of it.

use axum::{Json, extract::State};

use super::{Context, Problem, extract::Path, openapi::InboxProblems};
use crate::service::status::InboxStatus;

/// One inbox and its database.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct OneInbox {
    /// Its database.
    database: String,
    #[serde(flatten)]
    inbox: InboxStatus,
}

/// One inbox: policy, runway, findings, the steps of the next run, partitions.
#[utoipa::path(
    get,
    path = "/v1/inboxes/{inbox}",
    tag = "look",
    params(("inbox" = String, Path, description = "The inbox's name")),
    responses((status = 200, description = "The inbox", body = OneInbox), InboxProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn inbox(State(context): State<Context>, Path(name): Path<String>) -> Result<Json<OneInbox>, Problem> {
    let (database, inbox) = context.inbox(&name).await?;
    Ok(Json(OneInbox {
        database: database.database.clone(),
        inbox,
    }))
}
