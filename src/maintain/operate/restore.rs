//! An expiry is taken back: a detached partition whose table is still there becomes part of the inbox again.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;

use super::{Held, OperateError, OperateErrorKind, Operator, Seen, audited::Audited, checked, look, writable};
use crate::{
    postgres::{
        DbError, ErrorKind,
        ddl::{self, Work},
        decisions, lock,
    },
    pure::{
        Action, Attachment, Bounds, Day, FoundInbox, FoundRelation, InboxSpec, Parent, RelationKind, Retention, Span,
        Step,
    },
};

/// What a restore came to.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Restored {
    /// The inbox's name.
    pub inbox: String,
    /// The day.
    pub day: Day,
    /// Its partition.
    pub partition: String,
    /// Since when it had been detached; none when that was not on record.
    pub detached_at: Option<DateTime<Utc>>,
    /// The hold that keeps it from being taken out again; one that stood before is kept as it was.
    pub hold: Held,
    /// Whether claims look at that day, so that its duplicates are caught again. They do not look beyond the retention that
    /// their functions were made with: then lengthen it and run `inboxd init`.
    pub catches_duplicates: bool,
    /// How often it was tried.
    pub attempts: i32,
}

/// Attaches a detached partition again, with its key, and puts its day on hold: the next run would take it out again.
///
/// Where the check constraint stands that a concurrent detach leaves, nothing is scanned. No claim waits for it. The run lock
/// is held meanwhile, so the connection must be a session of its own, as for a run; and this future is never to be dropped
/// half-way, unless its connection goes with it.
///
/// # Errors
/// `Busy` while a run is going; `NotDetached`, `Dropped`, `NotRestorable` with the reason, `NoSuchDay`; and as every act.
pub async fn restore(
    connection: &mut PgConnection,
    operator: Operator<'_>,
    spec: &InboxSpec,
    day: Day,
    reason: Option<&str>,
) -> Result<Restored, OperateError> {
    let reason = reason.map(|reason| checked("the reason", reason)).transpose()?;
    writable(connection).await?;
    if let Err(holder) = lock::try_lock(connection).await? {
        return Err(OperateError::busy(holder));
    }
    let restored = locked(connection, operator, spec, day, reason).await;
    // A lost connection has given the lock back already; its error is the one to report.
    let released = lock::release(connection).await;
    let restored = restored?;
    released?;
    tracing::info!(
        inbox = spec.name,
        relation = restored.partition,
        actor = operator.actor.as_str(),
        "the partition was restored, and its day is on hold"
    );
    Ok(restored)
}

async fn locked(
    connection: &mut PgConnection,
    operator: Operator<'_>,
    spec: &InboxSpec,
    day: Day,
    reason: Option<&str>,
) -> Result<Restored, OperateError> {
    let seen = look(connection, operator, spec).await?;
    let (parent, relation) = match restorable(&seen, spec, day)? {
        Some(found) => found,
        None => return Err(not_there(connection, &seen, spec, day).await?),
    };
    let why = "a person restores it".to_owned();
    let step = Step::on(&seen.observed.found, relation, Action::Attach, why);
    let work = Work {
        spec,
        inbox_id: seen.id,
        parent,
        step: &step,
    };
    let mut attempts = 0;
    let standing = loop {
        attempts += 1;
        match attempt(connection, operator, work, relation, day, reason).await {
            Ok(standing) => break standing,
            Err(error) if error.kind().is_retryable() && attempts < operator.retries.attempts => {
                tokio::time::sleep(operator.retries.pause_after(attempts)).await;
            }
            Err(error) if error.kind() == ErrorKind::WrongState => {
                return Err(not_restorable(
                    spec,
                    day,
                    "it is not what it was a moment ago",
                    "try again",
                ));
            }
            Err(error) => return Err(error.into()),
        }
    };
    let now = seen.server.now;
    let looks_back = seen.observed.found.claim_retention;
    Ok(Restored {
        inbox: spec.name.clone(),
        day,
        partition: relation.name.to_string(),
        detached_at: relation.detached_at,
        hold: Held::of(&spec.name, day, standing),
        catches_duplicates: match looks_back {
            None => false,
            Some(Retention::Forever) => true,
            Some(length) => length
                .horizon(now)
                .is_none_or(|horizon| Day::containing(horizon) <= day),
        },
        attempts,
    })
}

/// Hold, attach and audit in one transaction; the attach, whose locks others may meet, comes last.
async fn attempt(
    connection: &mut PgConnection,
    operator: Operator<'_>,
    work: Work<'_>,
    relation: &FoundRelation,
    day: Day,
    reason: Option<&str>,
) -> Result<decisions::Decision, DbError> {
    let actor = operator.actor.as_str();
    let because = reason.map_or_else(|| "restored".to_owned(), |reason| format!("restored: {reason}"));
    let mut act = Audited::begin(connection, operator, "restore the partition").await?;
    let (standing, is_new) = decisions::hold_day(act.connection(), work.inbox_id, day, actor, &because).await?;
    let detail = json!({
        "day": day, "relation": relation.name, "detached_at": relation.detached_at, "put_on_hold": is_new,
    });
    act.audit("restore", Some(work.inbox_id), reason, detail).await?;
    // Its own transaction becomes a savepoint of this one.
    ddl::perform(act.connection(), work, Action::Attach).await?;
    act.commit().await?;
    Ok(standing)
}

