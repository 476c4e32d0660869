//! What we remember in the control schema: partitions made and gone, runs, steps, and the highest trusted time.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{PgConnection, Row, postgres::types::Oid, types::Json};
use uuid::Uuid;

use super::{
    catalog::{PolicyRecord, Server},
    error::{DbError, Doing},
};
use crate::pure::{Day, Ident, InboxSpec, Step};

pub(crate) async fn partition_created(
    connection: &mut PgConnection,
    inbox_id: Uuid,
    day: Day,
    schema: &Ident,
    name: &Ident,
) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/journal/partition_created.sql"))
        .bind(inbox_id)
        .bind(NaiveDate::from(day))
        .bind(schema.as_str())
        .bind(name.as_str())
        .execute(connection)
        .await
        .doing(|| "record the created partition".to_owned())?;
    Ok(())
}

pub(crate) async fn detach_started(
    connection: &mut PgConnection,
    inbox_id: Uuid,
    day: Day,
    oid: Option<u32>,
) -> Result<(), DbError> {
    on_partition(
        connection,
        include_str!("../../sql/journal/detach_started.sql"),
        inbox_id,
        day,
        oid,
    )
    .await
}

pub(crate) async fn partition_attached(
    connection: &mut PgConnection,
    inbox_id: Uuid,
    day: Day,
    oid: Option<u32>,
) -> Result<(), DbError> {
    on_partition(
        connection,
        include_str!("../../sql/journal/partition_attached.sql"),
        inbox_id,
        day,
        oid,
    )
    .await
}

async fn on_partition(
    connection: &mut PgConnection,
    statement: &'static str,
    inbox_id: Uuid,
    day: Day,
    oid: Option<u32>,
) -> Result<(), DbError> {
    sqlx::query(statement)
        .bind(inbox_id)
        .bind(NaiveDate::from(day))
        .bind(oid.map(Oid))
        .execute(connection)
        .await
        .doing(|| format!("put the partition of {day} on record"))?;
    Ok(())
}

/// Returns the time of the detach.
pub(crate) async fn partition_detached(
    connection: &mut PgConnection,
    inbox_id: Uuid,
    day: Day,
    oid: Option<u32>,
) -> Result<DateTime<Utc>, DbError> {
    sqlx::query_scalar(include_str!("../../sql/journal/partition_detached.sql"))
        .bind(inbox_id)
        .bind(NaiveDate::from(day))
        .bind(oid.map(Oid))
        .fetch_one(connection)
        .await
        .doing(|| "record the detached partition".to_owned())
}

pub(crate) async fn partition_dropped(connection: &mut PgConnection, inbox_id: Uuid, day: Day) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/journal/partition_dropped.sql"))
        .bind(inbox_id)
        .bind(NaiveDate::from(day))
        .execute(connection)
        .await
        .doing(|| "record the dropped partition".to_owned())?;
    Ok(())
}

/// How a step ended, as it is recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepRecord<'a> {
    pub(crate) ordinal: i32,
    pub(crate) inbox_id: Uuid,
    pub(crate) step: &'a Step,
    pub(crate) outcome: &'a str,
    pub(crate) error_kind: Option<&'a str>,
    pub(crate) error: Option<&'a str>,
    pub(crate) attempts: i32,
    pub(crate) duration_ms: i64,
}

pub(crate) async fn record_step(
    connection: &mut PgConnection,
    run_id: Uuid,
    record: StepRecord<'_>,
) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/journal/step.sql"))
        .bind(run_id)
        .bind(record.ordinal)
        .bind(record.inbox_id)
        .bind(record.step.day.map(NaiveDate::from))
        .bind(record.step.relation.as_str())
        .bind(record.step.action.as_str())
        .bind(&record.step.reason)
        .bind(record.outcome)
        .bind(record.error_kind)
        .bind(record.error)
        .bind(record.attempts)
        .bind(record.duration_ms)
        .execute(connection)
        .await
        .doing(|| "record a step".to_owned())?;
    Ok(())
}

