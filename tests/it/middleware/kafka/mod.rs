//! The middleware on Kafka's protocol, against Tansu and against librdkafka's mock cluster, and a real PostgreSQL.
//!
//! Apache Kafka itself cannot be had from a package registry.

mod conformance;
mod failures;
mod killed;
mod outages;
mod rebalance;
mod settled;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use inboxd::claim::{
    BoxError, Inbox,
    middleware::{
        Consumer, Delivery, IdSource, Source,
        kafka::{
            KafkaDelivery, KafkaSource, Rejected,
            rdkafka::{
                ClientConfig, Message, Offset, TopicPartitionList,
                consumer::{BaseConsumer, Consumer as _},
                error::KafkaError,
                message::{Header, Headers, OwnedHeaders, OwnedMessage},
                producer::{BaseProducer, BaseRecord, Producer},
            },
        },
    },
};
use sqlx::{PgPool, Postgres, Transaction, postgres::PgConnectOptions};
use uuid::Uuid;

pub(super) use self::conformance::Kafka;

use crate::support::{
    claims::eventually,
    inbox::{Deployment, random_id, spec, sql},
    kafka::Broker,
    pool,
};

/// Where a message's id stands.
const ID: &str = "event-id";
const TOPIC: &str = "orders";
const DEAD: &str = "dead";
const GROUP: &str = "workers";
const PARTITIONS: i32 = 3;

/// Only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(90);

/// Scenarios about the group and its offsets, on both brokers.
macro_rules! on_both_brokers {
    ($($scenario:ident)*) => {
        crate::middleware::kafka::on_tansu! { $($scenario)* }
        mod on_the_mock_cluster {
            $(#[tokio::test]
            async fn $scenario() {
                super::$scenario(super::Place::on(crate::support::kafka::Broker::mock()).await).await;
            })*
        }
    };
}
/// Scenarios about single deliveries, for which one broker is as good as the other.
macro_rules! on_tansu {
    ($($scenario:ident)*) => {
        mod on_tansu {
            $(#[tokio::test]
            async fn $scenario() {
                super::$scenario(super::Place::on(crate::support::kafka::Broker::tansu()).await).await;
            })*
        }
    };
}
use {on_both_brokers, on_tansu};

struct Place {
    deployment: Deployment,
    pool: PgPool,
    producer: BaseProducer,
    /// Asks for the group's offsets without being a member.
    observer: Arc<BaseConsumer>,
    /// How many messages each partition has.
    ends: Mutex<[i64; PARTITIONS as usize]>,
    // Dropped last: its clients say goodbye to it.
    broker: Broker,
}

impl Place {
    async fn on(broker: Broker) -> Self {
        let deployment = Deployment::running(vec![spec("public.inbox")]).await;
        sql(
            &mut deployment.database.connect().await,
            "create table work (message_id uuid not null)",
        )
        .await;
        broker.create_topic(TOPIC, PARTITIONS);
        broker.create_topic(DEAD, 1);
        let servers = broker.bootstrap_servers();
        Self {
            pool: pool_of(deployment.database.options.clone()),
            deployment,
            producer: config(&servers).set("enable.idempotence", "true").create().unwrap(),
            observer: Arc::new(config(&servers).set("group.id", GROUP).create().unwrap()),
            ends: Mutex::default(),
            broker,
        }
    }

    /// The configuration of a member.
    fn config(&self) -> ClientConfig {
        member_config(&self.broker.bootstrap_servers())
    }

    fn source(&self) -> KafkaSource {
        source_of(self.config())
    }

    async fn consumer(&self) -> Consumer<KafkaDelivery> {
        self.consumer_on(self.pool.clone()).await
    }

    async fn consumer_on(&self, pool: PgPool) -> Consumer<KafkaDelivery> {
        let inbox = Inbox::open(&mut self.deployment.database.connect().await, "public.inbox")
            .await
            .unwrap()
            .with_wait(Duration::from_millis(100));
        consumer_of(inbox, pool)
    }

