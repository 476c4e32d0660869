//! What there is of an inbox's digest.

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use super::{
    Observed,
    read::{ident, oid},
};
use crate::{
    postgres::error::{DbError, Doing},
    pure::{Covers, DIGEST_SLOTS, Derived, DigestSlot, InboxSpec, Sql, render},
};

/// What is written on the tables of an inbox's digest.
pub(crate) fn digest_marker(inbox: Uuid) -> String {
    format!("inboxd: digest of inbox {inbox}")
}

/// The tables of an inbox's digest that are there, without what they cover.
///
/// # Errors
/// When the database fails.
pub(crate) async fn digest_slots(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    inbox: Uuid,
) -> Result<Vec<DigestSlot>, DbError> {
    let doing = || format!("look at the digest of {}", spec.table);
    let names = (0..DIGEST_SLOTS)
        .map(|slot| {
            spec.table
                .derive(Derived::DigestSlot(slot))
                .map(|name| name.to_string())
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(super::super::ddl::refused)?;
    let rows = sqlx::query(include_str!("../../../sql/observe/digest_slots.sql"))
        .bind(spec.table.schema().as_str())
        .bind(names)
        .bind(digest_marker(inbox))
        .fetch_all(connection)
        .await
        .doing(doing)?;
    rows.iter()
        .map(|row| {
            Ok(DigestSlot {
                name: ident(row, "name")?,
                oid: oid(row, "oid")?,
                covers: None,
                bytes: row.try_get("bytes")?,
            })
        })
        .collect::<Result<_, sqlx::Error>>()
        .doing(doing)
}

/// Adds the digest of an inbox whose claim functions ask one.
pub(super) async fn add_digest(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    observed: &mut Observed,
) -> Result<(), DbError> {
    let Some(constants) = &observed.made_with else {
        return Ok(());
    };
    let doing = || format!("look at the digest of {}", spec.table);
    let mut slots = digest_slots(connection, spec, constants.inbox).await?;
    for slot in &mut slots {
        let values = [
            ("slot", Sql::in_schema(spec.table.schema(), &slot.name)),
            ("lock_key", Sql::number(constants.lock_key)),
        ];
        let text = render(include_str!("../../../sql/ddl/digest_covers.sql"), &values);
        let covers: Option<(DateTime<Utc>, DateTime<Utc>)> = sqlx::query_as(AssertSqlSafe(text))
            .fetch_optional(&mut *connection)
            .await
            .doing(doing)?;
        slot.covers = covers.map(|(from, to)| Covers { from, to });
    }
    observed.found.digest = slots.try_into().ok();
    // Claims ask a table that is not there.
    observed.found.has_functions &= observed.found.digest.is_some();
    Ok(())
}
