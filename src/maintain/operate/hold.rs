//! A day is put on hold: it neither leaves the inbox nor is dropped, until it is released.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;

use super::{OperateError, OperateErrorKind, Operator, Seen, audited::Audited, checked, look, writable};
use crate::{
    postgres::{DbError, ErrorKind, catalog, decisions, lock, schema},
    pure::{Ahead, Attachment, Day, FoundRelation, InboxSpec, plan},
};

/// The longest that a hold waits for a run that is removing the day: a drop takes tenths of a second, and a person waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// A day on hold.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Held {
    /// The inbox's name.
    pub inbox: String,
    /// The day.
    pub day: Day,
    /// Since when, by the database's clock.
    pub held_at: DateTime<Utc>,
    /// Who put it on hold.
    pub held_by: String,
    /// Why.
    pub reason: String,
}

/// What a hold came to.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct HeldNow {
    /// The hold that stands. One that stood before keeps its time and reason.
    #[serde(flatten)]
    pub hold: Held,
    /// Whether it was made by this.
    pub is_new: bool,
    /// The day's table; none while it has none.
    pub partition: Option<String>,
    /// What is becoming of that table; none while there is none.
    pub state: Option<HeldState>,
}

/// What is becoming of the table of a day that is on hold. In whatever state, it is not dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HeldState {
    /// It is part of the inbox, and stays that.
    Attached,
    /// Its detach has begun and goes on to its end; then it can be restored.
    Detaching,
    /// It has left the inbox. It can be restored.
    Detached,
}

/// What a release came to.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Released {
    /// The inbox's name.
    pub inbox: String,
    /// The day.
    pub day: Day,
    /// The hold that stood; none when there was none, which is no error.
    pub hold: Option<Held>,
}

/// Puts a day on hold. Doing it again is harmless, and changes nothing.
///
/// A day that has no partition may be held if the inbox is to have one: from the retention's horizon to the last day ahead.
/// Once it is answered, the day's table is not dropped. A detach that had begun before goes on to its end, and is told.
///
/// # Errors
/// `NoSuchDay` for any other day, `Dropped` when its partition is gone, `Locked` while a run is removing that, `Invalid`
/// without a reason; and as every act.
pub async fn hold(
    connection: &mut PgConnection,
    operator: Operator<'_>,
    spec: &InboxSpec,
    day: Day,
    reason: &str,
) -> Result<HeldNow, OperateError> {
    let reason = checked("the reason", reason)?;
    writable(connection).await?;
    let seen = look(connection, operator, spec).await?;
    let actor = operator.actor.as_str();
    let mut act = Audited::begin(connection, operator, "put the day on hold").await?;
    lock(act.connection(), &seen, spec, day).await?;
    // Only from here on it cannot go any more.
    let found = still_there(act.connection(), &seen, day).await?;
    if found.is_none() {
        may_be_held(act.connection(), &seen, spec, day).await?;
    }
    let (standing, is_new) = decisions::hold_day(act.connection(), seen.id, day, actor, reason).await?;
    if is_new {
        act.audit("hold", Some(seen.id), Some(reason), json!({ "day": day }))
            .await?;
    }
    act.commit().await?;
    let (partition, state) = found.unzip();
    Ok(HeldNow {
        hold: Held::of(&spec.name, day, standing),
        is_new,
        partition,
        state,
    })
}

/// Keeps who would remove the day's table out until the transaction ends.
async fn lock(connection: &mut PgConnection, seen: &Seen, spec: &InboxSpec, day: Day) -> Result<(), OperateError> {
    lock::wait_at_most(connection, PATIENCE).await?;
    lock::lock_day(connection, seen.id, day)
        .await
        .map_err(|error| match error.kind() {
            ErrorKind::LockTimeout => OperateError::new(
                OperateErrorKind::Locked,
                format!(
                    "a run is removing the partition of {day} of inbox {} just now; the day is not on hold",
                    spec.name
                ),
                "try again in a moment: then it is known whether it is gone",
            ),
            _ => error.into(),
        })
}

