//! A consumer of RabbitMQ that writes only its handler.
//!
//! ```sh
//! export DATABASE_URL=postgres://user:password@host/database   # where `inboxd init` and `inboxd run` have been
//! export AMQP_URL=amqp://guest:guest@127.0.0.1:5672/%2f AMQP_QUEUE=orders AMQP_DEAD_LETTER_QUEUE=orders-dead
//! cargo run --example rabbitmq_consumer --features rabbitmq   # Ctrl-C ends it
//! ```
//! Both queues must be there; make the first a quorum queue. Each message has its id in the property `message-id`.

use std::{env, error::Error, time::Duration};

use inboxd::claim::{
    Inbox,
    middleware::{
        Consumer, Delivery, IdSource,
        rabbitmq::{RabbitDelivery, RabbitSource},
    },
};
use sqlx::{Postgres, Transaction, postgres::PgPoolOptions};

const CONCURRENCY: u16 = 8;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
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

/// The business work. All of it goes through `tx`; what does not is neither rolled back nor done only once.
async fn handle(tx: &mut Transaction<'_, Postgres>, delivery: &RabbitDelivery) -> Result<(), sqlx::Error> {
    sqlx::query("select set_config('example.last_topic', $1, true)")
        .bind(delivery.topic())
        .execute(&mut **tx)
        .await
        .map(|_| ())
}
