//! `GET /v1/inboxes/{inbox}/partitions`: bounds, state, size and age of each.

use axum::{Json, extract::State};

use super::{Context, Problem, extract::Path, openapi::InboxProblems};
use crate::service::status::PartitionStatus;

/// The partitions of an inbox.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct Partitions {
    /// The inbox.
    inbox: String,
    /// Oldest first.
    partitions: Vec<PartitionStatus>,
}

/// The partitions of an inbox, oldest first, with those that are detached and not dropped yet.
#[utoipa::path(
    get,
    path = "/v1/inboxes/{inbox}/partitions",
    tag = "look",
    params(("inbox" = String, Path, description = "The inbox's name")),
    responses((status = 200, description = "The partitions", body = Partitions), InboxProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn partitions(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Result<Json<Partitions>, Problem> {
    let (_, inbox) = context.inbox(&name).await?;
    Ok(Json(Partitions {
        inbox: inbox.inbox,
        partitions: inbox.partitions,
    }))
}
