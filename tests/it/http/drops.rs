//! Removals beyond the cap, confirmed over HTTP.

use serde_json::json;

use super::sample::INBOX;
use super::*;

/// By `message_id` the days of the whole retention have partitions, so that cutting it makes many expire at once.
fn config(retention: &str) -> String {
    format!("[[inbox]]\ntable = 'public.inbox'\nrouting = 'message_id'\nretention = '{retention}'\n")
}

#[tokio::test]
async fn s20_what_is_due_beyond_the_cap_is_counted_and_goes_in_one_run_once_that_count_is_confirmed() {
    let database = server::database().await;
    let folder = Folder::new();
    for (retention, command) in [("20d", "init"), ("20d", "run"), ("3d", "init")] {
        let file = config_file(folder.path(), &config(retention));
        ask(&database.url, &[command, "--config", file.to_str().unwrap()]).must(0, &[]);
    }
    let api = Api::on(&database.url, &config("3d"), &[]).await;
    // The run at start has taken as many as the cap allows.
    let path = format!("/v1/inboxes/{INBOX}/drops");
    let due = api.get_json(&path).await;
    let count = due["count"].as_u64().unwrap();
    assert_eq!(count, due["detach"].as_array().unwrap().len() as u64, "{due}");
    assert!(
        count > 8 && due["is_over_the_cap"] == true && due["max_drops_per_run"] == 4,
        "{due}"
    );

    let body = |expected: u64| json!({"inbox": INBOX, "expected": expected});
    let parts = taken_apart(api.post("/v1/confirm/drops", &body(count - 1)).await).await;
    must_be_problem("another count", &parts, "changed");
    assert_eq!(parts.0, 409);
    let confirmed = api.post_json("/v1/confirm/drops", &body(count), 200).await;
    assert_eq!(confirmed["detach"], due["detach"], "{confirmed}");

    let ran: Value = api.post_run(&json!({})).await.json().await.unwrap();
    let steps = ran["databases"][0]["inboxes"][0]["steps"].as_array().unwrap();
    let detached = steps.iter().filter(|step| step["action"] == "detach").count();
    assert_eq!(detached as u64, count, "{ran}");
    let parts = taken_apart(api.post("/v1/confirm/drops", &body(count)).await).await;
    must_be_problem("nothing is left", &parts, "nothing-due");
    let audit = api.get_json(&format!("/v1/audit?inbox={INBOX}")).await;
    let lines: Vec<_> = audit["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (&line["action"], &line["detail"]["detach"]["count"]))
        .collect();
    assert_eq!(lines, [(&json!("confirm_drops"), &json!(count))], "{audit}");
}
