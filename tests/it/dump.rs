//! A managed database comes back out of a dump, on another server, and goes on.

use std::path::PathBuf;
use std::process::{Command, Output};

use chrono::TimeDelta;

use crate::support::{
    clock::ClockServer,
    folder::Folder,
    inbox::{Deployment, claim, random_id, spec, try_claim, v7_at, v7_spec},
    program::{Answer, Service, config_file, inboxd},
    server,
};

const CONFIG: &str = "deployment = 'test'\n[[inbox]]\ntable = 'public.inbox'\n\
                      [[inbox]]\ntable = 'public.by_id'\nrouting = 'message_id'\n";

/// A client program of PostgreSQL's. It stands beside the server's, or in the system's place where those come without.
fn client(name: &str) -> PathBuf {
    let beside = std::env::var_os("INBOXD_TEST_PG_BINDIR").map(PathBuf::from);
    let mut places: Vec<PathBuf> = beside.into_iter().collect();
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut found: Vec<PathBuf> = installed.map(|entry| entry.unwrap().path().join("bin")).collect();
    found.sort();
    places.extend(found.into_iter().rev());
    places.push("/usr/bin".into());
    let programs = places.iter().map(|place| place.join(name));
    programs
        .into_iter()
        .find(|program| program.is_file())
        .unwrap_or_else(|| panic!("{name} is in none of {places:?}: install PostgreSQL's client programs"))
}

#[track_caller]
fn must_succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_restored_on_another_server_is_served_at_once_and_removes_again_after_takeover() {
    // The dump is of yesterday; the server that it is restored on has the right time.
    let old = ClockServer::start(&[]).await;
    old.set_offset(-TimeDelta::days(10));
    let original = Deployment::new(
        old.database().await,
        old.clock(),
        vec![spec("public.inbox"), v7_spec("public.by_id")],
    );
    original.init().await.unwrap();
    let mut done = original.done().await;
    let mut claimed = Vec::new();
    for _ in 0..9 {
        old.step(TimeDelta::days(1));
        done.extend(original.done().await);
        let mut connection = original.database.connect().await;
        for (table, id) in [("inbox", random_id()), ("by_id", v7_at(old.now()))] {
            assert!(claim(&mut connection, table, id).await.unwrap());
            claimed.push((table, id));
        }
    }
    assert!(done.iter().any(|step| step.starts_with("detach")), "{done:?}");

    let folder = Folder::new();
    let file = folder.path().join("dump");
    must_succeed(
        Command::new(client("pg_dump"))
            .args(["--format=custom", "--file"])
            .arg(&file)
            .arg(&original.database.url),
    );
    let new = server::own(&[]).await;
    let database = new.database().await;
    must_succeed(
        Command::new(client("pg_restore"))
            .args(["--exit-on-error", "--dbname"])
            .arg(&database.url)
            .arg(&file),
    );
    let config = config_file(folder.path(), CONFIG);
    let ask = |arguments: &[&str]| {
        Answer::of(
            inboxd(arguments)
                .env("DATABASE_URL", &database.url)
                .env("INBOXD_CONFIG", &config),
        )
    };

    let mut command = inboxd(&["serve"]);
    command.env("DATABASE_URL", &database.url).env("INBOXD_CONFIG", &config);
    let mut service = Service::spawn(command);
    service.wait_until_ready().await;
    let mut admin = database.connect().await;
    for (table, id) in claimed.iter().rev().take(10) {
        let outcome = try_claim(&mut admin, table, *id, None).await.unwrap();
        assert_eq!(outcome, "duplicate", "{table} {id}");
    }
    assert!(claim(&mut admin, "inbox", random_id()).await.unwrap());
    assert!(
        claim(&mut admin, "by_id", v7_at(old.now() + TimeDelta::days(1)))
            .await
            .unwrap()
    );
    let status = ask(&["status", "--json"]).must(0, &[]).json();
    for inbox in status["databases"][0]["inboxes"].as_array().unwrap() {
        let runway = inbox["runway_seconds"].as_i64().unwrap();
        assert!(runway > 7 * 86_400, "the day of today's end was made: {inbox}");
    }
    // Nobody knows which of the two is the real one: nothing goes.
    ask(&["check"]).must(1, &["inboxd takeover"]);
    let kept = |run: Answer| {
        let text = run.out;
        assert!(!text.contains("detach ") && !text.contains("drop "), "{text}");
    };
    kept(ask(&["run"]).must(0, &[]));
    ask(&["takeover"]).must(0, &["taken over"]);
    let run = ask(&["run"]).must(0, &[]);
    assert!(run.out.contains("detach") || run.out.contains("drop"), "{run:?}");
    ask(&["check"]).must(0, &["all is well"]);
    service.must_end();
}
