//! The shapes of the Rust library: `process`, `process_batch` and `process_each`.
//!
//! All deliveries of a consumer go through one pool that lives as long as the consumer: what an unclean end left in it would
//! meet the next delivery.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use inboxd::{
    Consumers, Routing,
    claim::{self, BoxError, Inbox, MessageId},
};
use sqlx::{PgPool, Postgres, Transaction};
use tokio::sync::Notify;

use super::{
    each_once_by,
    shape::{Delivery, Fate, Patience, Shape, Surroundings, Verdict},
    world::{Message, TABLE},
};
use crate::support::claims::pid_of;

/// Which function of the library.
pub(super) trait Function: Clone + Send + Sync + 'static {
    const AT_A_TIME: usize;

    /// Processes deliveries by `handler`; none when nothing was done.
    fn call(
        inbox: &Inbox,
        pool: &PgPool,
        deliveries: &[Delivery],
        handler: &Handler<'_>,
    ) -> impl Future<Output = Vec<claim::Verdict>> + Send;
}

#[derive(Debug, Clone)]
pub(super) struct Process;

#[derive(Debug, Clone)]
pub(super) struct ProcessBatch;

#[derive(Debug, Clone)]
pub(super) struct ProcessEach;

/// The work, and what becomes of it.
pub(super) struct Handler<'a> {
    around: &'a Surroundings,
    at_work: Notify,
}

impl Handler<'_> {
    async fn work(&self, tx: &mut Transaction<'_, Postgres>, delivery: &Delivery) -> Result<(), BoxError> {
        insert(tx, &delivery.message).await?;
        self.meet(tx, delivery).await
    }

    async fn meet(&self, tx: &mut Transaction<'_, Postgres>, delivery: &Delivery) -> Result<(), BoxError> {
        match delivery.fate {
            Fate::Commits => {}
            Fate::RollsBack => return Err("out of stock".into()),
            Fate::Fails => {
                let failed = sqlx::query("select 1 / 0").execute(&mut **tx).await;
                // Every other one passes over it, and says that all is well.
                if delivery.message.id.as_bytes()[14].is_multiple_of(2) {
                    failed?;
                }
            }
            Fate::Killed => {
                let pid = pid_of(tx).await;
                self.around.kill(pid).await;
            }
            Fate::SpansAStep => self.around.span_a_step().await,
            Fate::Panics => panic!("the handler of {} panics, as it was told to", delivery.message.id),
            Fate::IsCancelled => {
                self.at_work.notify_one();
                std::future::pending::<()>().await;
            }
        }
        Ok(())
    }
}

async fn insert(tx: &mut Transaction<'_, Postgres>, message: &Message) -> Result<(), sqlx::Error> {
    sqlx::query("insert into work (message_id, consumer) values ($1, $2)")
        .bind(message.id)
        .bind(message.consumer)
        .execute(&mut **tx)
        .await
        .map(|_| ())
}

fn message(delivery: &Delivery) -> claim::Message {
    let Message {
        id,
        created_at,
        consumer,
    } = delivery.message;
    let mut message = claim::Message::new(MessageId::from_uuid(id).unwrap(), "orders").unwrap();
    if let Some(created_at) = created_at {
        message = message.created_at(created_at);
    }
    match consumer {
        Some(consumer) => message.consumer(consumer).unwrap(),
        None => message,
    }
}

fn delivery_of<'d>(deliveries: &'d [Delivery], message: &claim::Message) -> &'d Delivery {
    let of_it = deliveries
        .iter()
        .find(|delivery| delivery.message.id == message.id().uuid());
    of_it.expect("it was delivered")
}

impl Function for Process {
    const AT_A_TIME: usize = 1;

    async fn call(inbox: &Inbox, pool: &PgPool, deliveries: &[Delivery], handler: &Handler<'_>) -> Vec<claim::Verdict> {
        let delivery = &deliveries[0];
        let result = inbox
            .process(pool, &message(delivery), async |tx| handler.work(tx, delivery).await)
            .await;
        vec![claim::Verdict::of(&result)]
    }
}

impl Function for ProcessBatch {
    const AT_A_TIME: usize = 20;

