//! `GET /readyz`: whether the inboxes are kept, and in words why not.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use utoipa::openapi::{RefOr, Response};

use super::{Context, access, openapi};

#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct Ready {
    ready: bool,
    /// Why not; empty when ready. Where access tokens are configured, only a request with one is told.
    reasons: Vec<String>,
}

pub(super) struct ReadyProblems;

impl utoipa::IntoResponses for ReadyProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        openapi::or_body(openapi::problems(&[]), "503", "application/json", "Ready", "Not ready")
    }
}

/// Whether the schedule lives and the last pass left every inbox of every database with all its days.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "probes",
    responses((status = 200, description = "Ready", body = Ready), ReadyProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn readyz(State(context): State<Context>, headers: HeaderMap) -> (StatusCode, Json<Ready>) {
    let now = context.clock.now();
    let mut reasons: Vec<String> = context.heart.why_not_alive().into_iter().collect();
    for member in context.members.iter() {
        let why = member.shared.why_not_ready(&context.config.schedule, now);
        match context.members.len() {
            1 => reasons.extend(why),
            _ => reasons.extend(
                why.into_iter()
                    .map(|why| format!("database {}: {why}", member.database.name)),
            ),
        }
    }
    let ready = reasons.is_empty();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    // A probe has no token, and others who have none need not know the names of tables and roles.
    if access::caller(&context, &headers).is_err() {
        reasons.clear();
    }
    (status, Json(Ready { ready, reasons }))
}
