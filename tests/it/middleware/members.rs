//! More than one consumer.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use sqlx::{Postgres, Transaction};

use super::{
    broker::Broker,
    place::{Place, in_time, work},
};
use crate::support::claims::eventually;

/// How many messages each consumer works on before the other one comes, or goes.
const SHARE: u32 = 30;

/// The second comes while the first works, and the first goes while the second does: what a broker hands from one to the other
/// may be with both for a while.
pub(super) async fn m9_two_consumers_that_come_and_go_under_load_do_every_message_once<B: Broker>() {
    let place = Place::<B>::new().await;
    let mut ids = place.published(60).await;
    let (first, second) = (place.consumer().await, place.consumer().await);
    let (by_first, by_second) = (AtomicU32::new(0), AtomicU32::new(0));
    let handler = async |count: &AtomicU32, tx: &mut Transaction<'_, Postgres>, delivery: &B::Delivery| {
        count.fetch_add(1, Ordering::SeqCst);
        // A little work, so that there is always some in hand.
        tokio::time::sleep(Duration::from_millis(5)).await;
        work(tx, delivery).await
    };
    let (of_first, of_second) = (
        async |tx: &mut Transaction<'_, Postgres>, delivery: &B::Delivery| handler(&by_first, tx, delivery).await,
        async |tx: &mut Transaction<'_, Postgres>, delivery: &B::Delivery| handler(&by_second, tx, delivery).await,
    );
    let has_worked = |count: &AtomicU32| count.load(Ordering::SeqCst) > SHARE;
    in_time(async {
        let goes = eventually("the second has worked", async || has_worked(&by_second));
        let comes = async {
            eventually("the first has worked", async || has_worked(&by_first)).await;
            let until = async {
                eventually("the second has worked", async || has_worked(&by_second)).await;
                place.broker.quiet().await;
            };
            place.run(&second, until, of_second).await;
        };
        // There is always something to do until both have worked.
        let load = async {
            while !has_worked(&by_second) {
                ids.extend(place.published(20).await);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::join!(place.run(&first, goes, of_first), comes, load);
    })
    .await;
    let consumer = place.consumer().await;
    place.run_dry(&consumer, work).await;
    place.assert_done_once(&ids).await;
}
