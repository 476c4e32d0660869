//! What stands in `deploy` does what it says, against a real server: the roles, the statement for the day when the service is
//! gone, and the commands of the runbook.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use inboxd::{Consumers, InboxSpec, TableName};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection};

use crate::support::{
    clock::ClockServer,
    folder::Folder,
    inbox::{Deployment, claim, codes, random_id, spec, sql, sqlstate, try_claim, v7_at, v7_spec},
    program::{Answer, ask, config_file, inboxd},
    server,
};

const ROLES: &str = include_str!("../../deploy/roles.sql");
const EMERGENCY: &str = include_str!("../../deploy/emergency_create.sql");
const MINIMAL: &str = include_str!("../../deploy/inboxd.minimal.toml");
const RUNBOOK: &str = include_str!("../../docs/runbook.md");

async fn refused(connection: &mut PgConnection, statement: &str) {
    let error = sqlx::query(AssertSqlSafe(statement.to_owned()))
        .execute(connection)
        .await
        .err()
        .unwrap_or_else(|| panic!("{statement} is allowed"));
    assert_eq!(sqlstate(&error), "42501", "{statement}: {error}");
}

/// Far from every midnight.
const NOON: &str = "2026-12-01T12:00:00Z";

/// As `psql -f` would, with another table than the file's.
async fn make_by_hand(connection: &mut PgConnection, table: &TableName) {
    let constant = "the_inbox constant regclass := 'public.inbox'";
    assert!(EMERGENCY.contains(constant));
    let quoted = table.quoted().replace('\'', "''");
    let text = EMERGENCY.replace(constant, &format!("the_inbox constant regclass := '{quoted}'"));
    sql(connection, text).await;
}

#[tokio::test]
async fn with_the_roles_of_the_file_the_service_works_and_a_consumer_claims_and_does_nothing_else() {
    // Roles are the server's.
    let server = server::own(&[]).await;
    let database = server.database().await;
    let mut superuser = database.connect().await;
    sql(&mut superuser, ROLES).await;
    sql(
        &mut superuser,
        "create role orders login; grant inbox_consumer to orders",
    )
    .await;
    let folder = Folder::new();
    let config = config_file(folder.path(), MINIMAL);
    let url = database.url.replacen("user=postgres", "user=inboxd_service", 1);
    assert_ne!(url, database.url);
    let ask = |arguments: &[&str]| {
        Answer::of(
            inboxd(arguments)
                .env("DATABASE_URL", &url)
                .env("INBOXD_CONFIG", &config),
        )
    };

    ask(&["init"]).must(0, &["main.public.inbox: table made"]);
    // What only the first init needs can be taken back.
    sql(
        &mut superuser,
        format!("revoke create on database {} from inboxd_service", database.name),
    )
    .await;
    ask(&["init"]).must(0, &["table was there"]);
    ask(&["run"]).must(0, &["8 of 8 steps done"]);
    ask(&["check"]).must(0, &["all is well"]);
    ask(&["plan"]).must(0, &["nothing to do"]);
    let status = ask(&["status", "--json"]).must(0, &[]).json();
    assert_eq!(status["databases"][0]["inboxes"][0]["findings"], serde_json::json!([]));

    let owners: Vec<String> = sqlx::query_scalar(
        "select distinct relowner::regrole::text from pg_class
         where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')",
    )
    .fetch_all(&mut superuser)
    .await
    .unwrap();
    assert_eq!(owners, ["inbox_owner"]);

    let mut consumer = database.options.clone().username("orders").connect().await.unwrap();
    let id = random_id();
    assert!(claim(&mut consumer, "inbox", id).await.unwrap());
    assert!(!claim(&mut consumer, "inbox", id).await.unwrap());
    let leaf: String = sqlx::query_scalar(
        "select inhrelid::regclass::text from pg_inherits where inhparent = 'inbox'::regclass limit 1",
    )
    .fetch_one(&mut superuser)
    .await
    .unwrap();
    for relation in ["inbox", leaf.as_str()] {
        refused(&mut consumer, &format!("select * from {relation}")).await;
        refused(
            &mut consumer,
            &format!("insert into {relation} values (gen_random_uuid(), 'x')"),
        )
        .await;
        refused(&mut consumer, &format!("update {relation} set topic = 'x'")).await;
        refused(&mut consumer, &format!("delete from {relation}")).await;
        refused(&mut consumer, &format!("drop table {relation}")).await;
    }
    refused(&mut consumer, &format!("select inbox_forget('{id}')")).await;
    refused(&mut consumer, "select * from inboxd.inboxes").await;
    refused(&mut consumer, "set role inbox_owner").await;
    for role in ["inbox_owner", "inbox_consumer"] {
        let login = database.options.clone().username(role).connect().await;
        assert_eq!(sqlstate(&login.unwrap_err()), "28000", "{role} is nobody's login");
    }
    // A right that the owner has no use for would be one for whoever tricks a claim function.
    let needless: bool = sqlx::query_scalar(
        "select bool_or(rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls)
         from pg_roles where rolname in ('inbox_owner', 'inboxd_service', 'inbox_consumer')",
    )
    .fetch_one(&mut superuser)
    .await
    .unwrap();
    assert!(!needless);
}

