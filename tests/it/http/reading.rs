//! The reading endpoints tell what is so.

use serde_json::json;

use super::*;
use crate::support::inbox::sql;

async fn newest_partition(database: &TestDatabase) -> String {
    sqlx::query_scalar(
        "select inhrelid::regclass::text from pg_inherits where inhparent = 'public.inbox'::regclass order by 1 desc limit 1",
    )
    .fetch_one(&mut database.connect().await)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_healthy_inbox_is_told_alike_everywhere() {
    let (api, _database) = Api::ready(&[]).await;
    let health = api.get("/v1/health").await;
    assert_eq!(health.headers()["content-type"], "application/health+json");
    let health: Value = health.json().await.unwrap();
    let worse: Vec<_> = health["checks"].as_object().unwrap().iter().collect();
    assert_eq!(health["status"], "pass", "{worse:#?}");
    for check in [
        "runway",
        "days_ahead",
        "gaps",
        "overdue_expiry",
        "pending_detach",
        "xid_age",
        "dead_rows",
    ] {
        assert_eq!(
            health["checks"][check][0]["componentId"], "main.public.inbox",
            "{check}"
        );
    }
    assert_eq!(health["checks"]["days_ahead"][0]["observedValue"], 7.0);

    let inboxes = api.get_json("/v1/inboxes").await;
    assert_eq!(inboxes["inboxes"].as_array().unwrap().len(), 1);
    let line = &inboxes["inboxes"][0];
    assert_eq!(line["table"], "public.inbox");
    assert_eq!(line["partitions"], json!({"ahead": 7, "today": 1}));
    let one = api.get_json("/v1/inboxes/main.public.inbox").await;
    let partitions = api.get_json("/v1/inboxes/main.public.inbox/partitions").await;
    assert_eq!(one["partitions"], partitions["partitions"]);
    let states: Vec<&str> = partitions["partitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|partition| partition["state"].as_str().unwrap())
        .collect();
    assert_eq!(states[0], "today");
    assert!(
        states.len() == 8 && states[1..].iter().all(|state| *state == "ahead"),
        "{states:?}"
    );
    let plan = api.get_json("/v1/inboxes/main.public.inbox/plan").await;
    assert_eq!((&plan["steps"], &plan["findings"]), (&json!([]), &json!([])));
    for body in [line, &one, &plan] {
        let runway = body["runway_seconds"].as_i64().unwrap();
        assert!((7 * 86400..8 * 86400 + 60).contains(&runway), "{runway}");
    }

    let runs = api.get_json("/v1/runs").await;
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
    let run = &runs["runs"][0];
    for (key, value) in [
        ("trigger", json!("start")),
        ("outcome", json!("done")),
        ("steps_done", json!(8)),
        ("error", json!(null)),
    ] {
        assert_eq!(run[key], value, "{run}");
    }
    let one = api.get_json(&format!("/v1/runs/{}", run["id"].as_str().unwrap())).await;
    let steps = one["runs"][0]["steps"].as_array().unwrap();
    let ordinals: Vec<i64> = steps.iter().map(|step| step["ordinal"].as_i64().unwrap()).collect();
    assert_eq!(ordinals, (1..=8).collect::<Vec<_>>());
    assert!(
        steps
            .iter()
            .all(|step| step["inbox"] == "main.public.inbox" && step["outcome"] == "done"),
        "{one}"
    );
}

#[tokio::test]
async fn a_day_that_is_missing_is_in_plan_and_health_and_a_run_makes_it() {
    let (api, database) = Api::ready(&[]).await;
    let last = newest_partition(&database).await;
    let mut connection = database.connect().await;
    sql(&mut connection, format!("drop table {last}")).await;
    let plan = api
        .wait_for("/v1/inboxes/main.public.inbox/plan", |plan| plan["steps"] != json!([]))
        .await;
    assert_eq!(plan["steps"].as_array().unwrap().len(), 1, "{plan}");
    assert_eq!(plan["steps"][0]["action"], "create", "{plan}");
    let day = plan["steps"][0]["day"].clone();
    let health = api.get_json("/v1/health").await;
    assert_eq!(health["checks"]["days_ahead"][0]["observedValue"], 6.0, "{health}");

    let told = api.post_run(&json!({"dry_run": true})).await;
    assert_eq!(told.status(), 200);
    assert!(
        !told.headers().contains_key("location"),
        "nothing runs, so there is nothing to look at"
    );
    let told: Value = told.json().await.unwrap();
    assert_eq!(told["databases"][0]["outcome"], "planned", "{told}");
    assert_eq!(told["databases"][0]["inboxes"][0]["steps"][0]["day"], day);
    let there: i64 = sqlx::query_scalar("select count(*) from pg_inherits where inhparent = 'public.inbox'::regclass")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(there, 7, "a dry run does nothing");

    let ran: Value = api
        .post_run(&json!({"inbox": "main.public.inbox"}))
        .await
        .json()
        .await
        .unwrap();
    let step = &ran["databases"][0]["inboxes"][0]["steps"][0];
    assert_eq!((&step["outcome"], &step["day"]), (&json!("done"), &day), "{ran}");
    // Seen at once, although the reading before it was fresh.
    assert_eq!(
        api.get_json("/v1/inboxes/main.public.inbox/plan").await["steps"],
        json!([])
    );
    assert_eq!(newest_partition(&database).await, last);
}

#[tokio::test]
async fn health_fails_with_503_and_says_what_to_do() {
    let (api, database) = Api::ready(&[]).await;
    // Without its key a day would take the same message twice.
    let drop_keys = "do $$
        declare key record;
        begin
          for key in
            select conrelid::regclass as relation, conname from pg_constraint
            where contype = 'p' and coninhcount = 0 and conrelid::regclass::text ~ '^inbox(_2|$)'
          loop
            execute format('alter table %s drop constraint %I', key.relation, key.conname);
          end loop;
        end $$";
    sql(&mut database.connect().await, drop_keys).await;
    // The canary may notice it first, while an older reading still counts.
    let failing = api
        .wait_for("/v1/health", |health| health["checks"]["key"][0]["status"] == "fail")
        .await;
    let key = &failing["checks"]["key"][0];
    assert_eq!(key["status"], "fail", "{failing}");
    for said in ["output", "remedy"] {
        assert!(key[said].as_str().is_some_and(|text| !text.is_empty()), "{key}");
    }
    assert_eq!(api.get("/v1/health").await.status(), 503);
}
