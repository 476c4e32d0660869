//! The command line, from outside: what a person reads, what a script parses, and the exit codes.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use serde_json::Value;

/// What finds the revision, with the main function that Cargo calls.
#[allow(dead_code, clippy::disallowed_methods)]
#[path = "../../build.rs"]
mod build;

use crate::support::folder::Folder;
use crate::support::inbox::sql;
use crate::support::program::{Answer, ask, config_file, inboxd};
use crate::support::server;

/// The advisory lock of a run: the bytes of "inboxd" and a version.
const RUN_LOCK: i64 = 0x696e_626f_7864_0001;

/// Each with what it needs to get as far as the configuration.
const COMMANDS: [&[&str]; 17] = [
    &["serve"],
    &["init"],
    &["plan"],
    &["run"],
    &["simulate"],
    &["takeover"],
    &["adopt", "--check"],
    &["release", "x", "--yes"],
    &["status"],
    &["hold", "--list"],
    &["restore", "x", "2026-12-01", "--yes"],
    &["confirm", "clock", "--yes"],
    &["pause", "--reason", "x"],
    &["resume"],
    &[
        "forget",
        "x",
        "0199a0c5-53c4-7d2c-9f3e-6f2f6c1b8a10",
        "--reason",
        "x",
        "--yes",
    ],
    &["message", "x", "0199a0c5-53c4-7d2c-9f3e-6f2f6c1b8a10"],
    &["check"],
];

/// The keys of an object, sorted.
fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().unwrap_or_else(|| panic!("{value} is no object"));
    object.keys().map(String::as_str).collect()
}

/// A URL with nothing behind it, and a password in it.
fn dead_url() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("postgres://user:s3cr3t@127.0.0.1:{port}/orders")
}

#[tokio::test]
async fn a_person_goes_from_an_empty_database_to_all_is_well() {
    let url = server::database().await.url;
    ask(&url, &["plan"]).must_fail(&["inboxd init"]);
    ask(&url, &["run"]).must_fail(&["inboxd init"]);
    ask(&url, &["status"]).must_fail(&["inboxd init"]);
    ask(&url, &["check"]).must(2, &["fail", "inboxd init"]);

    ask(&url, &["init"]).must(
        0,
        &["main.public.inbox: table made, claim functions made", "inboxd run"],
    );
    ask(&url, &["init"]).must(0, &["table was there, claim functions up to date"]);
    ask(&url, &["check"]).must(2, &["FAIL", "claims fail"]);
    ask(&url, &["plan"]).must(0, &["8 steps", "create", "locks", "SHARE UPDATE EXCLUSIVE"]);
    ask(&url, &["plan"]).must(0, &["8 steps"]);
    ask(&url, &["run"]).must(0, &["8 of 8 steps done", "runway 7d", " done"]);
    ask(&url, &["run"]).must(0, &["nothing to do"]);
    ask(&url, &["plan"]).must(0, &["nothing to do"]);
    let status = ask(&url, &["status"]).must(0, &["last run: ", "today", "ahead", "runway 7d", "expires"]);
    assert!(status.err.is_empty(), "{status:?}");
    ask(&url, &["check"]).must(0, &["all is well", "runway 7d"]);
}

