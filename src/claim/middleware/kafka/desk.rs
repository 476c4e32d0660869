//! Where the member of the group and its deliveries meet: what is ready, what waits, what is settled, and for whom.
//!
//! Each time in which a partition is this member's is a *tenure* with a number of its own. Whatever was taken in it can be
//! settled only while it lasts: afterwards the partition is another's, or has begun anew, and the settlement counts for
//! nothing.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::Thread,
    time::{Duration, Instant},
};

use rdkafka::message::{Message, OwnedMessage};
use tokio::sync::Notify;

use super::watermark::Watermark;
use crate::claim::BoxError;

/// How many messages are ready at most: what a fast consumer takes while the member fetches.
const READY: usize = 200;

/// A message in the hand of this process.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) message: Arc<OwnedMessage>,
    pub(super) tenure: u64,
    /// How often it was given back without a word on when to deliver it again.
    pub(super) returns: u32,
}

/// The partition is no longer this member's, or is so anew.
#[derive(Debug, thiserror::Error)]
#[error(
    "the partition was taken from this consumer: its offset is not committed, and who has it now delivers it again"
)]
pub(super) struct Stale;

/// What may be committed of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) offset: i64,
}

/// What there is to do next.
#[derive(Debug)]
pub(super) enum Next {
    Deliver(Held),
    Fail(BoxError),
    /// Nothing before that instant, or before something changes.
    Wait(Option<Instant>),
    /// The member has ended.
    End,
}

#[derive(Default)]
pub(super) struct Desk {
    inner: Mutex<Inner>,
    /// Told whenever there may be something for [`Desk::next`].
    pub(super) changed: Notify,
    /// The member's thread, which sleeps while there is nothing to fetch or no room for it.
    pub(super) thread: OnceLock<Thread>,
}

#[derive(Default)]
struct Inner {
    tenures: BTreeMap<u64, Tenure>,
    last_tenure: u64,
    ready: VecDeque<Held>,
    later: BinaryHeap<Later>,
    error: Option<BoxError>,
    reach: Reach,
    is_closing: bool,
    has_ended: bool,
}

/// Whether a broker can be reached, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Reach {
    #[default]
    Unknown,
    There,
    Away,
}

/// None of the brokers can be reached.
#[derive(Debug, thiserror::Error)]
#[error("no broker can be reached")]
pub(super) struct Unreachable;

struct Tenure {
    topic: String,
    partition: i32,
    watermark: Watermark,
    /// Whether the member waits until it lags less.
    is_full: bool,
}

struct Later {
    due: Instant,
    held: Held,
}

impl Desk {
    /// Partitions are this member's from now on; the tenures, in their order.
    pub(super) fn assign(&self, places: &[(String, i32)]) -> Vec<u64> {
        let mut inner = self.inner();
        let begin = |(topic, partition): &(String, i32)| {
            inner.last_tenure += 1;
            let tenure = Tenure {
                topic: topic.clone(),
                partition: *partition,
                watermark: Watermark::default(),
                is_full: false,
            };
            let number = inner.last_tenure;
            inner.tenures.insert(number, tenure);
            number
        };
        places.iter().map(begin).collect()
    }

    /// Partitions are no longer this member's; how far they are settled.
    pub(super) fn revoke(&self, places: &[(String, i32)]) -> Vec<Position> {
        let mut inner = self.inner();
        let mut positions = Vec::new();
        inner.tenures.retain(|_, tenure| {
            let is_revoked = places.iter().any(|place| tenure.is_of(place));
            if is_revoked {
                positions.extend(tenure.position());
            }
            !is_revoked
        });
        let Inner {
            tenures, ready, later, ..
        } = &mut *inner;
        ready.retain(|held| tenures.contains_key(&held.tenure));
        later.retain(|later| tenures.contains_key(&later.held.tenure));
        positions
    }

    /// A message has come. One of a partition that is not this member's is none of its business.
    pub(super) fn take(&self, message: OwnedMessage) {
        let mut inner = self.inner();
        let mut tenures = inner.tenures.iter_mut();
        let owner =
            tenures.find(|(_, tenure)| tenure.partition == message.partition() && tenure.topic == message.topic());
        if let Some((tenure, owner)) = owner {
            owner.watermark.take(message.offset());
            let held = Held {
                tenure: *tenure,
                message: Arc::new(message),
                returns: 0,
            };
            inner.ready.push_back(held);
            self.changed.notify_one();
        }
    }