/// Returns the database's time at the start.
pub(crate) async fn run_started(
    connection: &mut PgConnection,
    id: Uuid,
    deployment: &str,
    trigger: &str,
) -> Result<DateTime<Utc>, DbError> {
    sqlx::query_scalar(include_str!("../../sql/journal/run_started.sql"))
        .bind(id)
        .bind(deployment)
        .bind(trigger)
        .bind(env!("CARGO_PKG_VERSION"))
        .fetch_one(connection)
        .await
        .doing(|| "record that a run begins".to_owned())
}

/// Returns the database's time at the end, and prunes what is long past.
pub(crate) async fn run_finished(
    connection: &mut PgConnection,
    id: Uuid,
    outcome: &str,
    error: Option<&str>,
) -> Result<DateTime<Utc>, DbError> {
    let finished = sqlx::query_scalar(include_str!("../../sql/journal/run_finished.sql"))
        .bind(id)
        .bind(outcome)
        .bind(error)
        .fetch_one(&mut *connection)
        .await
        .doing(|| "record how the run ended".to_owned())?;
    for prune in [
        include_str!("../../sql/journal/prune_steps.sql"),
        include_str!("../../sql/journal/prune_runs.sql"),
    ] {
        sqlx::query(prune)
            .execute(&mut *connection)
            .await
            .doing(|| "prune the history of runs".to_owned())?;
    }
    Ok(finished)
}

pub(crate) async fn trust_clock(connection: &mut PgConnection, now: DateTime<Utc>) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/journal/trust_clock.sql"))
        .bind(now)
        .execute(connection)
        .await
        .doing(|| "record the highest trusted time".to_owned())?;
    Ok(())
}

/// Trusts the database's clock as it is now. Returns the highest trusted time after it and before.
pub(crate) async fn confirm_clock(
    connection: &mut PgConnection,
    actor: Option<&str>,
) -> Result<(DateTime<Utc>, Option<DateTime<Utc>>), DbError> {
    sqlx::query_as(include_str!("../../sql/journal/confirm_clock.sql"))
        .bind(actor)
        .fetch_one(connection)
        .await
        .doing(|| "confirm the clock".to_owned())
}

/// Says that a replica is alive, and what it is configured with.
pub(crate) async fn heartbeat(
    connection: &mut PgConnection,
    id: Uuid,
    deployment: &str,
    host: &str,
    alive_for_seconds: i64,
    specs: &[InboxSpec],
) -> Result<(), DbError> {
    let policies: BTreeMap<String, PolicyRecord> = specs
        .iter()
        .map(|spec| {
            let record = PolicyRecord {
                retention_seconds: spec.policy.retention.seconds(),
                ahead_days: spec.policy.ahead.days(),
            };
            (spec.table.to_string(), record)
        })
        .collect();
    sqlx::query(include_str!("../../sql/journal/heartbeat.sql"))
        .bind(id)
        .bind(deployment)
        .bind(host)
        .bind(i64::from(std::process::id()))
        .bind(env!("CARGO_PKG_VERSION"))
        .bind(alive_for_seconds)
        .bind(Json(policies))
        .execute(&mut *connection)
        .await
        .doing(|| "record a heartbeat".to_owned())?;
    sqlx::query(include_str!("../../sql/journal/prune_replicas.sql"))
        .execute(connection)
        .await
        .doing(|| "prune the replicas".to_owned())?;
    Ok(())
}

/// Says that a replica has ended, so that nobody waits for its configuration to change.
pub(crate) async fn goodbye(connection: &mut PgConnection, id: Uuid) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/journal/goodbye.sql"))
        .bind(id)
        .execute(connection)
        .await
        .doing(|| "say goodbye".to_owned())?;
    Ok(())
}

