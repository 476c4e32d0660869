//! The broker, the database or the day's partition is away.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use inboxd::claim::middleware::{IdSource, State};
use sqlx::{Postgres, Transaction};
use tokio::sync::{Mutex, Notify};

use super::{
    broker::{Broker, ID},
    place::{Place, consumer, pool_of, work},
};
use crate::support::{
    claims::eventually,
    inbox::{Deployment, spec},
    proxy::{Cut, Proxy},
    server,
};

pub(super) async fn m1_acks_that_are_lost_with_the_broker_are_followed_by_duplicates_that_are_acked<B: Broker>() {
    let place = Place::<B>::apart().await;
    let ids = place.published(12).await;
    let runs = AtomicU32::new(0);
    let consumer = place.consumer().await;
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &B::Delivery| {
        if runs.fetch_add(1, Ordering::SeqCst) == 0 {
            place.broker.kill();
        }
        work(tx, delivery).await
    };
    let mut state = consumer.watch();
    let until = async {
        eventually("work is committed", async || !place.done().await.is_empty()).await;
        state.wait_for(|state| *state == State::BrokerAway).await.unwrap();
        place.broker.start_again();
        state.wait_for(|state| state.is_ready()).await.unwrap();
    };
    place.run(&consumer, until, &handler).await;
    place.run_dry(&consumer, &handler).await;
    place.assert_done_once(&ids).await;
    // What was committed before the broker was back was not worked on again.
    assert_eq!(runs.load(Ordering::SeqCst), 12);
}

pub(super) async fn m11_while_the_database_is_away_nothing_is_acked_or_dead_lettered_and_the_consumer_is_not_ready<
    B: Broker,
>() {
    let place = Place::<B>::new().await;
    let mut proxy = Proxy::in_front_of(&place.deployment.database).await;
    let consumer = place.consumer_on(pool_of(proxy.options())).await.with_attempts(1);
    proxy.refuse().await;
    proxy.cut_all();
    let ids = place.published(8).await;
    let mut state = consumer.watch();
    let away = async {
        state.wait_for(|state| *state == State::DatabaseAway).await.unwrap();
        assert!(!consumer.state().is_ready());
    };
    place.run(&consumer, away, work).await;
    // All of them are still there, and nowhere else.
    eventually("nothing was acked", async || place.broker.left().await == 8).await;
    assert!(place.broker.dead().await.is_empty() && place.done().await.is_empty());
    let until = async {
        state.wait_for(|state| *state == State::DatabaseAway).await.unwrap();
        proxy.allow().await;
        state.wait_for(|state| state.is_ready()).await.unwrap();
    };
    place.run(&consumer, until, work).await;
    place.run_dry(&consumer, work).await;
    place.assert_done_once(&ids).await;
}

pub(super) async fn m11_a_database_that_is_restarted_costs_no_message_and_doubles_none<B: Broker>() {
    let mut server = server::own(&[]).await;
    let place = Place::<B>::in_database(server.database().await).await;
    let ids = place.published(30).await;
    let consumer = place.consumer().await.with_attempts(1);
    let (runs, in_the_middle) = (AtomicU32::new(0), Notify::new());
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &B::Delivery| {
        if runs.fetch_add(1, Ordering::SeqCst) == 9 {
            in_the_middle.notify_one();
        }
        work(tx, delivery).await
    };
    let until = async {
        in_the_middle.notified().await;
        server.cluster.restart().await.unwrap();
    };
    place.run(&consumer, until, &handler).await;
    place.run_dry(&consumer, &handler).await;
    place.assert_done_once(&ids).await;
}

/// The commit took effect or did not, and no connection comes through on which it could be asked.
pub(super) async fn a_message_whose_commit_is_unknown_is_not_acked_and_its_redelivery_decides<B: Broker>() {
    let place = Place::<B>::new().await;
    let mut ids = Vec::new();
    for cut in [Cut::Before, Cut::After] {
        let proxy = Mutex::new(Proxy::in_front_of(&place.deployment.database).await);
        let inbox = place.inbox().await.with_settle_timeout(Duration::from_millis(300));
        let options = proxy.lock().await.options();
        let one = consumer(inbox, pool_of(options), IdSource::header(ID)).with_attempts(1);
        ids.extend(place.published(2).await);
        let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &B::Delivery| {
            work(tx, delivery).await?;
            let mut proxy = proxy.lock().await;
            proxy.refuse().await;
            proxy.cut("commit", cut);
            Ok::<_, sqlx::Error>(())
        };
        let is_cut = eventually("the commit is cut", async || proxy.lock().await.cuts() > 0);
        place.run(&one, is_cut, handler).await;
        place.run_dry(&place.consumer().await, work).await;
    }
    place.assert_done_once(&ids).await;
}

pub(super) async fn a_day_without_a_partition_pauses_the_consumer_until_there_is_one<B: Broker>() {
    let deployment = Deployment::initialized(vec![spec("public.inbox")]).await;
    let place = Place::of(B::start().await, deployment).await;
    let consumer = place.consumer().await.with_attempts(1);
    let ids = place.published(8).await;
    let mut state = consumer.watch();
    let until = async {
        state.wait_for(|state| *state == State::Paused).await.unwrap();
        assert!(place.broker.dead().await.is_empty());
        place.deployment.done().await;
        state.wait_for(|state| state.is_ready()).await.unwrap();
    };
    place.run(&consumer, until, work).await;
    place.run_dry(&consumer, work).await;
    place.assert_done_once(&ids).await;
}
