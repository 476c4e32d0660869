//! A default partition with rows: drained where the configuration says so, while claims go on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::{
    Consumers, Day,
    maintain::{self, PassOutcome, PassRequest, RunReport, StepOutcome, Trigger},
};
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use crate::support::{
    claims::{Claim, eventually, rows_of},
    inbox::{Deployment, claim, codes, random_id, spec, sql, v7_at, v7_spec},
};

/// An inbox without a partition, but for a default one, which is to be drained.
async fn with_default(mut specs: Vec<inboxd::InboxSpec>) -> Deployment {
    for spec in &mut specs {
        spec.policy.drain_default = true;
    }
    let deployment = Deployment::initialized(specs).await;
    let mut admin = deployment.database.connect().await;
    sql(&mut admin, "create table inbox_default partition of inbox default").await;
    deployment
}

/// By `processed_at` each partition brings its own key.
async fn with_key(specs: Vec<inboxd::InboxSpec>) -> Deployment {
    let deployment = with_default(specs).await;
    let mut admin = deployment.database.connect().await;
    sql(&mut admin, "alter table inbox_default add primary key (message_id)").await;
    deployment
}

async fn now(connection: &mut PgConnection) -> DateTime<Utc> {
    sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(connection)
        .await
        .unwrap()
}

/// Puts many rows of one time into the inbox, as an adopted table has them.
async fn fill(connection: &mut PgConnection, at: DateTime<Utc>, count: i64) -> Vec<Uuid> {
    let ids: Vec<Uuid> = (0..count).map(|_| v7_at(at)).collect();
    sqlx::query("insert into inbox (message_id, topic, processed_at) select unnest($1), 'orders', $2")
        .bind(&ids)
        .bind(at)
        .execute(connection)
        .await
        .unwrap();
    ids
}

async fn rows(connection: &mut PgConnection, what: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(format!("select count(*) from {what}")))
        .fetch_one(connection)
        .await
        .unwrap()
}

fn outcome<'r>(report: &'r RunReport, action: &str) -> &'r StepOutcome {
    let mut found = report.steps().filter(|step| step.step.action.as_str() == action);
    &found
        .next()
        .unwrap_or_else(|| panic!("no {action}: {report:?}"))
        .outcome
}

fn error(report: &RunReport) -> &str {
    match outcome(report, "drain") {
        StepOutcome::Failed { error, .. } => error,
        other => panic!("{other:?}"),
    }
}

