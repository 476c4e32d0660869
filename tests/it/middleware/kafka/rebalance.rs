//! Partitions change hands.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use inboxd::claim::middleware::{
    Delivery, Source,
    kafka::{KafkaDelivery, KafkaSource, rdkafka::Message},
};
use sqlx::{Postgres, Transaction};

use crate::support::kafka::Broker;

use super::{Counted, Place, eventually, id_in, in_time, on_both_brokers, source_of, work};

on_both_brokers! {
    m9_two_members_under_load_that_come_and_go_do_every_message_once
    m9_cooperative_members_that_come_and_go_do_every_message_once
    m9_what_was_taken_before_a_partition_changed_hands_cannot_be_committed_afterwards
}

async fn m9_two_members_under_load_that_come_and_go_do_every_message_once(place: Place) {
    come_and_go(place, "range").await;
}

async fn m9_cooperative_members_that_come_and_go_do_every_message_once(place: Place) {
    come_and_go(place, "cooperative-sticky").await;
}

async fn come_and_go(place: Place, strategy: &str) {
    let mut ids = place.published(300);
    let (first, second) = (place.consumer().await, place.consumer().await);
    let mut config = place.config();
    config.set("partition.assignment.strategy", strategy);
    let (by_first, by_second) = (AtomicU32::new(0), AtomicU32::new(0));
    let handler = |count: &AtomicU32| {
        count.fetch_add(1, Ordering::SeqCst);
        // A little work, so that there is always some in hand.
        tokio::time::sleep(Duration::from_millis(5))
    };
    let first_handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &KafkaDelivery| {
        handler(&by_first).await;
        work(tx, delivery).await
    };
    let second_handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &KafkaDelivery| {
        handler(&by_second).await;
        work(tx, delivery).await
    };
    in_time(async {
        let leaves = eventually("the second has worked", async || by_second.load(Ordering::SeqCst) > 60);
        let comes = async {
            eventually("the first has worked", async || by_first.load(Ordering::SeqCst) > 60).await;
            let until = async {
                eventually("the second has worked", async || by_second.load(Ordering::SeqCst) > 60).await;
                place.all_settled().await;
            };
            second.run(source_of(config.clone()), until, second_handler).await;
        };
        // There is always something to do until both have worked.
        let load = async {
            while by_second.load(Ordering::SeqCst) <= 60 {
                ids.extend(place.published(30));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::join!(first.run(source_of(config.clone()), leaves, first_handler), comes, load)
    })
    .await;
    place.assert_done_once(&ids).await;
    assert!(place.dead().await.is_empty());
}

async fn m9_what_was_taken_before_a_partition_changed_hands_cannot_be_committed_afterwards(place: Place) {
    let ids = place.published(3);
    let (mut old, mut new) = (place.source(), place.source());
    in_time(async {
        let mut stale = Vec::new();
        for _ in &ids {
            stale.push(old.next().await.unwrap().unwrap());
        }
        // The other member joins; both have something in hand anew.
        let (of_old, of_new) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let all = async || {
            let (of_old, of_new) = (of_old.lock().unwrap().len(), of_new.lock().unwrap().len());
            of_new > 0 && of_old + of_new >= 3
        };
        tokio::select! {
            () = eventually("both members have something", all) => {}
            () = collect(&mut old, &of_old) => {}
            () = collect(&mut new, &of_new) => {}
        }
        // Neither what was taken of a partition that is gone counts, nor of one that came back.
        for delivery in stale {
            let late = delivery.ack().await.unwrap_err();
            assert!(late.to_string().contains("taken from this consumer"), "{late}");
        }
        // Each member commits after that, and holds no more than it should. What an earlier generation gave the old one is
        // stale too.
        let again = of_new
            .into_inner()
            .unwrap()
            .into_iter()
            .chain(of_old.into_inner().unwrap());
        let mut expected = [0; 3];
        for delivery in again {
            let partition = usize::try_from(delivery.message().partition()).unwrap();
            if delivery.ack().await.is_ok() {
                expected[partition] = 1;
                eventually("it is committed", async || place.committed().await[partition] == 1).await;
            }
            assert_eq!(place.committed().await, expected);
        }
        assert!(expected.iter().sum::<i64>() >= 1, "{expected:?}");
    })
    .await;
}

async fn collect(source: &mut KafkaSource, deliveries: &Mutex<Vec<KafkaDelivery>>) {
    loop {
        let delivery = source.next().await.unwrap().unwrap();
        deliveries.lock().unwrap().push(delivery);
    }
}

/// On Tansu alone: once a group rebalances, the mock cluster refuses every commit with REBALANCE_IN_PROGRESS
/// (`rd_kafka_mock_cgrp_classic_check_state`, state joining), also that of a member which still has its generation. Kafka's
/// coordinator takes it while it prepares the rebalance, for this very purpose.
#[tokio::test]
async fn m9_what_is_settled_is_committed_before_the_partition_is_given_up() {
    let place = Place::on(Broker::tansu()).await;
    let ids = place.published(9);
    let mut old = place.source().with_commit_interval(Duration::from_secs(3600));
    let count = Arc::new(AtomicU32::new(0));
    let mut new = Counted(place.source(), Arc::clone(&count));
    in_time(async {
        for _ in &ids {
            old.next().await.unwrap().unwrap().ack().await.unwrap();
        }
        assert_eq!(place.committed().await, [0, 0, 0]);
        // The new member gets what was not settled, and nothing else.
        let more = place.published(3);
        let taking = async {
            loop {
                let delivery = old.next().await.unwrap().unwrap();
                assert!(more.contains(&id_in(&delivery)));
            }
        };
        let asking = async { id_in(&new.next().await.unwrap().unwrap()) };
        let got = tokio::select! {
            got = asking => got,
            () = taking => unreachable!("it has no end"),
        };
        assert!(more.contains(&got));
        assert_eq!(place.committed().await, [3, 3, 3]);
    })
    .await;
}
