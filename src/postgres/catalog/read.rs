//! From rows of the catalog to what the planner may know.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use sqlx::{Row, postgres::PgRow, types::Json};
use uuid::Uuid;

use super::{Observed, Registered, Replica, Server, Viewer};
use crate::{
    claim::{ClaimConstants, SEALED_SINCE_VERSION},
    pure::{
        Attachment, Bounds, Clocks, Consumers, Day, Found, FoundInbox, FoundRelation, Grant, Ident, InboxSpec,
        Ownership, Parent, RelationKind, Removals, ReplicaIdentity, Routing,
    },
};

pub(super) fn unregistered(spec: &InboxSpec, clocks: Clocks) -> Observed {
    let found = Found {
        table: spec.table.clone(),
        inbox_id: Uuid::nil(),
        ownership: Ownership::Ours,
        inbox: FoundInbox::Missing,
        relations: Vec::new(),
        held: BTreeMap::new(),
        made: BTreeSet::new(),
        confirmed: Removals::default(),
        claim_retention: None,
        has_functions: false,
        claim_drift: Vec::new(),
        sealing: None,
        digest: None,
        plain_inserters: Vec::new(),
        unfit_publications: Vec::new(),
        lacking: Vec::new(),
        replicas: Vec::new(),
        clocks,
    };
    Observed {
        registered: None,
        found,
        made_with: None,
    }
}

pub(super) fn read_inbox(
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
        FoundInbox::Missing | FoundInbox::Unfit(_) | FoundInbox::BeingAdopted { .. } => Vec::new(),
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
        confirmed: confirmed(row)?,
        claim_retention: claim.as_ref().and_then(|claim| claim.retention().ok()),
        has_functions: row.try_get("has_functions")?,
        sealing: claim
            .as_ref()
            .filter(|claim| claim.version >= SEALED_SINCE_VERSION)
            .and_then(|claim| TimeDelta::try_seconds(claim.clock_step_tolerance_seconds)),
        claim_drift: claim
            .as_ref()
            .map(|claim| claim.drift_from(&wanted))
            .unwrap_or_default(),
        digest: None,
        plain_inserters,
        unfit_publications: row.try_get("unfit_publications")?,
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
        made_with: claim,
    })
}

pub(super) fn days(row: &PgRow, column: &str) -> Result<BTreeMap<Day, DateTime<Utc>>, sqlx::Error> {
    let Json(days): Json<BTreeMap<NaiveDate, DateTime<Utc>>> = row.try_get(column)?;
    Ok(days.into_iter().map(|(day, since)| (Day::from(day), since)).collect())
}

fn confirmed(row: &PgRow) -> Result<Removals, sqlx::Error> {
    let found: Option<Json<BTreeMap<String, BTreeSet<NaiveDate>>>> = row.try_get("confirmed")?;
    let mut found = found.map(|Json(found)| found).unwrap_or_default();
    let mut days = |what| {
        let days = found.remove(what).unwrap_or_default();
        days.into_iter().map(Day::from).collect()
    };
    Ok(Removals {
        detach: days("detach"),
        drop: days("drop"),
    })
}

/// Whether the table is what the configuration and the record say.
pub(super) fn read_table(row: &PgRow, spec: &InboxSpec, registered: &Registered) -> Result<FoundInbox, sqlx::Error> {
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
    if kind == "r" && row.try_get("has_key")? && claims_go_to(row, registered)? {
        let checks: Vec<String> = row.try_get("checks")?;
        let until = checks.iter().filter_map(|name| spec.table.adopted_until(name)).min();
        return Ok(FoundInbox::BeingAdopted {
            until: until.map(Day::start),
        });
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

/// Whether the claim functions are those of this very inbox.
fn claims_go_to(row: &PgRow, registered: &Registered) -> Result<bool, sqlx::Error> {
    let comment: Option<String> = row.try_get("claim_comment")?;
    let made_with = comment.as_deref().and_then(ClaimConstants::from_comment);
    Ok(made_with.is_some_and(|made_with| made_with.inbox == registered.id))
}

pub(super) fn misfit(kind: &str, row: &PgRow, spec: &InboxSpec) -> Result<Option<String>, sqlx::Error> {
    if kind == "r" {
        let what = "it is not a partitioned table; `inboxd adopt` makes an inbox of one that is in use";
        return Ok(Some(what.to_owned()));
    }
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

pub(super) fn grants(row: &PgRow) -> Result<BTreeSet<Grant>, sqlx::Error> {
    let Json(grants): Json<BTreeSet<Grant>> = row.try_get("grants")?;
    Ok(grants)
}

pub(super) fn replica_identity(row: &PgRow) -> Result<ReplicaIdentity, sqlx::Error> {
    Ok(match row.try_get::<&str, _>("replica_identity")? {
        "f" => ReplicaIdentity::Full,
        "n" => ReplicaIdentity::Nothing,
        "i" => ReplicaIdentity::Index,
        _ => ReplicaIdentity::Default,
    })
}

pub(super) fn ident(row: &PgRow, column: &str) -> Result<Ident, sqlx::Error> {
    Ident::new(row.try_get::<String, _>(column)?).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

pub(super) fn read_relation(row: &PgRow, routing: Routing) -> Result<FoundRelation, sqlx::Error> {
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
        left_by_drain: row
            .try_get::<Option<&str>, _>("comment")?
            .and_then(|comment| comment.parse().ok()),
        marker,
        has_key: row.try_get("has_key")?,
        is_sealed: row.try_get("is_sealed")?,
        is_subscribed: row.try_get("is_subscribed")?,
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

pub(super) fn oid(row: &PgRow, column: &str) -> Result<u32, sqlx::Error> {
    row.try_get::<sqlx::postgres::types::Oid, _>(column).map(|oid| oid.0)
}
