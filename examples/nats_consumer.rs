//! A consumer of NATS JetStream that writes only its handler.
//!
//! ```sh
//! export DATABASE_URL=postgres://user:password@host/database   # where `inboxd init` and `inboxd run` have been
//! export NATS_URL=nats://127.0.0.1:4222 NATS_STREAM=ORDERS NATS_CONSUMER=worker NATS_DEAD_LETTER=dead
//! cargo run --example nats_consumer --features nats   # Ctrl-C ends it
//! ```
//! The stream, its consumer (pull, durable, explicit acks) and a stream that takes the dead-letter subject must be there.
//! Each message has its id in the header `event-id`.

use std::{env, error::Error, time::Duration};

use inboxd::claim::{
    Inbox,
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
    let pool = PgPoolOptions::new()
        .max_connections(u32::try_from(CONCURRENCY)?)
        .acquire_timeout(Duration::from_secs(5))
        .connect(&variable("DATABASE_URL")?)
        .await?;
    let inbox = Inbox::open(&mut *pool.acquire().await?, "public.inbox")
        .await?
        .with_handler_timeout(Duration::from_secs(30));
    let client = async_nats::connect(variable("NATS_URL")?).await?;
    let source = NatsSource::new(
        async_nats::jetstream::new(client),
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

/// The business work. All of it goes through `tx`; what does not is neither rolled back nor done only once.
async fn handle(tx: &mut Transaction<'_, Postgres>, delivery: &NatsDelivery) -> Result<(), sqlx::Error> {
    sqlx::query("select set_config('example.last_topic', $1, true)")
        .bind(delivery.topic())
        .execute(&mut **tx)
        .await
        .map(|_| ())
}
