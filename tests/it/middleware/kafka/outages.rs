//! The database or the broker is away.

use std::sync::atomic::{AtomicU32, Ordering};

use inboxd::claim::middleware::{State, kafka::KafkaDelivery};
use sqlx::{Postgres, Transaction};

use super::{Place, eventually, in_time, on_tansu, pool_of, work};
use crate::support::{kafka::Broker, proxy::Proxy};

on_tansu! {
    m3_m11_while_the_database_is_away_no_offset_is_committed_and_nothing_is_dead_lettered
}

async fn m3_m11_while_the_database_is_away_no_offset_is_committed_and_nothing_is_dead_lettered(place: Place) {
    let mut proxy = Proxy::in_front_of(&place.deployment.database).await;
    let consumer = place.consumer_on(pool_of(proxy.options())).await.with_attempts(1);
    let mut ids = place.published(6);
    let mut state = consumer.watch();
    let until = async {
        place.all_settled().await;
        proxy.refuse().await;
        proxy.cut_all();
        let before = place.committed().await;
        ids.extend(place.published(9));
        state.wait_for(|state| *state == State::DatabaseAway).await.unwrap();
        assert!(!consumer.state().is_ready());
        assert_eq!(place.committed().await, before);
        proxy.allow().await;
        state.wait_for(|state| state.is_ready()).await.unwrap();
        place.all_settled().await;
    };
    in_time(consumer.run(place.source(), until, work)).await;
    place.assert_done_once(&ids).await;
    assert!(place.dead().await.is_empty());
}

/// On the mock cluster alone: Tansu forgets its messages when it ends, and its other storages are servers that cannot be had.
#[tokio::test]
async fn m1_a_broker_that_is_away_while_messages_are_done_gets_their_offsets_when_it_is_back() {
    let place = Place::on(Broker::mock()).await;
    let Broker::Mock(cluster) = &place.broker else {
        unreachable!("it was made above")
    };
    let ids = place.published(30);
    let runs = AtomicU32::new(0);
    let consumer = place.consumer().await;
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &KafkaDelivery| {
        if runs.fetch_add(1, Ordering::SeqCst) == 10 {
            cluster.broker_down(-1).unwrap();
        }
        work(tx, delivery).await
    };
    let until = async {
        eventually("all is done", async || place.done_count().await >= 20).await;
        cluster.broker_up(-1).unwrap();
        place.all_settled().await;
    };
    in_time(consumer.run(place.source(), until, handler)).await;
    place.assert_done_once(&ids).await;
    assert!(place.dead().await.is_empty());
}
