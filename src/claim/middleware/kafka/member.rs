//! The member of the consumer group: one thread that fetches, answers rebalances and commits.
//!
//! A thread, not a task: a commit and a rebalance block in librdkafka, and a runtime whose threads are busy must not cost the
//! member its place in the group, which it loses when nobody polls for `max.poll.interval.ms`. It is the only one that
//! commits, so that no commit can follow a revocation.
//!
//! Messages are fetched from queues of their partitions, and only while there is room for them; librdkafka fetches ahead
//! within its own bounds. Pausing a partition instead would throw away what was fetched ahead each time.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, ClientContext, Offset, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, base_consumer::PartitionQueue},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
};

use super::desk::{Desk, Position, Reach};

/// The longest sleep: what no callback tells of is seen so soon.
const IDLE: Duration = Duration::from_millis(100);

/// The longest wait for an answer to whether a broker is there.
const LOOK: Duration = Duration::from_millis(500);

/// How many messages of one partition are taken before it is another's turn.
const TURN: usize = 50;

/// The longest wait for the group to take the partitions back at the end.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// What a member is told.
#[derive(Clone)]
pub(super) struct Orders {
    pub(super) config: ClientConfig,
    pub(super) topics: Vec<String>,
    pub(super) commit_interval: Duration,
    pub(super) lag_limit: usize,
}

/// What librdkafka calls back, on the thread that polls.
struct Callbacks {
    desk: Arc<Desk>,
    /// How many there were, to tell a queue that was empty from one that held something else than messages.
    calls: AtomicU64,
    /// Assigned, and still fetched through the common queue.
    to_split: Mutex<Vec<(u64, String, i32)>>,
}

struct Member {
    consumer: Arc<BaseConsumer<Callbacks>>,
    desk: Arc<Desk>,
    queues: Vec<(u64, PartitionQueue<Callbacks>)>,
    orders: Orders,
}

/// Joins the group, in a thread that ends once [`Desk::close`] was called or the client can go on no more. `until_then` is
/// dropped at its very end.
///
/// # Errors
/// When the configuration is refused. A broker that is away is no error.
pub(super) fn join(orders: Orders, desk: Arc<Desk>, until_then: impl Send + 'static) -> KafkaResult<()> {
    let callbacks = Callbacks {
        desk: Arc::clone(&desk),
        calls: AtomicU64::new(0),
        to_split: Mutex::default(),
    };
    let mut consumer: BaseConsumer<Callbacks> = orders.config.create_with_context(callbacks)?;
    consumer.set_nonempty_callback(waking(&desk));
    let topics: Vec<&str> = orders.topics.iter().map(String::as_str).collect();
    consumer.subscribe(&topics)?;
    let member = Member {
        consumer: Arc::new(consumer),
        desk: Arc::clone(&desk),
        queues: Vec::new(),
        orders,
    };
    let work = move || {
        let _ = desk.thread.set(thread::current());
        // Dropped last, however this ends.
        let _end = End(desk, until_then);
        let mut member = member;
        member.work();
        member.leave();
    };
    let spawned = thread::Builder::new().name("inboxd-kafka".to_owned()).spawn(work);
    spawned
        .map(drop)
        .map_err(|error| KafkaError::ClientCreation(error.to_string()))
}

/// Says that the member has ended, when it is dropped.
struct End<T>(Arc<Desk>, T);

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn waking(desk: &Arc<Desk>) -> impl Fn() + Send + Sync + 'static {
    let desk = Arc::clone(desk);
    move || desk.wake()
}

impl Member {
    fn work(&mut self) {
        let mut commits_at = Instant::now() + self.orders.commit_interval;
        while !self.desk.is_closing() {
            let mut is_idle = true;
            if !self.serve_common_queue() {
                return;
            }
            self.split_queues();
            for nth in 0..self.queues.len() {
                is_idle &= !self.fetch(nth);
            }
            // Another one is the first next time.
            if !self.queues.is_empty() {
                self.queues.rotate_left(1);
            }
            if Instant::now() >= commits_at {
                self.commit();
                commits_at = Instant::now() + self.orders.commit_interval;
            }
            self.look_for_a_broker();
            if is_idle {
                let until_commit = commits_at.saturating_duration_since(Instant::now());
                thread::park_timeout(until_commit.min(IDLE));
            }
        }
    }

    /// Events, and messages of partitions that have no queue of their own yet. They come before those of the queues, so it
    /// goes on until nothing is left. False when the client can go on no more.
    fn serve_common_queue(&self) -> bool {
        let callbacks = self.consumer.context();
        loop {
            let calls = callbacks.calls.load(Ordering::SeqCst);
            match self.consumer.poll(Duration::ZERO) {
                Some(Ok(message)) => self.desk.take(message.detach()),
                Some(Err(error)) => match self.report(error) {
                    true => {}
                    false => return false,
                },
                None if callbacks.calls.load(Ordering::SeqCst) == calls => return true,
                None => {}
            }
        }
    }

    fn split_queues(&mut self) {
        let callbacks = self.consumer.context();
        for (tenure, topic, partition) in callbacks.take_to_split() {
            // None where the partition is not there any more.
            if let Some(mut queue) = self.consumer.split_partition_queue(&topic, partition) {
                queue.set_nonempty_callback(waking(&self.desk));
                self.queues.push((tenure, queue));
            }
        }
        self.queues.retain(|(tenure, _)| self.desk.is_assigned(*tenure));
    }

