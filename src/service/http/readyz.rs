//! `GET /readyz`: whether the inboxes are kept, and in words why not.

use axum::{Json, extract::State, http::StatusCode};

use super::Context;

#[derive(serde::Serialize)]
pub(super) struct Ready {
    ready: bool,
    /// Why not; empty when ready.
    reasons: Vec<String>,
}

/// 200 when the last pass left every inbox with all its days; 503 with the reasons otherwise.
pub(super) async fn readyz(State(context): State<Context>) -> (StatusCode, Json<Ready>) {
    let reasons = context.shared.why_not_ready(&context.config, context.clock.now());
    let status = if reasons.is_empty() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        status,
        Json(Ready {
            ready: reasons.is_empty(),
            reasons,
        }),
    )
}
