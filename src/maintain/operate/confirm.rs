//! A person confirms what inboxd would not do by itself: to trust a clock that has leapt, and to remove more at once than the
//! cap allows.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;

use super::{OperateError, OperateErrorKind, Operator, Seen, audited::Audited, look, writable};
use crate::{
    postgres::{decisions, journal},
    pure::{Clocks, Day, InboxSpec, Ownership, Removals, distrust, plan},
};

/// What the confirmation of a clock came to.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct ConfirmedClock {
    /// The database's time that is trusted from here on.
    pub trusted_at: DateTime<Utc>,
    /// The highest time that was trusted before; none before the first run.
    pub trusted_before: Option<DateTime<Utc>>,
    /// Why removal is blocked all the same, inbox by inbox: the host's clock says something else.
    pub still_blocked: Vec<String>,
}

/// Trusts the database's clock as it is now, for all inboxes of the database: removal goes on after a leap.
///
/// # Errors
/// As every act.
pub async fn confirm_clock(
    connection: &mut PgConnection,
    operator: Operator<'_>,
    specs: &[InboxSpec],
) -> Result<ConfirmedClock, OperateError> {
    writable(connection).await?;
    // It writes its own line on the audit.
    let (trusted_at, trusted_before) = journal::confirm_clock(connection, Some(operator.actor.as_str())).await?;
    let clocks = Clocks {
        host: operator.clock.now(),
        trusted: Some(trusted_at),
    };
    let still_blocked = specs
        .iter()
        .filter_map(|spec| {
            let (message, _) = distrust(trusted_at, &spec.policy, clocks)?;
            Some(format!("{}: {message}", spec.name))
        })
        .collect();
    Ok(ConfirmedClock {
        trusted_at,
        trusted_before,
        still_blocked,
    })
}

/// What is due to be removed from an inbox, were there no cap.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct DueDrops {
    /// The inbox's name.
    pub inbox: String,
    /// The days, each to be detached or dropped.
    #[serde(flatten)]
    pub due: Removals,
    /// How many of each one run takes without a confirmation.
    pub max_drops_per_run: u32,
}

impl DueDrops {
    /// Whether a run would leave something behind.
    #[must_use]
    pub fn is_over_the_cap(&self) -> bool {
        let cap = usize::try_from(self.max_drops_per_run).unwrap_or(usize::MAX);
        self.due.detach.len() > cap || self.due.drop.len() > cap
    }
}

/// What the confirmation of removals came to.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct ConfirmedDrops {
    /// What the next run may do at once.
    #[serde(flatten)]
    pub confirmed: DueDrops,
    /// When it was confirmed, by the database's clock. What no run has done within a week must be confirmed again.
    pub confirmed_at: DateTime<Utc>,
}

/// What [`confirm_drops`] would confirm. Reads only.
///
/// # Errors
/// `UntrustedClock` and `NotOurs` while nothing may be removed at all; and as every act.
pub async fn due_drops(
    connection: &mut PgConnection,
    operator: Operator<'_>,
    spec: &InboxSpec,
) -> Result<DueDrops, OperateError> {
    writable(connection).await?;
    let seen = look(connection, operator, spec).await?;
    due(&seen, spec)
}

/// Lets one run remove all that is due now, however much it is: exactly these days, and each once.
///
/// `expected` is how many a person was told; when it is another number by now, nothing is confirmed.
///
/// # Errors
/// `NothingDue` when the cap holds nothing back, `Changed`, `UntrustedClock`, `NotOurs`; and as every act.
pub async fn confirm_drops(
    connection: &mut PgConnection,
    operator: Operator<'_>,
    spec: &InboxSpec,
    expected: Option<usize>,
) -> Result<ConfirmedDrops, OperateError> {
    writable(connection).await?;
    let seen = look(connection, operator, spec).await?;
    let confirmed = due(&seen, spec)?;
    if !confirmed.is_over_the_cap() {
        return Err(OperateError::new(
            OperateErrorKind::NothingDue,
            format!(
                "no more than the {} of max_drops_per_run are due in inbox {}",
                confirmed.max_drops_per_run, spec.name
            ),
            "nothing is to be confirmed",
        ));
    }
    let count = confirmed.due.len();
    if expected.is_some_and(|expected| expected != count) {
        return Err(OperateError::new(
            OperateErrorKind::Changed,
            format!("{count} removals are due in inbox {} by now", spec.name),
            "look again, then confirm",
        ));
    }
    let actor = operator.actor.as_str();
    let mut act = Audited::begin(connection, operator, "confirm the removals").await?;
    let confirmed_at = decisions::confirm_drops(act.connection(), seen.id, actor, &confirmed.due).await?;
    let detail = json!({ "detach": summary(&confirmed.due.detach), "drop": summary(&confirmed.due.drop) });
    act.audit("confirm_drops", Some(seen.id), None, detail).await?;
    act.commit().await?;
    Ok(ConfirmedDrops {
        confirmed,
        confirmed_at,
    })
}

fn due(seen: &Seen, spec: &InboxSpec) -> Result<DueDrops, OperateError> {
    let (now, found) = (seen.server.now, &seen.observed.found);
    if found.ownership != Ownership::Ours {
        return Err(OperateError::new(
            OperateErrorKind::NotOurs,
            format!(
                "the database of inbox {} is a copy of the one that it was made in",
                spec.name
            ),
            "if this copy is meant to live on as itself, run `inboxd takeover`",
        ));
    }
    // Under a clock that has leapt everything may seem due.
    if let Some((message, remedy)) = distrust(now, &spec.policy, found.clocks) {
        return Err(OperateError::new(OperateErrorKind::UntrustedClock, message, remedy));
    }
    Ok(DueDrops {
        inbox: spec.name.clone(),
        due: plan(now, &spec.policy, found).due,
        max_drops_per_run: spec.policy.max_drops_per_run,
    })
}

fn summary(days: &BTreeSet<Day>) -> serde_json::Value {
    json!({ "count": days.len(), "first": days.first(), "last": days.last() })
}
