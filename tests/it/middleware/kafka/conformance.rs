//! Kafka, as the scenarios that run on every broker see it: Tansu, and the mock cluster where a broker is killed, as Tansu keeps
//! what it holds in its memory.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use inboxd::claim::middleware::kafka::{
    KafkaDelivery, KafkaSource,
    rdkafka::{
        ClientContext,
        consumer::BaseConsumer,
        message::{DeliveryResult, Header, Headers, Message, OwnedHeaders},
        producer::{BaseRecord, ProducerContext, ThreadedProducer},
    },
};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{
    super::{
        broker::{Broker, Dead, ID},
        place::ACK_TIMEOUT,
    },
    DEAD, GROUP, PARTITIONS, TOPIC, committed_by, config, dead_letters, eventually, member_config, source_of,
};
use crate::support::kafka;

pub(in super::super) struct Kafka {
    producer: ThreadedProducer<Reports>,
    observer: Arc<BaseConsumer>,
    published: AtomicUsize,
    /// How many messages each partition has.
    ends: Mutex<[i64; PARTITIONS as usize]>,
    // Dropped last: its clients say goodbye to it.
    broker: kafka::Broker,
}

/// Tells when the broker has a message.
struct Reports;

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<oneshot::Sender<bool>>;

    fn delivery(&self, result: &DeliveryResult<'_>, sender: Self::DeliveryOpaque) {
        let _ = sender.send(result.is_ok());
    }
}

impl Kafka {
    fn on(broker: kafka::Broker) -> Self {
        broker.create_topic(TOPIC, PARTITIONS);
        broker.create_topic(DEAD, 1);
        let servers = broker.bootstrap_servers();
        Self {
            producer: config(&servers)
                .set("enable.idempotence", "true")
                .set("linger.ms", "0")
                .create_with_context(Reports)
                .unwrap(),
            observer: Arc::new(config(&servers).set("group.id", GROUP).create().unwrap()),
            published: AtomicUsize::new(0),
            ends: Mutex::default(),
            broker,
        }
    }

    fn mock(&self) -> &kafka::Mock {
        match &self.broker {
            kafka::Broker::Mock(mock) => mock,
            kafka::Broker::Tansu(_) => panic!("it was not started apart"),
        }
    }
}

impl Broker for Kafka {
    const MODULE: &'static str = "on_kafka";

    type Delivery = KafkaDelivery;
    type Source = KafkaSource;

    async fn start() -> Self {
        Self::on(kafka::Broker::tansu())
    }

    async fn start_apart() -> Self {
        Self::on(kafka::Broker::mock())
    }

    fn address(&self) -> String {
        self.broker.bootstrap_servers()
    }

    async fn source_at(address: &str) -> KafkaSource {
        let mut config = member_config(address);
        // A session must be no longer, and no shorter than the three seconds for which the mock cluster lets a first member wait.
        config.set("max.poll.interval.ms", (ACK_TIMEOUT * 2).as_millis().to_string());
        source_of(config)
    }

    fn example(&self) -> (&'static str, Vec<(&'static str, String)>) {
        let environment = vec![
            ("KAFKA_BROKERS", self.broker.bootstrap_servers()),
            ("KAFKA_GROUP", GROUP.to_owned()),
            ("KAFKA_TOPIC", TOPIC.to_owned()),
            ("KAFKA_DEAD_LETTER", DEAD.to_owned()),
        ];
        ("kafka_consumer", environment)
    }

    async fn publish(&self, id: Option<Uuid>) {
        let nth = self.published.fetch_add(1, Ordering::SeqCst) % self.ends.lock().unwrap().len();
        let text = id.unwrap_or_default().to_string();
        let (sender, answer) = oneshot::channel();
        let mut record = BaseRecord::with_opaque_to(TOPIC, Box::new(sender))
            .partition(i32::try_from(nth).unwrap())
            .key("key")
            .payload(&text);
        if id.is_some() {
            record = record.headers(OwnedHeaders::new().insert(Header {
                key: ID,
                value: Some(&text),
            }));
        }
        self.producer.send(record).map_err(|(error, _)| error).unwrap();
        assert!(answer.await.unwrap(), "the broker has it");
        self.ends.lock().unwrap()[nth] += 1;
    }

    async fn quiet(&self) {
        eventually("every message is settled", async || self.left().await == 0).await;
    }

    async fn left(&self) -> u64 {
        let committed: i64 = committed_by(&self.observer).await.iter().sum();
        let ends: i64 = self.ends.lock().unwrap().iter().sum();
        u64::try_from(ends - committed).unwrap()
    }

    async fn dead(&self) -> Vec<Dead> {
        let letters = dead_letters(&self.broker.bootstrap_servers()).await;
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap();
        let dead = |letter: &_| {
            let letter: &inboxd::claim::middleware::kafka::rdkafka::message::OwnedMessage = letter;
            let headers = letter.headers().into_iter().flat_map(Headers::iter);
            Dead {
                payload: text(letter.payload()),
                headers: headers
                    .map(|header| (header.key.to_owned(), text(header.value)))
                    .collect(),
            }
        };
        letters.iter().map(dead).collect()
    }

    fn kill(&self) {
        self.mock().broker_down(-1).unwrap();
    }

    fn start_again(&self) {
        self.mock().broker_up(-1).unwrap();
    }
}
