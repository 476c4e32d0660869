//! A consumer of RabbitMQ that writes only its handler.
//!
//! ```sh
//! export DATABASE_URL=postgres://user:password@host/database   # where `inboxd init` and `inboxd run` have been
//! export AMQP_URL=amqp://guest:guest@127.0.0.1:5672/%2f AMQP_QUEUE=orders AMQP_DEAD_LETTER_QUEUE=orders-dead
//! PUBLISH=3 cargo run --example rabbitmq_consumer --features rabbitmq   # makes the queues, and sends three messages twice
//! cargo run --example rabbitmq_consumer --features rabbitmq             # works on each of them once; Ctrl-C ends it
//! ```
//! To consume, both queues must be there; make the first a quorum queue. Each message has its id in the property `message-id`.

use std::{env, error::Error, time::Duration};

use chrono::Utc;
use inboxd::claim::{
    Inbox, MessageId,
    middleware::{
        Consumer, Delivery, IdSource,
        rabbitmq::{RabbitDelivery, RabbitSource},
    },
};
use lapin::{
    BasicProperties, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use sqlx::{Postgres, Transaction, postgres::PgPoolOptions};

const CONCURRENCY: u16 = 8;

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
        .max_connections(CONCURRENCY.into())
        .acquire_timeout(Duration::from_secs(5))
        .connect(&variable("DATABASE_URL")?)
        .await?;
    let inbox = Inbox::open(&mut *pool.acquire().await?, "public.inbox")
        .await?
        .with_handler_timeout(Duration::from_secs(30));
    // The default exchange: its routing keys are the names of queues.
    let source = RabbitSource::new(variable("AMQP_URL")?, variable("AMQP_QUEUE")?, CONCURRENCY)
        .with_dead_letter("", Some(variable("AMQP_DEAD_LETTER_QUEUE")?));
    let shutdown = async {
        // Where it cannot be listened for, nothing ends the consumer but a signal that kills.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    Consumer::new(inbox, pool, IdSource::Property)
        .with_concurrency(CONCURRENCY.into())
        .run(source, shutdown, handle)
        .await;
    Ok(())
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("set {name}; the first lines of this example say to what"))
}

/// Makes the queues where they are missing, and sends messages, each twice, as a broker may deliver it.
async fn publish(count: usize) -> Result<(), Box<dyn Error>> {
    let connection = Connection::connect(&variable("AMQP_URL")?, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let (queue, dead) = (variable("AMQP_QUEUE")?, variable("AMQP_DEAD_LETTER_QUEUE")?);
    let mut quorum = FieldTable::default();
    quorum.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let durable = QueueDeclareOptions::durable();
    channel.queue_declare(queue.as_str().into(), durable, quorum).await?;
    channel
        .queue_declare(dead.as_str().into(), durable, FieldTable::default())
        .await?;
    #[expect(clippy::disallowed_methods, reason = "a producer, and no part of the library")]
    let now = Utc::now();
    for order in 0..count {
        let id = MessageId::time_ordered(now, format!("order {order}"))?.to_string();
        for _ in 0..2 {
            let persistent = BasicProperties::default()
                .with_message_id(id.as_str().into())
                .with_delivery_mode(2);
            let options = BasicPublishOptions::default();
            let sent = channel.basic_publish("".into(), queue.as_str().into(), options, b"an order", persistent);
            sent.await?.await?;
        }
    }
    Ok(())
}

/// The business work. All of it goes through `tx`; what does not is neither rolled back nor done only once.
async fn handle(tx: &mut Transaction<'_, Postgres>, delivery: &RabbitDelivery) -> Result<(), sqlx::Error> {
    tracing::info!(topic = %delivery.topic(), "worked on a message");
    sqlx::query("select set_config('example.last_topic', $1, true)")
        .bind(delivery.topic())
        .execute(&mut **tx)
        .await
        .map(|_| ())
}
