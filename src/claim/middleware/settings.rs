//! What a consumer can be told, with a default for each.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};

use super::{IdSource, MissingId};

/// What becomes of a message that the inbox will never take: too old, too new, an id that it refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Unclaimable {
    /// It is rejected, so that somebody sees it.
    #[default]
    Reject,
    /// It is acked without work, and logged.
    Discard,
}

type CreatedAt<D> = Arc<dyn Fn(&D) -> Option<DateTime<Utc>> + Send + Sync>;

/// What makes a batch full.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub(super) size: usize,
    /// Counted from its first delivery.
    pub(super) wait: Duration,
}

impl Batch {
    /// Each delivery is one.
    pub(super) const OF_ONE: Self = Self {
        size: 1,
        wait: Duration::ZERO,
    };
}

pub(super) struct Settings<D> {
    pub(super) id: IdSource<D>,
    pub(super) missing_id: MissingId<D>,
    pub(super) unclaimable: Unclaimable,
    pub(super) created_at: Option<CreatedAt<D>>,
    pub(super) consumer_name: Option<String>,
    pub(super) concurrency: usize,
    pub(super) batch: Batch,
    pub(super) attempts: u32,
    pub(super) deadline: Duration,
    pub(super) settle_deadline: Duration,
    pub(super) drain_deadline: Duration,
    pub(super) in_flight_patience: Duration,
    pub(super) first_pause: Duration,
    pub(super) longest_pause: Duration,
}

impl<D> Settings<D> {
    pub(super) fn new(id: IdSource<D>) -> Self {
        Self {
            id,
            missing_id: MissingId::default(),
            unclaimable: Unclaimable::default(),
            created_at: None,
            consumer_name: None,
            // As many as sqlx's pool has connections by default.
            concurrency: 10,
            // Beyond it a claim of a batch gains little; so short a wait is not seen in any delivery's time.
            batch: Batch {
                size: 100,
                wait: Duration::from_millis(10),
            },
            attempts: 5,
            deadline: Duration::from_secs(300),
            settle_deadline: Duration::from_secs(10),
            // Orchestrators kill 30 s after they asked.
            drain_deadline: Duration::from_secs(25),
            in_flight_patience: Duration::from_secs(60),
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(30),
        }
    }
}
