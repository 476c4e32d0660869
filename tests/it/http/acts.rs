//! What a person decides over HTTP: holds, and what all decisions have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::sample::{INBOX, JSON, days};
use super::*;
use crate::support::inbox::sql;

#[tokio::test]
async fn a_day_is_held_told_of_everywhere_and_released() {
    let (api, database) = Api::ready(&[]).await;
    let today = days(&database).await.remove(0);
    let held = |partitions: &Value| partitions["partitions"][0]["held_since"].clone();
    let partitions = format!("/v1/inboxes/{INBOX}/partitions");
    assert_eq!(held(&api.get_json(&partitions).await), json!(null));

    let body = json!({"inbox": INBOX, "day": today, "reason": "an audit"});
    let answer = api.post("/v1/holds", &body).await;
    let place = format!("/v1/holds/{INBOX}/{today}");
    assert_eq!(
        (answer.status().as_u16(), answer.headers()["location"].to_str().unwrap()),
        (201, &*place)
    );
    let made: Value = answer.json().await.unwrap();
    let partition = format!("inbox_{}", today.replace('-', "_"));
    for (key, value) in [
        ("inbox", json!(INBOX)),
        ("day", json!(today)),
        ("held_by", json!("loopback")),
        ("reason", json!("an audit")),
        ("is_new", json!(true)),
        ("partition", json!(partition)),
    ] {
        assert_eq!(made[key], value, "{key}: {made}");
    }
    // Seen at once, although what was read before it is fresh.
    assert_eq!(held(&api.get_json(&partitions).await), made["held_at"]);
    let again = json!({"inbox": INBOX, "day": today, "reason": "another"});
    let again = api.post_json("/v1/holds", &again, 200).await;
    assert_eq!(
        (&again["is_new"], &again["reason"]),
        (&json!(false), &json!("an audit"))
    );

    let one = api.get_json(&place).await;
    for path in ["/v1/holds", &format!("/v1/holds?inbox={INBOX}")] {
        assert_eq!(
            api.get_json(path).await,
            json!({"holds": [one], "unreadable": []}),
            "{path}"
        );
    }
    assert_eq!(one["held_at"], made["held_at"]);

    let released: Value = api.send("delete", &place, &[], None).await.json().await.unwrap();
    assert_eq!(released, json!({"inbox": INBOX, "day": today, "hold": one}));
    assert_eq!(held(&api.get_json(&partitions).await), json!(null));
    let answer = api.send("delete", &place, &[], None).await;
    assert_eq!(answer.status(), 200, "not on hold is no error");
    assert_eq!(answer.json::<Value>().await.unwrap()["hold"], json!(null));
    must_be_problem("gone", &taken_apart(api.get(&place).await).await, "hold-not-found");

    let audit = api.get_json("/v1/audit").await;
    let lines: Vec<_> = audit["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| {
            (
                &line["action"],
                &line["actor"],
                &line["inbox"],
                &line["reason"],
                &line["detail"]["day"],
            )
        })
        .collect();
    let (name, day, none, reason) = (json!(INBOX), json!(today), json!(null), json!("an audit"));
    let by = json!("loopback");
    let expected = [
        (&json!("release_hold"), &by, &name, &none, &day),
        (&json!("hold"), &by, &name, &reason, &day),
    ];
    assert_eq!(lines, expected, "the newest first, each once");
}

#[tokio::test]
async fn a_run_that_is_asked_for_stands_on_the_audit_with_who_asked_and_a_dry_one_does_not() {
    let (api, database) = Api::with_tokens("").await;
    let admin = format!("Bearer {ADMIN}");
    let headers = [JSON, ("authorization", admin.as_str())];
    let mut runs = Vec::new();
    for body in [json!({"dry_run": true}), json!({}), json!({"inbox": INBOX})] {
        let answer = api.send("post", "/v1/runs", &headers, Some(&body.to_string())).await;
        assert_eq!(answer.status(), 200, "{body}");
        let answer: Value = answer.json().await.unwrap();
        runs.push(answer["id"].clone());
    }
    let audit: Value = api.send("get", "/v1/audit", &headers, None).await.json().await.unwrap();
    let lines = audit["decisions"].as_array().unwrap();
    assert_eq!(lines.len(), 2, "{audit}");
    for (line, (run, inbox)) in lines.iter().zip([(&runs[2], json!(INBOX)), (&runs[1], json!(null))]) {
        assert_eq!(
            (&line["action"], &line["actor"]),
            (&json!("run"), &json!("ops")),
            "{line}"
        );
        assert_eq!((&line["detail"]["run"], &line["inbox"]), (run, &inbox), "{line}");
    }
    // Nobody's run: the record of who asked cannot be written.
    sql(
        &mut database.connect().await,
        "alter table inboxd.audit rename to audit_away",
    )
    .await;
    let answer = api.send("post", "/v1/runs", &headers, Some("{}")).await;
    must_be_problem("without an audit", &taken_apart(answer).await, "database-unavailable");
    let count: i64 = sqlx::query_scalar("select count(*) from inboxd.runs")
        .fetch_one(&mut database.connect().await)
        .await
        .unwrap();
    assert_eq!(count, 3, "the one at start, and two");
}

