//! Where a scenario takes place: a broker, a database with an inbox, and the work that is to be done once.

use std::time::Duration;

use inboxd::{
    claim::{
        Inbox,
        middleware::{Consumer, Delivery, IdSource},
    },
    clock::Clock,
};
use sqlx::{PgPool, Postgres, Transaction, postgres::PgConnectOptions};
use uuid::Uuid;

use super::broker::{BATCH, BATCH_WAIT, Broker, Dead, ID};
use crate::support::{
    inbox::{Deployment, random_id, spec, sql},
    pool,
    server::TestDatabase,
};

/// Short, so that a redelivery does not let a test wait; three signals fit into it on a loaded machine.
pub(super) const ACK_TIMEOUT: Duration = Duration::from_secs(2);

/// How many deliveries a consumer has in hand.
pub(super) const CONCURRENCY: u16 = 4;

/// Only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks at a broker.
const LOOK: Duration = Duration::from_millis(20);

/// How often a consumer is run again for what came back when it ended.
const RUNS: usize = 30;

pub(super) struct Place<B> {
    pub(super) deployment: Deployment,
    pub(super) pool: PgPool,
    pub(super) broker: B,
}

impl<B: Broker> Place<B> {
    pub(super) async fn new() -> Self {
        Self::of(B::start().await, Deployment::running(vec![spec("public.inbox")]).await).await
    }

    /// With a broker that can be killed, and delivers again what is not acked in time.
    pub(super) async fn apart() -> Self {
        let broker = B::start_apart().await;
        Self::of(broker, Deployment::running(vec![spec("public.inbox")]).await).await
    }

    /// With a database on another server.
    pub(super) async fn in_database(database: TestDatabase) -> Self {
        let deployment = Deployment::new(database, Clock::system(), vec![spec("public.inbox")]);
        deployment.init().await.unwrap();
        deployment.done().await;
        Self::of(B::start().await, deployment).await
    }

    pub(super) async fn of(broker: B, deployment: Deployment) -> Self {
        let mut connection = deployment.database.connect().await;
        sql(&mut connection, "create table work (message_id uuid not null)").await;
        Self {
            pool: pool_of(deployment.database.options.clone()),
            deployment,
            broker,
        }
    }

    pub(super) async fn published(&self, count: usize) -> Vec<Uuid> {
        let ids: Vec<Uuid> = (0..count).map(|_| random_id()).collect();
        for id in &ids {
            self.broker.publish(Some(*id)).await;
        }
        ids
    }

    pub(super) async fn consumer(&self) -> Consumer<B::Delivery> {
        self.consumer_on(self.pool.clone()).await
    }

    pub(super) async fn consumer_on(&self, pool: PgPool) -> Consumer<B::Delivery> {
        consumer(self.inbox().await, pool, IdSource::header(ID))
    }

    #[cfg(feature = "nats")] // the only one that has coordinates to look at
    pub(super) async fn consumer_by(&self, id: IdSource<B::Delivery>) -> Consumer<B::Delivery> {
        consumer(self.inbox().await, self.pool.clone(), id)
    }

    pub(super) async fn inbox(&self) -> Inbox {
        let mut connection = self.deployment.database.connect().await;
        Inbox::open(&mut connection, "public.inbox").await.unwrap()
    }

