//! The same message more than once, and messages that cannot be told apart.

use std::sync::atomic::{AtomicU32, Ordering};

use inboxd::claim::{
    MessageId,
    middleware::{Delivery, MissingId},
};
use sqlx::{Postgres, Transaction};

use super::{
    broker::Broker,
    place::{Place, work},
};

pub(super) async fn m5_a_message_that_is_published_three_times_is_worked_on_once_and_always_acked<B: Broker>() {
    let place = Place::<B>::new().await;
    let ids = place.published(10).await;
    for id in ids.iter().rev().chain(&ids) {
        place.broker.publish(Some(*id)).await;
    }
    // Whatever the count of deliveries.
    let consumer = place.consumer().await.with_attempts(1);
    place.run_dry(&consumer, work).await;
    place.assert_done_once(&ids).await;
}

pub(super) async fn m6_a_message_without_an_id_is_dead_lettered_with_the_reason<B: Broker>() {
    let place = Place::<B>::new().await;
    place.broker.publish(None).await;
    place.broker.publish(Some(uuid::Uuid::nil())).await;
    let ids = place.published(2).await;
    let consumer = place.consumer().await;
    place.run_dry(&consumer, work).await;
    let dead = place.broker.dead().await;
    let mut reasons: Vec<_> = dead.iter().map(|dead| dead.header("inboxd-reason")).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["invalid_id", "no_id"]);
    assert_eq!(place.done().await.len(), ids.len());
}

pub(super) async fn m6_a_message_without_an_id_gets_one_where_that_is_configured<B: Broker>() {
    let place = Place::<B>::new().await;
    place.broker.publish(None).await;
    place.broker.publish(None).await;
    let runs = AtomicU32::new(0);
    let by_payload = |delivery: &B::Delivery| MessageId::from_name(delivery.payload()).ok();
    let consumer = place.consumer().await.with_missing_id(MissingId::derive(by_payload));
    let handler = async |_: &mut Transaction<'_, Postgres>, _: &B::Delivery| {
        runs.fetch_add(1, Ordering::SeqCst);
        Ok::<_, sqlx::Error>(())
    };
    place.run_dry(&consumer, handler).await;
    // Two with one payload are one.
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    place.assert_done_once(&[]).await;
}

pub(super) async fn m8_a_function_that_panics_over_a_message_costs_only_that_message<B: Broker>() {
    let place = Place::<B>::new().await;
    place.broker.publish(None).await;
    let ids = place.published(2).await;
    let panics = |_: &B::Delivery| -> Option<MessageId> { panic!("on purpose") };
    let consumer = place.consumer().await.with_missing_id(MissingId::derive(panics));
    place.run_dry(&consumer, work).await;
    let dead = place.broker.dead().await;
    assert_eq!(dead.len(), 1);
    assert_eq!(
        (dead[0].header("inboxd-reason"), dead[0].header("inboxd-detail")),
        ("unreadable", "on purpose")
    );
    assert_eq!(place.done().await.len(), ids.len());
}
