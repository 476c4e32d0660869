//! A default partition is drained: its rows are copied, in batches, into partitions of their days, and then it is exchanged
//! for these in one short transaction.
//!
//! The invariant: an id is never in neither place. While rows are copied the default partition answers, from the exchange on
//! the partitions do. PostgreSQL attaches no partition while the default one holds a row of its range, so rows that were
//! *moved* in batches would be in a table that no claim looks into until the last of their day has gone.
//!
//! What claims add meanwhile is found by the transaction that wrote it, in a last look under the exchange's lock; what is
//! forgotten meanwhile, by the trace that a forget leaves. The default partition itself is left as it was, and dropped after
//! its grace: with it goes what is no longer remembered.

use std::time::{Duration, Instant};

use sqlx::{Acquire, AssertSqlSafe, PgConnection, Row, postgres::types::Oid};

use super::{Sql, Work, derive, execute, partition};
use crate::{
    postgres::{
        catalog,
        error::{DbError, Doing, ErrorKind},
        journal,
    },
    pure::{Bounds, Consumers, Day, Derived, DrainScope, Ident, LeftByDrain, Routing, Step, render},
};

/// The pages of one batch: some ten thousand rows, a tenth of a second.
const BATCH_PAGES: u32 = 128;
/// How long one run copies. Other inboxes wait for it; the next run goes on where it stopped.
const LONGEST_COPY: Duration = Duration::from_secs(60);
/// Each day takes some 3 ms of the exchange, and claims wait for it.
const MOST_DAYS: usize = 64;
/// How long claims may have to queue behind the exchange's lock: it is had once no claim's transaction is open.
const EXCHANGE_LOCK: &str = "100ms";
/// How long a statement of the exchange may take. The longest reads the default partition once: some 6 million rows.
const EXCHANGE_STATEMENT: &str = "1s";

/// What came of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Drained {
    /// The default partition is out of the inbox.
    Whole,
    /// It is not yet; why.
    Unfinished(String),
}

/// Drains the default partition of the step, or goes on with it.
///
/// # Errors
/// When a statement fails, or the default partition holds what an inbox cannot keep. Claims find everything all the same:
/// what is copied stays out of the inbox until the exchange.
pub(crate) async fn drain(
    connection: &mut PgConnection,
    work: Work<'_>,
    scope: &DrainScope,
    stop: &(dyn Fn() -> bool + Send + Sync),
) -> Result<Drained, DbError> {
    let drain = Drain {
        work,
        scope,
        copies: derive(&work.spec.table, Derived::DrainCopies)?,
        columns: columns(connection, work).await?,
    };
    let days = drain.days(connection).await?;
    let (mut pages, since) = drain.prepare(connection, &days).await?;
    let begun = Instant::now();
    loop {
        let (all, _) = drain.pages(connection).await?;
        if pages >= all {
            break;
        }
        if stop() || begun.elapsed() > LONGEST_COPY {
            let why = format!("{pages} of {all} pages are copied; the next run goes on");
            return Ok(Drained::Unfinished(why));
        }
        let next = pages.saturating_add(BATCH_PAGES);
        drain.copy_batch(connection, pages, next, since).await?;
        pages = next;
    }
    // What was added since the copying began is copied before the lock, so that little is left for under it.
    let (all, newer) = drain.pages(connection).await?;
    drain.take_back(connection).await?;
    let mut first = 0;
    while first < all {
        if stop() {
            let why = "what was added meanwhile is not copied yet; the next run goes on";
            return Ok(Drained::Unfinished(why.to_owned()));
        }
        let next = first.saturating_add(BATCH_PAGES);
        let which = Sql::joined(&[batch(first, next), since_transaction(since)], " and ");
        drain.copy(connection, which).await?;
        first = next;
    }
    drain.exchange(connection, newer).await?;
    Ok(Drained::Whole)
}

/// Drops what a drain left, once it is certain under its lock that the comment says so and that it is part of nothing.
pub(super) async fn drop_what_is_left(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    drop_under_lock(&mut transaction, work, work.oid()?).await?;
    transaction.commit().await.doing(|| "commit the drop".to_owned())
}