/// The day's table, if it is there under the day's lock, and what is becoming of it.
async fn still_there(
    connection: &mut PgConnection,
    seen: &Seen,
    day: Day,
) -> Result<Option<(String, HeldState)>, DbError> {
    let Some(relation) = partition_of(seen, day) else {
        return Ok(None);
    };
    let Some(standing) = catalog::day_standing(connection, relation.oid, seen.id, day).await? else {
        return Ok(None);
    };
    let state = match standing {
        standing if !standing.is_partition => HeldState::Detached,
        standing if standing.is_pending => HeldState::Detaching,
        // On record only: what a run gave up stays there, and what none has in hand is not going on.
        standing if standing.has_begun && lock::holder(connection).await?.is_some() => HeldState::Detaching,
        _ => HeldState::Attached,
    };
    Ok(Some((relation.name.to_string(), state)))
}

/// Releases a day; the next run does with it what is due. A day that is not on hold is no error.
///
/// # Errors
/// As every act.
pub async fn release(
    connection: &mut PgConnection,
    operator: Operator<'_>,
    spec: &InboxSpec,
    day: Day,
) -> Result<Released, OperateError> {
    writable(connection).await?;
    let seen = look(connection, operator, spec).await?;
    let mut act = Audited::begin(connection, operator, "release the day").await?;
    let stood = decisions::release_day(act.connection(), seen.id, day).await?;
    if let Some(stood) = &stood {
        let detail = json!({ "day": day, "held_at": stood.at, "held_by": stood.by, "held_because": stood.reason });
        act.audit("release_hold", Some(seen.id), None, detail).await?;
    }
    act.commit().await?;
    Ok(Released {
        inbox: spec.name.clone(),
        day,
        hold: stood.map(|stood| Held::of(&spec.name, day, stood)),
    })
}

/// The days on hold of these inboxes, by inbox and day. Reads only, on a standby too.
///
/// # Errors
/// When the database fails, or its control schema is missing or of another version.
pub async fn holds(
    connection: &mut PgConnection,
    deployment: &str,
    specs: &[InboxSpec],
) -> Result<Vec<Held>, OperateError> {
    schema::check(connection).await?;
    let rows = decisions::holds(connection, deployment).await?;
    let held = rows
        .into_iter()
        .filter_map(|(schema, table, day, held_at, held_by, reason)| {
            let spec = specs
                .iter()
                .find(|spec| (spec.table.schema().as_str(), spec.table.table().as_str()) == (&*schema, &*table))?;
            Some(Held {
                inbox: spec.name.clone(),
                day: day.into(),
                held_at,
                held_by,
                reason,
            })
        });
    Ok(held.collect())
}

impl Held {
    pub(super) fn of(inbox: &str, day: Day, decision: decisions::Decision) -> Self {
        Self {
            inbox: inbox.to_owned(),
            day,
            held_at: decision.at,
            held_by: decision.by,
            reason: decision.reason,
        }
    }
}

/// The table that holds a day: a partition, or what was one and is marked as this inbox's.
fn partition_of(seen: &Seen, day: Day) -> Option<&FoundRelation> {
    let found = &seen.observed.found;
    found.relations.iter().find(|relation| {
        let is_marked = relation
            .marker
            .as_ref()
            .is_some_and(|marker| marker.inbox == found.inbox_id);
        relation.day() == Some(day) && (relation.attachment != Attachment::Loose || is_marked)
    })
}

/// Makes sure that a day without a partition is one that the inbox is to have.
async fn may_be_held(
    connection: &mut PgConnection,
    seen: &Seen,
    spec: &InboxSpec,
    day: Day,
) -> Result<(), OperateError> {
    let found = &seen.observed.found;
    let now = seen.server.now;
    let ahead = found.replicas.iter().map(|replica| replica.ahead);
    let ahead = ahead.fold(spec.policy.ahead, Ahead::max).days();
    let retention = plan(now, &spec.policy, found).retention;
    let first = retention.horizon(now).map_or(Day::FIRST, Day::containing);
    let last = Day::containing(now).plus(ahead);
    let dropped = decisions::partition_record(connection, seen.id, day)
        .await?
        .and_then(|(_, dropped)| dropped);
    if let Some(at) = dropped {
        return Err(super::restore::was_dropped(spec, day, at));
    }
    if (first..=last).contains(&day) {
        return Ok(());
    }
    Err(OperateError::new(
        OperateErrorKind::NoSuchDay,
        format!("inbox {} has no partition of {day}, and will not have one", spec.name),
        format!("its days are {first} to {last}, and those that `inboxd status` shows"),
    ))
}
