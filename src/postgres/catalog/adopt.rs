//! Looks at a table that may become an inbox, and at who still inserts into it directly.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row, postgres::PgRow, types::Json};

use super::{
    super::error::{DbError, Doing},
    read::{grants, ident, oid, replica_identity},
};
use crate::pure::{
    Bounds, Consumers, FoundCheck, FoundChild, FoundColumn, FoundPartitioned, FoundTable, InboxSpec, Problem, TableName,
};

/// A session that may insert directly.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct OldConsumer {
    /// Its process.
    pub(crate) pid: i32,
    /// Its application name; none without the right to see it.
    pub(crate) application_name: Option<String>,
    /// Its role.
    pub(crate) role: Option<String>,
    /// Whether its statement may not be seen, so that it cannot be told.
    pub(crate) is_hidden: bool,
}

/// The table of an inbox as an adoption must know it; none when there is none. Of its functions it knows nothing.
pub(crate) async fn adoptable(connection: &mut PgConnection, spec: &InboxSpec) -> Result<Option<FoundTable>, DbError> {
    ask(connection, spec, true).await
}

/// The same when the names that the swap needs are taken by the swap itself.
pub(crate) async fn adoptable_again(
    connection: &mut PgConnection,
    spec: &InboxSpec,
) -> Result<Option<FoundTable>, DbError> {
    ask(connection, spec, false).await
}

async fn ask(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    names_must_be_free: bool,
) -> Result<Option<FoundTable>, DbError> {
    let doing = || format!("look at {}", spec.table);
    let row = sqlx::query(include_str!("../../../sql/observe/adoption.sql"))
        .bind(spec.table.schema().as_str())
        .bind(spec.table.table().as_str())
        .bind(spec.policy.consumers == Consumers::Many)
        .bind(names_must_be_free)
        .fetch_optional(connection)
        .await
        .doing(doing)?;
    row.map(|row| read(&row)).transpose().doing(doing)
}

#[derive(serde::Deserialize)]
struct ColumnRow {
    name: String,
    kind: String,
    is_not_null: bool,
    has_default: bool,
    is_identity: bool,
}

#[derive(serde::Deserialize)]
struct CheckRow {
    name: String,
    is_validated: bool,
    says: String,
}

fn read(row: &PgRow) -> Result<FoundTable, sqlx::Error> {
    let Json(columns): Json<Vec<ColumnRow>> = row.try_get("columns")?;
    let Json(checks): Json<Vec<CheckRow>> = row.try_get("checks")?;
    Ok(FoundTable {
        oid: oid(row, "oid")?,
        kind: row.try_get("kind")?,
        owner: ident(row, "owner")?,
        columns: columns
            .into_iter()
            .map(|column| FoundColumn {
                name: column.name,
                kind: column.kind,
                is_not_null: column.is_not_null,
                has_default: column.has_default,
                is_identity: column.is_identity,
            })
            .collect(),
        has_key: row.try_get("has_key")?,
        other_unique: row.try_get("other_unique")?,
        other_indexes: row.try_get("other_indexes")?,
        in_the_way: row
            .try_get::<Json<Vec<Option<[String; 2]>>>, _>("in_the_way")?
            .0
            .into_iter()
            .flatten()
            .map(|[what, remedy]| Problem { what, remedy })
            .collect(),
        checks: checks
            .into_iter()
            .map(|check| FoundCheck {
                name: check.name,
                is_validated: check.is_validated,
                says: check.says,
            })
            .collect(),
        grants: grants(row)?,
        replica_identity: replica_identity(row)?,
        tablespace: row.try_get("tablespace")?,
        comment: row.try_get("comment")?,
        bytes: row.try_get("bytes")?,
        rows: row.try_get("rows")?,
        has_functions: false,
        now: row.try_get::<DateTime<Utc>, _>("now")?,
    })
}

/// What there is to see of a table that is partitioned already, but for why `init` would refuse it. Its pg_partman, where our
/// role may read the configuration of that, is still to be asked whether it looks after this very table.
pub(crate) async fn partitioned_already(
    connection: &mut PgConnection,
    spec: &InboxSpec,
) -> Result<FoundPartitioned, DbError> {
    let doing = || format!("look at the partitions of {}", spec.table);
    let (schema, table) = (spec.table.schema().as_str(), spec.table.table().as_str());
    let rows = sqlx::query(include_str!("../../../sql/observe/partitioned.sql"))
        .bind(schema)
        .bind(table)
        .bind(spec.policy.consumers == Consumers::Many)
        .fetch_all(&mut *connection)
        .await
        .doing(doing)?;
    let child = |row: &PgRow| {
        Ok::<_, sqlx::Error>(FoundChild {
            name: row.try_get("name")?,
            is_beside: row.try_get("is_beside")?,
            is_table: row.try_get("is_table")?,
            bounds: Bounds::parse(row.try_get("bounds")?, spec.policy.routing),
            has_key: row.try_get("has_key")?,
        })
    };
    let children = rows.iter().map(child).collect::<Result<_, _>>().doing(doing)?;
    let (partman, primary_key) = sqlx::query_as(include_str!("../../../sql/observe/partman.sql"))
        .bind(schema)
        .bind(table)
        .fetch_one(connection)
        .await
        .doing(doing)?;
    Ok(FoundPartitioned {
        unfit: None,
        primary_key,
        partman,
        children,
    })
}

/// Sessions whose last statement inserted into a table directly, or may not be seen: at most five.
pub(crate) async fn old_consumers(
    connection: &mut PgConnection,
    table: &TableName,
) -> Result<Vec<OldConsumer>, DbError> {
    let doing = || "ask who inserts directly".to_owned();
    let rows = sqlx::query(include_str!("../../../sql/observe/old_consumers.sql"))
        .bind(table.table().as_str())
        .fetch_all(connection)
        .await
        .doing(doing)?;
    rows.iter()
        .map(|row| {
            Ok(OldConsumer {
                pid: row.try_get("pid")?,
                application_name: row.try_get("application_name")?,
                role: row.try_get("role")?,
                is_hidden: row.try_get("is_hidden")?,
            })
        })
        .collect::<Result<_, sqlx::Error>>()
        .doing(doing)
}
