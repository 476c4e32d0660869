//! `GET /v1/holds/{inbox}/{day}`: one day on hold.

use axum::{Json, extract::State};

use super::{Context, Problem, acts, extract::Path, openapi::HoldProblems, problem::ProblemType};
use crate::{maintain::operate::Held, pure::Day};

/// The hold of one day.
#[utoipa::path(
    get,
    path = "/v1/holds/{inbox}/{day}",
    tag = "decide",
    params(("inbox" = String, Path, description = "The inbox's name"), ("day" = Day, Path, description = "The day")),
    responses((status = 200, description = "The hold", body = Held), HoldProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn hold(
    State(context): State<Context>,
    Path((name, day)): Path<(String, Day)>,
) -> Result<Json<Held>, Problem> {
    let (member, _) = acts::inbox(&context, &name)?;
    let holds = member
        .acts
        .holds()
        .await
        .map_err(|error| acts::problem(member, error))?;
    let hold = holds.into_iter().find(|hold| hold.inbox == name && hold.day == day);
    hold.map(Json)
        .ok_or_else(|| Problem::new(ProblemType::HoldNotFound, "that day is not on hold; see /v1/holds"))
}
