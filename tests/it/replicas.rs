//! Several of us on one database, one of us on several, and a database that is a copy of another.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::{
    Ahead, Day, Retention,
    clock::Clock,
    maintain::{PassOutcome, PassRequest, Replica, Trigger, run_pass, takeover},
};
use sqlx::PgConnection;

use crate::support::{
    clock::ClockServer,
    folder::Folder,
    inbox::{Deployment, claim, codes, random_id, spec, sql, steps},
    program::{A_WHILE, Service, ask, config_file, inboxd},
    server,
};

/// One pass by a replica; what it did.
async fn pass_by(replica: &Replica, deployment: &Deployment) -> Vec<String> {
    let request = PassRequest {
        deployment: &deployment.name,
        specs: &deployment.specs,
        replica: Some(replica),
        trigger: Trigger::Schedule,
        confirm_clock: false,
        retries: deployment.retries,
        clock: &deployment.clock,
        stop: &|| false,
    };
    match run_pass(&mut deployment.maintenance().await, request).await.unwrap() {
        PassOutcome::Ran(report) => steps(&report),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn s19_while_two_replicas_disagree_the_longer_retention_and_the_larger_ahead_rule() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let old = Deployment::new(server.database().await, server.clock(), vec![spec("public.inbox")]);
    let mut new = old.clone();
    new.specs[0].policy.retention = Retention::For(TimeDelta::days(2));
    new.specs[0].policy.ahead = Ahead::new(8).unwrap();
    old.init().await.unwrap();
    let (first, second) = (
        Replica::new("one", TimeDelta::days(1)),
        Replica::new("two", TimeDelta::days(1)),
    );
    assert_eq!(pass_by(&first, &old).await.len(), 8);
    assert_eq!(pass_by(&second, &new).await, ["create inbox_2026_12_09"]);
    server.step(TimeDelta::days(1));
    assert_eq!(
        pass_by(&first, &old).await,
        ["create inbox_2026_12_10"],
        "the larger ahead of the other rules"
    );
    // The claim functions too are made anew in the course of the upgrade.
    new.init().await.unwrap();
    server.step(TimeDelta::days(1));
    pass_by(&first, &old).await;
    server.step(TimeDelta::days(1));
    pass_by(&first, &old).await;
    let done = pass_by(&second, &new).await;
    assert!(
        !done.iter().any(|step| step.starts_with("detach")),
        "three days old, and the old replica keeps seven: {done:?}"
    );
    assert!(codes(&new.plan().await[0].plan).contains(&"replicas_disagree".to_owned()));

    first.goodbye(&mut old.maintenance().await).await.unwrap();
    assert_eq!(
        pass_by(&second, &new).await,
        ["detach inbox_2026_12_01"],
        "it is the only one left"
    );
}

#[tokio::test]
async fn a_replica_that_died_while_the_clock_was_ahead_does_not_rule_for_as_long() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let short = Deployment::new(server.database().await, server.clock(), vec![spec("public.inbox")]);
    let mut long = short.clone();
    long.specs[0].policy.retention = Retention::For(TimeDelta::days(30));
    short.init().await.unwrap();
    let (first, second) = (
        Replica::new("one", TimeDelta::minutes(10)),
        Replica::new("two", TimeDelta::minutes(10)),
    );
    pass_by(&first, &short).await;
    for (leap, rules) in [(TimeDelta::minutes(45), true), (TimeDelta::days(400), false)] {
        server.step(leap);
        pass_by(&second, &long).await;
        server.step(-leap);
        let disagree = codes(&short.plan().await[0].plan).contains(&"replicas_disagree".to_owned());
        assert_eq!(disagree, rules, "after {leap}");
        second.goodbye(&mut short.maintenance().await).await.unwrap();
    }
}

#[tokio::test]
async fn s19_a_cloned_database_creates_and_does_not_remove_until_it_is_taken_over() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let original = Deployment::new(server.database().await, server.clock(), vec![spec("public.inbox")]);
    original.init().await.unwrap();
    original.done().await;
    let mut admin = server.database().await.connect().await;
    sql(
        &mut admin,
        format!("create database clone template {}", original.database.name),
    )
    .await;
    let mut database = original.database.clone();
    database.name = "clone".to_owned();
    database.options = database.options.database("clone");
    let clone = Deployment::new(database, server.clock(), original.specs.clone());

    server.step(TimeDelta::days(4));
    clone.done().await;
    server.step(TimeDelta::days(4));
    let done = clone.done().await;
    assert!(
        done.iter().all(|step| step.starts_with("create ")) && !done.is_empty(),
        "{done:?}"
    );
    assert_eq!(codes(&clone.plan().await[0].plan), ["other_server"]);
    let taken = takeover(&mut clone.maintenance().await, &clone.specs, &clone.name)
        .await
        .unwrap();
    assert!(taken[0].is_taken);
    assert_eq!(clone.done().await, ["detach inbox_2026_12_01"]);
}