#[tokio::test]
async fn a_script_gets_json_with_keys_that_stay() {
    let url = server::database().await.url;
    let init = ask(&url, &["init", "--json"]).must(0, &[]).json();
    assert_eq!(
        keys(&init["databases"][0]["inboxes"][0]),
        ["functions_had", "functions_made", "inbox", "table_made"]
    );

    let plan = ask(&url, &["--json", "plan"]).must(0, &[]).json();
    let inbox = &plan["databases"][0]["inboxes"][0];
    assert_eq!(
        keys(inbox),
        [
            "findings",
            "inbox",
            "now",
            "retention",
            "runway_seconds",
            "steps",
            "table"
        ]
    );
    let step = &inbox["steps"][0];
    assert_eq!(
        keys(step),
        ["action", "day", "locks", "oid", "reason", "relation", "schema"]
    );
    assert_eq!(keys(&step["locks"][0]), ["effect", "mode", "on"]);
    assert_eq!(step["action"], "create");

    let run = ask(&url, &["run", "--json"]).must(0, &[]).json()["databases"][0].clone();
    assert_eq!(
        keys(&run),
        [
            "canaries",
            "database",
            "finished_at",
            "id",
            "inboxes",
            "outcome",
            "result",
            "started_at",
            "trigger"
        ]
    );
    assert_eq!((&run["result"], &run["outcome"]), (&"ran".into(), &"done".into()));
    assert_eq!(run["inboxes"][0]["steps"].as_array().unwrap().len(), 8);

    let status = ask(&url, &["status", "--json"]).must(0, &[]).json();
    let top = ["databases", "deployment", "next_runs", "severity", "version"];
    assert_eq!(keys(&status), top);
    let database = &status["databases"][0];
    assert_eq!(
        keys(database),
        [
            "checks",
            "clock_skew_seconds",
            "database",
            "error",
            "error_kind",
            "inboxes",
            "last_run",
            "now",
            "paused",
            "replicas",
            "severity",
            "standby"
        ]
    );
    let inbox = &database["inboxes"][0];
    assert_eq!(inbox["partitions"].as_array().unwrap().len(), 8);
    assert_eq!(
        keys(&inbox["partitions"][0]),
        [
            "bounds",
            "bytes",
            "day",
            "dead_rows",
            "dropped_after",
            "estimated_rows",
            "expires_at",
            "held_because",
            "held_by",
            "held_since",
            "relation",
            "state",
            "vacuumed_at",
            "xid_age"
        ]
    );
    assert_eq!(inbox["partitions"][0]["state"], "today");
    assert!(inbox["runway_seconds"].as_i64().unwrap() > 7 * 86_400 - 60);

    let check = ask(&url, &["check", "--json"]).must(0, &[]).json();
    assert_eq!((keys(&check), &check["severity"]), (top.to_vec(), &"info".into()));
}

#[tokio::test]
async fn check_warns_with_1_and_json_says_what_a_person_reads() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    ask(&database.url, &["run"]).must(0, &[]);
    sql(&mut database.connect().await, "truncate inboxd.runs cascade").await;
    let check = ask(&database.url, &["check", "--json"]).must(1, &[]).json();
    assert_eq!(check["severity"], "warn");
    assert_eq!(
        keys(&check["databases"][0]["checks"][0]),
        ["code", "message", "remedy", "severity"]
    );
    ask(&database.url, &["check"]).must(1, &["warning", "no run is on record", "-> "]);
}

#[tokio::test]
async fn a_run_whose_steps_fail_exits_with_3_and_the_next_one_heals_it() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut other = database.connect().await;
    sql(&mut other, "begin; lock table public.inbox in access exclusive mode").await;
    let run = Answer::of(
        inboxd(&["run"])
            .env("DATABASE_URL", &database.url)
            .env("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "50ms")
            .env("INBOXD_MAINTENANCE__ATTEMPTS", "1"),
    );
    run.must(3, &["FAILED after 1 tries", "55P03", " partial"]);
    sql(&mut other, "rollback").await;
    ask(&database.url, &["run"]).must(0, &["8 of 8 steps done"]);
}

#[tokio::test]
async fn a_run_beside_another_exits_with_4_and_names_it() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut other = database.connect().await;
    sql(
        &mut other,
        format!("set application_name = 'the other run'; select pg_advisory_lock({RUN_LOCK})"),
    )
    .await;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&mut other)
        .await
        .unwrap();
    ask(&database.url, &["run"]).must(
        4,
        &["Another run is going", &format!("pid {pid}"), "the other run", "local"],
    );
    let json = ask(&database.url, &["run", "--json"]).must(4, &[]).json();
    assert_eq!(
        (&json["databases"][0]["result"], &json["databases"][0]["holder"]["pid"]),
        (&"busy".into(), &pid.into())
    );
    sql(&mut other, format!("select pg_advisory_unlock({RUN_LOCK})")).await;
    ask(&database.url, &["run"]).must(0, &[]);
}

#[test]
fn without_a_database_every_command_says_so_in_one_sentence() {
    for command in COMMANDS {
        let answer = Answer::of(&mut inboxd(command));
        if command == ["check"] {
            answer.must(2, &["fail: no database is configured", "DATABASE_URL"]);
        } else {
            answer.must_fail(&["no database is configured", "DATABASE_URL", "serve --embedded"]);
        }
    }
}

