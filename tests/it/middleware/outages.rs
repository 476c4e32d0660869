//! The broker, the database or the day's partition is away.

use std::sync::atomic::{AtomicU32, Ordering};

use inboxd::claim::middleware::{State, nats::NatsDelivery};
use sqlx::{Postgres, Transaction};

use super::{Place, in_time, pool_of, work};
use crate::support::{
    claims::eventually,
    inbox::{Deployment, spec},
    proxy::Proxy,
};

#[tokio::test]
async fn m1_an_ack_that_is_lost_after_the_commit_is_followed_by_a_duplicate_that_is_acked() {
    let place = Place::new().await;
    let ids = place.published(1).await;
    let runs = AtomicU32::new(0);
    let consumer = place.consumer().await;
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &NatsDelivery| {
        runs.fetch_add(1, Ordering::SeqCst);
        place.nats.lock().unwrap().kill();
        work(tx, delivery).await
    };
    let until = async {
        eventually("the work is committed", async || !place.done().await.is_empty()).await;
        place.nats.lock().unwrap().start_again();
        place.all_settled().await;
    };
    in_time(consumer.run(place.source(), until, handler)).await;
    place.assert_done_once(&ids).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn m11_while_the_database_is_away_nothing_is_acked_or_dead_lettered_and_the_consumer_is_not_ready() {
    let place = Place::new().await;
    let mut proxy = Proxy::in_front_of(&place.deployment.database).await;
    let consumer = place.consumer_on(pool_of(proxy.options())).await.with_attempts(1);
    proxy.refuse().await;
    proxy.cut_all();
    let ids = place.published(8).await;
    let mut state = consumer.watch();
    let until = async {
        state.wait_for(|state| *state == State::DatabaseAway).await.unwrap();
        assert!(!consumer.state().is_ready());
        let info = place.info().await.unwrap();
        assert_eq!(info.ack_floor.stream_sequence, 0);
        proxy.allow().await;
        state.wait_for(|state| state.is_ready()).await.unwrap();
        place.all_settled().await;
    };
    in_time(consumer.run(place.source(), until, work)).await;
    place.assert_done_once(&ids).await;
    assert!(place.dead().await.is_empty());
}

#[tokio::test]
async fn a_day_without_a_partition_pauses_the_consumer_until_there_is_one() {
    let place = Place::of(Deployment::initialized(vec![spec("public.inbox")]).await).await;
    let consumer = place.consumer().await.with_attempts(1);
    let ids = place.published(8).await;
    let mut state = consumer.watch();
    let until = async {
        state.wait_for(|state| *state == State::Paused).await.unwrap();
        assert_eq!(place.info().await.unwrap().ack_floor.stream_sequence, 0);
        place.deployment.done().await;
        place.all_settled().await;
    };
    in_time(consumer.run(place.source(), until, work)).await;
    place.assert_done_once(&ids).await;
    assert!(place.dead().await.is_empty());
}
