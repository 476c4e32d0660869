//! What an observation of the catalog found, as plain values for the planner.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::{Ahead, Bounds, Day, Ident, LeftByDrain, Marker, Retention, TableName};

/// The storage parameters of every partition. Only who creates a partition can give it them; the parent cannot carry any.
///
/// A journal that lives for days and is dropped whole gains nothing from vacuums that inserts set off. And a vacuum that
/// does come, to freeze, must not end by cutting the file: for that it takes ACCESS EXCLUSIVE, and claims wait.
pub const STORAGE_PARAMETERS: &[&str] = &["autovacuum_vacuum_insert_threshold=-1", "vacuum_truncate=false"];

/// Everything that the planner may know about one inbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The inbox's table.
    pub table: TableName,
    /// The inbox's identity, as its markers carry it.
    pub inbox_id: Uuid,
    /// Who manages it.
    pub ownership: Ownership,
    /// The table itself.
    pub inbox: FoundInbox,
    /// Its children, and every other relation that carries its marker or is named like a partition of it.
    pub relations: Vec<FoundRelation>,
    /// Days on hold, each with the time since when.
    pub held: BTreeMap<Day, DateTime<Utc>>,
    /// Days that have had a partition at some time, whatever became of it.
    pub made: BTreeSet<Day>,
    /// What a person has confirmed that one run may remove beyond its cap.
    pub confirmed: Removals,
    /// The retention that its claim functions were made with; none when there are no functions.
    pub claim_retention: Option<Retention>,
    /// Whether all of its functions are there and belong to the table's owner.
    pub has_functions: bool,
    /// What its claim functions were made with that the configuration no longer says.
    pub claim_drift: Vec<String>,
    /// How far the server's clock may step back over midnight for its claim functions; none while they cannot deal with a
    /// sealed day.
    pub sealing: Option<TimeDelta>,
    /// The digest of its sealed days; none while its claim functions do not ask one, or it has no slots.
    pub digest: Option<[DigestSlot; DIGEST_SLOTS]>,
    /// Roles other than the owner that may insert into the table directly, past lock and look-back.
    pub plain_inserters: Vec<String>,
    /// Publications that would break what is subscribed to them, each with its name as SQL wants it.
    pub unfit_publications: Vec<String>,
    /// Privileges that the connecting role lacks for its work, each as one would grant it.
    pub lacking: Vec<String>,
    /// What other live replicas of the deployment are configured with for this inbox.
    pub replicas: Vec<ReplicaPolicy>,
    /// The evidence about the clock.
    pub clocks: Clocks,
}

/// The digest of a day lies in one of three tables, by the number of the day: that of today, that of yesterday, which claims
/// use until today's is built, and one that nobody looks into, so that it can be emptied.
pub const DIGEST_SLOTS: usize = 3;

/// A table that holds a digest.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DigestSlot {
    /// Its name; its schema is that of the inbox.
    pub name: Ident,
    /// Its object identifier.
    pub oid: u32,
    /// What its digest covers; none while it is empty.
    pub covers: Option<Covers>,
    /// Its size without its index, in bytes.
    pub bytes: i64,
}

/// The days that a digest covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Covers {
    /// The first day's beginning.
    pub from: DateTime<Utc>,
    /// The last day's end.
    pub to: DateTime<Utc>,
}

/// Days whose partitions are to go: out of the inbox, and for good.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Removals {
    /// To be detached.
    pub detach: BTreeSet<Day>,
    /// To be dropped; they are detached already.
    pub drop: BTreeSet<Day>,
}

impl Removals {
    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.detach.len() + self.drop.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What another replica is configured with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaPolicy {
    /// Host and process, for people.
    pub replica: String,
    /// Its retention.
    pub retention: Retention,
    /// Its days ahead.
    pub ahead: Ahead,
}

/// Who manages an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// This deployment, on the server it was made on.
    Ours,
    /// Another deployment, by name.
    OtherDeployment(String),
    /// This deployment, but on another server or database: a restored or cloned one.
    OtherServer,
}

/// Two clocks beside the database's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// The clock of the host that plans.
    pub host: DateTime<Utc>,
    /// The highest database time that earlier runs trusted.
    pub trusted: Option<DateTime<Utc>>,
}

