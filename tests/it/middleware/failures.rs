//! Handlers that fail.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use sqlx::{Postgres, Transaction};
use uuid::Uuid;

use super::{
    broker::{BATCH, Broker, ID},
    place::{Place, id_in, work},
};

pub(super) async fn m8_a_handler_that_panics_costs_its_message_one_delivery_and_the_consumer_nothing<B: Broker>() {
    let place = Place::<B>::new().await;
    let ids = place.published(3).await;
    let (runs, panics) = (AtomicU32::new(0), AtomicU32::new(0));
    let consumer = place.consumer().await;
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &B::Delivery| {
        runs.fetch_add(1, Ordering::SeqCst);
        work(tx, delivery).await?;
        assert!(
            id_in(delivery) != ids[1] || panics.fetch_add(1, Ordering::SeqCst) > 0,
            "on purpose"
        );
        Ok::<_, sqlx::Error>(())
    };
    place.run_dry(&consumer, &handler).await;
    place.assert_done_once(&ids).await;
    // In batches, those that were in one with it are tried once more alone.
    let again = if B::IN_BATCHES { BATCH as u32 } else { 0 };
    assert!((4..=4 + again).contains(&runs.load(Ordering::SeqCst)), "{runs:?}");
}

pub(super) async fn poison_is_dead_lettered_with_the_reason_and_what_heals_is_worked_on<B: Broker>() {
    let place = Place::<B>::new().await;
    let ids = place.published(6).await;
    let (poison, healed) = (ids[2], ids[4]);
    let runs: Mutex<HashMap<Uuid, u32>> = Mutex::default();
    // Of which the healed one needs three; those who count deliveries may count one more at each end of a run. A batch that
    // fails is a run of its messages, and no failure of theirs.
    let consumer = place.consumer().await.with_attempts(6);
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &B::Delivery| {
        work(tx, delivery).await?;
        let id = id_in(delivery);
        let run = *runs.lock().unwrap().entry(id).and_modify(|run| *run += 1).or_insert(1);
        anyhow::ensure!(id != poison, "out of stock");
        anyhow::ensure!(id != healed || run > 2, "not yet");
        Ok(())
    };
    place.run_dry(&consumer, &handler).await;
    let dead = place.assert_done_once_but(&ids, &[poison]).await;
    let runs = runs.into_inner().unwrap();
    assert_eq!(runs[&healed], 3);
    assert!((2..=6 + u32::from(B::IN_BATCHES)).contains(&runs[&poison]), "{runs:?}");
    let dead = &dead[0];
    assert_eq!(
        (dead.header("inboxd-reason"), dead.header(ID)),
        ("failed", &*poison.to_string())
    );
    assert!(
        dead.header("inboxd-attempt").parse::<u32>().unwrap() >= runs[&poison] - u32::from(B::IN_BATCHES),
        "{dead:?}"
    );
    assert!(dead.header("inboxd-detail").contains("out of stock"), "{dead:?}");
}
