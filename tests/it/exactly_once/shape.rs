//! How a message is claimed and processed. What is tested is a [`Shape`]; the harness is the same for all of them.

use std::{future::Future, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, PgConnection};
use tokio::sync::{RwLock, watch};

use super::world::{Message, TABLE, World};
use crate::support::claims::Claim;

/// What is to become of the work of a delivery, should its claim be fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Commits,
    RollsBack,
    /// A statement of the handler fails.
    Fails,
    /// The session's process is terminated by another while the transaction is open.
    Killed,
    /// The handler panics; by hand, the consumer is gone.
    Panics,
    /// The whole unit is dropped while its handler works; by hand, the consumer is gone.
    IsCancelled,
    /// The handler begins before a step of the clock and ends after it.
    SpansAStep,
}

impl Fate {
    /// What becomes of it with a consumer whose handler must not wait for the clock.
    pub(crate) fn of_the_impatient(self) -> Self {
        if self == Self::SpansAStep { Self::Commits } else { self }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivery {
    pub(crate) message: Message,
    pub(crate) fate: Fate,
    /// How often it was delivered before.
    pub(crate) attempt: u32,
}

/// How long a claim may wait for a twin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until the twin ends.
    Unbounded,
    Bounded(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ack,
    /// Not acked: it is delivered again.
    Again,
}

/// What goes on around a consumer.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) world: World,
    /// Counts the steps of the clock.
    pub(crate) steps: watch::Sender<usize>,
    /// How many there are going to be.
    pub(crate) all_steps: usize,
    /// Held while a bounded wait may run: its timer is computed from the clock that is stepped.
    pub(crate) timers: RwLock<()>,
}

impl Surroundings {
    /// Returns once the clock has been stepped, and all that is delivered until the next step has had its turn beside the
    /// handler that waits here; earlier where there are no more steps. With a handler that ended right after the step, hardly
    /// a twin met it, and claims without a lock passed.
    pub(crate) async fn span_a_step(&self) {
        let mut steps = self.steps.subscribe();
        let end = self.all_steps.min(*steps.borrow() + 2);
        let stepped = tokio::time::timeout(Duration::from_secs(60), steps.wait_for(|step| *step >= end));
        stepped.await.expect("the clock is stepped").unwrap();
    }

    pub(crate) async fn kill(&self, pid: i32) {
        sqlx::query("select pg_terminate_backend($1)")
            .bind(pid)
            .execute(&mut self.world.connect().await)
            .await
            .unwrap();
    }
}

/// A way to claim and process.
pub(crate) trait Shape: Clone + Send + Sync + 'static {
    /// How many deliveries it takes at a time, at most.
    const AT_A_TIME: usize;

    /// What one consumer works with: a session, a pool.
    type Link: Send;

    fn connect(&self, around: &Surroundings) -> impl Future<Output = Self::Link> + Send;

    /// Processes deliveries; for each, whether it may be acked. `None` when the link is broken, and nothing is acked.
    fn deliver(
        &self,
        link: &mut Self::Link,
        around: &Surroundings,
        deliveries: &[Delivery],
        patience: Patience,
    ) -> impl Future<Output = Option<Vec<Verdict>>> + Send;
}

/// What a claim in SQL says, and no more than a consumer needs of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claimed {
    Fresh,
    Duplicate,
    InFlight,
}

impl Claimed {
    fn of(outcome: &str) -> Self {
        match outcome {
            "fresh" => Self::Fresh,
            // A repeated one is acked after the commit, like a duplicate.
            "duplicate" | "repeated" => Self::Duplicate,
            "in_flight" => Self::InFlight,
            other => panic!("{other} within the retention"),
        }
    }
}

/// Statements that claim, in the transaction of the work.
pub(crate) trait Claims: Clone + Send + Sync + 'static {
    const AT_A_TIME: usize;

    fn claim(
        &self,
        connection: &mut PgConnection,
        messages: &[Message],
        patience: Patience,
    ) -> impl Future<Output = Result<Vec<String>, sqlx::Error>> + Send;
}

/// A transaction written by hand: begin, claim, work, commit.
#[derive(Debug, Clone)]
pub(crate) struct ByHand<C>(pub(crate) C);

impl<C: Claims> Shape for ByHand<C> {
    const AT_A_TIME: usize = C::AT_A_TIME;

    type Link = (PgConnection, i32);

    async fn connect(&self, around: &Surroundings) -> Self::Link {
        around.world.session().await
    }

