//! Catalog reads: one observation is four queries a database, however many inboxes it has.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{Connection, PgConnection, Row, postgres::PgRow, types::Json};
use uuid::Uuid;

use super::error::{DbError, Doing, ErrorKind};
use crate::{
    claim::ClaimConstants,
    pure::{
        Ahead, Attachment, Bounds, Clocks, Consumers, Day, Found, FoundInbox, FoundRelation, Grant, Ident, InboxSpec,
        Ownership, Parent, RelationKind, ReplicaIdentity, ReplicaPolicy, Retention, Routing,
    },
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
    let row = sqlx::query(include_str!("../../sql/observe/server.sql"))
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

fn read_server(row: &PgRow) -> Result<Server, sqlx::Error> {
    Ok(Server {
        now: row.try_get("now")?,
        version_num: row.try_get("version_num")?,
        in_recovery: row.try_get("in_recovery")?,
        system_identifier: row.try_get("system_identifier")?,
        database_oid: oid(row, "database_oid")?,
    })
}

fn oid(row: &PgRow, column: &str) -> Result<u32, sqlx::Error> {
    row.try_get::<sqlx::postgres::types::Oid, _>(column).map(|oid| oid.0)
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
    let doing = || "observe the inboxes".to_owned();
    let inboxes = sqlx::query(include_str!("../../sql/observe/inboxes.sql"))
        .fetch_all(&mut *connection)
        .await
        .doing(doing)?;
    let relations = sqlx::query(include_str!("../../sql/observe/relations.sql"))
        .fetch_all(&mut *connection)
        .await
        .doing(doing)?;

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
            None => None,
        },
    };
    specs
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
        .doing(doing)
}

fn unregistered(spec: &InboxSpec, clocks: Clocks) -> Observed {
    let found = Found {
        table: spec.table.clone(),
        inbox_id: Uuid::nil(),
        ownership: Ownership::Ours,
        inbox: FoundInbox::Missing,
        relations: Vec::new(),
        held: BTreeMap::new(),
        made: BTreeSet::new(),
        claim_retention: None,
        has_functions: false,
        claim_drift: Vec::new(),
        plain_inserters: Vec::new(),
        lacking: Vec::new(),
        replicas: Vec::new(),
        clocks,
    };
    Observed {
        registered: None,
        found,
    }
}

fn read_inbox(
    row: &PgRow,
    relations: &[&PgRow],
    spec: &InboxSpec,
    replicas: &[Replica],
    viewer: Viewer<'_>,
    server: &Server,
) -> Result<Observed, sqlx::Error> {
    let registered = Registered {
        id: row.try_get("inbox_id")?,
        lock_key: row.try_get("lock_key")?,
        routing: match row.try_get::<&str, _>("routing")? {
            "message_id" => Routing::MessageId,
            _ => Routing::ProcessedAt,
        },
        consumers: match row.try_get::<&str, _>("consumers")? {
            "many" => Consumers::Many,
            _ => Consumers::One,
        },
        deployment: row.try_get("deployment")?,
    };
    let ownership = if registered.deployment != viewer.deployment {
        Ownership::OtherDeployment(registered.deployment.clone())
    } else if (row.try_get::<i64, _>("system_identifier")?, oid(row, "database_oid")?)
        != (server.system_identifier, server.database_oid)
    {
        Ownership::OtherServer
    } else {
        Ownership::Ours
    };
    let wanted = ClaimConstants::of(spec, registered.id, registered.lock_key);
    let comment: Option<String> = row.try_get("claim_comment")?;
    let claim = comment.as_deref().and_then(ClaimConstants::from_comment);
    let inbox = read_table(row, spec, &registered)?;
    let plain_inserters = match &inbox {
        FoundInbox::Fit(parent) => parent
            .grants
            .iter()
            .filter(|grant| grant.privilege == "INSERT")
            .map(|grant| {
                if grant.grantee.is_empty() {
                    "public".to_owned()
                } else {
                    grant.grantee.clone()
                }
            })
            .collect(),
        FoundInbox::Missing | FoundInbox::Unfit(_) => Vec::new(),
    };
    let found = Found {
        table: spec.table.clone(),
        inbox_id: registered.id,
        ownership,
        inbox,
        relations: relations
            .iter()
            .map(|row| read_relation(row, registered.routing))
            .collect::<Result<_, _>>()?,
        held: days(row, "held")?,
        made: row
            .try_get::<Vec<NaiveDate>, _>("made")?
            .into_iter()
            .map(Day::from)
            .collect(),
        claim_retention: claim.as_ref().and_then(|claim| claim.retention().ok()),
        has_functions: row.try_get("has_functions")?,
        claim_drift: claim.map(|claim| claim.drift_from(&wanted)).unwrap_or_default(),
        plain_inserters,
        lacking: row.try_get("lacking")?,
        replicas: replicas
            .iter()
            .filter(|replica| Some(replica.id) != viewer.replica)
            .filter_map(|replica| replica.policy_of(spec))
            .collect(),
        clocks: Clocks {
            host: viewer.host_now,
            trusted: row.try_get("trusted_at")?,
        },
    };
    Ok(Observed {
        registered: Some(registered),
        found,
    })
}

