//! An expiry is taken back.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use chrono::TimeDelta;
use inboxd::{
    Day, OnExpiry, Retention,
    maintain::operate::{OperateError, OperateErrorKind, Restored, restore},
};

use super::{alice, audit, in_december, line, operator, short_lived};
use crate::{
    support::{
        clock::ClockServer,
        inbox::{Deployment, claim, random_id, spec, sql, v7_at, v7_spec},
    },
    waiting::{Sampler, consumer, steady_claims},
};

/// The advisory lock of a run: the bytes of "inboxd" and a version.
const RUN_LOCK: i64 = 0x696e_626f_7864_0001;

async fn restored(deployment: &Deployment, table: usize, day: &str) -> Result<Restored, OperateError> {
    let alice = alice();
    let day: Day = day.parse().unwrap();
    let mut connection = deployment.maintenance().await;
    restore(
        &mut connection,
        operator(deployment, &alice),
        &deployment.specs[table],
        day,
        Some("a slip"),
    )
    .await
}

/// On 4 December, when the first has just been taken out; and an id of that day for either routing.
async fn with_a_detached_day(server: &ClockServer) -> (Deployment, [uuid::Uuid; 2]) {
    let specs = vec![
        short_lived(spec("public.by_time")),
        short_lived(v7_spec("public.by_id")),
    ];
    let deployment = in_december(server, specs).await;
    let ids = [v7_at(server.now()), v7_at(server.now())];
    let mut connection = deployment.database.connect().await;
    for (table, id) in ["by_time", "by_id"].into_iter().zip(ids) {
        assert!(claim(&mut connection, table, id).await.unwrap());
    }
    for _ in 0..3 {
        server.step(TimeDelta::days(1));
        deployment.done().await;
    }
    for table in ["by_time", "by_id"] {
        assert!(
            !deployment
                .partitions(table)
                .await
                .contains(&format!("{table}_2026_12_01")),
            "{table}"
        );
    }
    (deployment, ids)
}

