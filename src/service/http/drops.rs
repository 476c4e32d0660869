//! `GET /v1/inboxes/{inbox}/drops`: what is due to be removed, were there no cap.

use axum::{Json, extract::State};

use super::{Context, Problem, acts, extract::Path, openapi::DropsProblems};
use crate::maintain::operate::DueDrops;

/// What is due.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct InboxDrops {
    #[serde(flatten)]
    due: DueDrops,
    /// How many they are in all: the `expected` of a confirmation.
    count: usize,
    /// Whether a run would leave some of them; else there is nothing to confirm.
    is_over_the_cap: bool,
}

/// The days that are due to be detached and dropped, were there no cap for one run. Nothing is done.
#[utoipa::path(
    get,
    path = "/v1/inboxes/{inbox}/drops",
    tag = "decide",
    params(("inbox" = String, Path, description = "The inbox's name")),
    responses((status = 200, description = "What is due", body = InboxDrops), DropsProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn drops(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Result<Json<InboxDrops>, Problem> {
    let (member, spec) = acts::inbox(&context, &name)?;
    let due = member
        .acts
        .due_drops(spec)
        .await
        .map_err(|error| acts::problem(member, error))?;
    Ok(Json(InboxDrops {
        count: due.due.len(),
        is_over_the_cap: due.is_over_the_cap(),
        due,
    }))
}
