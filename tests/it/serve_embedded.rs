//! `inboxd serve --embedded`: a first claim as a newcomer makes it, and what the private PostgreSQL survives.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::folder::Folder;
use crate::support::process;
use crate::support::program::{A_WHILE, Answer, Service, inboxd};

/// The service with a private PostgreSQL in a folder whose watchdog ends that server in any case.
fn start(folder: &Folder, arguments: &[&str]) -> Service {
    let mut command = inboxd(&["serve", "--embedded", "--json", "--state-dir"]);
    command.arg(folder.path()).args(arguments);
    Service::spawn(command)
}

/// What it tells a newcomer, once it does.
fn greeting(service: &Service) -> Value {
    process::poll(A_WHILE, || serde_json::from_str(&service.out()).ok())
        .unwrap_or_else(|| panic!("no greeting: {:#?}", service.log()))
}

/// Runs a printed line as it stands; what it answers, or nothing when it fails.
fn shell(line: &str) -> Option<String> {
    let output = Command::new("sh").args(["-c", line]).current_dir("/").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    output.status.success().then(|| text.trim().to_owned())
}

/// The printed first claim, answered by the one value alone.
fn first_claim(greeting: &Value) -> Option<String> {
    let line = greeting["first_claim"].as_str().unwrap();
    let (psql, rest) = line.split_once(" -h ").unwrap();
    shell(&format!("{psql} -X -A -t -h {rest}"))
}

fn server_pid(folder: &Path) -> u32 {
    let text = std::fs::read_to_string(folder.join("postgres/postmaster.pid")).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_printed_claim_is_fresh_once_whatever_is_killed() {
    let folder = Folder::new();
    let mut service = start(&folder, &[]);
    let told = greeting(&service);
    service.wait_until_ready().await;
    assert_eq!(first_claim(&told).as_deref(), Some("t"));
    assert_eq!(first_claim(&told).as_deref(), Some("f"));

    // Over the socket only, whose folder strangers cannot enter.
    let psql = told["psql"].as_str().unwrap();
    assert_eq!(
        shell(&format!("{psql} -X -A -t -c 'show listen_addresses'")).as_deref(),
        Some("")
    );
    let status = service.get("/v1/status").await;
    assert_eq!(status.status(), 200);
    assert_eq!(told["status"], service.url("/v1/status"));

    // The server dies: it is started again, and has forgotten nothing.
    let first = server_pid(folder.path());
    process::kill(first);
    service.wait_for_log("the private PostgreSQL runs again");
    let second = server_pid(folder.path());
    assert_ne!(first, second);
    assert_eq!(first_claim(&told).as_deref(), Some("f"));
    service.wait_until_ready().await;

    // The program dies: the server goes on, and the next start takes it over.
    service.kill();
    assert!(process::lives(second));
    assert_eq!(first_claim(&told).as_deref(), Some("f"));
    let mut service = start(&folder, &[]);
    assert_eq!(greeting(&service)["psql"], told["psql"]);
    assert_eq!(server_pid(folder.path()), second);
    service.wait_until_ready().await;
    assert_eq!(first_claim(&told).as_deref(), Some("f"));

    // Another program on the same folder is refused and changes nothing.
    let mut twin = inboxd(&["serve", "--embedded", "--state-dir"]);
    twin.arg(folder.path())
        .env("INBOXD_HTTP__LISTEN", "127.0.0.1:0")
        .env("INBOXD_LOG__FILTER", "error");
    Answer::of(&mut twin).must_fail(&[&format!("pid {}", service.pid())]);

    // An end in order ends both, and the data stays.
    service.must_end();
    assert!(!process::lives(second));
    let mut service = start(&folder, &[]);
    let told = greeting(&service);
    assert_eq!(first_claim(&told).as_deref(), Some("f"));
    service.must_end();
}

#[tokio::test]
async fn a_person_is_told_the_claim_and_where_the_data_is() {
    let folder = Folder::new();
    let mut command = inboxd(&["serve", "--embedded"]);
    command.env("INBOXD_STATE_DIR", folder.path());
    let mut service = Service::spawn(command);
    let told = process::poll(A_WHILE, || {
        let out = service.out();
        out.contains("Ctrl-C").then_some(out)
    })
    .unwrap_or_else(|| panic!("no greeting: {:#?}", service.log()));
    let line = told.lines().find(|line| line.contains("inbox_claim")).unwrap();
    assert!(shell(line).unwrap().contains(" t\n"), "{line}");
    assert!(shell(line).unwrap().contains(" f\n"), "{line}");
    assert!(
        told.contains(folder.path().join("postgres").to_str().unwrap()),
        "{told}"
    );
    // The URL for other commands works as it is printed.
    let status = told.lines().find(|line| line.contains("inboxd status")).unwrap();
    let (_, url) = status.split_once("DATABASE_URL='").unwrap();
    let (url, _) = url.split_once('\'').unwrap();
    Answer::of(inboxd(&["check"]).env("DATABASE_URL", url)).must(0, &["all is well"]);
    service.must_end();
}

#[tokio::test]
async fn a_port_is_listened_on_when_it_is_asked_for() {
    let folder = Folder::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut service = start(&folder, &["--postgres-port", &port.to_string()]);
    greeting(&service);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    service.wait_until_ready().await;
    Answer::of(inboxd(&["check"]).env("DATABASE_URL", url)).must(0, &["all is well"]);
    service.must_end();
}

#[test]
fn a_private_server_is_never_started_unasked() {
    let folder = Folder::new();
    let state = folder.path().join("state");
    let mut command = inboxd(&["serve"]);
    command
        .env("INBOXD_STATE_DIR", &state)
        .env("XDG_STATE_HOME", folder.path().join("xdg"));
    Answer::of(&mut command).must_fail(&["no database is configured"]);
    let made: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(made.is_empty(), "{made:?}");
}