/// Makes a deployment, on this server, the manager of an inbox. Returns the deployment before and whether anything changed;
/// none when the inbox is not on record.
pub(crate) async fn take_over(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    deployment: &str,
    server: &Server,
) -> Result<Option<(String, bool)>, DbError> {
    sqlx::query_as(include_str!("../../sql/journal/take_over.sql"))
        .bind(spec.table.schema().as_str())
        .bind(spec.table.table().as_str())
        .bind(deployment)
        .bind(server.system_identifier)
        .bind(Oid(server.database_oid))
        .fetch_optional(connection)
        .await
        .doing(|| format!("take over {}", spec.table))
}

/// The last run of a deployment, as it is on record.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct LastRun {
    /// Its identity.
    pub id: Uuid,
    /// What set it off.
    pub trigger: String,
    /// When it began, by the database's clock.
    pub started_at: DateTime<Utc>,
    /// When it ended; none while it runs, or when its process died.
    pub finished_at: Option<DateTime<Utc>>,
    /// `done`, `partial` or `failed`; none while it runs, or when its process died.
    pub outcome: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Steps that were done.
    pub steps_done: i64,
    /// Steps that failed.
    pub steps_failed: i64,
    /// Steps that failed or were left out.
    pub steps_not_done: i64,
    /// When the last run ended in which every step was done; none before the first.
    pub last_success_at: Option<DateTime<Utc>>,
}

/// Reads the last run of a deployment.
///
/// # Errors
/// When the database fails.
pub async fn last_run(connection: &mut PgConnection, deployment: &str) -> Result<Option<LastRun>, DbError> {
    let doing = || "read the last run".to_owned();
    let row = sqlx::query(include_str!("../../sql/journal/last_run.sql"))
        .bind(deployment)
        .fetch_optional(connection)
        .await
        .doing(doing)?;
    row.map(|row| {
        Ok::<_, sqlx::Error>(LastRun {
            id: row.try_get("id")?,
            trigger: row.try_get("trigger")?,
            started_at: row.try_get("started_at")?,
            finished_at: row.try_get("finished_at")?,
            outcome: row.try_get("outcome")?,
            error: row.try_get("error")?,
            steps_done: row.try_get("steps_done")?,
            steps_failed: row.try_get("steps_failed")?,
            steps_not_done: row.try_get("steps_not_done")?,
            last_success_at: row.try_get("last_success_at")?,
        })
    })
    .transpose()
    .doing(doing)
}

/// Keeps other inits out until the transaction ends.
pub(crate) async fn lock_inboxes(connection: &mut PgConnection) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/journal/patience.sql"))
        .execute(&mut *connection)
        .await
        .doing(|| "wait for another init".to_owned())?;
    sqlx::query(include_str!("../../sql/journal/lock_inboxes.sql"))
        .execute(connection)
        .await
        .doing(|| "wait for another init".to_owned())?;
    Ok(())
}

pub(crate) async fn register_inbox(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    deployment: &str,
    server: &Server,
    id: Uuid,
    lock_key: i64,
) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/journal/register_inbox.sql"))
        .bind(id)
        .bind(spec.table.schema().as_str())
        .bind(spec.table.table().as_str())
        .bind(lock_key)
        .bind(spec.policy.routing.to_string())
        .bind(spec.policy.consumers.to_string())
        .bind(deployment)
        .bind(server.system_identifier)
        .bind(Oid(server.database_oid))
        .execute(connection)
        .await
        .doing(|| format!("register {}", spec.table))?;
    Ok(())
}

/// The role that we act as.
pub(crate) async fn current_role(connection: &mut PgConnection) -> Result<String, DbError> {
    sqlx::query_scalar(include_str!("../../sql/journal/current_role.sql"))
        .fetch_one(connection)
        .await
        .doing(|| "ask who we are".to_owned())
}

/// Takes an inbox off the record: nothing of ours touches it any more.
pub(crate) async fn release_inbox(connection: &mut PgConnection, inbox_id: Uuid) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/journal/release_inbox.sql"))
        .bind(inbox_id)
        .execute(connection)
        .await
        .doing(|| "take the inbox off the record".to_owned())?;
    Ok(())
}
