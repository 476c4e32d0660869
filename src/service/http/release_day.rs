//! `DELETE /v1/holds/{inbox}/{day}`: a day is released.

use axum::{Extension, Json, extract::State};

use super::{Context, Problem, access::Caller, acts, extract::Path, openapi::ReleaseProblems};
use crate::{maintain::operate::Released, pure::Day};

/// Releases a day; the next run does with it what is due. A day that is not on hold is no error.
#[utoipa::path(
    delete,
    path = "/v1/holds/{inbox}/{day}",
    tag = "decide",
    params(("inbox" = String, Path, description = "The inbox's name"), ("day" = Day, Path, description = "The day")),
    responses((status = 200, description = "It is not on hold any more; with the hold that stood", body = Released), ReleaseProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn release_day(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    Path((name, day)): Path<(String, Day)>,
) -> Result<Json<Released>, Problem> {
    let (member, spec) = acts::inbox(&context, &name)?;
    let released = member.acts.release(&caller.name, spec, day).await;
    released.map(Json).map_err(|error| acts::problem(member, error))
}
