//! Why a key in Redis in front of a handler is no inbox: the same handler, guarded by each, under the same failures.
//! `docs/redis.md` shows what comes of it, and this test compares.

use std::{fmt::Write, time::Duration};

use inboxd::claim::{Inbox, Message, MessageId, Verdict};
use sqlx::{PgPool, Postgres, Transaction};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::support::{
    inbox::{Deployment, random_id, spec, sql},
    redis::RedisServer,
};

const PAGE: &str = include_str!("../../docs/redis.md");

/// Only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What stands in front of the handler.
#[derive(Debug, Clone, Copy)]
enum Guard {
    Setnx,
    SetnxAndDel,
    SetAfterCommit,
    Inbox,
}

const GUARDS: [(Guard, &str); 4] = [
    (Guard::Setnx, "`SETNX` before the work"),
    (Guard::SetnxAndDel, "the same, with `DEL` when the handler fails"),
    (
        Guard::SetAfterCommit,
        "`EXISTS` before the work, `SET` after the commit",
    ),
    (Guard::Inbox, "the inbox"),
];

/// What happens to a message at its first delivery. It is delivered until a delivery of it is acked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    None,
    PublishedTwice,
    HandlerFails,
    EndsInHandler,
    EndsAfterCommit,
    /// The broker has lost patience and delivers it to another consumer, while the first one works.
    Twin,
    /// And the first one's work then fails.
    TwinOfOneThatFails,
}

const SCHEDULE: [(Failure, &str); 7] = [
    (Failure::None, "nothing"),
    (Failure::PublishedTwice, "it is published twice"),
    (Failure::HandlerFails, "the handler fails once"),
    (Failure::EndsInHandler, "the consumer is killed in the handler"),
    (
        Failure::EndsAfterCommit,
        "the consumer is killed between commit and ack",
    ),
    (Failure::Twin, "it is delivered again while the handler works"),
    (
        Failure::TwinOfOneThatFails,
        "it is delivered again while the handler works, and that then fails",
    ),
];

struct Place {
    redis: RedisServer,
    deployment: Deployment,
    pool: PgPool,
    inbox: Inbox,
}

#[tokio::test]
async fn a_key_in_redis_loses_or_doubles_work_where_the_inbox_does_neither() {
    let place = Place::new().await;
    let mut table = String::from("| at the first delivery |");
    for (_, name) in GUARDS {
        write!(table, " {name} |").unwrap();
    }
    table.push_str("\n| --- |");
    table.push_str(&" --- |".repeat(GUARDS.len()));
    for (failure, what) in SCHEDULE {
        write!(table, "\n| {what} |").unwrap();
        for (guard, _) in GUARDS {
            let running = tokio::time::timeout(PATIENCE, place.times_done(guard, failure));
            let times = running.await.expect("it is acked in the end");
            if let Guard::Inbox = guard {
                assert_eq!(times, 1, "{failure:?}");
            }
            let word = match times {
                0 => "**lost**".to_owned(),
                1 => "once".to_owned(),
                times => format!("**{times} times**"),
            };
            write!(table, " {word} |").unwrap();
        }
    }
    println!("{table}");
    assert!(PAGE.contains(&table), "docs/redis.md shows another table than\n{table}");
}

impl Place {
    async fn new() -> Self {
        let deployment = Deployment::running(vec![spec("public.inbox")]).await;
        let mut connection = deployment.database.connect().await;
        sql(&mut connection, "create table work (message_id uuid not null)").await;
        let inbox = Inbox::open(&mut connection, "public.inbox").await.unwrap();
        Self {
            redis: RedisServer::start(),
            pool: deployment.database.pool(4),
            inbox: inbox.with_wait(Duration::from_millis(100)),
            deployment,
        }
    }

    /// How often the work of a message was done, once a delivery of it is acked.
    async fn times_done(&self, guard: Guard, failure: Failure) -> i64 {
        let id = random_id();
        let works = async |tx: &mut Transaction<'_, Postgres>| work(tx, id).await;
        let mut is_acked = self.first_delivery(guard, failure, id).await;
        if failure == Failure::PublishedTwice {
            assert!(is_acked);
            is_acked = false;
        }
        while !is_acked {
            is_acked = self.consume(guard, id, Life::GoesOn, works).await;
        }
        sqlx::query_scalar("select count(*) from work where message_id = $1")
            .bind(id)
            .fetch_one(&mut self.deployment.database.connect().await)
            .await
            .unwrap()
    }

