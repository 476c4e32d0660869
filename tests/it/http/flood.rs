//! However many ask, the database is asked a constant number of times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::*;
use crate::support::proxy::Proxy;

const LOOKS: [&str; 6] = [
    "/v1/status",
    "/v1/health",
    "/metrics",
    "/v1/inboxes",
    "/",
    "/inboxes/main.public.inbox",
];
const ASKERS: usize = 48;
const FLOOD: Duration = Duration::from_secs(6);
/// A reading, and a pause of one and a half seconds after it.
const READINGS: u32 = 1 + 6 * 2 / 3;

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Everybody asks at once, one request after the other; how many were answered.
async fn flood(api: &Api, length: Duration) -> u64 {
    let answered = Arc::new(AtomicU64::new(0));
    let begin = Instant::now();
    let askers: Vec<_> = (0..ASKERS)
        .map(|number| {
            let (client, url) = (
                api.client.clone(),
                format!("{}{}", api.base, LOOKS[number % LOOKS.len()]),
            );
            let answered = Arc::clone(&answered);
            tokio::spawn(async move {
                while begin.elapsed() < length {
                    let answer = client.get(&url).send().await.unwrap();
                    assert_eq!(answer.status(), 200, "{url}");
                    answer.bytes().await.unwrap();
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for asker in askers {
        asker.await.unwrap();
    }
    answered.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_looks_asks_the_database_as_seldom_as_one_that_looks_again_and_again() {
    let database = initialized().await;
    let proxy = Proxy::in_front_of(&database).await;
    let api = Api::on(&proxy.url(), "", &[]).await;
    // The page reads the history of runs once, and again when there is news.
    api.get("/").await;
    // One reading, alone: what was read before is old by then. The largest of three, for the watch over health may have
    // begun one before the others were forgotten.
    let mut one = 0;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(1700)).await;
        proxy.forget();
        api.get_json("/v1/status").await;
        one = one.max(proxy.round_trips());
    }
    assert!(one > 0, "it was not read anew");

    flood(&api, Duration::from_secs(1)).await;
    let before = resident_kib(api.service.pid());
    proxy.forget();
    let begin = Instant::now();
    let answered = flood(&api, FLOOD).await;
    let (asked, after) = (proxy.round_trips(), resident_kib(api.service.pid()));
    println!(
        "{answered} answers in {:?}, {asked} round trips, {one} a reading, {before} and {after} KiB resident",
        begin.elapsed()
    );
    assert!(answered > 100, "that was no flood: {answered}");
    // A slow machine may let the flood last longer than it should.
    let readings = READINGS.max(1 + begin.elapsed().as_secs() as u32 * 2 / 3) as usize;
    assert!(
        asked <= one * readings,
        "{asked} round trips for {answered} answers, {one} a reading"
    );
    assert!(asked >= one, "nothing was read in all that time");
    assert!(after < before + 16 * 1024, "{before} KiB have become {after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_can_wait_are_told_to_come_again_and_it_is_alive_all_the_same() {
    let database = initialized().await;
    let proxy = Proxy::in_front_of(&database).await;
    let api = Api::on(&proxy.url(), "", &[]).await;
    tokio::time::sleep(Duration::from_millis(1700)).await;
    proxy.hold();
    let waiting: Vec<_> = (0..200)
        .map(|_| {
            let (client, base) = (api.client.clone(), api.base.clone());
            tokio::spawn(async move {
                let parts = taken_apart(client.get(format!("{base}/v1/status")).send().await.unwrap()).await;
                let is_overloaded = parts.2["type"] == "urn:inboxd:problem:overloaded";
                if is_overloaded {
                    must_be_problem("overload", &parts, "overloaded");
                    assert_eq!((parts.0, parts.1["retry-after"].to_str().unwrap()), (503, "1"));
                    // The others are waiting still.
                    let live = client.get(format!("{base}/livez")).send().await.unwrap();
                    assert_eq!(live.status(), 200);
                }
                usize::from(is_overloaded)
            })
        })
        .collect();
    let mut overloaded = 0;
    for task in waiting {
        overloaded += task.await.unwrap();
    }
    assert_eq!(overloaded, 200 - 128);
    proxy.release();
    api.wait_for("/v1/status", |status| status["databases"].is_array())
        .await;
}
