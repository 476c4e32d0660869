//! `GET /v1/inboxes`: every inbox in a line.

use std::collections::BTreeMap;

use axum::{Json, extract::State};

use super::{Context, Problem, openapi::ReadProblems};
use crate::{
    pure::{Consumers, Retention, Routing, Severity, TableName},
    service::status::InboxStatus,
};

/// The inboxes of all databases that can be read.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct Inboxes {
    inboxes: Vec<InboxSummary>,
    /// Databases that cannot be read; their inboxes are missing above.
    unreadable: Vec<Unreadable>,
}

/// One inbox in a line.
#[derive(serde::Serialize, utoipa::ToSchema)]
struct InboxSummary {
    /// Its name, as it stands in URLs.
    inbox: String,
    /// Its database.
    database: String,
    /// Its table.
    table: TableName,
    routing: Routing,
    consumers: Consumers,
    retention: Retention,
    /// Days that must exist after today.
    ahead_days: i64,
    /// The worst of its findings.
    severity: Severity,
    /// How many findings there are.
    findings: usize,
    /// Seconds until the first claim would fail for want of a partition; none when the partitions never end.
    runway_seconds: Option<i64>,
    /// How many partitions there are by state.
    partitions: BTreeMap<String, u64>,
    /// Their estimated rows in all.
    estimated_rows: i64,
    /// Their size in bytes in all, as far as it is known.
    bytes: i64,
}

/// A database that cannot be read.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct Unreadable {
    /// Its name.
    pub(super) database: String,
    /// Why.
    pub(super) error: String,
}

/// Every inbox in a line.
#[utoipa::path(
    get,
    path = "/v1/inboxes",
    tag = "look",
    responses((status = 200, description = "The inboxes", body = Inboxes), ReadProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn inboxes(State(context): State<Context>) -> Result<Json<Inboxes>, Problem> {
    let status = context.some_status().await?;
    let (mut inboxes, mut unreadable) = (Vec::new(), Vec::new());
    for database in status.databases {
        let name = database.database;
        inboxes.extend(database.inboxes.into_iter().map(|inbox| summary(&name, inbox)));
        unreadable.extend(database.error.map(|error| Unreadable { database: name, error }));
    }
    Ok(Json(Inboxes { inboxes, unreadable }))
}

fn summary(database: &str, inbox: InboxStatus) -> InboxSummary {
    let mut partitions = BTreeMap::new();
    for partition in &inbox.partitions {
        *partitions.entry(partition.state.as_str().to_owned()).or_default() += 1;
    }
    InboxSummary {
        database: database.to_owned(),
        findings: inbox.findings.len(),
        partitions,
        estimated_rows: inbox
            .partitions
            .iter()
            .filter_map(|partition| partition.estimated_rows)
            .sum(),
        bytes: inbox.partitions.iter().filter_map(|partition| partition.bytes).sum(),
        inbox: inbox.inbox,
        table: inbox.table,
        routing: inbox.routing,
        consumers: inbox.consumers,
        retention: inbox.retention,
        ahead_days: inbox.ahead_days,
        severity: inbox.severity,
        runway_seconds: inbox.runway_seconds,
    }
}