/// How often the server has said so far that an attach needs no scan: once when a partition is made, and once when it is
/// attached again.
fn implied(server: &ClockServer, partition: &str) -> usize {
    let log = std::fs::read_to_string(server.server.cluster.log_file()).unwrap();
    let said = format!("partition constraint for table \"{partition}\" is implied by existing constraints");
    log.matches(&said).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s36_a_restored_day_is_attached_without_a_scan_while_claims_run_and_its_duplicates_are_caught_again() {
    let server = Arc::new(ClockServer::start(&[("log_min_messages", "debug1")]).await);
    let (mut deployment, ids) = with_a_detached_day(&server).await;
    // The retention was a slip: it is put right first.
    for spec in &mut deployment.specs {
        spec.policy.retention = Retention::For(TimeDelta::days(7));
    }
    deployment.init().await.unwrap();
    let found = deployment.plan().await.remove(0).plan;
    let finding = found
        .findings
        .iter()
        .find(|finding| finding.message.contains("2026-12-01"))
        .unwrap();
    assert!(finding.remedy.contains("inboxd restore"), "{finding:?}");

    let stop = Arc::new(AtomicBool::new(false));
    let claimers = ["by_time", "by_id"].map(|table| steady_claims(&server, &deployment.database, table, &stop));
    let sampler = Sampler::start(&deployment.database).await;
    let mut business = consumer(&deployment.database).await;
    sql(&mut business, "begin").await;
    assert!(claim(&mut business, "by_time", random_id()).await.unwrap());
    assert!(claim(&mut business, "by_id", v7_at(server.now())).await.unwrap());
    for (index, table) in ["by_time", "by_id"].into_iter().enumerate() {
        let partition = format!("{table}_2026_12_01");
        let done = restored(&deployment, index, "2026-12-01").await.unwrap();
        assert_eq!(
            (
                done.partition.as_str(),
                done.catches_duplicates,
                done.hold.reason.as_str()
            ),
            (partition.as_str(), true, "restored: a slip")
        );
        assert!(done.detached_at.is_some());
        assert_eq!(implied(&server, &partition), 2, "nothing was scanned");
    }
    sql(&mut business, "commit").await;
    stop.store(true, Ordering::SeqCst);
    for claimer in claimers {
        let claims = claimer.await.unwrap();
        assert!(claims > 10, "only {claims} claims were made: that proves nothing");
    }
    let (samples, seen) = sampler.stop().await;
    assert!(samples > 5, "only {samples} samples");
    assert_eq!(seen, Vec::<String>::new(), "no claim waited for the restore");

    let mut connection = deployment.database.connect().await;
    for (table, id) in ["by_time", "by_id"].into_iter().zip(ids) {
        assert!(
            !claim(&mut connection, table, id).await.unwrap(),
            "{table}: a duplicate again"
        );
    }
    assert_eq!(
        audit(&mut connection).await,
        ["by_time", "by_id"].map(|table| line("restore", Some(table), Some("a slip"), Some("2026-12-01")))
    );
    // The detach is off the record, and the marker says the same.
    let (detached, comments): (i64, Vec<String>) = sqlx::query_as(
        "select (select count(*) from inboxd.partitions where day = '2026-12-01' and detached_at is not null),
           array(select obj_description(oid, 'pg_class') from pg_class where relname ~ '^by_.*_2026_12_01$')",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(detached, 0);
    assert!(
        comments.iter().all(|comment| !comment.contains("detached")),
        "{comments:?}"
    );

    // Not taken out again, however long ago it expires.
    for _ in 0..8 {
        server.step(TimeDelta::days(1));
        deployment.done().await;
    }
    for table in ["by_time", "by_id"] {
        let partitions = deployment.partitions(table).await;
        assert!(partitions.contains(&format!("{table}_2026_12_01")), "{partitions:?}");
        assert!(!partitions.contains(&format!("{table}_2026_12_02")), "{partitions:?}");
    }
}

#[tokio::test]
async fn a_restored_day_beyond_the_retention_says_that_claims_do_not_look_at_it() {
    let server = ClockServer::start(&[("log_min_messages", "debug1")]).await;
    let (deployment, ids) = with_a_detached_day(&server).await;
    // And one whose check constraint is gone is scanned, by nobody's loss: that is how the other test would fail.
    let check: String = sqlx::query_scalar(
        "select conname::text from pg_constraint where conrelid = 'by_time_2026_12_01'::regclass and contype = 'c'",
    )
    .fetch_one(&mut deployment.database.connect().await)
    .await
    .unwrap();
    sql(
        &mut deployment.database.connect().await,
        format!("alter table by_time_2026_12_01 drop constraint \"{check}\""),
    )
    .await;
    for (index, table) in ["by_time", "by_id"].into_iter().enumerate() {
        assert!(
            !restored(&deployment, index, "2026-12-01")
                .await
                .unwrap()
                .catches_duplicates,
            "{table}"
        );
    }
    assert_eq!(
        (
            implied(&server, "by_time_2026_12_01"),
            implied(&server, "by_id_2026_12_01")
        ),
        (1, 2)
    );
    let mut connection = deployment.database.connect().await;
    assert!(claim(&mut connection, "by_time", ids[0]).await.unwrap(), "as it said");
    // What is held was restored, and nothing else happens to it.
    assert_eq!(deployment.done().await, Vec::<String>::new());
}

#[tokio::test]
async fn what_cannot_be_restored_is_refused_with_the_reason_and_nothing_changes() {
    let server = ClockServer::start(&[]).await;
    let (deployment, _) = with_a_detached_day(&server).await;
    let mut admin = deployment.database.connect().await;
    let kind_of = async |day: &str| {
        let error = restored(&deployment, 0, day).await.unwrap_err();
        (error.kind(), error.to_string())
    };
    let refused = |(kind, text): (OperateErrorKind, String), expected, part: &str| {
        assert_eq!(kind, expected, "{text}");
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    };
    refused(
        kind_of("2026-12-04").await,
        OperateErrorKind::NotDetached,
        "is part of the inbox",
    );
    refused(
        kind_of("2026-11-20").await,
        OperateErrorKind::NoSuchDay,
        "inboxd status",
    );
    let restorable = "alter table by_time_2026_12_01";
    for (break_it, mend_it, part) in [
        (
            "drop constraint by_time_2026_12_01_pkey",
            "add constraint by_time_2026_12_01_pkey primary key (message_id)",
            "has lost its key",
        ),
        ("set schema elsewhere", "", "move and rename it back"),
    ] {
        sql(&mut admin, "drop schema if exists elsewhere; create schema elsewhere").await;
        sql(&mut admin, format!("{restorable} {break_it}")).await;
        refused(kind_of("2026-12-01").await, OperateErrorKind::NotRestorable, part);
        match mend_it {
            "" => sql(&mut admin, "alter table elsewhere.by_time_2026_12_01 set schema public").await,
            _ => sql(&mut admin, format!("{restorable} {mend_it}")).await,
        }
    }
    sql(&mut admin, "create table by_time_default partition of by_time default").await;
    refused(
        kind_of("2026-12-01").await,
        OperateErrorKind::NotRestorable,
        "default partition",
    );
    sql(&mut admin, "drop table by_time_default").await;
    sql(
        &mut admin,
        "create table odd partition of by_time for values from ('2026-12-01 06:00+00') to ('2026-12-01 07:00+00')",
    )
    .await;
    refused(
        kind_of("2026-12-01").await,
        OperateErrorKind::NotRestorable,
        "partition odd holds some of that day",
    );
    sql(
        &mut admin,
        "drop table odd; comment on table by_time_2026_12_01 is 'mine'",
    )
    .await;
    refused(
        kind_of("2026-12-01").await,
        OperateErrorKind::NotRestorable,
        "not marked",
    );
    sql(&mut admin, "alter table by_time_2026_12_01 rename to other").await;
    refused(
        kind_of("2026-12-01").await,
        OperateErrorKind::NoSuchDay,
        "no table of 2026-12-01",
    );
    let left: i64 =
        sqlx::query_scalar("select (select count(*) from inboxd.holds) + (select count(*) from inboxd.audit)")
            .fetch_one(&mut admin)
            .await
            .unwrap();
    assert_eq!(left, 0);

    // By id it was dropped meanwhile.
    server.step(TimeDelta::days(1));
    deployment.pass().await;
    let error = restored(&deployment, 1, "2026-12-01").await.unwrap_err();
    assert_eq!(error.kind(), OperateErrorKind::Dropped, "{error}");
}

#[tokio::test]
async fn a_restore_beside_a_run_is_busy_and_names_who_has_it() {
    let server = ClockServer::start(&[]).await;
    let (deployment, _) = with_a_detached_day(&server).await;
    let mut other = deployment.database.connect().await;
    sql(
        &mut other,
        format!("set application_name = 'the run'; select pg_advisory_lock({RUN_LOCK})"),
    )
    .await;
    let error = restored(&deployment, 0, "2026-12-01").await.unwrap_err();
    assert_eq!(error.kind(), OperateErrorKind::Busy);
    assert!(error.to_string().contains("the run"), "{error}");
    assert_eq!(error.holder().unwrap().application_name.as_deref(), Some("the run"));
    sql(&mut other, format!("select pg_advisory_unlock({RUN_LOCK})")).await;
    // And it gives the lock back itself, on the very session.
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    let (operator, spec) = (operator(&deployment, &alice), &deployment.specs[0]);
    let day: Day = "2026-12-01".parse().unwrap();
    restore(&mut connection, operator, spec, day, None).await.unwrap();
    let error = restore(&mut connection, operator, spec, day, None).await.unwrap_err();
    assert_eq!(error.kind(), OperateErrorKind::NotDetached);
    let held: i64 =
        sqlx::query_scalar("select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert_eq!(held, 0);
}

#[tokio::test]
async fn a_restore_that_meets_a_lock_is_tried_again_and_leaves_nothing_half_done() {
    let server = ClockServer::start(&[]).await;
    let (mut deployment, _) = with_a_detached_day(&server).await;
    let mut other = deployment.database.connect().await;
    sql(
        &mut other,
        "begin; lock table public.by_time in share update exclusive mode",
    )
    .await;
    deployment.timeouts.lock = std::time::Duration::from_millis(50);
    let error = restored(&deployment, 0, "2026-12-01").await.unwrap_err();
    assert!(
        matches!(error.kind(), OperateErrorKind::Database(kind) if kind.is_retryable()),
        "{error}"
    );
    let left: i64 =
        sqlx::query_scalar("select (select count(*) from inboxd.holds) + (select count(*) from inboxd.audit)")
            .fetch_one(&mut deployment.database.connect().await)
            .await
            .unwrap();
    assert_eq!(left, 0, "no hold, and no line of what was not done");

    deployment.timeouts.lock = std::time::Duration::from_millis(300);
    deployment.retries.attempts = 20;
    let restoring = tokio::spawn({
        let deployment = deployment.clone();
        async move { restored(&deployment, 0, "2026-12-01").await }
    });
    // The first try is at it once it waits.
    crate::support::claims::wait_until_any_blocked(&deployment.database).await;
    // It has given up once when nobody waits any more.
    let begin = std::time::Instant::now();
    let mut observer = deployment.database.connect().await;
    while sqlx::query_scalar::<_, bool>("select exists (select from pg_locks where not granted)")
        .fetch_one(&mut observer)
        .await
        .unwrap()
    {
        assert!(begin.elapsed() < std::time::Duration::from_secs(20));
    }
    sql(&mut other, "commit").await;
    let done = restoring.await.unwrap().unwrap();
    assert!(done.attempts > 1, "{done:?}");
    assert_eq!(audit(&mut observer).await.len(), 1);
}

#[tokio::test]
async fn what_was_moved_to_the_archive_is_told_where_it_is() {
    let server = ClockServer::start(&[]).await;
    let mut spec = short_lived(spec("public.inbox"));
    spec.policy.on_expiry = OnExpiry::Keep {
        archive_schema: Some(inboxd::Ident::new("archive").unwrap()),
    };
    let deployment = in_december(&server, vec![spec]).await;
    sql(&mut deployment.database.connect().await, "create schema archive").await;
    for _ in 0..4 {
        server.step(TimeDelta::days(1));
        deployment.done().await;
    }
    let error = restored(&deployment, 0, "2026-12-01").await.unwrap_err();
    assert_eq!(error.kind(), OperateErrorKind::NotRestorable);
    assert!(
        error.to_string().contains("\"archive\".\"inbox_2026_12_01\""),
        "{error}"
    );
    sql(
        &mut deployment.database.connect().await,
        "alter table archive.inbox_2026_12_01 set schema public",
    )
    .await;
    restored(&deployment, 0, "2026-12-01").await.unwrap();
}
