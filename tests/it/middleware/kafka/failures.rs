//! Handlers that fail, and dead letters.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use inboxd::claim::middleware::{
    Source,
    kafka::{KafkaDelivery, KafkaSource, Rejected, rdkafka::Message},
};
use sqlx::{Postgres, Transaction};

use super::{Counted, Place, TOPIC, eventually, header, id_in, in_time, on_tansu, work};

on_tansu! {
    m8_a_handler_that_panics_costs_its_message_one_delivery_and_the_consumer_nothing
    poison_is_dead_lettered_at_its_last_attempt_and_nothing_else_is
    a_message_whose_dead_letter_is_not_taken_is_kept
    what_is_rejected_is_settled_without_a_dead_letter_where_that_is_said
}

async fn m8_a_handler_that_panics_costs_its_message_one_delivery_and_the_consumer_nothing(place: Place) {
    let ids = place.published(6);
    let deliveries = Arc::new(AtomicU32::new(0));
    let panics = AtomicU32::new(0);
    let consumer = place.consumer().await;
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &KafkaDelivery| {
        work(tx, delivery).await?;
        assert!(
            id_in(delivery) != ids[1] || panics.fetch_add(1, Ordering::SeqCst) > 0,
            "on purpose"
        );
        Ok::<_, sqlx::Error>(())
    };
    let source = Counted(place.source(), Arc::clone(&deliveries));
    in_time(consumer.run(source, place.all_settled(), handler)).await;
    place.assert_done_once(&ids).await;
    assert_eq!(deliveries.load(Ordering::SeqCst), 7);
    assert!(place.dead().await.is_empty());
}

async fn poison_is_dead_lettered_at_its_last_attempt_and_nothing_else_is(place: Place) {
    let ids = place.published(30);
    let (poison, healed) = (ids[2], ids[4]);
    let (poisoned, ill) = (AtomicU32::new(0), AtomicU32::new(0));
    let consumer = place.consumer().await.with_attempts(3);
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &KafkaDelivery| {
        work(tx, delivery).await?;
        let id = id_in(delivery);
        if id == poison {
            poisoned.fetch_add(1, Ordering::SeqCst);
            return Err(anyhow::anyhow!("out of stock"));
        }
        anyhow::ensure!(id != healed || ill.fetch_add(1, Ordering::SeqCst) == 1, "not yet");
        Ok(())
    };
    in_time(consumer.run(place.source(), place.all_settled(), handler)).await;
    let healthy: Vec<_> = ids.iter().copied().filter(|id| *id != poison).collect();
    place.assert_done_once(&healthy).await;
    assert_eq!(poisoned.load(Ordering::SeqCst), 3);
    let letters = place.dead().await;
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    assert_eq!(letter.key(), Some(&b"key"[..]));
    assert_eq!(letter.payload(), Some(poison.to_string().as_bytes()));
    for (name, value) in [
        ("inboxd-reason", "failed"),
        ("inboxd-attempt", "3"),
        ("inboxd-topic", TOPIC),
        ("inboxd-partition", "2"),
        ("inboxd-offset", "0"),
        ("event-id", &poison.to_string()),
    ] {
        assert_eq!(header(letter, name).as_deref(), Some(value), "{name}");
    }
    assert!(header(letter, "inboxd-detail").unwrap().contains("out of stock"));
}

async fn a_message_whose_dead_letter_is_not_taken_is_kept(place: Place) {
    let mut config = place.config();
    // Nothing fits into it, so nothing is ever taken.
    config.set("message.max.bytes", "1000");
    place.publish(&[None]);
    let ids = place.published(3);
    let rejected = Arc::new(AtomicU32::new(0));
    let source = Counted(super::source_of(config), Arc::clone(&rejected));
    let consumer = place.consumer().await;
    // The detail alone is too long.
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &KafkaDelivery| {
        work(tx, delivery).await?;
        if id_in(delivery) == ids[0] {
            return Err(anyhow::anyhow!("{}", "x".repeat(1_000)));
        }
        Ok(())
    };
    let until = async {
        eventually("it was delivered again", async || rejected.load(Ordering::SeqCst) > 6).await;
    };
    in_time(consumer.with_attempts(1).run(source, until, handler)).await;
    place.assert_done_once(&ids[1..]).await;
    // The offset stands before it, whatever lies behind.
    assert_eq!(place.committed().await[0], 1);
    assert_eq!(place.dead().await.len(), 1);
}

async fn what_is_rejected_is_settled_without_a_dead_letter_where_that_is_said(place: Place) {
    place.publish(&[None]);
    let ids = place.published(3);
    let source = KafkaSource::new(place.config(), [TOPIC], Rejected::Discard).unwrap();
    let closed = source.closed();
    let consumer = place.consumer().await;
    in_time(consumer.run(source, place.all_settled(), work)).await;
    // It had ended before the consumer did.
    in_time(closed).await;
    place.assert_done_once(&ids).await;
    assert!(place.dead().await.is_empty());
}
