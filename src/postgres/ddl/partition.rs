//! A partition comes into the inbox: made, or attached again.

use chrono::{DateTime, Utc};
use sqlx::{Acquire, PgConnection};

use super::{Sql, Work, derive, execute, key_columns, refused, repair};
use crate::{
    postgres::{
        catalog,
        error::{DbError, Doing, ErrorKind},
        journal,
    },
    pure::{Bounds, Day, Derived, Ident, Marker, Routing, STORAGE_PARAMETERS},
};

/// Makes the partition of a day and attaches it, in one transaction: nothing half-made can remain.
///
/// It is a table of its own until the attach, which takes SHARE UPDATE EXCLUSIVE on the inbox and so meets no claim. The
/// check constraint that spares the attach its scan is dropped before anybody else can see the table.
pub(super) async fn create(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    create_in(&mut transaction, work, &work.inbox()).await?;
    transaction
        .commit()
        .await
        .doing(|| "commit the new partition".to_owned())
}

/// The same in the caller's transaction, for a parent that need not have the inbox's name yet.
pub(super) async fn create_in(on: &mut PgConnection, work: Work<'_>, parent: &Sql) -> Result<(), DbError> {
    let day = work.day()?;
    let key = Sql::ident(&derive(&work.spec.table, Derived::PartitionKey(day))?);
    create_loose(on, work, parent, day, key).await?;
    comment(on, work, None).await?;
    attach_to(on, parent.clone(), work, day).await?;
    drop_check(on, work, day).await?;
    journal::partition_created(on, work.inbox_id, day, &work.step.schema, &work.step.relation).await
}

/// Makes a table that is fit to be the partition of a day, with a check constraint that spares its attach the scan. It has
/// the columns of the parent.
pub(super) async fn create_loose(
    on: &mut PgConnection,
    work: Work<'_>,
    parent: &Sql,
    day: Day,
    key: Sql,
) -> Result<(), DbError> {
    let partition = work.relation();
    let [from, to] = ends(day, work.spec.policy.routing);
    let tablespace = match &work.parent.tablespace {
        Some(name) => Sql::of(
            " tablespace {{name}}",
            &[("name", Sql::ident(&Ident::new(name.clone()).map_err(refused)?))],
        ),
        None => Sql::fixed(""),
    };
    let made = [
        ("partition", partition.clone()),
        ("inbox", parent.clone()),
        ("storage", Sql::list(STORAGE_PARAMETERS)),
        ("tablespace", tablespace),
    ];
    execute(on, include_str!("../../../sql/ddl/create_table.sql"), &made).await?;
    repair::owner(on, work).await?;
    // Default privileges may have given it others; the owner's own show only under the new owner.
    repair::grants(on, work).await?;
    repair::replica_identity(on, work).await?;
    let keyed = [
        ("partition", partition.clone()),
        ("key", key),
        ("columns", key_columns(work.spec.policy.consumers)),
    ];
    execute(on, include_str!("../../../sql/ddl/add_key.sql"), &keyed).await?;
    let checked = [
        ("partition", partition),
        ("check", check(work, day)?),
        ("column", Sql::fixed(work.spec.policy.routing.column())),
        ("from", from),
        ("to", to),
    ];
    execute(on, include_str!("../../../sql/ddl/add_check.sql"), &checked).await
}

fn check(work: Work<'_>, day: Day) -> Result<Sql, DbError> {
    Ok(Sql::ident(&derive(&work.spec.table, Derived::PartitionCheck(day))?))
}

/// Only in the transaction that made the table visible: on a partition that others can see this would lock them out.
pub(super) async fn drop_check(on: &mut PgConnection, work: Work<'_>, day: Day) -> Result<(), DbError> {
    let values = [("partition", work.relation()), ("check", check(work, day)?)];
    execute(on, include_str!("../../../sql/ddl/drop_check.sql"), &values).await
}

/// Attaches a partition that is there. PostgreSQL checks that every row is of its day: where a check constraint equal to
/// the bounds stands on it, as a concurrent detach leaves one, without a scan.
pub(super) async fn attach(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let day = work.day()?;
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    mark(&mut transaction, work, None).await?;
    attach_to(&mut transaction, work.inbox(), work, day).await?;
    journal::partition_attached(&mut transaction, work.inbox_id, day, work.step.oid).await?;
    transaction.commit().await.doing(|| "commit the attach".to_owned())
}

pub(super) async fn attach_to(
    connection: &mut PgConnection,
    parent: Sql,
    work: Work<'_>,
    day: Day,
) -> Result<(), DbError> {
    let [from, to] = ends(day, work.spec.policy.routing);
    // What was adopted holds all days up to its last.
    let is_adopted = work.step.relation == work.spec.table.adopted();
    let from = if is_adopted { Sql::fixed("minvalue") } else { from };
    let values = [
        ("inbox", parent),
        ("partition", work.relation()),
        ("from", from),
        ("to", to),
    ];
    execute(connection, include_str!("../../../sql/ddl/attach.sql"), &values).await
}

fn ends(day: Day, routing: Routing) -> [Sql; 2] {
    Bounds::ends(day, routing).map(|end| Sql::literal(&end))
}

/// Puts on record, in our table and on the partition itself, that it is attached: its day has had a partition, and no detach
/// of it counts any more.
pub(super) async fn mark_attached(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let day = work.day()?;
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    journal::partition_attached(&mut transaction, work.inbox_id, day, work.step.oid).await?;
    mark(&mut transaction, work, None).await?;
    transaction
        .commit()
        .await
        .doing(|| "commit the record of the attached partition".to_owned())
}

/// Sets the marker of a table, after making sure that it still is the one that was planned for.
pub(super) async fn mark(
    connection: &mut PgConnection,
    work: Work<'_>,
    detached_at: Option<DateTime<Utc>>,
) -> Result<(), DbError> {
    let marker = marker(work, detached_at)?;
    let found = catalog::relation(connection, work.oid()?, &work.step.schema, &work.step.relation).await?;
    match found {
        None => Err(DbError::noticed(
            ErrorKind::WrongState,
            format!("{} is another table now", work.step.relation),
        )),
        Some(relation) if relation.marker.as_ref() == Some(&marker) => Ok(()),
        Some(_) => comment(connection, work, detached_at).await,
    }
}

fn marker(work: Work<'_>, detached_at: Option<DateTime<Utc>>) -> Result<Marker, DbError> {
    Ok(Marker {
        inbox: work.inbox_id,
        day: work.day()?,
        detached_at,
    })
}

pub(super) async fn comment(
    connection: &mut PgConnection,
    work: Work<'_>,
    detached_at: Option<DateTime<Utc>>,
) -> Result<(), DbError> {
    let text = Sql::literal(&marker(work, detached_at)?.to_string());
    execute(
        connection,
        include_str!("../../../sql/ddl/comment.sql"),
        &[("relation", work.relation()), ("text", text)],
    )
    .await
}
