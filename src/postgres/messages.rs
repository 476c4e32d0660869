//! One message of an inbox: looked for, and forgotten. Never reads a partition whole, never waits long for one.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use super::error::{DbError, Doing, ErrorKind};
use crate::pure::{Consumers, Derived, Function, Ident, InboxSpec, Sql, render};

/// A row of a message: when it was claimed, its topic, and by which consumer where there are many.
pub(crate) type MessageRow = (DateTime<Utc>, String, Option<String>);

/// The rows of a message in one partition, by its key alone. In a transaction of its own, so that no lock stays behind.
///
/// # Errors
/// `LockTimeout` when the partition is locked for longer than `patience`.
pub(crate) async fn find(
    connection: &mut PgConnection,
    [schema, partition]: [&Ident; 2],
    consumers: Consumers,
    id: Uuid,
    consumer: Option<&str>,
    patience: Duration,
) -> Result<Vec<MessageRow>, DbError> {
    let doing = || format!("look for the message in {partition}");
    let many = consumers == Consumers::Many;
    let text = render(
        include_str!("../../sql/message/find.sql"),
        &[
            ("partition", Sql::in_schema(schema, partition)),
            (
                "consumer",
                Sql::fixed(if many { "found.consumer" } else { "null::text" }),
            ),
            (
                "and_consumer",
                Sql::fixed(if consumer.is_some() {
                    " and found.consumer = $2"
                } else {
                    ""
                }),
            ),
        ],
    );
    let mut transaction = connection
        .begin_with("begin isolation level read committed, read only")
        .await
        .doing(doing)?;
    sqlx::query(include_str!("../../sql/message/limit.sql"))
        .bind(i64::try_from(patience.as_millis()).unwrap_or(i64::MAX))
        .execute(&mut *transaction)
        .await
        .doing(doing)?;
    let mut query = sqlx::query_as(AssertSqlSafe(text)).persistent(false).bind(id);
    if let Some(consumer) = consumer {
        query = query.bind(consumer);
    }
    let found = query.fetch_all(&mut *transaction).await.doing(doing)?;
    transaction.rollback().await.doing(doing)?;
    Ok(found)
}

/// Takes a message out of the journal; whether it was there. The function leaves its line on the audit.
pub(crate) async fn forget(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    id: Uuid,
    consumer: Option<&str>,
    reason: &str,
) -> Result<bool, DbError> {
    let function = spec
        .table
        .derive(Derived::Function(Function::Forget))
        .map_err(|error| DbError::noticed(ErrorKind::Other, error.to_string()))?;
    let function = Sql::in_schema(spec.table.schema(), &function);
    let text = render(include_str!("../../sql/message/forget.sql"), &[("function", function)]);
    sqlx::query_scalar(AssertSqlSafe(text))
        .persistent(false)
        .bind(id)
        .bind(consumer)
        .bind(reason)
        .fetch_one(connection)
        .await
        .doing(|| format!("forget message {id}"))
}