async fn drop_under_lock(connection: &mut PgConnection, work: Work<'_>, oid: u32) -> Result<(), DbError> {
    let locked = [("relation", work.relation()), ("mode", Sql::fixed("access exclusive"))];
    execute(connection, include_str!("../../../sql/ddl/lock_table.sql"), &locked).await?;
    let (schema, name) = (&work.step.schema, &work.step.relation);
    let why_not = match catalog::relation(connection, oid, schema, name).await? {
        None => "the name belongs to another table now",
        Some(relation) if relation.is_partition => "it is a partition",
        Some(relation) => match relation.left_by_drain {
            Some(left) if left.inbox() == work.inbox_id => {
                let dropped = [("relation", work.relation())];
                return execute(connection, include_str!("../../../sql/ddl/drop_table.sql"), &dropped).await;
            }
            _ => "its comment does not say that a drain of this inbox left it",
        },
    };
    Err(DbError::noticed(
        ErrorKind::WrongState,
        format!("{name} stays: {why_not}"),
    ))
}

async fn columns(connection: &mut PgConnection, work: Work<'_>) -> Result<Sql, DbError> {
    let table = &work.spec.table;
    let names: Vec<String> = sqlx::query_scalar(include_str!("../../../sql/observe/columns.sql"))
        .bind(table.schema().as_str())
        .bind(table.table().as_str())
        .fetch_all(connection)
        .await
        .doing(|| format!("read the columns of {table}"))?;
    let names: Vec<Sql> = names
        .into_iter()
        .map(|name| Ok(Sql::ident(&Ident::new(name).map_err(super::refused)?)))
        .collect::<Result<_, DbError>>()?;
    Ok(Sql::joined(&names, ", "))
}

/// Rows in pages from the first to before the last.
fn batch(first: u32, last: u32) -> Sql {
    let values = [
        ("first", Sql::literal(&format!("({first},0)"))),
        ("last", Sql::literal(&format!("({last},0)"))),
    ];
    Sql::of("held.ctid >= {{first}}::tid and held.ctid < {{last}}::tid", &values)
}

/// Rows that a transaction from this one on wrote.
fn since_transaction(xid: u32) -> Sql {
    let values = [("since", Sql::literal(&xid.to_string()))];
    Sql::of("pg_catalog.age(held.xmin) <= pg_catalog.age({{since}}::xid)", &values)
}

struct Drain<'a> {
    work: Work<'a>,
    scope: &'a DrainScope,
    copies: Ident,
    columns: Sql,
}

