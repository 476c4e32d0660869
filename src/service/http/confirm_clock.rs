//! `POST /v1/confirm/clock`: a clock that has leapt is trusted.

use axum::{Extension, Json, extract::State};

use super::{Context, access::Caller, acts, extract::Body, openapi::EverywhereProblems, problem::Problem};
use crate::maintain::operate::ConfirmedClock;

/// Where.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClockToConfirm {
    /// Only in this database.
    #[serde(default)]
    database: Option<String>,
}

/// What became of it.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct ConfirmedClocks {
    /// One for each database.
    databases: Vec<ClockAnswer>,
}

/// What became of it in one database.
#[derive(serde::Serialize, utoipa::ToSchema)]
struct ClockAnswer {
    database: String,
    /// The clock that is trusted from here on; none where that failed.
    confirmed: Option<ConfirmedClock>,
    /// Why that failed.
    problem: Option<Problem>,
}

/// Trusts the clocks of the databases as they are now, so that removal goes on after a leap.
///
/// An error where it could be done in no database; else each says for itself.
#[utoipa::path(
    post,
    path = "/v1/confirm/clock",
    tag = "decide",
    request_body = Option<ClockToConfirm>,
    responses((status = 200, description = "The clocks are trusted", body = ConfirmedClocks), EverywhereProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn confirm_clock(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    Body(wanted): Body<ClockToConfirm>,
) -> Result<Json<ConfirmedClocks>, Problem> {
    let members = acts::databases(&context, wanted.database.as_deref())?;
    let confirming = members.iter().map(|member| member.acts.confirm_clock(&caller.name));
    let confirmed = futures_util::future::join_all(confirming).await;
    let databases = acts::outcomes(&members, confirmed)?
        .into_iter()
        .map(|outcome| ClockAnswer {
            database: outcome.database,
            confirmed: outcome.done,
            problem: outcome.problem,
        });
    Ok(Json(ConfirmedClocks {
        databases: databases.collect(),
    }))
}
