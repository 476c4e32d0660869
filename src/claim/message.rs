//! What a claim is told about a message, checked before any SQL.

use std::borrow::Cow;

use chrono::{DateTime, Utc};

use super::MessageId;

/// Why a message was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Nothing where a name must be.
    #[error("the {what} of message {id} is empty")]
    Empty {
        /// Which part.
        what: &'static str,
        /// The message.
        id: MessageId,
    },
    /// Longer than the column, or than a name of a consumer may be.
    #[error("the {what} of message {id} has {length} characters; at most {limit} fit")]
    TooLong {
        /// Which part.
        what: &'static str,
        /// The message.
        id: MessageId,
        /// Its length in characters.
        length: usize,
        /// The longest allowed, in characters.
        limit: usize,
    },
    /// A NUL byte, which no PostgreSQL text can hold.
    #[error("the {what} of message {id} holds a NUL byte, which PostgreSQL cannot store")]
    Nul {
        /// Which part.
        what: &'static str,
        /// The message.
        id: MessageId,
    },
}

/// A message, as far as a claim needs to know it.
///
/// # Examples
/// ```
/// use inboxd::claim::{Message, MessageId};
///
/// let id = MessageId::from_name("order-1")?;
/// let message = Message::new(id, "orders")?.created_at("2026-12-01T08:15:00Z".parse()?);
/// assert_eq!(message.topic(), "orders");
/// assert!(Message::new(id, "x".repeat(256)).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    id: MessageId,
    topic: Cow<'static, str>,
    created_at: Option<DateTime<Utc>>,
    consumer: Option<Cow<'static, str>>,
}

impl Message {
    /// The longest topic, in characters: the width of the inbox's column.
    pub const MAX_TOPIC_CHARACTERS: usize = 255;

    /// The longest name of a consumer, in characters. It is part of an index's key, which takes 2,700 bytes at most.
    pub const MAX_CONSUMER_CHARACTERS: usize = 255;

    /// A message of which nothing more is known.
    ///
    /// # Errors
    /// When the topic is empty, has more than 255 characters or holds a NUL byte.
    pub fn new(id: MessageId, topic: impl Into<Cow<'static, str>>) -> Result<Self, MessageError> {
        let topic = topic.into();
        check(id, "topic", &topic, Self::MAX_TOPIC_CHARACTERS)?;
        Ok(Self {
            id,
            topic,
            created_at: None,
            consumer: None,
        })
    }

    /// Says when the event was created, by its producer's clock. It spares the claim most of its look-back in an inbox with
    /// `processed_at` routing, where a UUIDv7 says it as well.
    ///
    /// It must be the creation of the event itself and the same in every delivery. The time of a publication, or of a
    /// re-publication by an outbox, is later than a first claim may have been, and would hide it.
    #[must_use]
    pub fn created_at(mut self, created_at: DateTime<Utc>) -> Self {
        self.created_at = Some(created_at);
        self
    }

    /// Names the consumer that claims, for an inbox with `consumers = "many"`.
    ///
    /// # Errors
    /// When the name is empty, has more than 255 characters or holds a NUL byte.
    pub fn consumer(mut self, consumer: impl Into<Cow<'static, str>>) -> Result<Self, MessageError> {
        let consumer = consumer.into();
        check(self.id, "consumer", &consumer, Self::MAX_CONSUMER_CHARACTERS)?;
        self.consumer = Some(consumer);
        Ok(self)
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> MessageId {
        self.id
    }

    /// Its topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The consumer that claims it, where one is named.
    #[must_use]
    pub fn consumer_name(&self) -> Option<&str> {
        self.consumer.as_deref()
    }

    /// When it was created at the latest: what was said, or what its id says, whichever is earlier.
    #[must_use]
    pub fn creation_time(&self) -> Option<DateTime<Utc>> {
        match (self.created_at, self.id.created_at()) {
            (Some(said), Some(inside)) => Some(said.min(inside)),
            (said, inside) => said.or(inside),
        }
    }

    /// The creation time as the claim is told it.
    pub(super) fn said_created_at(&self) -> Option<DateTime<Utc>> {
        self.created_at
    }
}

fn check(id: MessageId, what: &'static str, text: &str, limit: usize) -> Result<(), MessageError> {
    if text.is_empty() {
        return Err(MessageError::Empty { what, id });
    }
    if text.contains('\0') {
        return Err(MessageError::Nul { what, id });
    }
    let length = text.chars().count();
    if length > limit {
        return Err(MessageError::TooLong {
            what,
            id,
            length,
            limit,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> MessageId {
        MessageId::from_name("order-1").unwrap()
    }

    #[test]
    fn c16_what_could_not_be_stored_is_refused_before_any_sql() {
        let refused = |topic: &str| Message::new(id(), topic.to_owned()).unwrap_err().to_string();
        assert!(refused("").contains("topic"), "{}", refused(""));
        assert!(refused("a\0b").contains("NUL"));
        assert!(refused(&"ß".repeat(256)).contains("256 characters; at most 255"));
        assert!(Message::new(id(), "ß".repeat(255)).is_ok());
        let message = Message::new(id(), "orders").unwrap();
        assert!(message.clone().consumer("").is_err());
        assert!(message.clone().consumer("a\0").is_err());
        assert!(message.consumer("c".repeat(256)).is_err());
    }

    #[test]
    fn the_earlier_of_two_creation_times_counts() {
        let early: DateTime<Utc> = "2026-12-01T00:00:00Z".parse().unwrap();
        let late: DateTime<Utc> = "2026-12-02T00:00:00Z".parse().unwrap();
        let id = MessageId::time_ordered(late, "order-1").unwrap();
        let message = Message::new(id, "orders").unwrap();
        assert_eq!(message.creation_time(), Some(late));
        assert_eq!(message.created_at(early).creation_time(), Some(early));
    }
}
