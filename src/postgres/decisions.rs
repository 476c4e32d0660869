//! What a person decided, as the control schema remembers it: holds, pauses, confirmations, and the audit of them all.

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::error::{DbError, Doing};
use crate::pure::{Day, Removals, TableName};

/// Who decided something, when, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) at: DateTime<Utc>,
    pub(crate) by: String,
    pub(crate) reason: String,
}

type DecisionRow = (DateTime<Utc>, String, String);

impl From<DecisionRow> for Decision {
    fn from((at, by, reason): DecisionRow) -> Self {
        Self { at, by, reason }
    }
}

/// Who did what; the time is the database's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuditRecord<'a> {
    pub(crate) actor: &'a str,
    pub(crate) action: &'a str,
    pub(crate) inbox_id: Option<Uuid>,
    pub(crate) reason: Option<&'a str>,
    pub(crate) detail: &'a serde_json::Value,
}

pub(crate) async fn audit(connection: &mut PgConnection, record: AuditRecord<'_>) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/journal/audit.sql"))
        .bind(record.actor)
        .bind(record.action)
        .bind(record.inbox_id)
        .bind(record.reason)
        .bind(Json(record.detail))
        .execute(connection)
        .await
        .doing(|| "put it on the audit".to_owned())?;
    Ok(())
}

/// Puts a name to the forget that this session has just had written on the audit.
pub(crate) async fn audit_forget(connection: &mut PgConnection, actor: &str, reason: &str) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/journal/audit_forget.sql"))
        .bind(actor)
        .bind(reason)
        .execute(connection)
        .await
        .doing(|| "put the forget on the audit".to_owned())?;
    Ok(())
}

/// Puts on the audit who asked for a run, of one inbox where a table is given.
pub(crate) async fn run_asked_for(
    connection: &mut PgConnection,
    actor: &str,
    deployment: &str,
    table: Option<&TableName>,
    run: Uuid,
) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/journal/run_asked_for.sql"))
        .bind(actor)
        .bind(deployment)
        .bind(table.map(|table| table.schema().as_str()))
        .bind(table.map(|table| table.table().as_str()))
        .bind(run)
        .execute(connection)
        .await
        .doing(|| "put on the audit who asked for the run".to_owned())?;
    Ok(())
}

/// The hold that stands now, and whether it was made by this.
pub(crate) async fn hold_day(
    connection: &mut PgConnection,
    inbox_id: Uuid,
    day: Day,
    actor: &str,
    reason: &str,
) -> Result<(Decision, bool), DbError> {
    let (at, by, reason, is_new) = sqlx::query_as(include_str!("../../sql/journal/hold_day.sql"))
        .bind(inbox_id)
        .bind(NaiveDate::from(day))
        .bind(actor)
        .bind(reason)
        .fetch_one(connection)
        .await
        .doing(|| format!("put {day} on hold"))?;
    Ok((Decision { at, by, reason }, is_new))
}

/// The hold that stood; none when there was none.
pub(crate) async fn release_day(
    connection: &mut PgConnection,
    inbox_id: Uuid,
    day: Day,
) -> Result<Option<Decision>, DbError> {
    let released: Option<DecisionRow> = sqlx::query_as(include_str!("../../sql/journal/release_day.sql"))
        .bind(inbox_id)
        .bind(NaiveDate::from(day))
        .fetch_optional(connection)
        .await
        .doing(|| format!("release {day}"))?;
    Ok(released.map(Decision::from))
}

/// A day on hold, with the schema and the table of its inbox.
pub(crate) type HeldDay = (String, String, NaiveDate, DateTime<Utc>, String, String);

pub(crate) async fn holds(connection: &mut PgConnection, deployment: &str) -> Result<Vec<HeldDay>, DbError> {
    sqlx::query_as(include_str!("../../sql/observe/holds.sql"))
        .bind(deployment)
        .fetch_all(connection)
        .await
        .doing(|| "read the holds".to_owned())
}

/// When a day's partition was detached, and when it was dropped; none when the day never had one.
pub(crate) async fn partition_record(
    connection: &mut PgConnection,
    inbox_id: Uuid,
    day: Day,
) -> Result<Option<(Option<DateTime<Utc>>, Option<DateTime<Utc>>)>, DbError> {
    sqlx::query_as(include_str!("../../sql/observe/partition_record.sql"))
        .bind(inbox_id)
        .bind(NaiveDate::from(day))
        .fetch_optional(connection)
        .await
        .doing(|| format!("read what is on record of {day}"))
}

/// The pause that stands now, and whether it was made by this.
pub(crate) async fn pause(
    connection: &mut PgConnection,
    deployment: &str,
    actor: &str,
    reason: &str,
) -> Result<(Decision, bool), DbError> {
    let (at, by, reason, is_new) = sqlx::query_as(include_str!("../../sql/journal/pause.sql"))
        .bind(deployment)
        .bind(actor)
        .bind(reason)
        .fetch_one(connection)
        .await
        .doing(|| "pause the schedule".to_owned())?;
    Ok((Decision { at, by, reason }, is_new))
}

/// The pause that stood; none when there was none.
pub(crate) async fn resume(connection: &mut PgConnection, deployment: &str) -> Result<Option<Decision>, DbError> {
    let resumed: Option<DecisionRow> = sqlx::query_as(include_str!("../../sql/journal/resume.sql"))
        .bind(deployment)
        .fetch_optional(connection)
        .await
        .doing(|| "resume the schedule".to_owned())?;
    Ok(resumed.map(Decision::from))
}

/// The pause of a deployment's schedule; none while it is not paused.
pub(crate) async fn paused(connection: &mut PgConnection, deployment: &str) -> Result<Option<Decision>, DbError> {
    let paused: Option<DecisionRow> = sqlx::query_as(include_str!("../../sql/observe/pause.sql"))
        .bind(deployment)
        .fetch_optional(connection)
        .await
        .doing(|| "ask whether the schedule is paused".to_owned())?;
    Ok(paused.map(Decision::from))
}

/// Confirms removals beyond the cap, day by day. Returns the database's time.
pub(crate) async fn confirm_drops(
    connection: &mut PgConnection,
    inbox_id: Uuid,
    actor: &str,
    due: &Removals,
) -> Result<DateTime<Utc>, DbError> {
    let days = |days: &std::collections::BTreeSet<Day>| days.iter().copied().map(NaiveDate::from).collect::<Vec<_>>();
    sqlx::query_scalar(include_str!("../../sql/journal/confirm_drops.sql"))
        .bind(inbox_id)
        .bind(actor)
        .bind(days(&due.detach))
        .bind(days(&due.drop))
        .fetch_one(connection)
        .await
        .doing(|| "confirm the removals".to_owned())
}

/// A run has done what was confirmed.
pub(crate) async fn use_drops(connection: &mut PgConnection, inbox_id: Uuid) -> Result<(), DbError> {
    sqlx::query(include_str!("../../sql/journal/use_drops.sql"))
        .bind(inbox_id)
        .execute(connection)
        .await
        .doing(|| "put on record that the confirmed removals are done".to_owned())?;
    Ok(())
}