    /// Takes messages of one partition; whether there may be more at once.
    fn fetch(&self, nth: usize) -> bool {
        let (tenure, queue) = &self.queues[nth];
        let room = self.desk.room(*tenure, self.orders.lag_limit).min(TURN);
        for _ in 0..room {
            match queue.poll(Duration::ZERO) {
                Some(Ok(message)) => self.desk.take(message.detach()),
                Some(Err(error)) => {
                    // A fatal one is told by the common queue too.
                    let _ = self.report(error);
                }
                None => return false,
            }
        }
        room > 0
    }

    /// Commits what is settled, without waiting for it. The client keeps what it is told until the broker has it, and tells it
    /// again the next time: what became of an asynchronous commit of ours alone is told to nobody by rdkafka.
    fn commit(&self) {
        let positions = self.desk.positions();
        if positions.is_empty() {
            return;
        }
        let kept = self.consumer.store_offsets(&list(&positions));
        let committed = kept.and_then(|()| self.consumer.commit_consumer_state(CommitMode::Async));
        if let Err(error) = committed {
            tracing::warn!(error = %error, "offsets were not committed; they are tried again");
        }
    }

    /// Says what is wrong; false when the client can go on no more.
    fn report(&self, error: KafkaError) -> bool {
        match error {
            KafkaError::MessageConsumptionFatal(_) => {
                self.desk.fail(error);
                return false;
            }
            // The client connects again by itself, and says so when no broker is left.
            KafkaError::MessageConsumption(RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::Resolve) => {
                tracing::debug!(error = %error, "a connection to a broker was lost");
            }
            KafkaError::MessageConsumption(RDKafkaErrorCode::AllBrokersDown) => self.desk.set_reach(Reach::Away),
            _ => self.desk.fail(error),
        }
        true
    }

    /// Asks whether a broker is there again: the client says only that none is left.
    fn look_for_a_broker(&self) {
        if self.desk.reach() == Reach::Away && self.consumer.fetch_metadata(None, LOOK).is_ok() {
            self.desk.set_reach(Reach::There);
        }
    }

    /// Gives the partitions back, which commits what is settled, and leaves the group.
    fn leave(&mut self) {
        self.queues.clear();
        self.consumer.unsubscribe();
        let limit = Instant::now() + LEAVE_LIMIT;
        while self.desk.has_partitions() && Instant::now() < limit {
            // What it delivers now is another's.
            drop(self.consumer.poll(IDLE));
        }
    }
}

impl Callbacks {
    fn take_to_split(&self) -> Vec<(u64, String, i32)> {
        let mut to_split = self.to_split.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *to_split)
    }
}

impl ClientContext for Callbacks {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        log(level, facility, text);
    }

    /// It comes back from the poll as well, where it is judged.
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(error = %error, reason, "the client has trouble");
    }

    /// Nothing is made of them.
    fn stats_raw(&self, _: &[u8]) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }
}

impl ConsumerContext for Callbacks {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let Rebalance::Revoke(partitions) = rebalance else {
            return;
        };
        let places = places(partitions);
        let positions = self.desk.revoke(&places);
        tracing::info!(partitions = places.len(), "partitions are given up");
        if positions.is_empty() {
            return;
        }
        // Another member has them already.
        if consumer.assignment_lost() {
            tracing::warn!(
                "the group has taken the partitions away: what is settled and not committed is delivered again"
            );
            return;
        }
        // It waits for the broker's word, for `socket.timeout.ms` at most.
        if let Err(error) = consumer.commit(&list(&positions), CommitMode::Sync) {
            tracing::warn!(error = %error, "offsets were not committed before their partitions were given up");
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Assign(partitions) = rebalance else {
            return;
        };
        let places = places(partitions);
        let tenures = self.desk.assign(&places);
        self.desk.set_reach(Reach::There);
        tracing::info!(partitions = places.len(), "partitions are assigned");
        let assigned = tenures.into_iter().zip(places);
        let mut to_split = self.to_split.lock().unwrap_or_else(PoisonError::into_inner);
        to_split.extend(assigned.map(|(tenure, (topic, partition))| (tenure, topic, partition)));
    }
}

/// What librdkafka says goes where everything goes. It calls an error what it mends by itself.
pub(super) fn log(level: RDKafkaLogLevel, facility: &str, text: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error
        | RDKafkaLogLevel::Warning => tracing::warn!(facility, "librdkafka: {text}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!(facility, "librdkafka: {text}"),
        RDKafkaLogLevel::Debug => tracing::debug!(facility, "librdkafka: {text}"),
    }
}

fn places(partitions: &TopicPartitionList) -> Vec<(String, i32)> {
    let elements = partitions.elements();
    elements
        .iter()
        .map(|element| (element.topic().to_owned(), element.partition()))
        .collect()
}

fn list(positions: &[Position]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(positions.len());
    for position in positions {
        // Only an offset below zero is refused.
        let _ = list.add_partition_offset(&position.topic, position.partition, Offset::Offset(position.offset));
    }
    list
}