#[test]
fn a_dead_server_is_named_once_and_its_password_never() {
    let url = dead_url();
    for command in ["init", "plan", "run", "status"] {
        let answer =
            ask(&url, &[command]).must_fail(&["cannot connect to database \"orders\" at 127.0.0.1", "\"user\""]);
        assert!(!answer.err.contains("s3cr3t"), "{answer:?}");
        assert_eq!(answer.err.matches("Connection refused").count(), 1, "{answer:?}");
    }
    let check = ask(&url, &["check"]).must(2, &["fail: cannot connect"]);
    assert!(!format!("{check:?}").contains("s3cr3t"), "{check:?}");
    let json = ask(&url, &["check", "--json"]).must(2, &[]).json();
    assert_eq!(
        (&json["severity"], &json["databases"][0]["severity"]),
        (&"fail".into(), &"fail".into())
    );
    assert!(
        json["databases"][0]["error"]
            .as_str()
            .unwrap()
            .contains("cannot connect"),
        "{json}"
    );
}

#[tokio::test]
async fn what_the_server_refuses_is_told_without_the_password() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = Folder::new();
    let mut options = server::options_in(folder.path());
    options.port = Some(port);
    let own = server::OwnServer::start(folder, options).await;
    let mut admin = own.database().await.connect().await;
    // Whoever comes over TCP as this role needs the password.
    let rules = own.cluster.data_dir().join("pg_hba.conf");
    let trusting = std::fs::read_to_string(&rules).unwrap();
    std::fs::write(
        &rules,
        format!("host all app 127.0.0.1/32 scram-sha-256\nhost all outcast all reject\n{trusting}"),
    )
    .unwrap();
    sql(
        &mut admin,
        "create role app login password 'right'; create role outcast login; select pg_reload_conf()",
    )
    .await;

    for (user, password, database, part) in [
        ("app", "wr0ng", "postgres", "28P01"),
        ("outcast", "wr0ng", "postgres", "28000"),
        ("app", "right", "nowhere", "3D000"),
    ] {
        let url = format!("postgres://{user}:{password}@127.0.0.1:{port}/{database}");
        for command in ["plan", "init"] {
            let answer = ask(&url, &[command]).must_fail(&["cannot connect", user, database, part]);
            assert!(!answer.err.contains(password), "{answer:?}");
        }
        let check = ask(&url, &["check"]).must(2, &["fail", part]);
        assert!(!format!("{check:?}").contains(password), "{check:?}");
    }
    let unknown_host = "postgres://app:wr0ng@no-such-host.invalid/postgres";
    let answer = ask(unknown_host, &["plan"]).must_fail(&["cannot connect", "no-such-host.invalid"]);
    assert!(!answer.err.contains("wr0ng"), "{answer:?}");

    // It may connect, and has no right to make anything.
    let url = format!("postgres://app:right@127.0.0.1:{port}/postgres");
    ask(&url, &["init"]).must_fail(&["42501"]);
}

#[test]
fn a_configuration_that_is_refused_is_told_line_by_line() {
    let folder = Folder::new();
    let file = config_file(
        folder.path(),
        "[schedule]\ncron = 'x'\n[[inbox]]\ntable = 'a'\nretention = '90'",
    );
    let file = file.to_str().unwrap();
    for command in COMMANDS {
        let answer = ask("postgres://h/d", &[&["--config", file], command].concat());
        let (code, told) = if command == ["check"] {
            (2, &answer.out)
        } else {
            (1, &answer.err)
        };
        assert_eq!(answer.code, Some(code), "{answer:?}");
        assert!(
            told.contains("schedule.cron") && told.contains("inbox.0.retention"),
            "{answer:?}"
        );
    }
    Answer::of(inboxd(&["plan"]).env("INBOXD_CONFIG", "/nonexistent.toml")).must_fail(&["/nonexistent.toml"]);
    Answer::of(inboxd(&["plan"]).env("INBOXD_RETENTION", "7d")).must_fail(&["retention"]);
}

#[tokio::test]
async fn a_table_that_is_no_inbox_is_refused_and_left_as_it_is() {
    let database = server::database().await;
    sql(&mut database.connect().await, "create table public.inbox (note text)").await;
    ask(&database.url, &["init"]).must_fail(&["public.inbox", "cannot be an inbox"]);
    let columns: Vec<String> =
        sqlx::query_scalar("select attname::text from pg_attribute where attrelid = 'inbox'::regclass and attnum > 0")
            .fetch_all(&mut database.connect().await)
            .await
            .unwrap();
    assert_eq!(columns, ["note"]);
}

