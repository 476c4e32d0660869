//! The canary: what a consumer would see now, and nothing of it stays.

use std::time::{Duration, Instant};

use inboxd::maintain::{Canary, LONGEST_CANARY_ROUND, canaries};
use inboxd::{Consumers, InboxSpec, Severity};
use sqlx::postgres::PgConnectOptions;

use crate::support::inbox::{Deployment, spec, sql, v7_spec};
use crate::support::program::{A_WHILE, Service, ask};
use crate::support::proxy::Proxy;

async fn fly(options: &PgConnectOptions, specs: &[InboxSpec], longest_round: Duration) -> Vec<Canary> {
    let mut met = Vec::new();
    canaries(options, specs.iter(), longest_round, |canary| met.push(canary))
        .await
        .unwrap();
    met
}

fn outcomes(met: &[Canary]) -> Vec<&str> {
    met.iter().map(|canary| canary.outcome.as_str()).collect()
}

/// One of each kind.
fn every_kind() -> Vec<InboxSpec> {
    let shared = |mut spec: InboxSpec| {
        spec.policy.consumers = Consumers::Many;
        spec
    };
    vec![
        spec("public.any"),
        v7_spec("public.v7"),
        shared(spec("public.any_shared")),
        shared(v7_spec("public.\"v7 'shared' $inboxd$\"")),
    ]
}

#[tokio::test]
async fn it_is_fresh_in_every_kind_of_inbox_again_and_again_and_leaves_nothing() {
    let deployment = Deployment::running(every_kind()).await;
    for _ in 0..2 {
        let met = fly(&deployment.options, &deployment.specs, LONGEST_CANARY_ROUND).await;
        assert_eq!(outcomes(&met), ["fresh"; 4], "{met:?}");
        assert!(
            met.iter()
                .all(|canary| canary.severity == Severity::Info && canary.duration_seconds > 0.0)
        );
    }
    let mut connection = deployment.database.connect().await;
    for spec in &deployment.specs {
        let query = format!("select count(*) from {}", spec.table.quoted());
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(query))
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(rows, 0, "{}", spec.name);
    }
}

#[tokio::test]
async fn a_role_that_may_only_execute_the_functions_can_fly_it() {
    let deployment = Deployment::running(every_kind()).await;
    let role = format!("canary_{}", deployment.database.name);
    let mut connection = deployment.database.connect().await;
    sql(&mut connection, format!("create role {role} login")).await;
    let options = deployment.options.clone().username(&role);
    let met = fly(&options, &deployment.specs, LONGEST_CANARY_ROUND).await;
    assert_eq!(outcomes(&met), ["privilege"; 4], "{met:?}");
    assert!(met.iter().all(|canary| canary.severity == Severity::Fail));

    sql(&mut connection, format!("grant usage on schema public to {role}")).await;
    sql(
        &mut connection,
        format!("grant execute on all functions in schema public to {role}"),
    )
    .await;
    let met = fly(&options, &deployment.specs, LONGEST_CANARY_ROUND).await;
    assert_eq!(outcomes(&met), ["fresh"; 4], "{met:?}");
    sql(&mut connection, format!("drop owned by {role}")).await;
    sql(&mut connection, format!("drop role {role}")).await;
}

#[tokio::test]
async fn what_a_consumer_would_meet_is_told_by_its_kind_in_our_words() {
    let deployment = Deployment::initialized(vec![
        spec("public.empty"),
        spec("public.gone"),
        v7_spec("public.v7_empty"),
    ])
    .await;
    let mut connection = deployment.database.connect().await;
    sql(
        &mut connection,
        "drop function public.gone_try_claim(uuid, text, timestamptz, text, interval)",
    )
    .await;
    let met = fly(&deployment.options, &deployment.specs, LONGEST_CANARY_ROUND).await;
    assert_eq!(
        outcomes(&met),
        ["missing_partition", "not_installed", "missing_partition"],
        "{met:?}"
    );
    for canary in &met {
        assert_eq!(canary.severity, Severity::Fail);
        assert!(canary.error.as_ref().unwrap().contains("SQLSTATE"), "{canary:?}");
        let json = serde_json::to_string(canary).unwrap();
        assert!(!json.contains("SQLSTATE") && canary.remedy.is_some(), "{json}");
    }
}

