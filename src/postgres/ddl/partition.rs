//! The life of one partition: create, detach, finalize, mark, drop.

use chrono::{DateTime, Utc};
use sqlx::{Acquire, PgConnection};
use uuid::Uuid;

use super::{Sql, execute};
use crate::{
    postgres::{
        catalog::{self, Relation},
        error::{DbError, Doing, ErrorKind},
        journal,
    },
    pure::{
        Bounds, Consumers, Day, Derived, FoundInbox, Grant, Ident, IdentError, InboxSpec, Marker, STORAGE_PARAMETERS,
        Step, TableName,
    },
};

/// What a new partition must be like.
#[derive(Debug, Clone, Copy)]
pub struct Create<'a> {
    /// The inbox.
    pub spec: &'a InboxSpec,
    /// Its identity.
    pub inbox_id: Uuid,
    /// Its table as it was found: owner and grants are the partition's too.
    pub inbox: &'a FoundInbox,
    /// The day.
    pub day: Day,
}

/// Makes the partition of a day and attaches it, in one transaction: nothing half-made can remain.
///
/// It is a table of its own until the attach, which takes SHARE UPDATE EXCLUSIVE on the inbox and so meets no claim. The
/// check constraint that spares the attach its scan is dropped before anybody else can see the table.
///
/// # Errors
/// When a statement fails; nothing is left behind then. `Taken` when the name or the range is in use.
pub async fn create(connection: &mut PgConnection, wanted: Create<'_>) -> Result<(), DbError> {
    let Create {
        spec,
        inbox_id,
        inbox,
        day,
    } = wanted;
    let table = &spec.table;
    let name = derive(table, Derived::Partition(day))?;
    let partition = Sql::in_schema(table.schema(), &name);
    let check = Sql::ident(&derive(table, Derived::PartitionCheck(day))?);
    let [from, to] = Bounds::ends(day, spec.policy.routing).map(|end| Sql::literal(&end));
    let parent = Sql::table(table);
    let marker = Marker {
        inbox: inbox_id,
        day,
        detached_at: None,
    };

    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    let on = &mut *transaction;
    execute(
        on,
        include_str!("../../../sql/ddl/create_table.sql"),
        &[
            ("partition", partition.clone()),
            ("inbox", parent.clone()),
            ("storage", storage()),
        ],
    )
    .await?;
    if let FoundInbox::Fit { owner, grants } = inbox {
        same_owner_and_grants(on, table.schema(), &name, owner, grants).await?;
    }
    execute(
        on,
        include_str!("../../../sql/ddl/add_key.sql"),
        &[
            ("partition", partition.clone()),
            ("key", Sql::ident(&derive(table, Derived::PartitionKey(day))?)),
            ("columns", key_columns(spec.policy.consumers)),
        ],
    )
    .await?;
    execute(
        on,
        include_str!("../../../sql/ddl/add_check.sql"),
        &[
            ("partition", partition.clone()),
            ("check", check.clone()),
            ("column", Sql::fixed(spec.policy.routing.column())),
            ("from", from.clone()),
            ("to", to.clone()),
        ],
    )
    .await?;
    comment(on, &partition, &marker).await?;
    execute(
        on,
        include_str!("../../../sql/ddl/attach.sql"),
        &[
            ("inbox", parent),
            ("partition", partition.clone()),
            ("from", from),
            ("to", to),
        ],
    )
    .await?;
    execute(
        on,
        include_str!("../../../sql/ddl/drop_check.sql"),
        &[("partition", partition.clone()), ("check", check)],
    )
    .await?;
    journal::partition_created(on, inbox_id, day, table.schema(), &name).await?;
    transaction
        .commit()
        .await
        .doing(|| "commit the new partition".to_owned())
}

/// Takes an expired partition out of the inbox. Claims go on; it waits itself for transactions that use the inbox.
///
/// # Errors
/// When it cannot be done within the session's timeouts. The detach may then be *pending*, which [`finalize`] ends.
pub async fn detach(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    inbox_id: Uuid,
    step: &Step,
) -> Result<(), DbError> {
    mark_before_leaving(connection, inbox_id, step).await?;
    let values = [
        ("inbox", Sql::table(&spec.table)),
        ("partition", Sql::in_schema(&step.schema, &step.relation)),
    ];
    execute(connection, include_str!("../../../sql/ddl/detach.sql"), &values).await?;
    mark_detached(connection, inbox_id, step).await
}

