//! Catalog reads: one observation is four queries a database, however many inboxes it has.

mod adopt;
mod digest;
mod look;
mod read;
mod replicas;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection, Row, postgres::PgRow};
use uuid::Uuid;

use self::read::{oid, read_inbox, unregistered};
pub(crate) use self::{
    adopt::*,
    digest::{digest_marker, digest_slots},
    look::*,
    replicas::PolicyRecord,
};
pub use self::{
    look::{leaving_sizes, oldest_transactions, unregistered_table},
    replicas::{Replica, replicas},
};
use super::error::{DbError, Doing, ErrorKind};
use crate::{
    claim::ClaimConstants,
    pure::{Clocks, Consumers, Found, InboxSpec, Routing},
};

/// The oldest PostgreSQL that inboxd works with: the first whose partitions can be detached concurrently.
pub const OLDEST_SERVER: i32 = 140_000;

/// What a server and a database are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its clock.
    pub now: DateTime<Utc>,
    /// Its version as a number, for example 150018.
    pub version_num: i32,
    /// Whether it is a standby.
    pub in_recovery: bool,
    /// Whether role or database let nobody write by default.
    pub read_only: bool,
    /// The identity of the cluster.
    pub system_identifier: i64,
    /// The identity of the database in it.
    pub database_oid: u32,
}

/// Reads what the server is.
///
/// # Errors
/// When the database fails, or is older than [`OLDEST_SERVER`].
pub async fn server(connection: &mut PgConnection) -> Result<Server, DbError> {
    let doing = || "ask the server what it is".to_owned();
    let row = sqlx::query(include_str!("../../../sql/observe/server.sql"))
        .fetch_one(connection)
        .await
        .doing(doing)?;
    let server = read_server(&row).doing(doing)?;
    if server.version_num < OLDEST_SERVER {
        return Err(DbError::noticed(
            ErrorKind::Other,
            format!(
                "PostgreSQL {} is too old: inboxd needs 14 or later",
                server.version_num / 10_000
            ),
        ));
    }
    Ok(server)
}

impl Server {
    /// Makes sure that we may write.
    ///
    /// # Errors
    /// `ReadOnly` with the remedy. A standby is no error here: it is a state of its own.
    pub(crate) fn must_be_writable(&self) -> Result<(), DbError> {
        if self.read_only && !self.in_recovery {
            let what = "transactions are read only by default, so nothing is written; reset default_transaction_read_only for this role and database";
            return Err(DbError::noticed(ErrorKind::ReadOnly, what));
        }
        Ok(())
    }
}

fn read_server(row: &PgRow) -> Result<Server, sqlx::Error> {
    Ok(Server {
        now: row.try_get("now")?,
        version_num: row.try_get("version_num")?,
        in_recovery: row.try_get("in_recovery")?,
        read_only: row.try_get("read_only")?,
        system_identifier: row.try_get("system_identifier")?,
        database_oid: oid(row, "database_oid")?,
    })
}

/// An inbox as the control schema has it on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Its identity.
    pub id: Uuid,
    /// The random part of its lock key.
    pub lock_key: i64,
    /// What chooses a partition.
    pub routing: Routing,
    /// Who shares it.
    pub consumers: Consumers,
    /// The deployment that manages it.
    pub deployment: String,
}

/// One configured inbox, as it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// Its record; none before `init`.
    pub registered: Option<Registered>,
    /// What the planner may know.
    pub found: Found,
    /// What its claim functions were made with; none while there are none of a form that is known.
    pub(crate) made_with: Option<ClaimConstants>,
}

/// One look at a database.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The server.
    pub server: Server,
    /// The configured inboxes, in the order in which they were asked for.
    pub inboxes: Vec<Observed>,
}

/// Who looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Viewer<'a> {
    /// The deployment.
    pub deployment: &'a str,
    /// The replica that looks; none for a command.
    pub replica: Option<Uuid>,
    /// The host's clock.
    pub host_now: DateTime<Utc>,
}

/// Looks at every configured inbox of a database, in one snapshot.
///
/// # Errors
/// When the database fails or is too old. What is odd about an inbox is no error, but stands in its [`Found`].
pub async fn observe(
    connection: &mut PgConnection,
    specs: &[InboxSpec],
    viewer: Viewer<'_>,
) -> Result<Observation, DbError> {
    let doing = || "observe the inboxes".to_owned();
    let mut transaction = connection
        .begin_with("begin isolation level repeatable read, read only")
        .await
        .doing(doing)?;
    let server = server(&mut transaction).await?;
    let inboxes = observe_in(&mut transaction, specs, viewer, &server).await?;
    transaction.rollback().await.doing(doing)?;
    Ok(Observation { server, inboxes })
}