/// A pass that is asked to stop, but only after `steps` questions whether to.
async fn pass_until(deployment: &Deployment, questions: usize) -> RunReport {
    let left = AtomicUsize::new(questions);
    let stop = || {
        left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_err()
    };
    let request = PassRequest {
        deployment: &deployment.name,
        specs: &deployment.specs,
        replica: None,
        trigger: Trigger::Manual,
        confirm_clock: false,
        retries: deployment.retries,
        clock: &deployment.clock,
        stop: &stop,
    };
    match maintain::run_pass(&mut deployment.maintenance().await, request)
        .await
        .unwrap()
    {
        PassOutcome::Ran(report) => report,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn s28_a_default_partition_becomes_the_partitions_of_its_days_and_every_id_stays_known() {
    for routing in [spec("public.inbox"), v7_spec("public.inbox")] {
        let by_id = routing.policy.routing == inboxd::Routing::MessageId;
        let deployment = with_default(vec![routing]).await;
        let mut admin = deployment.database.connect().await;
        if !by_id {
            sql(&mut admin, "alter table inbox_default add primary key (message_id)").await;
        }
        let now = now(&mut admin).await;
        let mut known = Vec::new();
        for days in [0, 1, 3, 6] {
            known.extend(fill(&mut admin, now - TimeDelta::days(days), 50).await);
        }
        let forgotten = fill(&mut admin, now - TimeDelta::days(30), 10).await;
        // A run that must not drain shows that it is needed: today cannot be made beside these rows.
        let mut careful = deployment.clone();
        careful.specs[0].policy.drain_default = false;
        assert!(codes(&careful.plan().await[0].plan).contains(&"default_partition".to_owned()));
        assert!(matches!(
            outcome(&careful.pass().await, "create"),
            StepOutcome::Failed { .. }
        ));

        let done = deployment.done().await;
        assert_eq!(done[0], "drain inbox_default");
        let today = Day::containing(now);
        let partitions = deployment.partitions("inbox").await;
        for offset in [0, -1, -3, -6, 1, 7] {
            assert!(
                partitions.contains(&format!("inbox_{}", today.plus(offset).underscored())),
                "{partitions:?}"
            );
        }
        assert!(!partitions.contains(&"inbox_default".to_owned()));
        assert_eq!(rows(&mut admin, "inbox").await, 200);
        for id in &known {
            assert!(
                !claim(&mut admin, "inbox", *id).await.unwrap(),
                "{id} was processed before"
            );
        }
        assert_eq!(rows(&mut admin, "inbox_default").await, 210, "it is left as it was");
        assert_eq!(rows_of(&mut admin, "inbox_default", forgotten[0]).await, 1);
        // What the copies were is what a run would have made: it finds nothing to put right.
        let plan = deployment.plan().await.remove(0).plan;
        assert_eq!(
            codes(&plan).iter().filter(|code| *code != "gap").collect::<Vec<_>>(),
            ["default_partition"]
        );
        assert!(plan.steps.is_empty(), "{plan:?}");
        let key = format!("inbox_{}_pkey", today.underscored());
        assert_eq!(rows(&mut admin, &format!("pg_class where relname = '{key}'")).await, 1);
        assert_eq!(
            rows(
                &mut admin,
                "pg_constraint where contype = 'c' and connamespace = 'public'::regnamespace"
            )
            .await,
            0
        );

        let mut later = deployment.clone();
        later.specs[0].policy.drop_grace = TimeDelta::zero();
        assert_eq!(later.done().await, ["drop_drained inbox_default"]);
        assert_eq!(rows(&mut admin, "pg_class where relname = 'inbox_default'").await, 0);
    }
}

/// Claims, twins of earlier claims and forgets, until told to stop; what was claimed last, and the longest wait.
async fn claim_until(deployment: Deployment, stop: Arc<AtomicBool>, known: Vec<Uuid>) -> (Vec<Uuid>, Duration) {
    let mut connection = deployment.database.connect().await;
    let (mut mine, mut longest, mut turn) = (Vec::new(), Duration::ZERO, 0_usize);
    while !stop.load(Ordering::SeqCst) {
        turn += 1;
        let begun = Instant::now();
        let id = random_id();
        assert!(claim(&mut connection, "inbox", id).await.unwrap(), "{id} is new");
        mine.push(id);
        let earlier = mine[turn * 7 % mine.len()];
        assert!(
            !claim(&mut connection, "inbox", earlier).await.unwrap(),
            "{earlier} was claimed"
        );
        let old = known[turn * 13 % known.len()];
        assert!(
            !claim(&mut connection, "inbox", old).await.unwrap(),
            "{old} was processed"
        );
        longest = longest.max(begun.elapsed());
        if turn.is_multiple_of(5) {
            let id = mine.swap_remove(turn * 3 % mine.len());
            let forget = "select inbox_forget($1, null, 'replayed')";
            let forgotten: bool = sqlx::query_scalar(forget)
                .bind(id)
                .fetch_one(&mut connection)
                .await
                .unwrap();
            assert!(forgotten);
            // One of two is processed again, at once.
            if turn.is_multiple_of(2) {
                assert!(claim(&mut connection, "inbox", id).await.unwrap(), "{id} was forgotten");
                mine.push(id);
            }
        }
    }
    (mine, longest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s28_claims_go_on_while_it_is_drained_and_none_is_lost_or_made_twice() {
    let mut deployment = with_key(vec![spec("public.inbox")]).await;
    // As in life: a busy inbox, whose exchange may need more than one run.
    deployment.retries.attempts = 20;
    let mut admin = deployment.database.connect().await;
    let now = now(&mut admin).await;
    let mut known = fill(&mut admin, now - TimeDelta::days(2), 20_000).await;
    known.extend(fill(&mut admin, now, 20_000).await);
    let stop = Arc::new(AtomicBool::new(false));
    let claimers: Vec<_> = (0..3)
        .map(|_| tokio::spawn(claim_until(deployment.clone(), stop.clone(), known.clone())))
        .collect();
    let mut runs = 0;
    loop {
        let report = deployment.pass().await;
        runs += 1;
        if *outcome(&report, "drain") == StepOutcome::Done {
            break;
        }
        assert!(runs < 20, "{report:?}");
    }
    // Some claims more, on the partitions.
    let seen = rows(&mut admin, "inbox").await;
    eventually("claims go on", async || {
        rows(&mut deployment.database.connect().await, "inbox").await > seen + 50
    })
    .await;
    stop.store(true, Ordering::SeqCst);
    let mut claimed = Vec::new();
    for claimer in claimers {
        let (mine, longest) = claimer.await.unwrap();
        assert!(longest < Duration::from_secs(5), "{longest:?} on a busy machine");
        claimed.extend(mine);
    }
    let expected = i64::try_from(known.len() + claimed.len()).unwrap();
    assert_eq!(
        rows(&mut admin, "inbox").await,
        expected,
        "what was forgotten is not back"
    );
    assert_eq!(
        rows(&mut admin, "(select distinct message_id from inbox) as id").await,
        expected
    );
    for id in claimed {
        assert!(!claim(&mut admin, "inbox", id).await.unwrap(), "{id}");
    }
}

#[tokio::test]
async fn s28_a_claim_that_is_open_while_it_is_drained_keeps_it_from_being_exchanged_and_is_not_lost() {
    let deployment = with_key(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let now = now(&mut admin).await;
    fill(&mut admin, now - TimeDelta::days(1), 10).await;
    let mut consumer = deployment.database.connect().await;
    let id = random_id();
    sql(&mut consumer, "begin").await;
    assert!(claim(&mut consumer, "inbox", id).await.unwrap());
    let report = deployment.pass().await;
    assert!(error(&report).contains("in the way: "), "{report:?}");
    sql(&mut consumer, "commit").await;
    assert_eq!(deployment.done().await[0], "drain inbox_default");
    assert!(!claim(&mut admin, "inbox", id).await.unwrap(), "it was claimed");
    assert_eq!(rows(&mut admin, "inbox").await, 11);
}

#[tokio::test]
async fn s28_a_drain_that_was_interrupted_goes_on_and_heeds_what_was_claimed_and_forgotten_between() {
    let deployment = with_key(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let now = now(&mut admin).await;
    // Of today, so that what is processed again meets its own copy.
    let known = fill(&mut admin, now, 30_000).await;
    // One question before the step, and one before each batch.
    let report = pass_until(&deployment, 2).await;
    let StepOutcome::Skipped { why } = outcome(&report, "drain") else {
        panic!("{report:?}")
    };
    assert!(why.starts_with("128 of "), "{why}");
    let copied = rows(&mut admin, "inbox_drain").await;
    assert!((5_000..25_000).contains(&copied), "{copied}");
    assert_eq!(rows(&mut admin, "inbox").await, 30_000, "the default partition answers");

    let (new, gone, again) = (random_id(), known[0], known[1]);
    assert!(claim(&mut admin, "inbox", new).await.unwrap());
    for id in [gone, again] {
        let forget = "select inbox_forget($1, null, 'replayed')";
        let forgotten: bool = sqlx::query_scalar(forget).bind(id).fetch_one(&mut admin).await.unwrap();
        assert!(forgotten);
    }
    assert!(claim(&mut admin, "inbox", again).await.unwrap());
    assert_eq!(deployment.done().await[0], "drain inbox_default");
    assert_eq!(rows(&mut admin, "inbox").await, 30_000);
    for id in [new, again, known[29_999]] {
        assert!(!claim(&mut admin, "inbox", id).await.unwrap(), "{id}");
    }
    assert!(claim(&mut admin, "inbox", gone).await.unwrap(), "it was forgotten");
}

#[tokio::test]
async fn s28_rows_that_no_day_could_take_keep_it_from_being_drained_and_are_told() {
    let deployment = with_default(vec![v7_spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let (now, stranger) = (now(&mut admin).await, random_id());
    fill(&mut admin, now, 5).await;
    let insert = "insert into inbox (message_id, topic) values ($1, 'orders')";
    sqlx::query(insert).bind(stranger).execute(&mut admin).await.unwrap();
    let report = deployment.pass().await;
    assert!(
        error(&report).starts_with("1 rows of inbox_default have an id that is no UUIDv7"),
        "{report:?}"
    );
    sqlx::query("delete from inbox where message_id = $1")
        .bind(stranger)
        .execute(&mut admin)
        .await
        .unwrap();
    assert_eq!(deployment.done().await[0], "drain inbox_default");
    assert_eq!(rows(&mut admin, "inbox").await, 5);

    let deployment = with_default(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    sql(
        &mut admin,
        "insert into inbox values (gen_random_uuid(), 'orders', 'infinity')",
    )
    .await;
    let report = deployment.pass().await;
    assert!(error(&report).contains("are processed later than"), "{report:?}");
    assert!(
        deployment.partitions("inbox").await.len() > 1,
        "days are made beside it"
    );
}

#[tokio::test]
async fn s28_rows_of_a_held_day_and_columns_of_the_hosts_own_survive_a_drain() {
    let mut many = spec("public.inbox");
    many.policy.consumers = Consumers::Many;
    many.policy.drain_default = true;
    let deployment = Deployment::initialized(vec![many]).await;
    let mut admin = deployment.database.connect().await;
    sql(
        &mut admin,
        "alter table inbox add column gone int, add column note text",
    )
    .await;
    sql(&mut admin, "alter table inbox drop column gone").await;
    // With its columns in another order, and without a key.
    sql(
        &mut admin,
        "create table \"the default\" (note text, consumer text not null, processed_at timestamptz not null default now(),
           topic varchar(255) not null, message_id uuid not null);
         alter table inbox attach partition \"the default\" default",
    )
    .await;
    let (now, id) = (now(&mut admin).await, random_id());
    let held = Day::containing(now - TimeDelta::days(40));
    for (days, consumer) in [(1, "mail"), (1, "bill"), (40, "mail"), (50, "mail")] {
        sqlx::query(
            "insert into inbox (message_id, topic, processed_at, consumer, note) values ($1, 'orders', $2, $3, 'mine')",
        )
        .bind(id)
        .bind(now - TimeDelta::days(days))
        .bind(consumer)
        .execute(&mut admin)
        .await
        .unwrap();
    }
    let hold = "insert into inboxd.holds (inbox_id, day, reason, held_by)
                select id, $1, 'an audit', 'me' from inboxd.inboxes";
    sqlx::query(hold)
        .bind(chrono::NaiveDate::from(held))
        .execute(&mut admin)
        .await
        .unwrap();
    let done = deployment.done().await;
    assert_eq!(done[0], "drain the default");
    assert_eq!(rows(&mut admin, "inbox where note = 'mine'").await, 3);
    assert_eq!(rows(&mut admin, &format!("inbox_{}", held.underscored())).await, 1);
    for (consumer, outcome) in [("mail", "duplicate"), ("bill", "duplicate"), ("ship", "fresh")] {
        assert_eq!(
            Claim::of("inbox", id).by(consumer).outcome(&mut admin).await,
            outcome,
            "{consumer}"
        );
    }
}

#[tokio::test]
async fn s28_copies_that_a_publication_would_send_to_subscribers_are_not_made() {
    let server = crate::support::server::own(&[("wal_level", "logical")]).await;
    let mut specs = vec![spec("public.inbox")];
    specs[0].policy.drain_default = true;
    let deployment = Deployment::new(server.database().await, inboxd::clock::Clock::system(), specs);
    deployment.init().await.unwrap();
    let mut admin = deployment.database.connect().await;
    sql(&mut admin, "create table inbox_default partition of inbox default").await;
    sql(&mut admin, "create publication everything for all tables").await;
    let now = now(&mut admin).await;
    fill(&mut admin, now, 5).await;
    let report = deployment.pass().await;
    assert!(
        error(&report).starts_with("publication \"everything\" would publish the copies"),
        "{report:?}"
    );
    assert_eq!(rows(&mut admin, "pg_class where relname like 'inbox_drain%'").await, 0);
    sql(
        &mut admin,
        "drop publication everything; create publication one for table inbox with (publish_via_partition_root)",
    )
    .await;
    assert_eq!(deployment.done().await[0], "drain inbox_default");
}
