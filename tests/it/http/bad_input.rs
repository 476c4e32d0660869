//! What cannot be understood is a problem of its own kind, and never ours.

use serde_json::json;

use super::sample::{ID, INBOX, JSON, days};
use super::*;

/// The place of a message.
fn message(id: &str, query: &str) -> String {
    format!("/v1/inboxes/{INBOX}/messages/{id}{query}")
}

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
        ("/v1/holds?inbox=other", 404, "inbox-not-found"),
        ("/v1/holds?inbx=other", 400, "bad-request"),
        ("/v1/holds/main.public.inbox", 404, "not-found"),
        ("/v1/holds/other/2026-12-01", 404, "inbox-not-found"),
        ("/v1/holds/main.public.inbox/2026-12-01", 404, "hold-not-found"),
        ("/v1/holds/main.public.inbox/2026-02-30", 400, "bad-request"),
        ("/v1/holds/main.public.inbox/today", 400, "bad-request"),
        ("/v1/inboxes/other/drops", 404, "inbox-not-found"),
        (&format!("/v1/inboxes/other/messages/{ID}"), 404, "inbox-not-found"),
        ("/v1/inboxes/main.public.inbox/messages/1", 400, "bad-request"),
        (&message(unknown, "?consumr=a"), 400, "bad-request"),
        (&message(unknown, "?consumer=a"), 422, "invalid-consumer"),
        (&message("00000000-0000-0000-0000-000000000000", ""), 422, "invalid-id"),
        ("/v1/audit?limit=0", 400, "bad-request"),
        ("/v1/audit?limit=501", 400, "bad-request"),
        ("/v1/audit?cursor=garbage", 400, "bad-request"),
        ("/v1/audit?database=other", 404, "database-not-found"),
        ("/v1/audit?inbox=other", 404, "inbox-not-found"),
        ("/v1/audit?actor=eve", 400, "bad-request"),
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
        ("put", "/v1/holds", "GET,HEAD,POST"),
        ("post", "/v1/holds/main.public.inbox/2026-12-01", "GET,HEAD,DELETE"),
        ("get", "/v1/pause", "POST"),
        ("delete", "/v1/audit", "GET,HEAD"),
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

#[tokio::test]
async fn bad_bodies_of_a_decision_are_told_by_their_kind_and_change_nothing() {
    let (api, database) = Api::ready(&[]).await;
    let today = days(&database).await.remove(0);
    let long = "a".repeat(501);
    let forget = message(ID, "/forget");
    let hold = |day: &str, reason: &str| json!({"inbox": INBOX, "day": day, "reason": reason});
    for (path, body, status, kind) in [
        ("/v1/holds", json!({}), 422, "invalid-body"),
        ("/v1/holds", json!(null), 422, "invalid-body"),
        ("/v1/holds", json!([INBOX, today, "x"]), 422, "invalid-body"),
        ("/v1/holds", json!({"inbox": INBOX, "day": today}), 422, "invalid-body"),
        ("/v1/holds", hold(&today, ""), 422, "invalid-body"),
        ("/v1/holds", hold(&today, " \n"), 422, "invalid-body"),
        ("/v1/holds", hold(&today, "a\u{0}b"), 422, "invalid-body"),
        ("/v1/holds", hold(&today, &long), 422, "invalid-body"),
        ("/v1/holds", hold("2026-02-30", "x"), 422, "invalid-body"),
        ("/v1/holds", hold("2026-2-1", "x"), 422, "invalid-body"),
        ("/v1/holds", hold("20261201", "x"), 422, "invalid-body"),
        (
            "/v1/holds",
            json!({"inbox": INBOX, "day": 1, "reason": "x"}),
            422,
            "invalid-body",
        ),
        (
            "/v1/holds",
            json!({"inbox": INBOX, "day": today, "reason": "x", "by": "eve"}),
            422,
            "invalid-body",
        ),
        (
            "/v1/holds",
            json!({"inbox": "other", "day": today, "reason": "x"}),
            404,
            "inbox-not-found",
        ),
        ("/v1/holds", hold("2001-01-01", "x"), 404, "day-not-found"),
        ("/v1/holds", hold("9999-12-31", "x"), 404, "day-not-found"),
        ("/v1/restore", json!({"inbox": INBOX}), 422, "invalid-body"),
        ("/v1/restore", hold(&today, ""), 422, "invalid-body"),
        ("/v1/restore", hold(&today, "x"), 409, "not-detached"),
        ("/v1/restore", hold("2001-01-01", "x"), 404, "day-not-found"),
        (
            "/v1/restore",
            json!({"inbox": "other", "day": today}),
            404,
            "inbox-not-found",
        ),
        (
            "/v1/confirm/clock",
            json!({"database": "other"}),
            404,
            "database-not-found",
        ),
        ("/v1/confirm/clock", json!({"inbox": INBOX}), 422, "invalid-body"),
        ("/v1/confirm/drops", json!({"inbox": INBOX}), 422, "invalid-body"),
        (
            "/v1/confirm/drops",
            json!({"inbox": INBOX, "expected": -1}),
            422,
            "invalid-body",
        ),
        (
            "/v1/confirm/drops",
            json!({"inbox": INBOX, "expected": 1e300}),
            422,
            "invalid-body",
        ),
        (
            "/v1/confirm/drops",
            json!({"inbox": "other", "expected": 1}),
            404,
            "inbox-not-found",
        ),
        (
            "/v1/confirm/drops",
            json!({"inbox": INBOX, "expected": 0}),
            409,
            "nothing-due",
        ),
        ("/v1/pause", json!({}), 422, "invalid-body"),
        ("/v1/pause", json!({"reason": ""}), 422, "invalid-body"),
        (
            "/v1/pause",
            json!({"reason": "x", "database": "other"}),
            404,
            "database-not-found",
        ),
        ("/v1/resume", json!({"database": "other"}), 404, "database-not-found"),
        ("/v1/resume", json!({"reason": "x"}), 422, "invalid-body"),
        (&forget, json!({}), 422, "invalid-body"),
        (&forget, json!({"reason": ""}), 422, "invalid-body"),
        (
            &forget,
            json!({"reason": "x", "consumer": "a"}),
            422,
            "invalid-consumer",
        ),
        (
            "/v1/inboxes/other/messages/1/forget",
            json!({"reason": "x"}),
            400,
            "bad-request",
        ),
    ] {
        let parts = taken_apart(api.post(path, &body).await).await;
        let what = format!("{path} {}", &body.to_string()[..body.to_string().len().min(100)]);
        must_be_problem(&what, &parts, kind);
        assert_eq!(parts.0, status, "{what}");
    }
    for (path, status, kind) in [
        ("/v1/holds/other/2026-12-01", 404, "inbox-not-found"),
        ("/v1/holds/main.public.inbox/tomorrow", 400, "bad-request"),
    ] {
        let parts = taken_apart(api.send("delete", path, &[], None).await).await;
        must_be_problem(path, &parts, kind);
        assert_eq!(parts.0, status, "{path}");
    }
    let lines: i64 = sqlx::query_scalar("select count(*) from inboxd.audit")
        .fetch_one(&mut database.connect().await)
        .await
        .unwrap();
    assert_eq!(lines, 0);
}
