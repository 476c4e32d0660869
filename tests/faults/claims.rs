//! Consumers: each day they get new messages, some twice at once, those that could not be processed yet, and some of the
//! past days again.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use chrono::{DateTime, Utc};
use inboxd::claim::{Inbox, Message as Claimed, MessageId, Verdict};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::course::INBOXES;

/// How sessions of consumers are called, for whoever looks at what they wait for.
pub(crate) const CONSUMER: &str = "claims";
const CONSUMERS: usize = 4;
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
    created_at: Option<DateTime<Utc>>,
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

/// Delivers messages to consumers that work at once; what became of each.
pub(crate) async fn deliver(options: &PgConnectOptions, messages: Vec<Message>) -> Vec<(Message, End)> {
    let options = options.clone().application_name(CONSUMER);
    let mut consumers = JoinSet::new();
    for nth in 0..CONSUMERS {
        let share: Vec<Message> = messages.iter().skip(nth).step_by(CONSUMERS).copied().collect();
        if nth % 2 == 0 {
            consumers.spawn(by_sql(options.clone(), share));
        } else {
            consumers.spawn(by_library(options.clone(), share));
        }
    }
    let mut ends = Vec::new();
    while let Some(consumer) = consumers.join_next().await {
        ends.extend(consumer.unwrap());
    }
    ends
}

/// A consumer of another language: the functions alone.
async fn by_sql(options: PgConnectOptions, share: Vec<Message>) -> Vec<(Message, End)> {
    let mut ends = Vec::new();
    let mut connection: Option<PgConnection> = None;
    for message in share {
        let end = match connect(&mut connection, &options).await {
            Ok(connection) => claim(connection, message).await,
            Err(error) => Err(error),
        };
        let end = end.unwrap_or_else(|error| {
            // Whatever it was, the next one gets a clean session.
            connection = None;
            End::Again(name(&error))
        });
        ends.push((message, end));
    }
    ends
}

async fn connect<'c>(
    connection: &'c mut Option<PgConnection>,
    options: &PgConnectOptions,
) -> Result<&'c mut PgConnection, sqlx::Error> {
    match connection {
        Some(connection) => Ok(connection),
        None => {
            let new = tokio::time::timeout(Duration::from_secs(2), options.connect()).await;
            if !matches!(new, Ok(Ok(_))) {
                // A broker would not deliver at once either.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(connection.insert(new.map_err(|_| sqlx::Error::PoolTimedOut)??))
        }
    }
}

async fn claim(connection: &mut PgConnection, message: Message) -> Result<End, sqlx::Error> {
    let mut tx = connection.begin().await?;
    let outcome: String = sqlx::query_scalar(AssertSqlSafe(format!(
        "select outcome from {}_try_claim($1, 'orders', $2, null, interval '200 milliseconds')",
        message.inbox
    )))
    .bind(message.id)
    .bind(message.created_at)
    .fetch_one(&mut *tx)
    .await?;
    if outcome != "fresh" {
        tx.rollback().await?;
        return Ok(match outcome.as_str() {
            "duplicate" => End::Acked,
            "too_old" => End::TooOld,
            _ => End::Again(outcome),
        });
    }
    work(&mut tx, message).await?;
    // Not acked where the answer is lost: the redelivery's claim decides.
    tx.commit().await?;
    Ok(End::Acked)
}

async fn work(connection: &mut PgConnection, message: Message) -> Result<(), sqlx::Error> {
    sqlx::query("insert into work (inbox, message_id) values ($1, $2)")
        .bind(message.inbox)
        .bind(message.id)
        .execute(connection)
        .await
        .map(|_| ())
}

/// A consumer in Rust.
async fn by_library(options: PgConnectOptions, share: Vec<Message>) -> Vec<(Message, End)> {
    let pool = PgPoolOptions::new()
        .max_connections(2)
        // A busy machine takes its time to fork.
        .acquire_timeout(Duration::from_secs(3))
        .connect_lazy_with(options);
    let mut opened: BTreeMap<&str, Inbox> = BTreeMap::new();
    let mut ends = Vec::new();
    for message in share {
        let end = match open(&mut opened, &pool, message.inbox).await {
            Ok(inbox) => process(inbox, &pool, message).await,
            Err(why) => End::Again(why),
        };
        ends.push((message, end));
    }
    pool.close().await;
    ends
}

async fn open<'i>(
    opened: &'i mut BTreeMap<&'static str, Inbox>,
    pool: &PgPool,
    name: &'static str,
) -> Result<&'i Inbox, String> {
    if !opened.contains_key(name) {
        let mut connection = pool.acquire().await.map_err(|error| self::name(&error))?;
        let inbox = Inbox::open(&mut connection, &format!("public.{name}"))
            .await
            .map_err(|error| format!("open: {error}"))?;
        let inbox = inbox
            .with_wait(Duration::from_millis(200))
            .with_settle_timeout(Duration::from_secs(1));
        opened.insert(name, inbox);
    }
    Ok(&opened[name])
}

async fn process(inbox: &Inbox, pool: &PgPool, message: Message) -> End {
    let mut claimed = Claimed::new(MessageId::from_uuid(message.id).unwrap(), "orders").unwrap();
    if let Some(created_at) = message.created_at {
        claimed = claimed.created_at(created_at);
    }
    let result = inbox.process(pool, &claimed, async |tx| work(tx, message).await).await;
    match (Verdict::of(&result), result) {
        (Verdict::Ack, _) => End::Acked,
        (Verdict::Reject, _) => End::TooOld,
        (_, Ok(outcome)) => End::Again(match outcome {
            inboxd::claim::Outcome::InFlight => "in_flight".to_owned(),
            _ => "unknown".to_owned(),
        }),
        (_, Err(error)) => {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            End::Again(format!("{error}: {}", source.unwrap_or_default()))
        }
    }
}

fn name(error: &sqlx::Error) -> String {
    match error.as_database_error().and_then(|error| error.code()) {
        Some(code) => format!("SQLSTATE {code}"),
        None => error.to_string(),
    }
}