    async fn call(inbox: &Inbox, pool: &PgPool, deliveries: &[Delivery], handler: &Handler<'_>) -> Vec<claim::Verdict> {
        let messages: Vec<_> = deliveries.iter().map(message).collect();
        let result = inbox
            .process_batch(pool, &messages, async |tx, fresh| {
                for message in fresh {
                    insert(tx, &delivery_of(deliveries, message).message).await?;
                }
                // One transaction has one end: the first message's that has a fate.
                let fates = fresh.iter().map(|message| delivery_of(deliveries, message));
                match fates.into_iter().find(|delivery| delivery.fate != Fate::Commits) {
                    Some(delivery) => handler.meet(tx, delivery).await,
                    None => Ok(()),
                }
            })
            .await;
        match result {
            Ok(outcome) => outcome.verdicts().collect(),
            Err(error) => vec![error.verdict(); deliveries.len()],
        }
    }
}

impl Function for ProcessEach {
    const AT_A_TIME: usize = 20;

    async fn call(inbox: &Inbox, pool: &PgPool, deliveries: &[Delivery], handler: &Handler<'_>) -> Vec<claim::Verdict> {
        let messages: Vec<_> = deliveries.iter().map(message).collect();
        let result = inbox
            .process_each(pool, &messages, async |tx, message| {
                handler.work(tx, delivery_of(deliveries, message)).await
            })
            .await;
        match result {
            Ok(results) => results.iter().map(claim::Verdict::of).collect(),
            Err(error) => vec![error.verdict(); deliveries.len()],
        }
    }
}

/// A consumer that uses a function of the library.
#[derive(Debug, Clone)]
pub(super) struct Library<F>(pub(super) F);

impl<F: Function> Shape for Library<F> {
    const AT_A_TIME: usize = F::AT_A_TIME;

    type Link = (PgPool, Inbox);

    async fn connect(&self, around: &Surroundings) -> Self::Link {
        let pool = around.world.deployment.database.pool(2);
        let inbox = Inbox::open(&mut pool.acquire().await.unwrap(), TABLE).await.unwrap();
        (pool, inbox)
    }

    async fn deliver(
        &self,
        (pool, inbox): &mut Self::Link,
        around: &Surroundings,
        deliveries: &[Delivery],
        patience: Patience,
    ) -> Option<Vec<Verdict>> {
        let (inbox, _timer) = match patience {
            Patience::Unbounded => (inbox.clone().with_unbounded_wait(), None),
            Patience::Bounded("0") => (
                inbox.clone().with_wait(Duration::ZERO),
                Some(around.timers.read().await),
            ),
            Patience::Bounded(_) => {
                let inbox = inbox.clone().with_wait(Duration::from_millis(20));
                (inbox, Some(around.timers.read().await))
            }
        };
        let handler = Handler {
            around,
            at_work: Notify::new(),
        };
        let call = AssertUnwindSafe(F::call(&inbox, pool, deliveries, &handler)).catch_unwind();
        let ended = tokio::select! {
            ended = call => ended,
            // The unit is dropped in the middle.
            () = handler.at_work.notified() => Ok(vec![claim::Verdict::Retry; deliveries.len()]),
        };
        // It panicked: nothing is acked.
        let verdicts = ended.unwrap_or_else(|_| vec![claim::Verdict::Retry; deliveries.len()]);
        let verdict = |verdict| match verdict {
            claim::Verdict::Ack => Verdict::Ack,
            claim::Verdict::Retry => Verdict::Again,
            other => panic!("{other:?} within the retention"),
        };
        Some(verdicts.into_iter().map(verdict).collect())
    }
}

macro_rules! each_once {
    ($($name:ident: $routing:ident, $consumers:ident, $function:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            each_once_by(Routing::$routing, Consumers::$consumers, Library($function)).await;
        }
    )*};
}

each_once! {
    process_by_time_for_one_consumer: ProcessedAt, One, Process;
    process_by_time_for_many_consumers: ProcessedAt, Many, Process;
    process_by_id_for_one_consumer: MessageId, One, Process;
    process_by_id_for_many_consumers: MessageId, Many, Process;
    process_batch_by_time_for_one_consumer: ProcessedAt, One, ProcessBatch;
    process_batch_by_time_for_many_consumers: ProcessedAt, Many, ProcessBatch;
    process_batch_by_id_for_one_consumer: MessageId, One, ProcessBatch;
    process_batch_by_id_for_many_consumers: MessageId, Many, ProcessBatch;
    process_each_by_time_for_one_consumer: ProcessedAt, One, ProcessEach;
    process_each_by_id_for_many_consumers: MessageId, Many, ProcessEach;
}
