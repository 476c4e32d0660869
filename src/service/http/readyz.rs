//! `GET /readyz`: whether the inboxes are kept, and in words why not.

use axum::{Json, extract::State, http::StatusCode};

use super::Context;

#[derive(serde::Serialize)]
pub(super) struct Ready {
    ready: bool,
    /// Why not; empty when ready.
    reasons: Vec<String>,
}

/// 200 when the schedule lives and the last pass left every inbox of every database with all its days; 503 with the
/// reasons otherwise.
pub(super) async fn readyz(State(context): State<Context>) -> (StatusCode, Json<Ready>) {
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
    (status, Json(Ready { ready, reasons }))
}
