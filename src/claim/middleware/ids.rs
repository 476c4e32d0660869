//! How the id of a message is found, said for each source rather than guessed.

use std::{fmt, sync::Arc};

use super::{Delivery, Rejection};
use crate::claim::MessageId;

type Find<D> = Arc<dyn Fn(&D) -> Option<MessageId> + Send + Sync>;

/// Where the id of a message stands. Text that is a UUID is taken as it is; other text becomes an id by
/// [`MessageId::from_name`].
#[non_exhaustive]
pub enum IdSource<D> {
    /// In a header that its producer sets.
    Header(String),
    /// In the broker's own property for it: `message-id` of AMQP, `Nats-Msg-Id` of JetStream. Kafka has none.
    Property,
    /// Made of where the message lies in the broker. It tells redeliveries of one message apart from other messages, but not
    /// a message from what its producer sent a second time.
    ///
    /// A topic that is deleted and made again under the same name counts from the start: where the broker shows no
    /// incarnation of it, new messages then get the ids of old ones, and are skipped as duplicates.
    Coordinates,
    /// Found by a function; none where there is none.
    With(Find<D>),
}

/// What becomes of a message without an id.
#[derive(Default)]
#[non_exhaustive]
pub enum MissingId<D> {
    /// It is rejected.
    #[default]
    Reject,
    /// An id is made by a function, which must make the same one of each delivery of the message; rejected where it makes
    /// none. Two messages that get the same id are one: of a payload it may only be made if no two messages have the same.
    Derive(Find<D>),
}

impl<D> IdSource<D> {
    /// In a header.
    pub fn header(name: impl Into<String>) -> Self {
        Self::Header(name.into())
    }

    /// By a function.
    pub fn with(find: impl Fn(&D) -> Option<MessageId> + Send + Sync + 'static) -> Self {
        Self::With(Arc::new(find))
    }
}

impl<D> MissingId<D> {
    /// By a function.
    pub fn derive(make: impl Fn(&D) -> Option<MessageId> + Send + Sync + 'static) -> Self {
        Self::Derive(Arc::new(make))
    }
}

impl<D> fmt::Debug for IdSource<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => f.debug_tuple("Header").field(name).finish(),
            Self::Property => f.write_str("Property"),
            Self::Coordinates => f.write_str("Coordinates"),
            Self::With(_) => f.write_str("With"),
        }
    }
}

impl<D> fmt::Debug for MissingId<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reject => "Reject",
            Self::Derive(_) => "Derive",
        })
    }
}

/// The id of a delivery.
///
/// # Errors
/// When it has none, or one that is none.
pub(super) fn id_of<D: Delivery>(
    delivery: &D,
    source: &IdSource<D>,
    missing: &MissingId<D>,
) -> Result<MessageId, Rejection> {
    let text = match source {
        IdSource::Header(name) => delivery.header(name),
        IdSource::Property => delivery.id_property(),
        IdSource::Coordinates => delivery.coordinates().map(Into::into),
        IdSource::With(find) => return find(delivery).map_or_else(|| derived(delivery, missing), Ok),
    };
    match text.filter(|text| !text.is_empty()) {
        None => derived(delivery, missing),
        Some(text) => read(&text).map_err(|error| rejection(delivery, "invalid_id", error.to_string())),
    }
}

fn read(text: &str) -> Result<MessageId, crate::claim::MessageIdError> {
    match uuid::Uuid::try_parse(text) {
        Ok(id) => MessageId::from_uuid(id),
        Err(_) => MessageId::from_name(text),
    }
}

fn derived<D: Delivery>(delivery: &D, missing: &MissingId<D>) -> Result<MessageId, Rejection> {
    let made = match missing {
        MissingId::Reject => None,
        MissingId::Derive(make) => make(delivery),
    };
    made.ok_or_else(|| rejection(delivery, "no_id", "the message has no id".to_owned()))
}

pub(super) fn rejection<D: Delivery>(delivery: &D, reason: &'static str, detail: String) -> Rejection {
    Rejection {
        reason,
        detail,
        attempt: delivery.attempt().unwrap_or(1),
    }
}
