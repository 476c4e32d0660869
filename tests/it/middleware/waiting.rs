//! Work that takes long, and consumers that come and go.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use inboxd::claim::middleware::{Delivery, State};
use sqlx::{Postgres, Transaction};
use tokio::sync::Notify;

use super::{
    broker::{Broker, in_hand_at_most},
    place::{ACK_TIMEOUT, Place, id_in, in_time, work},
};
use crate::support::inbox::try_claim;

/// A twin holds the message for five times the patience: each time the broker hears of it at most once.
pub(super) async fn m4_a_message_in_flight_is_held_and_seldom_given_back<B: Broker>() {
    let place = Place::<B>::new().await;
    let held = place.published(1).await[0];
    let mut twin = place.deployment.database.connect().await;
    sqlx::raw_sql("begin").execute(&mut twin).await.unwrap();
    assert_eq!(try_claim(&mut twin, "public.inbox", held, None).await.unwrap(), "fresh");
    let others = place.published(5).await;
    let consumer = place.consumer().await.with_attempts(1);
    let (attempts, began) = (AtomicU32::new(0), Instant::now());
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &B::Delivery| {
        if id_in(delivery) == held {
            attempts.store(delivery.attempt().unwrap_or(0), Ordering::SeqCst);
        }
        work(tx, delivery).await
    };
    let until = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        // The unrelated ones have passed it by.
        assert_eq!(place.done().await.len(), others.len());
        sqlx::raw_sql("rollback").execute(&mut twin).await.unwrap();
        place.broker.quiet().await;
    };
    place.run(&consumer, until, &handler).await;
    place.run_dry(&consumer, &handler).await;
    let patience_ran_out = u32::try_from(began.elapsed().as_secs()).unwrap();
    let attempts = attempts.into_inner();
    assert!(
        attempts <= patience_ran_out + 2,
        "{attempts} deliveries in {patience_ran_out} s"
    );
    place.assert_done_once(&[others, vec![held]].concat()).await;
}

pub(super) async fn m7_a_handler_slower_than_the_ack_timeout_does_its_work_once<B: Broker>() {
    let place = Place::<B>::apart().await;
    let ids = place.published(3).await;
    let consumer = place.consumer().await;
    let (goes_on, runs) = (Notify::new(), AtomicU32::new(0));
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &B::Delivery| {
        runs.fetch_add(1, Ordering::SeqCst);
        if id_in(delivery) == ids[1] {
            goes_on.notified().await;
        }
        work(tx, delivery).await
    };
    let until = async {
        // What it is about: so long it takes.
        tokio::time::sleep(ACK_TIMEOUT * 3).await;
        goes_on.notify_one();
        place.broker.quiet().await;
    };
    place.run(&consumer, until, &handler).await;
    goes_on.notify_one();
    place.run_dry(&consumer, &handler).await;
    place.assert_done_once(&ids).await;
    // A second delivery is in flight, or a duplicate.
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

pub(super) async fn shutdowns_under_load_lose_nothing_and_double_nothing<B: Broker>() {
    let place = Place::<B>::new().await;
    let ids = place.published(60).await;
    for round in 0..3 {
        let (begun, goes_on) = (Notify::new(), Notify::new());
        let consumer = place.consumer().await;
        let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &B::Delivery| {
            begun.notify_one();
            goes_on.notified().await;
            goes_on.notify_one();
            work(tx, delivery).await
        };
        let done_before = place.done().await.len();
        let mut state = consumer.watch();
        let told = async {
            in_time(state.wait_for(|state| *state == State::Draining))
                .await
                .unwrap();
            goes_on.notify_one();
        };
        let running = place.run(&consumer, begun.notified(), handler);
        tokio::join!(running, told);
        // What was in hand is finished, and nothing else was begun.
        let done = place.done().await.len() - done_before;
        assert!((1..=in_hand_at_most::<B>()).contains(&done), "{done} in round {round}");
    }
    // One that is cut off in the middle of its work: that is rolled back, and comes again.
    let never = async |tx: &mut Transaction<'_, Postgres>, delivery: &B::Delivery| {
        work(tx, delivery).await?;
        std::future::pending::<Result<(), sqlx::Error>>().await
    };
    let consumer = place.consumer().await.with_drain_deadline(Duration::from_millis(50));
    let mut in_hand = place.pool.clone();
    let working = async {
        crate::support::claims::eventually("work is under way", async || {
            in_hand.num_idle() == 0 && in_hand.size() > 0
        })
        .await;
    };
    place.run(&consumer, working, never).await;
    in_hand.clone_from(&place.pool);
    let consumer = place.consumer().await;
    place.run_dry(&consumer, work).await;
    place.assert_done_once(&ids).await;
}
