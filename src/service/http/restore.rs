//! `POST /v1/restore`: a detached partition becomes part of its inbox again.

use axum::{
    Extension, Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{Context, Problem, access::Caller, acts, extract::Body, openapi::RestoreProblems};
use crate::{maintain::operate::Restored, pure::Day};

/// What is to be restored.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRestore {
    /// The inbox.
    inbox: String,
    /// The day.
    day: Day,
    /// Why, for the audit.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 500)]
    reason: Option<String>,
}

/// A restore that has not ended yet.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct Restoring {
    /// The inbox.
    inbox: String,
    /// The day.
    day: Day,
}

/// Attaches a day's detached partition again, as long as its table is there, and puts the day on hold.
///
/// It goes on to its end whoever waits for it. Answers then, or after a few seconds with 202 and the place to look; the audit
/// has a line once it is done, and the log says why if it could not be.
#[utoipa::path(
    post,
    path = "/v1/restore",
    tag = "decide",
    request_body = NewRestore,
    responses(
        (status = 200, description = "It is part of the inbox again", body = Restored),
        (status = 202, description = "It is going; `Location` is the inbox's partitions", body = Restoring),
        RestoreProblems
    ),
    security((), ("bearer" = []))
)]
pub(super) async fn restore(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    Body(wanted): Body<NewRestore>,
) -> Result<Response, Problem> {
    let (member, spec) = acts::inbox(&context, &wanted.inbox)?;
    let restoring = member
        .acts
        .restore(&caller.name, spec, wanted.day, wanted.reason.as_deref());
    match restoring.await {
        Ok(Some(restored)) => Ok(Json(restored).into_response()),
        Err(error) => Err(acts::problem(member, error)),
        Ok(None) => {
            let place = [(header::LOCATION, format!("/v1/inboxes/{}/partitions", spec.name))];
            let going = Restoring {
                inbox: spec.name.clone(),
                day: wanted.day,
            };
            Ok((StatusCode::ACCEPTED, place, Json(going)).into_response())
        }
    }
}
