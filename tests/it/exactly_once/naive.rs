//! The keys that suggest themselves and do not hold, on a schedule without chance: the harness sees doubles where they are.
//!
//! Each message is delivered in the evening, in the morning and once more. Which claim comes before, beside or after which
//! is decided by the steps below, and the order of the messages by a fixed seed: never by luck.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use inboxd::{Consumers, Routing};
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use sqlx::PgConnection;
use tokio::{
    sync::{RwLock, watch},
    task::JoinHandle,
};

use super::{
    MIDNIGHT, SEED,
    shape::{ByHand, Claims, Delivery, Fate, InBatches, OneByOne, Patience, Shape, Surroundings, Verdict},
    world::{Message, World},
};
use crate::support::inbox::sql;

/// `insert … on conflict do nothing`, as on a table that is not partitioned.
#[derive(Debug, Clone)]
struct Naive;

impl Claims for Naive {
    const AT_A_TIME: usize = 1;

    async fn claim(
        &self,
        connection: &mut PgConnection,
        messages: &[Message],
        _: Patience,
    ) -> Result<Vec<String>, sqlx::Error> {
        let done = sqlx::query(
            "insert into naive (message_id, topic, processed_at) values ($1, 'orders', clock_timestamp())
             on conflict do nothing",
        )
        .bind(messages[0].id)
        .execute(connection)
        .await?;
        let is_fresh = done.rows_affected() == 1;
        Ok(vec![if is_fresh { "fresh" } else { "duplicate" }.to_owned()])
    }
}

/// How a message is delivered for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum First {
    /// Committed in the evening.
    InTheEvening,
    /// Rolled back in the evening.
    RolledBack,
    /// Claimed in the evening, and still in its handler when it is delivered again in the morning.
    OverMidnight,
}

/// How often the work was done of messages that were first delivered so.
type Times = BTreeMap<First, BTreeSet<i64>>;

/// Messages of each kind. Those over midnight take a session each.
const COUNTS: [(First, usize); 3] = [
    (First::InTheEvening, 20),
    (First::RolledBack, 20),
    (First::OverMidnight, 6),
];

struct Schedule<S> {
    shape: S,
    around: Arc<Surroundings>,
}

impl<S: Shape> Schedule<S> {
    /// Delivers one message in a session of its own.
    fn deliver(&self, message: Message, fate: Fate) -> JoinHandle<Option<Vec<Verdict>>> {
        let (shape, around) = (self.shape.clone(), self.around.clone());
        let delivery = Delivery {
            message,
            fate,
            attempt: 0,
        };
        tokio::spawn(async move {
            let mut link = shape.connect(&around).await;
            shape
                .deliver(&mut link, &around, &[delivery], Patience::Unbounded)
                .await
        })
    }

    async fn evening(&self, message: Message, first: First) -> Option<JoinHandle<Option<Vec<Verdict>>>> {
        let (fate, verdict) = match first {
            First::InTheEvening => (Fate::Commits, Verdict::Ack),
            First::RolledBack => (Fate::RollsBack, Verdict::Again),
            First::OverMidnight => {
                let in_their_handlers = self.around.steps.receiver_count();
                let delivered = self.deliver(message, Fate::SpansAStep);
                let in_its_handler = async {
                    while self.around.steps.receiver_count() == in_their_handlers {
                        tokio::task::yield_now().await;
                    }
                };
                let in_time = tokio::time::timeout(Duration::from_secs(30), in_its_handler).await;
                in_time.expect("the claim is made");
                return Some(delivered);
            }
        };
        assert_eq!(self.deliver(message, fate).await.unwrap(), Some(vec![verdict]));
        None
    }
}

