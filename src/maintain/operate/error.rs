//! Why an act was not done.

use std::fmt;

use crate::postgres::{DbError, ErrorKind, lock::LockHolder};

/// What kind of refusal it is. The names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperateErrorKind {
    /// The inbox is not on record.
    UnknownInbox,
    /// The inbox belongs to another deployment, or its database is a copy.
    NotOurs,
    /// The day has no partition, and is none that the inbox would have.
    NoSuchDay,
    /// The day's partition is part of the inbox, or not yet quite out of it.
    NotDetached,
    /// The day's partition was dropped.
    Dropped,
    /// What is there cannot be attached as it is.
    NotRestorable,
    /// A run, or another restore, is going.
    Busy,
    /// Somebody has locked what it needs.
    Locked,
    /// Nothing waits for a confirmation.
    NothingDue,
    /// Something else than what was asked about is due by now.
    Changed,
    /// The database's clock is not trusted.
    UntrustedClock,
    /// An open transaction claims the message.
    InFlight,
    /// A publication would carry a forget to subscribers that cannot apply it.
    Published,
    /// The id is none that the inbox can hold.
    InvalidId,
    /// A consumer is named where the inbox has one only, or none where it has many.
    InvalidConsumer,
    /// A text is missing or too long.
    Invalid,
    /// The server is a standby.
    Standby,
    /// The database failed, or refused.
    Database(ErrorKind),
}

impl OperateErrorKind {
    /// The kind as one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownInbox => "unknown_inbox",
            Self::NotOurs => "not_ours",
            Self::NoSuchDay => "no_such_day",
            Self::NotDetached => "not_detached",
            Self::Dropped => "dropped",
            Self::NotRestorable => "not_restorable",
            Self::Busy => "busy",
            Self::Locked => "locked",
            Self::NothingDue => "nothing_due",
            Self::Changed => "changed",
            Self::UntrustedClock => "untrusted_clock",
            Self::InFlight => "in_flight",
            Self::Published => "published",
            Self::InvalidId => "invalid_id",
            Self::InvalidConsumer => "invalid_consumer",
            Self::Invalid => "invalid",
            Self::Standby => "standby",
            Self::Database(_) => "database",
        }
    }
}

impl serde::Serialize for OperateErrorKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Why an act was not done; nothing has changed then. Its text is what is so, then what to do.
#[derive(Debug)]
pub struct OperateError(Box<Refusal>);

#[derive(Debug)]
struct Refusal {
    kind: OperateErrorKind,
    message: String,
    remedy: String,
    holder: Option<LockHolder>,
    source: Option<DbError>,
}

impl OperateError {
    pub(super) fn new(kind: OperateErrorKind, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self(Box::new(Refusal {
            kind,
            message: message.into(),
            remedy: remedy.into(),
            holder: None,
            source: None,
        }))
    }

    pub(super) fn busy(holder: Option<LockHolder>) -> Self {
        let who = holder
            .as_ref()
            .map_or_else(|| "another session".to_owned(), ToString::to_string);
        let mut error = Self::new(
            OperateErrorKind::Busy,
            format!("another run is going: {who}"),
            "try again once it has ended",
        );
        error.0.holder = holder;
        error
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> OperateErrorKind {
        self.0.kind
    }

    /// What is so. Holds no words of the database unless the kind is `Database`.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The error without what the database or the driver said: for those who may not see that.
    #[must_use]
    pub fn in_our_words(&self) -> String {
        match &self.0.source {
            Some(source) => source.in_our_words(),
            None => self.to_string(),
        }
    }

    /// What to do.
    #[must_use]
    pub fn remedy(&self) -> &str {
        &self.0.remedy
    }

    /// Who has the run lock, when the kind is `Busy`; none when it was given back meanwhile.
    #[must_use]
    pub fn holder(&self) -> Option<&LockHolder> {
        self.0.holder.as_ref()
    }
}

impl From<DbError> for OperateError {
    fn from(source: DbError) -> Self {
        let remedy = match source.kind() {
            ErrorKind::Missing => "run `inboxd init`",
            ErrorKind::Privilege => "grant what is missing",
            kind if kind.is_retryable() => "try again",
            kind if kind.is_unreachable() => "try again once the database is there",
            _ => "",
        };
        let mut error = Self::new(OperateErrorKind::Database(source.kind()), source.to_string(), remedy);
        error.0.source = Some(source);
        error
    }
}

impl fmt::Display for OperateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, remedy) = (self.message(), self.remedy());
        f.write_str(message)?;
        // The database's own error may end in the same remedy.
        if remedy.is_empty() || message.ends_with(remedy) {
            return Ok(());
        }
        write!(f, "; {remedy}")
    }
}

impl std::error::Error for OperateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}
