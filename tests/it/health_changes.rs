//! The log has a line for each change of health, not one for each run.

use std::time::{Duration, Instant};

use crate::support::process;
use crate::support::program::{A_WHILE, Service, ask};
use crate::support::proxy::Proxy;
use crate::support::server::{self, TestDatabase};

const EVERY_SECOND: (&str, &str) = ("INBOXD_SCHEDULE__CRON", "* * * * * *");
const ONCE_A_YEAR: (&str, &str) = ("INBOXD_SCHEDULE__CRON", "0 0 1 1 *");

async fn initialized() -> TestDatabase {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    database
}

/// What was told so far: check, component, what it is now.
fn told(service: &Service) -> Vec<[String; 3]> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    service
        .log()
        .iter()
        .map(|line| &line["fields"])
        .filter(|fields| text(&fields["message"]).starts_with("health: "))
        .map(|fields| ["check", "component", "to"].map(|name| text(&fields[name])))
        .collect()
}

fn change(check: &str, to: &str) -> [String; 3] {
    let component = if check == "canary" { "main.public.inbox" } else { "main" };
    [check, component, to].map(str::to_owned)
}

#[track_caller]
fn wait_until_told(service: &Service, wanted: &[[String; 3]]) {
    let found = process::poll(A_WHILE, || (told(service).len() >= wanted.len()).then_some(()));
    assert!(found.is_some(), "{:#?}", service.log());
    assert_eq!(told(service), wanted, "{:#?}", service.log());
}

/// Waits until so many more scheduled runs have ended.
async fn wait_for_runs(database: &TestDatabase, more: i64) {
    let mut connection = database.connect().await;
    let query = "select count(*) from inboxd.runs where trigger = 'schedule' and outcome is not null";
    let mut count = async || -> i64 { sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap() };
    let (before, begin) = (count().await, Instant::now());
    while count().await < before + more {
        assert!(begin.elapsed() < A_WHILE, "no more runs");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn nothing_is_told_while_all_is_well_not_even_at_the_start() {
    let database = initialized().await;
    let mut service = Service::start(&database.url, &[EVERY_SECOND]);
    service.wait_until_ready().await;
    wait_for_runs(&database, 3).await;
    assert_eq!(told(&service), Vec::<[String; 3]>::new());
    service.must_end();
}

#[tokio::test]
async fn a_pause_is_told_once_over_many_runs_and_so_is_its_end() {
    let database = initialized().await;
    let mut service = Service::start(&database.url, &[EVERY_SECOND]);
    service.wait_until_ready().await;
    ask(&database.url, &["pause", "--reason", "a test"]).must(0, &[]);
    let paused = change("schedule", "warn");
    wait_until_told(&service, std::slice::from_ref(&paused));
    // Judged again and again meanwhile.
    tokio::time::sleep(Duration::from_secs(4)).await;
    wait_until_told(&service, std::slice::from_ref(&paused));
    ask(&database.url, &["resume"]).must(0, &[]);
    wait_until_told(&service, &[paused, change("schedule", "pass")]);
    service.must_end();
}

#[tokio::test]
async fn what_was_wrong_before_the_start_is_told_at_the_start() {
    let database = initialized().await;
    ask(&database.url, &["pause", "--reason", "a test"]).must(0, &[]);
    ask(&database.url, &["run"]).must(0, &[]);
    let mut service = Service::start(&database.url, &[ONCE_A_YEAR]);
    wait_until_told(&service, &[change("schedule", "warn")]);
    let line = service.wait_for_log("health: schedule of main warns");
    assert_eq!(line["fields"]["from"], "unknown", "{line}");
    assert!(
        line["fields"]["remedy"].as_str().unwrap().contains("inboxd resume"),
        "{line}"
    );
    service.must_end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_away_between_two_runs_is_told_and_so_is_its_return() {
    let database = initialized().await;
    let mut proxy = Proxy::in_front_of(&database).await;
    let mut service = Service::start(&proxy.url(), &[ONCE_A_YEAR]);
    service.wait_until_ready().await;
    proxy.refuse().await;
    proxy.cut_all();
    let away = change("database", "fail");
    wait_until_told(&service, std::slice::from_ref(&away));
    proxy.allow().await;
    wait_until_told(&service, &[away, change("database", "pass")]);
    let log = service.log();
    let count = |message: &str| {
        let holds = |line: &&serde_json::Value| line["fields"]["message"] == message;
        log.iter().filter(holds).count()
    };
    assert!(count("cannot read the status") <= 2, "{log:#?}");
    service.must_end();
}

#[tokio::test]
async fn a_pass_that_fails_again_and_again_in_the_same_way_is_logged_once() {
    let database = server::database().await;
    let mut service = Service::start(&database.url, &[EVERY_SECOND]);
    wait_until_told(&service, &[change("schema_version", "fail")]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    for message in ["the pass failed; it is tried again", "cannot read the status"] {
        let holds = |line: &&serde_json::Value| line["fields"]["message"] == message;
        assert_eq!(service.log().iter().filter(holds).count(), 1, "{:#?}", service.log());
    }
    ask(&database.url, &["init"]).must(0, &[]);
    service.wait_until_ready().await;
    wait_until_told(
        &service,
        &[change("schema_version", "fail"), change("schema_version", "pass")],
    );
    service.must_end();
}
