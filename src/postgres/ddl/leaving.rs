//! A partition leaves the inbox: detached, finalized, put on record, archived, dropped.

use sqlx::{Acquire, PgConnection};

use super::{Sql, Work, execute, partition::mark};
use crate::{
    postgres::{
        catalog,
        error::{DbError, Doing, ErrorKind},
        journal, lock,
    },
    pure::OnExpiry,
};

/// Takes an expired partition out of the inbox. Claims go on; it waits itself for transactions that use the inbox.
///
/// When it cannot be done within the session's timeouts it may be left *pending*, which [`finalize`] ends.
pub(super) async fn detach(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    // Before it leaves, so that a loose table can be told from a stranger's after any crash.
    mark(connection, work, None).await?;
    begin_detach(connection, work).await?;
    leave(connection, include_str!("../../../sql/ddl/detach.sql"), work).await?;
    mark_detached(connection, work).await
}

/// Right before a detach, which can be part of no transaction: a hold that comes before this keeps the day in the inbox, one
/// that comes after it finds on record that the day is leaving, and keeps its table.
async fn begin_detach(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let day = work.day()?;
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    lock::lock_day(&mut transaction, work.inbox_id, day).await?;
    if catalog::is_on_hold(&mut transaction, work.inbox_id, day).await? {
        let name = &work.step.relation;
        return Err(DbError::noticed(
            ErrorKind::WrongState,
            format!("{name} stays: its day is on hold"),
        ));
    }
    journal::detach_started(&mut transaction, work.inbox_id, day, work.step.oid).await?;
    transaction
        .commit()
        .await
        .doing(|| "record that the detach begins".to_owned())
}

/// Ends an interrupted detach. It waits for every older snapshot in the database, within the session's timeouts; claims are
/// not concerned. Whether its grace begins is decided afterwards: it may have been somebody else's detach, of a day that is needed.
pub(super) async fn finalize(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    if let Some(day) = work.step.day {
        let found = catalog::relation(connection, work.oid()?, &work.step.schema, &work.step.relation).await?;
        let marker = found.and_then(|relation| relation.marker);
        // What says that it is something else still says so afterwards: such a table is never removed.
        if marker.is_none_or(|marker| marker.inbox == work.inbox_id && marker.day == day) {
            mark(connection, work, None).await?;
        }
    }
    leave(connection, include_str!("../../../sql/ddl/finalize.sql"), work).await
}

async fn leave(connection: &mut PgConnection, template: &'static str, work: Work<'_>) -> Result<(), DbError> {
    execute(
        connection,
        template,
        &[("inbox", work.inbox()), ("partition", work.relation())],
    )
    .await
}

/// Puts on record, in our table and on the partition itself, that it is detached. Its grace runs from here.
pub(super) async fn mark_detached(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    let at = journal::partition_detached(&mut transaction, work.inbox_id, work.day()?, work.step.oid).await?;
    mark(&mut transaction, work, Some(at)).await?;
    transaction.commit().await.doing(|| "record the detach".to_owned())
}

/// Moves a detached partition to the schema of the archive.
pub(super) async fn archive(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let OnExpiry::Keep {
        archive_schema: Some(schema),
    } = &work.spec.policy.on_expiry
    else {
        return Err(DbError::noticed(
            ErrorKind::WrongState,
            "no archive_schema is configured",
        ));
    };
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    lock_what_may_go(&mut transaction, work).await?;
    let values = [("relation", work.relation()), ("schema", Sql::ident(schema))];
    execute(
        &mut transaction,
        include_str!("../../../sql/ddl/set_schema.sql"),
        &values,
    )
    .await?;
    transaction
        .commit()
        .await
        .doing(|| "commit the move to the archive".to_owned())
}

/// Drops a detached partition.
pub(super) async fn drop_detached(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    lock_what_may_go(&mut transaction, work).await?;
    execute(
        &mut transaction,
        include_str!("../../../sql/ddl/drop_table.sql"),
        &[("relation", work.relation())],
    )
    .await?;
    // On a full disk the drop is what gives room again. Its record, which may find none, says no more than when it was.
    let mut savepoint = transaction.begin().await.doing(|| "set a savepoint".to_owned())?;
    match journal::partition_dropped(&mut savepoint, work.inbox_id, work.day()?).await {
        Err(error) if error.kind() == ErrorKind::DiskFull => {
            tracing::warn!(%error, "the disk is full: a table is dropped, and that is not on record yet");
            savepoint.rollback().await
        }
        recorded => {
            recorded?;
            savepoint.commit().await
        }
    }
    .doing(|| "end the savepoint".to_owned())?;
    transaction.commit().await.doing(|| "commit the drop".to_owned())
}

/// Locks a table that is to go, then its day, so that no hold comes in between any more; and under both locks makes sure, in
/// this order, that the name still belongs to the table that was planned for; that it is a plain table; that it is a partition
/// of nothing; that its marker says it is this inbox's and this day's; and that the day is not on hold: since it was planned, a
/// command may have run for minutes before the drop. The table comes first: a hold must not wait for who reads that.
async fn lock_what_may_go(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let (day, oid, name) = (work.day()?, work.oid()?, &work.step.relation);
    let locked = [("relation", work.relation()), ("mode", Sql::fixed("access exclusive"))];
    execute(connection, include_str!("../../../sql/ddl/lock_table.sql"), &locked).await?;
    lock::lock_day(connection, work.inbox_id, day).await?;
    let why_not = match catalog::relation(connection, oid, &work.step.schema, name).await? {
        None => "the name belongs to another table now",
        Some(relation) if !relation.is_table => "it is no plain table",
        Some(relation) if relation.is_partition => "it is a partition again",
        Some(relation) => match relation.marker {
            Some(marker) if marker.inbox == work.inbox_id && marker.day == day => {
                if !catalog::is_on_hold(connection, work.inbox_id, day).await? {
                    return Ok(());
                }
                "its day is on hold"
            }
            _ => "it is not marked as this inbox's",
        },
    };
    Err(DbError::noticed(
        ErrorKind::WrongState,
        format!("{name} stays: {why_not}"),
    ))
}
