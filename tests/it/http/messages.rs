//! One message, looked for and forgotten over HTTP.

use serde_json::json;

use super::sample::{ID, INBOX};
use super::*;
use crate::support::inbox::sql;

#[tokio::test]
async fn a_message_is_found_with_its_partition_and_once_forgotten_is_fresh_again() {
    let (api, database) = Api::ready(&[]).await;
    let path = format!("/v1/inboxes/{INBOX}/messages/{ID}");
    let before = api.get_json(&path).await;
    assert_eq!(
        (&before["processed"], &before["not_looked_at"]),
        (&json!([]), &json!([]))
    );
    assert_eq!(before["looked_at"].as_array().unwrap().len(), 8, "{before}");

    let mut consumer = database.connect().await;
    let claim = format!("select inbox_claim('{ID}', 'orders')");
    let fresh: bool = sqlx::query_scalar(sqlx::AssertSqlSafe(claim.clone()))
        .fetch_one(&mut consumer)
        .await
        .unwrap();
    assert!(fresh);
    let found = api.get_json(&path).await;
    let processed = &found["processed"][0];
    assert_eq!(
        (&processed["topic"], &processed["is_attached"]),
        (&json!("orders"), &json!(true)),
        "{found}"
    );
    assert_eq!(processed["day"], before["looked_at"][0], "{found}");

    // While an open transaction claims it anew it cannot be forgotten; nor without a reason.
    let forget = format!("{path}/forget");
    let forgotten = api.post_json(&forget, &json!({"reason": "a wrong price"}), 200).await;
    assert_eq!(
        forgotten,
        json!({"inbox": INBOX, "message_id": ID, "consumer": null, "was_there": true})
    );
    sql(&mut consumer, format!("begin; {claim}")).await;
    let parts = taken_apart(api.post(&forget, &json!({"reason": "again"})).await).await;
    must_be_problem("in flight", &parts, "in-flight");
    assert_eq!(parts.0, 409);
    sql(&mut consumer, "rollback").await;
    assert_eq!(api.get_json(&path).await["processed"], json!([]));
    let nothing = api.post_json(&forget, &json!({"reason": "again"}), 200).await;
    assert_eq!(nothing["was_there"], false);
    let audit = api.get_json("/v1/audit").await;
    let line = &audit["decisions"][1];
    assert_eq!(
        (
            &line["action"],
            &line["actor"],
            &line["reason"],
            &line["detail"]["message_id"]
        ),
        (
            &json!("forget"),
            &json!("loopback"),
            &json!("a wrong price"),
            &json!(ID)
        ),
        "{audit}"
    );
}

#[tokio::test]
async fn where_there_are_many_consumers_each_is_asked_after_by_name() {
    let database = server::database().await;
    let config = "[[inbox]]\ntable = 'public.inbox'\nconsumers = 'many'\n";
    let folder = Folder::new();
    let file = config_file(folder.path(), config);
    ask(&database.url, &["init", "--config", file.to_str().unwrap()]).must(0, &[]);
    let api = Api::on(&database.url, config, &[]).await;
    let mut connection = database.connect().await;
    for consumer in ["mailer", "biller"] {
        sql(
            &mut connection,
            format!("select inbox_claim('{ID}', 'orders', null, '{consumer}')"),
        )
        .await;
    }
    let path = format!("/v1/inboxes/{INBOX}/messages/{ID}");
    assert_eq!(api.get_json(&path).await["processed"].as_array().unwrap().len(), 2);
    let one = api.get_json(&format!("{path}?consumer=mailer")).await;
    assert_eq!(one["processed"].as_array().unwrap().len(), 1, "{one}");
    assert_eq!(one["processed"][0]["consumer"], "mailer", "{one}");

    let forget = format!("{path}/forget");
    for body in [
        json!({"reason": "x"}),
        json!({"reason": "x", "consumer": ""}),
        json!({"reason": "x", "consumer": "a\u{0}b"}),
    ] {
        let parts = taken_apart(api.post(&forget, &body).await).await;
        must_be_problem(&body.to_string(), &parts, "invalid-consumer");
        assert_eq!(parts.0, 422);
    }
    let parts = taken_apart(api.get(&format!("{path}?consumer=%00")).await).await;
    must_be_problem("a consumer that no text can be", &parts, "invalid-consumer");
    api.post_json(&forget, &json!({"reason": "x", "consumer": "mailer"}), 200)
        .await;
    let left = api.get_json(&path).await;
    assert_eq!(left["processed"].as_array().unwrap().len(), 1, "{left}");
    assert_eq!(left["processed"][0]["consumer"], "biller", "{left}");
}

#[tokio::test]
async fn a_forget_that_would_stop_a_subscriber_is_refused_with_the_remedy() {
    let (api, database) = Api::ready(&[]).await;
    let publish = "create publication everything for table public.inbox with (publish_via_partition_root = true)";
    sql(&mut database.connect().await, publish).await;
    let forget = format!("/v1/inboxes/{INBOX}/messages/{ID}/forget");
    let parts = taken_apart(api.post(&forget, &json!({"reason": "x"})).await).await;
    must_be_problem("published", &parts, "published");
    let detail = parts.2["detail"].as_str().unwrap();
    assert!(parts.0 == 409 && detail.contains("publish = 'insert'"), "{detail}");
}
