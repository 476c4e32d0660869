//! Consumers: each day they get new messages, some twice at once, those that could not be processed yet, and some of the
//! past days again.

use std::collections::{BTreeMap, VecDeque};

use chrono::{DateTime, Utc};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use sqlx::postgres::PgConnectOptions;
use uuid::Uuid;

use crate::{
    consumers::{CONSUMERS, Consumer},
    course::INBOXES,
};

/// How sessions of consumers are called, for whoever looks at what they wait for.
pub(crate) const CONSUMER: &str = "claims";
const NEW_EACH_DAY: usize = 60;
const TWINS: usize = 10;
const AGAIN_EACH_DAY: usize = 80;
/// Enough to reach back over the retention.
const MOST_REMEMBERED: usize = 1_000;

/// A message that a broker delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) inbox: &'static str,
    pub(crate) id: Uuid,
    pub(crate) created_at: Option<DateTime<Utc>>,
}

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Acked,
    /// It comes again; why.
    Again(String),
    /// Its day has left the retention.
    TooOld,
}

/// The broker, with what it knows of the messages.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    pub(crate) pending: Vec<Message>,
    acked: VecDeque<Message>,
}

/// What came of a day's deliveries.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) acked: usize,
    pub(crate) too_old: usize,
    pub(crate) errors: BTreeMap<String, usize>,
}

impl Broker {
    /// A day's deliveries. Whatever is not acked then is pending.
    pub(crate) fn deliveries(&mut self, now: DateTime<Utc>, seed: u64) -> Vec<Message> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut all = std::mem::take(&mut self.pending);
        for inbox in INBOXES {
            let new: Vec<Message> = (0..NEW_EACH_DAY).map(|nth| new(inbox, nth, now, &mut random)).collect();
            all.extend(&new[..TWINS]);
            all.extend(new);
        }
        for _ in 0..AGAIN_EACH_DAY.min(self.acked.len()) {
            all.push(self.acked[random.random_range(0..self.acked.len())]);
        }
        all.shuffle(&mut random);
        all
    }

    /// One that somebody works on already; it is delivered again all the same.
    pub(crate) fn new_message(&mut self, inbox: &'static str, now: DateTime<Utc>, id: u64) -> Message {
        let message = new(inbox, 0, now, &mut StdRng::seed_from_u64(id));
        self.pending.push(message);
        message
    }

    /// Notes what became of them; returns those that were acked.
    pub(crate) fn note(&mut self, ends: Vec<(Message, End)>) -> (Vec<Message>, Tally) {
        let (mut acked, mut tally) = (Vec::new(), Tally::default());
        for (message, end) in ends {
            match end {
                End::Acked => {
                    tally.acked += 1;
                    acked.push(message);
                    self.acked.push_back(message);
                }
                End::TooOld => tally.too_old += 1,
                End::Again(why) => {
                    *tally.errors.entry(why).or_default() += 1;
                    self.pending.push(message);
                }
            }
        }
        self.pending.sort_by_key(|message| (message.inbox, message.id));
        self.pending.dedup();
        while self.acked.len() > MOST_REMEMBERED {
            self.acked.pop_front();
        }
        (acked, tally)
    }
}

fn new(inbox: &'static str, nth: usize, now: DateTime<Utc>, random: &mut StdRng) -> Message {
    let millis = u64::try_from(now.timestamp_millis()).unwrap();
    let (id, created_at) = match (inbox, nth % 3) {
        ("by_time", 0) => (uuid::Builder::from_random_bytes(random.random()).into_uuid(), None),
        ("by_time", 1) => (uuid::Builder::from_random_bytes(random.random()).into_uuid(), Some(now)),
        _ => {
            let id = uuid::Builder::from_unix_timestamp_millis(millis, &random.random()).into_uuid();
            (id, None)
        }
    };
    Message { inbox, id, created_at }
}

/// All of them; they keep their sessions from day to day.
pub(crate) fn consumers(options: &PgConnectOptions) -> Vec<Consumer> {
    let options = options.clone().application_name(CONSUMER);
    CONSUMERS.iter().map(|kind| Consumer::new(*kind, &options)).collect()
}

/// Delivers messages to consumers that work at once; what became of each.
pub(crate) async fn deliver(consumers: &mut Vec<Consumer>, messages: Vec<Message>) -> Vec<(Message, End)> {
    let mut working = Vec::new();
    let count = consumers.len();
    for (nth, mut consumer) in consumers.drain(..).enumerate() {
        let share: Vec<Message> = messages.iter().skip(nth).step_by(count).copied().collect();
        working.push(tokio::spawn(async move {
            let ends = consumer.consume(share).await;
            (consumer, ends)
        }));
    }
    let mut all = Vec::new();
    for worked in working {
        let (consumer, ends) = worked.await.unwrap();
        consumers.push(consumer);
        all.extend(ends);
    }
    all
}
