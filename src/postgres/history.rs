//! The history of runs, and of what persons decided, as it is on record.

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{PgConnection, Row, postgres::PgRow};
use uuid::Uuid;

use super::error::{DbError, Doing};
use crate::pure::{Day, TableName};

/// Which runs are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunFilter<'a> {
    /// The one with this identity.
    pub id: Option<Uuid>,
    /// Those before this place in the order of runs.
    pub before: Option<i64>,
    /// Those that ended like this; `running` for those without an end.
    pub outcome: Option<&'a str>,
}

/// One run, as it is on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    /// Its identity.
    pub id: Uuid,
    /// Its place in the order of runs; their times may step with the server's clock.
    pub ordinal: i64,
    /// What set it off.
    pub trigger: String,
    /// The version of the program that ran it.
    pub version: String,
    /// When it began, by the database's clock.
    pub started_at: DateTime<Utc>,
    /// When it ended; none while it runs, or when its process died.
    pub finished_at: Option<DateTime<Utc>>,
    /// `done`, `partial` or `failed`; none while it runs, or when its process died.
    pub outcome: Option<String>,
    /// Whether it failed as a whole.
    pub has_error: bool,
    /// Steps that were done.
    pub steps_done: i64,
    /// Steps that failed.
    pub steps_failed: i64,
    /// Steps that were left out.
    pub steps_skipped: i64,
}

/// One step of a run, as it is on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedStep {
    /// Its place in the run, from 1.
    pub ordinal: i32,
    /// The inbox's table; none for a name that this version does not allow.
    pub table: Option<TableName>,
    /// The day that it was about.
    pub day: Option<Day>,
    /// The partition.
    pub relation: String,
    /// What was done.
    pub action: String,
    /// Why.
    pub reason: String,
    /// `done`, `failed` or `skipped`.
    pub outcome: String,
    /// What kind of error it ended with.
    pub error_kind: Option<String>,
    /// How often it was tried.
    pub attempts: i32,
    /// When it began, by the database's clock.
    pub started_at: DateTime<Utc>,
    /// How long it took, in milliseconds.
    pub duration_ms: i64,
}

/// Which lines of the audit are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AuditFilter<'a> {
    /// Those before this place.
    pub before: Option<i64>,
    /// Those about this inbox.
    pub table: Option<&'a TableName>,
}

/// One line of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// Its place, which grows.
    pub id: i64,
    /// When, by the database's clock.
    pub at: DateTime<Utc>,
    /// Who.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// The inbox's table; none where it is about no single one, or for a name that this version does not allow.
    pub table: Option<TableName>,
    /// Why, as far as that was asked.
    pub reason: Option<String>,
    /// What belongs to the action.
    pub detail: serde_json::Value,
}

/// The newest lines of a deployment's audit that pass a filter.
///
/// # Errors
/// When the database fails.
pub async fn audit(
    connection: &mut PgConnection,
    deployment: &str,
    filter: AuditFilter<'_>,
    limit: i64,
) -> Result<Vec<AuditLine>, DbError> {
    let doing = || "read the audit".to_owned();
    let rows = sqlx::query(include_str!("../../sql/journal/audit_page.sql"))
        .bind(deployment)
        .bind(filter.before)
        .bind(filter.table.map(|table| table.schema().as_str()))
        .bind(filter.table.map(|table| table.table().as_str()))
        .bind(limit)
        .fetch_all(connection)
        .await
        .doing(doing)?;
    rows.iter().map(read_line).collect::<Result<_, _>>().doing(doing)
}

fn read_line(row: &PgRow) -> Result<AuditLine, sqlx::Error> {
    let (schema, table): (Option<String>, Option<String>) = (row.try_get("schema_name")?, row.try_get("table_name")?);
    Ok(AuditLine {
        id: row.try_get("id")?,
        at: row.try_get("at")?,
        actor: row.try_get("actor")?,
        action: row.try_get("action")?,
        table: schema
            .zip(table)
            .and_then(|(schema, table)| TableName::new(schema, table).ok()),
        reason: row.try_get("reason")?,
        detail: row.try_get("detail")?,
    })
}

/// The newest runs of a deployment that pass a filter.
///
/// # Errors
/// When the database fails.
pub async fn runs(
    connection: &mut PgConnection,
    deployment: &str,
    filter: RunFilter<'_>,
    limit: i64,
) -> Result<Vec<RunRecord>, DbError> {
    let doing = || "read the history of runs".to_owned();
    let rows = sqlx::query(include_str!("../../sql/journal/runs.sql"))
        .bind(deployment)
        .bind(filter.id)
        .bind(filter.before)
        .bind(filter.outcome)
        .bind(limit)
        .fetch_all(connection)
        .await
        .doing(doing)?;
    rows.iter().map(read_run).collect::<Result<_, _>>().doing(doing)
}

fn read_run(row: &PgRow) -> Result<RunRecord, sqlx::Error> {
    Ok(RunRecord {
        id: row.try_get("id")?,
        ordinal: row.try_get("ordinal")?,
        trigger: row.try_get("trigger")?,
        version: row.try_get("version")?,
        started_at: row.try_get("started_at")?,
        finished_at: row.try_get("finished_at")?,
        outcome: row.try_get("outcome")?,
        has_error: row.try_get("has_error")?,
        steps_done: row.try_get("steps_done")?,
        steps_failed: row.try_get("steps_failed")?,
        steps_skipped: row.try_get("steps_skipped")?,
    })
}

/// The steps of a run, in their order.
///
/// # Errors
/// When the database fails.
pub async fn steps(connection: &mut PgConnection, run: Uuid) -> Result<Vec<RecordedStep>, DbError> {
    let doing = || "read the steps of a run".to_owned();
    let rows = sqlx::query(include_str!("../../sql/journal/steps.sql"))
        .bind(run)
        .fetch_all(connection)
        .await
        .doing(doing)?;
    rows.iter().map(read_step).collect::<Result<_, _>>().doing(doing)
}

fn read_step(row: &PgRow) -> Result<RecordedStep, sqlx::Error> {
    let (schema, table): (String, String) = (row.try_get("schema_name")?, row.try_get("table_name")?);
    let day: Option<NaiveDate> = row.try_get("day")?;
    Ok(RecordedStep {
        ordinal: row.try_get("ordinal")?,
        table: TableName::new(schema, table).ok(),
        day: day.map(Day::from),
        relation: row.try_get("relation_name")?,
        action: row.try_get("action")?,
        reason: row.try_get("reason")?,
        outcome: row.try_get("outcome")?,
        error_kind: row.try_get("error_kind")?,
        attempts: row.try_get("attempts")?,
        started_at: row.try_get("started_at")?,
        duration_ms: row.try_get("duration_ms")?,
    })
}

/// The run that is going, or whose process died; none when the last has ended.
///
/// # Errors
/// When the database fails.
pub async fn run_going(connection: &mut PgConnection, deployment: &str) -> Result<Option<Uuid>, DbError> {
    sqlx::query_scalar(include_str!("../../sql/journal/run_going.sql"))
        .bind(deployment)
        .fetch_optional(connection)
        .await
        .doing(|| "ask which run is going".to_owned())
}
