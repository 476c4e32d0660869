//! Was a message processed, and when: asked of each partition by its key.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{OperateError, Operator, checked_id, forget::checked_consumer, look};
use crate::{
    postgres::{ErrorKind, messages, schema},
    pure::{Attachment, Day, Found, FoundRelation, InboxSpec, RelationKind, Routing},
};

/// How long the whole question waits for partitions that somebody has locked.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it waits for each after that: the lock of a statement that is just ending.
const LEAST_PATIENCE: Duration = Duration::from_millis(10);

/// What is known of a message.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct FoundMessage {
    /// The inbox's name.
    pub inbox: String,
    /// The message.
    pub message_id: Uuid,
    /// Each time that it was processed: once, or once a consumer. Empty when it was not, as far as was looked.
    pub processed: Vec<Processed>,
    /// The days whose partitions were looked at, also those of detached partitions.
    pub looked_at: Vec<Day>,
    /// The partitions that were not.
    pub not_looked_at: Vec<NotLookedAt>,
}

/// One time that a message was processed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Processed {
    /// When it was claimed, by the database's clock; its transaction has committed.
    pub processed_at: DateTime<Utc>,
    /// The topic that it was claimed with.
    pub topic: String,
    /// The consumer, where there are many.
    pub consumer: Option<String>,
    /// The partition.
    pub partition: String,
    /// The partition's day; none when it holds no single day.
    pub day: Option<Day>,
    /// Whether the partition is part of the inbox: claims do not see what is in a detached one.
    pub is_attached: bool,
}

/// A partition that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct NotLookedAt {
    /// The partition.
    pub partition: String,
    /// Its day; none when it holds no single day.
    pub day: Option<Day>,
    /// Why not.
    pub why: &'static str,
}

/// Looks for a message in every partition of an inbox, also in those that are detached, by their keys alone. Reads only, on a
/// standby too. A partition that somebody has locked is left out after a second in all, and named.
///
/// # Errors
/// `InvalidId`, `InvalidConsumer`; `UnknownInbox`; or when the database fails.
pub async fn message(
    connection: &mut PgConnection,
    operator: Operator<'_>,
    spec: &InboxSpec,
    id: Uuid,
    consumer: Option<&str>,
) -> Result<FoundMessage, OperateError> {
    checked_id(spec, id)?;
    checked_consumer(spec, consumer)?;
    schema::check(connection).await?;
    let seen = look(connection, operator, spec).await?;
    let mut answer = FoundMessage {
        inbox: spec.name.clone(),
        message_id: id,
        processed: Vec::new(),
        looked_at: Vec::new(),
        not_looked_at: Vec::new(),
    };
    let mut patience = PATIENCE;
    for relation in candidates(&seen.observed.found, spec, id) {
        let begun = Instant::now();
        let why_not = match why_not(relation) {
            Some(why) => Some(why),
            None => {
                let place = [&relation.schema, &relation.name];
                let found = messages::find(connection, place, spec.policy.consumers, id, consumer, patience).await;
                match found {
                    Ok(rows) => {
                        answer
                            .processed
                            .extend(rows.into_iter().map(|row| Processed::of(relation, row)));
                        None
                    }
                    Err(error) => match error.kind() {
                        ErrorKind::LockTimeout | ErrorKind::StatementTimeout => Some("it is locked"),
                        ErrorKind::Missing => Some("it has just gone"),
                        _ => return Err(error.into()),
                    },
                }
            }
        };
        patience = patience.saturating_sub(begun.elapsed()).max(LEAST_PATIENCE);
        match (why_not, relation.day()) {
            (None, Some(day)) => answer.looked_at.push(day),
            (None, None) => {}
            (Some(why), day) => answer.not_looked_at.push(NotLookedAt {
                partition: relation.name.to_string(),
                day,
                why,
            }),
        }
    }
    Ok(answer)
}

impl Processed {
    fn of(relation: &FoundRelation, (processed_at, topic, consumer): messages::MessageRow) -> Self {
        Self {
            processed_at,
            topic,
            consumer,
            partition: relation.name.to_string(),
            day: relation.day(),
            is_attached: relation.attachment == Attachment::Attached,
        }
    }
}

/// The partitions that may hold a message, the oldest first: its children, and what was one. By `message_id` only that of
/// the day on which it was created.
fn candidates<'f>(found: &'f Found, spec: &InboxSpec, id: Uuid) -> Vec<&'f FoundRelation> {
    let its_day = (spec.policy.routing == Routing::MessageId)
        .then(|| id.get_timestamp())
        .flatten()
        .and_then(|at| {
            let (seconds, nanos) = at.to_unix();
            DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos)
        })
        .map(Day::containing);
    let mut relations: Vec<_> = found
        .relations
        .iter()
        .filter(|relation| {
            let is_marked = relation
                .marker
                .as_ref()
                .is_some_and(|marker| marker.inbox == found.inbox_id);
            relation.attachment != Attachment::Loose || is_marked
        })
        .filter(|relation| match (its_day, relation.day()) {
            (Some(its_day), Some(day)) => its_day == day,
            _ => true,
        })
        .collect();
    relations.sort_by_key(|relation| (relation.day(), relation.oid));
    relations
}

fn why_not(relation: &FoundRelation) -> Option<&'static str> {
    if relation.kind != RelationKind::Table {
        Some("it is no plain table")
    } else if !relation.has_key {
        Some("it has lost its key, and would have to be read whole")
    } else {
        None
    }
}
