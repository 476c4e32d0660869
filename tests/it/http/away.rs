//! While the database is away, or says nothing, or somebody has a partition locked.

use std::time::Instant;

use serde_json::json;

use super::described::operations;
use super::sample::{JSON, Sample};
use super::*;
use crate::support::inbox::sql;
use crate::support::proxy::Proxy;

/// What Prometheus gives a scrape.
const SCRAPE: Duration = Duration::from_secs(10);
const UNKNOWN_RUN: &str = "/v1/runs/00000000-0000-4000-8000-000000000000";
const NEED_A_DATABASE: [&str; 12] = [
    "/v1/status",
    "/v1/inboxes",
    "/v1/inboxes/main.public.inbox",
    "/v1/inboxes/main.public.inbox/partitions",
    "/v1/inboxes/main.public.inbox/plan",
    "/v1/runs",
    UNKNOWN_RUN,
    "/v1/audit",
    "/v1/holds",
    UNKNOWN_HOLD,
    "/v1/inboxes/main.public.inbox/drops",
    "/v1/inboxes/main.public.inbox/messages/0199a0c5-53c4-7d2c-9f3e-6f2f6c1b8a10",
];
const UNKNOWN_HOLD: &str = "/v1/holds/main.public.inbox/2026-12-01";

/// Every endpoint says that it is away, in time, in our words only.
async fn must_say_that_it_is_away(api: &Api) {
    for path in NEED_A_DATABASE {
        let begin = Instant::now();
        let parts = taken_apart(api.get(path).await).await;
        assert!(begin.elapsed() < SCRAPE, "{path} took {:?}", begin.elapsed());
        must_be_problem(path, &parts, "database-unavailable");
        assert_eq!(
            (parts.0, parts.1["retry-after"].to_str().unwrap()),
            (503, "5"),
            "{path}"
        );
        let detail = parts.2["detail"].as_str().unwrap();
        let ours = [
            "the database cannot be reached; the log says why",
            "the database did not answer in time",
        ];
        assert!(ours.contains(&detail), "{path}: {detail}");
    }
    let parts = taken_apart(api.post_run(&json!({"dry_run": true})).await).await;
    must_be_problem("a dry run", &parts, "database-unavailable");

    let begin = Instant::now();
    let (status, headers, health) = taken_apart(api.get("/v1/health").await).await;
    assert!(begin.elapsed() < SCRAPE, "{:?}", begin.elapsed());
    assert_eq!((status, &health["status"]), (503, &json!("fail")), "{health}");
    assert_eq!(headers["content-type"], "application/health+json");
    let begin = Instant::now();
    let metrics = api.get("/metrics").await;
    assert_eq!(metrics.status(), 200);
    assert!(
        metrics
            .text()
            .await
            .unwrap()
            .contains("inboxd_database_up{database=\"main\"} 0")
    );
    assert!(begin.elapsed() < SCRAPE, "{:?}", begin.elapsed());
    assert_eq!(api.get("/livez").await.status(), 200);
}

async fn must_be_back(api: &Api) {
    api.wait_for("/v1/status", |status| status["databases"].is_array())
        .await;
    for path in NEED_A_DATABASE {
        let wanted = if [UNKNOWN_RUN, UNKNOWN_HOLD].contains(&path) {
            404
        } else {
            200
        };
        assert_eq!(api.get(path).await.status(), wanted, "{path}");
    }
    assert_eq!(api.get("/v1/health").await.status(), 200);
    assert!(
        api.get("/metrics")
            .await
            .text()
            .await
            .unwrap()
            .contains("inboxd_database_up{database=\"main\"} 1")
    );
}

async fn must_notice(api: &Api) {
    api.wait_for("/v1/status", |status| status["status"] == 503).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_database_is_told_by_every_endpoint_and_all_answer_once_it_is_back() {
    let database = initialized().await;
    let mut proxy = Proxy::in_front_of(&database).await;
    let mut api = Api::on(&proxy.url(), "", &[]).await;
    let sample = Sample::of(&database).await;
    proxy.refuse().await;
    proxy.cut_all();
    must_notice(&api).await;
    must_say_that_it_is_away(&api).await;
    let parts = taken_apart(api.post_run(&json!({})).await).await;
    must_be_problem("a run", &parts, "database-unavailable");
    let document = api.get_json("/openapi.json").await;
    let mut deciding = operations(&document);
    deciding.retain(|(method, _, _)| method != "get");
    assert!(deciding.len() >= 9, "{}", deciding.len());
    let decide = async |method: &str, path: &str| {
        let (body, status) = sample.body(method, path);
        let path = sample.path(method, path);
        let answer = api.send(method, &path, &[JSON], body.as_deref()).await;
        (taken_apart(answer).await, status)
    };
    for (method, path, _) in &deciding {
        let (parts, _) = decide(method, path).await;
        let what = format!("{method} {path}");
        must_be_problem(&what, &parts, "database-unavailable");
        assert_eq!(
            (parts.0, parts.1["retry-after"].to_str().unwrap()),
            (503, "5"),
            "{what}"
        );
        assert_eq!(
            parts.2["detail"], "the database cannot be reached; the log says why",
            "{what}"
        );
    }
    proxy.allow().await;
    must_be_back(&api).await;
    for (method, path, _) in &deciding {
        let (parts, status) = decide(method, path).await;
        assert_eq!(parts.0, status, "{method} {path}: {}", parts.2);
    }
    let ran: Value = api.post_run(&json!({})).await.json().await.unwrap();
    assert_eq!(ran["databases"][0]["outcome"], "done", "{ran}");
    api.service.must_end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_says_nothing_any_more_keeps_nobody_waiting() {
    let database = initialized().await;
    let mut proxy = Proxy::in_front_of(&database).await;
    let api = Api::on(&proxy.url(), "", &[]).await;
    proxy.blackhole().await;
    proxy.cut_all();
    must_notice(&api).await;
    must_say_that_it_is_away(&api).await;
    let begin = Instant::now();
    let parts = taken_apart(api.post("/v1/pause", &json!({"reason": "a migration"})).await).await;
    must_be_problem("a decision", &parts, "database-unavailable");
    assert!(begin.elapsed() < SCRAPE, "{:?}", begin.elapsed());
    proxy.cut_all();
    proxy.allow().await;
    must_be_back(&api).await;
}

#[tokio::test]
async fn a_partition_that_is_locked_keeps_nobody_waiting() {
    let (api, database) = Api::ready(&[]).await;
    let mut other = database.connect().await;
    sql(&mut other, "begin; lock table public.inbox in access exclusive mode").await;
    let begin = Instant::now();
    for path in [
        "/v1/status",
        "/v1/health",
        "/metrics",
        "/v1/inboxes/main.public.inbox/partitions",
        "/v1/inboxes/main.public.inbox/plan",
    ] {
        // Each with a reading of its own.
        tokio::time::sleep(Duration::from_millis(1600)).await;
        let asked = Instant::now();
        assert_eq!(api.get(path).await.status(), 200, "{path}");
        assert!(asked.elapsed() < SCRAPE, "{path} took {:?}", asked.elapsed());
    }
    assert!(begin.elapsed() < A_WHILE);
    let partitions = api.get_json("/v1/inboxes/main.public.inbox/partitions").await;
    assert_eq!(partitions["partitions"].as_array().unwrap().len(), 8, "{partitions}");
    sql(&mut other, "rollback").await;
}
