//! `inboxd serve` on a database: what it has done before it says that it is ready, how it ends, what it survives.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use chrono::{TimeDelta, TimeZone, Utc};
use inboxd::clock::Clock;
use inboxd::service::{self, config::Config};
use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;

use crate::support::claims::eventually;
use crate::support::clock::ClockServer;
use crate::support::inbox::sql;
use crate::support::process;
use crate::support::program::{A_WHILE, Answer, Service, ask, inboxd};
use crate::support::proxy::{Cut, Proxy};
use crate::support::server::{self, TestDatabase};

/// Fires on New Year's Day only: what else runs was not set off by the schedule.
const ONCE_A_YEAR: (&str, &str) = ("INBOXD_SCHEDULE__CRON", "0 0 1 1 *");
const EVERY_SECOND: (&str, &str) = ("INBOXD_SCHEDULE__CRON", "* * * * * *");

async fn initialized() -> TestDatabase {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    database
}

async fn partitions(connection: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar(
        "select inhrelid::regclass::text from pg_inherits where inhparent = 'public.inbox'::regclass order by 1",
    )
    .fetch_all(connection)
    .await
    .unwrap()
}

/// Asks for a number until it is as wanted.
async fn wait_for(connection: &mut PgConnection, query: &'static str, wanted: impl Fn(i64) -> bool) -> i64 {
    let begin = std::time::Instant::now();
    loop {
        let found: i64 = sqlx::query_scalar(query).fetch_one(&mut *connection).await.unwrap();
        if wanted(found) {
            return found;
        }
        assert!(begin.elapsed() < A_WHILE, "{query}: {found}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a session of ours waits for a lock.
async fn wait_for_a_waiter(connection: &mut PgConnection) {
    let waiters = "select count(*) from pg_stat_activity
        where datname = current_database() and application_name = 'inboxd maintenance' and wait_event_type = 'Lock'";
    wait_for(connection, waiters, |count| count > 0).await;
}

#[tokio::test]
async fn s5_started_ten_seconds_before_midnight_all_days_exist_before_it_is_ready() {
    let clock = ClockServer::start(&[]).await;
    let database = clock.database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let midnight = Utc.with_ymd_and_hms(2031, 3, 1, 0, 0, 0).unwrap();
    clock.set_to(midnight - TimeDelta::seconds(10));
    let mut command = inboxd(&["serve"]);
    command
        .env("DATABASE_URL", &database.url)
        .envs(clock.shim_environment())
        .env(EVERY_SECOND.0, EVERY_SECOND.1);
    let mut service = Service::spawn(command);
    service.wait_until_ready().await;
    let mut connection = database.connect().await;
    let there = partitions(&mut connection).await;
    for day in ["02_28", "03_01", "03_02", "03_03", "03_04", "03_05", "03_06", "03_07"] {
        assert!(there.contains(&format!("inbox_2031_{day}")), "{day}: {there:?}");
    }
    // And over midnight: the new day's pass makes the day that is now the last ahead.
    let eighth = "select count(*) from pg_inherits where inhrelid = to_regclass('public.inbox_2031_03_08')";
    wait_for(&mut connection, eighth, |count| count == 1).await;
    assert_eq!(service.mishaps(), [""; 0]);
    service.must_end();
}

#[tokio::test]
async fn s15_after_a_leap_of_400_days_and_back_the_schedule_fires_as_before() {
    let clock = ClockServer::start(&[]).await;
    clock.set_to(Utc.with_ymd_and_hms(2026, 12, 1, 12, 0, 0).unwrap());
    let database = clock.database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut command = inboxd(&["serve"]);
    command
        .env("DATABASE_URL", &database.url)
        .envs(clock.shim_environment())
        .env(EVERY_SECOND.0, EVERY_SECOND.1);
    let mut service = Service::spawn(command);
    service.wait_until_ready().await;
    let mut connection = database.connect().await;
    clock.step(TimeDelta::days(400));
    // A beat of the schedule's heart, too, may have happened there.
    let there = "select count(*) from inboxd.runs
        where trigger = 'schedule' and outcome is not null and started_at > '2028-01-01'";
    wait_for(&mut connection, there, |count| count >= 2).await;
    clock.step(-TimeDelta::days(400));
    let newest = "select coalesce(max(ordinal), 0) from inboxd.runs";
    let last = wait_for(&mut connection, newest, |_| true).await;
    // More than the one that the service asks for when it notices.
    wait_for(&mut connection, newest, |ordinal| ordinal >= last + 4).await;
    let lines = service.log();
    let begun_anew = lines
        .iter()
        .filter(|line| line["fields"]["message"].to_string().contains("begins anew"));
    // Twice, unless its first look was after the leap.
    assert!((1..=2).contains(&begun_anew.count()), "{lines:#?}");
    assert_eq!(service.mishaps(), [""; 0]);
    service.must_end();
}

#[tokio::test]
async fn started_before_init_it_stays_up_says_so_and_is_ready_within_a_retry_of_it() {
    let database = server::database().await;
    let mut service = Service::start(&database.url, &[ONCE_A_YEAR]);
    let body = service.wait_until("/readyz", 503).await;
    assert_eq!(body["ready"], false);
    service.wait_for_log("the pass failed");
    let body = service.wait_until("/readyz", 503).await;
    assert!(
        body["reasons"][0].as_str().unwrap().contains("run `inboxd init`"),
        "{body}"
    );
    let status = service.get("/v1/status").await;
    assert_eq!(status.status(), 503);
    assert!(status.text().await.unwrap().contains("run `inboxd init`"));
    assert_eq!(service.get("/livez").await.status(), 200);

    ask(&database.url, &["init"]).must(0, &[]);
    service.wait_until_ready().await;
    assert_eq!(partitions(&mut database.connect().await).await.len(), 8);
    let triggers: Vec<String> = sqlx::query_scalar("select trigger from inboxd.runs")
        .fetch_all(&mut database.connect().await)
        .await
        .unwrap();
    assert_eq!(triggers, ["retry"]);
    service.must_end();
}

#[tokio::test]
async fn the_endpoints_answer_as_documented() {
    let database = initialized().await;
    let mut service = Service::start(&database.url, &[ONCE_A_YEAR]);
    service.wait_until_ready().await;

    let live = service.get("/livez").await;
    assert_eq!(
        (live.status().as_u16(), live.text().await.unwrap().as_str()),
        (200, "ok\n")
    );
    let ready: serde_json::Value = service.get("/readyz").await.json().await.unwrap();
    assert_eq!(ready, serde_json::json!({ "ready": true, "reasons": [] }));
    let status: serde_json::Value = service.get("/v1/status").await.json().await.unwrap();
    let by_command = ask(&database.url, &["status", "--json"]).must(0, &[]).json();
    assert_eq!(
        status.as_object().unwrap().keys().collect::<Vec<_>>(),
        by_command.as_object().unwrap().keys().collect::<Vec<_>>()
    );
    assert_eq!(
        status["databases"][0]["inboxes"][0]["partitions"]
            .as_array()
            .unwrap()
            .len(),
        8
    );
    assert_eq!(status["databases"][0]["last_run"]["trigger"], "start");

    service.must_end();
}

#[tokio::test]
async fn a_cut_database_is_503_with_retry_after_and_200_once_it_is_back() {
    let mut own = server::own(&[]).await;
    let database = own.database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut service = Service::start(&database.url, &[EVERY_SECOND]);
    service.wait_until_ready().await;
    service.wait_until("/v1/status", 200).await;

    process::kill(own.cluster.pid());
    service.wait_until("/v1/status", 503).await;
    let answer = service.get("/v1/status").await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["retry-after"], "5");
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    service.wait_until("/readyz", 503).await;
    assert_eq!(service.get("/livez").await.status(), 200);

    own.cluster.restart().await.unwrap();
    service.wait_until("/v1/status", 200).await;
    service.wait_until_ready().await;
    // And it can be ended while the database is away.
    process::kill(own.cluster.pid());
    service.wait_until("/readyz", 503).await;
    service.must_end();
}

#[tokio::test]
async fn it_ends_in_time_although_a_client_says_nothing_and_the_database_does_not_answer() {
    // The system takes connections for a listener that never does.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://u:p@{}/d", silent.local_addr().unwrap());
    let mut service = Service::start(&url, &[]);
    let address = service.url("").replace("http://", "");
    let _idle = TcpStream::connect(address).unwrap();
    let _asking = tokio::spawn(reqwest::get(service.url("/v1/status")));
    assert_eq!(service.get("/readyz").await.status(), 503);
    service.must_end();
}

#[tokio::test]
async fn it_ends_in_time_in_the_middle_of_a_statement_that_waits_for_long() {
    let database = initialized().await;
    let mut other = database.connect().await;
    sql(&mut other, "begin; lock table public.inbox in access exclusive mode").await;
    let environment = [
        ONCE_A_YEAR,
        ("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "1m"),
        ("INBOXD_MAINTENANCE__STATEMENT_TIMEOUT", "5m"),
    ];
    let mut service = Service::start(&database.url, &environment);
    wait_for_a_waiter(&mut database.connect().await).await;
    service.must_end();
    sql(&mut other, "rollback").await;
    let run: (Option<String>, bool) =
        sqlx::query_as("select outcome, finished_at is not null from inboxd.runs order by ordinal desc limit 1")
            .fetch_one(&mut other)
            .await
            .unwrap();
    assert_eq!(
        run,
        (Some("partial".to_owned()), true),
        "its statement was cancelled, and the rest left out"
    );
}

#[tokio::test]
async fn it_ends_in_time_in_the_middle_of_a_run_whose_server_falls_silent() {
    let database = initialized().await;
    let proxy = Proxy::in_front_of(&database).await;
    let mut other = database.connect().await;
    sql(&mut other, "begin; lock table public.inbox in access exclusive mode").await;
    let environment = [
        ONCE_A_YEAR,
        ("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "1m"),
        ("INBOXD_MAINTENANCE__STATEMENT_TIMEOUT", "5m"),
    ];
    let mut service = Service::start(&proxy.url(), &environment);
    wait_for_a_waiter(&mut database.connect().await).await;
    proxy.hold();
    service.terminate();
    let begin = std::time::Instant::now();
    while service.lives() {
        assert!(begin.elapsed() < Duration::from_secs(5), "{:#?}", service.log());
        // The proxy lives in this runtime.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(service.ended_within(A_WHILE).code(), Some(0));
}

#[tokio::test]
async fn a_run_whose_connection_falls_silent_while_the_server_answers_others_is_given_up_and_another_does_its_work() {
    let database = initialized().await;
    let proxy = Proxy::in_front_of(&database).await;
    proxy.cut("alter", Cut::Frozen);
    let environment = [ONCE_A_YEAR, ("INBOXD_MAINTENANCE__STATEMENT_TIMEOUT", "2s")];
    let mut service = Service::start(&proxy.url(), &environment);
    let mut connection = database.connect().await;
    // What the silent one has left, its lock too, is in nobody's way.
    let done = "select count(*) from inboxd.runs where outcome = 'done'";
    wait_for(&mut connection, done, |count| count > 0).await;
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(partitions(&mut connection).await.len(), 8);
    let failed = service.wait_for_log("the pass failed");
    assert!(failed["fields"]["error"].to_string().contains("given up"), "{failed}");
    service.must_end();
}

/// A database whose last day ahead is detached, with its schedule paused so that only a person attaches it again.
async fn with_a_detached_day() -> (TestDatabase, String) {
    let database = initialized().await;
    ask(&database.url, &["run"]).must(0, &[]);
    ask(&database.url, &["pause", "--reason", "a test"]).must(0, &[]);
    let mut connection = database.connect().await;
    let last = partitions(&mut connection).await.pop().unwrap();
    sql(
        &mut connection,
        format!("alter table public.inbox detach partition {last} concurrently"),
    )
    .await;
    let day = last.rsplitn(4, '_').collect::<Vec<_>>();
    (database, format!("{}-{}-{}", day[2], day[1], day[0]))
}

fn restore(url: String, day: &str) -> tokio::task::JoinHandle<reqwest::Response> {
    let body = serde_json::json!({ "inbox": "main.public.inbox", "day": day });
    tokio::spawn(async move { reqwest::Client::new().post(url).json(&body).send().await.unwrap() })
}

#[tokio::test]
async fn a_restore_whose_connection_falls_silent_is_given_up_and_keeps_no_run_away() {
    let (database, day) = with_a_detached_day().await;
    let proxy = Proxy::in_front_of(&database).await;
    let environment = [ONCE_A_YEAR, ("INBOXD_MAINTENANCE__STATEMENT_TIMEOUT", "2s")];
    let mut service = Service::start(&proxy.url(), &environment);
    let url = service.url("/v1/restore");
    proxy.cut("alter", Cut::Frozen);
    let _asking = restore(url, &day);
    let mut connection = database.connect().await;
    eventually("the restore has met silence", async || proxy.cuts() == 1).await;
    let acting =
        "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'inboxd act'";
    wait_for(&mut connection, acting, |count| count == 0).await;
    service.wait_for_log("the restore was given up, and it is not known whether it was done");
    ask(&database.url, &["run"]).must(0, &[]);
    service.must_end();
}

#[tokio::test]
async fn it_ends_in_time_in_the_middle_of_a_restore() {
    let (database, day) = with_a_detached_day().await;
    let mut other = database.connect().await;
    sql(
        &mut other,
        "begin; lock table public.inbox in share update exclusive mode",
    )
    .await;
    let environment = [
        ONCE_A_YEAR,
        ("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "1m"),
        ("INBOXD_MAINTENANCE__STATEMENT_TIMEOUT", "5m"),
    ];
    let mut service = Service::start(&database.url, &environment);
    let _asking = restore(service.url("/v1/restore"), &day);
    let waiters = "select count(*) from pg_stat_activity
        where datname = current_database() and application_name = 'inboxd act' and wait_event_type = 'Lock'";
    wait_for(&mut database.connect().await, waiters, |count| count > 0).await;
    service.must_end();
    let held: i64 = sqlx::query_scalar("select count(*) from inboxd.holds")
        .fetch_one(&mut other)
        .await
        .unwrap();
    assert_eq!(held, 0, "nothing half done remains");
}

#[tokio::test]
async fn a_statement_that_outlives_a_server_clock_that_stepped_back_is_cancelled_and_the_run_goes_on() {
    let clock = ClockServer::start(&[]).await;
    let database = clock.database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut other = database.connect().await;
    sql(&mut other, "begin; lock table public.inbox in access exclusive mode").await;
    let environment = [
        ONCE_A_YEAR,
        ("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "1s"),
        ("INBOXD_MAINTENANCE__STATEMENT_TIMEOUT", "1s"),
        ("INBOXD_MAINTENANCE__ATTEMPTS", "1"),
    ];
    let mut service = Service::start(&database.url, &environment);
    wait_for_a_waiter(&mut database.connect().await).await;
    clock.step(TimeDelta::hours(-1));
    let line = service.wait_for_log("outlived its limit");
    assert_eq!(line["level"], "ERROR", "{line}");
    let partial = "select count(*) from inboxd.runs where outcome = 'partial'";
    wait_for(&mut database.connect().await, partial, |count| count > 0).await;
    sql(&mut other, "rollback").await;
    service.must_end();
}

#[tokio::test]
async fn a_pass_that_waits_for_a_lock_finishes_its_step_and_leaves_the_others_out() {
    let database = initialized().await;
    let mut other = database.connect().await;
    sql(&mut other, "begin; lock table public.inbox in access exclusive mode").await;
    let environment = [
        ONCE_A_YEAR,
        ("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "500ms"),
        ("INBOXD_MAINTENANCE__ATTEMPTS", "1"),
    ];
    let mut service = Service::start(&database.url, &environment);
    wait_for_a_waiter(&mut database.connect().await).await;
    service.must_end();
    sql(&mut other, "rollback").await;
    let outcomes: Vec<String> = sqlx::query_scalar("select outcome from inboxd.steps order by ordinal")
        .fetch_all(&mut other)
        .await
        .unwrap();
    // More than one has failed where the machine was slow to tell of the first that waits.
    let failed = outcomes.iter().take_while(|outcome| *outcome == "failed").count();
    assert!((1..8).contains(&failed), "{outcomes:?}");
    assert_eq!(outcomes[failed..], vec!["skipped"; 8 - failed]);
    let run: (Option<String>, bool, Option<String>) =
        sqlx::query_as("select outcome, finished_at is not null, error from inboxd.runs")
            .fetch_one(&mut other)
            .await
            .unwrap();
    assert_eq!(run, (Some("partial".to_owned()), true, None));
}

#[tokio::test]
async fn a_partial_pass_is_retried_long_before_the_next_tick() {
    let database = initialized().await;
    let mut other = database.connect().await;
    sql(&mut other, "begin; lock table public.inbox in access exclusive mode").await;
    let environment = [
        ONCE_A_YEAR,
        ("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "50ms"),
        ("INBOXD_MAINTENANCE__ATTEMPTS", "1"),
    ];
    let mut service = Service::start(&database.url, &environment);
    service.wait_for_log("the run has ended");
    let body = service.wait_until("/readyz", 503).await;
    assert!(body.to_string().contains("days have no partition yet"), "{body}");
    sql(&mut other, "rollback").await;
    service.wait_until_ready().await;
    let runs: Vec<(String, Option<String>)> =
        sqlx::query_as("select trigger, outcome from inboxd.runs order by ordinal")
            .fetch_all(&mut other)
            .await
            .unwrap();
    let (first, last) = (runs.first().unwrap(), runs.last().unwrap());
    assert_eq!((first.0.as_str(), first.1.as_deref()), ("start", Some("partial")));
    assert_eq!((last.0.as_str(), last.1.as_deref()), ("retry", Some("done")));
    service.must_end();
}

#[tokio::test]
async fn s8_eight_instances_started_at_once_make_every_day_and_log_no_error() {
    let database = initialized().await;
    let mut services: Vec<_> = (0..8).map(|_| Service::start(&database.url, &[ONCE_A_YEAR])).collect();
    for service in &mut services {
        service.wait_until_ready().await;
    }
    let mut connection = database.connect().await;
    assert_eq!(partitions(&mut connection).await.len(), 8);
    for service in &mut services {
        service.must_end();
        assert_eq!(service.mishaps(), [""; 0]);
    }
    let failed: i64 = sqlx::query_scalar("select count(*) from inboxd.steps where outcome <> 'done'")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(failed, 0);
}

#[tokio::test]
async fn the_schedule_fires_again_and_again_one_pass_at_a_time() {
    let database = initialized().await;
    let mut service = Service::start(&database.url, &[EVERY_SECOND]);
    let mut connection = database.connect().await;
    service.wait_until_ready().await;
    let scheduled = "select count(*) from inboxd.runs where trigger = 'schedule' and outcome = 'done'";
    wait_for(&mut connection, scheduled, |count| count >= 2).await;

    // A pass that lasts longer than the pause between ticks.
    let mut other = database.connect().await;
    let last = partitions(&mut connection).await.pop().unwrap();
    sql(
        &mut connection,
        format!("alter table public.inbox detach partition {last}"),
    )
    .await;
    sql(&mut connection, format!("drop table {last}")).await;
    sql(&mut other, "begin; lock table public.inbox in access exclusive mode").await;
    wait_for_a_waiter(&mut connection).await;
    let ticks = "select (extract(epoch from clock_timestamp() - max(started_at)))::bigint from inboxd.runs";
    wait_for(&mut connection, ticks, |seconds| seconds >= 2).await;
    sql(&mut other, "rollback").await;
    wait_for(
        &mut connection,
        "select count(*) from pg_inherits where inhparent = 'public.inbox'::regclass",
        |count| count == 8,
    )
    .await;
    let before = wait_for(&mut connection, scheduled, |_| true).await;
    wait_for(&mut connection, scheduled, |count| count > before).await;
    let overlaps: i64 = sqlx::query_scalar(
        "select count(*) from (
           select started_at < lag(finished_at) over (order by ordinal) as is_early from inboxd.runs
         ) as run where is_early",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(overlaps, 0);
    service.must_end();
}

#[tokio::test]
async fn a_panic_in_a_pass_is_told_and_the_next_tick_goes_on() {
    let database = initialized().await;
    let environment = [
        ("DATABASE_URL", database.url.as_str()),
        ("INBOXD_HTTP__LISTEN", "127.0.0.1:0"),
        ("INBOXD_SCHEDULE__CRON", "* * * * * *"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = Config::load(None, environment.into()).unwrap();
    // The host's clock is the one thing that a pass is handed from outside. The schedule asks it once when it begins, then the first pass.
    let asked = Arc::new(AtomicU32::new(0));
    let system = Clock::system();
    let clock = Clock::from_fn({
        let asked = asked.clone();
        move || {
            assert!(
                asked.fetch_add(1, Ordering::SeqCst) != 1,
                "this clock breaks the first pass"
            );
            system.now()
        }
    });
    let shutdown = CancellationToken::new();
    let serving = service::serve(config, clock, shutdown.clone()).await.unwrap();
    let mut connection = database.connect().await;
    wait_for(
        &mut connection,
        "select count(*) from inboxd.runs where outcome = 'done'",
        |count| count >= 2,
    )
    .await;
    assert!(asked.load(Ordering::SeqCst) > 2);
    let unfinished: i64 = sqlx::query_scalar("select count(*) from inboxd.runs where outcome is null")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(unfinished, 1, "the run that panicked stays on record as unfinished");
    assert_eq!(partitions(&mut connection).await.len(), 8);
    shutdown.cancel();
    serving.ended().await;
}

#[test]
fn an_address_that_is_taken_is_told_with_the_key_to_change() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = inboxd(&["serve"]);
    command
        .env("DATABASE_URL", "postgres://127.0.0.1:1/d")
        .env("INBOXD_LOG__FILTER", "error")
        .env("INBOXD_HTTP__LISTEN", &address);
    let answer = Answer::of(&mut command).must_fail(&["cannot listen on", &address, "http.listen"]);
    assert_eq!(answer.err.matches("in use").count(), 1, "{answer:?}");
}
