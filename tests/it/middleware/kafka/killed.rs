//! A consumer process that is killed between the database's commit and that of the offsets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use inboxd::claim::{Inbox, middleware::kafka::KafkaDelivery};
use sqlx::{Postgres, Transaction, postgres::PgConnectOptions};

use super::{Counted, Place, consumer_of, eventually, in_time, member_config, on_tansu, pool_of, source_of, work};
use crate::support::{
    folder::Folder,
    process::{OtherProcess, report_and_wait, report_file},
};

/// How many messages are done when the process says so.
const DONE: u32 = 10;

on_tansu! {
    a_process_that_is_killed_before_its_offsets_are_committed_costs_duplicates_and_no_message
}

/// The full name of the test that is the other process.
const CONSUMER: &str = "middleware::kafka::killed::a_consumer_in_a_process_of_its_own";

async fn a_process_that_is_killed_before_its_offsets_are_committed_costs_duplicates_and_no_message(place: Place) {
    let ids = place.published(30);
    let folder = Folder::new();
    let orders = format!(
        "{}\n{}",
        place.broker.bootstrap_servers(),
        place.deployment.database.url
    );
    std::fs::write(folder.path().join("orders"), orders).unwrap();
    let process = tokio::task::spawn_blocking({
        let folder = folder.path().to_owned();
        move || {
            let mut process = OtherProcess::run(CONSUMER, &folder);
            process.report();
            process
        }
    })
    .await
    .unwrap();
    process.kill();
    let done = place.done_count().await;
    assert!(done >= usize::try_from(DONE).unwrap(), "{done}");
    assert_eq!(place.committed().await, [0, 0, 0]);
    let deliveries = Arc::new(AtomicU32::new(0));
    let source = Counted(place.source(), Arc::clone(&deliveries));
    let consumer = place.consumer().await;
    in_time(consumer.run(source, place.all_settled(), work)).await;
    place.assert_done_once(&ids).await;
    assert_eq!(deliveries.load(Ordering::SeqCst), 30);
    assert!(place.dead().await.is_empty());
}

#[tokio::test]
#[ignore = "the other process of a test"]
async fn a_consumer_in_a_process_of_its_own() {
    let Some(report) = report_file() else { return };
    let orders = std::fs::read_to_string(report.with_file_name("orders")).unwrap();
    let (servers, url) = orders.split_once('\n').unwrap();
    let pool = pool_of(url.parse::<PgConnectOptions>().unwrap());
    let inbox = Inbox::open(&mut pool.acquire().await.unwrap(), "public.inbox")
        .await
        .unwrap();
    let consumer = consumer_of(inbox, pool.clone());
    let source = source_of(member_config(servers)).with_commit_interval(Duration::from_secs(3600));
    let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &KafkaDelivery| work(tx, delivery).await;
    let until = async {
        eventually("some are done", async || {
            let done: i64 = sqlx::query_scalar("select count(*) from work")
                .fetch_one(&pool)
                .await
                .unwrap();
            done >= i64::from(DONE)
        })
        .await;
        report_and_wait("done");
    };
    consumer.run(source, until, handler).await;
}