/// The inbox's table.
#[derive(Debug, Clone, PartialEq)]
pub enum FoundInbox {
    /// There is none.
    Missing,
    /// There is one that does not fit, with what is wrong.
    Unfit(String),
    /// It is not partitioned yet: claims go to it as it is, until it is adopted.
    BeingAdopted {
        /// When every insert begins to fail unless it is adopted before; none while nothing keeps rows out.
        until: Option<DateTime<Utc>>,
    },
    /// It is as it should be.
    Fit(Parent),
}

/// What its partitions must have in common with the inbox's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Its owner.
    pub owner: String,
    /// Privileges of other roles.
    pub grants: BTreeSet<Grant>,
    /// What logical replication sees of an old row.
    pub replica_identity: ReplicaIdentity,
    /// Its tablespace; none for the database's own.
    pub tablespace: Option<String>,
}

/// What logical replication sees of an old row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaIdentity {
    /// Its primary key.
    Default,
    /// All of it.
    Full,
    /// Nothing.
    Nothing,
    /// The columns of some other index, which each table has to name for itself.
    Index,
}

/// One privilege of one role on a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Grant {
    /// The role; empty for PUBLIC.
    pub grantee: String,
    /// The privilege, for example `SELECT`.
    pub privilege: String,
    /// Whether the role may pass it on.
    pub grantable: bool,
}

/// What kind of relation a name belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RelationKind {
    /// An ordinary table.
    Table,
    /// A partitioned table.
    PartitionedTable,
    /// A foreign table.
    ForeignTable,
    /// A view, sequence, index, type or other.
    Other,
}

/// How a relation belongs to the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Attachment {
    /// A partition of it.
    Attached,
    /// Its concurrent detach was interrupted: claims no longer see it, the catalog still holds it.
    PendingDetach,
    /// Not, or no longer, a partition of it.
    Loose,
}

/// One relation that concerns the inbox.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct FoundRelation {
    /// Its schema.
    pub schema: Ident,
    /// Its name.
    pub name: Ident,
    /// Its object identifier, by which a step makes sure that it is still the same table.
    pub oid: u32,
    /// What it is.
    pub kind: RelationKind,
    /// How it belongs to the inbox.
    pub attachment: Attachment,
    /// Its bounds; none when it is loose.
    pub bounds: Option<Bounds>,
    /// Its marker, if it carries one.
    pub marker: Option<Marker>,
    /// When it was detached, from our records or its marker.
    pub detached_at: Option<DateTime<Utc>>,
    /// What of a drain it is, if it is any.
    pub left_by_drain: Option<LeftByDrain>,
    /// Whether a valid, immediate, non-partial unique index on exactly the inbox's key stands on it.
    pub has_key: bool,
    /// Whether it takes no row any more.
    pub is_sealed: bool,
    /// Whether a subscription brings it rows, which may be late.
    pub is_subscribed: bool,
    /// Its owner.
    pub owner: String,
    /// Privileges of other roles on it.
    pub grants: BTreeSet<Grant>,
    /// Its storage parameters, as `name=value`.
    pub storage: BTreeSet<String>,
    /// What logical replication sees of an old row.
    pub replica_identity: ReplicaIdentity,
    /// Its tablespace; none for the database's own.
    pub tablespace: Option<String>,
    /// Transactions since its oldest row that is not frozen.
    pub xid_age: Option<i32>,
    /// The statistics collector's count of dead rows, as rolled-back claims leave them; an estimate.
    pub dead_rows: Option<i64>,
    /// When it was last vacuumed, by hand or automatically.
    pub vacuumed_at: Option<DateTime<Utc>>,
    /// The statistics collector's count of live rows; an estimate.
    pub estimated_rows: Option<i64>,
    /// Size on disk with its indexes, in bytes; none where it was not asked for or the table was locked.
    pub bytes: Option<i64>,
}

impl FoundRelation {
    /// The day: from its bounds while it is a partition, else from its marker. Of an adopted table, which holds many, the last.
    #[must_use]
    pub fn day(&self) -> Option<Day> {
        match self.attachment {
            Attachment::Attached | Attachment::PendingDetach => {
                self.bounds.as_ref()?.day().or_else(|| self.last_adopted_day())
            }
            Attachment::Loose => self.marker.as_ref().map(|marker| marker.day),
        }
    }

    /// The last day of a table that was adopted: it has no lower bound, and its marker says up to where it was adopted.
    fn last_adopted_day(&self) -> Option<Day> {
        let Some(Bounds::Range(span)) = &self.bounds else {
            return None;
        };
        let last = self.marker.as_ref()?.day;
        (span.from.is_none() && span.to == Some(last.end())).then_some(last)
    }
}
