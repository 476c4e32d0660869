//! What others do to an inbox while it is rotated: vacuums, dumps, readers, restores, and clocks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::{
    Day, InboxSpec,
    maintain::{RunReport, StepOutcome},
    postgres::ErrorKind,
};
use sqlx::PgConnection;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::support::{
    claims::{eventually, pid_of},
    clock::ClockServer,
    inbox::{Deployment, claim, codes, only, random_id, spec, sql, sqlstate, steps, try_claim, v7_at, v7_spec},
    server,
};
use crate::waiting::{Sampler, short_lived, steady_claims};

/// Noon of a first day; each test has a server and a clock of its own.
const START: &str = "2026-12-01T12:00:00Z";

/// An inbox that is claimed from all the time.
struct Busy {
    server: Arc<ClockServer>,
    deployment: Deployment,
    stop: Arc<AtomicBool>,
    claimers: Vec<JoinHandle<u64>>,
    sampler: Sampler,
}

impl Busy {
    /// Three days of it, so that the first is about to expire.
    async fn start() -> Self {
        let server = Arc::new(ClockServer::start(&[]).await);
        server.set_to(START.parse().unwrap());
        let specs = vec![short_lived(spec("public.inbox"))];
        let mut deployment = Deployment::new(server.database().await, server.clock(), specs);
        deployment.timeouts.lock = Duration::from_millis(300);
        deployment.retries.attempts = 2;
        deployment.init().await.unwrap();
        deployment.done().await;
        let mut admin = deployment.database.connect().await;
        let fill =
            "insert into inbox (message_id, topic) select gen_random_uuid(), 'orders' from generate_series(1, 20000)";
        sql(&mut admin, fill).await;
        for _ in 0..2 {
            server.step(TimeDelta::days(1));
            deployment.done().await;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let claimers = (0..2)
            .map(|_| steady_claims(&server, &deployment.database, "inbox", &stop))
            .collect();
        let sampler = Sampler::start(&deployment.database).await;
        Self {
            server,
            deployment,
            stop,
            claimers,
            sampler,
        }
    }

    /// Every claim was made, and none waited for maintenance.
    async fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        for claimer in self.claimers {
            let claims = claimer.await.unwrap();
            assert!(claims > 20, "only {claims} claims were made: that proves nothing");
        }
        let (samples, seen) = self.sampler.stop().await;
        assert!(samples > 20, "only {samples} samples");
        assert_eq!(seen, Vec::<String>::new());
    }
}

/// What became of the only step with this action.
fn outcome<'r>(report: &'r RunReport, action: &str) -> &'r StepOutcome {
    let found: Vec<_> = report
        .steps()
        .filter(|step| step.step.action.as_str() == action)
        .collect();
    assert_eq!(found.len(), 1, "{action}: {report:?}");
    &found[0].outcome
}

