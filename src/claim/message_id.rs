//! The id of a message, and how one is made from what a broker delivers.

use std::{fmt, str::FromStr};

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// Why an id was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageIdError {
    /// The nil or the max UUID: what a producer sends that has no id.
    #[error("{0} is not a message id: unrelated messages would become one")]
    NotAnId(Uuid),
    /// An empty name, from which unrelated messages would get the same id.
    #[error("an empty name is not a message id: unrelated messages would become one")]
    Empty,
    /// Text that is no UUID.
    #[error("{text:?} is not a UUID; MessageId::from_name makes an id of any other text")]
    NotAUuid {
        /// What was given.
        text: String,
    },
    /// A creation time that a UUIDv7 cannot hold: before 1970, or after the year 10889.
    #[error("{0} is outside what a time-ordered id can hold (1970-01-01 to the year 10889)")]
    TimeOutOfRange(DateTime<Utc>),
}

/// The UUID under which a message is claimed; never nil.
///
/// Brokers differ in what they call an id. A UUID is taken as it is. Any other text or bytes become a UUIDv5 under
/// [`MessageId::NAMESPACE`], in every language alike, so that consumers of one inbox agree.
///
/// # Examples
/// ```
/// use inboxd::claim::MessageId;
///
/// let id: MessageId = "0199a0c5-53c4-7d2c-9f3e-6f2f6c1b8a10".parse()?;
/// assert_eq!(id.uuid().get_version_num(), 7);
///
/// // Not a UUID: an id is made of the name, and always the same one.
/// let id = MessageId::from_name("order-1")?;
/// assert_eq!(id, MessageId::from_name("order-1")?);
///
/// assert!(MessageId::from_name("").is_err());
/// assert!(MessageId::from_uuid(uuid::Uuid::nil()).is_err());
/// # Ok::<(), inboxd::claim::MessageIdError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Uuid);

impl MessageId {
    /// The namespace of the ids that are made of names: the UUIDv5 of `https://github.com/inboxd/inboxd/message-id` in the
    /// URL namespace of RFC 9562.
    pub const NAMESPACE: Uuid = Uuid::from_u128(0xde7b9259_5b8a_5ce0_bfae_af4a6534c58d);

    /// Takes a UUID as it is.
    ///
    /// # Errors
    /// When it is the nil or the max UUID.
    pub fn from_uuid(id: Uuid) -> Result<Self, MessageIdError> {
        if id.is_nil() || id.is_max() {
            return Err(MessageIdError::NotAnId(id));
        }
        Ok(Self(id))
    }

    /// Makes an id of any text or bytes: the UUIDv5 of the bytes (a text's are UTF-8) under [`MessageId::NAMESPACE`].
    ///
    /// # Errors
    /// When the name is empty.
    ///
    /// # Examples
    /// ```
    /// use inboxd::claim::MessageId;
    ///
    /// assert_eq!(MessageId::from_name("Größe")?, MessageId::from_name("Größe".as_bytes())?);
    /// # Ok::<(), inboxd::claim::MessageIdError>(())
    /// ```
    pub fn from_name(name: impl AsRef<[u8]>) -> Result<Self, MessageIdError> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(MessageIdError::Empty);
        }
        Ok(Self(Uuid::new_v5(&Self::NAMESPACE, name)))
    }

    /// Makes an id for an inbox with `message_id` routing, which takes UUIDv7 only: time-ordered, and the same for the same
    /// creation time (in milliseconds) and key.
    ///
    /// The first 48 bits are the milliseconds since 1970, the 74 bits behind version and variant those at the same place of
    /// [`MessageId::from_name`] of the key. The creation time must be the event's own and must reach every delivery
    /// unchanged: a time of publication makes another id of each redelivery.
    ///
    /// # Errors
    /// When the key is empty, or the time is before 1970 or after the year 10889.
    ///
    /// # Examples
    /// ```
    /// use inboxd::claim::MessageId;
    ///
    /// let created_at = "2026-12-01T00:00:00Z".parse().unwrap();
    /// let id = MessageId::time_ordered(created_at, "order-1")?;
    /// assert_eq!(id.created_at(), Some(created_at));
    /// # Ok::<(), inboxd::claim::MessageIdError>(())
    /// ```
    pub fn time_ordered(created_at: DateTime<Utc>, key: impl AsRef<[u8]>) -> Result<Self, MessageIdError> {
        const LATEST: u64 = (1 << 48) - 1;
        let millis = u64::try_from(created_at.timestamp_millis())
            .ok()
            .filter(|millis| *millis <= LATEST)
            .ok_or(MessageIdError::TimeOutOfRange(created_at))?;
        let mut random = [0; 10];
        random.copy_from_slice(&Self::from_name(key)?.0.as_bytes()[6..]);
        Ok(Self(
            uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid(),
        ))
    }

    /// The UUID itself.
    #[must_use]
    pub fn uuid(self) -> Uuid {
        self.0
    }

    /// When the message was created, if the id is a UUIDv7, which says so.
    #[must_use]
    pub fn created_at(self) -> Option<DateTime<Utc>> {
        if self.0.get_version_num() != 7 || self.0.get_variant() != uuid::Variant::RFC4122 {
            return None;
        }
        let (seconds, nanos) = self.0.get_timestamp()?.to_unix();
        DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<Uuid> for MessageId {
    type Error = MessageIdError;

    fn try_from(id: Uuid) -> Result<Self, MessageIdError> {
        Self::from_uuid(id)
    }
}

impl FromStr for MessageId {
    type Err = MessageIdError;

    /// Reads a UUID in any of its usual forms. Other text is refused rather than hashed: a mistyped id must not become another
    /// message; see [`MessageId::from_name`].
    fn from_str(text: &str) -> Result<Self, MessageIdError> {
        let id = Uuid::try_parse(text).map_err(|_| MessageIdError::NotAUuid { text: text.to_owned() })?;
        Self::from_uuid(id)
    }
}

impl From<MessageId> for Uuid {
    fn from(id: MessageId) -> Self {
        id.0
    }
}
