//! A consumer of batches: up to 200 messages in one transaction, claimed in one round trip.
//!
//! ```sh
//! export DATABASE_URL=postgres://user:password@host/database   # where `inboxd init` and `inboxd run` have been
//! seq 1 1000 | cargo run --example batch_consumer
//! ```

use std::{env, error::Error, io};

use inboxd::claim::{Inbox, Message, MessageId, Verdict};
use sqlx::PgPool;

const BATCH: usize = 200;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = PgPool::connect(&env::var("DATABASE_URL")?).await?;
    let inbox = Inbox::open(&mut *pool.acquire().await?, "public.inbox").await?;
    let deliveries: Vec<String> = io::stdin().lines().collect::<Result<_, _>>()?;
    for batch in deliveries.chunks(BATCH) {
        let messages: Vec<Message> = batch
            .iter()
            .map(|line| Ok(Message::new(MessageId::from_name(line)?, "numbers")?))
            .collect::<Result<_, Box<dyn Error>>>()?;
        let outcome = inbox
            .process_batch(&pool, &messages, async |tx, fresh| {
                // The work of all that are fresh, in this transaction.
                let ids: Vec<_> = fresh.iter().map(|message| message.id().uuid()).collect();
                let counted: i64 = sqlx::query_scalar("select cardinality($1::uuid[])::bigint")
                    .bind(ids)
                    .fetch_one(&mut **tx)
                    .await?;
                Ok::<_, sqlx::Error>(counted)
            })
            .await?;
        let acked = outcome.verdicts().filter(|verdict| *verdict == Verdict::Ack).count();
        println!(
            "{} messages, {} worked on, {acked} acked",
            messages.len(),
            outcome.value.unwrap_or(0)
        );
    }
    Ok(())
}
