//! One pass on catalogs that are not as they should be.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use inboxd::{
    Action, Day, Marker, Retention, Severity,
    maintain::{PassOutcome, StepOutcome},
    postgres::ErrorKind,
};
use sqlx::{Connection, PgConnection};

use crate::support::{
    clock::ClockServer,
    inbox::{Deployment, claim, codes, only, random_id, spec, sql, steps},
    server,
};

/// A day by its distance from the database's today.
async fn day(connection: &mut PgConnection, offset: i64) -> Day {
    let now: chrono::DateTime<Utc> = sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(connection)
        .await
        .unwrap();
    Day::containing(now).plus(offset)
}

/// Makes a partition by hand, holding `[from, to)`.
async fn by_hand(connection: &mut PgConnection, name: &str, from: Day, to: Day) {
    sql(
        connection,
        format!("create table {name} (like inbox including defaults, primary key (message_id))"),
    )
    .await;
    sql(
        connection,
        format!("alter table inbox attach partition {name} for values from ('{from} 00:00+00') to ('{to} 00:00+00')"),
    )
    .await;
}

#[tokio::test]
async fn a_second_pass_changes_nothing() {
    let deployment = Deployment::initialized(vec![spec("public.inbox")]).await;
    assert_eq!(deployment.done().await.len(), 8);
    assert_eq!(deployment.done().await, Vec::<String>::new());
    assert!(deployment.plan().await[0].plan.findings.is_empty());
}

