//! One message is taken out of the journal, so that it can be processed again.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{OperateError, OperateErrorKind, Operator, audited::Audited, checked, checked_id, look, writable};
use crate::{
    postgres::{DbError, ErrorKind, decisions, messages},
    pure::{Consumers, InboxSpec},
};

/// What a forget came to.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Forgotten {
    /// The inbox's name.
    pub inbox: String,
    /// The message.
    pub message_id: Uuid,
    /// The consumer that forgets it, where there are many.
    pub consumer: Option<String>,
    /// Whether it was there. That it was not is no error: its next delivery is fresh either way.
    pub was_there: bool,
}

/// Takes a message out of the journal: its next delivery is fresh.
///
/// # Errors
/// `InFlight` while an open transaction claims it, `Locked` while its row or a partition is locked, `Published` where it
/// would break a subscriber, `InvalidId`, `InvalidConsumer`, `Invalid` without a reason; and as every act.
pub async fn forget(
    connection: &mut PgConnection,
    operator: Operator<'_>,
    spec: &InboxSpec,
    id: Uuid,
    consumer: Option<&str>,
    reason: &str,
) -> Result<Forgotten, OperateError> {
    let reason = checked("the reason", reason)?;
    checked_id(spec, id)?;
    checked_consumer(spec, consumer)?;
    if spec.policy.consumers == Consumers::Many && consumer.is_none() {
        return Err(invalid_consumer(spec, "name the consumer that is to forget it"));
    }
    writable(connection).await?;
    look(connection, operator, spec).await?;
    let mut act = Audited::begin(connection, operator, "forget the message").await?;
    let was_there = messages::forget(act.connection(), spec, id, consumer, reason)
        .await
        .map_err(|error| refusal(spec, id, error))?;
    // The function has put it on the audit itself, under the session's name.
    decisions::audit_forget(act.connection(), operator.actor.as_str(), reason).await?;
    act.commit().await?;
    Ok(Forgotten {
        inbox: spec.name.clone(),
        message_id: id,
        consumer: consumer.map(str::to_owned),
        was_there,
    })
}

/// The function's own refusals have SQLSTATEs of their own. Those of the server may have several causes.
fn refusal(spec: &InboxSpec, id: Uuid, error: DbError) -> OperateError {
    let inbox = &spec.name;
    match error.sqlstate().as_deref() {
        Some("IX005") => OperateError::new(
            OperateErrorKind::InFlight,
            format!("an open transaction claims message {id} in inbox {inbox}"),
            "forget it once that has ended",
        ),
        Some("IX006") => OperateError::new(
            OperateErrorKind::Published,
            format!("a publication would carry the delete from inbox {inbox} to subscribers that cannot apply it"),
            "take deletes out of it, which an inbox does not need: alter publication … set (publish = 'insert')",
        ),
        // Also what functions of an older version say of a message in flight.
        _ if error.kind() == ErrorKind::LockTimeout => OperateError::new(
            OperateErrorKind::Locked,
            format!(
                "another session has locked message {id} itself, or a partition of inbox {inbox}, for longer than we wait"
            ),
            "try again; if it stays so, see pg_locks for who it is",
        ),
        _ => error.into(),
    }
}

/// A consumer that the inbox may have.
pub(super) fn checked_consumer(spec: &InboxSpec, consumer: Option<&str>) -> Result<(), OperateError> {
    match (spec.policy.consumers, consumer) {
        (Consumers::One, Some(_)) => Err(invalid_consumer(spec, "leave the consumer out: it has one only")),
        // PostgreSQL holds no NUL in a text, and a claim takes no empty name.
        (Consumers::Many, Some(name)) if name.is_empty() || name.contains('\0') => {
            Err(invalid_consumer(spec, "name the consumer as its claims do"))
        }
        _ => Ok(()),
    }
}

pub(super) fn invalid_consumer(spec: &InboxSpec, remedy: &str) -> OperateError {
    OperateError::new(
        OperateErrorKind::InvalidConsumer,
        format!("inbox {} is for {} consumer(s)", spec.name, spec.policy.consumers),
        remedy,
    )
}
