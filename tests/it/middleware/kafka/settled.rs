//! What is committed, and when.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use inboxd::claim::{
    MessageId,
    middleware::{Delivery, MissingId, Source, State, kafka::KafkaDelivery},
};
use sqlx::{Postgres, Transaction};
use tokio::sync::Notify;

use super::{Counted, Place, eventually, header, id_in, in_time, on_both_brokers, source_of, work};

on_both_brokers! {
    m3_offsets_are_committed_without_a_gap_while_handlers_end_out_of_order
    m7_a_handler_slower_than_the_longest_poll_interval_is_not_thrown_out_of_the_group
    a_shutdown_under_load_finishes_what_is_in_hand_commits_it_and_leaves_the_group
}

mod deliveries {
    use super::*;

    super::super::on_tansu! {
        m5_a_message_that_is_published_three_times_is_worked_on_once_and_always_settled
        m6_a_message_without_an_id_is_dead_lettered_with_the_reason
        m6_m10_a_message_without_an_id_gets_one_of_its_place_where_that_is_configured
        m3_a_partition_is_fetched_no_further_than_the_lag_limit_behind_a_message_that_is_not_settled
        a_delivery_that_is_dropped_is_delivered_again_and_the_offset_waits_for_it
    }
}

async fn m5_a_message_that_is_published_three_times_is_worked_on_once_and_always_settled(place: Place) {
    let ids = place.published(10);
    let again: Vec<_> = ids.iter().rev().chain(&ids).copied().map(Some).collect();
    place.publish(&again);
    let consumer = place.consumer().await.with_attempts(1);
    in_time(consumer.run(place.source(), place.all_settled(), work)).await;
    place.assert_done_once(&ids).await;
    assert!(place.dead().await.is_empty());
}

async fn m6_a_message_without_an_id_is_dead_lettered_with_the_reason(place: Place) {
    place.publish(&[None, Some(uuid::Uuid::nil())]);
    let ids = place.published(2);
    let consumer = place.consumer().await;
    in_time(consumer.run(place.source(), place.all_settled(), work)).await;
    place.assert_done_once(&ids).await;
    let letters = place.dead().await;
    let mut reasons: Vec<_> = letters
        .iter()
        .filter_map(|letter| header(letter, "inboxd-reason"))
        .collect();
    reasons.sort();
    assert_eq!(reasons, ["invalid_id", "no_id"]);
}

async fn m6_m10_a_message_without_an_id_gets_one_of_its_place_where_that_is_configured(place: Place) {
    place.publish(&[None, None]);
    let runs = AtomicU32::new(0);
    let by_place = |delivery: &KafkaDelivery| MessageId::from_name(delivery.coordinates()?).ok();
    let consumer = place.consumer().await.with_missing_id(MissingId::derive(by_place));
    let handler = async |_: &mut Transaction<'_, Postgres>, _: &KafkaDelivery| {
        runs.fetch_add(1, Ordering::SeqCst);
        Ok::<_, sqlx::Error>(())
    };
    in_time(consumer.run(place.source(), place.all_settled(), handler)).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert!(place.dead().await.is_empty());
}

async fn m3_offsets_are_committed_without_a_gap_while_handlers_end_out_of_order(place: Place) {
    let ids = place.published_to(&[1], 12);
    let (second, goes_on) = (ids[1], Notify::new());
    let consumer = place.consumer().await;
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &KafkaDelivery| {
        if id_in(delivery) == second {
            goes_on.notified().await;
        }
        work(tx, delivery).await
    };
    let until = async {
        eventually("all others are done", async || place.done_count().await == 11).await;
        // The one before it is committed, by a commit that would have held the others as well.
        eventually("the first is committed", async || place.committed().await[1] > 0).await;
        assert_eq!(place.committed().await, [0, 1, 0]);
        // A commit of another partition comes after what was settled here.
        let other = place.published_to(&[0], 1);
        eventually("another partition is committed", async || {
            place.committed().await[0] == 1
        })
        .await;
        assert_eq!(place.committed().await, [1, 1, 0]);
        goes_on.notify_one();
        place.all_settled().await;
        other
    };
    let mut other = Vec::new();
    let shutdown = async { other = until.await };
    in_time(consumer.run(place.source(), shutdown, handler)).await;
    place.assert_done_once(&[ids, other].concat()).await;
}

