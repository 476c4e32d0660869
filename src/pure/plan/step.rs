//! One step of a plan, as a value that logs, HTTP and the command line render alike.

use crate::pure::{Bounds, Day, DigestSlot, Found, FoundRelation, Ident};

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// End an interrupted detach.
    Finalize,
    /// Make and attach a day's partition.
    Create,
    /// Attach a partition that is there, but was detached by hand.
    Attach,
    /// Make the key of a partition again, concurrently.
    RepairKey,
    /// Give a partition the inbox's owner.
    RepairOwner,
    /// Give a partition the inbox's privileges.
    RepairGrants,
    /// Give a partition its storage parameters.
    RepairStorage,
    /// Give a partition the inbox's replica identity.
    RepairReplicaIdentity,
    /// Mark a partition as the inbox's.
    RepairMarker,
    /// Let a day that is over take no row any more.
    Seal,
    /// Make the digest of the days that are sealed.
    BuildDigest,
    /// Empty the table of a digest that no claim uses any more.
    ClearDigest,
    /// Take an expired partition out of the inbox.
    Detach,
    /// Put on record that a partition is attached again.
    MarkAttached,
    /// Put on record that a partition is detached; its grace begins.
    MarkDetached,
    /// Move a detached partition to the archive's schema.
    Archive,
    /// Drop a detached partition.
    Drop,
    /// Copy the rows of a default partition into partitions of their days, then exchange it for them.
    Drain,
    /// Drop a default partition that was drained, or what a drain did not finish.
    DropDrained,
}

impl Action {
    /// The action as one word, as it is recorded.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Finalize => "finalize",
            Self::Create => "create",
            Self::Attach => "attach",
            Self::RepairKey => "repair_key",
            Self::RepairOwner => "repair_owner",
            Self::RepairGrants => "repair_grants",
            Self::RepairStorage => "repair_storage",
            Self::RepairReplicaIdentity => "repair_replica_identity",
            Self::RepairMarker => "repair_marker",
            Self::Seal => "seal",
            Self::BuildDigest => "build_digest",
            Self::ClearDigest => "clear_digest",
            Self::Detach => "detach",
            Self::MarkAttached => "mark_attached",
            Self::MarkDetached => "mark_detached",
            Self::Archive => "archive",
            Self::Drop => "drop",
            Self::Drain => "drain",
            Self::DropDrained => "drop_drained",
        }
    }

    /// Whether only another look shows what there is to do after it.
    pub(crate) fn asks_for_another_look(self) -> bool {
        matches!(self, Self::Finalize | Self::Drain)
    }
}

/// A lock that a step takes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Lock {
    /// PostgreSQL's name of the lock mode.
    pub mode: &'static str,
    /// The relation that is locked.
    pub on: String,
    /// What that means for others.
    pub effect: &'static str,
}

/// One step, with its reason.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Step {
    /// The day of the partition; none when it holds no single day.
    pub day: Option<Day>,
    /// The schema of the partition.
    pub schema: Ident,
    /// The partition.
    pub relation: Ident,
    /// The partition's object identifier; none while it does not exist.
    pub oid: Option<u32>,
    /// What is done.
    pub action: Action,
    /// Why.
    pub reason: String,
    /// The locks that it takes, in order.
    pub locks: Vec<Lock>,
}

impl Step {
    pub(super) fn create(found: &Found, day: Day, reason: String) -> Self {
        let relation = found.table.partition(day);
        let mut locks = vec![
            Lock {
                mode: "ACCESS EXCLUSIVE",
                on: relation.to_string(),
                effect: "new, nobody can see it yet",
            },
            Lock {
                mode: "SHARE UPDATE EXCLUSIVE",
                on: found.table.to_string(),
                effect: "no claim waits; another maintenance command would",
            },
        ];
        if let Some(default) = found
            .relations
            .iter()
            .find(|relation| relation.bounds == Some(Bounds::Default))
        {
            let effect = "the attach scans it: claims that look into it wait";
            locks.push(Lock {
                mode: "ACCESS EXCLUSIVE",
                on: default.name.to_string(),
                effect,
            });
        }
        Self {
            day: Some(day),
            schema: found.table.schema().clone(),
            relation,
            oid: None,
            action: Action::Create,
            reason,
            locks,
        }
    }

