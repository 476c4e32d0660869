//! The middleware against a real NATS server and a real PostgreSQL.

mod failures;
mod outages;
mod settled;
mod spawned;

use std::{sync::Mutex, time::Duration};

use async_nats::{HeaderMap, jetstream};
use inboxd::claim::{
    Inbox,
    middleware::{
        Consumer, Delivery, IdSource,
        nats::{NatsDelivery, NatsSource},
    },
};
use sqlx::{PgPool, Postgres, Transaction, postgres::PgConnectOptions};
use uuid::Uuid;

use crate::support::{
    claims::eventually,
    inbox::{Deployment, random_id, spec, sql},
    nats::NatsServer,
    pool,
};

/// Where a message's id stands.
const ID: &str = "event-id";

/// Short, so that a redelivery does not let a test wait; three signals fit into it on a loaded machine.
const ACK_WAIT: Duration = Duration::from_secs(2);

/// Only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(90);

struct Place {
    deployment: Deployment,
    pool: PgPool,
    nats: Mutex<NatsServer>,
    context: jetstream::Context,
}

impl Place {
    async fn new() -> Self {
        Self::of(Deployment::running(vec![spec("public.inbox")]).await).await
    }

    async fn of(deployment: Deployment) -> Self {
        sql(
            &mut deployment.database.connect().await,
            "create table work (message_id uuid not null)",
        )
        .await;
        let nats = NatsServer::start();
        let client = async_nats::connect(nats.url()).await.unwrap();
        let context = jetstream::new(client);
        let place = Self {
            pool: pool_of(deployment.database.options.clone()),
            deployment,
            nats: Mutex::new(nats),
            context,
        };
        place.make_stream("DEAD", "dead").await;
        place.make_orders().await;
        place
    }

    async fn make_stream(&self, name: &str, subject: &str) {
        let config = jetstream::stream::Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            ..Default::default()
        };
        self.context.create_stream(config).await.unwrap();
    }

    /// The stream of the messages, with its consumer.
    async fn make_orders(&self) {
        self.make_stream("ORDERS", "orders.>").await;
        let config = jetstream::consumer::pull::Config {
            durable_name: Some("worker".to_owned()),
            ack_wait: ACK_WAIT,
            ..Default::default()
        };
        self.context.create_consumer_on_stream(config, "ORDERS").await.unwrap();
    }

    async fn publish(&self, id: Option<Uuid>) {
        let mut headers = HeaderMap::new();
        if let Some(id) = id {
            headers.insert(ID, id.to_string());
        }
        let sent = self
            .context
            .publish_with_headers("orders.new", headers, id.unwrap_or_default().to_string().into());
        sent.await.unwrap().await.unwrap();
    }

    async fn published(&self, count: usize) -> Vec<Uuid> {
        let ids: Vec<Uuid> = (0..count).map(|_| random_id()).collect();
        for id in &ids {
            self.publish(Some(*id)).await;
        }
        ids
    }

    fn source(&self) -> NatsSource {
        NatsSource::new(self.context.clone(), "ORDERS", "worker", 4).with_dead_letter("dead")
    }

    async fn consumer(&self) -> Consumer<NatsDelivery> {
        self.consumer_on(self.pool.clone()).await
    }

    async fn consumer_on(&self, pool: PgPool) -> Consumer<NatsDelivery> {
        let inbox = Inbox::open(&mut self.deployment.database.connect().await, "public.inbox")
            .await
            .unwrap()
            .with_wait(Duration::from_millis(100));
        Consumer::new(inbox, pool, IdSource::header(ID))
            .with_concurrency(4)
            .with_pauses(Duration::from_millis(20), Duration::from_millis(300))
            .with_settle_deadline(Duration::from_secs(2))
    }

    /// What the broker knows of the consumer.
    async fn info(&self) -> Option<jetstream::consumer::Info> {
        let stream = self.context.get_stream("ORDERS").await.ok()?;
        stream.consumer_info("worker").await.ok()
    }

    /// Returns once the broker has an answer for every message.
    async fn all_settled(&self) {
        eventually("every message is settled", async || {
            self.info()
                .await
                .is_some_and(|info| info.num_pending == 0 && info.num_ack_pending == 0)
        })
        .await;
    }

    /// How often the work of each message was done, sorted by message.
    async fn done(&self) -> Vec<(Uuid, i64)> {
        sqlx::query_as("select message_id, count(*) from work group by 1 order by 1")
            .fetch_all(&mut self.deployment.database.connect().await)
            .await
            .unwrap()
    }

    async fn assert_done_once(&self, ids: &[Uuid]) {
        let mut expected: Vec<(Uuid, i64)> = ids.iter().map(|id| (*id, 1)).collect();
        expected.sort();
        assert_eq!(self.done().await, expected);
    }

    /// The dead letters: their payloads and headers.
    async fn dead(&self) -> Vec<(String, HeaderMap)> {
        let mut stream = self.context.get_stream("DEAD").await.unwrap();
        let count = stream.info().await.unwrap().state.last_sequence;
        let mut letters = Vec::new();
        for sequence in 1..=count {
            let letter = stream.get_raw_message(sequence).await.unwrap();
            letters.push((String::from_utf8(letter.payload.to_vec()).unwrap(), letter.headers));
        }
        letters
    }
}

/// A pool that notices soon that the database is away.
fn pool_of(options: PgConnectOptions) -> PgPool {
    pool::options(4)
        .acquire_timeout(Duration::from_secs(2))
        .connect_lazy_with(options)
}

fn id_in(delivery: &NatsDelivery) -> Uuid {
    delivery.header(ID).unwrap().parse().unwrap()
}

/// The work of a message.
async fn work(tx: &mut Transaction<'_, Postgres>, delivery: &NatsDelivery) -> Result<(), sqlx::Error> {
    sqlx::query("insert into work values ($1)")
        .bind(id_in(delivery))
        .execute(&mut **tx)
        .await
        .map(|_| ())
}

async fn in_time<F: Future>(running: F) -> F::Output {
    tokio::time::timeout(PATIENCE, running)
        .await
        .expect("the consumer ends")
}
