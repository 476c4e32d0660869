//! One message: was it processed, and let it be processed again.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use inboxd::{
    Day,
    maintain::operate::{FoundMessage, OperateError, OperateErrorKind, forget, message},
};
use uuid::Uuid;

use super::{alice, audit, in_december, line, operator, short_lived};
use crate::{
    claim::{both_routings, for_many},
    support::{
        claims::{Claim, eventually},
        clock::ClockServer,
        inbox::{Deployment, claim, random_id, spec, sql, v7_at, v7_spec},
    },
};

async fn asked(deployment: &Deployment, table: usize, id: Uuid) -> Result<FoundMessage, OperateError> {
    let alice = alice();
    let mut connection = deployment.maintenance().await;
    message(
        &mut connection,
        operator(deployment, &alice),
        &deployment.specs[table],
        id,
        None,
    )
    .await
}

fn day(text: &str) -> Day {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_message_is_found_with_its_time_and_its_partition_also_in_a_detached_one() {
    let server = ClockServer::start(&[]).await;
    let specs = vec![
        short_lived(spec("public.by_time")),
        short_lived(v7_spec("public.by_id")),
    ];
    let deployment = in_december(&server, specs).await;
    let mut connection = deployment.database.connect().await;
    let ids = [random_id(), v7_at(server.now())];
    let claimed_at = server.now();
    for (table, id) in ["by_time", "by_id"].into_iter().zip(ids) {
        assert!(claim(&mut connection, table, id).await.unwrap());
    }
    for is_attached in [true, false] {
        for (index, table) in ["by_time", "by_id"].into_iter().enumerate() {
            let found = asked(&deployment, index, ids[index]).await.unwrap();
            let [processed] = &found.processed[..] else {
                panic!("{found:?}")
            };
            assert!(
                (processed.processed_at - claimed_at).abs() < TimeDelta::seconds(20),
                "{processed:?}"
            );
            assert_eq!(
                (
                    processed.partition.as_str(),
                    processed.day,
                    processed.topic.as_str(),
                    processed.is_attached
                ),
                (
                    format!("{table}_2026_12_01").as_str(),
                    Some(day("2026-12-01")),
                    "orders",
                    is_attached
                )
            );
            assert!(found.looked_at.contains(&day("2026-12-01")) && found.not_looked_at.is_empty());
        }
        for _ in 0..3 {
            server.step(TimeDelta::days(1));
            deployment.done().await;
        }
        // The grace is over: by now it would be dropped.
        if !is_attached {
            assert!(asked(&deployment, 0, ids[0]).await.unwrap().processed.is_empty());
        }
    }
}

#[tokio::test]
async fn a_message_that_was_not_processed_says_which_days_were_looked_at() {
    let deployment = both_routings().await;
    let today = Day::containing(deployment.clock.now());
    let found = asked(&deployment, 0, random_id()).await.unwrap();
    assert_eq!((found.processed.len(), found.not_looked_at.len()), (0, 0));
    assert_eq!(found.looked_at, (0..=7).map(|by| today.plus(by)).collect::<Vec<_>>());
    // By id its own day is the only one that can hold it.
    let found = asked(&deployment, 1, v7_at(deployment.clock.now())).await.unwrap();
    assert_eq!((found.processed.len(), found.looked_at), (0, vec![today]));
    for (table, id) in [(0, Uuid::nil()), (1, Uuid::nil()), (1, random_id())] {
        let error = asked(&deployment, table, id).await.unwrap_err();
        assert_eq!(error.kind(), OperateErrorKind::InvalidId, "{error}");
    }
}

#[tokio::test]
async fn a_message_is_looked_for_by_index_probes_only() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut connection = deployment.database.connect().await;
    for _ in 0..20 {
        assert!(claim(&mut connection, "inbox", random_id()).await.unwrap());
    }
    sql(&mut connection, "analyze inbox").await;
    let scans =
        "select sum(seq_scan)::bigint, sum(idx_scan)::bigint from pg_stat_user_tables where relname ~ '^inbox_2'";
    // What a session counted is there for others at the latest once it has ended.
    let counted = async |sequential: i64, by_index: i64| {
        let begin = Instant::now();
        loop {
            let found: (i64, i64) = sqlx::query_as(scans)
                .fetch_one(&mut deployment.database.connect().await)
                .await
                .unwrap();
            if found.0 >= sequential && found.1 >= by_index {
                return found;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "{found:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    drop(connection);
    eventually("the other sessions have ended", async || {
        let others = "select count(*) = 1 from pg_stat_activity where datname = current_database()";
        sqlx::query_scalar(others)
            .fetch_one(&mut deployment.database.connect().await)
            .await
            .unwrap()
    })
    .await;
    // PostgreSQL 14 collects what sessions counted one after the other, and late: once it knows of this one, it knows of all.
    sql(
        &mut deployment.database.connect().await,
        "create table public.marker (); select count(*) from public.marker",
    )
    .await;
    eventually("the counters of the sessions before are there", async || {
        let known = "select coalesce(sum(seq_scan), 0) > 0 from pg_stat_user_tables where relname = 'marker'";
        sqlx::query_scalar(known)
            .fetch_one(&mut deployment.database.connect().await)
            .await
            .unwrap()
    })
    .await;
    let before = counted(0, 0).await;
    assert!(asked(&deployment, 0, random_id()).await.unwrap().processed.is_empty());
    let after = counted(0, before.1 + 8).await;
    assert_eq!(after.0, before.0, "eight partitions, each by its key");
    // The counter does count what it is here to rule out.
    sql(&mut deployment.database.connect().await, "set enable_indexonlyscan = off; set enable_indexscan = off; set enable_bitmapscan = off; select count(*) from inbox").await;
    counted(before.0 + 8, 0).await;
}

#[tokio::test]
async fn a_locked_partition_is_left_out_in_time_and_named() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let today = Day::containing(deployment.clock.now());
    let mut connection = deployment.database.connect().await;
    let id = random_id();
    assert!(claim(&mut connection, "inbox", id).await.unwrap());
    let mut other = deployment.database.connect().await;
    sql(&mut other, "begin").await;
    for by in [1, 2, 3] {
        let name = format!("inbox_{}", today.plus(by).underscored());
        sql(&mut other, format!("lock table {name} in access exclusive mode")).await;
    }
    let begin = Instant::now();
    let found = asked(&deployment, 0, id).await.unwrap();
    // The lock timeout of these sessions is half a second; one second is what the question has in all.
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!((found.processed.len(), found.looked_at.len()), (1, 5));
    let left_out: Vec<_> = found.not_looked_at.iter().map(|left| (left.day, left.why)).collect();
    assert_eq!(left_out, [1, 2, 3].map(|by| (Some(today.plus(by)), "it is locked")));
    // A partition without its key would have to be read whole.
    sql(&mut other, "rollback").await;
    let name = format!("inbox_{}", today.plus(4).underscored());
    sql(&mut other, format!("alter table {name} drop constraint {name}_pkey")).await;
    let found = asked(&deployment, 0, id).await.unwrap();
    assert!(found.not_looked_at[0].why.contains("lost its key"), "{found:?}");
}

#[tokio::test]
async fn of_many_consumers_each_is_told_or_the_one_that_is_asked_for() {
    let deployment = Deployment::running(vec![for_many(spec("public.inbox"))]).await;
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    let (operator, spec) = (operator(&deployment, &alice), &deployment.specs[0]);
    let id = random_id();
    let mut consumer = deployment.database.connect().await;
    for name in ["mailer", "biller"] {
        assert_eq!(Claim::of("inbox", id).by(name).outcome(&mut consumer).await, "fresh");
    }
    let found = message(&mut connection, operator, spec, id, None).await.unwrap();
    let names: Vec<_> = found
        .processed
        .iter()
        .map(|processed| processed.consumer.as_deref())
        .collect();
    assert_eq!(names, [Some("mailer"), Some("biller")], "in the order of their claims");
    let found = message(&mut connection, operator, spec, id, Some("biller"))
        .await
        .unwrap();
    assert_eq!(found.processed.len(), 1);

    let unnamed = forget(&mut connection, operator, spec, id, None, "replay")
        .await
        .unwrap_err();
    assert_eq!(unnamed.kind(), OperateErrorKind::InvalidConsumer);
    let forgotten = forget(&mut connection, operator, spec, id, Some("biller"), "replay")
        .await
        .unwrap();
    assert!(forgotten.was_there);
    let found = message(&mut connection, operator, spec, id, None).await.unwrap();
    assert_eq!(found.processed.len(), 1);
}

#[tokio::test]
async fn c29_a_forget_is_on_the_audit_once_under_the_name_of_who_had_it_done_and_refused_in_flight() {
    let deployment = both_routings().await;
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    let operator = operator(&deployment, &alice);
    let mut consumer = deployment.database.connect().await;
    for (spec, table) in deployment.specs.iter().zip(["by_time", "by_id"]) {
        let id = v7_at(deployment.clock.now());
        assert!(claim(&mut consumer, table, id).await.unwrap());
        let forgotten = forget(&mut connection, operator, spec, id, None, "replay")
            .await
            .unwrap();
        assert!(forgotten.was_there);
        let again = forget(&mut connection, operator, spec, id, None, "replay")
            .await
            .unwrap();
        assert!(!again.was_there);
        assert!(claim(&mut consumer, table, id).await.unwrap(), "fresh again");
        for (consumer, reason, kind) in [
            (None, " ", OperateErrorKind::Invalid),
            (Some("mailer"), "replay", OperateErrorKind::InvalidConsumer),
        ] {
            let error = forget(&mut connection, operator, spec, id, consumer, reason)
                .await
                .unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
    let id = random_id();
    sql(&mut consumer, "begin").await;
    assert!(claim(&mut consumer, "by_time", id).await.unwrap());
    let spec = &deployment.specs[0];
    let error = forget(&mut connection, operator, spec, id, None, "replay")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), OperateErrorKind::InFlight, "{error}");
    sql(&mut consumer, "commit").await;
    let expected: Vec<_> = ["by_time", "by_time", "by_id", "by_id"]
        .into_iter()
        .map(|table| line("forget", Some(table), Some("replay"), None))
        .collect();
    assert_eq!(audit(&mut connection).await, expected);
}

#[tokio::test]
async fn a_forget_that_meets_a_locked_partition_says_so_and_not_that_the_message_is_in_flight() {
    let deployment = both_routings().await;
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    let operator = operator(&deployment, &alice);
    let (mut consumer, mut other) = (deployment.database.connect().await, deployment.database.connect().await);
    for (spec, table) in deployment.specs.iter().zip(["by_time", "by_id"]) {
        for mode in ["access exclusive", "share"] {
            let id = v7_at(deployment.clock.now());
            assert!(claim(&mut consumer, table, id).await.unwrap());
            let leaf = spec.table.partition(Day::containing(deployment.clock.now()));
            sql(&mut other, format!("begin; lock table {leaf} in {mode} mode")).await;
            let error = forget(&mut connection, operator, spec, id, None, "replay")
                .await
                .unwrap_err();
            assert_eq!(error.kind().as_str(), "locked", "{table} {mode}: {error}");
            sql(&mut other, "rollback").await;
            let forgotten = forget(&mut connection, operator, spec, id, None, "replay")
                .await
                .unwrap();
            assert!(forgotten.was_there);
        }
        // Its row itself, by somebody who reads it.
        let id = v7_at(deployment.clock.now());
        assert!(claim(&mut consumer, table, id).await.unwrap());
        sql(
            &mut other,
            format!("begin; select from {table} where message_id = '{id}' for update"),
        )
        .await;
        let error = forget(&mut connection, operator, spec, id, None, "replay")
            .await
            .unwrap_err();
        assert_eq!(error.kind().as_str(), "locked", "{table}: {error}");
        sql(&mut other, "rollback").await;
    }
}

#[tokio::test]
async fn a_forget_of_functions_that_are_not_upgraded_yet_says_what_is_true_whatever_was_in_its_way() {
    let deployment = both_routings().await;
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    let operator = operator(&deployment, &alice);
    let mut admin = deployment.database.connect().await;
    for (errcode, kind) in [("55P03", "locked"), ("55006", "database")] {
        sql(
            &mut admin,
            format!(
                "create or replace function by_time_forget(message_id uuid, consumer text default null, reason text default null)
                 returns boolean language plpgsql as $$ begin raise exception using errcode = '{errcode}'; end $$"
            ),
        )
        .await;
        let error = forget(
            &mut connection,
            operator,
            &deployment.specs[0],
            random_id(),
            None,
            "replay",
        )
        .await
        .unwrap_err();
        assert_eq!(error.kind().as_str(), kind, "{errcode}: {error}");
        assert!(!error.to_string().contains("publication"), "{error}");
    }
}