/// Before it leaves the inbox, so that a loose table can be told from a stranger's after any crash.
async fn mark_before_leaving(connection: &mut PgConnection, inbox_id: Uuid, step: &Step) -> Result<(), DbError> {
    let Some(day) = step.day else { return Ok(()) };
    mark(connection, inbox_id, day, step, None).await?;
    journal::detach_started(connection, inbox_id, day, step.oid).await
}

/// Ends an interrupted detach. It waits for every older snapshot in the database, within the session's timeouts.
///
/// # Errors
/// When it cannot be done in time; it stays pending, and claims are not concerned.
pub async fn finalize(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    inbox_id: Uuid,
    step: &Step,
) -> Result<(), DbError> {
    mark_before_leaving(connection, inbox_id, step).await?;
    let values = [
        ("inbox", Sql::table(&spec.table)),
        ("partition", Sql::in_schema(&step.schema, &step.relation)),
    ];
    execute(connection, include_str!("../../../sql/ddl/finalize.sql"), &values).await?;
    mark_detached(connection, inbox_id, step).await
}

/// Puts on record, in our table and on the partition itself, that it is detached. Its grace runs from here.
///
/// # Errors
/// When a statement fails; the next run does it again.
pub async fn mark_detached(connection: &mut PgConnection, inbox_id: Uuid, step: &Step) -> Result<(), DbError> {
    let Some(day) = step.day else { return Ok(()) };
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    let at = journal::partition_detached(&mut transaction, inbox_id, day, step.oid).await?;
    mark(&mut transaction, inbox_id, day, step, Some(at)).await?;
    transaction.commit().await.doing(|| "record the detach".to_owned())
}

/// Takes a detach off the record, in our table and on the partition itself: it is attached again.
///
/// # Errors
/// When a statement fails; the next run does it again.
pub async fn mark_attached(connection: &mut PgConnection, inbox_id: Uuid, step: &Step) -> Result<(), DbError> {
    let Some(day) = step.day else { return Ok(()) };
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    journal::partition_attached(&mut transaction, inbox_id, day, step.oid).await?;
    mark(&mut transaction, inbox_id, day, step, None).await?;
    transaction
        .commit()
        .await
        .doing(|| "take the detach off the record".to_owned())
}

/// Drops a detached partition.
///
/// Under the lock that the drop needs anyway it makes sure, in this order, that the name still belongs to the table that
/// was planned for; that it is a plain table; that it is a partition of nothing; that its marker says it is this inbox's and this day's.
///
/// # Errors
/// `WrongState` when one of these does not hold; otherwise what the database said. The table stays then.
pub async fn drop_detached(connection: &mut PgConnection, inbox_id: Uuid, step: &Step) -> Result<(), DbError> {
    let relation = Sql::in_schema(&step.schema, &step.relation);
    let (Some(day), Some(oid)) = (step.day, step.oid) else {
        return Err(DbError::noticed(
            ErrorKind::WrongState,
            "a drop needs the day and the table that it was planned for",
        ));
    };
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    let on = &mut *transaction;
    execute(
        on,
        include_str!("../../../sql/ddl/lock_table.sql"),
        &[("relation", relation.clone()), ("mode", Sql::fixed("access exclusive"))],
    )
    .await?;
    let found = catalog::relation(on, oid, &step.schema, &step.relation).await?;
    let marked = |relation: &Relation| {
        relation
            .marker
            .as_ref()
            .is_some_and(|marker| marker.inbox == inbox_id && marker.day == day)
    };
    let why_not = match &found {
        None => Some("the name belongs to another table now"),
        Some(relation) if !relation.is_table => Some("it is no plain table"),
        Some(relation) if relation.is_partition => Some("it is a partition again"),
        Some(relation) if !marked(relation) => Some("it is not marked as this inbox's"),
        Some(_) => None,
    };
    if let Some(why) = why_not {
        return Err(DbError::noticed(
            ErrorKind::WrongState,
            format!("{} is not dropped: {why}", step.relation),
        ));
    }
    execute(
        on,
        include_str!("../../../sql/ddl/drop_table.sql"),
        &[("relation", relation)],
    )
    .await?;
    journal::partition_dropped(on, inbox_id, day).await?;
    transaction.commit().await.doing(|| "commit the drop".to_owned())
}

