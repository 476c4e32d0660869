//! Looks at one thing: a relation as a step must find it again, a function, a hold.

use std::collections::{BTreeSet, HashMap};

use chrono::NaiveDate;
use sqlx::{PgConnection, Row, postgres::types::Oid};
use uuid::Uuid;

use super::{
    super::error::{DbError, Doing},
    read::{grants, misfit, replica_identity},
};
use crate::pure::{Consumers, Day, FoundInbox, Grant, Ident, InboxSpec, Parent};

/// One relation, as a step must find it again.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Relation {
    pub(crate) is_table: bool,
    pub(crate) is_partition: bool,
    pub(crate) is_pending: bool,
    pub(crate) has_default_replica_identity: bool,
    pub(crate) marker: Option<crate::pure::Marker>,
    pub(crate) left_by_drain: Option<crate::pure::LeftByDrain>,
    pub(crate) owner: String,
    pub(crate) grants: BTreeSet<Grant>,
}

/// The relation of an OID, if it still has that name.
pub(crate) async fn relation(
    connection: &mut PgConnection,
    oid: u32,
    schema: &Ident,
    name: &Ident,
) -> Result<Option<Relation>, DbError> {
    look_up(connection, Some(oid), schema, name).await
}

/// The relation of a name.
pub(crate) async fn relation_by_name(
    connection: &mut PgConnection,
    schema: &Ident,
    name: &Ident,
) -> Result<Option<Relation>, DbError> {
    look_up(connection, None, schema, name).await
}

async fn look_up(
    connection: &mut PgConnection,
    oid: Option<u32>,
    schema: &Ident,
    name: &Ident,
) -> Result<Option<Relation>, DbError> {
    let doing = || format!("look at {name}");
    let row = sqlx::query(include_str!("../../../sql/observe/relation.sql"))
        .bind(oid.map(sqlx::postgres::types::Oid))
        .bind(schema.as_str())
        .bind(name.as_str())
        .fetch_optional(connection)
        .await
        .doing(doing)?;
    row.map(|row| {
        Ok::<_, sqlx::Error>(Relation {
            is_table: row.try_get::<&str, _>("kind")? == "r",
            is_partition: row.try_get("is_partition")?,
            is_pending: row.try_get::<Option<bool>, _>("is_pending")?.unwrap_or(false),
            has_default_replica_identity: row.try_get("has_default_replica_identity")?,
            marker: row
                .try_get::<Option<&str>, _>("comment")?
                .and_then(|comment| comment.parse().ok()),
            left_by_drain: row
                .try_get::<Option<&str>, _>("comment")?
                .and_then(|comment| comment.parse().ok()),
            owner: row.try_get("owner")?,
            grants: grants(&row)?,
        })
    })
    .transpose()
    .doing(doing)
}

/// What stands under the name of an inbox that is not on record yet.
///
/// # Errors
/// When the database fails.
pub async fn unregistered_table(connection: &mut PgConnection, spec: &InboxSpec) -> Result<FoundInbox, DbError> {
    let doing = || format!("look at {}", spec.table);
    let row = sqlx::query(include_str!("../../../sql/observe/table.sql"))
        .bind(spec.table.schema().as_str())
        .bind(spec.table.table().as_str())
        .bind(spec.policy.consumers == Consumers::Many)
        .fetch_optional(connection)
        .await
        .doing(doing)?;
    let Some(row) = row else { return Ok(FoundInbox::Missing) };
    let kind: String = row.try_get("kind").doing(doing)?;
    match misfit(&kind, &row, spec).doing(doing)? {
        Some(why) => Ok(FoundInbox::Unfit(why)),
        None => Ok(FoundInbox::Fit(Parent {
            owner: row.try_get("owner").doing(doing)?,
            grants: BTreeSet::new(),
            replica_identity: replica_identity(&row).doing(doing)?,
            tablespace: None,
        })),
    }
}

/// Whether an inbox of that identity is on record.
pub(crate) async fn is_registered(connection: &mut PgConnection, inbox_id: Uuid) -> Result<bool, DbError> {
    sqlx::query_scalar(include_str!("../../../sql/observe/is_registered.sql"))
        .bind(inbox_id)
        .fetch_one(connection)
        .await
        .doing(|| format!("ask whether inbox {inbox_id} is on record"))
}