    pub(super) fn on_digest(found: &Found, slot: &DigestSlot, action: Action, reason: String) -> Self {
        let lock = |mode, on: String, effect| Lock { mode, on, effect };
        let locks = match action {
            Action::BuildDigest => vec![
                lock(
                    "ROW EXCLUSIVE",
                    slot.name.to_string(),
                    "no claim waits: they read it as it was until this commits",
                ),
                lock(
                    "ACCESS SHARE",
                    format!("the sealed days of {}", found.table),
                    "no claim waits; no day is detached until it ends, and no row dies",
                ),
            ],
            _ => vec![lock(
                "ACCESS EXCLUSIVE",
                slot.name.to_string(),
                "no claim looks there today; it is had at once or not at all",
            )],
        };
        Self {
            day: None,
            schema: found.table.schema().clone(),
            relation: slot.name.clone(),
            oid: Some(slot.oid),
            action,
            reason,
            locks,
        }
    }

    pub(crate) fn on(found: &Found, relation: &FoundRelation, action: Action, reason: String) -> Self {
        let parent = |effect| Lock {
            mode: "SHARE UPDATE EXCLUSIVE",
            on: found.table.to_string(),
            effect,
        };
        let own = |mode, effect| Lock {
            mode,
            on: relation.name.to_string(),
            effect,
        };
        let locks = match action {
            Action::Create => Vec::new(),
            Action::Detach => vec![
                parent("no claim waits; it waits itself for transactions that use the inbox, up to its timeout"),
                own("ACCESS EXCLUSIVE", "at the end, when claims no longer see it"),
            ],
            Action::Finalize => vec![
                parent("no claim waits; it waits itself for every older snapshot in the database, up to its timeout"),
                own("ACCESS EXCLUSIVE", "claims no longer see it"),
            ],
            Action::Attach => vec![
                parent("no claim waits; it lasts as long as the scan of the partition"),
                own("ACCESS EXCLUSIVE", "it is not part of the inbox yet"),
            ],
            Action::RepairKey => vec![own(
                "SHARE UPDATE EXCLUSIVE",
                "no claim waits; it waits itself for older transactions",
            )],
            Action::Seal => vec![own(
                "SHARE ROW EXCLUSIVE",
                "no claim is made on that day any more; it waits itself for transactions that wrote into it, up to its timeout",
            )],
            // They are about a table of the digest.
            Action::BuildDigest | Action::ClearDigest => Vec::new(),
            Action::RepairGrants => Vec::new(),
            Action::RepairOwner | Action::RepairReplicaIdentity => {
                vec![own("ACCESS EXCLUSIVE", "no claim is made on that day yet")]
            }
            Action::MarkAttached | Action::RepairStorage | Action::RepairMarker => {
                vec![own("SHARE UPDATE EXCLUSIVE", "no claim waits")]
            }
            Action::MarkDetached => vec![own("SHARE UPDATE EXCLUSIVE", "it is no longer part of the inbox")],
            Action::Drain => vec![
                Lock {
                    mode: "ACCESS EXCLUSIVE",
                    on: found.table.to_string(),
                    effect: "once, when all is copied: claims wait, a tenth of a second for the lock and a second under it at most",
                },
                own("ACCESS EXCLUSIVE", "with it; while its rows are copied, ACCESS SHARE"),
            ],
            Action::Archive | Action::Drop | Action::DropDrained => vec![own(
                "ACCESS EXCLUSIVE",
                "it is no longer part of the inbox; none on the inbox itself",
            )],
        };
        Self {
            day: relation.day(),
            schema: relation.schema.clone(),
            relation: relation.name.clone(),
            oid: Some(relation.oid),
            action,
            reason,
            locks,
        }
    }
}