    async fn deliver(
        &self,
        link: &mut Self::Link,
        around: &Surroundings,
        deliveries: &[Delivery],
        patience: Patience,
    ) -> Option<Vec<Verdict>> {
        match self.transaction(link, around, deliveries, patience).await {
            Ok(verdicts) => Some(verdicts),
            Err(error)
                if error
                    .as_database_error()
                    .is_some_and(|error| error.code().as_deref() != Some("57P01")) =>
            {
                // The server rolled it back by an error; the session can go on.
                sqlx::query("rollback").execute(&mut link.0).await.ok()?;
                Some(vec![Verdict::Again; deliveries.len()])
            }
            Err(_) => None,
        }
    }
}

impl<C: Claims> ByHand<C> {
    async fn transaction(
        &self,
        (connection, pid): &mut (PgConnection, i32),
        around: &Surroundings,
        deliveries: &[Delivery],
        patience: Patience,
    ) -> Result<Vec<Verdict>, sqlx::Error> {
        let messages: Vec<Message> = deliveries.iter().map(|delivery| delivery.message).collect();
        sqlx::query("begin").execute(&mut *connection).await?;
        let claimed = {
            let _timer = match patience {
                Patience::Unbounded => None,
                Patience::Bounded(_) => Some(around.timers.read().await),
            };
            self.0.claim(connection, &messages, patience).await?
        };
        let claimed: Vec<Claimed> = claimed.iter().map(|outcome| Claimed::of(outcome)).collect();
        let mut fate = Fate::Commits;
        for (delivery, claimed) in deliveries.iter().zip(&claimed) {
            if *claimed == Claimed::Fresh {
                sqlx::query("insert into work (message_id, consumer) values ($1, $2)")
                    .bind(delivery.message.id)
                    .bind(delivery.message.consumer)
                    .execute(&mut *connection)
                    .await?;
                // One transaction has one end: the first fresh message's.
                if fate == Fate::Commits {
                    fate = delivery.fate;
                }
            }
        }
        match fate {
            Fate::Commits => {}
            Fate::SpansAStep => around.span_a_step().await,
            Fate::Killed => around.kill(*pid).await,
            // Its session is dropped as it is.
            Fate::Panics | Fate::IsCancelled => return Err(sqlx::Error::WorkerCrashed),
            Fate::Fails => {
                sqlx::query("select 1 / 0").execute(&mut *connection).await?;
            }
            Fate::RollsBack => {
                sqlx::query("rollback").execute(connection).await?;
                return Ok(vec![Verdict::Again; deliveries.len()]);
            }
        }
        sqlx::query("commit").execute(connection).await?;
        let verdict = |claimed| match claimed {
            Claimed::InFlight => Verdict::Again,
            Claimed::Fresh | Claimed::Duplicate => Verdict::Ack,
        };
        Ok(claimed.into_iter().map(verdict).collect())
    }
}

/// `<t>_claim` and `<t>_try_claim`, one message a transaction.
#[derive(Debug, Clone)]
pub(crate) struct OneByOne;

impl Claims for OneByOne {
    const AT_A_TIME: usize = 1;

    async fn claim(
        &self,
        connection: &mut PgConnection,
        messages: &[Message],
        patience: Patience,
    ) -> Result<Vec<String>, sqlx::Error> {
        let message = messages[0];
        let mut claim = Claim {
            table: TABLE,
            id: Some(message.id),
            created_at: message.created_at,
            consumer: message.consumer,
            wait: None,
        };
        if let Patience::Bounded(wait) = patience {
            claim.wait = Some(wait);
        } else if message.id.as_bytes()[15].is_multiple_of(2) {
            let fresh = claim.fresh(connection).await?;
            return Ok(vec![if fresh { "fresh" } else { "duplicate" }.to_owned()]);
        }
        Ok(vec![claim.on(connection).await?.0])
    }
}

/// `<t>_claim_batch`: many messages a transaction.
#[derive(Debug, Clone)]
pub(crate) struct InBatches;

impl Claims for InBatches {
    const AT_A_TIME: usize = 20;

    async fn claim(
        &self,
        connection: &mut PgConnection,
        messages: &[Message],
        patience: Patience,
    ) -> Result<Vec<String>, sqlx::Error> {
        let wait = match patience {
            Patience::Unbounded => None,
            Patience::Bounded(wait) => Some(wait),
        };
        let created_ats: Vec<Option<DateTime<Utc>>> = messages.iter().map(|message| message.created_at).collect();
        let text = format!(
            "select outcome from {TABLE}_claim_batch(
               $1, array_fill('orders'::text, array[cardinality($1)]), $2, $3, $4::text::interval) order by ord"
        );
        sqlx::query_scalar(AssertSqlSafe(text))
            .bind(messages.iter().map(|message| message.id).collect::<Vec<_>>())
            .bind(created_ats)
            .bind(messages[0].consumer)
            .bind(wait)
            .fetch_all(connection)
            .await
    }
}