#[tokio::test]
async fn a_table_that_is_locked_is_told_in_time_and_the_others_are_asked_all_the_same() {
    let deployment = Deployment::running(vec![spec("public.locked"), spec("public.free")]).await;
    let mut other = deployment.database.connect().await;
    sql(&mut other, "begin; lock table public.locked in access exclusive mode").await;
    let begin = Instant::now();
    let met = fly(&deployment.options, &deployment.specs, LONGEST_CANARY_ROUND).await;
    assert_eq!(outcomes(&met), ["in_flight", "fresh"], "{met:?}");
    assert_eq!(met[0].severity, Severity::Warn);
    assert!(
        met[0].duration_seconds >= 0.5 && met[0].duration_seconds < 2.5,
        "{met:?}"
    );
    assert!(begin.elapsed() < A_WHILE);
}

#[tokio::test]
async fn a_round_over_many_inboxes_that_are_locked_ends_in_time() {
    let specs: Vec<_> = (0..6).map(|number| spec(&format!("public.inbox_{number}"))).collect();
    let deployment = Deployment::initialized(specs).await;
    let mut other = deployment.database.connect().await;
    for spec in &deployment.specs {
        let table = spec.table.quoted();
        sql(
            &mut other,
            format!("begin; lock table {table} in access exclusive mode"),
        )
        .await;
    }
    let met = fly(&deployment.options, &deployment.specs, Duration::from_millis(900)).await;
    assert!((1..=2).contains(&met.len()), "{met:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_costs_three_round_trips_an_inbox() {
    let deployment = Deployment::running((0..5).map(|number| spec(&format!("public.inbox_{number}"))).collect()).await;
    let proxy = Proxy::in_front_of(&deployment.database).await;
    let mut asked = Vec::new();
    for count in [1, 5] {
        proxy.forget();
        let met = fly(&proxy.options(), &deployment.specs[..count], LONGEST_CANARY_ROUND).await;
        assert_eq!(outcomes(&met), vec!["fresh"; count]);
        asked.push(proxy.round_trips());
    }
    assert_eq!(asked[1] - asked[0], 4 * 3, "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_says_nothing_any_more_ends_it() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let proxy = Proxy::in_front_of(&deployment.database).await;
    proxy.hold();
    let mut met = 0;
    let flown = canaries(&proxy.options(), deployment.specs.iter(), LONGEST_CANARY_ROUND, |_| {
        met += 1
    })
    .await;
    assert!(flown.unwrap_err().to_string().contains("no answer"));
    assert_eq!(met, 0);
}

#[tokio::test]
async fn a_run_by_hand_tells_what_a_consumer_would_see() {
    let deployment = Deployment::initialized(Vec::new()).await;
    let url = &deployment.database.url;
    ask(url, &["init"]).must(0, &[]);
    ask(url, &["run"]).must(
        0,
        &["main.public.inbox: a claim, tried and rolled back, was fresh within"],
    );
    let json = ask(url, &["run", "--json"]).must(0, &[]).json();
    assert_eq!(json["databases"][0]["canaries"][0]["outcome"], "fresh", "{json}");
}

#[tokio::test]
async fn the_service_flies_it_after_its_passes_and_shows_it_in_health_and_metrics() {
    let deployment = Deployment::initialized(Vec::new()).await;
    let database = &deployment.database;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut service = Service::start(&database.url, &[("INBOXD_SCHEDULE__CRON", "* * * * * *")]);
    service.wait_until_ready().await;
    let health = async |service: &mut Service, wanted: fn(&serde_json::Value) -> bool| {
        let begin = Instant::now();
        loop {
            let health: serde_json::Value = service.get("/v1/health").await.json().await.unwrap();
            let canary = &health["checks"]["canary"][0];
            if wanted(canary) {
                return canary.clone();
            }
            assert!(begin.elapsed() < A_WHILE, "{health}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    health(&mut service, |canary| {
        canary["observedValue"].is_f64() && canary["status"] == "pass"
    })
    .await;
    let metrics = service.get("/metrics").await.text().await.unwrap();
    assert!(
        metrics.contains("inboxd_canary_success{database=\"main\",inbox=\"main.public.inbox\"} 1\n"),
        "{metrics}"
    );
    let mut other = database.connect().await;
    sql(&mut other, "begin; lock table public.inbox in access exclusive mode").await;
    let canary = health(&mut service, |canary| canary["status"] == "warn").await;
    assert!(canary["output"].as_str().unwrap().contains("claims wait"), "{canary}");
    sql(&mut other, "rollback").await;
    health(&mut service, |canary| canary["status"] == "pass").await;
    service.must_end();
    let rows: i64 = sqlx::query_scalar("select count(*) from public.inbox")
        .fetch_one(&mut other)
        .await
        .unwrap();
    assert_eq!(rows, 0);
}
