//! The kinds of consumers. What each of them does with a message must come to the same.

use std::{collections::BTreeMap, time::Duration};

use inboxd::claim::{Claim, Inbox, Message as Claimed, MessageId, Outcome, ProcessError, Verdict};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::claims::{End, Message};

const WAIT: Duration = Duration::from_millis(200);
const CONNECT: Duration = Duration::from_secs(2);
const BATCH: usize = 8;

/// How a consumer works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By the functions alone, as in another language.
    Sql,
    /// `Inbox::process`.
    Process,
    /// `Inbox::claim` in a transaction of its own.
    Claim,
    /// `Inbox::process_batch`.
    Batch,
    /// `Inbox::process_each`.
    Each,
}

/// They work at once.
pub(crate) const CONSUMERS: [Kind; 6] = [
    Kind::Sql,
    Kind::Process,
    Kind::Batch,
    Kind::Claim,
    Kind::Each,
    Kind::Sql,
];

/// One of them, with the sessions that it keeps from day to day.
#[derive(Debug)]
pub(crate) struct Consumer {
    kind: Kind,
    options: PgConnectOptions,
    connection: Option<PgConnection>,
    pool: PgPool,
    opened: BTreeMap<&'static str, Inbox>,
}

impl Consumer {
    pub(crate) fn new(kind: Kind, options: &PgConnectOptions) -> Self {
        Self {
            kind,
            options: options.clone(),
            connection: None,
            pool: pool(options),
            opened: BTreeMap::new(),
        }
    }

    pub(crate) async fn consume(&mut self, share: Vec<Message>) -> Vec<(Message, End)> {
        match self.kind {
            Kind::Sql => self.by_sql(share).await,
            _ => self.by_library(share).await,
        }
    }

    async fn by_sql(&mut self, share: Vec<Message>) -> Vec<(Message, End)> {
        // One that was lost since is no message's fault.
        if let Some(connection) = &mut self.connection
            && !matches!(tokio::time::timeout(CONNECT, connection.ping()).await, Ok(Ok(())))
        {
            self.connection = None;
        }
        let mut ends = Vec::new();
        for message in share {
            let end = match connect(&mut self.connection, &self.options).await {
                Ok(connection) => claim(connection, message).await,
                Err(error) => Err(error),
            };
            let end = end.unwrap_or_else(|error| {
                // Whatever it was, the next one gets a clean session.
                self.connection = None;
                End::Again(name(&error))
            });
            ends.push((message, end));
        }
        ends
    }

    async fn by_library(&mut self, share: Vec<Message>) -> Vec<(Message, End)> {
        if self.kind == Kind::Claim {
            // One is deployed anew each day.
            self.opened.clear();
            self.pool.close().await;
            self.pool = pool(&self.options);
        }
        let mut ends = Vec::new();
        for portion in portions(self.kind, &share) {
            let came_to = match open(&mut self.opened, &self.pool, portion[0].inbox).await {
                Ok(inbox) => take(self.kind, inbox, &self.pool, &portion).await,
                Err(why) => vec![End::Again(why); portion.len()],
            };
            assert_eq!(came_to.len(), portion.len(), "each message has an end");
            ends.extend(portion.into_iter().zip(came_to));
        }
        ends
    }
}

fn pool(options: &PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(2)
        // A busy machine takes its time to fork.
        .acquire_timeout(Duration::from_secs(3))
        // By no clock that steps.
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_lazy_with(options.clone())
}

async fn connect<'c>(
    connection: &'c mut Option<PgConnection>,
    options: &PgConnectOptions,
) -> Result<&'c mut PgConnection, sqlx::Error> {
    match connection {
        Some(connection) => Ok(connection),
        None => {
            let new = tokio::time::timeout(CONNECT, options.connect()).await;
            if !matches!(new, Ok(Ok(_))) {
                // A broker would not deliver at once either.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(connection.insert(new.map_err(|_| sqlx::Error::PoolTimedOut)??))
        }
    }
}

/// In a transaction that somebody else ends; whether it was fresh, and is worked on.
pub(crate) async fn claim_and_work_by_sql(connection: &mut PgConnection, message: Message) -> bool {
    let outcome = try_claim(connection, message).await;
    outcome.is_ok_and(|outcome| outcome == "fresh") && work(connection, message).await.is_ok()
}

/// Delivers a message to a consumer that does nothing else.
pub(crate) async fn deliver_once(options: &PgConnectOptions, message: Message) -> End {
    let delivered = async {
        let mut connection = options.connect().await?;
        claim(&mut connection, message).await
    };
    delivered
        .await
        .unwrap_or_else(|error: sqlx::Error| End::Again(name(&error)))
}

