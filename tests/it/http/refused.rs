//! Databases in which nothing may be decided: a standby, one that lets nobody write, one of another deployment, a copy.

use serde_json::json;

use super::described::operations;
use super::sample::{INBOX, JSON, Sample, days};
use super::*;
use crate::support::inbox::sql;

/// Every endpoint that changes something is refused like this.
async fn must_all_be_refused(api: &Api, sample: &Sample, kind: &str) {
    let document = api.get_json("/openapi.json").await;
    let mut refused = 0;
    for (method, path, operation) in operations(&document) {
        if method == "get" || path == "/v1/runs" {
            continue;
        }
        let (body, _) = sample.body(&method, &path);
        let answer = api
            .send(&method, &sample.path(&method, &path), &[JSON], body.as_deref())
            .await;
        let parts = taken_apart(answer).await;
        must_be_problem(&format!("{method} {path}"), &parts, kind);
        assert_eq!(parts.0, 409, "{method} {path}");
        let described = operation["responses"]["409"]["description"].as_str().unwrap();
        assert!(described.contains(&format!(":{kind}`")), "{method} {path}: {described}");
        refused += 1;
    }
    assert!(refused >= 8, "{refused}");
}

#[tokio::test]
async fn a_database_that_lets_nobody_write_says_so_in_its_own_problem_and_is_read() {
    let (api, database) = Api::ready(&[]).await;
    let sample = Sample::of(&database).await;
    let read_only = format!(
        "alter database {} set default_transaction_read_only = on",
        database.name
    );
    sql(&mut database.connect().await, read_only).await;
    must_all_be_refused(&api, &sample, "read-only").await;
    let parts = taken_apart(api.post_run(&json!({})).await).await;
    must_be_problem("a run", &parts, "read-only");
    assert_eq!(parts.0, 409);
    for path in [
        "/v1/holds",
        "/v1/audit",
        &format!("/v1/inboxes/{INBOX}/messages/{}", super::sample::ID),
    ] {
        assert_eq!(api.get(path).await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn s33_a_standby_says_so_in_its_own_problem_and_is_read() {
    let mut own = server::own(&[]).await;
    let database = own.database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    ask(&database.url, &["run"]).must(0, &[]);
    let sample = Sample::of(&database).await;
    std::fs::write(own.cluster.data_dir().join("standby.signal"), "").unwrap();
    own.cluster.restart().await.unwrap();
    let api = Api::spawn(&database.url, "", &[]);
    must_all_be_refused(&api, &sample, "standby").await;
    let ran: Value = api.post_run(&json!({})).await.json().await.unwrap();
    assert_eq!(ran["databases"][0]["outcome"], "standby", "{ran}");
    for path in [
        "/v1/holds",
        "/v1/audit",
        &format!("/v1/inboxes/{INBOX}/messages/{}", super::sample::ID),
    ] {
        assert_eq!(api.get(path).await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn an_inbox_of_another_deployment_is_not_decided_on() {
    let database = initialized().await;
    let today = days(&database).await;
    assert!(today.is_empty(), "no run yet");
    let api = Api::spawn(&database.url, "deployment = 'blue'\n", &[]);
    let day = api.get_json("/v1/status").await["databases"][0]["now"]
        .as_str()
        .unwrap()[..10]
        .to_owned();
    let body = json!({"inbox": INBOX, "day": day, "reason": "x"});
    for path in ["/v1/holds", "/v1/restore"] {
        let parts = taken_apart(api.post(path, &body).await).await;
        must_be_problem(path, &parts, "not-ours");
        assert_eq!(parts.0, 409);
    }
    let parts = taken_apart(api.get(&format!("/v1/inboxes/{INBOX}/drops")).await).await;
    must_be_problem("drops", &parts, "not-ours");
}

#[tokio::test]
async fn an_inbox_that_is_not_on_record_is_not_found_with_what_to_do() {
    let (api, database) = Api::ready(&[]).await;
    let day = days(&database).await.remove(0);
    sql(&mut database.connect().await, "truncate inboxd.inboxes cascade").await;
    let body = json!({"inbox": INBOX, "day": day, "reason": "x"});
    let parts = taken_apart(api.post("/v1/holds", &body).await).await;
    must_be_problem("not on record", &parts, "inbox-not-found");
    assert!(
        parts.2["detail"].as_str().unwrap().contains("inboxd init"),
        "{}",
        parts.2
    );
}

#[tokio::test]
async fn under_a_clock_that_is_not_trusted_no_removal_is_confirmed_until_the_clock_is() {
    let (api, database) = Api::ready(&[]).await;
    // The highest trusted time lies so far back that the clock must have leapt.
    let leap = "update inboxd.clock set trusted_at = trusted_at - interval '400 days'";
    sql(&mut database.connect().await, leap).await;
    let drops = format!("/v1/inboxes/{INBOX}/drops");
    let confirm = json!({"inbox": INBOX, "expected": 5});
    for answer in [api.get(&drops).await, api.post("/v1/confirm/drops", &confirm).await] {
        let parts = taken_apart(answer).await;
        must_be_problem("a leap", &parts, "untrusted-clock");
        assert_eq!(parts.0, 409);
    }
    let confirmed = api
        .post_json("/v1/confirm/clock", &json!({"database": "main"}), 200)
        .await;
    let confirmed = &confirmed["databases"][0]["confirmed"];
    assert_eq!(confirmed["still_blocked"], json!([]), "{confirmed}");
    assert!(confirmed["trusted_before"].as_str() < confirmed["trusted_at"].as_str());
    assert_eq!(api.get_json(&drops).await["count"], 0);
}
