//! Runs that are asked for over HTTP, and their history.

use serde_json::json;

use super::*;
use crate::support::inbox::sql;

/// A step waits this long for its lock, which is longer than the service lets a client wait.
const PATIENT: (&str, &str) = ("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "30s");

/// A day is missing, and somebody keeps it from being made.
async fn in_the_way(database: &TestDatabase) -> sqlx::PgConnection {
    let mut other = database.connect().await;
    let last: String = sqlx::query_scalar(
        "select inhrelid::regclass::text from pg_inherits where inhparent = 'public.inbox'::regclass order by 1 desc limit 1",
    )
    .fetch_one(&mut other)
    .await
    .unwrap();
    sql(&mut other, format!("drop table {last}")).await;
    sql(&mut other, "begin; lock table public.inbox in access exclusive mode").await;
    other
}

#[tokio::test]
async fn a_long_run_is_202_with_its_place_the_next_is_409_with_its_id_and_it_ends_on_record() {
    let (api, database) = Api::ready(&[PATIENT]).await;
    let other_process = Api::on(&database.url, "", &[PATIENT]).await;
    let mut other = in_the_way(&database).await;

    let first = api.post_run(&json!({})).await;
    assert_eq!(first.status(), 202);
    let place = first.headers()["location"].to_str().unwrap().to_owned();
    let first: Value = first.json().await.unwrap();
    let id = first["id"].as_str().unwrap();
    assert_eq!(place, format!("/v1/runs/{id}"));
    assert_eq!(first["databases"][0]["outcome"], "going");
    assert_eq!(api.get_json(&place).await["runs"][0]["outcome"], "running");

    for asked in [&api, &other_process] {
        let parts = taken_apart(asked.post_run(&json!({})).await).await;
        must_be_problem("the second", &parts, "run-going");
        assert_eq!((parts.0, &parts.2["going"][0]["run"]), (409, &json!(id)), "{}", parts.2);
    }

    sql(&mut other, "rollback").await;
    let ended = api.wait_for(&place, |run| run["runs"][0]["outcome"] != "running").await;
    let run = &ended["runs"][0];
    assert_eq!(
        (&run["outcome"], &run["trigger"]),
        (&json!("done"), &json!("manual")),
        "{ended}"
    );
    assert_eq!(run["steps"][0]["action"], "create", "{ended}");
    // The same in the other process, which has it from the database.
    assert_eq!(other_process.get_json(&place).await["runs"], ended["runs"]);
    // Whoever asked stands in the log.
    let line = api.service.wait_for_log("a run is asked for");
    assert_eq!(
        (&line["fields"]["by"], &line["fields"]["run"]),
        (&json!("loopback"), &json!(id)),
        "{line}"
    );
}

#[tokio::test]
async fn a_client_that_hangs_up_cuts_no_run() {
    let (api, database) = Api::ready(&[PATIENT]).await;
    let mut other = in_the_way(&database).await;
    let impatient = Client::builder().timeout(Duration::from_secs(1)).build().unwrap();
    let request = impatient.post(format!("{}/v1/runs", api.base)).send().await;
    assert!(request.unwrap_err().is_timeout());
    sql(&mut other, "rollback").await;
    let runs = api
        .wait_for("/v1/runs", |runs| {
            runs["runs"][0]["outcome"] == "done" && runs["runs"][0]["trigger"] == "manual"
        })
        .await;
    assert_eq!(runs["runs"][0]["steps_done"], 1, "{runs}");
}

#[tokio::test]
async fn one_request_runs_all_databases_or_one_under_one_id() {
    let (one, two) = (initialized().await, initialized().await);
    let config = format!(
        "[databases.one]\nurl = '{}'\n[databases.two]\nurl = '{}'\n
         [[inbox]]\ntable = 'public.inbox'\nname = 'first'\ndatabase = 'one'\n
         [[inbox]]\ntable = 'public.inbox'\nname = 'second'\ndatabase = 'two'\n",
        one.url, two.url
    );
    let api = Api::on("", &config, &[]).await;
    let all: Value = api.post_run(&json!({})).await.json().await.unwrap();
    let outcomes: Vec<_> = all["databases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (&one["database"], &one["outcome"]))
        .collect();
    assert_eq!(
        outcomes,
        [(&json!("one"), &json!("done")), (&json!("two"), &json!("done"))]
    );
    let path = format!("/v1/runs/{}", all["id"].as_str().unwrap());
    let run = api.get_json(&path).await;
    let databases: Vec<_> = run["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["database"])
        .collect();
    assert_eq!(databases, ["one", "two"]);

    for body in [json!({"database": "two"}), json!({"inbox": "second"})] {
        let answer: Value = api.post_run(&body).await.json().await.unwrap();
        let databases = answer["databases"].as_array().unwrap();
        assert_eq!(
            (databases.len(), &databases[0]["database"]),
            (1, &json!("two")),
            "{answer}"
        );
    }
    let parts = taken_apart(api.post_run(&json!({"database": "one", "inbox": "second"})).await).await;
    must_be_problem("an inbox of another database", &parts, "inbox-not-found");
    let only = api.get_json("/v1/runs?database=two").await;
    assert!(
        only["runs"]
            .as_array()
            .unwrap()
            .iter()
            .all(|run| run["database"] == "two"),
        "{only}"
    );
}

#[tokio::test]
async fn the_pages_of_the_history_hold_every_run_once_the_newest_first() {
    let (api, _database) = Api::ready(&[]).await;
    for _ in 0..6 {
        assert_eq!(api.post_run(&json!({})).await.status(), 200);
    }
    let whole = api.get_json("/v1/runs").await;
    assert_eq!(whole["next_cursor"], json!(null), "all fit");
    let ids = |page: &Value| -> Vec<String> {
        let runs = page["runs"].as_array().unwrap().iter();
        runs.map(|run| run["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&whole).len(), 7);
    let times: Vec<&str> = whole["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["started_at"].as_str().unwrap())
        .collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
    for limit in [1, 3, 6, 7] {
        let (mut found, mut path) = (Vec::new(), format!("/v1/runs?limit={limit}"));
        for _ in 0..10 {
            let page = api.get_json(&path).await;
            assert!(ids(&page).len() <= limit, "{page}");
            found.extend(ids(&page));
            match page["next_cursor"].as_str() {
                Some(cursor) => path = format!("/v1/runs?limit={limit}&cursor={cursor}"),
                None => break,
            }
        }
        assert_eq!(found, ids(&whole), "by {limit}");
    }
    assert_eq!(api.get_json("/v1/runs?outcome=failed").await["runs"], json!([]));
}

#[tokio::test]
async fn a_run_whose_asking_cannot_be_written_down_is_a_problem_and_not_200() {
    let (api, database) = Api::ready(&[]).await;
    let mut other = database.connect().await;
    for (statement, kind, status) in [
        ("begin; lock table inboxd.audit in access exclusive mode", "locked", 503),
        (
            "rollback; alter table inboxd.audit add constraint never check (action <> 'run')",
            "database-unavailable",
            503,
        ),
    ] {
        sql(&mut other, statement).await;
        let parts = taken_apart(api.post_run(&json!({})).await).await;
        must_be_problem(statement, &parts, kind);
        assert_eq!(parts.0, status, "{statement}");
    }
    let runs = api.get_json("/v1/runs").await;
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "the one at start: {runs}");
}

#[tokio::test]
async fn one_run_says_in_which_database_it_could_not_be_looked_for() {
    let database = initialized().await;
    let config = format!(
        "[databases.one]\nurl = '{}'\n[databases.two]\nurl = 'postgres://postgres@127.0.0.1:1/none'\n
         [[inbox]]\ntable = 'public.inbox'\nname = 'first'\ndatabase = 'one'\n
         [[inbox]]\ntable = 'public.inbox'\nname = 'second'\ndatabase = 'two'\n",
        database.url
    );
    let api = Api::spawn("", &config, &[]);
    let runs = api
        .wait_for("/v1/runs?database=one", |runs| runs["runs"][0]["outcome"] == "done")
        .await;
    let id = runs["runs"][0]["id"].as_str().unwrap();
    let run = api.get_json(&format!("/v1/runs/{id}")).await;
    assert_eq!(run["runs"][0]["database"], "one", "{run}");
    let unreadable = run["unreadable"].as_array().unwrap();
    assert_eq!(
        (unreadable.len(), &unreadable[0]["database"]),
        (1, &json!("two")),
        "{run}"
    );
    assert!(unreadable[0]["error"].as_str().is_some_and(|error| !error.is_empty()));
}
