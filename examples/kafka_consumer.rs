//! A consumer of Kafka that writes only its handler.
//!
//! ```sh
//! export DATABASE_URL=postgres://user:password@host/database   # where `inboxd init` and `inboxd run` have been
//! export KAFKA_BROKERS=127.0.0.1:9092 KAFKA_GROUP=workers KAFKA_TOPIC=orders KAFKA_DEAD_LETTER=orders-dead
//! PUBLISH=3 cargo run --example kafka_consumer --features kafka   # makes the topics, and sends three messages twice
//! cargo run --example kafka_consumer --features kafka             # works on each of them once; Ctrl-C ends it
//! ```
//! To consume, both topics must be there. Each message has its id in the header `event-id`.

use std::{env, error::Error, time::Duration};

use chrono::Utc;
use inboxd::claim::{
    Inbox, MessageId,
    middleware::{
        Consumer, Delivery, IdSource,
        kafka::{
            KafkaDelivery, KafkaSource, Rejected,
            rdkafka::{
                ClientConfig,
                admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
                client::DefaultClientContext,
                message::{Header, OwnedHeaders},
                producer::{BaseProducer, BaseRecord, Producer},
                types::RDKafkaErrorCode,
            },
        },
    },
};
use sqlx::{Postgres, Transaction, postgres::PgPoolOptions};

const CONCURRENCY: usize = 8;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    if let Ok(count) = env::var("PUBLISH") {
        let count = count
            .parse()
            .map_err(|_| format!("PUBLISH says how many messages, and {count:?} is no number"))?;
        return publish(count).await;
    }
    let pool = PgPoolOptions::new()
        .max_connections(u32::try_from(CONCURRENCY)?)
        .acquire_timeout(Duration::from_secs(5))
        .connect(&variable("DATABASE_URL")?)
        .await?;
    let inbox = Inbox::open(&mut *pool.acquire().await?, "public.inbox")
        .await?
        .with_handler_timeout(Duration::from_secs(30));
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", variable("KAFKA_BROKERS")?)
        .set("group.id", variable("KAFKA_GROUP")?);
    let rejected = Rejected::to_topic(variable("KAFKA_DEAD_LETTER")?);
    let source = KafkaSource::new(config, [variable("KAFKA_TOPIC")?], rejected)?;
    let shutdown = async {
        // Where it cannot be listened for, nothing ends the consumer but a signal that kills.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    Consumer::new(inbox, pool, IdSource::header("event-id"))
        .with_concurrency(CONCURRENCY)
        .run(source, shutdown, handle)
        .await;
    Ok(())
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("set {name}; the first lines of this example say to what"))
}

/// Makes the topics where they are missing, and sends messages, each twice, as a broker may deliver it.
async fn publish(count: usize) -> Result<(), Box<dyn Error>> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", variable("KAFKA_BROKERS")?);
    let (topic, dead) = (variable("KAFKA_TOPIC")?, variable("KAFKA_DEAD_LETTER")?);
    let admin: AdminClient<DefaultClientContext> = config.create()?;
    let topics = [&topic, &dead].map(|name| NewTopic::new(name, 3, TopicReplication::Fixed(1)));
    for made in admin.create_topics(&topics, &AdminOptions::new()).await? {
        match made {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((name, why)) => return Err(format!("cannot make the topic {name}: {why}").into()),
        }
    }
    let producer: BaseProducer = config.create()?;
    #[expect(clippy::disallowed_methods, reason = "a producer, and no part of the library")]
    let now = Utc::now();
    for order in 0..count {
        let id = MessageId::time_ordered(now, format!("order {order}"))?.to_string();
        for _ in 0..2 {
            let header = Header {
                key: "event-id",
                value: Some(&id),
            };
            let record = BaseRecord::<str, str>::to(&topic)
                .payload("an order")
                .headers(OwnedHeaders::new().insert(header));
            producer.send(record).map_err(|(why, _)| why)?;
        }
    }
    producer.flush(Duration::from_secs(10))?;
    Ok(())
}

/// The business work. All of it goes through `tx`; what does not is neither rolled back nor done only once.
async fn handle(tx: &mut Transaction<'_, Postgres>, delivery: &KafkaDelivery) -> Result<(), sqlx::Error> {
    tracing::info!(topic = %delivery.topic(), "worked on a message");
    sqlx::query("select set_config('example.last_topic', $1, true)")
        .bind(delivery.topic())
        .execute(&mut **tx)
        .await
        .map(|_| ())
}
