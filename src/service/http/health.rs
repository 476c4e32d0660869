//! `GET /v1/health`: every check by name, in application/health+json.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::State,
    http::{HeaderName, StatusCode, header},
};
use utoipa::openapi::{RefOr, Response};

use super::{Context, openapi, problem::ProblemType};
use crate::service::health::{self, Health, HealthStatus};

const HEALTH_JSON: &str = "application/health+json";

pub(super) struct HealthProblems;

impl utoipa::IntoResponses for HealthProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let problems = openapi::problems(&[ProblemType::Unauthorized]);
        openapi::or_body(problems, "503", HEALTH_JSON, "Health", "A check fails")
    }
}

/// The health of everything: 200 when all passes or warns, 503 when a check fails. A database that cannot be read is one
/// that does.
#[utoipa::path(
    get,
    path = "/v1/health",
    tag = "look",
    responses(
        (status = 200, description = "All passes or warns", body = Health, content_type = "application/health+json"),
        HealthProblems
    ),
    security((), ("bearer" = []))
)]
pub(super) async fn health(
    State(context): State<Context>,
) -> (StatusCode, [(HeaderName, &'static str); 1], Json<Health>) {
    let health = health::health(&context.status().await);
    let status = match health.status {
        HealthStatus::Pass | HealthStatus::Warn => StatusCode::OK,
        HealthStatus::Fail => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, [(header::CONTENT_TYPE, HEALTH_JSON)], Json(health))
}
