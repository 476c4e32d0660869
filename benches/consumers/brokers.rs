//! Each broker: a queue that is filled, our source of it, and a consumer of it written by hand.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_nats::{
    HeaderMap,
    jetstream::{self, consumer::PullConsumer},
};
use futures_util::{StreamExt, future::join_all, stream};
use inboxd::claim::middleware::{
    Delivery, Source,
    kafka::{
        KafkaSource, Rejected,
        rdkafka::{
            ClientConfig, Message,
            consumer::{BaseConsumer, Consumer},
            message::{Header, Headers, OwnedHeaders, OwnedMessage},
            producer::{BaseProducer, BaseRecord, Producer},
        },
    },
    nats::NatsSource,
    rabbitmq::RabbitSource,
};
use lapin::{
    BasicProperties, Connection, ConnectionProperties,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
        QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable},
};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::support::{kafka, nats::NatsServer, rabbit::RabbitServer};

/// The header in which a message's id stands.
pub(crate) const ID: &str = "event-id";

pub(crate) trait Peer {
    type Source: Source<Delivery: Delivery + Sync>;

    /// A new queue with a message of each id.
    async fn filled(&self, ids: &[Uuid]) -> String;

    async fn source(&self, queue: &str, at_once: usize) -> Self::Source;

    /// Handles so many messages, so many at once, and acks each after it.
    async fn by_hand(&self, queue: &str, messages: usize, at_once: usize, handle: impl AsyncFn(Uuid));
}

fn new_name() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    format!("queue-{}", NUMBER.fetch_add(1, Ordering::SeqCst))
}

pub(crate) struct Nats {
    _server: NatsServer,
    context: jetstream::Context,
}

impl Nats {
    pub(crate) async fn start() -> Self {
        let server = NatsServer::start();
        let client = async_nats::connect(server.url()).await.unwrap();
        Self {
            _server: server,
            context: jetstream::new(client),
        }
    }
}

impl Peer for Nats {
    type Source = NatsSource;

    async fn filled(&self, ids: &[Uuid]) -> String {
        let name = new_name();
        let config = jetstream::stream::Config {
            name: name.clone(),
            subjects: vec![name.clone()],
            ..Default::default()
        };
        let stream = self.context.create_stream(config).await.unwrap();
        let config = jetstream::consumer::pull::Config {
            durable_name: Some("worker".to_owned()),
            ..Default::default()
        };
        stream.create_consumer(config).await.unwrap();
        let publish = |id: &Uuid| {
            let mut headers = HeaderMap::new();
            headers.insert(ID, id.to_string());
            self.context.publish_with_headers(name.clone(), headers, "order".into())
        };
        // As many as the server takes without a word.
        stream::iter(ids)
            .for_each_concurrent(100, async |id| drop(publish(id).await.unwrap().await.unwrap()))
            .await;
        name
    }

    async fn source(&self, queue: &str, at_once: usize) -> NatsSource {
        NatsSource::new(self.context.clone(), queue, "worker", at_once)
    }

    async fn by_hand(&self, queue: &str, messages: usize, at_once: usize, handle: impl AsyncFn(Uuid)) {
        let stream = self.context.get_stream(queue).await.unwrap();
        let consumer: PullConsumer = stream.get_consumer("worker").await.unwrap();
        let taken = consumer
            .stream()
            .max_messages_per_batch(at_once)
            .messages()
            .await
            .unwrap();
        taken
            .take(messages)
            .for_each_concurrent(at_once, async |message| {
                let message = message.unwrap();
                let id = message.headers.as_ref().unwrap().get(ID).unwrap().as_str();
                handle(id.parse().unwrap()).await;
                message.double_ack().await.unwrap();
            })
            .await;
    }
}

pub(crate) struct Rabbit(RabbitServer);

impl Rabbit {
    pub(crate) fn start() -> Self {
        Self(RabbitServer::start(None))
    }

    async fn connect(&self) -> Connection {
        Connection::connect(&self.0.uri(), ConnectionProperties::default())
            .await
            .unwrap()
    }
}

impl Peer for Rabbit {
    type Source = RabbitSource;

    async fn filled(&self, ids: &[Uuid]) -> String {
        let name = new_name();
        let channel = self.connect().await.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        let options = QueueDeclareOptions::durable();
        channel
            .queue_declare((&*name).into(), options, arguments)
            .await
            .unwrap();
        let mut confirms = Vec::new();
        for id in ids {
            let mut headers = FieldTable::default();
            headers.insert(ID.into(), AMQPValue::LongString(id.to_string().into()));
            let properties = BasicProperties::default().with_headers(headers).with_delivery_mode(2);
            let options = BasicPublishOptions::default();
            let sent = channel.basic_publish("".into(), (&*name).into(), options, b"order", properties);
            confirms.push(sent.await.unwrap());
        }
        join_all(confirms).await;
        name
    }

