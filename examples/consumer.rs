//! A consumer: one message, one transaction, and an ack only for what is certain.
//!
//! Standard input stands for the broker. Each line is a delivery, `id topic`; give the same line twice and the second is a
//! duplicate.
//!
//! ```sh
//! export DATABASE_URL=postgres://user:password@host/database   # where `inboxd init` and `inboxd run` have been
//! printf 'order-1 orders\norder-1 orders\n' | cargo run --example consumer
//! ```

use std::{env, error::Error, io, time::Duration};

use inboxd::claim::{Inbox, Message, MessageId, Outcome, Verdict};
use sqlx::{PgPool, Postgres, Transaction};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = PgPool::connect(&env::var("DATABASE_URL")?).await?;
    let inbox = Inbox::open(&mut *pool.acquire().await?, "public.inbox")
        .await?
        .with_wait(Duration::from_secs(2))
        .with_handler_timeout(Duration::from_secs(30));
    for line in io::stdin().lines() {
        let line = line?;
        let Some((id, topic)) = line.split_once(' ') else {
            println!("{line}: dead-lettered, it is not `id topic`");
            continue;
        };
        // A broker's id that is no UUID becomes one, and the same one in every delivery.
        let id = id.parse().or_else(|_| MessageId::from_name(id))?;
        let message = Message::new(id, topic.to_owned())?;
        let result = inbox
            .process(&pool, &message, async |tx| work(tx, &message).await)
            .await;
        let told = match Verdict::of(&result) {
            Verdict::Ack => "acked",
            // A real consumer tells the broker to deliver it again after a pause.
            Verdict::Retry => "to be delivered again",
            Verdict::Reject => "dead-lettered",
            // Nothing can be claimed until somebody has acted: stop, and let the alarm ring.
            Verdict::Pause => return Err(format!("{id}: {}", why(&result)).into()),
        };
        println!("{id}: {}, {told}", why(&result));
    }
    Ok(())
}

/// The business work. All of it goes through `tx`; what does not is neither rolled back nor done only once.
async fn work(tx: &mut Transaction<'_, Postgres>, message: &Message) -> Result<(), sqlx::Error> {
    sqlx::query("select set_config('example.last_topic', $1, true)")
        .bind(message.topic())
        .execute(&mut **tx)
        .await
        .map(|_| ())
}

fn why<E: Error>(result: &Result<Outcome<()>, E>) -> String {
    match result {
        Ok(outcome) => format!("{outcome:?}"),
        Err(error) => error.to_string(),
    }
}