    /// How many more messages of a tenure may be taken now.
    pub(super) fn room(&self, tenure: u64, lag_limit: usize) -> usize {
        let mut inner = self.inner();
        let of_all = READY.saturating_sub(inner.ready.len());
        let Some(tenure) = inner.tenures.get_mut(&tenure) else {
            return 0;
        };
        let of_this = lag_limit.saturating_sub(tenure.watermark.lag());
        tenure.is_full = of_this == 0;
        of_this.min(of_all)
    }

    pub(super) fn next(&self, now: Instant) -> Next {
        let mut inner = self.inner();
        if inner.later.peek().is_some_and(|later| later.due <= now)
            && let Some(later) = inner.later.pop()
        {
            return Next::Deliver(later.held);
        }
        if let Some(held) = inner.ready.pop_front() {
            if inner.ready.len() == READY / 2 {
                self.wake();
            }
            return Next::Deliver(held);
        }
        match inner.error.take() {
            Some(error) => Next::Fail(error),
            None if inner.has_ended => Next::End,
            None if inner.reach == Reach::Away => Next::Fail(Unreachable.into()),
            None => Next::Wait(inner.later.peek().map(|later| later.due)),
        }
    }

    /// Nothing is to be done about it any more.
    pub(super) fn settle(&self, held: &Held) -> Result<(), Stale> {
        let mut inner = self.inner();
        let tenure = inner.tenures.get_mut(&held.tenure).ok_or(Stale)?;
        tenure.watermark.settle(held.message.offset());
        if tenure.is_full {
            self.wake();
        }
        Ok(())
    }

    /// To be delivered again after a while.
    pub(super) fn put_back(&self, held: Held, after: Duration) -> Result<(), Stale> {
        let mut inner = self.inner();
        if !inner.tenures.contains_key(&held.tenure) {
            return Err(Stale);
        }
        let due = Instant::now() + after;
        inner.later.push(Later { due, held });
        self.changed.notify_one();
        Ok(())
    }

    /// Whether the partition is still this member's, by this tenure.
    pub(super) fn is_assigned(&self, tenure: u64) -> bool {
        self.inner().tenures.contains_key(&tenure)
    }

    /// How far each partition of which something is settled is so.
    pub(super) fn positions(&self) -> Vec<Position> {
        self.inner().tenures.values().filter_map(Tenure::position).collect()
    }

    pub(super) fn has_partitions(&self) -> bool {
        !self.inner().tenures.is_empty()
    }

    /// Something is wrong; the newest word on it is told.
    pub(super) fn fail(&self, error: impl Into<BoxError>) {
        self.inner().error = Some(error.into());
        self.changed.notify_one();
    }

    pub(super) fn reach(&self) -> Reach {
        self.inner().reach
    }

    pub(super) fn set_reach(&self, reach: Reach) {
        self.inner().reach = reach;
        self.changed.notify_one();
    }

    /// The member shall leave its group.
    pub(super) fn close(&self) {
        self.inner().is_closing = true;
        self.wake();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.inner().is_closing
    }

    /// The member has left. What is still in hand is stale.
    pub(super) fn end(&self) {
        let mut inner = self.inner();
        inner.has_ended = true;
        inner.tenures.clear();
        inner.ready.clear();
        inner.later.clear();
        self.changed.notify_one();
    }

    /// The member looks round at once.
    pub(super) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here panics half-way through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}

impl Tenure {
    fn is_of(&self, place: &(String, i32)) -> bool {
        self.partition == place.1 && self.topic == place.0
    }

    fn position(&self) -> Option<Position> {
        self.watermark.position().map(|offset| Position {
            topic: self.topic.clone(),
            partition: self.partition,
            offset,
        })
    }
}

/// The one that is due first is the greatest: it is on top of a heap.
impl Ord for Later {
    fn cmp(&self, other: &Self) -> Ordering {
        other.due.cmp(&self.due)
    }
}

impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Later {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Later {}
