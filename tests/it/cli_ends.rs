//! The command line comes to its end: at once where a person insists, and in time where the server says nothing any more.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::support::claims::wait_until_any_blocked;
use crate::support::inbox::sql;
use crate::support::process::poll;
use crate::support::program::{A_WHILE, Answer, ask, inboxd};
use crate::support::proxy::Proxy;
use crate::support::server;

/// What a run says on standard error as it comes, until it has said this.
fn wait_until_said(lines: &mut impl Iterator<Item = std::io::Result<String>>, word: &str) {
    let said = lines.map(Result::unwrap).find(|line| line.contains(word));
    assert!(said.is_some(), "it ended without {word:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_asked_to_end_twice_ends_at_once_and_says_so() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut other = database.connect().await;
    // The step in hand waits for as long as its lock may take.
    sql(
        &mut other,
        "begin; lock table public.inbox in share update exclusive mode",
    )
    .await;
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut command = inboxd(&["run"]);
        command
            .env("DATABASE_URL", &database.url)
            .env("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "1m")
            .env("INBOXD_MAINTENANCE__STATEMENT_TIMEOUT", "5m")
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        let pid = Pid::from_raw(running.id().try_into().unwrap());
        wait_until_any_blocked(&database).await;
        let mut said = BufReader::new(running.stderr.take().unwrap()).lines();
        signal::kill(pid, Signal::SIGINT).unwrap();
        wait_until_said(&mut said, "ending after the step in hand");
        assert!(running.try_wait().unwrap().is_none(), "the step in hand goes on");
        signal::kill(pid, signal).unwrap();
        wait_until_said(&mut said, "in the middle of a step");
        let status = poll(A_WHILE, || running.try_wait().unwrap()).expect("it does not end");
        assert_eq!(status.code(), Some(code));
        sql(
            &mut other,
            "select pg_catalog.pg_terminate_backend(pid) from pg_catalog.pg_stat_activity
             where datname = current_database() and wait_event_type = 'Lock'",
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_connection_falls_silent_is_given_up() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut other = database.connect().await;
    sql(
        &mut other,
        "begin; lock table public.inbox in share update exclusive mode",
    )
    .await;
    let proxy = Proxy::in_front_of(&database).await;
    let url = proxy.url();
    let running = tokio::task::spawn_blocking(move || {
        let mut command = inboxd(&["run"]);
        command
            .env("DATABASE_URL", url)
            .env("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "3s")
            .env("INBOXD_MAINTENANCE__STATEMENT_TIMEOUT", "3s");
        Answer::of(&mut command)
    });
    wait_until_any_blocked(&database).await;
    proxy.hold();
    let answer = tokio::time::timeout(A_WHILE, running).await.expect("it hangs").unwrap();
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.err.contains("it is given up"), "{answer:?}");
}
