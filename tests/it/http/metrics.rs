//! `/metrics`, judged by Prometheus' own linter.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use super::*;
use crate::support::{inbox::sql, proxy::Proxy};

fn promtool(text: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is needed: apt-get install prometheus");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success() && said.is_empty(), "promtool: {said}\n{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn promtool_is_silent_before_and_after_a_run_and_while_the_database_is_away() {
    let database = initialized().await;
    let mut proxy = Proxy::in_front_of(&database).await;
    let api = Api::on(&proxy.url(), "", &[]).await;
    let text = api.get("/metrics").await.text().await.unwrap();
    promtool(&text);
    let has = |text: &str, line: &str| text.lines().any(|found| found == line);
    for line in [
        "inboxd_health 0",
        "inboxd_database_up{database=\"main\"} 1",
        "inboxd_partitions{database=\"main\",inbox=\"main.public.inbox\",state=\"ahead\"} 7",
        "inboxd_run_duration_seconds_count{database=\"main\",outcome=\"done\"} 1",
    ] {
        assert!(has(&text, line), "{line} is missing in\n{text}");
    }
    let version = format!("inboxd_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    assert!(has(&text, &version), "{text}");

    assert_eq!(api.post_run(&json!({})).await.status(), 200);
    let after = api.get("/metrics").await.text().await.unwrap();
    promtool(&after);
    assert!(
        has(
            &after,
            "inboxd_run_duration_seconds_count{database=\"main\",outcome=\"done\"} 2"
        ),
        "{after}"
    );

    proxy.refuse().await;
    proxy.cut_all();
    let begin = std::time::Instant::now();
    let away = loop {
        let text = api.get("/metrics").await.text().await.unwrap();
        if has(&text, "inboxd_database_up{database=\"main\"} 0") {
            break text;
        }
        assert!(begin.elapsed() < A_WHILE, "{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    promtool(&away);
    // What is not known is not there, rather than old.
    assert!(!away.contains("inboxd_runway_seconds{"), "{away}");
}

#[test]
fn promtool_finds_what_is_wrong() {
    let complained = std::panic::catch_unwind(|| promtool("# TYPE a_total gauge\na_total 1\n"));
    assert!(complained.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_a_step_waited_for_in_vain_is_counted_as_what_it_was() {
    let database = initialized().await;
    let impatient = "[maintenance]\nlock_timeout = '100ms'\nattempts = 2\n";
    let api = Api::on(&database.url, impatient, &[]).await;
    let partitions = api.get_json("/v1/inboxes/main.public.inbox/partitions").await;
    let last = partitions["partitions"].as_array().unwrap().last().unwrap()["relation"].clone();
    let mut other = database.connect().await;
    sql(&mut other, format!("drop table public.{}", last.as_str().unwrap())).await;
    sql(
        &mut other,
        "begin; lock table public.inbox in share update exclusive mode",
    )
    .await;
    let run: serde_json::Value = api.post_run(&json!({})).await.json().await.unwrap();
    assert_eq!(run["databases"][0]["outcome"], "partial", "{run}");
    let text = api.get("/metrics").await.text().await.unwrap();
    for line in [
        "inboxd_step_retries_total{database=\"main\",kind=\"lock_timeout\"} 1",
        "inboxd_step_failures_total{database=\"main\",kind=\"lock_timeout\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}
