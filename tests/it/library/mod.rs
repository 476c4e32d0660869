//! The Rust library, as a consumer uses it: against real servers, on pools of its own.

mod batch;
mod claim;
mod commit;
mod each;
mod ids;
mod open;
mod process;
mod series;
mod unclean;

use inboxd::claim::{Inbox, Message, MessageId};
use sqlx::{PgPool, Postgres, Transaction};

use crate::support::{
    claims::eventually,
    inbox::{Deployment, sql, v7_at},
};

const TABLES: [&str; 2] = ["public.by_time", "public.by_id"];

async fn open(pool: &PgPool, table: &str) -> Inbox {
    Inbox::open(&mut pool.acquire().await.unwrap(), table).await.unwrap()
}

/// A new message that an inbox of either routing takes.
fn new_message() -> Message {
    let id = MessageId::from_uuid(v7_at(inboxd::clock::Clock::system().now())).unwrap();
    Message::new(id, "orders").unwrap()
}

/// An inbox of either routing, a table in which each message's work leaves a row, and a pool.
async fn workplace(connections: u32) -> (Deployment, PgPool) {
    let deployment = crate::claim::both_routings().await;
    let mut connection = deployment.database.connect().await;
    sql(&mut connection, "create table work (message_id uuid not null)").await;
    let pool = deployment.database.pool(connections);
    (deployment, pool)
}

/// The work of a message.
async fn work(tx: &mut Transaction<'_, Postgres>, message: &Message) -> Result<(), sqlx::Error> {
    sqlx::query("insert into work values ($1)")
        .bind(message.id().uuid())
        .execute(&mut **tx)
        .await
        .map(|_| ())
}

/// How often the work of a message was done.
async fn done(deployment: &Deployment, message: &Message) -> i64 {
    sqlx::query_scalar("select count(*) from work where message_id = $1")
        .bind(message.id().uuid())
        .fetch_one(&mut deployment.database.connect().await)
        .await
        .unwrap()
}

/// Returns once no session of this database has a transaction open but the asking one: a connection that was closed in the
/// middle is noticed by the server a moment later.
async fn none_stays_open(deployment: &Deployment) {
    eventually("no transaction is open", async || {
        sqlx::query_scalar(
            "select not exists (
               select from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null)",
        )
        .fetch_one(&mut deployment.database.connect().await)
        .await
        .unwrap()
    })
    .await;
}
