//! Errors of a claim by kind. SQLSTATE decides, in one place.

use std::fmt;

use sqlx::error::DatabaseError;

use super::Verdict;

/// What kept a claim from being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClaimErrorKind {
    /// `message_id` routing: created before the days that are kept. Whether it was processed cannot be told.
    TooOld,
    /// `message_id` routing: created after the days that are kept ahead. Its producer's clock is wrong.
    TooNew,
    /// The id is not one that the inbox takes; an inbox with `message_id` routing takes UUIDv7 only.
    InvalidId,
    /// An argument that the inbox refuses: a consumer where it has one only, none where it has many.
    InvalidArgument,
    /// `processed_at` routing: the transaction is not READ COMMITTED, so its snapshot could be older than the claim.
    Isolation,
    /// No partition holds the day. Nothing can be claimed until maintenance has made it.
    MissingPartition,
    /// The day's partition has lost its key, and a claim on it would double.
    KeyLost,
    /// A serialization failure or a deadlock: the whole unit of work may be tried again.
    Conflict,
    /// The server has no room for another lock.
    TooManyLocks,
    /// More messages than the inbox takes in one batch.
    BatchTooLarge,
    /// The role may not claim.
    Privilege,
    /// The claim functions, or something below them, are not there.
    NotInstalled,
    /// The server, or this session, lets nobody write.
    ReadOnly,
    /// The transaction had been aborted before, by an error that the caller has passed over.
    Aborted,
    /// A statement or lock timeout of the session ran out, or somebody cancelled the statement.
    Timeout,
    /// The server cannot be reached, or cut the connection.
    Connection,
    /// Anything else.
    Other,
}

impl ClaimErrorKind {
    fn of_sqlstate(code: &str) -> Self {
        match code {
            "IX001" => Self::TooOld,
            "IX002" => Self::TooNew,
            "IX003" => Self::InvalidId,
            "IX004" => Self::Isolation,
            "23514" => Self::MissingPartition,
            "42P10" => Self::KeyLost,
            "40001" | "40P01" => Self::Conflict,
            "53200" => Self::TooManyLocks,
            "54000" => Self::BatchTooLarge,
            "22023" | "2202E" | "22001" | "23502" => Self::InvalidArgument,
            "42501" => Self::Privilege,
            "42883" | "42P01" | "3F000" => Self::NotInstalled,
            "25006" => Self::ReadOnly,
            "25P02" => Self::Aborted,
            "55P03" | "57014" => Self::Timeout,
            // The last two: limits of the session that end it.
            "53300" | "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04" => Self::Connection,
            _ if code.starts_with("08") => Self::Connection,
            _ => Self::Other,
        }
    }

    pub(super) fn of_database(error: &dyn DatabaseError) -> Self {
        error.code().map_or(Self::Other, |code| Self::of_sqlstate(&code))
    }

    pub(crate) fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(database) => Self::of_database(&**database),
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Connection,
            _ => Self::Other,
        }
    }

    /// What a consumer does with the message.
    pub fn verdict(self) -> Verdict {
        match self {
            Self::TooOld | Self::TooNew | Self::InvalidId | Self::InvalidArgument => Verdict::Reject,
            // No message fares better until somebody has acted.
            Self::Isolation
            | Self::MissingPartition
            | Self::KeyLost
            | Self::BatchTooLarge
            | Self::Privilege
            | Self::NotInstalled => Verdict::Pause,
            Self::Conflict
            | Self::TooManyLocks
            | Self::ReadOnly
            | Self::Aborted
            | Self::Timeout
            | Self::Connection
            | Self::Other => Verdict::Retry,
        }
    }
}

/// A claim that could not be made. The message was not claimed, and must not be acked.
#[derive(Debug)]
pub struct ClaimError {
    kind: ClaimErrorKind,
    what: String,
    source: Option<sqlx::Error>,
}

impl ClaimError {
    pub(super) fn of(what: impl Into<String>, source: sqlx::Error) -> Self {
        Self {
            kind: ClaimErrorKind::of(&source),
            what: what.into(),
            source: Some(source),
        }
    }

    pub(super) fn noticed(kind: ClaimErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            source: None,
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ClaimErrorKind {
        self.kind
    }

    /// Whether the whole unit of work may succeed a moment later. The claim alone must never be tried again: after a lost
    /// reply it would meet its own row and call it a duplicate.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.kind.verdict() == Verdict::Retry
    }

    /// Whether the day has no partition: stop consuming, and alarm.
    #[must_use]
    pub fn is_missing_partition(&self) -> bool {
        self.kind == ClaimErrorKind::MissingPartition
    }

    /// Whether the message is older than what the inbox remembers.
    #[must_use]
    pub fn is_too_old(&self) -> bool {
        self.kind == ClaimErrorKind::TooOld
    }

    /// Whether the message claims to come from beyond the days that the inbox keeps ahead.
    #[must_use]
    pub fn is_too_new(&self) -> bool {
        self.kind == ClaimErrorKind::TooNew
    }

    /// Whether the inbox does not take such an id.
    #[must_use]
    pub fn is_invalid_id(&self) -> bool {
        self.kind == ClaimErrorKind::InvalidId
    }
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let remedy = match self.kind {
            ClaimErrorKind::MissingPartition => "; is inboxd running? `inboxd status` shows the days",
            ClaimErrorKind::Isolation => "; begin the transaction with ISOLATION LEVEL READ COMMITTED",
            ClaimErrorKind::NotInstalled => "; run `inboxd init`",
            ClaimErrorKind::KeyLost => "; do not ack, `inboxd status` names the partition",
            ClaimErrorKind::Aborted => "; roll the transaction back",
            _ => "",
        };
        f.write_str(remedy)
    }
}

impl std::error::Error for ClaimError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sqlstate_of_the_claim_functions_has_its_kind() {
        for (code, kind) in [
            ("IX001", ClaimErrorKind::TooOld),
            ("IX002", ClaimErrorKind::TooNew),
            ("IX003", ClaimErrorKind::InvalidId),
            ("IX004", ClaimErrorKind::Isolation),
            ("23514", ClaimErrorKind::MissingPartition),
            ("42P10", ClaimErrorKind::KeyLost),
            ("08006", ClaimErrorKind::Connection),
            ("XX000", ClaimErrorKind::Other),
        ] {
            assert_eq!(ClaimErrorKind::of_sqlstate(code), kind, "{code}");
        }
    }

    #[test]
    fn no_error_of_a_claim_lets_its_message_be_acked() {
        for code in ["IX001", "23514", "40001", "55P03", "57P01", "42883", "XX000"] {
            assert_ne!(ClaimErrorKind::of_sqlstate(code).verdict(), Verdict::Ack, "{code}");
        }
    }
}
