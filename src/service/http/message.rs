//! `GET /v1/inboxes/{inbox}/messages/{id}`: was a message processed, when, and in which partition is that on record.

use axum::{Json, extract::State};
use uuid::Uuid;

use super::{
    Context, Problem, acts,
    extract::{Path, Query},
    openapi::MessageProblems,
};
use crate::maintain::operate::FoundMessage;

/// Whose processing is meant.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// That of one consumer, where the inbox has many.
    consumer: Option<String>,
}

/// Whether and when a message was processed. Looks into each partition by its key alone, also into those that are detached. A
/// partition that somebody has locked is left out after a second in all, and named.
#[utoipa::path(
    get,
    path = "/v1/inboxes/{inbox}/messages/{id}",
    tag = "decide",
    params(
        ("inbox" = String, Path, description = "The inbox's name"),
        ("id" = Uuid, Path, description = "The message's id"),
        Whose
    ),
    responses((status = 200, description = "What is known of it; nothing processed is no error", body = FoundMessage), MessageProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn message(
    State(context): State<Context>,
    Path((name, id)): Path<(String, Uuid)>,
    Query(whose): Query<Whose>,
) -> Result<Json<FoundMessage>, Problem> {
    let (member, spec) = acts::inbox(&context, &name)?;
    let found = member.acts.message(spec, id, whose.consumer.as_deref()).await;
    found.map(Json).map_err(|error| acts::problem(member, error))
}
