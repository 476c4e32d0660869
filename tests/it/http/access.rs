//! Who may ask: tokens, and requests that a browser was made to send.

use super::described::operations;
use super::sample::{INBOX, JSON, Sample};
use super::*;

const OPEN: [&str; 3] = ["/livez", "/readyz", "/openapi.json"];

#[tokio::test]
async fn every_endpoint_wants_a_token_that_is_known_and_changing_wants_an_admins() {
    let (mut api, database) = Api::with_tokens("").await;
    let sample = Sample::of(&database).await;
    let document = api.get_json("/openapi.json").await;
    let reader = format!("Bearer {READER}");
    let admin = format!("bearer {ADMIN}");
    for (method, path, _) in operations(&document) {
        let what = format!("{method} {path}");
        let is_open = OPEN.contains(&path.as_str());
        let (body, status) = sample.body(&method, &path);
        let (path, body) = (sample.path(&method, &path), body.as_deref());
        let wrong = [
            "Bearer ",
            "Bearer admin-0123456789abcdeF",
            &format!("Basic {ADMIN}"),
            &admin[..admin.len() - 1],
        ];
        let refused = [vec![JSON]]
            .into_iter()
            .chain(wrong.iter().map(|wrong| vec![JSON, ("authorization", *wrong)]));
        for headers in refused {
            let answer = api.send(&method, &path, &headers, body).await;
            if is_open {
                assert_eq!(answer.status(), 200, "{what}");
                continue;
            }
            let parts = taken_apart(answer).await;
            must_be_problem(&what, &parts, "unauthorized");
            assert_eq!(parts.0, 401, "{what}");
            assert!(
                parts.1["www-authenticate"].to_str().unwrap().starts_with("Bearer"),
                "{what}"
            );
        }
        let answer = api
            .send(&method, &path, &[JSON, ("authorization", &reader)], body)
            .await;
        if method == "get" {
            assert_eq!(answer.status(), 200, "{what}");
        } else {
            let parts = taken_apart(answer).await;
            must_be_problem(&what, &parts, "forbidden");
            assert_eq!(parts.0, 403, "{what}");
        }
        let answer = api.send(&method, &path, &[JSON, ("authorization", &admin)], body).await;
        assert_eq!(answer.status(), status, "{what}");
    }
    // Only the admin's requests have done anything, and each stands under the token's name.
    let audit = api.send("get", "/v1/audit", &[("authorization", &reader)], None).await;
    let audit: Value = audit.json().await.unwrap();
    let mut done: Vec<_> = audit["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| line["actor"] == "ops")
        .map(|line| line["action"].as_str().unwrap())
        .collect();
    done.sort_unstable();
    let acts = ["confirm_clock", "forget", "hold", "pause", "restore", "resume"];
    assert_eq!(done, acts, "{audit}");
    let others = audit["decisions"].as_array().unwrap().len() - done.len();
    assert_eq!(others, 1, "the sample's own hold: {audit}");
    api.service.must_end();
    let log = format!("{:?}", api.service.log());
    assert!(!log.contains(READER) && !log.contains(ADMIN), "{log}");
}

#[tokio::test]
async fn metrics_are_open_where_that_is_configured_and_nothing_else_is() {
    let (api, _database) = Api::with_tokens("open_metrics = true\n").await;
    assert_eq!(api.get("/metrics").await.status(), 200);
    for path in ["/v1/health", "/v1/status", "/metrics/", "/v1/runs"] {
        let status = api.get(path).await.status();
        assert!(status == 401 || status == 404, "{path}: {status}");
    }
}

#[tokio::test]
async fn why_it_is_not_ready_is_told_to_those_with_a_token() {
    let database = server::database().await;
    let api = Api::spawn(&database.url, TOKENS, &[]);
    api.service.wait_for_log("the pass failed");
    let without = api.wait_for("/readyz", |body| body["ready"] == false).await;
    assert_eq!(without["reasons"], serde_json::json!([]));
    let reader = format!("Bearer {READER}");
    let with = api.send("get", "/readyz", &[("authorization", &reader)], None).await;
    let with: Value = with.json().await.unwrap();
    assert!(
        with["reasons"][0].as_str().unwrap().contains("run `inboxd init`"),
        "{with}"
    );
}

#[tokio::test]
async fn a_request_to_a_name_that_is_not_ours_is_refused_whatever_it_asks() {
    let (api, database) = Api::with_tokens("").await;
    let sample = Sample::of(&database).await;
    let document = api.get_json("/openapi.json").await;
    let admin = format!("Bearer {ADMIN}");
    for (method, path, _) in operations(&document) {
        let (body, _) = sample.body(&method, &path);
        let (path, body) = (sample.path(&method, &path), body.as_deref());
        for host in ["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example"] {
            let headers = [("host", host), ("authorization", &admin), JSON];
            let parts = taken_apart(api.send(&method, &path, &headers, body).await).await;
            must_be_problem(&format!("{method} {path} of {host}"), &parts, "host-not-allowed");
            assert_eq!(parts.0, 421);
        }
    }
    let headers = [("authorization", admin.as_str()), ("host", "Inboxd.Example.com:443")];
    assert_eq!(api.send("get", "/v1/status", &headers, None).await.status(), 200);
}

#[tokio::test]
async fn another_sites_page_can_change_nothing() {
    let (api, database) = Api::ready(&[]).await;
    let sample = Sample::of(&database).await;
    let before = written(&database).await;
    let own = api.base.clone();
    let document = api.get_json("/openapi.json").await;
    let mut changing = operations(&document);
    changing.retain(|(method, _, _)| method != "get");
    assert!(changing.len() >= 9, "{}", changing.len());
    for (method, path, _) in changing {
        let (body, _) = sample.body(&method, &path);
        let (path, body) = (sample.path(&method, &path), body.as_deref());
        for origin in [
            "http://evil.example",
            "null",
            "http://localhost",
            &own.replace("127.0.0.1", "localhost"),
        ] {
            let answer = api.send(&method, &path, &[JSON, ("origin", origin)], body).await;
            let parts = taken_apart(answer).await;
            must_be_problem(&format!("{method} {path} from {origin}"), &parts, "origin-not-allowed");
            assert_eq!(parts.0, 403);
        }
        // What a form can send without the browser asking first. It cannot send DELETE.
        for content_type in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=a",
        ] {
            if body.is_some() {
                let answer = api.send(&method, &path, &[("content-type", content_type)], body).await;
                let what = format!("{method} {path} as {content_type}");
                must_be_problem(&what, &taken_apart(answer).await, "unsupported-media-type");
            }
        }
    }
    assert_eq!(written(&database).await, before, "nothing was done");
    let hold = format!("/v1/holds/{INBOX}/{}", sample.days[0]);
    let answer = api.send("delete", &hold, &[("origin", &own)], None).await;
    assert_eq!(answer.status(), 200);
    let answer = api
        .send("post", "/v1/runs", &[JSON, ("origin", &own)], Some("{}"))
        .await;
    assert_eq!(answer.status(), 200);
    // Nobody is told that another site may read.
    let answer = api
        .send("get", "/v1/status", &[("origin", "http://evil.example")], None)
        .await;
    assert!(!answer.headers().contains_key("access-control-allow-origin"));
}

/// How many runs and lines of the audit there are.
async fn written(database: &TestDatabase) -> (i64, i64) {
    sqlx::query_as("select (select count(*) from inboxd.runs), (select count(*) from inboxd.audit)")
        .fetch_one(&mut database.connect().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn an_id_of_the_request_is_given_back_and_one_that_could_harm_a_log_is_not() {
    let (api, _database) = Api::ready(&[]).await;
    let answer = api.send("get", "/livez", &[("x-request-id", "order-66")], None).await;
    assert_eq!(answer.headers()["x-request-id"], "order-66");
    let answer = api.send("get", "/nothing", &[("x-request-id", "a b")], None).await;
    assert_eq!(answer.headers()["x-request-id"].len(), 36);
}
