//! A consumer of NATS JetStream that writes only its handler.
//!
//! ```sh
//! export DATABASE_URL=postgres://user:password@host/database   # where `inboxd init` and `inboxd run` have been
//! export NATS_URL=nats://127.0.0.1:4222 NATS_STREAM=ORDERS NATS_CONSUMER=worker NATS_DEAD_LETTER=dead
//! PUBLISH=3 cargo run --example nats_consumer --features nats   # makes what is missing, and sends three messages twice
//! cargo run --example nats_consumer --features nats             # works on each of them once; Ctrl-C ends it
//! ```
//! A local broker: `nats-server --jetstream`. To consume, the stream, its consumer (pull, durable, explicit acks) and a stream
//! that takes the dead-letter subject must be there. Each message has its id in the header `event-id`.

use std::{env, error::Error, time::Duration};

use async_nats::{
    HeaderMap,
    jetstream::{self, consumer::pull, stream},
};
use chrono::Utc;
use inboxd::claim::{
    Inbox, MessageId,
    middleware::{
        Consumer, Delivery, IdSource,
        nats::{NatsDelivery, NatsSource},
    },
};
use sqlx::{Postgres, Transaction, postgres::PgPoolOptions};

const CONCURRENCY: usize = 8;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let context = jetstream::new(async_nats::connect(variable("NATS_URL")?).await?);
    if let Ok(count) = env::var("PUBLISH") {
        let count = count
            .parse()
            .map_err(|_| format!("PUBLISH says how many messages, and {count:?} is no number"))?;
        return publish(&context, count).await;
    }
    let pool = PgPoolOptions::new()
        .max_connections(u32::try_from(CONCURRENCY)?)
        .acquire_timeout(Duration::from_secs(5))
        .connect(&variable("DATABASE_URL")?)
        .await?;
    let inbox = Inbox::open(&mut *pool.acquire().await?, "public.inbox")
        .await?
        .with_handler_timeout(Duration::from_secs(30));
    let source = NatsSource::new(
        context,
        variable("NATS_STREAM")?,
        variable("NATS_CONSUMER")?,
        CONCURRENCY,
    )
    .with_dead_letter(variable("NATS_DEAD_LETTER")?);
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

/// Makes the streams and the consumer where they are missing, and sends messages, each twice, as a broker may deliver it.
async fn publish(context: &jetstream::Context, count: usize) -> Result<(), Box<dyn Error>> {
    let (name, dead) = (variable("NATS_STREAM")?, variable("NATS_DEAD_LETTER")?);
    let stream = stream_of(context, &name, format!("{name}.>")).await?;
    stream_of(context, &format!("{name}-dead"), dead).await?;
    let consumer = variable("NATS_CONSUMER")?;
    let config = pull::Config {
        durable_name: Some(consumer.clone()),
        ..Default::default()
    };
    stream.get_or_create_consumer(&consumer, config).await?;
    #[expect(clippy::disallowed_methods, reason = "a producer, and no part of the library")]
    let now = Utc::now();
    for order in 0..count {
        let id = MessageId::time_ordered(now, format!("order {order}"))?;
        for _ in 0..2 {
            let mut headers = HeaderMap::new();
            headers.insert("event-id", id.to_string());
            let sent = context.publish_with_headers(format!("{name}.new"), headers, "an order".into());
            sent.await?.await?;
        }
    }
    Ok(())
}

async fn stream_of(
    context: &jetstream::Context,
    name: &str,
    subject: String,
) -> Result<stream::Stream, Box<dyn Error>> {
    let config = stream::Config {
        name: name.to_owned(),
        subjects: vec![subject],
        ..Default::default()
    };
    Ok(context.get_or_create_stream(config).await?)
}

/// The business work. All of it goes through `tx`; what does not is neither rolled back nor done only once.
async fn handle(tx: &mut Transaction<'_, Postgres>, delivery: &NatsDelivery) -> Result<(), sqlx::Error> {
    tracing::info!(topic = %delivery.topic(), "worked on a message");
    sqlx::query("select set_config('example.last_topic', $1, true)")
        .bind(delivery.topic())
        .execute(&mut **tx)
        .await
        .map(|_| ())
}
