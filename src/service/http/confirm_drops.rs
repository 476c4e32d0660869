//! `POST /v1/confirm/drops`: one run may remove more than the cap.

use axum::{Extension, Json, extract::State};

use super::{Context, Problem, access::Caller, acts, extract::Body, openapi::ConfirmDropsProblems};
use crate::maintain::operate::ConfirmedDrops;

/// What is to be confirmed.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DropsToConfirm {
    /// The inbox.
    inbox: String,
    /// How many days `/v1/inboxes/{inbox}/drops` counted; when they are another number by now, nothing is confirmed.
    expected: usize,
}

/// Lets the next run remove all that is due now, however much it is: exactly these days, and each once.
#[utoipa::path(
    post,
    path = "/v1/confirm/drops",
    tag = "decide",
    request_body = DropsToConfirm,
    responses((status = 200, description = "They are confirmed", body = ConfirmedDrops), ConfirmDropsProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn confirm_drops(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    Body(wanted): Body<DropsToConfirm>,
) -> Result<Json<ConfirmedDrops>, Problem> {
    let (member, spec) = acts::inbox(&context, &wanted.inbox)?;
    let confirmed = member.acts.confirm_drops(&caller.name, spec, wanted.expected).await;
    confirmed.map(Json).map_err(|error| acts::problem(member, error))
}
