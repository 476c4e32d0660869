//! What a configuration may say, and what is told when it may not.

mod documented;

use std::collections::HashMap;

use super::*;
use crate::pure::{Consumers, Ident, OnExpiry, Retention, Routing};

/// Loads a file's text under an environment.
fn load(text: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inboxd.toml");
    std::fs::write(&file, text).unwrap();
    Config::load(Some(&file), variables(environment))
}

fn variables(environment: &[(&str, &str)]) -> HashMap<String, String> {
    environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Why a file is refused.
fn refusal(text: &str) -> String {
    match load(text, &[]) {
        Ok(config) => panic!("it is accepted: {text}\n{config:?}"),
        Err(error) => error.to_string(),
    }
}

/// Asserts that a text holds all of these.
fn assert_tells(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn nothing_at_all_is_a_configuration_without_a_database() {
    let config = Config::load(None, HashMap::new()).unwrap();
    assert!(config.databases[0].connect_options().is_err());
    assert_eq!(config.deployment, "default");
    assert_eq!(config.databases[0].inboxes.len(), 1);
    assert_eq!(config.databases[0].inboxes[0].table.to_string(), "public.inbox");
    assert_eq!(config.databases[0].inboxes[0].name, "main.public.inbox");
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:8087");
}

#[test]
fn an_unknown_key_is_an_error_that_names_it() {
    for (text, key) in [
        ("retentoin = '7d'", "retentoin"),
        ("[database]\nurl = 'postgres://h/d'\npasword = 'x'", "pasword"),
        ("[[inbox]]\ntable = 'a'\nretention_days = '7d'", "retention_days"),
        ("[schedule]\nchron = '* * * * *'", "chron"),
        ("[maintenance]\nlock_timeout_ms = '5'", "lock_timeout_ms"),
        ("[http]\nport = '80'", "port"),
        ("[log]\nlevel = 'info'", "level"),
    ] {
        assert_tells(&refusal(text), &[key]);
    }
}

#[test]
fn an_unknown_variable_is_an_error_that_names_it() {
    for (name, key) in [
        ("INBOXD_RETENTION", "retention"),
        ("INBOXD_SCHEDULE__CHRON", "chron"),
        ("INBOXD_HTTP__PORT", "port"),
    ] {
        let error = load("", &[(name, "1")]).unwrap_err().to_string();
        assert_tells(&error, &[key]);
    }
    // Of the command line, or not ours.
    let others = [
        ("INBOXD_CONFIG", "x"),
        ("INBOXD_STATE_DIR", "x"),
        ("INBOXD_JSON", "x"),
        ("INBOX_X", "x"),
        // Of a before_drop command, which may ask inboxd something.
        ("INBOXD_INBOX", "main.public.inbox"),
        ("INBOXD_SCHEMA", "public"),
        ("INBOXD_TABLE", "inbox_2026_12_01"),
        ("INBOXD_DAY", "2026-12-01"),
        ("INBOXD_FROM", "2026-12-01 00:00:00+00"),
        ("INBOXD_TO", "2026-12-02 00:00:00+00"),
    ];
    let loaded = load("", &others);
    assert!(loaded.is_ok(), "{loaded:?}");
}

#[test]
fn a_value_out_of_range_is_told_with_key_value_and_what_is_accepted() {
    for (text, parts) in [
        ("deployment = ''", ["deployment", "", "1 to 100"]),
        ("deployment = 'a b'", ["deployment", "a b", "A-Z"]),
        ("[schedule]\ncron = 'x'", ["schedule.cron", "\"x\"", "5 fields"]),
        (
            "[schedule]\ncron = '0 0 30 2 *'",
            ["schedule.cron", "0 0 30 2 *", "never fires"],
        ),
        ("[http]\nlisten = 'here'", ["http.listen", "here", "address"]),
        (
            "[http]\nlisten = '0.0.0.0:80'",
            ["http.listen", "0.0.0.0:80", "loopback"],
        ),
        ("[log]\nformat = 'xml'", ["log.format", "xml", "json"]),
        ("[log]\nfilter = 'a=b=c'", ["log.filter", "a=b=c", "inboxd=debug"]),
        (
            "[maintenance]\nlock_timeout = '9ms'",
            ["maintenance.lock_timeout", "9ms", "10ms"],
        ),
        (
            "[maintenance]\nlock_timeout = '2'",
            ["maintenance.lock_timeout", "\"2\"", "unit"],
        ),
        (
            "[maintenance]\nstatement_timeout = '2h'",
            ["maintenance.statement_timeout", "2h", "1h"],
        ),
        (
            "[maintenance]\nlock_timeout = '1m'\nstatement_timeout = '1s'",
            ["maintenance.statement_timeout", "1s", "lock_timeout"],
        ),
        (
            "[maintenance]\nattempts = 0",
            ["maintenance.attempts", "\"0\"", "1 to 20"],
        ),
        (
            "[maintenance]\nattempts = 'many'",
            ["maintenance.attempts", "many", "1 to 20"],
        ),
        (
            "[maintenance]\nmax_clock_skew = '2h'",
            ["maintenance.max_clock_skew", "2h", "1h"],
        ),
        (
            "[maintenance]\nmax_clock_leap = '1m'",
            ["maintenance.max_clock_leap", "1m", "3650d"],
        ),
    ] {
        assert_tells(&refusal(text), &parts);
    }
}

#[test]
fn an_inbox_value_out_of_range_is_told_with_key_value_and_what_is_accepted() {
    for (key, value, accepted) in [
        ("routing", "topic", "\"processed_at\" or \"message_id\""),
        ("consumers", "two", "\"one\" or \"many\""),
        ("ahead", "0", "1 to 366"),
        ("ahead", "-1", "1 to 366"),
        ("ahead", "400", "locks every partition"),
        ("ahead", "7d", "1 to 366"),
        ("drop_grace", "24", "unit"),
        ("drop_grace", "3651d", "3650d"),
        ("max_drops_per_run", "0", "1 to 10000"),
        ("producer_clock_tolerance", "31d", "30d"),
        ("clock_step_tolerance", "25h", "24h"),
        ("max_batch", "5001", "1 to 5000"),
        ("name", "a/b", "URLs"),
        ("name", "", "URLs"),
        ("database", "other", "the name of a database"),
    ] {
        let message = refusal(&format!("[[inbox]]\ntable = 'a'\n{key} = '{value}'"));
        assert_tells(&message, &[&format!("inbox.0.{key}"), value, accepted]);
    }
    for key in ["consumer_roles", "admin_roles"] {
        let message = refusal(&format!("[[inbox]]\ntable = 'a'\n{key} = ['ok', '{}']", "r".repeat(64)));
        assert_tells(&message, &[&format!("inbox.0.{key}"), "63"]);
    }
    let message = refusal("[[inbox]]\ntable = 'a'\nowner = ''");
    assert_tells(&message, &["inbox.0.owner"]);
}

#[test]
fn s16_a_retention_needs_a_unit_and_is_never_zero() {
    for value in ["90", "0", "0d", "-7d", "", "36501d", "eternal"] {
        let message = refusal(&format!("[[inbox]]\ntable = 'a'\nretention = '{value}'"));
        assert_tells(&message, &["inbox.0.retention", value, "unit", "forever"]);
    }
    // A bare number in TOML is no way round it.
    assert_tells(
        &refusal("[[inbox]]\ntable = 'a'\nretention = 90"),
        &["inbox.0.retention", "unit"],
    );
    let config = load("[[inbox]]\ntable = 'a'\nretention = 'forever'", &[]).unwrap();
    assert_eq!(config.databases[0].inboxes[0].policy.retention, Retention::Forever);
}

#[test]
fn a_retention_is_never_shorter_than_what_the_broker_may_deliver_again() {
    let inbox = |more: &str| format!("[[inbox]]\ntable = 'a'\nredelivery_horizon = '8d'\n{more}");
    for (more, value) in [("", "7d"), ("retention = '191h'", "7d 23h")] {
        let message = refusal(&inbox(more));
        assert_tells(
            &message,
            &["inbox.0.retention", value, "at least \"8d\"", "processed twice"],
        );
    }
    assert!(load(&inbox("retention = '8d'"), &[]).is_ok());
    assert!(load(&inbox("retention = 'forever'"), &[]).is_ok());
    let message = refusal("[[inbox]]\ntable = 'a'\nredelivery_horizon = '3'");
    assert_tells(&message, &["inbox.0.redelivery_horizon", "unit"]);
}

#[test]
fn s9_a_table_name_that_postgresql_would_cut_is_refused_with_the_longest_allowed() {
    for name in ["x".repeat(48), "ü".repeat(27)] {
        let message = refusal(&format!("[[inbox]]\ntable = '{name}'"));
        assert_tells(&message, &["inbox.0.table", &name, "47"]);
    }
    assert!(load(&format!("[[inbox]]\ntable = '{}'", "x".repeat(47)), &[]).is_ok());
    for name in ["", "a.b.c", "pg_catalog.a", "inboxd.a"] {
        assert_tells(
            &refusal(&format!("[[inbox]]\ntable = '{name}'")),
            &["inbox.0.table", name],
        );
    }
}

#[test]
fn a_table_whose_name_does_not_fit_into_a_url_needs_a_name() {
    let table = "[[inbox]]\ntable = '\"Order Inbox\"'\n";
    assert_tells(&refusal(table), &["inbox.0.name", "URLs"]);
    assert!(load(&format!("{table}name = 'orders'"), &[]).is_ok());
}

#[test]
fn each_table_and_each_name_stands_once() {
    let message = refusal("[[inbox]]\ntable = 'a'\nname = 'x'\n[[inbox]]\ntable = 'public.A'\nname = 'y'");
    assert_tells(&message, &["inbox.1.table", "public.a", "x has it already"]);
    let message = refusal("[[inbox]]\ntable = 'a'\nname = 'x'\n[[inbox]]\ntable = 'b'\nname = 'x'");
    assert_tells(&message, &["inbox.1.name", "x"]);
}

#[test]
fn every_problem_is_told_at_once() {
    let error = load(
        "[schedule]\ncron = 'x'\n[maintenance]\nattempts = 99\n\
         [[inbox]]\ntable = 'a'\nahead = 0\nretention = '90'\n[[inbox]]\ntable = 'b'\nrouting = 'c'",
        &[("DATABASE_URL", "mysql://h/d")],
    )
    .unwrap_err();
    let ConfigError::Refused(problems) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(problems.len(), 6, "{error}");
    let keys = [
        "schedule.cron",
        "maintenance.attempts",
        "inbox.0.ahead",
        "inbox.0.retention",
        "inbox.1.routing",
        "database.url",
    ];
    assert_tells(&error.to_string(), &keys);
}

#[test]
fn a_secret_is_in_no_debug_output_and_in_no_error() {
    let secret = "s3cr3t";
    let url = format!("postgres://user:{secret}@host:5432/orders");
    let config = load("", &[("DATABASE_URL", &url)]).unwrap();
    let shown = format!("{config:?}");
    assert!(!shown.contains(secret), "{shown}");
    assert_tells(&shown, &["host", "orders", "user"]);

    for broken in [
        format!("mysql://user:{secret}@host/d"),
        format!("postgres://user:{secret}@host:port/d"),
        format!("postgres://user:{secret}/@host/d"),
        format!("postgres://user:{secret}@host/d?sslmode={secret}"),
        format!("postgres://user:{secret}%@host/d?x"),
        format!("{secret} postgres://user:{secret}@host/d"),
    ] {
        let file = format!("[database]\nurl = '{broken}'");
        let named =
            format!("[databases.{secret}]\nurl = '{broken}'").replace(&format!("databases.{secret}"), "databases.a");
        let outcomes = [
            load(&file, &[]),
            load("", &[("DATABASE_URL", &broken)]),
            load("", &[("INBOXD_DATABASE__URL", &broken)]),
            load(&named, &[]),
        ];
        for outcome in outcomes {
            let told = match outcome {
                Ok(config) => format!("{config:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!told.contains(secret), "{broken}: {told}");
        }
    }
    // A value that is no text at all, and a file that is no TOML at the place of the secret.
    for text in [
        format!("[database]\nurl = ['{secret}']"),
        format!("[database]\nurl = {{ password = '{secret}' }}"),
        format!("database = '{secret}'"),
        format!("[database]\nurl = 'postgres://user:{secret}@host/d' 1"),
        format!("[database]\nurl = postgres://user:{secret}@host/d"),
    ] {
        let error = load(&text, &[]).unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(!told.contains(secret), "{text}: {told}");
        assert!(told.contains("database") || told.contains("line 2"), "{text}: {told}");
    }
}

#[test]
fn the_environment_outranks_the_file() {
    let file = "deployment = 'file'\n[schedule]\ncron = '0 1 * * *'\n[database]\nurl = 'postgres://file/d'";
    let config = load(
        file,
        &[
            ("INBOXD_DEPLOYMENT", "env"),
            ("INBOXD_SCHEDULE__CRON", "0 2 * * *"),
            ("DATABASE_URL", "postgres://env/d"),
        ],
    )
    .unwrap();
    assert_eq!(config.deployment, "env");
    assert_eq!(config.schedule.to_string(), "0 0 2 * * *");
    assert_eq!(config.databases[0].connect_options().unwrap().get_host(), "env");

    let config = load(file, &[("INBOXD_DATABASE__URL", "postgres://ours/d")]).unwrap();
    assert_eq!(config.databases[0].connect_options().unwrap().get_host(), "ours");
    // An empty variable is how a shell says "not set".
    let config = load(file, &[("DATABASE_URL", "")]).unwrap();
    assert_eq!(config.databases[0].connect_options().unwrap().get_host(), "file");
}

#[test]
fn a_variable_of_digits_stays_text_and_reads_as_a_number_where_one_is_wanted() {
    let config = load(
        "",
        &[("INBOXD_DEPLOYMENT", "2026"), ("INBOXD_MAINTENANCE__ATTEMPTS", "05")],
    )
    .unwrap();
    assert_eq!(config.deployment, "2026");
    assert_eq!(config.retries.attempts, 5);
    // So do numbers in the file, with quotes and without.
    for number in ["9", "'9'"] {
        let config = load(
            &format!("[[inbox]]\ntable = 'a'\nahead = {number}\nmax_batch = {number}"),
            &[],
        )
        .unwrap();
        assert_eq!(config.databases[0].inboxes[0].policy.ahead.days(), 9);
        assert_eq!(config.databases[0].inboxes[0].claim.max_batch, 9);
    }
}

#[test]
fn a_database_may_have_a_name_of_its_own() {
    let config = load(
        "[databases.orders]\nurl = 'postgres://h/d'\n\
         [[inbox]]\ntable = 'a'\n[[inbox]]\ntable = 'b'\ndatabase = 'orders'",
        &[],
    )
    .unwrap();
    assert_eq!(config.databases[0].name, "orders");
    let names: Vec<_> = config.databases[0]
        .inboxes
        .iter()
        .map(|inbox| inbox.name.as_str())
        .collect();
    assert_eq!(names, ["orders.public.a", "orders.public.b"]);

    for (text, parts) in [
        (
            "[databases.a]\nurl = 'postgres://h/d'\n[databases.b]\nurl = 'postgres://h/d'\n[[inbox]]\ntable = 'x'",
            ["inbox.0.database", "(none)", "the name of a database: a, b"],
        ),
        (
            "[databases.a]\nurl = 'postgres://h/d'\n[databases.b]\nurl = 'postgres://h/d'\n[[inbox]]\ntable = 'x'\ndatabase = 'a'",
            ["inbox", "(none)", "database = \"b\""],
        ),
        (
            "[databases.a]\nurl = 'postgres://h/d'\n[database]\nurl = 'postgres://h/d'",
            ["databases", "a", "not both"],
        ),
        ("[databases.a]", ["databases.a.url", "(none)", "postgres://"]),
        (
            "[databases.'a b']\nurl = 'postgres://h/d'",
            ["databases.a b.url", "a b", "A-Z"],
        ),
    ] {
        assert_tells(&refusal(text), &parts);
    }
}

#[test]
fn several_databases_have_inboxes_of_their_own() {
    let config = load(
        "[databases.b]\nurl = 'postgres://h/two'\n[databases.a]\nurl = 'postgres://h/one'\n\
         [[inbox]]\ntable = 'x'\ndatabase = 'b'\n[[inbox]]\ntable = 'x'\ndatabase = 'a'",
        &[("DATABASE_URL", "postgres://elsewhere/d")],
    )
    .unwrap();
    let found: Vec<_> = config
        .databases
        .iter()
        .map(|database| {
            (
                database.inboxes[0].name.as_str(),
                database.connect_options().unwrap().get_database().unwrap(),
            )
        })
        .collect();
    assert_eq!(found, [("a.public.x", "one"), ("b.public.x", "two")]);
}

#[test]
fn what_becomes_of_an_expired_partition_is_checked_as_a_whole() {
    let config = load(
        "[[inbox]]\ntable = 'a'\non_expiry = 'keep'\narchive_schema = 'old'",
        &[],
    )
    .unwrap();
    let kept = &config.databases[0].inboxes[0].policy.on_expiry;
    assert_eq!(
        *kept,
        OnExpiry::Keep {
            archive_schema: Some(Ident::new("old").unwrap())
        }
    );
    let config = load(
        "[[inbox]]\ntable = 'a'\nbefore_drop = ['/bin/export', '-v']\nbefore_drop_timeout = '1h'",
        &[],
    )
    .unwrap();
    let hook = config.databases[0].inboxes[0].before_drop.clone().unwrap();
    assert_eq!((hook.command.len(), hook.timeout.as_secs()), (2, 3600));
    for (keys, parts) in [
        ("archive_schema = 'old'", ["archive_schema", "old", "on_expiry"]),
        (
            "on_expiry = 'keep'\nbefore_drop = ['x']",
            ["before_drop", "x", "on_expiry"],
        ),
        ("before_drop = []", ["before_drop", "[]", "a program"]),
        ("before_drop = ['']", ["before_drop", "", "a program"]),
        ("before_drop_timeout = '0s'", ["before_drop_timeout", "0s", "24h"]),
        ("on_expiry = 'burn'", ["on_expiry", "burn", "\"drop\" or \"keep\""]),
        (
            "routing = 'message_id'\nretention = '400d'",
            ["retention", "400d", "366d"],
        ),
    ] {
        assert_tells(&refusal(&format!("[[inbox]]\ntable = 'a'\n{keys}")), &parts);
    }
}

#[test]
fn what_is_given_arrives() {
    let config = load(
        "[[inbox]]\ntable = 'sales.inbox'\nrouting = 'message_id'\nconsumers = 'many'\nahead = 3\nretention = '1d 12h'\n\
         owner = 'o'\nconsumer_roles = ['c']\nadmin_roles = ['a']\n[log]\nformat = 'json'\n\
         [maintenance]\nlock_timeout = '1s'",
        &[],
    )
    .unwrap();
    let inbox = &config.databases[0].inboxes[0];
    assert_eq!(inbox.name, "main.sales.inbox");
    assert_eq!(
        (inbox.policy.routing, inbox.policy.consumers),
        (Routing::MessageId, Consumers::Many)
    );
    assert_eq!(inbox.policy.retention.to_string(), "1d 12h");
    assert_eq!(inbox.owner.as_ref().unwrap().as_str(), "o");
    assert_eq!((inbox.consumer_roles.len(), inbox.admin_roles.len()), (1, 1));
    assert!(config.log.json);
    assert_eq!(config.timeouts.lock.as_secs(), 1);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load(Some(Path::new("/nonexistent/inboxd.toml")), HashMap::new()).unwrap_err();
    assert_tells(&error.to_string(), &["/nonexistent/inboxd.toml"]);
}

/// Tokens as the file names them, each found in a variable.
const TOKENS: &str = "[http]\nread_tokens = [{ name = 'grafana', variable = 'GRAFANA' }, { name = 'old', variable = 'OLD' }]\n\
                      admin_tokens = [{ name = 'ops', variable = 'OPS' }]\nlisten = '0.0.0.0:80'";
const FOUND: [(&str, &str); 3] = [
    ("GRAFANA", "grafana-grafana-"),
    ("OLD", "0123456789abcdef\n"),
    ("OPS", "ops-ops-ops-ops-"),
];

#[test]
fn with_tokens_any_address_may_be_served_and_no_token_is_shown() {
    let config = load(TOKENS, &FOUND).unwrap();
    let tokens = &config.http.tokens;
    assert_eq!(tokens.recognize(b"grafana-grafana-"), Some(("grafana", Access::Read)));
    assert_eq!(tokens.recognize(b"0123456789abcdef"), Some(("old", Access::Read)));
    assert_eq!(tokens.recognize(b"ops-ops-ops-ops-"), Some(("ops", Access::Admin)));
    let shown = format!("{config:?}");
    assert!(
        shown.contains("grafana") && !shown.contains("grafana-grafana-"),
        "{shown}"
    );
}

#[test]
fn a_token_may_stand_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "abcdefghijklmnop\n").unwrap();
    let text = format!("[http]\nadmin_tokens = [{{ name = 'ops', file = {file:?} }}]");
    let config = load(&text, &[]).unwrap();
    assert_eq!(
        config.http.tokens.recognize(b"abcdefghijklmnop"),
        Some(("ops", Access::Admin))
    );
}

#[test]
fn a_token_that_cannot_be_had_or_guarded_is_refused_without_being_shown() {
    let with = |list: &str| format!("[http]\nread_tokens = [{list}]");
    for (list, parts) in [
        (
            "{ name = 'a', variable = 'SHORT' }",
            ["http.read_tokens.0", "16 to 512"],
        ),
        (
            "{ name = 'a', variable = 'ODD' }",
            ["http.read_tokens.0", "openssl rand"],
        ),
        (
            "{ name = 'a', variable = 'NOWHERE' }",
            ["read_tokens.0.variable", "NOWHERE"],
        ),
        (
            "{ name = 'a', variable = 'INBOXD_X' }",
            ["read_tokens.0", "beginning otherwise"],
        ),
        (
            "{ name = 'a', file = '/nowhere/at/all' }",
            ["read_tokens.0.file", "/nowhere"],
        ),
        ("{ name = 'a' }", ["read_tokens.0", "either file"]),
        ("{ name = 'a b', variable = 'GOOD' }", ["read_tokens.0.name", "a b"]),
        (
            "{ name = 'a', variable = 'GOOD' }, { name = 'a', variable = 'OTHER' }",
            ["read_tokens.1", "a has it already"],
        ),
        (
            "{ name = 'a', variable = 'GOOD' }, { name = 'b', variable = 'GOOD' }",
            ["read_tokens.1", "a has it already"],
        ),
    ] {
        let environment = [
            ("SHORT", "secret-secret-1"),
            ("ODD", "secret secret secret"),
            ("GOOD", "secret-secret-secret"),
            ("OTHER", "secret-secret-secret2"),
        ];
        let error = load(&with(list), &environment).unwrap_err().to_string();
        assert_tells(&error, &parts);
        assert!(!error.contains("secret"), "{error}");
    }
    // Written into the file itself: of the wrong type, and not to be repeated.
    let error = refusal("[http]\nread_tokens = ['secret-secret-secret']");
    assert!(!error.contains("secret"), "{error}");
    let error = refusal("[http]\nadmin_tokens = 'secret-secret-secret'");
    assert!(!error.contains("secret"), "{error}");
    assert_tells(
        &refusal("[http]\nhosts = ['http://a']"),
        &["http.hosts", "http://a", "without port"],
    );
    assert_tells(
        &refusal("[http]\nopen_metrics = 'maybe'"),
        &["http.open_metrics", "maybe"],
    );
}

#[test]
fn a_url_of_several_hosts_is_refused_with_what_to_do_instead() {
    let refused = |url: &str| load("", &[("DATABASE_URL", url)]).unwrap_err().to_string();
    for url in ["postgres://u:p@one:5432,two:5432/app", "postgres://one,two/app"] {
        assert_tells(&refused(url), &["database.url", "an address that follows the primary"]);
    }
    assert!(
        load(
            "",
            &[("DATABASE_URL", "postgres://u:a%2Cb,c@one/app?application_name=a,b")]
        )
        .is_ok()
    );
}

/// Texts that are nearly configurations.
fn nearly_toml() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let key = proptest::sample::select(vec![
        "deployment",
        "url",
        "table",
        "name",
        "ahead",
        "retention",
        "drop_grace",
        "max_batch",
        "drain_default",
        "seal_days",
        "digest",
        "owner",
        "consumer_roles",
        "cron",
        "lock_timeout",
        "listen",
        "read_tokens",
        "secret_file",
        "format",
        "no_such_key",
    ]);
    let section = proptest::sample::select(vec![
        "",
        "[database]",
        "[[inbox]]",
        "[schedule]",
        "[maintenance]",
        "[http]",
        "[log]",
    ]);
    let value = prop_oneof![
        "'[ -~]{0,12}'",
        "[0-9]{1,25}",
        "\\[[0-9', ]{0,8}\\]",
        ".{0,12}",
        "'(7d|1h|forever|0|-1d)'"
    ];
    let line = (section, key, value).prop_map(|(section, key, value)| format!("{section}\n{key} = {value}\n"));
    proptest::collection::vec(line, 0..6).prop_map(|lines| lines.concat())
}

proptest::proptest! {
    #[test]
    fn whatever_a_file_says_is_taken_or_refused_with_a_sentence_and_no_password(
        text in proptest::prop_oneof![nearly_toml(), "(?s).{0,80}"],
    ) {
        let said = match load(&text, &[("DATABASE_URL", "postgres://inboxd:s3cr3t-f0r-n0b0dy@localhost/app")]) {
            Ok(config) => format!("{config:?}"),
            Err(error) => error.to_string(),
        };
        proptest::prop_assert!(!said.is_empty());
        proptest::prop_assert!(!said.contains("s3cr3t-f0r-n0b0dy"), "{said}");
    }
}
