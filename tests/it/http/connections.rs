//! Connections that take room and say nothing.

use std::process::Command;
use std::time::Instant;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::*;

/// The service where a process may have so many files open, with a run each second.
fn with_few_files(most: u32, url: &str) -> Service {
    let program = inboxd(&["serve"]);
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -n {most} && exec \"$0\" \"$@\"")])
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir("/");
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .env("DATABASE_URL", url)
        .env("INBOXD_SCHEDULE__CRON", "* * * * * *");
    Service::spawn(command)
}

async fn runs(database: &TestDatabase) -> i64 {
    sqlx::query_scalar("select coalesce(max(ordinal), 0) from inboxd.runs where outcome is not null")
        .fetch_one(&mut database.connect().await)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn more_clients_than_files_that_never_finish_their_request_stop_no_run_and_keep_nobody_out_for_long() {
    let database = initialized().await;
    let mut service = with_few_files(256, &database.url);
    service.wait_until_ready().await;
    let address = service.url("").replace("http://", "");
    let mut slow = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: loc").await.unwrap();
        slow.push(stream);
    }
    let (before, begin) = (runs(&database).await, Instant::now());
    while runs(&database).await < before + 3 {
        assert!(begin.elapsed() < A_WHILE, "no runs any more: {:#?}", service.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let client = Client::builder().timeout(A_WHILE).build().unwrap();
    let live = client.get(service.url("/livez")).send().await.unwrap();
    assert_eq!(live.status(), 200);
    assert_eq!(service.mishaps(), [""; 0]);
    drop(slow);
    service.must_end();
}

/// How many files the service may open from now on.
fn set_files(service: &Service, most: u32) {
    let status = Command::new("prlimit")
        .args(["--pid", &service.pid().to_string(), &format!("--nofile={most}:")])
        .status()
        .unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn a_service_without_a_file_to_spare_says_so_once_and_answers_when_it_has_one() {
    let (api, _database) = Api::ready(&[]).await;
    set_files(&api.service, 3);
    let asking = tokio::spawn({
        let (client, url) = (api.client.clone(), format!("{}/livez", api.base));
        // A connection of its own.
        async move { client.get(url).header("connection", "close").send().await.unwrap() }
    });
    let (waiting, begin) = (
        TcpStream::connect(api.base.replace("http://", "")).await.unwrap(),
        Instant::now(),
    );
    let told = || {
        let lines = api.service.logged_at("WARN");
        lines
            .iter()
            .filter(|line| line.contains("no HTTP connection can be accepted"))
            .count()
    };
    while told() == 0 {
        assert!(begin.elapsed() < A_WHILE, "{:#?}", api.service.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Time for more tries, none of which is told.
    tokio::time::sleep(Duration::from_secs(2)).await;
    set_files(&api.service, 1024);
    let live = Client::new().get(format!("{}/livez", api.base)).send().await.unwrap();
    assert_eq!(live.status(), 200);
    assert_eq!(asking.await.unwrap().status(), 200);
    assert_eq!(told(), 1, "{:#?}", api.service.log());
    api.service.wait_for_log("HTTP connections are accepted again");
    drop(waiting);
}
