//! What an adoption does to a table before the exchange: the checks beside it, and the lock.
//!
//! With the exchange the only DDL of ours that claims may wait for: a check cannot be added, nor a table renamed, under less than ACCESS
//! EXCLUSIVE. Each such transaction is short, and waits for its lock no longer than it is told.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row};

use super::{Sql, derive, execute};
use crate::{
    postgres::error::{DbError, Doing},
    pure::{Day, Derived, Ident, InboxSpec, TableName, render},
};

/// A validation reads the whole table. Nobody waits for it.
const LONGEST_SCAN: Duration = Duration::from_secs(6 * 3600);

async fn limits(
    connection: &mut PgConnection,
    lock: Duration,
    statement: Duration,
    local: bool,
) -> Result<(), DbError> {
    let millis = |limit: Duration| Sql::literal(&format!("{}ms", limit.as_millis()));
    let values = [
        ("lock", millis(lock)),
        ("statement", millis(statement)),
        ("local", Sql::fixed(if local { "true" } else { "false" })),
    ];
    execute(connection, include_str!("../../../sql/ddl/adopt/limits.sql"), &values).await
}

/// The limits of a transaction that claims may wait for, and the lock that they wait for.
pub(crate) async fn be_brief(
    connection: &mut PgConnection,
    table: &TableName,
    lock: Duration,
    statement: Duration,
) -> Result<(), DbError> {
    limits(connection, lock, statement, true).await?;
    let values = [("relation", Sql::table(table))];
    execute(connection, include_str!("../../../sql/ddl/adopt/lock.sql"), &values).await
}

/// Runs what reads the whole table under a limit of its own.
async fn patiently<T>(
    connection: &mut PgConnection,
    lock: Duration,
    doing: impl AsyncFnOnce(&mut PgConnection) -> Result<T, DbError>,
) -> Result<T, DbError> {
    limits(connection, lock, LONGEST_SCAN, false).await?;
    let done = doing(connection).await;
    let back = execute(connection, include_str!("../../../sql/ddl/be_impatient.sql"), &[]).await;
    // Where it failed by the connection, the second error says no more than the first.
    let done = done?;
    back.map(|()| done)
}

fn instant(at: DateTime<Utc>) -> Sql {
    Sql::literal(&format!("{}+00", at.format("%Y-%m-%d %H:%M:%S")))
}

fn is_unfilled(nullable: &[&'static str]) -> Sql {
    if nullable.is_empty() {
        return Sql::fixed("false");
    }
    let of_each: Vec<Sql> = nullable
        .iter()
        .map(|column| Sql::of("held.{{column}} is null", &[("column", Sql::fixed(column))]))
        .collect();
    Sql::joined(&of_each, " or ")
}

/// How many rows lie at or after the end that the adopted table would have, and how many hold a null. Reads all of it.
pub(crate) async fn unchecked(
    connection: &mut PgConnection,
    table: &TableName,
    until: Day,
    nullable: &[&'static str],
    lock: Duration,
) -> Result<(i64, i64), DbError> {
    let text = render(
        include_str!("../../../sql/ddl/adopt/scan.sql"),
        &[
            ("until", instant(until.start())),
            ("is_unfilled", is_unfilled(nullable)),
            ("relation", Sql::table(table)),
        ],
    );
    patiently(connection, lock, async |connection| {
        let doing = || format!("look through {table}");
        let row = sqlx::raw_sql(sqlx::AssertSqlSafe(text))
            .fetch_one(connection)
            .await
            .doing(doing)?;
        Ok((
            row.try_get("too_new").doing(doing)?,
            row.try_get("unfilled").doing(doing)?,
        ))
    })
    .await
}

fn until_check(spec: &InboxSpec, until: Day) -> Result<Ident, DbError> {
    derive(&spec.table, Derived::AdoptUntil(until))
}

/// Adds what is missing of the checks, in the transaction that holds the lock.
pub(crate) async fn add_checks(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    until: Option<Day>,
    nullable: &[&'static str],
) -> Result<(), DbError> {
    let mut checks = Vec::new();
    if let Some(until) = until {
        let condition = Sql::of("processed_at < {{until}}", &[("until", instant(until.start()))]);
        checks.push((until_check(spec, until)?, condition));
    }
    if !nullable.is_empty() {
        let of_each: Vec<Sql> = nullable
            .iter()
            .map(|column| Sql::of("{{column}} is not null", &[("column", Sql::fixed(column))]))
            .collect();
        checks.push((
            derive(&spec.table, Derived::AdoptFilled)?,
            Sql::joined(&of_each, " and "),
        ));
    }
    for (name, condition) in checks {
        let values = [
            ("relation", Sql::table(&spec.table)),
            ("check", Sql::ident(&name)),
            ("condition", condition),
        ];
        execute(
            connection,
            include_str!("../../../sql/ddl/adopt/add_check.sql"),
            &values,
        )
        .await?;
    }
    Ok(())
}

/// Whether the pg_partman in that schema looks after a table.
pub(crate) async fn partman_looks_after(
    connection: &mut PgConnection,
    schema: &Ident,
    table: &TableName,
) -> Result<bool, DbError> {
    let values = [
        ("schema", Sql::ident(schema)),
        ("table", Sql::text(&format!("{}.{}", table.schema(), table.table()))),
    ];
    let text = render(include_str!("../../../sql/ddl/adopt/partman.sql"), &values);
    let doing = || "read the configuration of pg_partman".to_owned();
    let row = sqlx::raw_sql(sqlx::AssertSqlSafe(text))
        .fetch_one(connection)
        .await
        .doing(doing)?;
    row.try_get("looks_after").doing(doing)
}

/// Makes sure that all rows fulfil a check. Takes SHARE UPDATE EXCLUSIVE, which no claim meets.
pub(crate) async fn validate(
    connection: &mut PgConnection,
    table: &TableName,
    check: &Ident,
    lock: Duration,
) -> Result<(), DbError> {
    let values = [("relation", Sql::table(table)), ("check", Sql::ident(check))];
    patiently(connection, lock, async |connection| {
        execute(connection, include_str!("../../../sql/ddl/adopt/validate.sql"), &values).await
    })
    .await
}

/// Drops checks by name, in the transaction that holds the lock.
pub(crate) async fn drop_checks(connection: &mut PgConnection, relation: Sql, checks: &[Ident]) -> Result<(), DbError> {
    for check in checks {
        let values = [("relation", relation.clone()), ("check", Sql::ident(check))];
        execute(
            connection,
            include_str!("../../../sql/ddl/adopt/drop_check.sql"),
            &values,
        )
        .await?;
    }
    Ok(())
}