#[test]
fn the_help_says_what_each_command_does_and_what_exit_codes_mean() {
    let help = Answer::of(&mut inboxd(&["--help"])).must(
        0,
        &[
            "Exit codes: 0",
            "1 it could not be done",
            "2 wrong arguments",
            "3 (`run`)",
            "4 (`run`, `restore`)",
        ],
    );
    for (command, parts) in [
        ("serve", ["Run the service", "--embedded", "--state-dir"]),
        ("init", ["control schema", "claim functions", "harmless"]),
        ("plan", ["what a run would do", "locks", "Changes nothing"]),
        ("run", ["one pass", "missing", "--confirm-clock"]),
        ("simulate", ["forward", "--days", "--outage"]),
        ("takeover", ["another deployment", "copy", "audit"]),
        ("status", ["inboxes", "partitions", "last run"]),
        ("hold", ["on hold", "--release", "--list"]),
        ("restore", ["detached partition", "on hold", "--yes"]),
        ("confirm", ["not done unasked", "clock", "drops"]),
        ("pause", ["every replica", "runway falls", "--reason"]),
        ("resume", ["Let", "schedule", "go on"]),
        ("forget", ["next delivery", "--consumer", "--yes"]),
        ("message", ["whether and when", "which partition", "--consumer"]),
        ("completions", ["completions for a shell", "bash", "fish"]),
        ("man", ["manual pages", "folder", "inboxd.toml(5)"]),
        ("check", ["exits 0", "1 on a warning", "2 when"]),
    ] {
        assert!(help.out.contains(&format!("  {command} ")), "{help:?}");
        let page = include_str!("../../docs/operations.md");
        assert!(
            page.contains(&format!("| `inboxd {command}` |")),
            "{command} is not in docs/operations.md"
        );
        let answer = Answer::of(&mut inboxd(&[command, "--help"])).must(0, &["--config", "--json"]);
        // The text is wrapped to the width of the terminal.
        let words = answer.out.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in parts {
            assert!(words.contains(part), "{part:?} is not in {answer:?}");
        }
    }
}

#[test]
fn completions_and_manual_pages_are_of_the_command_line_as_it_is() {
    for (shell, part) in [
        ("bash", "complete -F _inboxd"),
        ("zsh", "#compdef inboxd"),
        ("fish", "complete -c inboxd"),
        ("elvish", "edit:completion"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        // No configuration is read for it, not even a wrong one.
        let mut command = inboxd(&["completions", shell]);
        let answer = Answer::of(command.env("INBOXD_CONFIG", "/nowhere.toml")).must(0, &[part, "takeover"]);
        assert!(answer.err.is_empty(), "{answer:?}");
    }
    let folder = Folder::new();
    let manual = folder.path().join("a/manual");
    Answer::of(&mut inboxd(&["man", manual.to_str().unwrap()])).must(0, &[]);
    let page =
        |name: &str| std::fs::read_to_string(manual.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(page("inboxd.1").contains("inboxd\\-serve(1)"), "{}", page("inboxd.1"));
    for command in COMMANDS {
        assert!(
            page(&format!("inboxd-{}.1", command[0])).contains(".SH SYNOPSIS"),
            "{command:?}"
        );
    }
    assert!(page("inboxd-confirm-clock.1").contains("yes"));
    for key in inboxd::service::config::KEYS {
        assert!(
            page("inboxd.toml.5").contains(&key.name.replace('-', "\\-")),
            "{}",
            key.name
        );
    }
    let file = manual.join("inboxd.1");
    let answer = Answer::of(&mut inboxd(&["man", file.to_str().unwrap()]));
    answer.must_fail(&["write manual pages to"]);
}

#[test]
fn the_version_has_the_revision_where_it_can_be_told() {
    let answer = Answer::of(&mut inboxd(&["--version"])).must(0, &[]);
    let version = format!("inboxd {}", env!("CARGO_PKG_VERSION"));
    let behind = answer.out.trim_end().strip_prefix(version.as_str());
    assert!(
        behind.is_some_and(|text| text.is_empty() || text.starts_with(" (")),
        "{answer:?}"
    );

    let (folder, hash) = (Folder::new(), "0123456789abcdef0123456789abcdef01234567");
    let of_package = |json: &str| {
        std::fs::write(folder.path().join(".cargo_vcs_info.json"), json).unwrap();
        build::packaged(folder.path()).map(|revision| revision.text)
    };
    assert_eq!(
        of_package(&format!("{{\n  \"git\": {{\n    \"sha1\": \"{hash}\"\n  }}\n}}")).as_deref(),
        Some("0123456789ab")
    );
    assert_eq!(
        of_package(&format!("{{\"git\": {{\"sha1\": \"{hash}\", \"dirty\": true}}}}")).as_deref(),
        Some("0123456789ab-modified")
    );
    assert_eq!(of_package("{}"), None);
    for (given, shown) in [
        (None, None),
        (Some(""), None),
        (Some("v1.2-rc.1"), Some("v1.2-rc.1")),
        (Some(hash), Some("0123456789ab")),
        (Some("$(rm -rf /)"), None),
    ] {
        let text = build::given(given).map(|revision| revision.text);
        assert_eq!(text.as_deref(), shown);
    }
}

#[test]
fn the_revision_of_a_checkout_is_its_own_and_says_what_was_modified() {
    let folder = Folder::new();
    let root = folder.path().join("checkout");
    std::fs::create_dir_all(root.join("src")).unwrap();
    let told = || build::checked_out(&root).map(|revision| revision.text);
    let git = |arguments: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.args(["-c", "user.name=A", "-c", "user.email=a@example.com", "-C"]);
        let output = command.arg(&root).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    assert_eq!(told(), None, "no repository");
    git(&["init", "--quiet"]);
    assert_eq!(told(), None, "no commit");
    std::fs::write(root.join("src/lib.rs"), "").unwrap();
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "Begin"]);
    let short = git(&["rev-parse", "HEAD"])[..12].to_owned();
    assert_eq!(told(), Some(short.clone()));
    // What the program is not made of makes no other program.
    std::fs::write(root.join("notes"), "x").unwrap();
    assert_eq!(told(), Some(short.clone()));
    std::fs::write(root.join("src/lib.rs"), "//").unwrap();
    assert_eq!(told(), Some(format!("{short}-modified")));
    // A package that merely lies in somebody's repository is not of its revision.
    assert!(build::checked_out(&root.join("src")).is_none());
}