async fn m3_a_partition_is_fetched_no_further_than_the_lag_limit_behind_a_message_that_is_not_settled(place: Place) {
    let ids = place.published_to(&[1], 30);
    let mut source = place.source().with_lag_limit(8);
    in_time(async {
        let first = source.next().await.unwrap().unwrap();
        for _ in 1..8 {
            source.next().await.unwrap().unwrap().ack().await.unwrap();
        }
        // Another partition goes on, and what comes is of it alone.
        let others = place.published_to(&[2], 5);
        for _ in &others {
            let delivery = source.next().await.unwrap().unwrap();
            assert!(others.contains(&id_in(&delivery)));
            delivery.ack().await.unwrap();
        }
        first.ack().await.unwrap();
        for _ in 8..ids.len() {
            source.next().await.unwrap().unwrap().ack().await.unwrap();
        }
        place.all_settled().await;
    })
    .await;
}

async fn m7_a_handler_slower_than_the_longest_poll_interval_is_not_thrown_out_of_the_group(place: Place) {
    let ids = place.published_to(&[1], 3);
    // The mock cluster lets the first member wait for three seconds, and forgets who is silent for longer than a session.
    let longest = Duration::from_secs(4);
    let mut config = place.config();
    config
        .set("session.timeout.ms", longest.as_millis().to_string())
        .set("max.poll.interval.ms", longest.as_millis().to_string());
    let deliveries = Arc::new(AtomicU32::new(0));
    let consumer = place.consumer().await.with_concurrency(1);
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &KafkaDelivery| {
        if id_in(delivery) == ids[0] {
            tokio::time::sleep(longest * 3 / 2).await;
        }
        work(tx, delivery).await
    };
    let source = Counted(source_of(config), Arc::clone(&deliveries));
    in_time(consumer.run(source, place.all_settled(), handler)).await;
    place.assert_done_once(&ids).await;
    // A member that was thrown out gets everything again.
    assert_eq!(deliveries.load(Ordering::SeqCst), 3);
}

async fn a_shutdown_under_load_finishes_what_is_in_hand_commits_it_and_leaves_the_group(place: Place) {
    let ids = place.published(60);
    let (begun, goes_on) = (Notify::new(), Notify::new());
    let consumer = place.consumer().await;
    let runs = AtomicU32::new(0);
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &KafkaDelivery| {
        if runs.fetch_add(1, Ordering::SeqCst) >= 16 {
            begun.notify_one();
            goes_on.notified().await;
            goes_on.notify_one();
        }
        work(tx, delivery).await
    };
    // No commit but the last.
    let source = place.source().with_commit_interval(Duration::from_secs(3600));
    let mut state = consumer.watch();
    in_time(async {
        tokio::join!(consumer.run(source, begun.notified(), handler), async {
            state.wait_for(|state| *state == State::Draining).await.unwrap();
            goes_on.notify_one();
        })
    })
    .await;
    let done = place.done_count().await;
    assert!((16..=20).contains(&done), "{done}");
    place.assert_members_left().await;
    assert_eq!(
        place.committed().await.iter().sum::<i64>(),
        i64::try_from(done).unwrap()
    );
    let consumer = place.consumer().await;
    in_time(consumer.run(place.source(), place.all_settled(), work)).await;
    place.assert_done_once(&ids).await;
    assert!(place.dead().await.is_empty());
}

async fn a_delivery_that_is_dropped_is_delivered_again_and_the_offset_waits_for_it(place: Place) {
    let ids = place.published_to(&[1], 2);
    let mut source = place.source();
    in_time(async {
        let first = source.next().await.unwrap().unwrap();
        assert_eq!(id_in(&first), ids[0]);
        drop(first);
        source.next().await.unwrap().unwrap().ack().await.unwrap();
        let again = source.next().await.unwrap().unwrap();
        assert_eq!(id_in(&again), ids[0]);
        assert_eq!(place.committed().await, [0, 0, 0]);
        again.ack().await.unwrap();
        place.all_settled().await;
    })
    .await;
}
