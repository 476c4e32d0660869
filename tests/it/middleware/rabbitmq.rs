//! RabbitMQ: how scenarios run on it, and what only it has.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use inboxd::claim::middleware::{
    Delivery, Source, State,
    rabbitmq::{RabbitDelivery, RabbitSource},
};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use sqlx::{Postgres, Transaction};
use tokio::sync::{Mutex, MutexGuard};
use tracing::instrument::WithSubscriber;
use uuid::Uuid;

use super::{
    broker::{Broker, Dead, ID},
    examples,
    place::{ACK_TIMEOUT, CONCURRENCY, Place, in_time, until, work},
};
use crate::support::{
    claims::eventually,
    inbox::random_id,
    log::Log,
    rabbit::{self, RabbitServer},
};

/// For one test at a time. It is never dropped; its watchdogs end it.
static APART: LazyLock<Mutex<RabbitServer>> = LazyLock::new(|| Mutex::new(RabbitServer::start(Some(ACK_TIMEOUT))));

pub(super) struct Rabbit {
    uri: String,
    apart: Option<std::sync::Mutex<MutexGuard<'static, RabbitServer>>>,
    queue: String,
    dead_queue: String,
    channel: Mutex<Option<Channel>>,
    dead: Mutex<Vec<Dead>>,
}

impl Broker for Rabbit {
    const MODULE: &'static str = "on_rabbitmq";

    type Delivery = RabbitDelivery;
    type Source = RabbitSource;

    async fn start() -> Self {
        Self::at(rabbit::shared().uri(), None).await
    }

    async fn start_apart() -> Self {
        let apart = APART.lock().await;
        Self::at(apart.uri(), Some(std::sync::Mutex::new(apart))).await
    }

    fn address(&self) -> String {
        format!("{} {} {}", self.uri, self.queue, self.dead_queue)
    }

    async fn source_at(address: &str) -> RabbitSource {
        let [uri, queue, dead_queue] = address.split(' ').collect::<Vec<_>>().try_into().unwrap();
        RabbitSource::new(uri, queue, CONCURRENCY).with_dead_letter("", Some(dead_queue.to_owned()))
    }

