//! `POST /v1/inboxes/{inbox}/messages/{id}/forget`: a message may be processed again.

use axum::{Extension, Json, extract::State};
use uuid::Uuid;

use super::{
    Context, Problem,
    access::Caller,
    acts,
    extract::{Body, Path},
    openapi::ForgetProblems,
};
use crate::maintain::operate::Forgotten;

/// Who is to forget it, and why.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Forgetting {
    /// The consumer; needed where the inbox has many, and nowhere else.
    #[serde(default)]
    consumer: Option<String>,
    /// Why, for the audit.
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
}

/// Takes a message out of the journal: its next delivery is fresh. That it was not there is no error.
#[utoipa::path(
    post,
    path = "/v1/inboxes/{inbox}/messages/{id}/forget",
    tag = "decide",
    params(
        ("inbox" = String, Path, description = "The inbox's name"),
        ("id" = Uuid, Path, description = "The message's id")
    ),
    request_body = Forgetting,
    responses((status = 200, description = "It is forgotten", body = Forgotten), ForgetProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn forget(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    Path((name, id)): Path<(String, Uuid)>,
    Body(wanted): Body<Forgetting>,
) -> Result<Json<Forgotten>, Problem> {
    let (member, spec) = acts::inbox(&context, &name)?;
    let forgotten = member
        .acts
        .forget(&caller.name, spec, id, wanted.consumer.as_deref(), &wanted.reason)
        .await;
    forgotten.map(Json).map_err(|error| acts::problem(member, error))
}