#[tokio::test]
async fn a_partition_has_the_inboxes_owner_privileges_key_storage_and_marker() {
    let deployment = Deployment::initialized(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let (owner, reader, stranger) = (unique("owner"), unique("reader"), unique("stranger"));
    sql(
        &mut admin,
        format!("create role {owner}; create role {reader}; create role {stranger}"),
    )
    .await;
    sql(
        &mut admin,
        format!("grant create, usage on schema public to {owner}; alter table inbox owner to {owner}"),
    )
    .await;
    sql(
        &mut admin,
        format!("grant select on inbox to {reader} with grant option; grant references on inbox to public"),
    )
    .await;
    // Default privileges give new tables more than the inbox has.
    sql(
        &mut admin,
        format!("alter default privileges in schema public grant all on tables to {stranger}"),
    )
    .await;
    // The functions follow the table's owner.
    deployment.init().await.unwrap();
    deployment.done().await;

    let name = format!("inbox_{}", day(&mut admin, 0).await.underscored());
    let (is_owner, grants, storage, comment): (bool, String, Vec<String>, String) = sqlx::query_as(
        "select relation.relowner = $2::regrole,
           (select string_agg(coalesce(nullif(grantee, 0)::regrole::text, 'public') || ' ' || privilege_type || ' ' || is_grantable, ', ' order by 1)
            from aclexplode(relation.relacl) where grantee <> relation.relowner),
           relation.reloptions, obj_description(relation.oid, 'pg_class')
         from pg_class as relation where relation.relname = $1",
    )
    .bind(&name)
    .bind(&owner)
    .fetch_one(&mut admin)
    .await
    .unwrap();
    assert!(is_owner);
    assert_eq!(grants, format!("public REFERENCES false, {reader} SELECT true"));
    assert_eq!(
        storage,
        ["autovacuum_vacuum_insert_threshold=-1", "vacuum_truncate=false"]
    );
    let marker: Marker = comment.parse().unwrap();
    assert_eq!((marker.day, marker.detached_at), (day(&mut admin, 0).await, None));
    let constraints: Vec<String> = sqlx::query_scalar(
        "select conname::text from pg_constraint where conrelid = $1::regclass and contype <> 'n' order by 1",
    )
    .bind(&name)
    .fetch_all(&mut admin)
    .await
    .unwrap();
    assert_eq!(
        constraints,
        [format!("{name}_pkey")],
        "the key, and no check that is left over"
    );
    assert!(deployment.plan().await[0].plan.findings.is_empty(), "no drift");
}

/// A role name that no other test has: roles belong to the server, not to the database.
fn unique(name: &str) -> String {
    format!("{name}_{}", random_id().simple())
}

#[tokio::test]
async fn a_service_role_that_only_is_a_member_of_the_owner_is_enough() {
    let mut deployment = Deployment::new(
        server::database().await,
        inboxd::clock::Clock::system(),
        vec![spec("app.inbox")],
    );
    let mut admin = deployment.database.connect().await;
    let (owner, service) = (unique("owner"), unique("service"));
    sql(
        &mut admin,
        format!("create role {owner}; create role {service} login in role {owner}"),
    )
    .await;
    sql(&mut admin, format!("create schema app authorization {owner}")).await;
    sql(
        &mut admin,
        format!("grant create on database {} to {service}", deployment.database.name),
    )
    .await;
    deployment.specs[0].owner = Some(inboxd::Ident::new(owner.clone()).unwrap());
    deployment.options = deployment.options.clone().username(&service);
    deployment.init().await.unwrap();
    assert_eq!(deployment.done().await.len(), 8);
    let owned: i64 =
        sqlx::query_scalar("select count(*) from pg_class where relowner = $1::regrole and relkind in ('r', 'p')")
            .bind(&owner)
            .fetch_one(&mut admin)
            .await
            .unwrap();
    assert_eq!(owned, 9, "the inbox and its eight partitions");
    assert!(claim(&mut admin, "app.inbox", random_id()).await.unwrap());
}

#[tokio::test]
async fn s8_eight_instances_at_once_on_an_empty_inbox_make_all_days_and_none_fails() {
    let deployment = Deployment::new(
        server::database().await,
        inboxd::clock::Clock::system(),
        vec![spec("public.inbox")],
    );
    let instances: Vec<_> = (0..8)
        .map(|_| {
            let deployment = deployment.clone();
            tokio::spawn(async move {
                deployment.init().await.unwrap();
                deployment.outcome(false).await.unwrap()
            })
        })
        .collect();
    let mut made = 0;
    for instance in instances {
        match instance.await.unwrap() {
            PassOutcome::Ran(report) => {
                assert!(
                    report.steps().all(|step| step.outcome == StepOutcome::Done),
                    "{report:?}"
                );
                made += report.steps().count();
            }
            PassOutcome::Busy { .. } => {}
            other @ (PassOutcome::Standby | PassOutcome::Paused(_)) => panic!("{other:?}"),
        }
    }
    assert_eq!(made, 8, "each day is made once");
    assert_eq!(deployment.partitions("inbox").await.len(), 8);
}

#[tokio::test]
async fn s8_a_day_that_somebody_makes_while_it_is_being_made_is_done_all_the_same() {
    let deployment = Deployment::initialized(vec![spec("public.inbox")]).await;
    let mut hand = deployment.database.connect().await;
    let (today, tomorrow) = (day(&mut hand, 0).await, day(&mut hand, 1).await);
    // Somebody else has the day's partition ready, but not committed: our create waits for the name, then finds it taken.
    sql(&mut hand, "begin").await;
    by_hand(&mut hand, &format!("inbox_{}", today.underscored()), today, tomorrow).await;
    let passing = tokio::spawn({
        let deployment = deployment.clone();
        async move { deployment.pass().await }
    });
    wait_for_lock(&deployment, "inboxd maintenance").await;
    sql(&mut hand, "commit").await;
    let report = passing.await.unwrap();
    assert!(
        report.steps().all(|step| step.outcome == StepOutcome::Done),
        "{report:?}"
    );
    assert_eq!(deployment.partitions("inbox").await.len(), 8);
}

/// Waits until a session of that application waits for a lock.
async fn wait_for_lock(deployment: &Deployment, application: &str) {
    let mut connection = deployment.database.connect().await;
    for _ in 0..2_000 {
        let waits: bool = sqlx::query_scalar(
            "select exists (select from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock' and datname = current_database())",
        )
        .bind(application)
        .fetch_one(&mut connection)
        .await
        .unwrap();
        if waits {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no session of {application} waits for a lock");
}

#[tokio::test]
async fn s10_the_same_table_in_another_schema_is_not_touched() {
    let deployment = Deployment::new(
        server::database().await,
        inboxd::clock::Clock::system(),
        vec![spec("public.inbox")],
    );
    let mut admin = deployment.database.connect().await;
    sql(&mut admin, "create schema other; create table other.inbox (message_id uuid, topic varchar(255), processed_at timestamptz) partition by range (processed_at)").await;
    let old = day(&mut admin, -100).await;
    sql(
        &mut admin,
        format!("create table other.inbox_{} (like other.inbox)", old.underscored()),
    )
    .await;
    sql(
        &mut admin,
        format!(
            "alter database {} set search_path = other, public",
            deployment.database.name
        ),
    )
    .await;
    deployment.init().await.unwrap();
    deployment.done().await;
    let others: i64 = sqlx::query_scalar(
        "select count(*) from pg_class where relnamespace = 'other'::regnamespace and relkind = 'r'",
    )
    .fetch_one(&mut admin)
    .await
    .unwrap();
    assert_eq!(others, 1);
    assert_eq!(deployment.partitions("public.inbox").await.len(), 8);
    assert!(claim(&mut admin, "public.inbox", random_id()).await.unwrap());
}

#[tokio::test]
async fn s15_a_pass_that_may_not_remove_does_not_vouch_for_a_clock_that_has_leapt() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let mut other = deployment.clone();
    other.name = "other".to_owned();
    let mut unknown = deployment.clone();
    unknown.specs = vec![spec("public.another")];
    let leapt = "update inboxd.clock set trusted_at = now() - interval '30 days'";
    let trusts = "select trusted_at > now() - interval '1 day' from inboxd.clock";
    for (who, deployment) in [
        ("another deployment", &other),
        ("an inbox that is not on record", &unknown),
        ("a copy", &deployment),
    ] {
        if who == "a copy" {
            sql(&mut admin, "update inboxd.inboxes set system_identifier = 1").await;
        }
        sql(&mut admin, leapt).await;
        deployment.done().await;
        let trusted: bool = sqlx::query_scalar(trusts).fetch_one(&mut admin).await.unwrap();
        assert!(!trusted, "{who}");
    }
}

#[tokio::test]
async fn s1_a_run_that_fails_as_a_whole_is_on_record_as_failed() {
    let deployment = Deployment::initialized(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    sql(
        &mut admin,
        "alter table inboxd.steps add constraint broken check (false)",
    )
    .await;
    deployment.outcome(false).await.unwrap_err();
    let (outcome, error): (Option<String>, Option<String>) = sqlx::query_as("select outcome, error from inboxd.runs")
        .fetch_one(&mut admin)
        .await
        .unwrap();
    assert_eq!(outcome.as_deref(), Some("failed"));
    assert!(error.unwrap().contains("23514"));
}

#[tokio::test]
async fn s10_a_partition_that_moved_to_another_schema_is_known_by_its_marker() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let deployment = Deployment::new(server.database().await, server.clock(), vec![spec("public.inbox")]);
    deployment.init().await.unwrap();
    deployment.done().await;
    server.step(TimeDelta::days(6));
    deployment.done().await;
    server.step(TimeDelta::days(3));
    assert!(deployment.done().await.contains(&"detach inbox_2026_12_01".to_owned()));
    // A stranger's table with the name and a marker of another inbox stays.
    let mut admin = deployment.database.connect().await;
    let foreign = Marker {
        inbox: random_id(),
        day: "2026-12-01".parse().unwrap(),
        detached_at: None,
    };
    sql(&mut admin, format!("create schema other; create table other.inbox_2026_12_01 (a int); comment on table other.inbox_2026_12_01 is '{foreign}'")).await;
    server.step(TimeDelta::hours(25));
    let done = deployment.done().await;
    assert!(done.contains(&"drop inbox_2026_12_01".to_owned()), "{done:?}");
    let left: Vec<String> =
        sqlx::query_scalar("select relnamespace::regnamespace::text from pg_class where relname = 'inbox_2026_12_01'")
            .fetch_all(&mut admin)
            .await
            .unwrap();
    assert_eq!(left, ["other"]);
}

#[tokio::test]
async fn s12_names_with_quotes_and_a_role_with_an_evil_search_path_do_no_harm() {
    for table in [r#"public."in""box; drop""#, r#""Über Schema"."$inboxd$ {{inbox}} \ '""#] {
        let mut deployment = Deployment::new(
            server::database().await,
            inboxd::clock::Clock::system(),
            vec![spec(table)],
        );
        let mut admin = deployment.database.connect().await;
        let role = unique("evil");
        sql(
            &mut admin,
            format!(r#"create schema "Über Schema"; create schema evil; create role {role} login superuser"#),
        )
        .await;
        sql(
            &mut admin,
            "create function evil.now() returns timestamptz language sql as $$ select timestamptz '2000-01-01' $$",
        )
        .await;
        sql(&mut admin, "create function evil.clock_timestamp() returns timestamptz language sql as $$ select timestamptz '2000-01-01' $$").await;
        sql(
            &mut admin,
            "create function evil.left(text, int) returns text language sql as $$ select 'x' $$",
        )
        .await;
        sql(
            &mut admin,
            format!("alter role {role} set search_path = evil, pg_catalog, public"),
        )
        .await;
        deployment.options = deployment.options.clone().username(&role);
        deployment.init().await.unwrap();
        assert_eq!(deployment.done().await.len(), 8, "{table}");
        let function = deployment.specs[0]
            .table
            .derive(inboxd::Derived::Function(inboxd::Function::Claim))
            .unwrap();
        let function = deployment.specs[0].table.quoted_sibling(&function);
        let mut consumer = deployment.maintenance().await;
        sql(&mut consumer, "set search_path = evil, pg_catalog").await;
        let id = random_id();
        let mut claims = Vec::new();
        for _ in 0..2 {
            let fresh: bool = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select {function}($1, 'orders')")))
                .bind(id)
                .fetch_one(&mut consumer)
                .await
                .unwrap();
            claims.push(fresh);
        }
        assert_eq!(claims, [true, false], "{table}");
    }
}

#[tokio::test]
async fn s13_other_time_zones_and_date_styles_of_database_and_role_change_no_bound() {
    for (zone, style) in [
        ("America/New_York", "German"),
        ("Asia/Kolkata", "SQL, DMY"),
        ("Australia/Lord_Howe", "Postgres"),
    ] {
        let deployment = Deployment::new(
            server::database().await,
            inboxd::clock::Clock::system(),
            vec![spec("public.inbox")],
        );
        let mut admin = deployment.database.connect().await;
        sql(
            &mut admin,
            format!("alter database {} set timezone = '{zone}'", deployment.database.name),
        )
        .await;
        sql(
            &mut admin,
            format!("alter database {} set datestyle = '{style}'", deployment.database.name),
        )
        .await;
        deployment.init().await.unwrap();
        deployment.done().await;
        assert_eq!(
            deployment.done().await,
            Vec::<String>::new(),
            "{zone}: what was made is recognised"
        );
        let today = day(&mut admin, 0).await;
        let exact: bool = sqlx::query_scalar(
            "select pg_get_expr(relpartbound, 0) = format('FOR VALUES FROM (%L) TO (%L)', $2 || ' 00:00:00+00', $3 || ' 00:00:00+00')
             from pg_class where relname = $1",
        )
        .bind(format!("inbox_{}", today.underscored()))
        .bind(today.to_string())
        .bind(today.next().to_string())
        .fetch_one(&mut deployment.maintenance().await)
        .await
        .unwrap();
        assert!(exact, "{zone}");
        let mut consumer = deployment.database.connect().await;
        sql(
            &mut consumer,
            format!("set timezone = '{zone}'; set datestyle = '{style}'"),
        )
        .await;
        let id = random_id();
        assert!(claim(&mut consumer, "inbox", id).await.unwrap());
        assert!(!claim(&mut consumer, "inbox", id).await.unwrap());
    }
}

#[tokio::test]
async fn s17_a_partition_over_many_days_is_judged_by_its_upper_bound_and_never_dropped() {
    let deployment = Deployment::initialized(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let (last_year, in_two_days) = (day(&mut admin, -365).await, day(&mut admin, 2).await);
    by_hand(&mut admin, "inbox_all_year", last_year, in_two_days).await;
    let (before, day_after) = (day(&mut admin, -400).await, day(&mut admin, -398).await);
    by_hand(&mut admin, "inbox_long_expired", before, day_after).await;

    let report = deployment.pass().await;
    let created: Vec<String> = (2..=7)
        .map(|offset| format!("create inbox_{}", day_name(in_two_days, offset - 2)))
        .collect();
    assert_eq!(steps(&report), created, "only the days that it does not hold are made");
    let plan = &only(&report).after;
    let odd: Vec<String> = codes(plan)
        .into_iter()
        .filter(|code| code.starts_with("wrong_"))
        .collect();
    assert_eq!(odd, ["wrong_bounds", "wrong_bounds"]);
    assert!(
        plan.runway_seconds.unwrap() > 7 * 86_400,
        "its days count for the runway"
    );
    // And claims find it, although no partition has today's name.
    let mut consumer = deployment.database.connect().await;
    let id = random_id();
    assert!(claim(&mut consumer, "inbox", id).await.unwrap());
    assert!(!claim(&mut consumer, "inbox", id).await.unwrap());
    assert!(
        deployment
            .partitions("inbox")
            .await
            .contains(&"inbox_long_expired".to_owned())
    );
}

fn day_name(first: Day, offset: i64) -> String {
    first.plus(offset).underscored()
}

#[tokio::test]
async fn s18_where_name_and_bounds_disagree_the_bounds_decide_and_nothing_is_dropped() {
    let deployment = Deployment::initialized(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let (yesterday, month_ago) = (day(&mut admin, -1).await, day(&mut admin, -30).await);
    let name = format!("inbox_{}", yesterday.underscored());
    by_hand(&mut admin, &name, month_ago, month_ago.next()).await;
    // The other way round: an old name on today's bounds.
    let (old, today) = (day(&mut admin, -60).await, day(&mut admin, 0).await);
    by_hand(&mut admin, &format!("inbox_{}", old.underscored()), today, today.next()).await;
    let report = deployment.pass().await;
    assert!(
        steps(&report).iter().all(|step| step.starts_with("create ")),
        "{:?}",
        steps(&report)
    );
    assert_eq!(steps(&report).len(), 7, "today is held already, under another name");
    let odd: Vec<String> = codes(&only(&report).after)
        .into_iter()
        .filter(|code| code.starts_with("wrong_"))
        .collect();
    assert_eq!(odd, ["wrong_name", "wrong_name"]);
    assert!(deployment.partitions("inbox").await.contains(&name));
}

/// An inbox with one expired day, on a stepped clock.
async fn with_an_expired_day(server: &ClockServer) -> Deployment {
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let mut spec = spec("public.inbox");
    spec.policy.retention = Retention::For(TimeDelta::days(1));
    spec.policy.drop_grace = TimeDelta::hours(1);
    let deployment = Deployment::new(server.database().await, server.clock(), vec![spec]);
    deployment.init().await.unwrap();
    deployment.done().await;
    server.step(TimeDelta::days(2));
    deployment
}

#[tokio::test]
async fn s22_a_backend_killed_in_its_detach_leaves_pending_and_the_next_run_finalizes() {
    let server = ClockServer::start(&[]).await;
    let mut deployment = with_an_expired_day(&server).await;
    deployment.timeouts.lock = Duration::from_secs(20);
    // A transaction that uses the inbox holds the detach in its second phase.
    let mut reader = deployment.database.connect().await;
    sql(&mut reader, "begin; select count(*) from inbox").await;
    let passing = tokio::spawn({
        let deployment = deployment.clone();
        async move { deployment.outcome(false).await }
    });
    wait_for_lock(&deployment, "inboxd maintenance").await;
    sql(&mut deployment.database.connect().await, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'inboxd maintenance' and datname = current_database()").await;
    let error = passing.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    sql(&mut reader, "commit").await;

    let planned = deployment.plan().await;
    let first = &planned[0].plan.steps[0];
    assert_eq!(
        (first.action.as_str(), first.relation.as_str()),
        ("finalize", "inbox_2026_12_01")
    );
    let done = deployment.done().await;
    assert!(done.contains(&"finalize inbox_2026_12_01".to_owned()), "{done:?}");
    server.step(TimeDelta::minutes(61));
    assert_eq!(deployment.done().await, ["drop inbox_2026_12_01"]);
}

#[tokio::test]
async fn s23_a_finalize_that_waits_for_an_unrelated_snapshot_is_bounded_and_names_who_holds_it() {
    let server = ClockServer::start(&[]).await;
    let mut deployment = with_an_expired_day(&server).await;
    deployment.retries.attempts = 1;
    let mut admin = deployment.database.connect().await;
    sql(&mut admin, "create table unrelated ()").await;
    let mut reader = deployment.database.connect().await;
    sql(
        &mut reader,
        "set application_name = 'nightly report'; begin isolation level repeatable read; select from unrelated",
    )
    .await;
    sql(&mut admin, "set lock_timeout = '50ms'").await;
    let mut user = deployment.database.connect().await;
    sql(&mut user, "begin; select count(*) from inbox").await;
    sqlx::raw_sql("alter table inbox detach partition inbox_2026_12_01 concurrently")
        .execute(&mut admin)
        .await
        .unwrap_err();
    sql(&mut user, "commit").await;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&mut reader)
        .await
        .unwrap();

    let report = deployment.pass().await;
    let finalize = report
        .steps()
        .find(|step| step.step.action == Action::Finalize)
        .unwrap();
    let StepOutcome::Failed { kind, error } = &finalize.outcome else {
        panic!("{finalize:?}");
    };
    assert_eq!(*kind, ErrorKind::LockTimeout);
    let named = format!("in the way: pid {pid} (nightly report, idle in transaction, its transaction ");
    assert!(error.contains(&named) && error.ends_with(" s old)"), "{error}");
    assert!(finalize.duration_ms < 10_000, "{finalize:?}");
    let recorded: String = sqlx::query_scalar("select error from inboxd.steps where action = 'finalize'")
        .fetch_one(&mut admin)
        .await
        .unwrap();
    assert_eq!(recorded, *error);
    assert!(claim(&mut admin, "inbox", random_id()).await.unwrap());
    sql(&mut reader, "commit").await;
    assert!(
        deployment
            .done()
            .await
            .contains(&"finalize inbox_2026_12_01".to_owned())
    );
}

#[tokio::test]
async fn s24_a_detached_partition_whose_drop_failed_is_still_listed_and_dropped_later() {
    let server = ClockServer::start(&[]).await;
    let deployment = with_an_expired_day(&server).await;
    let done = deployment.done().await;
    assert!(done.contains(&"detach inbox_2026_12_01".to_owned()), "{done:?}");
    server.step(TimeDelta::minutes(61));
    let mut reader = deployment.database.connect().await;
    sql(&mut reader, "begin; select count(*) from inbox_2026_12_01").await;
    let report = deployment.pass().await;
    let step = report.steps().next().unwrap();
    assert!(
        matches!(
            &step.outcome,
            StepOutcome::Failed {
                kind: ErrorKind::LockTimeout,
                ..
            }
        ),
        "{step:?}"
    );
    assert_eq!(step.attempts, 3);
    assert_eq!(report.outcome.as_str(), "partial");
    let planned = deployment.plan().await;
    assert_eq!(planned[0].plan.steps[0].relation.as_str(), "inbox_2026_12_01");
    sql(&mut reader, "commit").await;
    // Our records are lost, as after a restore without them: the marker still tells whose it is, and since when.
    sql(&mut reader, "delete from inboxd.partitions").await;
    assert_eq!(deployment.done().await, ["drop inbox_2026_12_01"]);
}

#[tokio::test]
async fn s24_a_detach_that_nobody_recorded_begins_its_grace_when_it_is_found() {
    let server = ClockServer::start(&[]).await;
    let deployment = with_an_expired_day(&server).await;
    sql(
        &mut deployment.database.connect().await,
        "alter table inbox detach partition inbox_2026_12_01",
    )
    .await;
    let done = deployment.done().await;
    assert!(done.contains(&"mark_detached inbox_2026_12_01".to_owned()), "{done:?}");
    assert_eq!(deployment.done().await, Vec::<String>::new());
    server.step(TimeDelta::minutes(61));
    assert_eq!(deployment.done().await, ["drop inbox_2026_12_01"]);
}

#[tokio::test]
async fn s29_our_sessions_have_their_own_limits_whatever_the_role_says() {
    let mut deployment = Deployment::new(
        server::database().await,
        inboxd::clock::Clock::system(),
        vec![spec("public.inbox")],
    );
    let mut admin = deployment.database.connect().await;
    let role = unique("limited");
    sql(&mut admin, format!("create role {role} login superuser")).await;
    for setting in [
        "statement_timeout = '1ms'",
        "lock_timeout = '1ms'",
        "idle_in_transaction_session_timeout = '1ms'",
        "timezone = 'Asia/Kolkata'",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = off",
        "search_path = 'nowhere'",
    ] {
        sql(&mut admin, format!("alter role {role} set {setting}")).await;
    }
    deployment.options = deployment.options.clone().username(&role);
    deployment.init().await.unwrap();
    assert_eq!(deployment.done().await.len(), 8);
    let mut ours = deployment.maintenance().await;
    for (setting, value) in [
        ("statement_timeout", "20s"),
        ("lock_timeout", "500ms"),
        ("idle_in_transaction_session_timeout", "1min"),
        ("TimeZone", "UTC"),
        ("DateStyle", "ISO, MDY"),
        ("search_path", "pg_catalog,pg_temp"),
        ("transaction_isolation", "read committed"),
        ("application_name", "inboxd maintenance"),
        ("tcp_keepalives_idle", "0"),
    ] {
        // Keepalives are those of TCP, and read 0 on a unix socket.
        let shown: String = sqlx::query_scalar("select current_setting($1)")
            .bind(setting)
            .fetch_one(&mut ours)
            .await
            .unwrap();
        assert_eq!(shown, value, "{setting}");
    }
    ours.close().await.unwrap();
}

#[tokio::test]
async fn who_does_not_get_the_run_lock_says_who_holds_it() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut holder = deployment.maintenance().await;
    inboxd::postgres::lock::try_lock(&mut holder).await.unwrap().unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&mut holder)
        .await
        .unwrap();
    match deployment.outcome(false).await.unwrap() {
        PassOutcome::Busy { holder: Some(found) } => {
            assert_eq!(
                (found.pid, found.application_name.as_deref()),
                (pid, Some("inboxd maintenance"))
            );
        }
        other => panic!("{other:?}"),
    }
    inboxd::postgres::lock::release(&mut holder).await.unwrap();
    assert_eq!(deployment.done().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_name_that_is_taken_stops_one_day_and_no_other() {
    let deployment = Deployment::initialized(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let tomorrow = day(&mut admin, 1).await;
    sql(
        &mut admin,
        format!("create view inbox_{} as select 1 as a", tomorrow.underscored()),
    )
    .await;
    let report = deployment.pass().await;
    assert_eq!(steps(&report).len(), 7);
    let plan = &only(&report).after;
    assert_eq!(plan.severity(), Severity::Fail);
    assert!(codes(plan).contains(&"name_taken".to_owned()), "{:?}", codes(plan));
    assert!(plan.runway_seconds.unwrap() <= 86_400, "the runway ends at the gap");
}

#[tokio::test]
async fn shutdown_finishes_the_step_in_hand_and_leaves_out_the_rest() {
    let deployment = Deployment::initialized(vec![spec("public.inbox")]).await;
    let asked = std::sync::atomic::AtomicU32::new(0);
    let stop = || asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) >= 3;
    let request = inboxd::maintain::PassRequest {
        deployment: &deployment.name,
        specs: &deployment.specs,
        replica: None,
        trigger: inboxd::maintain::Trigger::Manual,
        confirm_clock: false,
        retries: deployment.retries,
        clock: &deployment.clock,
        stop: &stop,
    };
    let outcome = inboxd::maintain::run_pass(&mut deployment.maintenance().await, request)
        .await
        .unwrap();
    let PassOutcome::Ran(report) = outcome else {
        panic!("{outcome:?}")
    };
    let done = report.steps().filter(|step| step.outcome == StepOutcome::Done).count();
    let skipped = report
        .steps()
        .filter(|step| matches!(step.outcome, StepOutcome::Skipped { .. }))
        .count();
    assert_eq!((done, skipped, report.outcome.as_str()), (3, 5, "partial"));
    assert_eq!(deployment.partitions("inbox").await.len(), 3);
    assert_eq!(deployment.done().await.len(), 5);
}