#[tokio::test]
async fn the_roles_are_made_by_who_owns_the_database_and_may_make_roles_and_is_no_superuser() {
    let server = server::own(&[]).await;
    let database = server.database().await;
    let mut superuser = database.connect().await;
    // As on a managed server. On 14 `public` is the superuser's, whatever database it stands in.
    sql(
        &mut superuser,
        format!(
            "create role administrator login createrole createdb;
             alter database {} owner to administrator; alter schema public owner to administrator",
            database.name
        ),
    )
    .await;
    let version: i32 = sqlx::query_scalar("select current_setting('server_version_num')::int")
        .fetch_one(&mut superuser)
        .await
        .unwrap();
    let mut administrator = database
        .options
        .clone()
        .username("administrator")
        .connect()
        .await
        .unwrap();
    let statistics = "grant pg_read_all_stats to inboxd_service;";
    assert!(ROLES.contains(statistics));
    // From 16 on it takes the admin option of that role.
    let roles = if version < 160_000 {
        ROLES.to_owned()
    } else {
        ROLES.replace(statistics, "")
    };
    sql(&mut administrator, roles).await;
    let folder = Folder::new();
    let config = config_file(folder.path(), MINIMAL);
    let url = database.url.replacen("user=postgres", "user=inboxd_service", 1);
    for (command, said) in [
        ("init", "table made"),
        ("run", "8 of 8 steps done"),
        ("check", "all is well"),
    ] {
        let mut program = inboxd(&[command]);
        Answer::of(program.env("DATABASE_URL", &url).env("INBOXD_CONFIG", &config)).must(0, &[said]);
    }
}

/// An inbox of each shape, in a schema and with a name that need quotes, for one consumer and for many.
fn shapes() -> Vec<InboxSpec> {
    let mut specs = vec![
        spec("public.by_time"),
        v7_spec("public.by_id"),
        spec("\"Odd one\".\"in\"\"box; drop\""),
        v7_spec("public.\"it's shared\""),
    ];
    specs[2].policy.consumers = Consumers::Many;
    specs[3].policy.consumers = Consumers::Many;
    specs
}

#[tokio::test]
async fn what_the_emergency_statement_makes_is_taken_by_inboxd_as_its_own() {
    let server = ClockServer::start(&[]).await;
    server.set_to(NOON.parse().unwrap());
    let database = server.database().await;
    let mut superuser = database.connect().await;
    let role = format!("role_{}", random_id().simple());
    // Default privileges give tables to others, and the inbox has privileges of its own: each partition has the inbox's.
    sql(
        &mut superuser,
        format!(
            "create schema \"Odd one\"; create role {role}; grant create, usage on schema public, \"Odd one\" to {role};
             alter default privileges in schema public grant update on tables to public"
        ),
    )
    .await;
    let mut specs = shapes();
    specs[0].owner = Some(inboxd::Ident::new(role.as_str()).unwrap());
    let deployment = Deployment::new(database, server.clock(), specs);
    deployment.init().await.unwrap();
    for spec in &deployment.specs {
        let table = spec.table.quoted();
        sql(
            &mut superuser,
            format!(
                "revoke update on {table} from public; grant select on {table} to {role} with grant option;
                 alter table {table} replica identity full"
            ),
        )
        .await;
    }
    // Whatever this session calls a day.
    sql(
        &mut superuser,
        "set timezone = 'Pacific/Kiritimati'; set datestyle = 'German'",
    )
    .await;
    for _ in 0..2 {
        for spec in &deployment.specs {
            make_by_hand(&mut superuser, &spec.table).await;
        }
    }
    sql(&mut superuser, "reset timezone; reset datestyle").await;
    for spec in &deployment.specs {
        let made = deployment.partitions(&spec.table.quoted()).await;
        assert_eq!(made.len(), 8, "{made:?}");
    }
    let id = random_id();
    assert_eq!(try_claim(&mut superuser, "by_time", id, None).await.unwrap(), "fresh");
    assert_eq!(
        try_claim(&mut superuser, "by_time", id, None).await.unwrap(),
        "duplicate"
    );
    let now: chrono::DateTime<chrono::Utc> = sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(&mut superuser)
        .await
        .unwrap();
    let id = v7_at(now);
    assert_eq!(try_claim(&mut superuser, "by_id", id, None).await.unwrap(), "fresh");

    for planned in deployment.plan().await {
        let (plan, table) = (&planned.plan, &planned.table);
        assert_eq!(codes(plan), Vec::<String>::new(), "{table}: {:?}", plan.findings);
        // By id the past days are wanted too, which no claim of today needs; nothing that was made wants mending.
        let days: BTreeSet<_> = plan
            .steps
            .iter()
            .map(|step| (step.action.as_str(), step.day.unwrap()))
            .collect();
        let today = inboxd::Day::containing(now);
        assert!(
            days.iter().all(|(action, day)| *action == "create" && *day < today),
            "{table}: {days:?}"
        );
    }
    deployment.done().await;
    for planned in deployment.plan().await {
        assert!(
            planned.plan.steps.is_empty() && planned.plan.findings.is_empty(),
            "{planned:?}"
        );
    }
}

