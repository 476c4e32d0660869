//! What a plan noticed, as values with a remedy.

use crate::pure::{Day, FoundRelation};

use super::Planner;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; nothing to do.
    Info,
    /// A person should look, in days.
    Warn,
    /// Claims fail, or soon will, or could double.
    Fail,
}

/// What kind of thing was noticed. The names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingCode {
    /// The inbox's table does not exist.
    InboxMissing,
    /// It exists and cannot be an inbox.
    InboxUnfit,
    /// It is being adopted; its remedy must come before a deadline.
    Adoption,
    /// It belongs to another deployment.
    OtherDeployment,
    /// The database is a copy of the one that the inbox was made in.
    OtherServer,
    /// The time until the first claim would fail is short.
    Runway,
    /// A past day within the retention has no partition.
    Gap,
    /// Something else has the name that a partition needs.
    NameTaken,
    /// A partition that should be attached is not.
    NotAttached,
    /// A child that is no plain table.
    ForeignChild,
    /// A child whose bounds are not exactly one UTC day.
    WrongBounds,
    /// A child, or a detached partition, whose name is not that of its day.
    WrongName,
    /// A child whose marker says that it is something else.
    WrongMarker,
    /// A default partition.
    DefaultPartition,
    /// A partition without the key that makes claims exact.
    MissingKey,
    /// A partition with another owner than the inbox.
    OwnerDrift,
    /// A partition with another replica identity than the inbox.
    ReplicaIdentityDrift,
    /// A partition in another tablespace than the inbox.
    TablespaceDrift,
    /// A partition whose oldest row has not been frozen for very many transactions.
    OldTransactions,
    /// Live replicas of the deployment that are configured differently.
    ReplicasDisagree,
    /// A privilege that maintenance lacks.
    MissingPrivilege,
    /// Claim functions made with another configuration, or none.
    ClaimDrift,
    /// A role that may insert past the claim.
    PlainInsert,
    /// A publication that breaks what is subscribed to it.
    Publication,
    /// Claims look into each day, because there is no digest of them all.
    NoDigest,
    /// More removals are due than one run may do.
    BlockedByCap,
    /// An expired day is on hold.
    BlockedByHold,
    /// The clock is not trusted.
    BlockedByClock,
    /// A default partition prevents detaching.
    BlockedByDefault,
}

/// One thing that was noticed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Finding {
    /// What kind it is.
    pub code: FindingCode,
    /// How bad it is.
    pub severity: Severity,
    /// The relation that it is about.
    pub relation: Option<String>,
    /// The day that it is about.
    pub day: Option<Day>,
    /// What is so.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl Planner<'_> {
    pub(super) fn report(&mut self, code: FindingCode, severity: Severity, message: String, remedy: String) {
        self.findings.push(Finding {
            code,
            severity,
            relation: None,
            day: None,
            message,
            remedy,
        });
    }

    pub(super) fn report_on(
        &mut self,
        relation: &FoundRelation,
        code: FindingCode,
        severity: Severity,
        message: String,
        remedy: String,
    ) {
        let (name, day) = (Some(relation.name.to_string()), relation.day());
        self.findings.push(Finding {
            code,
            severity,
            relation: name,
            day,
            message,
            remedy,
        });
    }
}