    /// Whether it, or what happened meanwhile, acked the message.
    async fn first_delivery(&self, guard: Guard, failure: Failure, id: Uuid) -> bool {
        let works = async |tx: &mut Transaction<'_, Postgres>| work(tx, id).await;
        let fails = async |tx: &mut Transaction<'_, Postgres>| {
            work(tx, id).await?;
            Err::<(), sqlx::Error>(sqlx::Error::WorkerCrashed)
        };
        let (at_work, goes_on) = (Notify::new(), Notify::new());
        let waits = async |tx: &mut Transaction<'_, Postgres>| {
            work(tx, id).await?;
            at_work.notify_one();
            goes_on.notified().await;
            match failure {
                Failure::TwinOfOneThatFails => Err(sqlx::Error::WorkerCrashed),
                _ => Ok(()),
            }
        };
        match failure {
            Failure::None | Failure::PublishedTwice => self.consume(guard, id, Life::GoesOn, works).await,
            Failure::HandlerFails => self.consume(guard, id, Life::GoesOn, fails).await,
            Failure::EndsAfterCommit => self.consume(guard, id, Life::EndsAfterCommit, works).await,
            Failure::EndsInHandler => tokio::select! {
                // What it has begun is dropped: the connection closes, and nothing of it runs any more.
                () = at_work.notified() => false,
                _ = self.consume(guard, id, Life::GoesOn, waits) => unreachable!("it waits for ever"),
            },
            Failure::Twin | Failure::TwinOfOneThatFails => {
                let first = self.consume(guard, id, Life::GoesOn, waits);
                let second = async {
                    at_work.notified().await;
                    let is_acked = self.consume(guard, id, Life::GoesOn, works).await;
                    goes_on.notify_one();
                    is_acked
                };
                let (first, second) = tokio::join!(first, second);
                first || second
            }
        }
    }

    /// One delivery; whether it is acked.
    async fn consume(
        &self,
        guard: Guard,
        id: Uuid,
        life: Life,
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>) -> Result<(), sqlx::Error> + Clone,
    ) -> bool {
        let goes_on = life == Life::GoesOn;
        match guard {
            Guard::Setnx => !self.sets(id).await || (self.committed(handler).await && goes_on),
            Guard::SetnxAndDel => {
                if !self.sets(id).await {
                    return true;
                }
                let is_done = self.committed(handler).await;
                if !is_done {
                    self.redis.ask(&format!("DEL {id}")).await;
                }
                is_done && goes_on
            }
            Guard::SetAfterCommit => {
                if self.redis.ask(&format!("EXISTS {id}")).await == ":1" {
                    return true;
                }
                let is_done = self.committed(handler).await && goes_on;
                if is_done {
                    self.sets(id).await;
                }
                is_done
            }
            Guard::Inbox => {
                let message = Message::new(MessageId::from_uuid(id).unwrap(), "orders").unwrap();
                let result = self.inbox.process(&self.pool, &message, handler).await;
                Verdict::of(&result) == Verdict::Ack && goes_on
            }
        }
    }

    /// Whether the key was not there yet.
    async fn sets(&self, id: Uuid) -> bool {
        self.redis.ask(&format!("SETNX {id} 1")).await == ":1"
    }

    /// The work in a transaction of its own; whether it is committed.
    async fn committed(
        &self,
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>) -> Result<(), sqlx::Error>,
    ) -> bool {
        let mut tx = self.pool.begin().await.unwrap();
        handler(&mut tx).await.is_ok() && tx.commit().await.is_ok()
    }
}

/// What becomes of the consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    GoesOn,
    EndsAfterCommit,
}

async fn work(tx: &mut Transaction<'_, Postgres>, id: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query("insert into work values ($1)")
        .bind(id)
        .execute(&mut **tx)
        .await
        .map(|_| ())
}