/// A replica that is alive.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Replica {
    /// Its identity, new at each start.
    pub id: Uuid,
    /// The host that it runs on.
    pub host: String,
    /// Its process there.
    pub process_id: i32,
    /// Its version.
    pub version: String,
    /// When it started, by the database's clock.
    pub started_at: DateTime<Utc>,
    /// Its last heartbeat, by the database's clock.
    pub heartbeat_at: DateTime<Utc>,
    /// What it is configured with, by table.
    #[serde(skip)]
    policies: BTreeMap<String, PolicyRecord>,
}

/// What a replica says of its configuration of one inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct PolicyRecord {
    pub(crate) retention_seconds: Option<i64>,
    pub(crate) ahead_days: i64,
}

impl Replica {
    fn policy_of(&self, spec: &InboxSpec) -> Option<ReplicaPolicy> {
        let record = self.policies.get(&spec.table.to_string())?;
        Some(ReplicaPolicy {
            replica: format!("{}:{}", self.host, self.process_id),
            // A replica of a later version may allow what this one does not; then nothing is forgotten meanwhile.
            retention: Retention::from_seconds(record.retention_seconds).unwrap_or(Retention::Forever),
            ahead: Ahead::new(record.ahead_days).unwrap_or(spec.policy.ahead),
        })
    }
}

/// The replicas of a deployment that are alive.
///
/// # Errors
/// When the database fails.
pub async fn replicas(connection: &mut PgConnection, deployment: &str) -> Result<Vec<Replica>, DbError> {
    let doing = || "observe the replicas".to_owned();
    let rows = sqlx::query(include_str!("../../sql/observe/replicas.sql"))
        .bind(deployment)
        .fetch_all(connection)
        .await
        .doing(doing)?;
    rows.iter()
        .map(|row| {
            let Json(policies) = row.try_get("policies")?;
            Ok(Replica {
                id: row.try_get("id")?,
                host: row.try_get("host")?,
                process_id: row.try_get("process_id")?,
                version: row.try_get("version")?,
                started_at: row.try_get("started_at")?,
                heartbeat_at: row.try_get("heartbeat_at")?,
                policies,
            })
        })
        .collect::<Result<_, sqlx::Error>>()
        .doing(doing)
}

fn days(row: &PgRow, column: &str) -> Result<BTreeMap<Day, DateTime<Utc>>, sqlx::Error> {
    let Json(days): Json<BTreeMap<NaiveDate, DateTime<Utc>>> = row.try_get(column)?;
    Ok(days.into_iter().map(|(day, since)| (Day::from(day), since)).collect())
}

/// Whether the table is what the configuration and the record say.
fn read_table(row: &PgRow, spec: &InboxSpec, registered: &Registered) -> Result<FoundInbox, sqlx::Error> {
    let Some(kind) = row.try_get::<Option<String>, _>("kind")? else {
        return Ok(FoundInbox::Missing);
    };
    let (configured, made) = (
        (spec.policy.routing, spec.policy.consumers),
        (registered.routing, registered.consumers),
    );
    if configured != made {
        return Ok(FoundInbox::Unfit(format!(
            "it was made with routing {} for {} consumers, configured is {} for {}; neither can be changed",
            made.0, made.1, configured.0, configured.1
        )));
    }
    if let Some(why) = misfit(&kind, row, spec)? {
        return Ok(FoundInbox::Unfit(why));
    }
    Ok(FoundInbox::Fit(Parent {
        owner: row.try_get("owner")?,
        grants: grants(row)?,
        replica_identity: replica_identity(row)?,
        tablespace: row.try_get("tablespace")?,
    }))
}

