//! What is counted, through the `metrics` facade.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use super::State;
use crate::claim::Inbox;

const DELIVERIES: &str = "inboxd_consumer_deliveries_total";
const UNSETTLED: &str = "inboxd_consumer_settle_failures_total";
const IN_HAND: &str = "inboxd_consumer_deliveries_in_hand";
const BATCHES: &str = "inboxd_consumer_batches_total";
const READY: &str = "inboxd_consumer_ready";

/// Describes every series of the middleware to the recorder that is installed; call it once after installing one, beside
/// [`crate::claim::describe_metrics`].
///
/// | series | kind | labels | what it says |
/// | --- | --- | --- | --- |
/// | `inboxd_consumer_deliveries_total` | counter | `inbox`, `action` | deliveries that were settled: `ack`, `retry`, `reject`, `leave`, `abandon` |
/// | `inboxd_consumer_settle_failures_total` | counter | `inbox`, `action` | settlements that the broker did not confirm in time |
/// | `inboxd_consumer_batches_total` | counter | `inbox`, `outcome` | batches: `ended`, or `failed`, each message of which was then tried alone |
/// | `inboxd_consumer_deliveries_in_hand` | gauge | `inbox` | deliveries taken and not settled |
/// | `inboxd_consumer_ready` | gauge | `inbox` | 1 while deliveries are taken |
pub fn describe_metrics() {
    describe_counter!(DELIVERIES, Unit::Count, "Deliveries, by what was done with them.");
    describe_counter!(
        UNSETTLED,
        Unit::Count,
        "Settlements that the broker did not confirm in time; the message is delivered again."
    );
    describe_counter!(
        BATCHES,
        Unit::Count,
        "Batches, by whether they ended or failed; each message of one that failed is tried alone."
    );
    describe_gauge!(IN_HAND, Unit::Count, "Deliveries taken and not settled.");
    describe_gauge!(READY, Unit::Count, "1 while deliveries are taken, 0 otherwise.");
}

impl Inbox {
    pub(super) fn count_delivery(&self, action: &'static str) {
        counter!(DELIVERIES, "inbox" => self.label(), "action" => action).increment(1);
    }

    pub(super) fn count_unsettled(&self, action: &'static str) {
        counter!(UNSETTLED, "inbox" => self.label(), "action" => action).increment(1);
    }

    pub(super) fn count_batch(&self, outcome: &'static str) {
        counter!(BATCHES, "inbox" => self.label(), "outcome" => outcome).increment(1);
    }

    pub(super) fn show_consumer(&self, in_hand: usize, state: State) {
        gauge!(IN_HAND, "inbox" => self.label()).set(u32::try_from(in_hand).unwrap_or(u32::MAX));
        gauge!(READY, "inbox" => self.label()).set(u8::from(state.is_ready()));
    }
}
