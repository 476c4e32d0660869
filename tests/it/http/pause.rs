//! The schedule is paused over HTTP.

use serde_json::json;

use super::sample::JSON;
use super::*;

#[tokio::test]
async fn a_pause_survives_a_restart_health_warns_with_who_and_why_and_it_ends_with_a_resume() {
    let (mut api, database) = Api::with_tokens("").await;
    let admin = format!("Bearer {ADMIN}");
    let headers = [JSON, ("authorization", admin.as_str())];
    let get = async |api: &Api, path: &str| -> Value {
        let answer = api.send("get", path, &headers, None).await;
        assert_eq!(answer.status(), 200, "{path}");
        answer.json().await.unwrap()
    };
    let schedule = |health: &Value| health["checks"]["schedule"][0].clone();
    assert_eq!(schedule(&get(&api, "/v1/health").await)["status"], "pass");
    assert_eq!(get(&api, "/v1/status").await["databases"][0]["paused"], json!(null));

    let body = json!({"reason": "a migration"}).to_string();
    let paused = api.send("post", "/v1/pause", &headers, Some(&body)).await;
    assert_eq!(paused.status(), 200);
    let paused: Value = paused.json().await.unwrap();
    let paused = &paused["databases"][0]["paused"];
    assert_eq!((&paused["is_new"], &paused["paused_by"]), (&json!(true), &json!("ops")));
    let must_be_paused = async |api: &Api| {
        let status = get(api, "/v1/status").await;
        let pause = &status["databases"][0]["paused"];
        for (key, value) in [
            ("paused_at", paused["paused_at"].clone()),
            ("paused_by", json!("ops")),
            ("reason", json!("a migration")),
        ] {
            assert_eq!(pause[key], value, "{status}");
        }
        let health = get(api, "/v1/health").await;
        let check = schedule(&health);
        assert_eq!(
            (&health["status"], &check["status"]),
            (&json!("warn"), &json!("warn")),
            "{health}"
        );
        let output = check["output"].as_str().unwrap();
        assert!(output.contains("by ops: a migration"), "{output}");
    };
    must_be_paused(&api).await;
    api.service.must_end();

    let api = Api::on(&database.url, TOKENS, &[]).await;
    must_be_paused(&api).await;
    let again = json!({"reason": "another", "database": "main"}).to_string();
    let again = api.send("post", "/v1/pause", &headers, Some(&again)).await;
    let again: Value = again.json().await.unwrap();
    assert_eq!(again["databases"][0]["paused"]["is_new"], false, "{again}");
    must_be_paused(&api).await;

    let resumed = api.send("post", "/v1/resume", &headers, None).await;
    assert_eq!(resumed.status(), 200, "a body may be left out");
    let resumed: Value = resumed.json().await.unwrap();
    assert_eq!(
        resumed["databases"][0]["resumed"]["pause"]["reason"], "a migration",
        "{resumed}"
    );
    assert_eq!(get(&api, "/v1/status").await["databases"][0]["paused"], json!(null));
    assert_eq!(schedule(&get(&api, "/v1/health").await)["status"], "pass");
    let nothing = api.send("post", "/v1/resume", &headers, Some("null")).await;
    let nothing: Value = nothing.json().await.unwrap();
    assert_eq!(nothing["databases"][0]["resumed"]["pause"], json!(null), "{nothing}");

    let audit = get(&api, "/v1/audit").await;
    let lines: Vec<_> = audit["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| {
            (
                line["action"].as_str().unwrap(),
                line["actor"].as_str().unwrap(),
                &line["reason"],
            )
        })
        .collect();
    assert_eq!(
        lines,
        [("resume", "ops", &json!(null)), ("pause", "ops", &json!("a migration"))]
    );
}
