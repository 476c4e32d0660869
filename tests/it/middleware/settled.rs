//! What is acked, and when.

use std::sync::atomic::{AtomicU32, Ordering};

use inboxd::claim::{
    MessageId,
    middleware::{Delivery, MissingId, State, nats::NatsDelivery},
};
use sqlx::{Postgres, Transaction};
use tokio::sync::Notify;

use super::{ACK_WAIT, Place, in_time, work};

#[tokio::test]
async fn m5_a_message_that_is_published_three_times_is_worked_on_once_and_always_acked() {
    let place = Place::new().await;
    let ids = place.published(10).await;
    for id in ids.iter().rev().chain(&ids) {
        place.publish(Some(*id)).await;
    }
    let consumer = place.consumer().await.with_attempts(1);
    in_time(consumer.run(place.source(), place.all_settled(), work)).await;
    place.assert_done_once(&ids).await;
    assert!(place.dead().await.is_empty());
}

#[tokio::test]
async fn m6_a_message_without_an_id_is_dead_lettered_with_the_reason() {
    let place = Place::new().await;
    place.publish(None).await;
    let nil = uuid::Uuid::nil();
    place.publish(Some(nil)).await;
    let ids = place.published(2).await;
    let consumer = place.consumer().await;
    in_time(consumer.run(place.source(), place.all_settled(), work)).await;
    place.assert_done_once(&ids).await;
    let mut reasons: Vec<_> = place
        .dead()
        .await
        .into_iter()
        .map(|(_, headers)| headers.get("inboxd-reason").unwrap().to_string())
        .collect();
    reasons.sort();
    assert_eq!(reasons, ["invalid_id", "no_id"]);
}

#[tokio::test]
async fn m6_m10_a_message_without_an_id_gets_one_of_its_place_where_that_is_configured() {
    let place = Place::new().await;
    place.publish(None).await;
    let runs = AtomicU32::new(0);
    let by_place = |delivery: &NatsDelivery| MessageId::from_name(delivery.coordinates()?).ok();
    let consumer = place.consumer().await.with_missing_id(MissingId::derive(by_place));
    let handler = async |_: &mut Transaction<'_, Postgres>, _: &NatsDelivery| {
        runs.fetch_add(1, Ordering::SeqCst);
        Ok::<_, sqlx::Error>(())
    };
    in_time(consumer.run(place.source(), place.all_settled(), handler)).await;
    // The stream is made again, and counts from one again: its messages are others.
    place.context.delete_stream("ORDERS").await.unwrap();
    place.make_orders().await;
    place.publish(None).await;
    in_time(consumer.run(place.source(), place.all_settled(), handler)).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert!(place.dead().await.is_empty());
}

#[tokio::test]
async fn m7_a_handler_slower_than_the_ack_wait_is_not_delivered_again() {
    let place = Place::new().await;
    let ids = place.published(1).await;
    let runs = AtomicU32::new(0);
    let consumer = place.consumer().await;
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &NatsDelivery| {
        runs.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(ACK_WAIT * 2).await;
        work(tx, delivery).await
    };
    in_time(consumer.run(place.source(), place.all_settled(), handler)).await;
    place.assert_done_once(&ids).await;
    let info = place.info().await.unwrap();
    assert_eq!(
        (
            runs.into_inner(),
            info.num_redelivered,
            info.delivered.consumer_sequence
        ),
        (1, 0, 1)
    );
}

#[tokio::test]
async fn a_shutdown_lets_what_is_in_hand_be_finished_and_acked() {
    let place = Place::new().await;
    let ids = place.published(20).await;
    let (begun, goes_on) = (Notify::new(), Notify::new());
    let consumer = place.consumer().await.with_concurrency(2);
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &NatsDelivery| {
        begun.notify_one();
        goes_on.notified().await;
        goes_on.notify_one();
        work(tx, delivery).await
    };
    let mut state = consumer.watch();
    in_time(async {
        tokio::join!(consumer.run(place.source(), begun.notified(), handler), async {
            state.wait_for(|state| *state == State::Draining).await.unwrap();
            goes_on.notify_one();
        })
    })
    .await;
    let done = place.done().await;
    assert!(!done.is_empty() && done.len() <= 2, "{done:?}");
    let acked = place.info().await.unwrap().ack_floor.stream_sequence;
    assert_eq!(acked, u64::try_from(done.len()).unwrap());
    // The others are another's.
    let consumer = place.consumer().await;
    in_time(consumer.run(place.source(), place.all_settled(), work)).await;
    place.assert_done_once(&ids).await;
}
