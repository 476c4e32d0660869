//! What is counted and timed.

use std::{collections::BTreeMap, time::Duration};

use chrono::TimeDelta;
use inboxd::{
    claim::{Message, Verdict, describe_metrics},
    clock::Clock,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use sqlx::Connection;

use super::{new_message, open, work, workplace};
use crate::support::inbox::random_id;

/// Each series with its labels: the count, the number of records, or nothing.
fn taken(snapshotter: &Snapshotter) -> BTreeMap<String, Vec<f64>> {
    let mut found = BTreeMap::new();
    for (key, _, description, value) in snapshotter.snapshot().into_vec() {
        let (_, key) = key.into_parts();
        assert!(description.is_some(), "{} is described", key.name());
        let labels: Vec<String> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        let values = match value {
            DebugValue::Counter(count) => vec![count as f64],
            DebugValue::Gauge(value) => vec![value.0],
            DebugValue::Histogram(records) => records.into_iter().map(|record| record.0).collect(),
        };
        found.insert(format!("{} {}", key.name(), labels.join(" ")), values);
    }
    found
}

/// One thread, so that a recorder of this test's own sees all of it and nothing else.
#[test]
fn claims_units_retries_and_the_age_of_duplicates_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || {
        describe_metrics();
        runtime.block_on(deliveries());
    });
    let found = taken(&snapshotter);
    let count = |name: &str| found.get(name).unwrap_or_else(|| panic!("{name} of {found:#?}"))[0];
    let of = |name: &str| count(&format!("{name} inbox=public.by_time"));
    let claims = |outcome: &str| count(&format!("inboxd_claims_total inbox=public.by_time outcome={outcome}"));
    let units = |outcome: &str| count(&format!("inboxd_units_total inbox=public.by_time outcome={outcome}"));
    // Done, failed, conflict twice, abandoned, and one older than the retention.
    assert_eq!(claims("fresh"), 6.0);
    assert_eq!((claims("duplicate"), claims("in_flight")), (1.0, 1.0));
    assert_eq!((units("done"), units("skipped"), units("in_flight")), (3.0, 1.0, 1.0));
    assert_eq!((units("failed"), units("abandoned")), (1.0, 1.0));
    assert_eq!(of("inboxd_unit_retries_total"), 1.0);
    assert_eq!(of("inboxd_claims_beyond_retention_total"), 1.0);
    let ages = &found["inboxd_duplicate_age_seconds inbox=public.by_time"];
    assert!(ages.len() == 1 && (0.0..60.0).contains(&ages[0]), "{ages:?}");
    assert_eq!(found["inboxd_claim_duration_seconds inbox=public.by_time"].len(), 8);
    assert_eq!(found["inboxd_handler_duration_seconds inbox=public.by_time"].len(), 5);
}

async fn deliveries() {
    let (deployment, pool) = workplace(1).await;
    let inbox = open(&pool, "by_time").await.with_wait(Duration::ZERO);
    let message = new_message();
    for _ in 0..2 {
        let result = inbox
            .process(&pool, &message, async |tx| work(tx, &message).await)
            .await;
        assert_eq!(Verdict::of(&result), Verdict::Ack);
    }
    let failed = inbox
        .process(&pool, &new_message(), async |_| Err::<(), _>("out of stock"))
        .await;
    assert!(failed.is_err());

    let first = std::sync::atomic::AtomicBool::new(true);
    let tried_again = inbox
        .process(&pool, &new_message(), async |tx| {
            if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
                sqlx::raw_sql("do $$ begin raise exception using errcode = '40001'; end $$")
                    .execute(&mut **tx)
                    .await?;
            }
            Ok::<_, sqlx::Error>(())
        })
        .await;
    assert!(tried_again.is_ok());

    let works = tokio::sync::Notify::new();
    let held = new_message();
    tokio::select! {
        _ = inbox.process(&pool, &held, async |_| {
            works.notify_one();
            std::future::pending::<Result<(), sqlx::Error>>().await
        }) => unreachable!("its handler never ends"),
        () = works.notified() => {}
    }

    let mut holder = deployment.database.connect().await;
    let mut holding = holder.begin().await.unwrap();
    let held = new_message();
    // Not counted: it is the test's own.
    assert!(
        crate::support::inbox::claim(&mut holding, "by_time", held.id().uuid())
            .await
            .unwrap()
    );
    let in_flight = inbox.process(&pool, &held, async |tx| work(tx, &held).await).await;
    assert_eq!(Verdict::of(&in_flight), Verdict::Retry);

    let id = inboxd::claim::MessageId::from_uuid(random_id()).unwrap();
    let old = Message::new(id, "orders")
        .unwrap()
        .created_at(Clock::system().now() - TimeDelta::days(30));
    let fresh = inbox.process(&pool, &old, async |tx| work(tx, &old).await).await;
    assert_eq!(Verdict::of(&fresh), Verdict::Ack);
}
