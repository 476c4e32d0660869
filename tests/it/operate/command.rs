//! The commands with which a person decides: what they print, what they ask back, and their exit codes.

use std::{fs::File, io::Write, process::Stdio};

use inboxd::{Day, clock::Clock};
use serde_json::Value;

use crate::support::{
    folder::Folder,
    inbox::{random_id, sql},
    program::{Answer, ask, config_file, inboxd},
    server::{self, TestDatabase},
};

const INBOX: &str = "main.public.inbox";

async fn running() -> (TestDatabase, String) {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    ask(&database.url, &["run"]).must(0, &[]);
    let today = Day::containing(Clock::system().now()).to_string();
    (database, today)
}

fn named(day: &str) -> String {
    format!("inbox_{}", day.replace('-', "_"))
}

/// Takes a day out of the inbox, as a run would put it on record.
async fn detach(database: &TestDatabase, day: &str) {
    let mut connection = database.connect().await;
    let name = named(day);
    sql(
        &mut connection,
        format!("alter table inbox detach partition {name} concurrently"),
    )
    .await;
    sql(
        &mut connection,
        format!("update inboxd.partitions set detached_at = now() where day = '{day}'"),
    )
    .await;
}

#[tokio::test]
async fn a_person_holds_lists_and_releases_a_day() {
    let (database, today) = running().await;
    let ask = |arguments: &[&str]| ask(&database.url, arguments);
    ask(&["hold", "--list"]).must(0, &["No day is on hold."]);
    let held = ask(&["hold", INBOX, &today, "--reason", "an audit"]);
    held.must(
        0,
        &[
            &format!("{INBOX} {today} on hold since"),
            " as postgres: an audit",
            &named(&today),
        ],
    );
    ask(&["hold", INBOX, &today, "--reason", "again"]).must(0, &["It was on hold already.", "an audit"]);
    for arguments in [&["hold", "--list"][..], &["hold", "--list", INBOX]] {
        ask(arguments).must(0, &[&today, "an audit"]);
    }
    let json = ask(&["--json", "hold", "--list"]).must(0, &[]).json();
    let hold = &json["databases"][0]["holds"][0];
    assert_eq!((&hold["inbox"], &hold["day"]), (&INBOX.into(), &today.as_str().into()));
    ask(&["status"]).must(0, &["on hold since"]);
    let json = ask(&["--json", "hold", INBOX, &today, "--release"]).must(0, &[]).json();
    assert_eq!(
        (&json["database"], &json["hold"]["reason"]),
        (&"main".into(), &"an audit".into())
    );
    ask(&["hold", INBOX, &today, "--release"]).must(0, &["was not on hold"]);

    ask(&["hold", INBOX, "2001-01-01", "--reason", "x"]).must_fail(&["no partition of 2001-01-01", "inboxd status"]);
    ask(&["hold", "orders", &today, "--reason", "x"]).must_fail(&["no inbox \"orders\"", INBOX]);
    ask(&["hold", "--list", "orders"]).must_fail(&["no inbox \"orders\"", INBOX]);
    let json = ask(&["--json", "hold", INBOX, "2001-01-01", "--reason", "x"]);
    assert_eq!(json.code, Some(1), "{json:?}");
    let error: Value = json.json()["error"].clone();
    assert_eq!(error["kind"], "no_such_day");
    assert!(error["message"].is_string() && error["remedy"].is_string(), "{error}");
    for wrong in [
        &["hold"][..],
        &["hold", INBOX],
        &["hold", INBOX, &today],
        &["hold", INBOX, "yesterday", "--reason", "x"],
        &["hold", INBOX, &today, "--release", "--reason", "x"],
        &["hold", INBOX, &today, "--list"],
        &["pause"],
        &["confirm"],
        &["message", INBOX, "not-a-uuid"],
        &["forget", INBOX, "0199a0c5-53c4-7d2c-9f3e-6f2f6c1b8a10"],
    ] {
        let answer = ask(wrong).must(2, &[]);
        assert!(
            answer.err.contains("--help") || answer.err.contains("Usage"),
            "{wrong:?}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn what_changes_much_needs_yes_where_nobody_can_be_asked() {
    let (database, today) = running().await;
    let ask = |arguments: &[&str]| ask(&database.url, arguments);
    let id = random_id().to_string();
    for arguments in [
        &["restore", INBOX, &today][..],
        &["confirm", "clock"],
        &["confirm", "drops"],
        &["forget", INBOX, &id, "--reason", "x"],
    ] {
        let answer = ask(arguments);
        assert_eq!(answer.code, Some(2), "{answer:?}");
        assert!(answer.out.is_empty() && answer.err.contains("--yes"), "{answer:?}");
    }
    let audited: i64 = sqlx::query_scalar("select count(*) from inboxd.audit")
        .fetch_one(&mut database.connect().await)
        .await
        .unwrap();
    assert_eq!(audited, 0);
    ask(&["restore", INBOX, &today, "--yes"]).must_fail(&["is part of the inbox"]);
    ask(&["confirm", "clock", "--yes"]).must(0, &["database main: its time", "is trusted"]);
    ask(&["confirm", "drops", "--yes"]).must_fail(&["no more than the 4 of max_drops_per_run"]);
    ask(&["forget", INBOX, &id, "--reason", "x", "--yes"]).must(0, &["was not there"]);
    ask(&["run", "--confirm-clock"]).must(0, &[]);
}

#[tokio::test]
async fn a_person_at_a_terminal_is_asked_and_no_is_no() {
    let (database, today) = running().await;
    detach(&database, &today).await;
    let at_a_terminal = |answer: &str| {
        let pty = nix::pty::openpty(None, None).unwrap();
        let mut person = File::from(pty.master);
        person.write_all(answer.as_bytes()).unwrap();
        let child = inboxd(&["restore", INBOX, &today])
            .env("DATABASE_URL", &database.url)
            .stdin(Stdio::from(pty.slave))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Answer {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    };
    for no in ["n\n", "\n", "nay\n"] {
        let answer = at_a_terminal(no);
        assert_eq!(answer.code, Some(2), "{answer:?}");
        assert!(
            answer.err.contains("put the day on hold? [y/N]") && answer.err.contains("nothing was done"),
            "{answer:?}"
        );
    }
    at_a_terminal("y\n").must(0, &["is attached again", "Duplicates of", "--release"]);
}

#[tokio::test]
async fn a_restore_beside_a_run_exits_with_4_and_then_attaches_the_day() {
    let (database, today) = running().await;
    detach(&database, &today).await;
    let mut other = database.connect().await;
    sql(&mut other, "select pg_advisory_lock(x'696e626f78640001'::bigint)").await;
    let busy = ask(&database.url, &["restore", INBOX, &today, "--yes"]);
    assert_eq!(busy.code, Some(4), "{busy:?}");
    assert!(busy.err.contains("another run is going: pid"), "{busy:?}");
    sql(&mut other, "select pg_advisory_unlock_all()").await;
    let json = ask(
        &database.url,
        &["--json", "restore", INBOX, &today, "--yes", "--reason", "a slip"],
    )
    .must(0, &[])
    .json();
    assert_eq!(
        (&json["partition"], &json["catches_duplicates"], &json["hold"]["reason"]),
        (&named(&today).into(), &true.into(), &"restored: a slip".into())
    );
}

#[tokio::test]
async fn a_message_is_looked_for_and_forgotten_by_command() {
    let (database, today) = running().await;
    let ask = |arguments: &[&str]| ask(&database.url, arguments);
    let id = random_id();
    let text = id.to_string();
    ask(&["message", INBOX, &text]).must(0, &["was not processed", &format!("looked at: {today}")]);
    sqlx::query("select inbox_claim($1, 'orders')")
        .bind(id)
        .execute(&mut database.connect().await)
        .await
        .unwrap();
    ask(&["message", INBOX, &text]).must(
        0,
        &[
            "was processed at",
            "\"orders\"",
            &format!("in partition {}", named(&today)),
        ],
    );
    let json = ask(&["message", INBOX, &text, "--json"]).must(0, &[]).json();
    assert_eq!(json["processed"][0]["partition"], named(&today));
    ask(&["message", INBOX, &text, "--consumer", "mailer"]).must_fail(&["for one consumer", "leave the consumer out"]);
    ask(&["forget", INBOX, &text, "--reason", "replay", "--yes"]).must(0, &["is forgotten"]);
    ask(&["message", INBOX, &text]).must(0, &["was not processed"]);
    let actor: String = sqlx::query_scalar("select actor from inboxd.audit where action = 'forget'")
        .fetch_one(&mut database.connect().await)
        .await
        .unwrap();
    assert!(actor.ends_with(" as postgres"), "{actor}");
}

#[tokio::test]
async fn with_several_databases_each_is_paused_and_the_inbox_says_where_it_is() {
    let (one, other, folder) = (server::database().await, server::database().await, Folder::new());
    let file = config_file(
        folder.path(),
        &format!(
            "[databases.one]\nurl = '{}'\n[databases.other]\nurl = '{}'\n\
             [[inbox]]\ntable = 'inbox'\ndatabase = 'one'\n[[inbox]]\ntable = 'inbox'\ndatabase = 'other'\nname = 'orders'",
            one.url, other.url
        ),
    );
    let ask = |arguments: &[&str]| Answer::of(inboxd(arguments).env("INBOXD_CONFIG", &file));
    ask(&["init"]).must(0, &[]);
    let paused = ask(&["pause", "--reason", "x", "--json"]).must(0, &[]).json();
    assert_eq!(paused["databases"][1]["is_new"], true);
    ask(&["resume"]).must(
        0,
        &[
            "database one: the schedule goes on",
            "database other: the schedule goes on",
        ],
    );
    ask(&["resume"]).must(0, &["database one: the schedule was not paused"]);
    let today = Day::containing(Clock::system().now()).to_string();
    let json = ask(&["--json", "hold", "orders", &today, "--reason", "x"])
        .must(0, &[])
        .json();
    assert_eq!((&json["database"], &json["partition"]), (&"other".into(), &Value::Null));
    ask(&["confirm", "drops", "--yes"]).must_fail(&["several inboxes", "inboxd confirm drops INBOX"]);
    ask(&["hold", "inbox", &today, "--reason", "x"]).must_fail(&["one.public.inbox, orders"]);
}
