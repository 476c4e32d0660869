//! `GET /v1/holds`: the days on hold.

use axum::{Json, extract::State};

use super::{Context, Problem, acts, extract::Query, inboxes::Unreadable, openapi::HoldsProblems};
use crate::maintain::operate::Held;

/// Which holds.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WantedHolds {
    /// Those of one inbox.
    inbox: Option<String>,
}

/// The days on hold.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct Holds {
    /// By inbox and day.
    holds: Vec<Held>,
    /// Databases that cannot be read; their holds are missing above.
    unreadable: Vec<Unreadable>,
}

/// The days that are on hold: they neither leave their inbox nor are dropped.
#[utoipa::path(
    get,
    path = "/v1/holds",
    tag = "decide",
    params(WantedHolds),
    responses((status = 200, description = "The holds", body = Holds), HoldsProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn holds(
    State(context): State<Context>,
    Query(wanted): Query<WantedHolds>,
) -> Result<Json<Holds>, Problem> {
    let members = match &wanted.inbox {
        Some(name) => vec![acts::inbox(&context, name)?.0],
        None => context.members.iter().collect(),
    };
    let looks = members.iter().map(|member| member.acts.holds());
    let looks = futures_util::future::join_all(looks).await;
    let (mut holds, mut unreadable) = (Vec::new(), Vec::new());
    for outcome in acts::outcomes(&members, looks)? {
        holds.extend(outcome.done.into_iter().flatten());
        if let Some(problem) = outcome.problem {
            unreadable.push(Unreadable {
                database: outcome.database,
                error: problem.detail().to_owned(),
            });
        }
    }
    holds.retain(|hold| wanted.inbox.as_ref().is_none_or(|inbox| hold.inbox == *inbox));
    Ok(Json(Holds { holds, unreadable }))
}
