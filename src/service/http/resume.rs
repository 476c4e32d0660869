//! `POST /v1/resume`: the schedule goes on.

use axum::{Extension, Json, extract::State};

use super::{Context, access::Caller, acts, extract::Body, openapi::EverywhereProblems, problem::Problem};
use crate::maintain::operate::Resumed;

/// What is to go on.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ScheduleToResume {
    /// Only in this database.
    #[serde(default)]
    database: Option<String>,
}

/// What became of it.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct ResumedSchedules {
    /// One for each database.
    databases: Vec<ResumeAnswer>,
}

/// What became of it in one database.
#[derive(serde::Serialize, utoipa::ToSchema)]
struct ResumeAnswer {
    database: String,
    /// With the pause that stood; none where that failed.
    resumed: Option<Resumed>,
    /// Why that failed.
    problem: Option<Problem>,
}

/// Lets the schedule go on, from its next tick. Where it was not paused nothing changes.
///
/// An error where it could be done in no database; else each says for itself.
#[utoipa::path(
    post,
    path = "/v1/resume",
    tag = "decide",
    request_body = Option<ScheduleToResume>,
    responses((status = 200, description = "It goes on", body = ResumedSchedules), EverywhereProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn resume(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    Body(wanted): Body<ScheduleToResume>,
) -> Result<Json<ResumedSchedules>, Problem> {
    let members = acts::databases(&context, wanted.database.as_deref())?;
    let resuming = members.iter().map(|member| member.acts.resume(&caller.name));
    let resumed = futures_util::future::join_all(resuming).await;
    let databases = acts::outcomes(&members, resumed)?
        .into_iter()
        .map(|outcome| ResumeAnswer {
            database: outcome.database,
            resumed: outcome.done,
            problem: outcome.problem,
        });
    Ok(Json(ResumedSchedules {
        databases: databases.collect(),
    }))
}
