//! `POST /v1/pause`: the schedule is paused.

use axum::{Extension, Json, extract::State};

use super::{Context, access::Caller, acts, extract::Body, openapi::EverywhereProblems, problem::Problem};
use crate::maintain::operate::PausedNow;

/// What is to be paused.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewPause {
    /// Why, for the audit and for whoever wonders.
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
    /// Only in this database.
    #[serde(default)]
    database: Option<String>,
}

/// What became of it.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct Pauses {
    /// One for each database.
    databases: Vec<PauseAnswer>,
}

/// What became of it in one database.
#[derive(serde::Serialize, utoipa::ToSchema)]
struct PauseAnswer {
    database: String,
    /// The pause that stands; none where that failed.
    paused: Option<PausedNow>,
    /// Why that failed.
    problem: Option<Problem>,
}

/// Pauses the schedule, for every replica and over restarts. Nothing is created meanwhile either: the runway falls, and health
/// warns. A run that a person asks for still does its work. A pause that stands is kept as it is.
///
/// An error where it could be done in no database; else each says for itself.
#[utoipa::path(
    post,
    path = "/v1/pause",
    tag = "decide",
    request_body = NewPause,
    responses((status = 200, description = "It is paused", body = Pauses), EverywhereProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn pause(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    Body(wanted): Body<NewPause>,
) -> Result<Json<Pauses>, Problem> {
    let members = acts::databases(&context, wanted.database.as_deref())?;
    let pausing = members
        .iter()
        .map(|member| member.acts.pause(&caller.name, &wanted.reason));
    let paused = futures_util::future::join_all(pausing).await;
    let databases = acts::outcomes(&members, paused)?
        .into_iter()
        .map(|outcome| PauseAnswer {
            database: outcome.database,
            paused: outcome.done,
            problem: outcome.problem,
        });
    Ok(Json(Pauses {
        databases: databases.collect(),
    }))
}