/// The same within a transaction that the caller has open.
///
/// # Errors
/// As [`observe`].
pub(crate) async fn observe_in(
    connection: &mut PgConnection,
    specs: &[InboxSpec],
    viewer: Viewer<'_>,
    server: &Server,
) -> Result<Vec<Observed>, DbError> {
    look(connection, specs, viewer, server, Depth::Relations).await
}

/// One inbox within such a transaction, without its relations: to find those of one takes as long as to find all.
///
/// # Errors
/// As [`observe`].
pub(crate) async fn observe_record_in(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    viewer: Viewer<'_>,
    server: &Server,
) -> Result<Option<Observed>, DbError> {
    let found = look(connection, std::slice::from_ref(spec), viewer, server, Depth::Record).await?;
    Ok(found.into_iter().next())
}

/// How far a look goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Record,
    Relations,
}

async fn look(
    connection: &mut PgConnection,
    specs: &[InboxSpec],
    viewer: Viewer<'_>,
    server: &Server,
    depth: Depth,
) -> Result<Vec<Observed>, DbError> {
    let doing = || "observe the inboxes".to_owned();
    let schemas: Vec<&str> = specs.iter().map(|spec| spec.table.schema().as_str()).collect();
    let tables: Vec<&str> = specs.iter().map(|spec| spec.table.table().as_str()).collect();
    let inboxes = sqlx::query(include_str!("../../../sql/observe/inboxes.sql"))
        .bind(&schemas)
        .bind(&tables)
        .fetch_all(&mut *connection)
        .await
        .doing(doing)?;
    let relations = match depth {
        Depth::Record => Vec::new(),
        Depth::Relations => sqlx::query(include_str!("../../../sql/observe/relations.sql"))
            .bind(&schemas)
            .bind(&tables)
            .fetch_all(&mut *connection)
            .await
            .doing(doing)?,
    };
    let replicas = replicas(connection, viewer.deployment).await?;

    let mut by_inbox: HashMap<Uuid, Vec<&PgRow>> = HashMap::new();
    for row in &relations {
        by_inbox
            .entry(row.try_get("inbox_id").doing(doing)?)
            .or_default()
            .push(row);
    }
    let mut records = HashMap::new();
    for row in &inboxes {
        let name: (String, String) = (
            row.try_get("schema_name").doing(doing)?,
            row.try_get("table_name").doing(doing)?,
        );
        records.insert(name, row);
    }
    // The clock is the database's, so each row has the same.
    let clocks = Clocks {
        host: viewer.host_now,
        trusted: match inboxes.first() {
            Some(row) => row.try_get("trusted_at").doing(doing)?,
            None => sqlx::query_scalar(include_str!("../../../sql/observe/trusted_clock.sql"))
                .fetch_optional(&mut *connection)
                .await
                .doing(doing)?,
        },
    };
    let mut observed: Vec<Observed> = specs
        .iter()
        .map(|spec| {
            let name = (spec.table.schema().to_string(), spec.table.table().to_string());
            match records.get(&name) {
                None => Ok(unregistered(spec, clocks)),
                Some(row) => {
                    let id: Uuid = row.try_get("inbox_id")?;
                    let relations = by_inbox.get(&id).map(Vec::as_slice).unwrap_or_default();
                    read_inbox(row, relations, spec, &replicas, viewer, server)
                }
            }
        })
        .collect::<Result<_, sqlx::Error>>()
        .doing(doing)?;
    for (observed, spec) in observed.iter_mut().zip(specs) {
        if observed.made_with.as_ref().is_some_and(|made_with| made_with.digest) {
            digest::add_digest(connection, spec, observed).await?;
        }
    }
    Ok(observed)
}

/// Adds the sizes on disk, where they can be had without waiting.
///
/// # Errors
/// When the database fails. A lock that comes in between is no error: the sizes stay unknown.
pub async fn add_sizes(connection: &mut PgConnection, observation: &mut Observation) -> Result<(), DbError> {
    let oids: Vec<_> = observation
        .inboxes
        .iter()
        .flat_map(|inbox| &inbox.found.relations)
        .map(|relation| sqlx::postgres::types::Oid(relation.oid))
        .collect();
    let sizes =
        sqlx::query_as::<_, (sqlx::postgres::types::Oid, Option<i64>)>(include_str!("../../../sql/observe/sizes.sql"))
            .bind(&oids)
            .fetch_all(connection)
            .await
            .doing(|| "read the sizes".to_owned());
    let sizes: HashMap<u32, i64> = match sizes {
        Ok(rows) => rows
            .into_iter()
            .filter_map(|(oid, bytes)| Some((oid.0, bytes?)))
            .collect(),
        Err(error) if error.kind().is_retryable() => HashMap::new(),
        Err(error) => return Err(error),
    };
    for relation in observation
        .inboxes
        .iter_mut()
        .flat_map(|inbox| &mut inbox.found.relations)
    {
        relation.bytes = sizes.get(&relation.oid).copied();
    }
    Ok(())
}
