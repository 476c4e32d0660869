//! The table of verdicts, as code: what an attempt came to, and what is done then.

use std::time::Duration;

use crate::claim::{ClaimErrorKind, Outcome, ProcessError, Verdict};

/// What one attempt at a delivery came to.
#[derive(Debug)]
pub(super) enum Attempt {
    Ended(Result<Outcome<()>, ProcessError>),
    /// The handler panicked; its transaction is rolled back.
    Panicked(String),
    /// It took longer than a delivery may; its transaction is rolled back, or its commit is unknown.
    TimedOut(Duration),
}

/// What is done with a delivery after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    Ack,
    /// Hold it for a while; another transaction has it.
    InFlight,
    /// Leave it with the broker.
    Leave,
    /// The inbox will never take it.
    Unclaimable,
    /// The work failed: again later, a bounded number of times.
    Failed,
    /// The work failed, maybe because the database is away: ask it.
    FailedOrAway,
    /// Again later.
    Retry,
    /// The database is away: hold it, and everything else.
    Away,
    /// Nothing can be claimed until somebody acts: hold it, and everything else.
    Paused,
}

/// The table. [`Verdict`] says what may be acked; this says what else a consumer can do about the rest.
pub(super) fn judge(attempt: &Attempt) -> Judgement {
    let result = match attempt {
        Attempt::Ended(result) => result,
        Attempt::Panicked(_) => return Judgement::Failed,
        Attempt::TimedOut(_) => return Judgement::FailedOrAway,
    };
    match Verdict::of(result) {
        Verdict::Ack => Judgement::Ack,
        Verdict::Reject => Judgement::Unclaimable,
        Verdict::Pause => Judgement::Paused,
        Verdict::Retry => match result {
            Ok(Outcome::InFlight) => Judgement::InFlight,
            Ok(_) => Judgement::Leave,
            Err(error) => judge_error(error),
        },
    }
}

fn judge_error(error: &ProcessError) -> Judgement {
    match error {
        ProcessError::Connection(_) => Judgement::Away,
        ProcessError::Claim(error) => match error.kind() {
            ClaimErrorKind::Connection | ClaimErrorKind::ReadOnly => Judgement::Away,
            _ => Judgement::Retry,
        },
        ProcessError::HandlerTimeout { .. } => Judgement::FailedOrAway,
        // A handler whose statement failed because the connection was lost is not to blame. One that lost a connection of its
        // own, to whatever, is.
        _ if error.is_connection_lost() => Judgement::FailedOrAway,
        _ => Judgement::Failed,
    }
}

impl Attempt {
    /// In a word, for rejections and series.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Ended(Ok(outcome)) => outcome.label(),
            Self::Ended(Err(ProcessError::Claim(error))) => match error.kind() {
                ClaimErrorKind::TooOld => "too_old",
                ClaimErrorKind::TooNew => "too_new",
                ClaimErrorKind::InvalidId => "invalid_id",
                ClaimErrorKind::InvalidArgument => "invalid_argument",
                ClaimErrorKind::MissingPartition => "missing_partition",
                _ => "not_claimed",
            },
            Self::Ended(Err(ProcessError::HandlerTimeout { .. })) | Self::TimedOut(_) => "timed_out",
            Self::Ended(Err(_)) => "failed",
            Self::Panicked(_) => "panicked",
        }
    }

    /// In a sentence.
    pub(super) fn detail(&self) -> String {
        match self {
            Self::Ended(Ok(outcome)) => outcome.label().to_owned(),
            Self::Ended(Err(error)) => with_sources(error),
            Self::Panicked(what) => format!("the handler panicked: {what}"),
            Self::TimedOut(limit) => format!("the delivery took longer than {} ms", limit.as_millis()),
        }
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::ClaimError;

    fn claim(kind: ClaimErrorKind) -> Attempt {
        Attempt::Ended(Err(ClaimError::noticed(kind, "it").into()))
    }

    fn lost() -> sqlx::Error {
        sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into())
    }

    #[test]
    fn each_row_of_the_table_holds() {
        let first_processed_at = chrono::DateTime::UNIX_EPOCH;
        for (attempt, judgement) in [
            (Attempt::Ended(Ok(Outcome::Done(()))), Judgement::Ack),
            (
                Attempt::Ended(Ok(Outcome::Duplicate { first_processed_at })),
                Judgement::Ack,
            ),
            (Attempt::Ended(Ok(Outcome::Repeated)), Judgement::Ack),
            (Attempt::Ended(Ok(Outcome::InFlight)), Judgement::InFlight),
            (Attempt::Ended(Ok(Outcome::Unknown)), Judgement::Leave),
            (claim(ClaimErrorKind::TooOld), Judgement::Unclaimable),
            (claim(ClaimErrorKind::TooNew), Judgement::Unclaimable),
            (claim(ClaimErrorKind::InvalidId), Judgement::Unclaimable),
            (claim(ClaimErrorKind::MissingPartition), Judgement::Paused),
            (claim(ClaimErrorKind::Privilege), Judgement::Paused),
            (claim(ClaimErrorKind::NotInstalled), Judgement::Paused),
            (claim(ClaimErrorKind::Connection), Judgement::Away),
            (claim(ClaimErrorKind::ReadOnly), Judgement::Away),
            (claim(ClaimErrorKind::Other), Judgement::Retry),
            (Attempt::Ended(Err(ProcessError::Connection(lost()))), Judgement::Away),
            (
                Attempt::Ended(Err(ProcessError::Handler("no".into()))),
                Judgement::Failed,
            ),
            (
                Attempt::Ended(Err(ProcessError::Handler(lost().into()))),
                Judgement::FailedOrAway,
            ),
            (Attempt::Ended(Err(ProcessError::TransactionEnded)), Judgement::Failed),
            (Attempt::Panicked("no".to_owned()), Judgement::Failed),
            (Attempt::TimedOut(Duration::ZERO), Judgement::FailedOrAway),
        ] {
            assert_eq!(judge(&attempt), judgement, "{attempt:?}");
        }
    }
}
