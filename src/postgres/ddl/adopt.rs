//! A table in use becomes an inbox: checks beside it, then one exchange; and an inbox gets an open end when it is released.
//!
//! The only DDL of ours that claims may wait for: a check cannot be added, nor a table renamed, under less than ACCESS
//! EXCLUSIVE. Each such transaction is short, and waits for its lock no longer than it is told.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::{Sql, Work, derive, execute, key_columns, partition, refused, repair};
use crate::{
    postgres::{
        error::{DbError, Doing, ErrorKind},
        journal,
    },
    pure::{
        Action, Bounds, Day, Derived, Ident, InboxSpec, Parent, Routing, STORAGE_PARAMETERS, Step, TableName, render,
    },
};

/// A validation reads the whole table. Nobody waits for it.
const LONGEST_SCAN: Duration = Duration::from_secs(6 * 3600);
/// For one transaction under the lock: the exchange took 50 ms with eight days. Whoever waits for longer is better served by
/// another try.
const LONGEST_UNDER_LOCK: Duration = Duration::from_secs(5);

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
pub(crate) async fn be_brief(connection: &mut PgConnection, table: &TableName, lock: Duration) -> Result<(), DbError> {
    limits(connection, lock, LONGEST_UNDER_LOCK, true).await?;
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

/// What the exchange needs to know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub(crate) spec: &'a InboxSpec,
    pub(crate) inbox_id: Uuid,
    /// Owner, privileges, replica identity and tablespace of the table, as the inbox is to have them.
    pub(crate) parent: &'a Parent,
    /// The day at whose beginning the adopted table ends.
    pub(crate) until: Day,
    pub(crate) nullable: &'a [&'static str],
    pub(crate) has_filled_check: bool,
    pub(crate) comment: Option<&'a str>,
    /// The last day that gets a partition at once.
    pub(crate) last: Day,
}

impl<'a> Exchange<'a> {
    fn work<'w>(&self, step: &'w Step) -> Work<'w>
    where
        'a: 'w,
    {
        Work {
            spec: self.spec,
            inbox_id: self.inbox_id,
            parent: self.parent,
            step,
        }
    }
}

/// The exchange, in the transaction that holds the lock on the table: nothing half-made can remain. The check that is equal
/// to the partition's bounds spares the attach its scan; it is dropped afterwards, as nobody can see the partition yet.
pub(crate) async fn exchange(on: &mut PgConnection, exchange: Exchange<'_>) -> Result<(), DbError> {
    let Exchange {
        spec, until, parent, ..
    } = exchange;
    let inbox = Sql::table(&spec.table);
    let name = spec.table.adopted();
    for column in exchange.nullable {
        let values = [("relation", inbox.clone()), ("column", Sql::fixed(column))];
        execute(on, include_str!("../../../sql/ddl/adopt/set_not_null.sql"), &values).await?;
    }
    let renamed = [("relation", inbox.clone()), ("name", Sql::ident(&name))];
    execute(on, include_str!("../../../sql/ddl/adopt/rename.sql"), &renamed).await?;
    let adopted = Sql::in_schema(spec.table.schema(), &name);
    if exchange.has_filled_check {
        let filled = [derive(&spec.table, Derived::AdoptFilled)?];
        drop_checks(on, adopted.clone(), &filled).await?;
    }
    let tablespace = match &parent.tablespace {
        Some(name) => Sql::of(
            " tablespace {{name}}",
            &[("name", Sql::ident(&Ident::new(name.clone()).map_err(refused)?))],
        ),
        None => Sql::fixed(""),
    };
    let made = [
        ("inbox", inbox.clone()),
        ("adopted", adopted.clone()),
        ("tablespace", tablespace),
    ];
    execute(on, include_str!("../../../sql/ddl/adopt/create_parent.sql"), &made).await?;
    let checks = [until_check(spec, until)?];
    drop_checks(on, inbox.clone(), &checks).await?;
    let step = |day, schema: &Ident, relation: &Ident| Step {
        day: Some(day),
        schema: schema.clone(),
        relation: relation.clone(),
        oid: None,
        action: Action::Create,
        reason: String::new(),
        locks: Vec::new(),
    };
    let of_parent = step(until, spec.table.schema(), spec.table.table());
    repair::owner(on, exchange.work(&of_parent)).await?;
    repair::grants(on, exchange.work(&of_parent)).await?;
    repair::replica_identity(on, exchange.work(&of_parent)).await?;
    if let Some(text) = exchange.comment {
        let values = [("relation", inbox.clone()), ("text", Sql::text(text))];
        execute(on, include_str!("../../../sql/ddl/comment.sql"), &values).await?;
    }
    let last_of_adopted = until.plus(-1);
    let of_adopted = step(last_of_adopted, spec.table.schema(), &name);
    partition::comment(on, exchange.work(&of_adopted), None).await?;
    partition::attach_to(on, inbox, exchange.work(&of_adopted), last_of_adopted).await?;
    drop_checks(on, adopted, &checks).await?;
    journal::partition_created(on, exchange.inbox_id, last_of_adopted, spec.table.schema(), &name).await?;
    for ahead in 0..=until.days_until(exchange.last) {
        let day = until.plus(ahead);
        let of_day = step(day, spec.table.schema(), &spec.table.partition(day));
        partition::create(on, exchange.work(&of_day)).await?;
    }
    Ok(())
}

/// Makes the partition that takes whatever comes after the last one, in the caller's transaction. It is made as a table of its
/// own and attached, so no claim waits.
pub(crate) async fn open_the_end(
    on: &mut PgConnection,
    spec: &InboxSpec,
    inbox_id: Uuid,
    parent: &Parent,
    from: DateTime<Utc>,
) -> Result<Ident, DbError> {
    let name = derive(&spec.table, Derived::Rest)?;
    let inbox = Sql::table(&spec.table);
    let rest = Sql::in_schema(spec.table.schema(), &name);
    let made = [
        ("partition", rest.clone()),
        ("inbox", inbox.clone()),
        // Nothing drops it whole any more: it is vacuumed as any table.
        ("storage", Sql::list(&STORAGE_PARAMETERS[1..])),
        ("tablespace", Sql::fixed("")),
    ];
    execute(on, include_str!("../../../sql/ddl/create_table.sql"), &made).await?;
    let step = Step {
        day: Some(Day::containing(from)),
        schema: spec.table.schema().clone(),
        relation: name.clone(),
        oid: None,
        action: Action::Create,
        reason: String::new(),
        locks: Vec::new(),
    };
    let work = Work {
        spec,
        inbox_id,
        parent,
        step: &step,
    };
    repair::owner(on, work).await?;
    repair::grants(on, work).await?;
    repair::replica_identity(on, work).await?;
    // In `message_id` routing the attach gives it the parent's key.
    if spec.policy.routing == Routing::ProcessedAt {
        let keyed = [
            ("partition", rest.clone()),
            ("key", Sql::ident(&derive(&spec.table, Derived::RestKey)?)),
            ("columns", key_columns(spec.policy.consumers)),
        ];
        execute(on, include_str!("../../../sql/ddl/add_key.sql"), &keyed).await?;
    }
    let day = Day::containing(from);
    if day.start() != from {
        return Err(DbError::noticed(
            ErrorKind::WrongState,
            format!("the last partition ends at {from}, which is no midnight"),
        ));
    }
    let [from, _] = Bounds::ends(day, spec.policy.routing);
    let values = [("inbox", inbox), ("partition", rest), ("from", Sql::literal(&from))];
    execute(on, include_str!("../../../sql/ddl/release/attach_rest.sql"), &values).await?;
    Ok(name)
}
