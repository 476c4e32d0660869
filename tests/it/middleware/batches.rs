//! What only batches have; every other scenario runs with them as well.

use std::{sync::Mutex, time::Duration};

use sqlx::{Postgres, Transaction};
use uuid::Uuid;

use super::{
    broker::Broker,
    place::{CONCURRENCY, Place, id_in, in_time, work_on_all},
};
use crate::support::claims::eventually;

/// All that the broker hands out at once are in one batch, also on a slow machine. What comes again waits for so long too.
const LONG: Duration = Duration::from_secs(5);

/// The batches that a handler was called with.
type Calls = Mutex<Vec<Vec<Uuid>>>;

pub(super) async fn messages_that_fail_their_batch_are_alone_from_then_on_and_the_others_are_done_at_once<B: Broker>() {
    let place = Place::<B>::new().await;
    let ids = place.published(CONCURRENCY.into()).await;
    // Two, which could be a batch when they come again.
    let poison = [ids[1], ids[2]];
    let calls = Calls::default();
    let consumer = place.consumer().await.with_concurrency(1).with_attempts(3);
    let consumer = consumer.with_batch(CONCURRENCY.into(), LONG);
    let handler = async |tx: &mut Transaction<'_, Postgres>, deliveries: &[&B::Delivery]| {
        let ids: Vec<Uuid> = deliveries.iter().map(|delivery| id_in(*delivery)).collect();
        let is_poisoned = ids.iter().any(|id| poison.contains(id));
        calls.lock().unwrap().push(ids);
        work_on_all(tx, deliveries).await?;
        anyhow::ensure!(!is_poisoned, "out of stock");
        Ok(())
    };
    let rejected = async {
        eventually("they are rejected", async || place.broker.dead().await.len() == 2).await;
        place.broker.quiet().await;
    };
    let source = place.broker.source().await;
    in_time(consumer.run_batches(source, rejected, handler)).await;
    place.assert_done_once_but(&ids, &poison).await;
    let calls = calls.into_inner().unwrap();
    assert_eq!(calls[0].len(), ids.len(), "{calls:?}");
    assert!(calls[1..].iter().all(|call| call.len() == 1), "{calls:?}");
    let alone = |id: Uuid| calls[1..].iter().filter(|call| call[0] == id).count();
    let times: Vec<usize> = ids.iter().map(|id| alone(*id)).collect();
    assert_eq!(times, [1, 3, 3, 1], "{calls:?}");
}

pub(super) async fn m5_the_duplicates_in_a_batch_are_worked_on_once_and_all_acked<B: Broker>() {
    let place = Place::<B>::new().await;
    let ids = place.published(2).await;
    for id in &ids {
        place.broker.publish(Some(*id)).await;
    }
    let calls = Calls::default();
    let consumer = place.consumer().await.with_attempts(1);
    let consumer = consumer.with_batch(CONCURRENCY.into(), LONG);
    let handler = async |tx: &mut Transaction<'_, Postgres>, deliveries: &[&B::Delivery]| {
        let mut ids: Vec<Uuid> = deliveries.iter().map(|delivery| id_in(*delivery)).collect();
        ids.sort_unstable();
        calls.lock().unwrap().push(ids);
        work_on_all(tx, deliveries).await
    };
    let source = place.broker.source().await;
    in_time(consumer.run_batches(source, place.broker.quiet(), handler)).await;
    place.assert_done_once(&ids).await;
    let mut both = ids.clone();
    both.sort_unstable();
    assert_eq!(*calls.lock().unwrap(), [both]);
}
