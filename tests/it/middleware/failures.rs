//! Handlers that fail.

use std::sync::atomic::{AtomicU32, Ordering};

use inboxd::claim::middleware::{Delivery, nats::NatsDelivery};
use sqlx::{Postgres, Transaction};

use super::{Place, id_in, in_time, work};

#[tokio::test]
async fn m8_a_handler_that_panics_costs_its_message_one_delivery_and_the_consumer_nothing() {
    let place = Place::new().await;
    let ids = place.published(3).await;
    let runs = AtomicU32::new(0);
    let consumer = place.consumer().await;
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &NatsDelivery| {
        runs.fetch_add(1, Ordering::SeqCst);
        work(tx, delivery).await?;
        assert!(id_in(delivery) != ids[1] || delivery.attempt() != Some(1), "on purpose");
        Ok::<_, sqlx::Error>(())
    };
    in_time(consumer.run(place.source(), place.all_settled(), handler)).await;
    place.assert_done_once(&ids).await;
    assert_eq!(runs.load(Ordering::SeqCst), 4);
    assert!(place.dead().await.is_empty());
}

#[tokio::test]
async fn poison_is_dead_lettered_at_its_last_attempt_and_nothing_else_is() {
    let place = Place::new().await;
    let ids = place.published(6).await;
    let (poison, healed) = (ids[2], ids[4]);
    let runs = AtomicU32::new(0);
    let consumer = place.consumer().await.with_attempts(3);
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &NatsDelivery| {
        work(tx, delivery).await?;
        let id = id_in(delivery);
        if id == poison {
            runs.fetch_add(1, Ordering::SeqCst);
            return Err(anyhow::anyhow!("out of stock"));
        }
        anyhow::ensure!(id != healed || delivery.attempt() > Some(2), "not yet");
        Ok(())
    };
    in_time(consumer.run(place.source(), place.all_settled(), handler)).await;
    let healthy: Vec<_> = ids.iter().copied().filter(|id| *id != poison).collect();
    place.assert_done_once(&healthy).await;
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    let dead = place.dead().await;
    assert_eq!(dead.len(), 1);
    let (payload, headers) = &dead[0];
    assert_eq!(*payload, poison.to_string());
    let header = |name: &str| headers.get(name).unwrap().to_string();
    assert_eq!(
        (header("inboxd-reason"), header("inboxd-attempt"), header("event-id")),
        ("failed".to_owned(), "3".to_owned(), poison.to_string())
    );
    assert!(header("inboxd-detail").contains("out of stock"));
}
