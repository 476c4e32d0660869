//! What is counted and timed, through the `metrics` facade: without a recorder it costs nothing.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use super::{Claim, Message, answer::Answer, inbox::Inbox};

const CLAIMS: &str = "inboxd_claims_total";
const CLAIM_SECONDS: &str = "inboxd_claim_duration_seconds";
const BEYOND_RETENTION: &str = "inboxd_claims_beyond_retention_total";
const DUPLICATE_AGE: &str = "inboxd_duplicate_age_seconds";
const HANDLER_SECONDS: &str = "inboxd_handler_duration_seconds";
const UNITS: &str = "inboxd_units_total";
const RETRIES: &str = "inboxd_unit_retries_total";

/// Describes every series to the recorder that is installed; call it once after installing one.
///
/// | series | kind | labels | what it says |
/// | --- | --- | --- | --- |
/// | `inboxd_claims_total` | counter | `inbox`, `outcome` | claims made; an outcome `error` was not made |
/// | `inboxd_claim_duration_seconds` | histogram | `inbox` | one call, of one claim or of a batch, waiting included |
/// | `inboxd_claims_beyond_retention_total` | counter | `inbox` | fresh claims of messages older than the retention: maybe processed before |
/// | `inboxd_duplicate_age_seconds` | histogram | `inbox` | time since the first claim: a retention must be well above its highest values |
/// | `inboxd_handler_duration_seconds` | histogram | `inbox` | the work of one unit, of those that ended |
/// | `inboxd_units_total` | counter | `inbox`, `outcome` | messages of units of work: `done`, `skipped`, `in_flight`, `not_claimed`, `failed`, `unknown`; and units `abandoned` |
/// | `inboxd_unit_retries_total` | counter | `inbox` | units tried again after a serialization failure or a deadlock |
pub fn describe_metrics() {
    describe_counter!(CLAIMS, Unit::Count, "Claims made, by outcome.");
    describe_histogram!(
        CLAIM_SECONDS,
        Unit::Seconds,
        "Duration of a call that claims, waiting included."
    );
    describe_counter!(
        BEYOND_RETENTION,
        Unit::Count,
        "Fresh claims of messages that were created before the retention began: they may have been processed before."
    );
    describe_histogram!(
        DUPLICATE_AGE,
        Unit::Seconds,
        "Time between the first claim of a message and the claim that found it a duplicate."
    );
    describe_histogram!(
        HANDLER_SECONDS,
        Unit::Seconds,
        "Duration of the handlers of a unit of work."
    );
    describe_counter!(UNITS, Unit::Count, "Units of work, by outcome.");
    describe_counter!(
        RETRIES,
        Unit::Count,
        "Units of work tried again after a serialization failure or a deadlock."
    );
}

impl Inbox {
    pub(super) fn count_call(&self, took: Duration) {
        histogram!(CLAIM_SECONDS, "inbox" => self.label()).record(took.as_secs_f64());
    }

    pub(super) fn count_claim(&self, message: &Message, answer: &Answer) {
        self.count_outcome(Claim::label(&answer.claim));
        match answer.claim {
            Ok(Claim::Duplicate { first_processed_at }) => {
                let age = (answer.clock - first_processed_at).max(TimeDelta::zero());
                histogram!(DUPLICATE_AGE, "inbox" => self.label()).record(age.as_seconds_f64());
            }
            Ok(Claim::Fresh) => self.flag_beyond_retention(message, answer.clock),
            _ => {}
        }
    }

    /// A message created before the retention began may have been processed and forgotten since.
    fn flag_beyond_retention(&self, message: &Message, clock: DateTime<Utc>) {
        let (Some(created_at), Some(retention)) = (message.creation_time(), self.retention()) else {
            return;
        };
        let age = clock - created_at;
        if age <= retention {
            return;
        }
        counter!(BEYOND_RETENTION, "inbox" => self.label()).increment(1);
        tracing::warn!(
            inbox = %self.table(),
            message_id = %message.id(),
            age_seconds = age.num_seconds(),
            retention_seconds = retention.num_seconds(),
            "a message older than the retention was claimed as fresh; it may have been processed before"
        );
    }

    pub(super) fn count_outcome(&self, outcome: &'static str) {
        counter!(CLAIMS, "inbox" => self.label(), "outcome" => outcome).increment(1);
    }

    pub(super) fn count_handler(&self, took: Duration) {
        histogram!(HANDLER_SECONDS, "inbox" => self.label()).record(took.as_secs_f64());
    }

    pub(super) fn count_unit(&self, outcome: &'static str) {
        counter!(UNITS, "inbox" => self.label(), "outcome" => outcome).increment(1);
    }

    pub(super) fn count_retry(&self) {
        counter!(RETRIES, "inbox" => self.label()).increment(1);
    }
}