#[test]
fn wrong_arguments_exit_with_2() {
    for arguments in [
        &[][..],
        &["sevre"],
        &["plan", "--jsno"],
        &["serve", "--state-dir", "/tmp/x"],
        &["serve", "--postgres-port", "5432"],
        &["serve", "--embedded", "--postgres-port", "0"],
        &["serve", "--embedded", "--postgres-port", "99999"],
    ] {
        let answer = Answer::of(&mut inboxd(arguments)).must(2, &[]);
        assert!(answer.err.contains("--help"), "{arguments:?}: {answer:?}");
    }
}

#[tokio::test]
async fn variables_that_others_set_are_no_hindrance() {
    let url = server::database().await.url;
    // Not text: no program but ours may care, and ours must not fall over it.
    let mut command = inboxd(&["init"]);
    command
        .env("DATABASE_URL", &url)
        .env("NOT_TEXT", OsStr::from_bytes(b"\xff"));
    Answer::of(&mut command).must(0, &["table made"]);
    for (value, is_json) in [("1", true), ("true", true), ("0", false), ("", false)] {
        let mut command = inboxd(&["plan"]);
        command.env("DATABASE_URL", &url).env("INBOXD_JSON", value);
        let answer = Answer::of(&mut command).must(0, &[]);
        assert_eq!(answer.out.starts_with('{'), is_json, "{value}: {answer:?}");
    }
    // The folder of a private cluster may be set for all commands.
    let mut command = inboxd(&["plan"]);
    Answer::of(command.env("DATABASE_URL", &url).env("INBOXD_STATE_DIR", "/tmp/x")).must(0, &[]);
}