/// Sets the marker of a table, after making sure that it still is the one that was planned for.
async fn mark(
    connection: &mut PgConnection,
    inbox_id: Uuid,
    day: Day,
    step: &Step,
    detached_at: Option<DateTime<Utc>>,
) -> Result<(), DbError> {
    let oid = step.oid.unwrap_or_default();
    let Some(relation) = catalog::relation(connection, oid, &step.schema, &step.relation).await? else {
        return Err(DbError::noticed(
            ErrorKind::WrongState,
            format!("{} is another table now", step.relation),
        ));
    };
    let marker = Marker {
        inbox: inbox_id,
        day,
        detached_at,
    };
    if relation.marker.as_ref() == Some(&marker) {
        return Ok(());
    }
    comment(connection, &Sql::in_schema(&step.schema, &step.relation), &marker).await
}

async fn comment(connection: &mut PgConnection, relation: &Sql, marker: &Marker) -> Result<(), DbError> {
    let values = [
        ("relation", relation.clone()),
        ("text", Sql::literal(&marker.to_string())),
    ];
    execute(connection, include_str!("../../../sql/ddl/comment.sql"), &values).await
}

/// Gives a new table the inbox's owner and exactly its privileges; default privileges may have given it others.
async fn same_owner_and_grants(
    connection: &mut PgConnection,
    schema: &Ident,
    name: &Ident,
    owner: &str,
    grants: &std::collections::BTreeSet<Grant>,
) -> Result<(), DbError> {
    let relation = Sql::in_schema(schema, name);
    let fresh = look(connection, schema, name).await?;
    if fresh.owner != owner {
        execute(
            connection,
            include_str!("../../../sql/ddl/set_owner.sql"),
            &[("relation", relation.clone()), ("role", role(owner)?)],
        )
        .await?;
    }
    // The owner's own default privileges show only under the new owner.
    let fresh = look(connection, schema, name).await?;
    for grant in fresh.grants.difference(grants) {
        let values = [
            ("privilege", privilege(grant)?),
            ("relation", relation.clone()),
            ("role", role(&grant.grantee)?),
        ];
        execute(connection, include_str!("../../../sql/ddl/revoke.sql"), &values).await?;
    }
    for grant in grants.difference(&fresh.grants) {
        let option = Sql::fixed(if grant.grantable { " with grant option" } else { "" });
        let values = [
            ("privilege", privilege(grant)?),
            ("relation", relation.clone()),
            ("role", role(&grant.grantee)?),
            ("option", option),
        ];
        execute(connection, include_str!("../../../sql/ddl/grant.sql"), &values).await?;
    }
    Ok(())
}

async fn look(connection: &mut PgConnection, schema: &Ident, name: &Ident) -> Result<Relation, DbError> {
    let found = catalog::relation_by_name(connection, schema, name).await?;
    found.ok_or_else(|| {
        DbError::noticed(
            ErrorKind::Missing,
            format!("{name} is gone in the transaction that made it"),
        )
    })
}

/// A role as the catalog names it; empty is everybody.
fn role(name: &str) -> Result<Sql, DbError> {
    if name.is_empty() {
        return Ok(Sql::fixed("public"));
    }
    Ident::new(name).map(|name| Sql::ident(&name)).map_err(refused)
}

/// A privilege that a table can carry. Text of the catalog becomes SQL only when we know it.
fn privilege(grant: &Grant) -> Result<Sql, DbError> {
    const KNOWN: &[&str] = &[
        "SELECT",
        "INSERT",
        "UPDATE",
        "DELETE",
        "TRUNCATE",
        "REFERENCES",
        "TRIGGER",
        "MAINTAIN",
    ];
    KNOWN
        .iter()
        .find(|known| **known == grant.privilege)
        .map(|known| Sql::fixed(known))
        .ok_or_else(|| {
            DbError::noticed(
                ErrorKind::Other,
                format!("unknown privilege {:?} on the inbox", grant.privilege),
            )
        })
}

fn storage() -> Sql {
    Sql::list(STORAGE_PARAMETERS)
}

pub(super) fn key_columns(consumers: Consumers) -> Sql {
    Sql::fixed(match consumers {
        Consumers::One => "message_id",
        Consumers::Many => "message_id, consumer",
    })
}

pub(super) fn derive(table: &TableName, derived: Derived) -> Result<Ident, DbError> {
    table.derive(derived).map_err(refused)
}

pub(super) fn refused(error: IdentError) -> DbError {
    DbError::noticed(ErrorKind::Other, error.to_string())
}
