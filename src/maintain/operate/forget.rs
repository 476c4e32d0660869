//! One message is taken out of the journal, so that it can be processed again.

use sqlx::{Acquire, PgConnection};
use uuid::Uuid;

use super::{OperateError, OperateErrorKind, Operator, checked, checked_id, look, writable};
use crate::{
    postgres::{DbError, ErrorKind, decisions, messages},
    pure::{Consumers, InboxSpec},
};

/// What a forget came to.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
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
/// `InFlight` while an open transaction claims it, `InvalidId`, `InvalidConsumer`, `Invalid` without a reason; and as every
/// act.
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
    match (spec.policy.consumers, consumer) {
        (Consumers::Many, None) => return Err(invalid_consumer(spec, "name the consumer that is to forget it")),
        (Consumers::One, Some(_)) => return Err(invalid_consumer(spec, "leave the consumer out: it has one only")),
        _ => {}
    }
    writable(connection).await?;
    look(connection, operator, spec).await?;
    let failed = |error| DbError::new("forget the message", error);
    let mut transaction = connection.begin().await.map_err(failed)?;
    let was_there = messages::forget(&mut transaction, spec, id, consumer, reason)
        .await
        .map_err(|error| match error.kind() {
            ErrorKind::LockTimeout => OperateError::new(
                OperateErrorKind::InFlight,
                format!("an open transaction claims message {id} in inbox {}", spec.name),
                "forget it once that has ended",
            ),
            _ => error.into(),
        })?;
    decisions::audit_forget(&mut transaction, operator.actor.as_str(), reason).await?;
    transaction.commit().await.map_err(failed)?;
    Ok(Forgotten {
        inbox: spec.name.clone(),
        message_id: id,
        consumer: consumer.map(str::to_owned),
        was_there,
    })
}

pub(super) fn invalid_consumer(spec: &InboxSpec, remedy: &str) -> OperateError {
    OperateError::new(
        OperateErrorKind::InvalidConsumer,
        format!("inbox {} is for {} consumer(s)", spec.name, spec.policy.consumers),
        remedy,
    )
}