fn misfit(kind: &str, row: &PgRow, spec: &InboxSpec) -> Result<Option<String>, sqlx::Error> {
    if kind != "p" {
        return Ok(Some("it is not a partitioned table".to_owned()));
    }
    let column = spec.policy.routing.column();
    let partitioned_by: Option<String> = row.try_get("key_column")?;
    let by_range = row.try_get::<Option<&str>, _>("strategy")? == Some("r")
        && row.try_get::<Option<i32>, _>("key_columns")? == Some(1);
    if !by_range || partitioned_by.as_deref() != Some(column) {
        return Ok(Some(format!("it is not partitioned by range ({column})")));
    }
    let Json(columns): Json<BTreeMap<String, String>> = row.try_get("columns")?;
    let consumer = (spec.policy.consumers == Consumers::Many).then_some(("consumer", "text"));
    let wanted = [
        ("message_id", "uuid"),
        ("topic", "character varying(255)"),
        ("processed_at", "timestamp with time zone"),
    ];
    let column = wanted
        .into_iter()
        .chain(consumer)
        .find_map(|(name, kind)| match columns.get(name) {
            Some(found) if found == kind => None,
            Some(found) => Some(format!("column {name} is of type {found}, not {kind}")),
            None => Some(format!("it has no column {name} of type {kind}")),
        });
    let (has_key, has_primary_key): (bool, bool) = (row.try_get("has_key")?, row.try_get("has_primary_key")?);
    let key = match spec.policy.routing {
        // Each partition has its own, and PostgreSQL allows a table one primary key.
        Routing::ProcessedAt if has_primary_key => Some(
            "its primary key holds processed_at, so it catches no duplicate, and leaves no room for the partitions' own",
        ),
        Routing::MessageId if !has_key => {
            Some("it has no unique key on exactly the message, so every claim would fail")
        }
        Routing::ProcessedAt | Routing::MessageId => None,
    };
    Ok(column.or_else(|| key.map(str::to_owned)))
}

fn grants(row: &PgRow) -> Result<BTreeSet<Grant>, sqlx::Error> {
    let Json(grants): Json<BTreeSet<Grant>> = row.try_get("grants")?;
    Ok(grants)
}

fn replica_identity(row: &PgRow) -> Result<ReplicaIdentity, sqlx::Error> {
    Ok(match row.try_get::<&str, _>("replica_identity")? {
        "f" => ReplicaIdentity::Full,
        "n" => ReplicaIdentity::Nothing,
        "i" => ReplicaIdentity::Index,
        _ => ReplicaIdentity::Default,
    })
}