impl Drain<'_> {
    fn routing(&self) -> Routing {
        self.work.spec.policy.routing
    }

    fn copies(&self) -> Sql {
        Sql::in_schema(self.work.spec.table.schema(), &self.copies)
    }

    fn of_day(&self, days: std::ops::RangeInclusive<Day>) -> Sql {
        let routing = self.routing();
        let [from, _] = Bounds::ends(*days.start(), routing);
        let [_, to] = Bounds::ends(*days.end(), routing);
        let values = [
            ("column", Sql::fixed(routing.column())),
            ("from", Sql::literal(&from)),
            ("to", Sql::literal(&to)),
        ];
        Sql::of("held.{{column}} >= {{from}} and held.{{column}} < {{to}}", &values)
    }

    /// The rows that are remembered.
    fn kept(&self) -> Sql {
        let first = self.scope.first.unwrap_or(Day::FIRST);
        let mut parts = vec![self.of_day(first..=self.scope.last)];
        parts.extend(self.scope.held.iter().map(|day| self.of_day(*day..=*day)));
        Sql::joined(&parts, " or ")
    }

    /// The rows of no day: later than all that the inbox keeps, or by an id that says no time.
    fn strange(&self) -> Sql {
        let [_, to] = Bounds::ends(self.scope.last, self.routing());
        let values = [
            ("column", Sql::fixed(self.routing().column())),
            ("to", Sql::literal(&to)),
        ];
        let later = Sql::of("held.{{column}} >= {{to}}", &values);
        match self.routing() {
            Routing::ProcessedAt => later,
            Routing::MessageId => {
                let no_time = "pg_catalog.get_byte(pg_catalog.uuid_send(held.message_id), 6) >> 4 <> 7";
                Sql::joined(&[later, Sql::fixed(no_time)], " or ")
            }
        }
    }

    /// The days that it holds rows of. Refuses one that holds rows which no day could take.
    async fn days(&self, connection: &mut PgConnection) -> Result<Vec<Day>, DbError> {
        let default = self.work.relation();
        let asked = [("default", default.clone()), ("strange", self.strange())];
        let strangers: i64 = self
            .fetch(connection, include_str!("../../../sql/ddl/drain/strangers.sql"), &asked)
            .await?
            .into_iter()
            .next()
            .unwrap_or_default();
        if strangers > 0 {
            let many = if strangers < 1000 { "" } else { "at least " };
            let what = match self.routing() {
                Routing::ProcessedAt => format!("are processed later than {}", self.scope.last),
                Routing::MessageId => format!("have an id that is no UUIDv7, or one of later than {}", self.scope.last),
            };
            return Err(DbError::noticed(
                ErrorKind::WrongState,
                format!(
                    "{many}{strangers} rows of {} {what}, and no partition can take them: delete or correct them",
                    self.work.step.relation
                ),
            ));
        }
        let day = Sql::fixed(match self.routing() {
            Routing::ProcessedAt => "(held.processed_at at time zone 'UTC')::date",
            Routing::MessageId => {
                "((timestamptz 'epoch' + ('x' || pg_catalog.encode(pg_catalog.substr(pg_catalog.uuid_send(held.message_id), 1, 6), \
                 'hex'))::bit(48)::bigint * interval '1 millisecond') at time zone 'UTC')::date"
            }
        });
        let asked = [("default", default), ("day", day), ("kept", self.kept())];
        let days: Vec<chrono::NaiveDate> = self
            .fetch(connection, include_str!("../../../sql/ddl/drain/days.sql"), &asked)
            .await?;
        let mut days: Vec<Day> = days.into_iter().map(Day::from).collect();
        days.extend(&self.scope.needed);
        days.sort();
        days.dedup();
        if days.len() > MOST_DAYS {
            return Err(DbError::noticed(
                ErrorKind::WrongState,
                format!(
                    "{} days would have to be exchanged for {} at once, and at most {MOST_DAYS} are, for claims wait meanwhile: \
                     move rows by hand, oldest days first",
                    days.len(),
                    self.work.step.relation
                ),
            ));
        }
        Ok(days)
    }

    async fn fetch<T>(
        &self,
        connection: &mut PgConnection,
        template: &'static str,
        values: &[(&str, Sql)],
    ) -> Result<Vec<T>, DbError>
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        sqlx::query_scalar(AssertSqlSafe(render(template, values)))
            .persistent(false)
            .fetch_all(connection)
            .await
            .doing(|| super::first_comment(template))
    }

    /// How many pages the default partition has, and the oldest transaction whose rows a look now may miss.
    async fn pages(&self, connection: &mut PgConnection) -> Result<(u32, u32), DbError> {
        let doing = || format!("look at {}", self.work.step.relation);
        let row = sqlx::query(include_str!("../../../sql/observe/pages.sql"))
            .bind(Oid(self.work.oid()?))
            .fetch_one(connection)
            .await
            .doing(doing)?;
        let number = |column| {
            let number: i64 = row.try_get(column).doing(doing)?;
            Ok::<_, DbError>(u32::try_from(number).unwrap_or(u32::MAX))
        };
        Ok((number("pages")?, number("oldest")?))
    }

    /// Makes what is copied to, or finds it again with its progress: the pages that are copied, and the transaction since
    /// which rows may have been missed.
    async fn prepare(&self, connection: &mut PgConnection, days: &[Day]) -> Result<(u32, u32), DbError> {
        let oid = self.work.oid()?;
        let (schema, inbox) = (self.work.spec.table.schema(), self.work.inbox_id);
        let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
        let on = &mut *transaction;
        let found = catalog::relation_by_name(on, schema, &self.copies).await?;
        let progress = match found.map(|found| found.left_by_drain) {
            None => None,
            Some(Some(LeftByDrain::Copies {
                inbox: of_inbox,
                of,
                pages,
                since,
            })) if of_inbox == inbox && of == oid => Some((pages, since)),
            Some(_) => {
                return Err(DbError::noticed(
                    ErrorKind::Taken,
                    format!(
                        "{} is there and no table for copies of {}: drop or rename it",
                        self.copies, self.work.step.relation
                    ),
                ));
            }
        };
        let (pages, since) = match progress {
            Some(progress) => progress,
            None => {
                let made = [
                    ("copies", self.copies()),
                    ("inbox", self.work.inbox()),
                    ("column", Sql::fixed(self.routing().column())),
                ];
                execute(on, include_str!("../../../sql/ddl/drain/create_copies.sql"), &made).await?;
                let (_, oldest) = self.pages(on).await?;
                self.note(on, 0, oldest).await?;
                (0, oldest)
            }
        };
        let mut names = vec![self.copies.to_string()];
        for day in days {
            let name = derive(&self.work.spec.table, Derived::DrainCopy(*day))?;
            names.push(name.as_str().to_owned());
            if catalog::relation_by_name(on, schema, &name).await?.is_none() {
                self.create_copy(on, *day, name).await?;
            }
        }
        let published: Option<String> = sqlx::query_scalar(include_str!("../../../sql/observe/published.sql"))
            .bind(schema.as_str())
            .bind(&names)
            .fetch_optional(&mut *on)
            .await
            .doing(|| "look for publications".to_owned())?;
        if let Some(publication) = published {
            return Err(DbError::noticed(
                ErrorKind::WrongState,
                format!(
                    "publication {publication:?} would publish the copies to subscribers that know no such tables: \
                     let it name its tables one by one"
                ),
            ));
        }
        transaction
            .commit()
            .await
            .doing(|| "commit the table for copies".to_owned())?;
        Ok((pages, since))
    }

    /// What becomes a day's partition, with all that one has, but for its name.
    async fn create_copy(&self, on: &mut PgConnection, day: Day, name: Ident) -> Result<(), DbError> {
        let step = self.step(day, name);
        let work = Work {
            step: &step,
            ..self.work
        };
        let key = Sql::ident(&derive(&work.spec.table, Derived::DrainCopyKey(day))?);
        partition::create_loose(on, work, &work.inbox(), day, key).await?;
        partition::attach_to(on, self.copies(), work, day).await
    }

    fn step(&self, day: Day, relation: Ident) -> Step {
        Step {
            day: Some(day),
            schema: self.work.spec.table.schema().clone(),
            relation,
            oid: None,
            ..self.work.step.clone()
        }
    }

    async fn note(&self, on: &mut PgConnection, pages: u32, since: u32) -> Result<(), DbError> {
        let left = LeftByDrain::Copies {
            inbox: self.work.inbox_id,
            of: self.work.oid()?,
            pages,
            since,
        };
        comment(on, self.copies(), &left).await
    }

    async fn copy_batch(
        &self,
        connection: &mut PgConnection,
        first: u32,
        last: u32,
        since: u32,
    ) -> Result<(), DbError> {
        let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
        self.copy(&mut transaction, batch(first, last)).await?;
        self.note(&mut transaction, last, since).await?;
        transaction
            .commit()
            .await
            .doing(|| "commit a batch of copies".to_owned())
    }

    async fn copy(&self, on: &mut PgConnection, which: Sql) -> Result<(), DbError> {
        let values = [
            ("copies", self.copies()),
            ("columns", self.columns.clone()),
            ("default", self.work.relation()),
            ("kept", self.kept()),
            ("which", which),
        ];
        execute(on, include_str!("../../../sql/ddl/drain/copy.sql"), &values).await
    }

    /// Takes copies of what was forgotten out again. Before what is new is copied: what was forgotten and is processed
    /// again would otherwise meet its old copy, and be lost with it later.
    async fn take_back(&self, on: &mut PgConnection) -> Result<(), DbError> {
        let and_consumer = Sql::fixed(match self.work.spec.policy.consumers {
            Consumers::One => "",
            Consumers::Many => " and held.consumer = copied.consumer",
        });
        let forgotten = [
            ("copies", self.copies()),
            ("default", self.work.relation()),
            ("inbox_id", Sql::literal(&self.work.inbox_id.to_string())),
            ("and_consumer", and_consumer),
        ];
        execute(on, include_str!("../../../sql/ddl/drain/forgotten.sql"), &forgotten).await
    }

    /// The exchange. Nobody reads or writes the inbox while it lasts, and nobody has an open transaction that did.
    async fn exchange(&self, connection: &mut PgConnection, since: u32) -> Result<(), DbError> {
        let work = self.work;
        let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
        let on = &mut *transaction;
        let limits = [
            ("lock", Sql::literal(EXCHANGE_LOCK)),
            ("statement", Sql::literal(EXCHANGE_STATEMENT)),
        ];
        execute(on, include_str!("../../../sql/ddl/drain/be_brief.sql"), &limits).await?;
        for relation in [work.inbox(), work.relation()] {
            let locked = [("relation", relation)];
            execute(on, include_str!("../../../sql/ddl/drain/lock.sql"), &locked).await?;
        }
        let found = catalog::relation(on, work.oid()?, &work.step.schema, &work.step.relation).await?;
        if !found.is_some_and(|found| found.is_table && found.is_partition) {
            let name = &work.step.relation;
            let why = format!("{name} is another table now, or no partition any more");
            return Err(DbError::noticed(ErrorKind::WrongState, why));
        }
        self.take_back(on).await?;
        self.copy(on, since_transaction(since)).await?;
        let detached = [("inbox", work.inbox()), ("partition", work.relation())];
        execute(on, include_str!("../../../sql/ddl/drain/detach_default.sql"), &detached).await?;
        self.attach_copies(on).await?;
        let at = catalog::server(on).await?.now;
        let inbox = work.inbox_id;
        comment(on, work.relation(), &LeftByDrain::Drained { inbox, at }).await?;
        let dropped = [("relation", self.copies())];
        execute(on, include_str!("../../../sql/ddl/drop_table.sql"), &dropped).await?;
        transaction.commit().await.doing(|| "commit the exchange".to_owned())
    }

    async fn attach_copies(&self, on: &mut PgConnection) -> Result<(), DbError> {
        let table = &self.work.spec.table;
        let names: Vec<String> = sqlx::query_scalar(include_str!("../../../sql/observe/children.sql"))
            .bind(table.schema().as_str())
            .bind(self.copies.as_str())
            .fetch_all(&mut *on)
            .await
            .doing(|| format!("read the partitions of {}", self.copies))?;
        for name in names {
            let Some(day) = name.strip_suffix("_copy").and_then(|name| table.day_of(name)) else {
                continue; // Not ours; it goes with the table that somebody attached it to.
            };
            let partition = table.partition(day);
            let there = catalog::relation_by_name(on, table.schema(), &partition).await?;
            if there.is_some_and(|there| there.is_partition) {
                continue; // Made meanwhile, which PostgreSQL allows only where the default partition holds nothing of the day.
            }
            let copy = Sql::in_schema(table.schema(), &derive(table, Derived::DrainCopy(day))?);
            let taken = [("copies", self.copies()), ("copy", copy.clone())];
            execute(on, include_str!("../../../sql/ddl/drain/detach_copy.sql"), &taken).await?;
            let renamed = [("copy", copy), ("partition", Sql::ident(&partition))];
            execute(on, include_str!("../../../sql/ddl/drain/rename.sql"), &renamed).await?;
            let step = self.step(day, partition);
            let work = Work {
                step: &step,
                ..self.work
            };
            let renamed = [
                ("partition", work.relation()),
                ("copy_key", Sql::ident(&derive(table, Derived::DrainCopyKey(day))?)),
                ("key", Sql::ident(&derive(table, Derived::PartitionKey(day))?)),
            ];
            execute(on, include_str!("../../../sql/ddl/drain/rename_key.sql"), &renamed).await?;
            partition::attach_to(on, work.inbox(), work, day).await?;
            partition::drop_check(on, work, day).await?;
            partition::comment(on, work, None).await?;
            journal::partition_created(on, work.inbox_id, day, &step.schema, &step.relation).await?;
        }
        Ok(())
    }
}

async fn comment(on: &mut PgConnection, relation: Sql, left: &LeftByDrain) -> Result<(), DbError> {
    let values = [("relation", relation), ("text", Sql::literal(&left.to_string()))];
    execute(on, include_str!("../../../sql/ddl/comment.sql"), &values).await
}
