//! What became of a unit of work, and what a consumer does with its message then.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::error::DatabaseError;

use super::{Claim, ClaimError, ClaimErrorKind};

/// Any error of a handler.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// What became of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it says whether the message may be acked"]
#[non_exhaustive]
pub enum Outcome<T> {
    /// The work was done and its commit is certain.
    Done(T),
    /// The message had been processed before; the work was left out.
    Duplicate {
        /// When it was claimed first, by the server's clock.
        first_processed_at: DateTime<Utc>,
    },
    /// It stands earlier in the batch, and was done there.
    Repeated,
    /// Another transaction holds it; nothing was done.
    InFlight,
    /// The connection was lost while COMMIT was outstanding, and whether it took effect could not be learned in time. The
    /// message must neither be acked nor run again here: the redelivery's claim decides.
    Unknown,
}

/// What to do with a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a delivery that nothing is done with stays with the broker"]
pub enum Verdict {
    /// Ack it.
    Ack,
    /// Let it be delivered again after a pause, never at once.
    Retry,
    /// It can never be processed as it is: dead-letter it, unless a policy of the consumer's own says otherwise.
    Reject,
    /// Do not ack, stop consuming, and alarm: no message fares better until somebody has acted.
    Pause,
}

/// How the end of a unit is counted.
pub(super) fn label_of<T>(result: &Result<Outcome<T>, ProcessError>) -> &'static str {
    match result {
        Ok(outcome) => outcome.label(),
        Err(error) => error.label(),
    }
}

impl Verdict {
    /// The verdict on a message, from what [`super::Inbox::process`] came to.
    pub fn of<T>(result: &Result<Outcome<T>, ProcessError>) -> Self {
        match result {
            Ok(outcome) => outcome.verdict(),
            Err(error) => error.verdict(),
        }
    }
}

impl<T> Outcome<T> {
    /// What to do with the delivery.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Done(_) | Self::Duplicate { .. } | Self::Repeated => Verdict::Ack,
            Self::InFlight | Self::Unknown => Verdict::Retry,
        }
    }

    /// The same outcome with another value.
    pub fn map<U>(self, value: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(done) => Outcome::Done(value(done)),
            Self::Duplicate { first_processed_at } => Outcome::Duplicate { first_processed_at },
            Self::Repeated => Outcome::Repeated,
            Self::InFlight => Outcome::InFlight,
            Self::Unknown => Outcome::Unknown,
        }
    }

    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Duplicate { .. } | Self::Repeated => "skipped",
            Self::InFlight => "in_flight",
            Self::Unknown => "unknown",
        }
    }
}

/// A unit of work that was not done: everything in it was rolled back, and its message must not be acked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The claim was not made.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The handler failed.
    #[error("the handler failed")]
    Handler(#[source] BoxError),
    /// The handler took longer than it was allowed.
    #[error("the handler took longer than {} ms", .limit.as_millis())]
    HandlerTimeout {
        /// What it was allowed.
        limit: Duration,
    },
    /// The handler said that all is well, but one of its statements had failed and aborted the transaction. The server
    /// would have answered COMMIT with ROLLBACK.
    #[error("the handler passed over an error of the database: its transaction is aborted and cannot be committed")]
    ErrorPassedOver(#[source] sqlx::Error),
    /// The handler ended the transaction that it was given, by a COMMIT or ROLLBACK of its own.
    #[error("the handler ended the transaction of its claim itself")]
    TransactionEnded,
    /// The server refused the commit: a deferred constraint, a serialization failure.
    #[error("the transaction could not be committed")]
    Commit(#[source] sqlx::Error),
    /// No connection, or it was lost before the commit.
    #[error("no connection to the database, or it was lost before the commit")]
    Connection(#[source] sqlx::Error),
    /// It stands earlier in the batch, and was not done there.
    #[error("the message stands earlier in the batch, where it was not done")]
    RepeatsFailed,
    /// Other messages of the batch kept failing one after the other, so that this one could not be committed with them.
    #[error("other messages of the batch kept failing; this one was rolled back with them")]
    BatchFailed,
}

impl ProcessError {
    /// What to do with the delivery.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Claim(error) => error.kind().verdict(),
            _ => Verdict::Retry,
        }
    }

    /// Whether the same message may be processed a moment later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.verdict() == Verdict::Retry
    }

    /// Whether the database gave this unit up in favour of another: it may be tried again at once, as a whole.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        let kind = match self {
            Self::Claim(error) => Some(error.kind()),
            Self::Handler(error) => database_error_within(&**error),
            Self::Commit(error) => Some(ClaimErrorKind::of(error)),
            _ => None,
        };
        kind == Some(ClaimErrorKind::Conflict)
    }

    /// Whether the handler, or the commit, failed because the connection to a database was lost.
    #[cfg(feature = "middleware")]
    pub(super) fn is_connection_lost(&self) -> bool {
        let kind = match self {
            Self::Handler(error) => database_error_within(&**error),
            Self::ErrorPassedOver(error) | Self::Commit(error) => Some(ClaimErrorKind::of(error)),
            _ => None,
        };
        kind == Some(ClaimErrorKind::Connection)
    }

    /// Whether the connection is idle, so that it can be asked to roll back. A handler that was cut short may have left a
    /// statement running.
    pub(super) fn leaves_no_statement(&self) -> bool {
        !matches!(self, Self::HandlerTimeout { .. })
    }

    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Claim(_) => "not_claimed",
            _ => "failed",
        }
    }
}

/// The kind of the outermost database error in a chain. Some error types, when boxed, hide the [`sqlx::Error`] that they were
/// made of and show only what is below it.
fn database_error_within(error: &(dyn std::error::Error + 'static)) -> Option<ClaimErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<sqlx::Error>() {
            return Some(ClaimErrorKind::of(error));
        }
        if let Some(error) = error.downcast_ref::<ClaimError>() {
            return Some(error.kind());
        }
        if let Some(error) = error.downcast_ref::<Box<dyn DatabaseError>>() {
            return Some(ClaimErrorKind::of_database(&**error));
        }
        next = error.source();
    }
    None
}

/// What became of a batch that one handler worked on.
#[derive(Debug)]
#[must_use = "it says which messages may be acked"]
pub struct BatchOutcome<T> {
    /// What became of each message, in their order. A message that could not be claimed says why; the others went on.
    pub messages: Vec<Result<Outcome<()>, ClaimError>>,
    /// What the handler returned; none when nothing was fresh, or when what became of the commit is unknown.
    pub value: Option<T>,
}

impl<T> BatchOutcome<T> {
    /// What to do with each delivery, in their order.
    pub fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        self.messages.iter().map(|message| match message {
            Ok(outcome) => outcome.verdict(),
            Err(error) => error.kind().verdict(),
        })
    }
}

impl Claim {
    /// What becomes of a message whose work is left out; none where it is to be done.
    pub(super) fn skipped<T>(self) -> Option<Outcome<T>> {
        match self {
            Self::Fresh => None,
            Self::Duplicate { first_processed_at } => Some(Outcome::Duplicate { first_processed_at }),
            Self::Repeated => Some(Outcome::Repeated),
            Self::InFlight => Some(Outcome::InFlight),
        }
    }
}
