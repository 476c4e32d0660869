//! `GET /metrics`: the text format of Prometheus.

use axum::{
    extract::State,
    http::{HeaderName, header},
};

use super::{Context, openapi::TokenProblems};
use crate::service::metrics::{Source, render};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics. They are there while no database can be read; those of an unreadable one are missing then.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "probes",
    responses((status = 200, description = "Metrics in the text format", body = String, content_type = "text/plain"), TokenProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn metrics(State(context): State<Context>) -> ([(HeaderName, &'static str); 1], String) {
    let status = context.status().await;
    let counts: Vec<_> = context
        .members
        .iter()
        .map(|member| (member.database.name.as_str(), member.counters.counts()))
        .collect();
    let text = render(&Source {
        status: &status,
        counts: &counts,
        webhook: context.webhook.as_ref().map(crate::service::webhook::Queue::counts),
    });
    ([(header::CONTENT_TYPE, TEXT_FORMAT)], text)
}