    /// Publishes to partitions in turn, and returns once the broker has it all.
    fn publish_to(&self, partitions: &[i32], ids: &[Option<Uuid>]) {
        for (id, partition) in ids.iter().zip(partitions.iter().cycle()) {
            let text = id.unwrap_or_default().to_string();
            let mut record = BaseRecord::to(TOPIC).partition(*partition).key("key").payload(&text);
            if id.is_some() {
                record = record.headers(OwnedHeaders::new().insert(Header {
                    key: ID,
                    value: Some(&text),
                }));
            }
            self.producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        self.producer.flush(PATIENCE).unwrap();
        // Only now: nobody shall wait for what is not there.
        let mut ends = self.ends.lock().unwrap();
        for (_, partition) in ids.iter().zip(partitions.iter().cycle()) {
            ends[usize::try_from(*partition).unwrap()] += 1;
        }
    }

    fn publish(&self, ids: &[Option<Uuid>]) {
        self.publish_to(&[0, 1, 2], ids);
    }

    fn published(&self, count: usize) -> Vec<Uuid> {
        self.published_to(&[0, 1, 2], count)
    }

    fn published_to(&self, partitions: &[i32], count: usize) -> Vec<Uuid> {
        let ids: Vec<Uuid> = (0..count).map(|_| random_id()).collect();
        self.publish_to(partitions, &ids.iter().copied().map(Some).collect::<Vec<_>>());
        ids
    }

    async fn committed(&self) -> [i64; PARTITIONS as usize] {
        committed_by(&self.observer).await
    }

    /// Returns once every message is behind the group's offsets.
    async fn all_settled(&self) {
        let settled = async {
            let mut tick = tokio::time::interval(Duration::from_millis(50));
            loop {
                tick.tick().await;
                let ends = *self.ends.lock().unwrap();
                if self.committed().await == ends {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, settled)
            .await
            .expect("every message is settled");
    }

    /// The mock cluster does not tell. Tansu tells nothing while there are members, so that they left is what it says.
    async fn assert_members_left(&self) {
        if let Broker::Mock(_) = self.broker {
            return;
        }
        let observer = Arc::clone(&self.observer);
        let ask = move || {
            let list = observer.fetch_group_list(Some(GROUP), Duration::from_secs(20)).unwrap();
            list.groups()
                .iter()
                .map(|group| group.state().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(tokio::task::spawn_blocking(ask).await.unwrap(), ["Empty"]);
    }

    async fn done_count(&self) -> usize {
        self.done().await.len()
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

    async fn dead(&self) -> Vec<OwnedMessage> {
        dead_letters(&self.broker.bootstrap_servers()).await
    }
}

fn config(servers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", servers)
        .set("reconnect.backoff.max.ms", "500");
    config
}

fn member_config(servers: &str) -> ClientConfig {
    let mut config = config(servers);
    config
        .set("group.id", GROUP)
        // So soon a member that was killed is given up.
        .set("session.timeout.ms", "4000")
        .set("heartbeat.interval.ms", "300");
    config
}

fn source_of(config: ClientConfig) -> KafkaSource {
    KafkaSource::new(config, [TOPIC], Rejected::to_topic(DEAD))
        .unwrap()
        .with_commit_interval(Duration::from_millis(50))
}

fn consumer_of(inbox: Inbox, pool: PgPool) -> Consumer<KafkaDelivery> {
    Consumer::new(inbox, pool, IdSource::header(ID))
        .with_concurrency(4)
        .with_pauses(Duration::from_millis(20), Duration::from_millis(300))
}

/// A pool that notices soon that the database is away.
fn pool_of(options: PgConnectOptions) -> PgPool {
    pool::options(4)
        .acquire_timeout(Duration::from_secs(2))
        .connect_lazy_with(options)
}

fn id_in(delivery: &KafkaDelivery) -> Uuid {
    delivery.header(ID).unwrap().parse().unwrap()
}

/// The work of a message.
async fn work(tx: &mut Transaction<'_, Postgres>, delivery: &KafkaDelivery) -> Result<(), sqlx::Error> {
    sqlx::query("insert into work values ($1)")
        .bind(id_in(delivery))
        .execute(&mut **tx)
        .await
        .map(|_| ())
}

async fn in_time<F: Future>(running: F) -> F::Output {
    tokio::time::timeout(PATIENCE, running).await.expect("it ends in time")
}

/// A text header of a record.
fn header(message: &OwnedMessage, name: &str) -> Option<String> {
    let found = message.headers()?.iter().find(|header| header.key == name)?;
    Some(String::from_utf8(found.value?.to_vec()).unwrap())
}

/// A source that counts what it delivers.
struct Counted(KafkaSource, Arc<AtomicU32>);

impl Source for Counted {
    type Delivery = KafkaDelivery;

    async fn connect(&mut self) -> Result<bool, BoxError> {
        self.0.connect().await
    }

    async fn next(&mut self) -> Result<Option<KafkaDelivery>, BoxError> {
        let delivery = self.0.next().await?;
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(delivery)
    }

    fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        self.0.closed()
    }
}

/// The group's offset of each partition; 0 where it has none.
async fn committed_by(observer: &Arc<BaseConsumer>) -> [i64; PARTITIONS as usize] {
    let observer = Arc::clone(observer);
    let ask = move || {
        let mut list = TopicPartitionList::new();
        list.add_partition_range(TOPIC, 0, PARTITIONS - 1);
        let answer = observer.committed_offsets(list, Duration::from_secs(5)).ok()?;
        Some(std::array::from_fn(|partition| {
            let found = answer.find_partition(TOPIC, i32::try_from(partition).unwrap()).unwrap();
            match found.offset() {
                Offset::Offset(offset) => offset,
                _ => 0,
            }
        }))
    };
    for _ in 0..30 {
        if let Some(committed) = tokio::task::spawn_blocking(ask.clone()).await.unwrap() {
            return committed;
        }
    }
    panic!("the broker does not tell the offsets");
}

/// The dead letters, all of them.
async fn dead_letters(servers: &str) -> Vec<OwnedMessage> {
    let mut config = config(servers);
    // By its end, not by the offset of it: where a batch has two letters, Tansu names the first one's as the last.
    config.set("group.id", "undertaker").set("enable.partition.eof", "true");
    let read = move || {
        let reader: BaseConsumer = config.create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(DEAD, 0, Offset::Beginning).unwrap();
        reader.assign(&list).unwrap();
        let mut letters = Vec::new();
        loop {
            match reader.poll(PATIENCE).expect("the dead letters end") {
                Ok(letter) => letters.push(letter.detach()),
                Err(KafkaError::PartitionEOF(_)) => return letters,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}
