//! `POST /v1/holds`: a day is put on hold.

use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderName, StatusCode, header},
};

use super::{Context, Problem, access::Caller, acts, extract::Body, openapi::HoldDayProblems};
use crate::{maintain::operate::HeldNow, pure::Day};

/// What is to be put on hold.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewHold {
    /// The inbox.
    inbox: String,
    /// The day.
    day: Day,
    /// Why, for the audit.
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
}

/// Puts a day on hold: it neither leaves the inbox nor is dropped until it is released. A hold that stands is kept as it is.
#[utoipa::path(
    post,
    path = "/v1/holds",
    tag = "decide",
    request_body = NewHold,
    responses(
        (status = 201, description = "It is on hold now; `Location` is the hold's", body = HeldNow),
        (status = 200, description = "It was on hold already", body = HeldNow),
        HoldDayProblems
    ),
    security((), ("bearer" = []))
)]
pub(super) async fn hold_day(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    Body(wanted): Body<NewHold>,
) -> Result<(StatusCode, [(HeaderName, String); 1], Json<HeldNow>), Problem> {
    let (member, spec) = acts::inbox(&context, &wanted.inbox)?;
    let held = member.acts.hold(&caller.name, spec, wanted.day, &wanted.reason).await;
    let held = held.map_err(|error| acts::problem(member, error))?;
    let status = if held.is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    // An inbox's name needs no escape in a URL.
    let place = format!("/v1/holds/{}/{}", spec.name, wanted.day);
    Ok((status, [(header::LOCATION, place)], Json(held)))
}