#[tokio::test]
async fn the_pages_of_the_audit_hold_every_line_once_the_newest_first() {
    let (api, database) = Api::ready(&[]).await;
    let days = days(&database).await;
    for day in &days[..5] {
        let body = json!({"inbox": INBOX, "day": day, "reason": format!("of {day}")});
        api.post_json("/v1/holds", &body, 201).await;
    }
    api.post_json("/v1/pause", &json!({"reason": "a migration"}), 200).await;
    // What another deployment paused is not ours to tell.
    let other =
        "insert into inboxd.audit (actor, action, detail) values ('eve', 'pause', '{\"deployment\": \"blue\"}')";
    sql(&mut database.connect().await, other).await;
    let whole = api.get_json("/v1/audit").await;
    assert_eq!(whole["next_cursor"], json!(null), "all fit");
    let lines = whole["decisions"].as_array().unwrap();
    let actions: Vec<_> = lines.iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["pause", "hold", "hold", "hold", "hold", "hold"]);
    assert_eq!(lines[1]["detail"]["day"], json!(days[4]));
    for limit in [1, 2, 5, 6] {
        let (mut found, mut path) = (Vec::new(), format!("/v1/audit?limit={limit}"));
        for _ in 0..10 {
            let page = api.get_json(&path).await;
            let more = page["decisions"].as_array().unwrap().clone();
            assert!(more.len() <= limit, "{page}");
            found.extend(more);
            match page["next_cursor"].as_str() {
                Some(cursor) => path = format!("/v1/audit?limit={limit}&cursor={cursor}"),
                None => break,
            }
        }
        assert_eq!(&found, lines, "by {limit}");
    }
    let only = api.get_json(&format!("/v1/audit?inbox={INBOX}")).await;
    assert_eq!(only["decisions"].as_array().unwrap().as_slice(), &lines[1..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_decide_at_once_a_database_has_a_few_connections_for_them() {
    let (api, database) = Api::ready(&[]).await;
    let today = days(&database).await.remove(0);
    let (mut other, mut onlooker) = (database.connect().await, database.connect().await);
    sql(&mut other, "begin; lock table inboxd.holds in access exclusive mode").await;
    let body = json!({"inbox": INBOX, "day": today, "reason": "an audit"});
    let asking = (0..16).map(|_| async { taken_apart(api.post("/v1/holds", &body).await).await });
    let mut asking = std::pin::pin!(futures_util::future::join_all(asking));
    let mut most = 0;
    let answers = loop {
        let a_moment = tokio::time::sleep(Duration::from_millis(20));
        if let futures_util::future::Either::Left((answers, _)) =
            futures_util::future::select(&mut asking, std::pin::pin!(a_moment)).await
        {
            break answers;
        }
        let acting: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'inboxd act'",
        )
        .fetch_one(&mut onlooker)
        .await
        .unwrap();
        most = most.max(acting);
    };
    // A session that says goodbye may still be listed while the next one opens.
    assert!((1..=4).contains(&most), "{most}");
    let of = |kind: &str| {
        answers
            .iter()
            .filter(|(_, _, body)| body["type"].as_str().unwrap().ends_with(kind))
            .count()
    };
    let (waited, shed) = (of(":locked"), of(":overloaded"));
    assert!(waited >= 3 && shed > 0 && waited + shed == 16, "{waited} {shed}");
    for parts in &answers {
        assert_eq!(parts.0, 503);
        assert!(parts.1.contains_key("retry-after"));
        assert!(
            !parts.2.to_string().contains("canceling"),
            "what the database said: {}",
            parts.2
        );
    }
    sql(&mut other, "rollback").await;
    api.post_json("/v1/holds", &body, 201).await;
}

#[tokio::test]
async fn what_can_be_done_in_one_database_of_two_is_done_there_and_the_other_says_why_not() {
    let database = initialized().await;
    let config = format!(
        "[databases.one]\nurl = '{}'\n[databases.two]\nurl = 'postgres://postgres@127.0.0.1:1/none'\n
         [[inbox]]\ntable = 'public.inbox'\nname = 'first'\ndatabase = 'one'\n
         [[inbox]]\ntable = 'public.inbox'\nname = 'second'\ndatabase = 'two'\n",
        database.url
    );
    let api = Api::spawn("", &config, &[]);
    api.wait_for("/v1/runs?database=one", |runs| runs["runs"][0]["outcome"] == "done")
        .await;
    for (path, body, key) in [
        ("/v1/pause", json!({"reason": "a migration"}), "paused"),
        ("/v1/resume", json!({}), "resumed"),
        ("/v1/confirm/clock", json!({}), "confirmed"),
    ] {
        let all = api.post_json(path, &body, 200).await;
        let (one, two) = (&all["databases"][0], &all["databases"][1]);
        assert!(one[key].is_object() && one["problem"].is_null(), "{path}: {all}");
        assert_eq!((&one["database"], &two["database"]), (&json!("one"), &json!("two")));
        assert_eq!(
            two["problem"]["type"], "urn:inboxd:problem:database-unavailable",
            "{path}: {all}"
        );
        assert!(two[key].is_null(), "{path}: {all}");
        let mut only = body.clone();
        only["database"] = json!("one");
        assert_eq!(
            api.post_json(path, &only, 200).await["databases"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
        only["database"] = json!("two");
        let parts = taken_apart(api.post(path, &only).await).await;
        must_be_problem(path, &parts, "database-unavailable");
    }
    let holds = api.get_json("/v1/holds").await;
    assert_eq!(holds["unreadable"][0]["database"], "two", "{holds}");
    let audit = api.get_json("/v1/audit").await;
    assert_eq!(audit["unreadable"][0]["database"], "two", "{audit}");
    assert_eq!(audit["decisions"].as_array().unwrap().len(), 4, "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_look_keep_nobody_from_deciding() {
    let (api, database) = Api::ready(&[]).await;
    let mut onlooker = database.connect().await;
    // Longer than anybody waits for a turn, and shorter than a look may take.
    let slow = "alter table inboxd.holds rename to holds_away;
        create function inboxd.slow() returns setof inboxd.holds_away language plpgsql
          as 'begin perform pg_catalog.pg_sleep(4); return; end';
        create view inboxd.holds as select * from inboxd.slow()";
    sql(&mut onlooker, slow).await;
    let enough = Arc::new(AtomicBool::new(false));
    let looking: Vec<_> = (0..15)
        .map(|_| {
            let (client, url) = (api.client.clone(), format!("{}/v1/holds", api.base));
            let enough = Arc::clone(&enough);
            tokio::spawn(async move {
                while !enough.load(Ordering::SeqCst) {
                    client.get(&url).send().await.unwrap();
                }
            })
        })
        .collect();
    let begin = std::time::Instant::now();
    loop {
        let waiting: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity
             where datname = current_database() and application_name = 'inboxd act' and wait_event = 'PgSleep'",
        )
        .fetch_one(&mut onlooker)
        .await
        .unwrap();
        if waiting >= 3 {
            break;
        }
        assert!(begin.elapsed() < A_WHILE, "nobody looks");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    api.post_json("/v1/pause", &json!({"reason": "a migration"}), 200).await;
    enough.store(true, Ordering::SeqCst);
    for look in looking {
        look.await.unwrap();
    }
}

#[tokio::test]
async fn a_reason_is_counted_in_characters_as_the_description_says() {
    let (api, database) = Api::ready(&[]).await;
    let today = days(&database).await.remove(0);
    let hold = |reason: String| json!({"inbox": INBOX, "day": today, "reason": reason});
    let parts = taken_apart(api.post("/v1/holds", &hold("ü".repeat(501))).await).await;
    must_be_problem("too long", &parts, "invalid-body");
    let made = api.post_json("/v1/holds", &hold("ü".repeat(500)), 201).await;
    assert_eq!(made["reason"], "ü".repeat(500));
}

/// The answer is that somebody else has it locked, which passes.
#[track_caller]
fn must_be_locked(what: &str, parts: &(u16, reqwest::header::HeaderMap, Value)) {
    must_be_problem(what, parts, "locked");
    assert_eq!(
        (parts.0, &parts.1["retry-after"]),
        (503, &"5".parse().unwrap()),
        "{what}"
    );
}

#[tokio::test]
async fn what_somebody_else_has_locked_is_a_problem_of_its_own_and_is_to_be_asked_for_again() {
    let (api, database) = Api::ready(&[]).await;
    let (today, mut other) = (days(&database).await.remove(0), database.connect().await);
    let hold = json!({"inbox": INBOX, "day": today, "reason": "an audit"});
    // What a run does that is removing the day.
    let removing = include_str!("../../../sql/lock/day.sql")
        .replace("$1", "(select id from inboxd.inboxes)")
        .replace("$2", &format!("'{today}'"));
    sql(&mut other, format!("begin; {removing}")).await;
    must_be_locked("its day", &taken_apart(api.post("/v1/holds", &hold).await).await);
    sql(&mut other, "rollback; begin; lock table inboxd.holds").await;
    must_be_locked("the holds", &taken_apart(api.post("/v1/holds", &hold).await).await);
    sql(&mut other, "rollback").await;
    assert_eq!(api.post_json("/v1/holds", &hold, 201).await["is_new"], true);
    let document = api.get_json("/openapi.json").await;
    let described = document["paths"]["/v1/holds"]["post"]["responses"]["503"]["description"].as_str();
    assert!(described.unwrap().contains("urn:inboxd:problem:locked"));
}