/// Delivers each message three times, on both sides of midnight.
async fn over_midnight<S: Shape>(world: World, shape: S) -> Times {
    let messages = world.messages(COUNTS.iter().map(|(_, count)| count).sum(), SEED);
    let kinds = COUNTS.iter().flat_map(|(first, count)| vec![*first; *count]);
    let mut deliveries: Vec<(Message, First)> = messages.iter().copied().zip(kinds).collect();
    deliveries.shuffle(&mut StdRng::seed_from_u64(SEED));
    let around = Arc::new(Surroundings {
        world,
        steps: watch::Sender::new(0),
        all_steps: 1,
        timers: RwLock::new(()),
    });
    let schedule = Schedule { shape, around };

    let mut open = Vec::new();
    for (message, first) in &deliveries {
        open.extend(schedule.evening(*message, *first).await);
    }
    schedule.around.world.morning(0);
    for (message, first) in &deliveries {
        let delivered = schedule.deliver(*message, Fate::Commits);
        if *first == First::OverMidnight {
            // An exact claim waits for its twin, which has yet to end.
            open.push(delivered);
        } else {
            assert_eq!(delivered.await.unwrap(), Some(vec![Verdict::Ack]));
        }
    }
    schedule.around.steps.send_replace(1);
    for delivered in open {
        assert_eq!(delivered.await.unwrap(), Some(vec![Verdict::Ack]));
    }
    for (message, _) in &deliveries {
        let delivered = schedule.deliver(*message, Fate::Commits).await.unwrap();
        assert_eq!(delivered, Some(vec![Verdict::Ack]));
    }

    let done = schedule.around.world.work_done().await;
    let mut times = Times::new();
    for (message, first) in deliveries {
        let of_it = done.get(&(message.id, message.consumer.map(str::to_owned)));
        times.entry(first).or_default().insert(of_it.copied().unwrap_or(0));
    }
    times
}

fn times(in_the_evening: i64, rolled_back: i64, over_midnight: i64) -> Times {
    [
        (First::InTheEvening, in_the_evening),
        (First::RolledBack, rolled_back),
        (First::OverMidnight, over_midnight),
    ]
    .map(|(first, times)| (first, BTreeSet::from([times])))
    .into()
}

/// A table of two days whose key stands on all of it, or on each day.
async fn with_naive_table(key_of_all: &str, key_of_a_day: &str) -> World {
    let world = World::before(MIDNIGHT, 0, Routing::ProcessedAt, Consumers::One).await;
    sql(
        &mut world.connect().await,
        format!(
            "create table naive (message_id uuid, topic varchar(255) not null, processed_at timestamptz not null{key_of_all})
               partition by range (processed_at);
             create table naive_evening partition of naive{key_of_a_day}
               for values from ('2027-12-30 00:00+00') to ('2027-12-31 00:00+00');
             create table naive_morning partition of naive{key_of_a_day}
               for values from ('2027-12-31 00:00+00') to ('2028-01-01 00:00+00')"
        ),
    )
    .await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_key_with_the_time_in_it_doubles_every_redelivery() {
    let world = with_naive_table(", primary key (message_id, processed_at)", "").await;
    // All three times, but for what was rolled back.
    assert_eq!(over_midnight(world, ByHand(Naive)).await, times(3, 2, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_key_on_each_day_doubles_what_is_delivered_on_both_sides_of_midnight() {
    let world = with_naive_table("", " (primary key (message_id))").await;
    assert_eq!(over_midnight(world, ByHand(Naive)).await, times(2, 1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_on_the_same_schedule_an_inbox_of_either_routing_does_all_work_once() {
    for routing in [Routing::ProcessedAt, Routing::MessageId] {
        for consumers in [Consumers::One, Consumers::Many] {
            let world = World::before(MIDNIGHT, 0, routing, consumers).await;
            let done = over_midnight(world, ByHand(OneByOne)).await;
            assert_eq!(done, times(1, 1, 1), "{routing}, {consumers}");
            let world = World::before(MIDNIGHT, 0, routing, consumers).await;
            let done = over_midnight(world, ByHand(InBatches)).await;
            assert_eq!(done, times(1, 1, 1), "{routing}, {consumers}, in batches");
        }
    }
}
