//! The replicas of a deployment that are alive, and how they are configured.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row, types::Json};
use uuid::Uuid;

use super::super::error::{DbError, Doing};
use crate::pure::{Ahead, InboxSpec, ReplicaPolicy, Retention};

/// A replica that is alive.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Replica {
    /// Its identity, new at each start.
    pub id: Uuid,
    /// The host that it runs on.
    pub host: String,
    /// Its process there.
    pub process_id: i32,
    /// Its version.
    pub version: String,
    /// When it started, by the database's clock.
    pub started_at: DateTime<Utc>,
    /// Its last heartbeat, by the database's clock.
    pub heartbeat_at: DateTime<Utc>,
    /// What it is configured with, by table.
    #[serde(skip)]
    policies: BTreeMap<String, PolicyRecord>,
}

/// What a replica says of its configuration of one inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct PolicyRecord {
    pub(crate) retention_seconds: Option<i64>,
    pub(crate) ahead_days: i64,
}

impl Replica {
    pub(super) fn policy_of(&self, spec: &InboxSpec) -> Option<ReplicaPolicy> {
        let record = self.policies.get(&spec.table.to_string())?;
        Some(ReplicaPolicy {
            replica: format!("{}:{}", self.host, self.process_id),
            // A replica of a later version may allow what this one does not; then nothing is forgotten meanwhile.
            retention: Retention::from_seconds(record.retention_seconds).unwrap_or(Retention::Forever),
            ahead: Ahead::new(record.ahead_days).unwrap_or(spec.policy.ahead),
        })
    }
}

/// The replicas of a deployment that are alive.
///
/// # Errors
/// When the database fails.
pub async fn replicas(connection: &mut PgConnection, deployment: &str) -> Result<Vec<Replica>, DbError> {
    let doing = || "observe the replicas".to_owned();
    let rows = sqlx::query(include_str!("../../../sql/observe/replicas.sql"))
        .bind(deployment)
        .fetch_all(connection)
        .await
        .doing(doing)?;
    rows.iter()
        .map(|row| {
            let Json(policies) = row.try_get("policies")?;
            Ok(Replica {
                id: row.try_get("id")?,
                host: row.try_get("host")?,
                process_id: row.try_get("process_id")?,
                version: row.try_get("version")?,
                started_at: row.try_get("started_at")?,
                heartbeat_at: row.try_get("heartbeat_at")?,
                policies,
            })
        })
        .collect::<Result<_, sqlx::Error>>()
        .doing(doing)
}