    fn example(&self) -> (&'static str, Vec<(&'static str, String)>) {
        let environment = vec![
            ("AMQP_URL", self.uri.clone()),
            ("AMQP_QUEUE", self.queue.clone()),
            ("AMQP_DEAD_LETTER_QUEUE", self.dead_queue.clone()),
        ];
        ("rabbitmq_consumer", environment)
    }

    async fn publish(&self, id: Option<Uuid>) {
        let mut properties = BasicProperties::default().with_delivery_mode(2);
        if let Some(id) = id {
            let mut headers = FieldTable::default();
            headers.insert(ID.into(), AMQPValue::LongString(id.to_string().into()));
            properties = properties.with_headers(headers).with_message_id(id.to_string().into());
        }
        self.publish_with(properties, &id.unwrap_or_default().to_string()).await;
    }

    async fn quiet(&self) {
        let ready = async || self.look(&self.queue).await.is_some_and(|(ready, _)| ready == 0);
        until(async || {
            for _ in 0..3 {
                if !ready().await {
                    return false;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            true
        })
        .await;
    }

    async fn left(&self) -> u64 {
        // What a consumer held is back once the queue has seen it go.
        let no_consumer = async || {
            self.look(&self.queue)
                .await
                .is_some_and(|(_, consumers)| consumers == 0)
        };
        eventually("the consumer is gone", no_consumer).await;
        self.look(&self.queue).await.unwrap().0.into()
    }

    async fn dead(&self) -> Vec<Dead> {
        let channel = self.channel().await.unwrap();
        let mut dead = self.dead.lock().await;
        let taken_off = BasicGetOptions { no_ack: true };
        while let Some(message) = channel.basic_get((&*self.dead_queue).into(), taken_off).await.unwrap() {
            let headers = message.properties.headers().iter().flat_map(|table| table.inner());
            let headers = headers.filter_map(|(name, value)| match value {
                AMQPValue::LongString(text) => Some((name.as_str().to_owned(), text.to_string())),
                _ => None,
            });
            dead.push(Dead {
                headers: headers.collect(),
                payload: String::from_utf8(message.delivery.data).unwrap(),
            });
        }
        dead.clone()
    }

    fn kill(&self) {
        self.server().kill();
    }

    fn start_again(&self) {
        self.server().start_again();
    }
}

impl Rabbit {
    async fn at(uri: String, apart: Option<std::sync::Mutex<MutexGuard<'static, RabbitServer>>>) -> Self {
        let name = random_id();
        let rabbit = Self {
            uri,
            apart,
            queue: format!("orders-{name}"),
            dead_queue: format!("dead-{name}"),
            channel: Mutex::new(None),
            dead: Mutex::default(),
        };
        // A quorum queue is not found again by a node that was killed in the first seconds after it was made: version 3.10 then
        // answers a consumer of it after a minute, with 541.
        let kind = if rabbit.apart.is_some() { "classic" } else { "quorum" };
        rabbit.declare(&rabbit.queue, &[("x-queue-type", kind)]).await;
        rabbit.declare(&rabbit.dead_queue, &[]).await;
        if rabbit.apart.is_some() {
            rabbit.server().write_down_queues();
        }
        rabbit
    }

    fn server(&self) -> impl std::ops::DerefMut<Target = MutexGuard<'static, RabbitServer>> + '_ {
        self.apart.as_ref().expect("a broker that others use").lock().unwrap()
    }

    async fn declare(&self, queue: &str, arguments: &[(&str, &str)]) {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), AMQPValue::LongString((*value).into()));
        }
        let channel = self.channel().await.unwrap();
        let options = QueueDeclareOptions::durable();
        channel.queue_declare(queue.into(), options, table).await.unwrap();
    }

    async fn publish_with(&self, properties: BasicProperties, payload: &str) {
        let channel = self.channel().await.unwrap();
        let options = BasicPublishOptions::default();
        let queue = (&*self.queue).into();
        let sent = channel.basic_publish("".into(), queue, options, payload.as_bytes(), properties);
        assert!(sent.await.unwrap().await.unwrap().is_ack());
    }

    /// A channel of the test's own, with confirms; anew after the broker was killed.
    async fn channel(&self) -> Result<Channel, lapin::Error> {
        let mut slot = self.channel.lock().await;
        if let Some(channel) = slot.as_ref().filter(|channel| channel.status().connected()) {
            return Ok(channel.clone());
        }
        let connection = Connection::connect(&self.uri, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(slot.insert(channel).clone())
    }

    async fn one_dead(&self) {
        let is_there = async || self.look(&self.dead_queue).await.is_some_and(|(ready, _)| ready == 1);
        eventually("a message is dead-lettered", is_there).await;
    }

    /// How many messages wait in a queue, and how many consumers it has.
    async fn look(&self, queue: &str) -> Option<(u32, u32)> {
        let channel = self.channel().await.ok()?;
        let options = QueueDeclareOptions::durable().passive();
        let queue = channel
            .queue_declare(queue.into(), options, FieldTable::default())
            .await
            .ok()?;
        Some((queue.message_count(), queue.consumer_count()))
    }
}

#[tokio::test]
async fn poison_is_tried_as_often_as_a_quorum_queue_counts() {
    assert_eq!(
        tries_of_poison(&[("x-queue-type", "quorum")]).await,
        (3, "3".to_owned())
    );
}

#[tokio::test]
async fn poison_is_tried_as_often_as_the_consumer_counts_where_a_classic_queue_does_not() {
    assert_eq!(
        tries_of_poison(&[("x-queue-type", "classic")]).await,
        (3, "3".to_owned())
    );
}

/// How often the handler ran, and what the dead letter says of it.
async fn tries_of_poison(arguments: &[(&str, &str)]) -> (u32, String) {
    let mut place = Place::<Rabbit>::new().await;
    place.broker.queue = format!("poison-{}", random_id());
    place.broker.declare(&place.broker.queue, arguments).await;
    let ids = place.published(1).await;
    let runs = AtomicU32::new(0);
    let consumer = place.consumer().await.with_attempts(3);
    let handler = async |_: &mut Transaction<'_, Postgres>, _: &RabbitDelivery| {
        runs.fetch_add(1, Ordering::SeqCst);
        anyhow::bail!("out of stock")
    };
    in_time(consumer.run(place.broker.source().await, place.broker.one_dead(), handler)).await;
    let dead = place.assert_done_once_but(&ids, &ids).await;
    (runs.into_inner(), dead[0].header("inboxd-attempt").to_owned())
}