/// What is becoming of a day's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DayStanding {
    pub(crate) is_partition: bool,
    pub(crate) is_pending: bool,
    /// Whether a detach is on record that has begun and not ended, and that nobody may have in hand any more.
    pub(crate) has_begun: bool,
}

/// What is becoming of the table with that OID, the day's of an inbox; none when it is gone.
pub(crate) async fn day_standing(
    connection: &mut PgConnection,
    oid: u32,
    inbox_id: Uuid,
    day: Day,
) -> Result<Option<DayStanding>, DbError> {
    let found: Option<(bool, bool, bool)> = sqlx::query_as(include_str!("../../../sql/observe/day_standing.sql"))
        .bind(Oid(oid))
        .bind(inbox_id)
        .bind(NaiveDate::from(day))
        .fetch_optional(connection)
        .await
        .doing(|| format!("ask what has become of the table of {day}"))?;
    Ok(found.map(|(is_partition, is_pending, has_begun)| DayStanding {
        is_partition,
        is_pending,
        has_begun,
    }))
}

/// Whether a day of an inbox is on hold.
pub(crate) async fn is_on_hold(connection: &mut PgConnection, inbox_id: Uuid, day: Day) -> Result<bool, DbError> {
    sqlx::query_scalar(include_str!("../../../sql/observe/hold.sql"))
        .bind(inbox_id)
        .bind(NaiveDate::from(day))
        .fetch_one(connection)
        .await
        .doing(|| format!("ask whether {day} is on hold"))
}

/// The owner of a function, and the roles beside it and everybody that may execute it; none when there is no such function.
pub(crate) async fn function(
    connection: &mut PgConnection,
    signature: &str,
) -> Result<Option<(String, Vec<String>)>, DbError> {
    sqlx::query_as(include_str!("../../../sql/observe/function.sql"))
        .bind(signature)
        .fetch_optional(connection)
        .await
        .doing(|| format!("look at the function {signature}"))
}

/// The comment of an inbox's claim function; none when there is no such function.
pub(crate) async fn claim_comment(connection: &mut PgConnection, spec: &InboxSpec) -> Result<Option<String>, DbError> {
    let comment: Option<Option<String>> = sqlx::query_scalar(include_str!("../../../sql/observe/claim_comment.sql"))
        .bind(spec.table.schema().as_str())
        .bind(spec.table.table().as_str())
        .fetch_optional(connection)
        .await
        .doing(|| format!("look at the claim function of {}", spec.table))?;
    Ok(comment.flatten())
}

/// Whether an index of that name on a table is invalid, as an interrupted repair of its key leaves it.
pub(crate) async fn is_invalid_index(connection: &mut PgConnection, oid: u32, index: &Ident) -> Result<bool, DbError> {
    let found: Option<String> = sqlx::query_scalar(include_str!("../../../sql/observe/invalid_index.sql"))
        .bind(sqlx::postgres::types::Oid(oid))
        .bind(index.as_str())
        .fetch_optional(connection)
        .await
        .doing(|| format!("look at index {index}"))?;
    Ok(found.is_some())
}

/// The age in seconds of the oldest transaction that holds each inbox, where one does and its session may be seen.
///
/// # Errors
/// When the database fails.
pub async fn oldest_transactions(connection: &mut PgConnection) -> Result<HashMap<(String, String), i64>, DbError> {
    let rows = sqlx::query_as::<_, (String, String, Option<i64>)>(include_str!(
        "../../../sql/observe/oldest_transactions.sql"
    ))
    .fetch_all(connection)
    .await
    .doing(|| "look for transactions that hold an inbox".to_owned())?;
    let ages = rows
        .into_iter()
        .filter_map(|(schema, table, seconds)| Some(((schema, table), seconds?)));
    Ok(ages.collect())
}

/// The sizes in bytes, by OID, of partitions whose detach has begun and that are not dropped yet.
///
/// # Errors
/// When the database fails.
pub async fn leaving_sizes(connection: &mut PgConnection) -> Result<HashMap<u32, i64>, DbError> {
    let rows = sqlx::query_as::<_, (Oid, Option<i64>)>(include_str!("../../../sql/observe/leaving_sizes.sql"))
        .fetch_all(connection)
        .await
        .doing(|| "read the sizes of partitions that are leaving".to_owned())?;
    Ok(rows
        .into_iter()
        .filter_map(|(oid, bytes)| Some((oid.0, bytes?)))
        .collect())
}