/// What a service of these tests runs with: a pass a second, for days are stepped by hand.
fn serve(server: &ClockServer, configuration: &[(&str, &str)]) -> Service {
    let mut command = inboxd(&["serve"]);
    command
        .envs(server.shim_environment())
        .env("INBOXD_SCHEDULE__CRON", "* * * * * *");
    for (name, value) in configuration {
        command.env(name, value);
    }
    Service::spawn(command)
}

/// The newest and the oldest attached day of an inbox.
async fn ends(connection: &mut PgConnection) -> (String, String) {
    sqlx::query_as(
        "select coalesce(max(name), ''), coalesce(min(name), '') from pg_inherits
         cross join lateral (select inhrelid::regclass::text as name) as named
         where inhparent = 'public.inbox'::regclass and not inhdetachpending",
    )
    .fetch_one(connection)
    .await
    .unwrap()
}

#[tokio::test]
async fn two_services_through_sixty_stepped_days_apply_every_step_once_and_none_fails() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2027-12-15T12:00:00Z".parse().unwrap());
    let database = server.database().await;
    let folder = Folder::new();
    let file = config_file(
        folder.path(),
        "[[inbox]]\ntable = 'inbox'\nretention = '2d'\ndrop_grace = '1h'\nahead = 3",
    );
    let configuration = [
        ("DATABASE_URL", database.url.as_str()),
        ("INBOXD_CONFIG", file.to_str().unwrap()),
    ];
    let mut init = inboxd(&["init"]);
    init.envs(configuration);
    assert!(init.status().unwrap().success());
    let mut services = [serve(&server, &configuration), serve(&server, &configuration)];
    for service in &mut services {
        service.wait_until_ready().await;
    }
    let mut connection = database.connect().await;
    for _ in 0..60 {
        server.step(TimeDelta::days(1));
        let today = Day::containing(server.now());
        let named = |day: Day| format!("inbox_{}", day.underscored());
        let wanted = (named(today.plus(3)), named(today.plus(-2)));
        let begin = std::time::Instant::now();
        while ends(&mut connection).await != wanted && today.to_string().as_str() > "2027-12-17" {
            assert!(
                begin.elapsed() < A_WHILE,
                "{today}: {:?} instead of {wanted:?}",
                ends(&mut connection).await
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(claim(&mut connection, "inbox", random_id()).await.unwrap());
    }
    for mut service in services {
        assert_eq!(service.mishaps(), [""; 0]);
        service.must_end();
    }
    let steps: Vec<(String, String, i64)> = sqlx::query_as(
        // What a service left out because it was told to end was for the next run.
        "select action || ' ' || relation_name, string_agg(distinct outcome, ','), count(*) from inboxd.steps
         where error is distinct from 'the service is shutting down' group by 1",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let twice: Vec<_> = steps
        .iter()
        .filter(|(_, outcomes, times)| outcomes != "done" || *times != 1)
        .collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(steps.len() > 150, "{} steps in sixty days", steps.len());
    let deadlocks: i64 =
        sqlx::query_scalar("select deadlocks from pg_stat_database where datname = current_database()")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert_eq!(deadlocks, 0);
    let left: i64 = sqlx::query_scalar("select count(*) from inboxd.replicas")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(left, 0, "both said goodbye");
}

#[tokio::test]
async fn of_two_databases_one_is_taken_away_for_a_week_the_other_never_notices_and_the_first_heals_in_one_run() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let (stays, goes) = (server.database().await, server.database().await);
    let folder = Folder::new();
    let inboxes = "[[inbox]]\ntable = 'inbox'\ndatabase = 'stays'\n[[inbox]]\ntable = 'inbox'\ndatabase = 'goes'";
    let file = config_file(
        folder.path(),
        &format!(
            "[databases.stays]\nurl = '{}'\n[databases.goes]\nurl = '{}'\n{inboxes}",
            stays.url, goes.url
        ),
    );
    let configuration = [("INBOXD_CONFIG", file.to_str().unwrap())];
    let mut init = inboxd(&["init"]);
    init.envs(configuration);
    assert!(init.status().unwrap().success());
    let mut service = serve(&server, &configuration);
    service.wait_until_ready().await;

    let mut admin = server.database().await.connect().await;
    sql(
        &mut admin,
        format!("alter database {} allow_connections false", goes.name),
    )
    .await;
    sql(
        &mut admin,
        format!(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}'",
            goes.name
        ),
    )
    .await;
    let mut connection = stays.connect().await;
    for _ in 0..7 {
        server.step(TimeDelta::days(1));
        let wanted = format!("inbox_{}", Day::containing(server.now()).plus(7).underscored());
        let begin = std::time::Instant::now();
        while ends(&mut connection).await.0 != wanted {
            assert!(begin.elapsed() < A_WHILE, "{wanted} is not made where all is well");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    // Right after a step the pass of the other may not have ended yet by the new clock.
    let begin = std::time::Instant::now();
    loop {
        let not_ready = service.wait_until("/readyz", 503).await;
        let reasons: Vec<_> = not_ready["reasons"]
            .as_array()
            .unwrap()
            .iter()
            .map(|reason| reason.as_str().unwrap())
            .collect();
        if !reasons.is_empty() && reasons.iter().all(|reason| reason.starts_with("database goes: ")) {
            break;
        }
        assert!(begin.elapsed() < A_WHILE, "{reasons:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let status: serde_json::Value = service.get("/v1/status").await.json().await.unwrap();
    let states: BTreeMap<&str, bool> = status["databases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|database| (database["database"].as_str().unwrap(), database["error"].is_null()))
        .collect();
    assert_eq!(states, BTreeMap::from([("stays", true), ("goes", false)]));

    sql(
        &mut admin,
        format!("alter database {} allow_connections true", goes.name),
    )
    .await;
    service.wait_until_ready().await;
    let runs: Vec<(String, i64)> = sqlx::query_as(
        "select outcome, (select count(*) from inboxd.steps where run_id = runs.id) from inboxd.runs
         where exists (select from inboxd.steps where run_id = runs.id) order by ordinal",
    )
    .fetch_all(&mut goes.connect().await)
    .await
    .unwrap();
    assert_eq!(
        runs,
        [("done".to_owned(), 8), ("done".to_owned(), 7)],
        "all that was missed is made in one run"
    );
    let others: Vec<String> = sqlx::query_scalar("select outcome from inboxd.runs where outcome <> 'done'")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert_eq!(others, [""; 0]);
    service.must_end();
}

#[tokio::test]
async fn runs_of_two_databases_have_identities_of_their_own() {
    let one = Deployment::running(vec![spec("public.inbox")]).await;
    let other = Deployment::new(server::database().await, Clock::system(), vec![spec("public.inbox")]);
    other.init().await.unwrap();
    assert_ne!(one.pass().await.id, other.pass().await.id);
}

#[tokio::test]
async fn s35_the_history_of_runs_is_pruned_but_never_below_the_last_thousand() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let old: DateTime<Utc> = "2020-01-01T00:00:00Z".parse().unwrap();
    sqlx::query(
        "with old as (
           insert into inboxd.runs (id, deployment, trigger, version, started_at)
           select gen_random_uuid(), 'test', 'schedule', '0', $1 from generate_series(1, 1500)
           returning id
         )
         insert into inboxd.steps (run_id, ordinal, inbox_id, relation_name, action, reason, outcome, attempts, started_at, duration_ms)
         select old.id, 1, inbox.id, 'x', 'create', 'x', 'done', 1, $1, 1 from old cross join inboxd.inboxes as inbox",
    )
    .bind(old)
    .execute(&mut admin)
    .await
    .unwrap();
    deployment.pass().await;
    let (runs, steps): (i64, i64) = sqlx::query_as("select (select count(*) from inboxd.runs where started_at = $1), (select count(*) from inboxd.steps where started_at = $1)")
        .bind(old)
        .fetch_one(&mut admin)
        .await
        .unwrap();
    assert_eq!(
        (runs, steps),
        (1000, 1000),
        "of 1,502 runs the last thousand before the newest are kept"
    );
    ask(&deployment.database.url, &["status"]).must(0, &["last run"]);
}