async fn try_claim(connection: &mut PgConnection, message: Message) -> Result<String, sqlx::Error> {
    sqlx::query_scalar(AssertSqlSafe(format!(
        "select outcome from {}_try_claim($1, 'orders', $2, null, interval '200 milliseconds')",
        message.inbox
    )))
    .bind(message.id)
    .bind(message.created_at)
    .fetch_one(connection)
    .await
}

async fn claim(connection: &mut PgConnection, message: Message) -> Result<End, sqlx::Error> {
    let mut tx = connection.begin().await?;
    let outcome = try_claim(&mut tx, message).await?;
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

/// What is taken at a time, of one inbox each.
fn portions(kind: Kind, share: &[Message]) -> Vec<Vec<Message>> {
    let size = match kind {
        Kind::Batch | Kind::Each => BATCH,
        _ => 1,
    };
    let mut sorted = share.to_vec();
    // Stable: in the order of their delivery.
    sorted.sort_by_key(|message| message.inbox);
    sorted
        .chunk_by(|one, other| one.inbox == other.inbox)
        .flat_map(|of_one| of_one.chunks(size))
        .map(<[Message]>::to_vec)
        .collect()
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
        let inbox = inbox.with_wait(WAIT).with_settle_timeout(Duration::from_secs(1));
        opened.insert(name, inbox);
    }
    Ok(&opened[name])
}

async fn take(kind: Kind, inbox: &Inbox, pool: &PgPool, portion: &[Message]) -> Vec<End> {
    let claimed: Vec<Claimed> = portion.iter().copied().map(claimed).collect();
    match kind {
        Kind::Sql => unreachable!("has no library"),
        Kind::Process => {
            let message = portion[0];
            let done = inbox
                .process(pool, &claimed[0], async |tx| work(tx, message).await)
                .await;
            vec![end_of(done)]
        }
        Kind::Claim => vec![claim_and_work(inbox, pool, &claimed[0], portion[0]).await],
        Kind::Batch => {
            let inbox_name = portion[0].inbox;
            let done = inbox.process_batch(pool, &claimed, async |tx, fresh: &[&Claimed]| {
                for message in fresh {
                    work(tx, back(inbox_name, message)).await?;
                }
                Ok::<_, sqlx::Error>(())
            });
            match done.await {
                Ok(done) => {
                    let ends = done.messages.into_iter();
                    ends.map(|end| end_of(end.map_err(ProcessError::Claim))).collect()
                }
                Err(error) => vec![end_of(Err(error)); portion.len()],
            }
        }
        Kind::Each => {
            let inbox_name = portion[0].inbox;
            let done = inbox.process_each(pool, &claimed, async |tx, message: &Claimed| {
                work(tx, back(inbox_name, message)).await
            });
            match done.await {
                Ok(ends) => ends.into_iter().map(end_of).collect(),
                Err(error) => vec![end_of(Err(error)); portion.len()],
            }
        }
    }
}

fn claimed(message: Message) -> Claimed {
    let claimed = Claimed::new(MessageId::from_uuid(message.id).unwrap(), "orders").unwrap();
    match message.created_at {
        Some(created_at) => claimed.created_at(created_at),
        None => claimed,
    }
}

/// The message of a claim; when it was created does not matter for its work.
fn back(inbox: &'static str, claimed: &Claimed) -> Message {
    Message {
        inbox,
        id: claimed.id().uuid(),
        created_at: None,
    }
}

/// What the library's documentation tells who wants a transaction of his own.
async fn claim_and_work(inbox: &Inbox, pool: &PgPool, claimed: &Claimed, message: Message) -> End {
    let done = async {
        let mut tx = pool.begin().await.map_err(ProcessError::Connection)?;
        match inbox.claim(&mut tx, claimed).await? {
            Claim::Fresh => {
                let worked = work(&mut tx, message).await;
                worked.map_err(|error| ProcessError::Handler(error.into()))?;
                tx.commit().await.map_err(ProcessError::Commit)?;
                Ok(End::Acked)
            }
            Claim::Duplicate { .. } => Ok(End::Acked),
            Claim::InFlight => Ok(End::Again("in_flight".to_owned())),
            Claim::Repeated => Ok(End::Again("repeated".to_owned())),
        }
    };
    done.await.unwrap_or_else(|error: ProcessError| end_of(Err(error)))
}

fn end_of(result: Result<Outcome<()>, ProcessError>) -> End {
    match (Verdict::of(&result), result) {
        (Verdict::Ack, _) => End::Acked,
        (Verdict::Reject, _) => End::TooOld,
        (_, Ok(outcome)) => End::Again(match outcome {
            Outcome::InFlight => "in_flight".to_owned(),
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
