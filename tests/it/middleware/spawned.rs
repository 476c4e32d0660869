//! Consumers and units of work as tasks of their own.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use inboxd::claim::{Inbox, Message, MessageId, Outcome, middleware::Delivery};
use sqlx::{Postgres, Transaction};
use tokio::sync::watch;

use super::{
    broker::Broker,
    place::{Place, in_time, pool_of, work, work_on_all},
};
use crate::support::{
    claims::eventually,
    inbox::{Deployment, random_id, spec},
};

/// What handlers share.
#[derive(Default)]
struct Shared {
    runs: AtomicU32,
}

impl Shared {
    async fn handle<D: Delivery>(&self, tx: &mut Transaction<'_, Postgres>, delivery: &D) -> Result<(), sqlx::Error> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        work(tx, delivery).await
    }
}

pub(super) async fn consumers_with_a_function_and_with_a_closure_that_owns_its_state_run_as_tasks<B: Broker>() {
    let place = Place::<B>::new().await;
    let ids = place.published(20).await;
    let (first, second) = (place.consumer().await, place.consumer().await);
    let (first_source, second_source) = (place.broker.source().await, place.broker.source().await);
    let (end, until) = watch::channel(());
    let ended = |mut until: watch::Receiver<()>| async move { drop(until.changed().await) };
    let shared = Arc::new(Shared::default());
    let (until_second, state) = (until.clone(), shared.clone());
    let tasks = [
        tokio::spawn(async move { first.run(first_source, ended(until), work).await }),
        tokio::spawn(async move {
            let handler = async move |tx: &mut Transaction<'_, Postgres>, delivery: &B::Delivery| {
                state.handle(tx, delivery).await
            };
            second.run(second_source, ended(until_second), handler).await;
        }),
    ];
    eventually("all is done", async || place.done().await.len() == ids.len()).await;
    drop(end);
    for task in tasks {
        in_time(task).await.unwrap();
    }
    let consumer = place.consumer().await;
    place.run_dry(&consumer, work).await;
    place.assert_done_once(&ids).await;
    assert!(shared.runs.load(Ordering::SeqCst) <= 20);
}

pub(super) async fn consumers_of_batches_run_as_tasks<B: Broker>() {
    let place = Place::<B>::new().await;
    let ids = place.published(20).await;
    let (first, second) = (place.consumer().await, place.consumer().await);
    let (first_source, second_source) = (place.broker.source().await, place.broker.source().await);
    let (end, until) = watch::channel(());
    let ended = |mut until: watch::Receiver<()>| async move { drop(until.changed().await) };
    let (until_second, runs) = (until.clone(), Arc::new(AtomicU32::new(0)));
    let tasks = [
        tokio::spawn(async move { first.run_batches(first_source, ended(until), work_on_all).await }),
        tokio::spawn(async move {
            let handler = async move |tx: &mut Transaction<'_, Postgres>, deliveries: &[&B::Delivery]| {
                runs.fetch_add(1, Ordering::SeqCst);
                work_on_all(tx, deliveries).await
            };
            second.run_batches(second_source, ended(until_second), handler).await;
        }),
    ];
    eventually("all is done", async || place.done().await.len() == ids.len()).await;
    drop(end);
    for task in tasks {
        in_time(task).await.unwrap();
    }
    let consumer = place.consumer().await;
    place.run_dry(&consumer, work).await;
    place.assert_done_once(&ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_of_work_whose_handler_borrows_runs_as_a_task() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let pool = pool_of(deployment.database.options.clone());
    let inbox = Inbox::open(&mut deployment.database.connect().await, "public.inbox")
        .await
        .unwrap();
    let message = Message::new(MessageId::from_uuid(random_id()).unwrap(), "orders").unwrap();
    let task = tokio::spawn(async move {
        let handler = async |tx: &mut Transaction<'_, Postgres>| {
            sqlx::query_scalar::<_, String>("select $1")
                .bind(message.topic())
                .fetch_one(&mut **tx)
                .await
        };
        inbox.process(&pool, &message, handler).await
    });
    let outcome = task.await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::Done(topic) if topic == "orders"));
}