    /// Runs a consumer until the broker has nothing left, however often that takes.
    pub(super) async fn run_dry<H, E>(&self, consumer: &Consumer<B::Delivery>, handler: H)
    where
        H: AsyncFn(&mut Transaction<'_, Postgres>, &B::Delivery) -> Result<(), E>,
        E: Into<inboxd::claim::BoxError>,
    {
        for _ in 0..RUNS {
            let source = self.broker.source().await;
            in_time(B::run(consumer, source, self.broker.quiet(), &handler)).await;
            if self.broker.left().await == 0 {
                return;
            }
        }
        panic!("messages are left after {RUNS} runs of a consumer");
    }

    /// Runs a consumer of it until something has happened.
    pub(super) async fn run<H, E>(&self, consumer: &Consumer<B::Delivery>, until: impl Future<Output = ()>, handler: H)
    where
        H: AsyncFn(&mut Transaction<'_, Postgres>, &B::Delivery) -> Result<(), E>,
        E: Into<inboxd::claim::BoxError>,
    {
        in_time(B::run(consumer, self.broker.source().await, until, handler)).await;
    }

    /// How often the work of each message was done, sorted by message.
    pub(super) async fn done(&self) -> Vec<(Uuid, i64)> {
        sqlx::query_as("select message_id, count(*) from work group by 1 order by 1")
            .fetch_all(&mut self.deployment.database.connect().await)
            .await
            .unwrap()
    }

    /// Every id's work is done exactly once, no message is lost, and nothing is dead.
    pub(super) async fn assert_done_once(&self, ids: &[Uuid]) {
        assert!(self.assert_done_once_but(ids, &[]).await.is_empty());
    }

    /// The same, but for the poison, which is all that is dead.
    pub(super) async fn assert_done_once_but(&self, ids: &[Uuid], poison: &[Uuid]) -> Vec<Dead> {
        let healthy = ids.iter().filter(|id| !poison.contains(id));
        let mut expected: Vec<(Uuid, i64)> = healthy.map(|id| (*id, 1)).collect();
        expected.sort();
        assert_eq!(self.done().await, expected);
        assert_eq!(self.broker.left().await, 0, "messages are left with the broker");
        let dead = self.broker.dead().await;
        let mut found: Vec<&str> = dead.iter().map(|dead| &*dead.payload).collect();
        found.sort_unstable();
        let mut expected: Vec<String> = poison.iter().map(Uuid::to_string).collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "{dead:?}");
        dead
    }
}

/// A consumer that waits for nothing longer than a test wants to.
pub(super) fn consumer<D: Delivery>(inbox: Inbox, pool: PgPool, id: IdSource<D>) -> Consumer<D> {
    Consumer::new(inbox.with_wait(Duration::from_millis(100)), pool, id)
        .with_concurrency(CONCURRENCY.into())
        .with_batch(BATCH, BATCH_WAIT)
        .with_pauses(Duration::from_millis(20), Duration::from_millis(300))
        .with_settle_deadline(Duration::from_secs(5))
        .with_in_flight_patience(Duration::from_secs(1))
}

/// A pool that notices soon that the database is away.
pub(super) fn pool_of(options: PgConnectOptions) -> PgPool {
    pool::options(CONCURRENCY.into())
        .acquire_timeout(Duration::from_secs(2))
        .connect_lazy_with(options)
}

pub(super) fn id_in(delivery: &impl Delivery) -> Uuid {
    delivery.header(ID).unwrap().parse().unwrap()
}

/// The work of a message.
pub(super) async fn work<D: Delivery>(tx: &mut Transaction<'_, Postgres>, delivery: &D) -> Result<(), sqlx::Error> {
    sqlx::query("insert into work values ($1)")
        .bind(id_in(delivery))
        .execute(&mut **tx)
        .await
        .map(|_| ())
}

/// The work of the messages of a batch.
pub(super) async fn work_on_all<D: Delivery>(
    tx: &mut Transaction<'_, Postgres>,
    deliveries: &[&D],
) -> Result<(), sqlx::Error> {
    for delivery in deliveries {
        work(tx, *delivery).await?;
    }
    Ok(())
}

/// Returns once a question is answered with yes. Bounded by [`in_time`] of what it is the end of: a long queue takes its time.
pub(super) async fn until(question: impl AsyncFn() -> bool) {
    while !question().await {
        tokio::time::sleep(LOOK).await;
    }
}

pub(super) async fn in_time<F: Future>(running: F) -> F::Output {
    tokio::time::timeout(PATIENCE, running)
        .await
        .expect("the consumer ends")
}
