//! `GET /v1/inboxes/{inbox}/plan`: what a run would do now, why, and which locks it would take.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};

use super::{Context, Problem, extract::Path, openapi::InboxProblems};
use crate::pure::{Finding, Retention, Step};

/// What a run would do to an inbox.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct InboxPlan {
    /// The inbox.
    inbox: String,
    /// The database's clock when the catalog was read.
    now: Option<DateTime<Utc>>,
    /// The steps, in order.
    steps: Vec<Step>,
    /// What was noticed.
    findings: Vec<Finding>,
    /// The retention that rules.
    retention: Retention,
    /// Seconds until the first claim would fail for want of a partition; none when the partitions never end.
    runway_seconds: Option<i64>,
}

/// What a run would do to an inbox now. Nothing is done.
#[utoipa::path(
    get,
    path = "/v1/inboxes/{inbox}/plan",
    tag = "look",
    params(("inbox" = String, Path, description = "The inbox's name")),
    responses((status = 200, description = "The plan", body = InboxPlan), InboxProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn plan(State(context): State<Context>, Path(name): Path<String>) -> Result<Json<InboxPlan>, Problem> {
    let (database, inbox) = context.inbox(&name).await?;
    Ok(Json(InboxPlan {
        inbox: inbox.inbox,
        now: database.now,
        steps: inbox.steps,
        findings: inbox.findings,
        retention: inbox.retention,
        runway_seconds: inbox.runway_seconds,
    }))
}