#[tokio::test]
async fn the_emergency_statement_leaves_a_day_that_is_in_the_way_and_what_is_no_inbox() {
    let server = ClockServer::start(&[]).await;
    server.set_to(NOON.parse().unwrap());
    let deployment = Deployment::new(server.database().await, server.clock(), vec![spec("public.inbox")]);
    deployment.init().await.unwrap();
    let mut superuser = deployment.database.connect().await;
    let tomorrow = "inbox_2026_12_02";
    sql(&mut superuser, format!("create table {tomorrow} (mine text)")).await;
    make_by_hand(&mut superuser, &deployment.specs[0].table).await;
    let others = [1, 3, 4, 5, 6, 7, 8].map(|day| format!("inbox_2026_12_0{day}"));
    assert_eq!(deployment.partitions("inbox").await, others);
    let columns: Vec<String> = sqlx::query_scalar(
        "select attname::text from pg_attribute where attrelid = 'inbox_2026_12_02'::regclass and attnum > 0",
    )
    .fetch_all(&mut superuser)
    .await
    .unwrap();
    assert_eq!(columns, ["mine"], "whose it was, it is");
    let loose: i64 = sqlx::query_scalar(
        "select count(*) from pg_class where relname like 'inbox_2%' and relkind = 'r' and not relispartition",
    )
    .fetch_one(&mut superuser)
    .await
    .unwrap();
    assert_eq!(loose, 1, "nothing half-made remains");
    for table in [tomorrow, "pg_catalog.pg_class"] {
        let text = EMERGENCY.replace("'public.inbox'", &format!("'{table}'"));
        let error = sqlx::raw_sql(AssertSqlSafe(text))
            .execute(&mut superuser)
            .await
            .unwrap_err();
        assert_eq!(sqlstate(&error), "P0001", "{error}");
    }
}

/// The shell commands of the runbook that run inboxd, a line each.
fn commands() -> Vec<Vec<&'static str>> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in RUNBOOK.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside && line.starts_with("inboxd ") {
            let command = line.split(" #").next().unwrap();
            commands.push(words(command));
        }
    }
    commands
}

/// Words as a shell splits them; double quotes hold one together.
fn words(line: &'static str) -> Vec<&'static str> {
    line.split('"')
        .enumerate()
        .flat_map(|(index, part)| {
            if index % 2 == 1 {
                vec![part]
            } else {
                part.split_whitespace().collect()
            }
        })
        .collect()
}

#[tokio::test]
async fn every_inboxd_command_of_the_runbook_is_understood() {
    let url = server::database().await.url;
    ask(&url, &["init"]).must(0, &[]);
    ask(&url, &["run"]).must(0, &[]);
    let commands = commands();
    assert!(commands.len() > 10, "{commands:?}");
    let mut seen = BTreeSet::new();
    for command in commands {
        let arguments = &command[1..];
        if arguments[0] == "serve" || !seen.insert(arguments.to_vec()) {
            continue;
        }
        // What clap refuses says how it is used. What cannot be done just now is no mistake of the runbook.
        let answer = ask(&url, arguments);
        assert!(!answer.err.contains("Usage:"), "{command:?}: {answer:?}");
        assert!(!answer.err.contains("needs --yes"), "{command:?}: {answer:?}");
        assert!(!answer.err.contains("no inbox"), "{command:?}: {answer:?}");
        assert!(matches!(answer.code, Some(0..=2)), "{command:?}: {answer:?}");
    }
}

/// Every file below `deploy` with this ending.
fn files(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    found
}

/// The configuration in the manifests, which are the chart's with its own values.
fn of_the_chart() -> String {
    let manifests = include_str!("../../deploy/kubernetes/inboxd.yaml");
    let (_, block) = manifests.split_once("  inboxd.toml: |\n").unwrap();
    let (block, _) = block.split_once("\n---\n").unwrap();
    block.lines().map(|line| format!("{}\n", line.trim_start())).collect()
}

#[test]
fn every_example_configuration_loads() {
    let folder = Folder::new();
    let mut files = files("toml");
    files.push(config_file(folder.path(), &of_the_chart()));
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let environment = [
            ("DATABASE_URL", "postgres://inboxd_service@localhost/app"),
            ("READ_TOKEN", "0123456789abcdef-read"),
            ("ADMIN_TOKEN", "0123456789abcdef-admin"),
        ];
        let variables = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let loaded = inboxd::service::config::Config::load(Some(&file), variables);
        let loaded = loaded.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(loaded.databases[0].inboxes.len(), 1, "{}", file.display());
    }
}
