//! A detached day is restored over HTTP, and nothing cuts that.

use serde_json::json;

use super::sample::{INBOX, days, detach};
use super::*;
use crate::support::inbox::sql;
use crate::support::process;
use crate::support::proxy::Proxy;

/// A restore waits this long for its lock, which is longer than any client waits.
const PATIENT: (&str, &str) = ("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "30s");

/// Today is detached, and somebody keeps it from being attached again.
async fn in_the_way(database: &TestDatabase, today: &str) -> sqlx::PgConnection {
    detach(database, today).await;
    let mut other = database.connect().await;
    sql(&mut other, "begin; lock table public.inbox in access exclusive mode").await;
    other
}

/// Waits until a restore waits for its lock.
async fn waits_for_its_lock(database: &TestDatabase) {
    // Within a transaction it would be told the same again and again.
    let mut onlooker = database.connect().await;
    let begin = std::time::Instant::now();
    loop {
        let waiting: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where datname = current_database()
               and application_name = 'inboxd act' and wait_event_type = 'Lock'",
        )
        .fetch_one(&mut onlooker)
        .await
        .unwrap();
        if waiting > 0 {
            return;
        }
        assert!(begin.elapsed() < A_WHILE, "no restore waits for a lock");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn wanted(day: &str) -> Value {
    json!({"inbox": INBOX, "day": day, "reason": "a slip"})
}

/// Asks for a restore, and hangs up.
async fn hang_up(api: &Api, day: &str) {
    let impatient = Client::builder().timeout(Duration::from_secs(1)).build().unwrap();
    let request = impatient.post(format!("{}/v1/restore", api.base)).json(&wanted(day));
    assert!(request.send().await.unwrap_err().is_timeout());
}

#[tokio::test]
async fn a_detached_day_is_attached_again_and_held() {
    let (api, database) = Api::ready(&[]).await;
    let today = days(&database).await.remove(0);
    detach(&database, &today).await;
    let restored = api.post_json("/v1/restore", &wanted(&today), 200).await;
    for (key, value) in [
        ("day", json!(today)),
        ("partition", json!(format!("inbox_{}", today.replace('-', "_")))),
        ("catches_duplicates", json!(true)),
    ] {
        assert_eq!(restored[key], value, "{restored}");
    }
    assert_eq!(restored["hold"]["reason"], "restored: a slip");
    let partitions = api.get_json(&format!("/v1/inboxes/{INBOX}/partitions")).await;
    assert_eq!(
        partitions["partitions"][0]["state"], "today",
        "seen at once: {partitions}"
    );
    let parts = taken_apart(api.post("/v1/restore", &wanted(&today)).await).await;
    must_be_problem("again", &parts, "not-detached");
}

#[tokio::test]
async fn a_restore_goes_on_when_its_client_hangs_up_and_beside_it_is_409_with_who_is_in_the_way() {
    let (api, database) = Api::ready(&[PATIENT]).await;
    let today = days(&database).await.remove(0);
    let mut other = in_the_way(&database, &today).await;
    hang_up(&api, &today).await;
    waits_for_its_lock(&database).await;
    let parts = taken_apart(api.post("/v1/restore", &wanted(&today)).await).await;
    must_be_problem("the second", &parts, "run-going");
    let going = &parts.2["going"][0];
    assert_eq!((parts.0, &going["database"]), (409, &json!("main")), "{}", parts.2);
    assert_eq!(going["holder"]["application_name"], "inboxd act", "{}", parts.2);
    sql(&mut other, "rollback").await;
    let audit = api.wait_for("/v1/audit", |audit| audit["decisions"] != json!([])).await;
    let line = &audit["decisions"][0];
    assert_eq!(
        (&line["action"], &line["detail"]["day"]),
        (&json!("restore"), &json!(today))
    );
    assert_eq!(days(&database).await[0], today);
}

#[tokio::test]
async fn a_restore_that_takes_long_is_202_with_the_place_to_look() {
    let (api, database) = Api::ready(&[PATIENT]).await;
    let today = days(&database).await.remove(0);
    let mut other = in_the_way(&database, &today).await;
    let answer = api.post("/v1/restore", &wanted(&today)).await;
    assert_eq!(answer.status(), 202);
    let place = answer.headers()["location"].to_str().unwrap().to_owned();
    assert_eq!(
        answer.json::<Value>().await.unwrap(),
        json!({"inbox": INBOX, "day": today})
    );
    sql(&mut other, "rollback").await;
    api.wait_for(&place, |partitions| {
        partitions["partitions"][0]["day"] == json!(today) && partitions["partitions"][0]["state"] == "today"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_service_waits_for_a_restore_that_is_going() {
    let (mut api, database) = Api::ready(&[PATIENT]).await;
    let today = days(&database).await.remove(0);
    let mut other = in_the_way(&database, &today).await;
    hang_up(&api, &today).await;
    waits_for_its_lock(&database).await;
    api.service.terminate();
    // HTTP is gone, and the restore is not.
    let gone = process::poll(A_WHILE, || {
        std::net::TcpStream::connect(api.base.trim_start_matches("http://")).err()
    });
    assert!(gone.is_some());
    waits_for_its_lock(&database).await;
    sql(&mut other, "rollback").await;
    let status = api.service.ended_within(A_WHILE);
    assert_eq!(status.code(), Some(0), "{:#?}", api.service.log());
    assert_eq!(days(&database).await[0], today);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_whose_server_falls_silent_is_given_up_and_told_as_not_known() {
    let database = initialized().await;
    let proxy = Proxy::in_front_of(&database).await;
    let limits = [
        ("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "3s"),
        ("INBOXD_MAINTENANCE__STATEMENT_TIMEOUT", "3s"),
        ("INBOXD_MAINTENANCE__ATTEMPTS", "1"),
    ];
    let api = Api::on(&proxy.url(), "", &limits).await;
    let today = days(&database).await.remove(0);
    let mut other = in_the_way(&database, &today).await;
    hang_up(&api, &today).await;
    waits_for_its_lock(&database).await;
    proxy.hold();
    let begin = std::time::Instant::now();
    // The proxy lives in this runtime.
    while !api
        .service
        .logged_at("WARN")
        .iter()
        .any(|line| line.contains("the restore was given up"))
    {
        assert!(begin.elapsed() < A_WHILE, "{:#?}", api.service.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    proxy.cut_all();
    proxy.release();
    sql(&mut other, "rollback").await;
    // Nothing of it is left in the way.
    let begin = std::time::Instant::now();
    loop {
        let answer = api.post("/v1/restore", &wanted(&today)).await;
        if answer.status() == 200 {
            break;
        }
        let said = answer.text().await.unwrap();
        assert!(begin.elapsed() < A_WHILE, "{said}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(days(&database).await[0], today);
}

/// The service ends within five seconds of now.
async fn must_end_in_time(api: &mut Api) {
    api.service.terminate();
    let begin = std::time::Instant::now();
    while api.service.lives() {
        assert!(begin.elapsed() < Duration::from_secs(5), "{:#?}", api.service.log());
        // A proxy may live in this runtime.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let status = api.service.ended_within(A_WHILE);
    assert_eq!(status.code(), Some(0), "{:#?}", api.service.log());
}

/// A restore that waits for its lock for as long as the test may last.
const FOR_LONG: [(&str, &str); 2] = [
    ("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "1m"),
    ("INBOXD_MAINTENANCE__STATEMENT_TIMEOUT", "5m"),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_service_ends_in_time_although_a_restore_waits_and_its_server_is_silent() {
    let database = initialized().await;
    let proxy = Proxy::in_front_of(&database).await;
    let mut api = Api::on(&proxy.url(), "", &FOR_LONG).await;
    let today = days(&database).await.remove(0);
    let _other = in_the_way(&database, &today).await;
    hang_up(&api, &today).await;
    waits_for_its_lock(&database).await;
    proxy.hold();
    must_end_in_time(&mut api).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_outlasts_the_service_is_cancelled_and_leaves_nothing() {
    let (mut api, database) = Api::ready(&FOR_LONG).await;
    let today = days(&database).await.remove(0);
    let mut other = in_the_way(&database, &today).await;
    hang_up(&api, &today).await;
    waits_for_its_lock(&database).await;
    must_end_in_time(&mut api).await;
    let acting: i64 = sqlx::query_scalar(
        "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'inboxd act'
           and wait_event_type = 'Lock'",
    )
    .fetch_one(&mut database.connect().await)
    .await
    .unwrap();
    assert_eq!(acting, 0, "its statement still waits");
    sql(&mut other, "rollback").await;
    assert_ne!(days(&database).await[0], today);
    let audited: i64 = sqlx::query_scalar("select count(*) from inboxd.audit")
        .fetch_one(&mut other)
        .await
        .unwrap();
    assert_eq!(audited, 0);
}