#[tokio::test]
async fn a_reader_that_has_gone_is_no_error() {
    let url = server::database().await.url;
    ask(&url, &["init"]).must(0, &[]);
    let mut child = inboxd(&["plan"])
        .env("DATABASE_URL", &url)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[tokio::test]
async fn s8_eight_inits_at_once_make_one_inbox() {
    let url = server::database().await.url;
    let children: Vec<_> = (0..8)
        .map(|_| {
            // Each waits for the one before, on a machine that is busy with other tests.
            inboxd(&["init", "--json"])
                .env("DATABASE_URL", &url)
                .env("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "30s")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut made = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        made += usize::from(report["databases"][0]["inboxes"][0]["table_made"] == true);
    }
    assert_eq!(made, 1);
    ask(&url, &["run"]).must(0, &["8 of 8 steps done"]);
}

#[tokio::test]
async fn two_databases_are_told_apart_and_one_that_is_down_does_not_stop_the_other() {
    let (one, folder) = (server::database().await, Folder::new());
    let file = config_file(
        folder.path(),
        &format!(
            "[databases.up]\nurl = '{}'\n[databases.down]\nurl = '{}'\n\
             [[inbox]]\ntable = 'inbox'\ndatabase = 'up'\n[[inbox]]\ntable = 'inbox'\ndatabase = 'down'",
            one.url,
            dead_url()
        ),
    );
    let ask = |command: &str| Answer::of(&mut inboxd(&["--json", "--config", file.to_str().unwrap(), command]));
    for command in ["init", "run", "plan", "status", "simulate"] {
        let answer = ask(command);
        assert_eq!(answer.code, Some(1), "{answer:?}");
        assert!(
            answer.err.contains("database down: cannot connect") && !answer.err.contains("s3cr3t"),
            "{answer:?}"
        );
        let json = answer.json();
        assert!(
            json["databases"][0]["error"].is_string() && json["databases"][1]["inboxes"].is_array(),
            "{command}: {json}"
        );
    }
    let check = ask("check");
    assert_eq!(check.code, Some(2));
    assert_eq!(check.json()["databases"][1]["severity"], "info");
    let ask = |command: &str| Answer::of(&mut inboxd(&["--config", file.to_str().unwrap(), command]));
    ask("check").must(
        2,
        &["or it cannot be told", "FAIL: database down\n", "ok: database up\n"],
    );
    ask("run").must(1, &["database up\nup.public.inbox: "]);
}

#[tokio::test]
async fn simulate_tells_what_an_outage_would_do() {
    let url = server::database().await.url;
    ask(&url, &["init"]).must(0, &[]);
    ask(&url, &["run"]).must(0, &[]);
    ask(&url, &["simulate", "--days", "12"])
        .must(0, &["create", "detach", "drop", "in all: 12 create, 5 detach, 4 drop"]);
    let quiet = ask(&url, &["simulate", "--days", "3"]).must(0, &["in all: 3 create"]);
    assert!(!quiet.out.contains("CLAIMS FAIL"), "{quiet:?}");
    ask(
        &url,
        &["simulate", "--days", "30", "--outage", "2020-01-01..2099-01-01"],
    )
    .must(0, &["CLAIMS FAIL", "no step"]);
    for wrong in [
        ["--outage", "2026-12-24"],
        ["--outage", "2026-12-24..2026-12-24"],
        ["--jump", "2026-12-24=400"],
        ["--days", "0"],
    ] {
        let answer = ask(&url, &["simulate", wrong[0], wrong[1]]);
        assert_eq!(answer.code, Some(2), "{answer:?}");
        assert!(answer.err.contains(wrong[0]), "{answer:?}");
    }
    // The clock has leapt over everything that is ahead, so claims fail until the first run.
    let leapt = ["simulate", "--json", "--days", "2", "--jump", "2000-01-01=+400d"];
    let json = ask(&url, &leapt).must(0, &[]).json();
    let events = &json["databases"][0]["inboxes"][0]["events"];
    assert_eq!(
        (&events[0]["event"], &events[1]["event"]),
        (&"claims_fail".into(), &"step".into())
    );
}

#[tokio::test]
async fn another_deployment_takes_over_and_it_is_put_on_the_audit() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    ask(&database.url, &["run"]).must(0, &[]);
    let as_blue = |command: &str| {
        Answer::of(
            inboxd(&[command])
                .env("DATABASE_URL", &database.url)
                .env("INBOXD_DEPLOYMENT", "blue"),
        )
    };
    as_blue("check").must(2, &["belongs to deployment \"default\"", "inboxd takeover"]);
    as_blue("takeover").must(0, &["taken over from deployment \"default\""]);
    as_blue("takeover").must(0, &["was ours already"]);
    as_blue("run").must(0, &["nothing to do"]);
    ask(&database.url, &["check"]).must(2, &["belongs to deployment \"blue\""]);
    let audited: i64 = sqlx::query_scalar("select count(*) from inboxd.audit where action = 'takeover'")
        .fetch_one(&mut database.connect().await)
        .await
        .unwrap();
    assert_eq!(audited, 1);
}