#[tokio::test]
async fn m4_without_a_dead_letter_exchange_a_message_goes_where_its_queue_sends_it_and_the_log_warns_once() {
    let mut place = Place::<Rabbit>::new().await;
    place.broker.queue = format!("own-dead-letters-{}", random_id());
    let arguments = [
        ("x-dead-letter-exchange", ""),
        ("x-dead-letter-routing-key", &*place.broker.dead_queue),
    ];
    place.broker.declare(&place.broker.queue, &arguments).await;
    place.broker.publish(None).await;
    let consumer = place.consumer().await;
    let (log, warning) = (Log::default(), "no dead-letter exchange is set");
    let source = RabbitSource::new(&*place.broker.uri, &*place.broker.queue, CONCURRENCY);
    let running = consumer.run(source, place.broker.one_dead(), work);
    in_time(running.with_subscriber(log.subscriber())).await;
    assert_eq!(log.text().matches(warning).count(), 1, "{}", log.text());
    assert_eq!(place.broker.left().await, 0);

    let log = Log::default();
    let running = consumer.run(place.broker.source().await, std::future::ready(()), work);
    in_time(running.with_subscriber(log.subscriber())).await;
    assert!(!log.text().contains(warning), "where one is set: {}", log.text());
}

#[tokio::test]
async fn a_rejected_message_that_no_queue_takes_stays_where_it_is() {
    let place = Place::<Rabbit>::new().await;
    // More than the broker hands out at once: none may be kept.
    let stuck = u64::from(CONCURRENCY) + 1;
    for _ in 0..stuck {
        place.broker.publish(None).await;
    }
    let ids = place.published(5).await;
    let nowhere = format!("nowhere-{}", random_id());
    let source = |exchange: &str| {
        RabbitSource::new(&*place.broker.uri, &*place.broker.queue, CONCURRENCY)
            .with_dead_letter(exchange, Some(nowhere.clone()))
    };
    let consumer = place.consumer().await;
    // With a routing key that leads nowhere, and with an exchange that is not there, at which the broker closes the channel.
    let all_done = || eventually("the others are done", async || place.done().await.len() == ids.len());
    in_time(consumer.run(source(""), all_done(), work)).await;
    assert_eq!(place.broker.left().await, stuck);
    let more = place.published(5).await;
    let all_done = || eventually("all others are done", async || place.done().await.len() == 10);
    in_time(consumer.run(source(&nowhere), all_done(), work)).await;
    assert_eq!(place.broker.left().await, stuck);
    assert!(place.broker.dead().await.is_empty());
    // And can be rejected once there is a queue.
    place.run_dry(&consumer, work).await;
    assert_eq!(place.broker.dead().await.len(), usize::from(CONCURRENCY) + 1);
    assert_eq!(place.done().await.len(), ids.len() + more.len());
}

#[tokio::test]
async fn a_queue_that_is_not_there_yet_is_found_once_it_is() {
    let mut place = Place::<Rabbit>::new().await;
    place.broker.queue = format!("late-{}", random_id());
    let consumer = place.consumer().await;
    let mut state = consumer.watch();
    let until = async {
        state.wait_for(|state| *state == State::BrokerAway).await.unwrap();
        place.broker.declare(&place.broker.queue, &[]).await;
        place.published(1).await;
        eventually("it is done", async || place.done().await.len() == 1).await;
    };
    in_time(consumer.run(place.broker.source().await, until, work)).await;
    assert_eq!(place.broker.left().await, 0);
}

#[tokio::test]
async fn m1_m7_an_ack_after_the_broker_has_closed_the_channel_is_noticed() {
    let place = Place::<Rabbit>::apart().await;
    place.published(1).await;
    let mut source = place.broker.source().await;
    let delivery = source.next().await.unwrap().unwrap();
    // The broker takes it away, and the source connects anew.
    let error = source.next().await.map(drop).unwrap_err();
    assert!(delivery.ack().await.is_err(), "after {error}");
    let again = in_time(source.next()).await.unwrap().unwrap();
    assert!(again.is_redelivered());
    again.ack().await.unwrap();
    drop(source);
    assert_eq!(place.broker.left().await, 0);
}

/// The certificate is the node's own; the example trusts it as the system trusts others, by `SSL_CERT_FILE`.
#[tokio::test]
async fn the_example_works_over_tls_with_a_certificate_that_it_trusts() {
    let place = Place::<Rabbit>::new().await;
    let (uri, certificate) = rabbit::shared().tls();
    let (name, mut environment) = place.broker.example();
    environment[0].1 = uri;
    let trusted = [("SSL_CERT_FILE", certificate.display().to_string())];
    examples::works_as_it_stands(&place, &(name, environment), &trusted).await;
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let (uri, _) = rabbit::shared().tls();
    let mut source = RabbitSource::new(uri, "orders", CONCURRENCY);
    let error = in_time(source.connect()).await.unwrap_err();
    let text = format!("{error:?}").to_lowercase();
    assert!(text.contains("certificate"), "{text}");
}
