//! What cannot be understood is a problem of its own kind, and never ours.

use serde_json::json;

use super::*;

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn bad_paths_and_queries_are_told_by_their_kind() {
    let (api, _database) = Api::ready(&[]).await;
    let unknown = "00000000-0000-4000-8000-000000000000";
    for (path, status, kind) in [
        ("/nothing", 404, "not-found"),
        ("/page/0123.css", 404, "not-found"),
        ("/v1", 404, "not-found"),
        ("/v1/nothing", 404, "not-found"),
        ("/v1/inboxes/", 404, "not-found"),
        ("/v1/inboxes/main.public.inbox/nothing", 404, "not-found"),
        ("/v1/inboxes/other", 404, "inbox-not-found"),
        ("/v1/inboxes/other/partitions", 404, "inbox-not-found"),
        ("/v1/inboxes/other/plan", 404, "inbox-not-found"),
        ("/v1/inboxes/in%22box%3b%20drop", 404, "inbox-not-found"),
        ("/v1/inboxes/%00", 404, "inbox-not-found"),
        ("/v1/inboxes/%ff", 400, "bad-request"),
        ("/v1/runs/1", 400, "bad-request"),
        ("/v1/runs/%ff", 400, "bad-request"),
        (&format!("/v1/runs/{unknown}"), 404, "run-not-found"),
        ("/v1/runs?limit=0", 400, "bad-request"),
        ("/v1/runs?limit=501", 400, "bad-request"),
        ("/v1/runs?limit=-1", 400, "bad-request"),
        ("/v1/runs?limit=ten", 400, "bad-request"),
        ("/v1/runs?limit=99999999999999999999", 400, "bad-request"),
        ("/v1/runs?limit=1&limit=2", 400, "bad-request"),
        ("/v1/runs?outcome=fine", 400, "bad-request"),
        ("/v1/runs?cursor=garbage", 400, "bad-request"),
        ("/v1/runs?cursor=main:x", 400, "bad-request"),
        ("/v1/runs?database=other", 404, "database-not-found"),
        ("/v1/runs?outcom=done", 400, "bad-request"),
    ] {
        let parts = taken_apart(api.get(path).await).await;
        must_be_problem(path, &parts, kind);
        assert_eq!(parts.0, status, "{path}");
    }
}

#[tokio::test]
async fn a_method_that_an_endpoint_does_not_have_is_405_with_those_that_it_has() {
    let (api, _database) = Api::ready(&[]).await;
    for (method, path, allowed) in [
        ("post", "/v1/status", "GET,HEAD"),
        ("delete", "/v1/inboxes/main.public.inbox", "GET,HEAD"),
        ("put", "/v1/runs", "GET,HEAD,POST"),
        ("post", "/livez", "GET,HEAD"),
        ("patch", "/metrics", "GET,HEAD"),
    ] {
        let parts = taken_apart(api.send(method, path, &[], None).await).await;
        must_be_problem(path, &parts, "method-not-allowed");
        assert_eq!(
            (parts.0, parts.1["allow"].to_str().unwrap()),
            (405, allowed),
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn bad_bodies_of_a_run_are_told_by_their_kind_and_set_nothing_off() {
    let (api, database) = Api::ready(&[]).await;
    let large = json!({"inbox": "a".repeat(70_000)}).to_string();
    for (body, status, kind) in [
        ("{", 400, "bad-request"),
        ("\u{0}", 400, "bad-request"),
        ("[]", 422, "invalid-body"),
        ("1", 422, "invalid-body"),
        ("{\"dry_run\": \"yes\"}", 422, "invalid-body"),
        ("{\"dry-run\": true}", 422, "invalid-body"),
        ("{\"inbox\": 1}", 422, "invalid-body"),
        ("{\"inbox\": \"other\"}", 404, "inbox-not-found"),
        ("{\"database\": \"other\"}", 404, "database-not-found"),
        (large.as_str(), 413, "body-too-large"),
    ] {
        let parts = taken_apart(api.send("post", "/v1/runs", &[JSON], Some(body)).await).await;
        let what = &body[..body.len().min(40)];
        must_be_problem(what, &parts, kind);
        assert_eq!(parts.0, status, "{what}");
    }
    let runs: i64 = sqlx::query_scalar("select count(*) from inboxd.runs")
        .fetch_one(&mut database.connect().await)
        .await
        .unwrap();
    assert_eq!(runs, 1, "only the one at start");
}