fn ident(row: &PgRow, column: &str) -> Result<Ident, sqlx::Error> {
    Ident::new(row.try_get::<String, _>(column)?).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

fn read_relation(row: &PgRow, routing: Routing) -> Result<FoundRelation, sqlx::Error> {
    let attachment = match (row.try_get("is_child")?, row.try_get("is_pending")?) {
        (true, false) => Attachment::Attached,
        (true, true) => Attachment::PendingDetach,
        (false, _) => Attachment::Loose,
    };
    let marker: Option<crate::pure::Marker> = row
        .try_get::<Option<&str>, _>("comment")?
        .and_then(|comment| comment.parse().ok());
    let mut relation = FoundRelation {
        schema: ident(row, "schema_name")?,
        name: ident(row, "relation_name")?,
        oid: oid(row, "oid")?,
        kind: match row.try_get::<&str, _>("kind")? {
            "r" => RelationKind::Table,
            "p" => RelationKind::PartitionedTable,
            "f" => RelationKind::ForeignTable,
            _ => RelationKind::Other,
        },
        attachment,
        bounds: row
            .try_get::<Option<&str>, _>("bounds")?
            .map(|text| Bounds::parse(text, routing)),
        detached_at: marker.as_ref().and_then(|marker| marker.detached_at),
        marker,
        has_key: row.try_get("has_key")?,
        owner: row.try_get("owner")?,
        grants: grants(row)?,
        storage: row.try_get::<Vec<String>, _>("storage")?.into_iter().collect(),
        replica_identity: replica_identity(row)?,
        tablespace: row.try_get("tablespace")?,
        xid_age: row.try_get("xid_age")?,
        dead_rows: row.try_get("dead_rows")?,
        vacuumed_at: row.try_get("vacuumed_at")?,
        estimated_rows: row.try_get("estimated_rows")?,
        bytes: None,
    };
    // The record of another day is about another table that had this OID.
    let recorded = days(row, "detached")?;
    if let Some(at) = relation.day().and_then(|day| recorded.get(&day)) {
        relation.detached_at = Some(*at);
    }
    Ok(relation)
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
        sqlx::query_as::<_, (sqlx::postgres::types::Oid, Option<i64>)>(include_str!("../../sql/observe/sizes.sql"))
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

/// One relation, as a step must find it again.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Relation {
    pub(crate) is_table: bool,
    pub(crate) is_partition: bool,
    pub(crate) is_pending: bool,
    pub(crate) has_default_replica_identity: bool,
    pub(crate) marker: Option<crate::pure::Marker>,
    pub(crate) owner: String,
    pub(crate) grants: BTreeSet<Grant>,
}

/// The relation of an OID, if it still has that name.
pub(crate) async fn relation(
    connection: &mut PgConnection,
    oid: u32,
    schema: &Ident,
    name: &Ident,
) -> Result<Option<Relation>, DbError> {
    look_up(connection, Some(oid), schema, name).await
}

/// The relation of a name.
pub(crate) async fn relation_by_name(
    connection: &mut PgConnection,
    schema: &Ident,
    name: &Ident,
) -> Result<Option<Relation>, DbError> {
    look_up(connection, None, schema, name).await
}

async fn look_up(
    connection: &mut PgConnection,
    oid: Option<u32>,
    schema: &Ident,
    name: &Ident,
) -> Result<Option<Relation>, DbError> {
    let doing = || format!("look at {name}");
    let row = sqlx::query(include_str!("../../sql/observe/relation.sql"))
        .bind(oid.map(sqlx::postgres::types::Oid))
        .bind(schema.as_str())
        .bind(name.as_str())
        .fetch_optional(connection)
        .await
        .doing(doing)?;
    row.map(|row| {
        Ok::<_, sqlx::Error>(Relation {
            is_table: row.try_get::<&str, _>("kind")? == "r",
            is_partition: row.try_get("is_partition")?,
            is_pending: row.try_get::<Option<bool>, _>("is_pending")?.unwrap_or(false),
            has_default_replica_identity: row.try_get("has_default_replica_identity")?,
            marker: row
                .try_get::<Option<&str>, _>("comment")?
                .and_then(|comment| comment.parse().ok()),
            owner: row.try_get("owner")?,
            grants: grants(&row)?,
        })
    })
    .transpose()
    .doing(doing)
}

/// What stands under the name of an inbox that is not on record yet.
///
/// # Errors
/// When the database fails.
pub async fn unregistered_table(connection: &mut PgConnection, spec: &InboxSpec) -> Result<FoundInbox, DbError> {
    let doing = || format!("look at {}", spec.table);
    let row = sqlx::query(include_str!("../../sql/observe/table.sql"))
        .bind(spec.table.schema().as_str())
        .bind(spec.table.table().as_str())
        .bind(spec.policy.consumers == Consumers::Many)
        .fetch_optional(connection)
        .await
        .doing(doing)?;
    let Some(row) = row else { return Ok(FoundInbox::Missing) };
    let kind: String = row.try_get("kind").doing(doing)?;
    match misfit(&kind, &row, spec).doing(doing)? {
        Some(why) => Ok(FoundInbox::Unfit(why)),
        None => Ok(FoundInbox::Fit(Parent {
            owner: row.try_get("owner").doing(doing)?,
            grants: BTreeSet::new(),
            replica_identity: replica_identity(&row).doing(doing)?,
            tablespace: None,
        })),
    }
}

/// Whether an inbox of that identity is on record.
pub(crate) async fn is_registered(connection: &mut PgConnection, inbox_id: Uuid) -> Result<bool, DbError> {
    sqlx::query_scalar(include_str!("../../sql/observe/is_registered.sql"))
        .bind(inbox_id)
        .fetch_one(connection)
        .await
        .doing(|| format!("ask whether inbox {inbox_id} is on record"))
}

/// Whether a day of an inbox is on hold.
pub(crate) async fn is_on_hold(connection: &mut PgConnection, inbox_id: Uuid, day: Day) -> Result<bool, DbError> {
    sqlx::query_scalar(include_str!("../../sql/observe/hold.sql"))
        .bind(inbox_id)
        .bind(NaiveDate::from(day))
        .fetch_one(connection)
        .await
        .doing(|| format!("ask whether {day} is on hold"))
}

/// The owner of a function, and the roles beside it and everybody that may execute it; none when there is no such function.
pub(crate) async fn function(
    connection: &mut PgConnection,
    signature: &str,
) -> Result<Option<(String, Vec<String>)>, DbError> {
    sqlx::query_as(include_str!("../../sql/observe/function.sql"))
        .bind(signature)
        .fetch_optional(connection)
        .await
        .doing(|| format!("look at the function {signature}"))
}

/// The comment of an inbox's claim function; none when there is no such function.
pub(crate) async fn claim_comment(connection: &mut PgConnection, spec: &InboxSpec) -> Result<Option<String>, DbError> {
    let comment: Option<Option<String>> = sqlx::query_scalar(include_str!("../../sql/observe/claim_comment.sql"))
        .bind(spec.table.schema().as_str())
        .bind(spec.table.table().as_str())
        .fetch_optional(connection)
        .await
        .doing(|| format!("look at the claim function of {}", spec.table))?;
    Ok(comment.flatten())
}

/// Whether an index of that name on a table is invalid, as an interrupted repair of its key leaves it.
pub(crate) async fn is_invalid_index(connection: &mut PgConnection, oid: u32, index: &Ident) -> Result<bool, DbError> {
    let found: Option<String> = sqlx::query_scalar(include_str!("../../sql/observe/invalid_index.sql"))
        .bind(sqlx::postgres::types::Oid(oid))
        .bind(index.as_str())
        .fetch_optional(connection)
        .await
        .doing(|| format!("look at index {index}"))?;
    Ok(found.is_some())
}
