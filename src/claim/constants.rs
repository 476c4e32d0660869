//! What an inbox's claim functions were made with: baked into their bodies and repeated in a comment that every consumer
//! may read.

use uuid::Uuid;

use crate::pure::{Consumers, InboxSpec, PolicyError, Retention, Routing};

/// The version of the claim functions that this build makes. It rises with every change of their bodies.
pub const CLAIM_VERSION: u32 = 7;

/// The first version whose claims begin anew where a day is sealed. An older one would fail there.
#[cfg(feature = "maintain")]
pub(crate) const SEALED_SINCE_VERSION: u32 = 5;

/// The constants of one inbox's claim functions, as JSON in the comment of `<t>_claim`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClaimConstants {
    /// The version of the bodies.
    pub version: u32,
    /// The inbox's identity.
    pub inbox: Uuid,
    /// The random part of the lock key.
    pub lock_key: i64,
    /// What chooses the partition.
    pub routing: Routing,
    /// Whether a claim names its consumer.
    pub consumers: Consumers,
    /// How long a claim is remembered, in seconds; none for ever.
    pub retention_seconds: Option<i64>,
    /// Days after today that a `message_id` claim may fall on.
    pub ahead_days: i64,
    /// See [`crate::ClaimSpec::producer_clock_tolerance`].
    pub producer_clock_tolerance_seconds: i64,
    /// See [`crate::ClaimSpec::clock_step_tolerance`].
    pub clock_step_tolerance_seconds: i64,
    /// The most ids in one batch.
    pub max_batch: u32,
    /// Whether they ask the digest of the sealed days before they look into these. (Older versions do not say.)
    #[serde(default)]
    pub digest: bool,
}

/// The comment: one key, so that others may add theirs.
#[derive(serde::Serialize, serde::Deserialize)]
struct Comment {
    inboxd: ClaimConstants,
}

impl ClaimConstants {
    /// What the functions of an inbox should be made with.
    #[must_use]
    pub fn of(spec: &InboxSpec, inbox: Uuid, lock_key: i64) -> Self {
        Self {
            version: CLAIM_VERSION,
            inbox,
            lock_key,
            routing: spec.policy.routing,
            consumers: spec.policy.consumers,
            retention_seconds: spec.policy.retention.seconds(),
            ahead_days: spec.policy.ahead.days(),
            producer_clock_tolerance_seconds: spec.claim.producer_clock_tolerance.num_seconds(),
            clock_step_tolerance_seconds: spec.claim.clock_step_tolerance.num_seconds(),
            max_batch: spec.claim.max_batch,
            digest: spec.policy.keeps_digest(),
        }
    }

    /// Reads the comment of a claim function; none when it is not ours or not of a form that this version knows.
    #[must_use]
    pub fn from_comment(comment: &str) -> Option<Self> {
        serde_json::from_str::<Comment>(comment)
            .ok()
            .map(|comment| comment.inboxd)
    }

    /// The comment of the claim function.
    ///
    /// # Errors
    /// Never for a value made by [`ClaimConstants::of`].
    pub fn to_comment(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&Comment { inboxd: self.clone() })
    }

    /// The retention that the functions look back over.
    ///
    /// # Errors
    /// When it is outside what a configuration could have asked for.
    pub fn retention(&self) -> Result<Retention, PolicyError> {
        Retention::from_seconds(self.retention_seconds)
    }

    /// What these functions have that `wanted` has not, a sentence each.
    #[must_use]
    pub fn drift_from(&self, wanted: &Self) -> Vec<String> {
        let seconds = |value: Option<i64>| value.map_or_else(|| "forever".to_owned(), |seconds| format!("{seconds} s"));
        let pairs = [
            ("version", self.version.to_string(), wanted.version.to_string()),
            ("inbox", self.inbox.to_string(), wanted.inbox.to_string()),
            ("lock key", self.lock_key.to_string(), wanted.lock_key.to_string()),
            ("routing", self.routing.to_string(), wanted.routing.to_string()),
            ("consumers", self.consumers.to_string(), wanted.consumers.to_string()),
            (
                "retention",
                seconds(self.retention_seconds),
                seconds(wanted.retention_seconds),
            ),
            ("ahead", self.ahead_days.to_string(), wanted.ahead_days.to_string()),
            (
                "producer_clock_tolerance",
                seconds(Some(self.producer_clock_tolerance_seconds)),
                seconds(Some(wanted.producer_clock_tolerance_seconds)),
            ),
            (
                "clock_step_tolerance",
                seconds(Some(self.clock_step_tolerance_seconds)),
                seconds(Some(wanted.clock_step_tolerance_seconds)),
            ),
            ("max_batch", self.max_batch.to_string(), wanted.max_batch.to_string()),
            ("digest", self.digest.to_string(), wanted.digest.to_string()),
        ];
        pairs
            .into_iter()
            .filter(|(_, have, want)| have != want)
            .map(|(what, have, want)| format!("{what} is {have}, configured is {want}"))
            .collect()
    }
}
