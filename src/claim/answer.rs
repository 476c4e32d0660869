//! What the claim functions answer.

use chrono::{DateTime, Utc};
use sqlx::{Row, ValueRef, postgres::PgRow};

use super::{ClaimError, ClaimErrorKind, Message};

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the outcome says whether the work is to be done"]
pub enum Claim {
    /// This transaction owns the message now: do the work in it.
    Fresh,
    /// The message was processed before, by a transaction that committed: leave the work out, and ack.
    Duplicate {
        /// When it was claimed first, by the server's clock.
        first_processed_at: DateTime<Utc>,
    },
    /// This very transaction claimed it already, or it stands earlier in the batch: as that one; ack only after the commit.
    Repeated,
    /// Another transaction holds it and has not ended within the time that the claim would wait: never ack, try later.
    InFlight,
}

impl Claim {
    /// Whether the work is to be done.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        matches!(self, Self::Fresh)
    }

    pub(super) fn label(result: &Result<Self, ClaimError>) -> &'static str {
        match result {
            Ok(Self::Fresh) => "fresh",
            Ok(Self::Duplicate { .. }) => "duplicate",
            Ok(Self::Repeated) => "repeated",
            Ok(Self::InFlight) => "in_flight",
            Err(error) => match error.kind() {
                ClaimErrorKind::TooOld => "too_old",
                ClaimErrorKind::TooNew => "too_new",
                ClaimErrorKind::InvalidId => "invalid",
                _ => "error",
            },
        }
    }
}

/// One row of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) claim: Result<Claim, ClaimError>,
    /// The server's clock.
    pub(super) clock: DateTime<Utc>,
    pub(super) receipt: Receipt,
}

/// By what a claim is known again.
#[derive(Debug, Clone)]
pub(super) struct Receipt {
    /// When the row that stands for the message was made: by this claim, where it is fresh.
    pub(super) claimed_at: Option<DateTime<Utc>>,
    /// The transaction, once it has written.
    pub(super) transaction_id: Option<String>,
}

impl Answer {
    pub(super) fn read(row: &PgRow, inbox: &str, message: &Message) -> Result<Self, sqlx::Error> {
        let outcome: String = row.try_get("outcome")?;
        let processed_at = text(row, "processed_at")?.map(instant).transpose()?;
        let id = message.id();
        let error = |kind, what: String| Err(ClaimError::noticed(kind, what));
        let claim = match (outcome.as_str(), processed_at) {
            ("fresh", _) => Ok(Claim::Fresh),
            ("duplicate", Some(first_processed_at)) => Ok(Claim::Duplicate { first_processed_at }),
            ("repeated", _) => Ok(Claim::Repeated),
            ("in_flight", _) => Ok(Claim::InFlight),
            ("too_old", _) => error(
                ClaimErrorKind::TooOld,
                format!(
                    "message {id} is older than the retention of inbox {inbox}: whether it was processed cannot be told"
                ),
            ),
            ("too_new", _) => error(
                ClaimErrorKind::TooNew,
                format!("message {id} was created later than the days that inbox {inbox} keeps ahead"),
            ),
            ("invalid", _) => error(
                ClaimErrorKind::InvalidId,
                format!("message id {id} is not one that inbox {inbox} takes (message_id routing takes UUIDv7 only)"),
            ),
            // A newer version of the functions may know more. What is not understood is not acked.
            (other, _) => error(
                ClaimErrorKind::Other,
                format!(
                    "inbox {inbox} answered {other:?} for message {id}, which this version of the library does not know"
                ),
            ),
        };
        Ok(Self {
            claim,
            clock: instant(text(row, "clock")?.unwrap_or_default())?,
            receipt: Receipt {
                claimed_at: processed_at,
                transaction_id: text(row, "transaction_id")?.map(str::to_owned),
            },
        })
    }
}

/// A value as the server writes it: what is asked by a simple query comes as text, whatever its type is.
fn text<'r>(row: &'r PgRow, column: &str) -> Result<Option<&'r str>, sqlx::Error> {
    let value = row.try_get_raw(column)?;
    match value.is_null() {
        true => Ok(None),
        false => value.as_str().map(Some).map_err(sqlx::Error::Decode),
    }
}

/// The instant that lies so many seconds after 1970: a decimal number with six places at most.
fn instant(seconds: &str) -> Result<DateTime<Utc>, sqlx::Error> {
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let nanos = format!("{fraction:0<9}");
    // None is before 1970: the functions take no such time.
    let instant = match (whole.parse(), nanos.parse(), nanos.len()) {
        // "-0" is zero.
        (Ok(whole @ 0..), Ok(nanos), 9) if !seconds.starts_with('-') => DateTime::from_timestamp(whole, nanos),
        _ => None,
    };
    instant.ok_or_else(|| sqlx::Error::Decode(format!("{seconds:?} seconds after 1970 is no instant").into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_to_the_microsecond() {
        let read = |seconds: &str| instant(seconds).map(|instant| instant.timestamp_micros()).ok();
        for (seconds, micros) in [
            ("1796236800.123456", Some(1_796_236_800_123_456)),
            ("1796236800.000001", Some(1_796_236_800_000_001)),
            ("0", Some(0)),
            ("253402300799.999999", Some(253_402_300_799_999_999)),
            ("1796236800.5", Some(1_796_236_800_500_000)),
            ("-0.5", None),
            ("-1", None),
            ("", None),
            ("Infinity", None),
            ("1.0000000001", None),
            ("1.-5", None),
            ("1.5e3", None),
        ] {
            assert_eq!(read(seconds), micros, "{seconds}");
        }
    }
}