/// The table that can go back, after making sure, in this order, that the inbox fits; that the day is not attached or half
/// detached; that the table is a plain one, marked as this inbox's and this day's, named for it and in the inbox's schema;
/// that its key stands; that no other partition has any of its range, and no default partition would be scanned.
fn restorable<'s>(
    seen: &'s Seen,
    spec: &InboxSpec,
    day: Day,
) -> Result<Option<(&'s Parent, &'s FoundRelation)>, OperateError> {
    let found = &seen.observed.found;
    let refuse = |why: &str, remedy: &str| Err(not_restorable(spec, day, why, remedy));
    let parent = match &found.inbox {
        FoundInbox::Fit(parent) => parent,
        FoundInbox::Missing => return refuse("the inbox's table does not exist", "run `inboxd init`"),
        FoundInbox::Unfit(why) => return refuse(why, "see `inboxd check`"),
        FoundInbox::BeingAdopted { .. } => {
            return refuse("the inbox is being adopted", "end that first, with `inboxd adopt`");
        }
    };
    let of_day = || found.relations.iter().filter(|relation| relation.day() == Some(day));
    let was_adopted = of_day().any(|relation| relation.name == spec.table.adopted());
    let name = if was_adopted {
        spec.table.adopted()
    } else {
        spec.table.partition(day)
    };
    for relation in of_day() {
        let (what, remedy) = match relation.attachment {
            Attachment::Loose => continue,
            Attachment::Attached => ("is part of the inbox", "nothing is to be done"),
            Attachment::PendingDetach => (
                "is half detached",
                "hold the day, run `inboxd run`, which ends the detach, then restore it",
            ),
        };
        let message = format!("partition {} of inbox {} {what}", relation.name, spec.name);
        return Err(OperateError::new(OperateErrorKind::NotDetached, message, remedy));
    }
    let is_marked = |relation: &&FoundRelation| {
        relation
            .marker
            .as_ref()
            .is_some_and(|marker| marker.inbox == found.inbox_id)
    };
    let is_named = |relation: &FoundRelation| relation.name == name && relation.schema == *spec.table.schema();
    let ours: Vec<_> = of_day().filter(is_marked).collect();
    let Some(relation) = ours.iter().copied().find(|relation| is_named(relation)) else {
        return match ours.first() {
            Some(other) => {
                let (schema, table) = (other.schema.quoted(), other.name.quoted());
                let home = spec.table.quoted_sibling(&name);
                refuse(
                    &format!("its table is {schema}.{table}"),
                    &format!("move and rename it back to {home}, then restore it"),
                )
            }
            None if found.relations.iter().any(is_named) => refuse(
                &format!("table {name} is not marked as this inbox's"),
                "see `inboxd check`",
            ),
            None => Ok(None),
        };
    };
    if relation.kind != RelationKind::Table {
        return refuse(&format!("{name} is no plain table"), "see `inboxd check`");
    }
    if !relation.has_key {
        let key = "look for duplicates, then make a unique index on the key concurrently, and restore it";
        return refuse(&format!("{name} has lost its key"), key);
    }
    let others = || {
        found
            .relations
            .iter()
            .filter_map(|other| Some((other, other.bounds.as_ref()?)))
    };
    if let Some((other, _)) =
        others().find(|(_, bounds)| bounds.span().is_some_and(|span| span.overlaps(&Span::of(day))))
    {
        return refuse(
            &format!("partition {} holds some of that day", other.name),
            "see `inboxd check`",
        );
    }
    if others().any(|(_, bounds)| *bounds == Bounds::Default) {
        let why = "the attach would read the default partition while claims wait";
        return refuse(why, "move its rows away and detach it first");
    }
    Ok(Some((parent, relation)))
}

/// Nothing of that day is there: it was dropped, or never was.
async fn not_there(
    connection: &mut PgConnection,
    seen: &Seen,
    spec: &InboxSpec,
    day: Day,
) -> Result<OperateError, OperateError> {
    let record = decisions::partition_record(connection, seen.id, day).await?;
    Ok(match record {
        Some((_, Some(dropped))) => was_dropped(spec, day, dropped),
        _ => OperateError::new(
            OperateErrorKind::NoSuchDay,
            format!("inbox {} has no table of {day}", spec.name),
            "`inboxd status` shows what there is",
        ),
    })
}

pub(super) fn was_dropped(spec: &InboxSpec, day: Day, at: DateTime<Utc>) -> OperateError {
    let at = at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    OperateError::new(
        OperateErrorKind::Dropped,
        format!("the partition of {day} of inbox {} was dropped at {at}", spec.name),
        "only a backup has it",
    )
}

fn not_restorable(spec: &InboxSpec, day: Day, why: &str, remedy: &str) -> OperateError {
    OperateError::new(
        OperateErrorKind::NotRestorable,
        format!("{day} of inbox {} cannot be restored: {why}", spec.name),
        remedy,
    )
}
