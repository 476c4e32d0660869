//! `/metrics`, judged by Prometheus' own linter.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use super::*;
use crate::support::proxy::Proxy;

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