    async fn source(&self, queue: &str, at_once: usize) -> RabbitSource {
        RabbitSource::new(self.0.uri(), queue, at_once.try_into().unwrap())
    }

    async fn by_hand(&self, queue: &str, messages: usize, at_once: usize, handle: impl AsyncFn(Uuid)) {
        let connection = self.connect().await;
        let channel = connection.create_channel().await.unwrap();
        let prefetch = at_once.try_into().unwrap();
        channel.basic_qos(prefetch, BasicQosOptions::default()).await.unwrap();
        let options = BasicConsumeOptions::default();
        let consumer = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
        consumer
            .await
            .unwrap()
            .take(messages)
            .for_each_concurrent(at_once, async |delivery| {
                let delivery = delivery.unwrap();
                let headers = delivery.properties.headers().as_ref().unwrap();
                let Some(AMQPValue::LongString(id)) = headers.inner().get(ID) else {
                    panic!("a message without an id");
                };
                handle(id.to_string().parse().unwrap()).await;
                delivery.ack(BasicAckOptions::default()).await.unwrap();
            })
            .await;
    }
}

/// On librdkafka's mock cluster: on Tansu the consumer written by hand stood still in some rounds, polling without a message to
/// come, and it is not known yet whose fault that is.
pub(crate) struct Kafka(kafka::Broker);

impl Kafka {
    pub(crate) fn start() -> Self {
        Self(kafka::Broker::mock())
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.0.bootstrap_servers());
        config
    }

    fn member(&self, queue: &str) -> ClientConfig {
        let mut config = self.config();
        config.set("group.id", queue).set("auto.offset.reset", "earliest");
        config
    }
}

impl Peer for Kafka {
    type Source = KafkaSource;

    async fn filled(&self, ids: &[Uuid]) -> String {
        let name = new_name();
        self.0.create_topic(&name, 3);
        let producer: BaseProducer = self.config().set("enable.idempotence", "true").create().unwrap();
        for (id, partition) in ids.iter().zip((0..3).cycle()) {
            let id = id.to_string();
            let header = Header {
                key: ID,
                value: Some(&id),
            };
            let record = BaseRecord::<(), str>::to(&name).partition(partition).payload("order");
            let record = record.headers(OwnedHeaders::new().insert(header));
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        producer.flush(Duration::from_secs(60)).unwrap();
        name
    }

    async fn source(&self, queue: &str, _: usize) -> KafkaSource {
        KafkaSource::new(self.member(queue), [queue], Rejected::Discard).unwrap()
    }

    /// It stores offsets as handlers end, with gaps: nobody writes a cheaper one, and it loses messages in a crash.
    async fn by_hand(&self, queue: &str, messages: usize, at_once: usize, handle: impl AsyncFn(Uuid)) {
        let mut config = self.member(queue);
        config
            .set("enable.auto.offset.store", "false")
            .set("auto.commit.interval.ms", "1000");
        let consumer: Arc<BaseConsumer> = Arc::new(config.create().unwrap());
        consumer.subscribe(&[queue]).unwrap();
        let (sender, taken) = mpsc::channel::<OwnedMessage>(200);
        let polling = std::thread::spawn({
            let consumer = Arc::clone(&consumer);
            move || {
                while !sender.is_closed() {
                    if let Some(message) = consumer.poll(Duration::from_millis(100))
                        && sender.blocking_send(message.unwrap().detach()).is_err()
                    {
                        break;
                    }
                }
                // A client that is dropped while it has partitions may wait for ever.
                consumer.unsubscribe();
                for _ in 0..50 {
                    if consumer.assignment().unwrap().count() == 0 {
                        break;
                    }
                    drop(consumer.poll(Duration::from_millis(100)));
                }
            }
        });
        let taken = stream::unfold(taken, async |mut taken| Some((taken.recv().await?, taken)));
        taken
            .take(messages)
            .for_each_concurrent(at_once, async |message| {
                let header = message.headers().unwrap().iter().find(|header| header.key == ID);
                let id = str::from_utf8(header.unwrap().value.unwrap()).unwrap();
                handle(id.parse().unwrap()).await;
                // Behind the last one the partition may have been given up already.
                let _ = consumer.store_offset(message.topic(), message.partition(), message.offset());
            })
            .await;
        // Leaving the group blocks.
        tokio::task::spawn_blocking(move || polling.join().map(|()| drop(consumer)))
            .await
            .unwrap()
            .unwrap();
    }
}
