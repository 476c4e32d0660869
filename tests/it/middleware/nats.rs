//! NATS JetStream: how scenarios run on it, and what only it has.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_nats::{HeaderMap, jetstream};
use inboxd::claim::middleware::{
    IdSource,
    nats::{NatsDelivery, NatsSource},
};
use sqlx::{Postgres, Transaction};
use uuid::Uuid;

use super::{
    broker::{Broker, Dead, ID},
    place::{ACK_TIMEOUT, CONCURRENCY, Place, in_time, until, work},
};
use crate::support::{claims::eventually, nats::NatsServer};

pub(super) struct Nats {
    server: Mutex<NatsServer>,
    url: String,
    context: jetstream::Context,
}

impl Broker for Nats {
    const MODULE: &'static str = "on_nats";

    type Delivery = NatsDelivery;
    type Source = NatsSource;

    /// It takes no time to start one.
    async fn start() -> Self {
        let server = NatsServer::start();
        let url = server.url();
        let context = jetstream::new(async_nats::connect(&url).await.unwrap());
        let nats = Self {
            server: Mutex::new(server),
            url,
            context,
        };
        nats.make_stream("DEAD", "dead").await;
        nats.make_orders().await;
        nats
    }

    async fn start_apart() -> Self {
        Self::start().await
    }

    fn address(&self) -> String {
        self.url.clone()
    }

    async fn source_at(url: &str) -> NatsSource {
        let context = jetstream::new(async_nats::connect(url).await.unwrap());
        NatsSource::new(context, "ORDERS", "worker", CONCURRENCY.into()).with_dead_letter("dead")
    }

    fn example(&self) -> (&'static str, Vec<(&'static str, String)>) {
        let environment = vec![
            ("NATS_URL", self.url.clone()),
            ("NATS_STREAM", "ORDERS".to_owned()),
            ("NATS_CONSUMER", "worker".to_owned()),
            ("NATS_DEAD_LETTER", "dead".to_owned()),
        ];
        ("nats_consumer", environment)
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

    async fn quiet(&self) {
        until(async || self.left().await == 0).await;
    }

    async fn left(&self) -> u64 {
        // A server that is being started again says so for a moment.
        self.info().await.map_or(u64::MAX, |info| {
            info.num_pending + u64::try_from(info.num_ack_pending).unwrap()
        })
    }

    async fn dead(&self) -> Vec<Dead> {
        let mut stream = self.context.get_stream("DEAD").await.unwrap();
        let count = stream.info().await.unwrap().state.last_sequence;
        let mut letters = Vec::new();
        for sequence in 1..=count {
            let letter = stream.get_raw_message(sequence).await.unwrap();
            let headers = letter.headers.iter().flat_map(|(name, values)| {
                let name: &str = name.as_ref();
                values.iter().map(move |value| (name.to_owned(), value.to_string()))
            });
            letters.push(Dead {
                payload: String::from_utf8(letter.payload.to_vec()).unwrap(),
                headers: headers.collect(),
            });
        }
        letters
    }

    fn kill(&self) {
        self.server.lock().unwrap().kill();
    }

    fn start_again(&self) {
        self.server.lock().unwrap().start_again();
    }
}

impl Nats {
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
            ack_wait: ACK_TIMEOUT,
            ..Default::default()
        };
        self.context.create_consumer_on_stream(config, "ORDERS").await.unwrap();
    }

    /// What the server knows of the consumer.
    async fn info(&self) -> Option<jetstream::consumer::Info> {
        let stream = self.context.get_stream("ORDERS").await.ok()?;
        stream.consumer_info("worker").await.ok()
    }
}

#[tokio::test]
async fn m7_signals_keep_a_long_handlers_message_from_being_delivered_again() {
    let place = Place::<Nats>::new().await;
    let ids = place.published(1).await;
    let consumer = place.consumer().await;
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &NatsDelivery| {
        tokio::time::sleep(ACK_TIMEOUT * 2).await;
        work(tx, delivery).await
    };
    in_time(consumer.run(place.broker.source().await, place.broker.quiet(), handler)).await;
    place.assert_done_once(&ids).await;
    let info = place.broker.info().await.unwrap();
    assert_eq!((info.num_redelivered, info.delivered.consumer_sequence), (0, 1));
}

#[tokio::test]
async fn m10_coordinates_do_not_repeat_when_the_stream_is_made_again() {
    let place = Place::<Nats>::new().await;
    place.broker.publish(None).await;
    let runs = AtomicU32::new(0);
    let consumer = place.consumer_by(IdSource::Coordinates).await;
    let handler = async |_: &mut Transaction<'_, Postgres>, _: &NatsDelivery| {
        runs.fetch_add(1, Ordering::SeqCst);
        Ok::<_, sqlx::Error>(())
    };
    place.run_dry(&consumer, &handler).await;
    // It counts from one again: its messages are others.
    place.broker.context.delete_stream("ORDERS").await.unwrap();
    place.broker.make_orders().await;
    place.broker.publish(None).await;
    place.run_dry(&consumer, &handler).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    place.assert_done_once(&[]).await;
}

#[tokio::test]
async fn poison_is_tried_as_often_as_the_server_counts() {
    let place = Place::<Nats>::new().await;
    let ids = place.published(1).await;
    let runs = AtomicU32::new(0);
    let consumer = place.consumer().await.with_attempts(3);
    let handler = async |_: &mut Transaction<'_, Postgres>, _: &NatsDelivery| {
        runs.fetch_add(1, Ordering::SeqCst);
        anyhow::bail!("out of stock")
    };
    in_time(consumer.run(place.broker.source().await, place.broker.quiet(), handler)).await;
    let dead = place.assert_done_once_but(&ids, &ids).await;
    assert_eq!(
        (runs.load(Ordering::SeqCst), dead[0].header("inboxd-attempt")),
        (3, "3")
    );
}

#[tokio::test]
async fn a_consumer_that_is_deleted_and_made_again_is_found_again() {
    let place = Place::<Nats>::new().await;
    let ids = place.published(2).await;
    let consumer = place.consumer().await;
    let until = async {
        eventually("all is done", async || place.done().await.len() == 2).await;
        let stream = place.broker.context.get_stream("ORDERS").await.unwrap();
        stream.delete_consumer("worker").await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        place.broker.context.delete_stream("ORDERS").await.unwrap();
        place.broker.make_orders().await;
        place.broker.publish(Some(ids[0])).await;
        place.broker.publish(Some(ids[1])).await;
        place.broker.quiet().await;
    };
    in_time(consumer.run(place.broker.source().await, until, work)).await;
    place.assert_done_once(&ids).await;
}
