//! The exchange of an adoption: the table becomes the first partition of a table of its name.
//!
//! In one transaction, and in two halves. What does not touch the table comes first, while claims go on; under the lock there
//! are only the renames, the attach and what must be taken off the table.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{Sql, Work, adopt::drop_checks, derive, execute, partition, refused, repair};
use crate::{
    postgres::{error::DbError, journal},
    pure::{Action, Day, Derived, Ident, InboxSpec, Parent, Step},
};

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
    /// The checks of the adoption, which come along with the table's own and are dropped again.
    pub(crate) checks: &'a [Ident],
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

    fn step(&self, day: Day, relation: &Ident) -> Step {
        Step {
            day: Some(day),
            schema: self.spec.table.schema().clone(),
            relation: relation.clone(),
            oid: None,
            action: Action::Create,
            reason: String::new(),
            locks: Vec::new(),
        }
    }

    fn last_of_adopted(&self) -> Day {
        self.until.plus(-1)
    }
}

/// Makes the parent under a name of its own, with the days after the adopted table: nobody can see either yet.
pub(crate) async fn make_parent(on: &mut PgConnection, exchange: Exchange<'_>) -> Result<(), DbError> {
    let Exchange {
        spec, until, parent, ..
    } = exchange;
    let name = derive(&spec.table, Derived::AdoptParent)?;
    let made = Sql::in_schema(spec.table.schema(), &name);
    let tablespace = match &parent.tablespace {
        Some(name) => Sql::of(
            " tablespace {{name}}",
            &[("name", Sql::ident(&Ident::new(name.clone()).map_err(refused)?))],
        ),
        None => Sql::fixed(""),
    };
    let values = [
        ("inbox", made.clone()),
        ("adopted", Sql::table(&spec.table)),
        ("tablespace", tablespace),
    ];
    execute(on, include_str!("../../../sql/ddl/adopt/create_parent.sql"), &values).await?;
    drop_checks(on, made.clone(), exchange.checks).await?;
    rule_out_nulls(on, &made, exchange.nullable).await?;
    let of_parent = exchange.step(until, &name);
    repair::owner(on, exchange.work(&of_parent)).await?;
    repair::grants(on, exchange.work(&of_parent)).await?;
    repair::replica_identity(on, exchange.work(&of_parent)).await?;
    if let Some(text) = exchange.comment {
        let values = [("relation", made.clone()), ("text", Sql::text(text))];
        execute(on, include_str!("../../../sql/ddl/comment.sql"), &values).await?;
    }
    for ahead in 0..=until.days_until(exchange.last) {
        let day = until.plus(ahead);
        let of_day = exchange.step(day, &spec.table.partition(day));
        partition::create_in(on, exchange.work(&of_day), &made).await?;
    }
    // The oid stays when the table is renamed.
    let (id, day) = (exchange.inbox_id, exchange.last_of_adopted());
    journal::partition_created(on, id, day, spec.table.schema(), spec.table.table()).await
}

async fn rule_out_nulls(on: &mut PgConnection, relation: &Sql, columns: &[&'static str]) -> Result<(), DbError> {
    for column in columns {
        let values = [("relation", relation.clone()), ("column", Sql::fixed(column))];
        execute(on, include_str!("../../../sql/ddl/adopt/set_not_null.sql"), &values).await?;
    }
    Ok(())
}

/// The exchange itself, in the same transaction, which holds the lock on the table now. The check that is equal to the
/// partition's bounds spares the attach its scan; it is dropped afterwards, as nobody can see the partition yet.
pub(crate) async fn exchange(on: &mut PgConnection, exchange: Exchange<'_>) -> Result<(), DbError> {
    let spec = exchange.spec;
    let inbox = Sql::table(&spec.table);
    rule_out_nulls(on, &inbox, exchange.nullable).await?;
    let name = spec.table.adopted();
    rename(on, inbox.clone(), &name).await?;
    let parent = Sql::in_schema(spec.table.schema(), &derive(&spec.table, Derived::AdoptParent)?);
    rename(on, parent, spec.table.table()).await?;
    let last = exchange.last_of_adopted();
    let of_adopted = exchange.step(last, &name);
    partition::comment(on, exchange.work(&of_adopted), None).await?;
    partition::attach_to(on, inbox, exchange.work(&of_adopted), last).await?;
    drop_checks(on, Sql::in_schema(spec.table.schema(), &name), exchange.checks).await
}

async fn rename(on: &mut PgConnection, relation: Sql, name: &Ident) -> Result<(), DbError> {
    let renamed = [("relation", relation), ("name", Sql::ident(name))];
    execute(on, include_str!("../../../sql/ddl/adopt/rename.sql"), &renamed).await
}
