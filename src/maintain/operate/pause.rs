//! The schedule of a deployment is paused in a database: its passes do nothing until it is resumed. It outlives every process.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;

use super::{OperateError, Operator, audited::Audited, checked, writable};
use crate::postgres::{
    DbError,
    decisions::{self, Decision},
};

/// A pause that stands.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Pause {
    /// The deployment.
    pub deployment: String,
    /// Since when, by the database's clock.
    pub paused_at: DateTime<Utc>,
    /// Who paused it.
    pub paused_by: String,
    /// Why.
    pub reason: String,
}

/// What a pause came to.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct PausedNow {
    /// The pause that stands. One that stood before keeps its time and reason.
    #[serde(flatten)]
    pub pause: Pause,
    /// Whether it was made by this.
    pub is_new: bool,
}

/// What a resume came to.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Resumed {
    /// The deployment.
    pub deployment: String,
    /// The pause that stood; none when there was none, which is no error.
    pub pause: Option<Pause>,
}

impl Pause {
    fn of(deployment: &str, decision: Decision) -> Self {
        Self {
            deployment: deployment.to_owned(),
            paused_at: decision.at,
            paused_by: decision.by,
            reason: decision.reason,
        }
    }
}

/// Pauses the schedule: passes that it sets off do nothing, one that a person runs does its work. Harmless when repeated.
///
/// Nothing is created meanwhile either: the runway falls, and its alarms go on.
///
/// # Errors
/// `Invalid` without a reason; and as every act.
pub async fn pause(
    connection: &mut PgConnection,
    operator: Operator<'_>,
    reason: &str,
) -> Result<PausedNow, OperateError> {
    let reason = checked("the reason", reason)?;
    writable(connection).await?;
    let (deployment, actor) = (operator.deployment, operator.actor.as_str());
    let mut act = Audited::begin(connection, operator, "pause the schedule").await?;
    let (standing, is_new) = decisions::pause(act.connection(), deployment, actor, reason).await?;
    if is_new {
        act.audit("pause", None, Some(reason), json!({ "deployment": deployment }))
            .await?;
    }
    act.commit().await?;
    Ok(PausedNow {
        pause: Pause::of(deployment, standing),
        is_new,
    })
}

/// Lets the schedule go on, from its next tick.
///
/// # Errors
/// As every act.
pub async fn resume(connection: &mut PgConnection, operator: Operator<'_>) -> Result<Resumed, OperateError> {
    writable(connection).await?;
    let deployment = operator.deployment;
    let mut act = Audited::begin(connection, operator, "resume the schedule").await?;
    let stood = decisions::resume(act.connection(), deployment).await?;
    if let Some(stood) = &stood {
        let detail = json!({
            "deployment": deployment, "paused_at": stood.at, "paused_by": stood.by, "paused_because": stood.reason,
        });
        act.audit("resume", None, None, detail).await?;
    }
    act.commit().await?;
    Ok(Resumed {
        deployment: deployment.to_owned(),
        pause: stood.map(|stood| Pause::of(deployment, stood)),
    })
}

/// The pause of a deployment's schedule; none while it is not paused. Reads only.
///
/// # Errors
/// When the database fails.
pub async fn paused(connection: &mut PgConnection, deployment: &str) -> Result<Option<Pause>, DbError> {
    let decision = decisions::paused(connection, deployment).await?;
    Ok(decision.map(|decision| Pause::of(deployment, decision)))
}