#[track_caller]
fn must_have_backed_off(outcome: &StepOutcome, name: &str) {
    let StepOutcome::Failed { kind, error } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(*kind, ErrorKind::LockTimeout, "{error}");
    assert!(error.contains("in the way: ") && error.contains(name), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s25_a_vacuum_of_the_expiring_day_and_an_analyze_of_the_inbox_are_given_way_to() {
    let busy = Busy::start().await;
    let deployment = &busy.deployment;
    let mut vacuum = deployment.database.connect().await;
    let pid = pid_of(&mut vacuum).await;
    // It sleeps after each page.
    sql(
        &mut vacuum,
        "set application_name = 'a vacuum'; set vacuum_cost_limit = 1; set vacuum_cost_delay = '100ms'",
    )
    .await;
    let vacuuming = tokio::spawn(async move {
        let vacuum_freeze = "vacuum (freeze) inbox_2026_12_01";
        sqlx::raw_sql(vacuum_freeze).execute(&mut vacuum).await
    });
    eventually("it vacuums", async || {
        let begun = "select exists (select from pg_stat_progress_vacuum where pid = $1)";
        let mut admin = deployment.database.connect().await;
        sqlx::query_scalar(begun).bind(pid).fetch_one(&mut admin).await.unwrap()
    })
    .await;
    busy.server.step(TimeDelta::days(1));
    let report = deployment.pass().await;
    assert_eq!(*outcome(&report, "create"), StepOutcome::Done, "the new day is made");
    must_have_backed_off(outcome(&report, "detach"), "a vacuum");
    let pending = "select count(*) from pg_inherits where inhdetachpending";
    let mut admin = deployment.database.connect().await;
    let pending: i64 = sqlx::query_scalar(pending).fetch_one(&mut admin).await.unwrap();
    assert_eq!(pending, 0, "nothing is left half done");
    sqlx::query("select pg_cancel_backend($1)")
        .bind(pid)
        .execute(&mut admin)
        .await
        .unwrap();
    assert_eq!(
        sqlstate(&vacuuming.await.unwrap().unwrap_err()),
        "57014",
        "it was still at it"
    );
    assert!(deployment.done().await.contains(&"detach inbox_2026_12_01".to_owned()));

    let mut analyze = deployment.database.connect().await;
    sql(
        &mut analyze,
        "set application_name = 'an analyze'; begin; analyze inbox",
    )
    .await;
    busy.server.step(TimeDelta::days(1));
    let report = deployment.pass().await;
    must_have_backed_off(outcome(&report, "create"), "an analyze");
    sql(&mut analyze, "commit").await;
    let done = deployment.done().await;
    assert_eq!(done[0], "create inbox_2026_12_07", "{done:?}");
    busy.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s26_beside_a_dump_and_an_hour_long_reader_days_are_made_and_removal_is_postponed() {
    let busy = Busy::start().await;
    let deployment = &busy.deployment;
    // What pg_dump does: one snapshot, and a lock on each table that it will read.
    let mut dump = deployment.database.connect().await;
    sql(
        &mut dump,
        "set application_name = 'pg_dump'; begin isolation level repeatable read, read only;
         do $$ declare name text; begin
           for name in select oid::regclass::text from pg_class where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace loop
             execute 'lock table ' || name || ' in access share mode';
           end loop; end $$",
    )
    .await;
    let mut reader = deployment.database.connect().await;
    sql(
        &mut reader,
        "set application_name = 'a report'; begin; select count(*) from inbox",
    )
    .await;
    for day in [6, 7] {
        busy.server.step(TimeDelta::days(1));
        let report = deployment.pass().await;
        let created = format!("create inbox_2026_12_0{day}");
        assert!(steps(&report).contains(&created), "{report:?}");
        assert_eq!(*outcome(&report, "create"), StepOutcome::Done);
        let removed = report
            .steps()
            .filter(|step| matches!(step.step.action.as_str(), "detach" | "finalize" | "drop"));
        for step in removed {
            assert_ne!(step.outcome, StepOutcome::Done, "{step:?}");
        }
        sql(&mut dump, "select count(*) from inbox").await;
        sql(&mut reader, "select count(*) from inbox").await;
        busy.server.step(TimeDelta::hours(1));
        deployment.pass().await;
    }
    sql(&mut dump, "commit").await;
    sql(&mut reader, "commit").await;
    let mut done = Vec::new();
    for _ in 0..4 {
        done.extend(steps(&deployment.pass().await));
    }
    assert!(done.contains(&"finalize inbox_2026_12_01".to_owned()), "{done:?}");
    assert_eq!(deployment.done().await, [""; 0]);
    let first = deployment.partitions("inbox").await.remove(0);
    assert_eq!(first, "inbox_2026_12_03", "what waited has gone");
    busy.end().await;
}

/// Reads the inbox and its days over and over, in transactions; how often.
fn reader(deployment: &Deployment, stop: &Arc<AtomicBool>) -> JoinHandle<u64> {
    let (database, stop) = (deployment.database.clone(), stop.clone());
    tokio::spawn(async move {
        let mut connection = database.connect().await;
        let mut turns = 0;
        while !stop.load(Ordering::SeqCst) {
            let read = "begin; select count(*) from inbox;
                        select count(*) from inbox where processed_at > now() - interval '1 day';
                        select max(processed_at) from inbox group by topic; commit";
            // A deadlock would come out here.
            sqlx::raw_sql(read).execute(&mut connection).await.unwrap();
            turns += 1;
        }
        turns
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s27_readers_that_loop_over_the_inbox_meet_no_deadlock_while_days_come_and_go() {
    let busy = Busy::start().await;
    let mut deployment = busy.deployment.clone();
    deployment.retries.attempts = 5;
    let readers: Vec<_> = (0..2).map(|_| reader(&deployment, &busy.stop)).collect();
    for _ in 0..4 {
        busy.server.step(TimeDelta::days(1));
        for _ in 0..2 {
            deployment.pass().await;
        }
    }
    // Whatever gave way to a reader has been done by a later try.
    let mut left = Vec::new();
    for _ in 0..10 {
        left = steps(&deployment.pass().await);
        if left.is_empty() {
            break;
        }
    }
    assert_eq!(left, [""; 0]);
    assert_eq!(
        deployment.partitions("inbox").await,
        (5..=9).map(|day| format!("inbox_2026_12_0{day}")).collect::<Vec<_>>()
    );
    busy.stop.store(true, Ordering::SeqCst);
    for reader in readers {
        let turns = reader.await.unwrap();
        assert!(turns > 20, "only {turns} turns");
    }
    busy.end().await;
}

async fn running_since(days: i64, specs: Vec<InboxSpec>) -> (Arc<ClockServer>, Deployment, Vec<Uuid>) {
    let server = Arc::new(ClockServer::start(&[]).await);
    server.set_to(START.parse().unwrap());
    let deployment = Deployment::new(server.database().await, server.clock(), specs);
    deployment.init().await.unwrap();
    let mut claimed = Vec::new();
    for day in 0..days {
        if day > 0 {
            server.step(TimeDelta::days(1));
        }
        deployment.done().await;
        let id = v7_at(server.now());
        let table = deployment.specs[0].table.table().as_str();
        assert!(
            claim(&mut deployment.database.connect().await, table, id)
                .await
                .unwrap()
        );
        claimed.push(id);
    }
    (server, deployment, claimed)
}

#[tokio::test]
async fn s34_a_restored_dump_with_days_that_are_not_attached_and_a_key_that_is_not_valid_is_put_right() {
    let (_server, original, claimed) = running_since(3, vec![spec("public.inbox")]).await;
    let mut maker = server::TestDatabase {
        name: "postgres".to_owned(),
        options: original.database.options.clone().database("postgres"),
        ..original.database.clone()
    };
    sql(
        &mut maker.connect().await,
        format!("create database restored template {}", original.database.name),
    )
    .await;
    maker.name = "restored".to_owned();
    maker.options = original.database.options.clone().database("restored");
    let restored = Deployment {
        options: maker.options.clone(),
        database: maker,
        ..original.clone()
    };
    // What a dump does not keep: object identifiers. And what a restore that stumbled leaves.
    let mut admin = restored.database.connect().await;
    sql(
        &mut admin,
        "update inboxd.partitions set relation_oid = relation_oid::int8 + 1000000",
    )
    .await;
    for day in ["2026_12_01", "2026_12_04"] {
        sql(&mut admin, format!("alter table inbox detach partition inbox_{day}")).await;
    }
    sql(
        &mut admin,
        "update pg_index set indisvalid = false where indexrelid = 'inbox_2026_12_02_pkey'::regclass",
    )
    .await;
    let plan = restored.plan().await.remove(0).plan;
    let found = codes(&plan);
    for code in ["missing_key", "other_server"] {
        assert!(found.contains(&code.to_owned()), "{found:?}");
    }
    let key = plan
        .findings
        .iter()
        .find(|finding| finding.relation.as_deref() == Some("inbox_2026_12_02"));
    assert!(key.unwrap().remedy.contains("the next run makes it again"), "{key:?}");
    let mut done = restored.done().await;
    done.sort();
    assert_eq!(
        done,
        [
            "attach inbox_2026_12_01",
            "attach inbox_2026_12_04",
            "repair_key inbox_2026_12_02"
        ]
    );
    for id in claimed {
        let outcome = try_claim(&mut admin, "inbox", id, None).await.unwrap();
        assert_eq!(outcome, "duplicate", "{id}");
    }
    assert!(!codes(&restored.plan().await[0].plan).contains(&"missing_key".to_owned()));
}

/// The days of the calendar that are attached, without those that were not there before.
async fn all_of(deployment: &Deployment, before: &[String]) -> bool {
    let now = deployment.partitions("inbox").await;
    before.iter().all(|partition| now.contains(partition))
}

#[tokio::test]
async fn s15_when_the_servers_clock_leaps_400_days_and_comes_back_nothing_is_removed_and_every_day_is_there() {
    for spec in [spec("public.inbox"), v7_spec("public.inbox")] {
        let (server, mut deployment, claimed) = running_since(3, vec![spec]).await;
        let before = deployment.partitions("inbox").await;
        // The host's clock stays where it is.
        let right: DateTime<Utc> = server.now();
        deployment.clock = inboxd::clock::Clock::from_fn(move || right);
        server.step(TimeDelta::days(400));
        for _ in 0..2 {
            let report = deployment.pass().await;
            let removals = report
                .steps()
                .filter(|step| matches!(step.step.action.as_str(), "detach" | "drop" | "mark_detached"));
            assert_eq!(removals.count(), 0, "{report:?}");
            assert!(codes(&only(&report).after).contains(&"blocked_by_clock".to_owned()));
        }
        let there = Day::containing(server.now());
        let leapt = deployment.partitions("inbox").await;
        for offset in 0..=7 {
            assert!(
                leapt.contains(&format!("inbox_{}", there.plus(offset).underscored())),
                "{offset}: {leapt:?}"
            );
        }
        let mut connection = deployment.database.connect().await;
        let leaping = v7_at(server.now());
        assert_eq!(
            try_claim(&mut connection, "inbox", leaping, None).await.unwrap(),
            "fresh"
        );

        server.step(TimeDelta::days(-400));
        assert!(all_of(&deployment, &before).await);
        let mut careful = deployment.clone();
        careful.specs[0].policy.ahead = inboxd::Ahead::new(1).unwrap();
        for deployment in [&deployment, &careful] {
            let report = deployment.pass().await;
            assert_eq!(
                steps(&report),
                [""; 0],
                "neither a jump back nor fewer days ahead remove anything"
            );
            assert!(all_of(deployment, &leapt).await, "days of the future stay");
        }
        for id in claimed {
            let outcome = try_claim(&mut connection, "inbox", id, None).await.unwrap();
            assert_eq!(outcome, "duplicate", "{id}");
        }
    }
}

#[tokio::test]
async fn s15_when_the_hosts_clock_leaps_400_days_the_servers_counts_and_nothing_is_removed() {
    let (server, mut deployment, _) = running_since(9, vec![spec("public.inbox")]).await;
    // Two days have expired by the server's clock when the host's is wrong.
    server.step(TimeDelta::days(1));
    let before = deployment.partitions("inbox").await;
    let right = deployment.clock.clone();
    for days in [400, -400] {
        let clock = right.clone();
        deployment.clock = inboxd::clock::Clock::from_fn(move || clock.now() + TimeDelta::days(days));
        let report = deployment.pass().await;
        assert!(all_of(&deployment, &before).await, "{report:?}");
        assert!(codes(&only(&report).after).contains(&"blocked_by_clock".to_owned()));
        let ahead = Day::containing(server.now()).plus(7);
        let partitions = deployment.partitions("inbox").await;
        assert_eq!(*partitions.last().unwrap(), format!("inbox_{}", ahead.underscored()));
    }
    deployment.clock = right;
    let done = deployment.done().await;
    assert!(
        done.iter().any(|step| step.starts_with("detach ")),
        "once they agree: {done:?}"
    );
}

#[tokio::test]
async fn s28_a_default_partition_is_drained_whether_it_is_empty_or_holds_rows_of_tomorrow() {
    let mut deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin: PgConnection = deployment.database.connect().await;
    let now: DateTime<Utc> = sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(&mut admin)
        .await
        .unwrap();
    let tomorrow = format!("inbox_{}", Day::containing(now).plus(1).underscored());
    for is_empty in [true, false] {
        deployment.specs[0].policy.drain_default = false;
        if !is_empty {
            sql(&mut admin, "drop table inbox_default").await;
            sql(&mut admin, format!("drop table {tomorrow}")).await;
        }
        sql(&mut admin, "create table inbox_default partition of inbox default").await;
        if !is_empty {
            sqlx::query("insert into inbox (message_id, topic, processed_at) values ($1, 'orders', $2)")
                .bind(random_id())
                .bind(now + TimeDelta::days(1))
                .execute(&mut admin)
                .await
                .unwrap();
        }
        let report = deployment.pass().await;
        assert!(
            codes(&only(&report).after).contains(&"default_partition".to_owned()),
            "{report:?}"
        );
        assert_eq!(
            report.steps().count(),
            usize::from(!is_empty),
            "tomorrow cannot be made beside it"
        );
        deployment.specs[0].policy.drain_default = true;
        let done = deployment.done().await;
        assert_eq!(done[0], "drain inbox_default", "{done:?}");
        let there = deployment.partitions("inbox").await;
        assert!(
            !there.contains(&"inbox_default".to_owned()) && there.contains(&tomorrow),
            "{there:?}"
        );
    }
    let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select count(*) from {tomorrow}")))
        .fetch_one(&mut admin)
        .await
        .unwrap();
    assert_eq!(count, 1);
}
