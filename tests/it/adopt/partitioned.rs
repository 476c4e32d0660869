//! A table that is partitioned already: what `--check` says of it, and that the steps that it names lead to an inbox.

use super::*;
use crate::support::program::ask;

const BY_RANGE: &str = "create table inbox (message_id uuid not null, topic varchar(255) not null,
                        processed_at timestamptz not null default now()) partition by range (processed_at)";

/// The day that lies so many days from today.
fn day(ahead: i64) -> String {
    let day = inboxd::clock::Clock::system().now() + TimeDelta::days(ahead);
    day.format("%Y-%m-%d").to_string()
}

/// A partition made by hand.
fn made_by_hand(name: &str, from: i64, to: i64) -> String {
    format!(
        "create table {name} partition of inbox for values from ('{} 00:00+00') to ('{} 00:00+00');
         alter table {name} add primary key (message_id)",
        day(from),
        day(to)
    )
}

fn named(ahead: i64) -> String {
    format!("inbox_{}", day(ahead).replace('-', "_"))
}

/// What to do, by the last look.
fn remedies(url: &str) -> Vec<String> {
    let answer = ask(url, &["adopt", "--check", "--json"])
        .must(1, &["partitioned"])
        .json();
    let problems = answer["problems"].as_array().unwrap();
    let remedy = |problem: &serde_json::Value| problem["remedy"].as_str().unwrap().to_owned();
    problems.iter().map(remedy).collect()
}

/// It is taken over, looked after, and what it held is not forgotten.
async fn must_become_an_inbox(deployment: &Deployment, old: Uuid) {
    let url = &deployment.database.url;
    ask(url, &["adopt", "--check"]).must(0, &["partitioned already", "`inboxd init` takes it over as it is"]);
    ask(url, &["init"]).must(0, &[]);
    ask(url, &["run"]).must(0, &[]);
    let mut connection = deployment.database.connect().await;
    assert!(!claim(&mut connection, "inbox", old).await.unwrap());
    let new = random_id();
    assert!(claim(&mut connection, "inbox", new).await.unwrap());
    assert!(!claim(&mut connection, "inbox", new).await.unwrap());
    ask(url, &["check"]).must(0, &["all is well"]);
    ask(url, &["adopt", "--check"]).must(0, &["It is an inbox already"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn days_made_by_hand_are_mapped_when_names_and_bounds_are_those_of_days() {
    let parts: Vec<String> = (-2..3)
        .map(|ahead| made_by_hand(&named(ahead), ahead, ahead + 1))
        .collect();
    let deployment = with_table(&format!("{BY_RANGE}; {}", parts.join("; "))).await;
    let mut connection = deployment.database.connect().await;
    let old = random_id();
    insert_at(
        &mut connection,
        old,
        inboxd::clock::Clock::system().now() - TimeDelta::days(1),
    )
    .await;
    let url = &deployment.database.url;
    for arguments in [&["adopt", "--prepare"][..], &["adopt"], &["adopt", "--abort"]] {
        ask(url, arguments).must_fail(&["partitioned already", "inboxd init"]);
    }
    must_become_an_inbox(&deployment, old).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_a_day_is_refused_with_the_step_that_mends_it() {
    let create = [
        BY_RANGE.to_owned(),
        made_by_hand("inbox_week", -9, -2),
        made_by_hand("inbox_yesterday", -1, 0),
        made_by_hand(&named(0), 0, 1),
        "create table inbox_rest partition of inbox default; alter table inbox_rest add primary key (message_id)"
            .to_owned(),
    ]
    .join("; ");
    let deployment = with_table(&create).await;
    let mut connection = deployment.database.connect().await;
    let old = random_id();
    insert_at(
        &mut connection,
        old,
        inboxd::clock::Clock::system().now() - TimeDelta::days(1),
    )
    .await;
    let url = &deployment.database.url;
    let found = remedies(url);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].contains("drain_default = true"), "{found:?}");
    assert!(found[1].contains("detach it by hand"), "{found:?}");
    let (_, rename) = found[2].split_once("in a quiet moment: ").unwrap();
    sql(&mut connection, rename).await;
    sql(
        &mut connection,
        "alter table inbox detach partition inbox_rest; alter table inbox detach partition inbox_week",
    )
    .await;
    must_become_an_inbox(&deployment, old).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_key_that_catches_no_duplicate_is_refused_with_the_statement_that_drops_it() {
    let deployment = with_table(&format!(
        "{}; create table {name} partition of inbox for values from ('{} 00:00+00') to ('{} 00:00+00');
         alter table inbox add primary key (message_id, processed_at); create unique index on {name} (message_id)",
        BY_RANGE,
        day(0),
        day(1),
        name = named(0),
    ))
    .await;
    let mut connection = deployment.database.connect().await;
    let old = random_id();
    insert_at(&mut connection, old, inboxd::clock::Clock::system().now()).await;
    let found = remedies(&deployment.database.url);
    let (_, drop_key) = found[0].split_once("then ").unwrap();
    sql(&mut connection, drop_key).await;
    must_become_an_inbox(&deployment, old).await;
}

/// PostgreSQL 15 of the system has pg_partman; the builds of the other versions come without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_pg_partman_becomes_an_inbox_by_the_steps_that_the_check_names() {
    if std::env::var_os("INBOXD_TEST_PG_BINDIR").is_some() {
        return;
    }
    let deployment = with_table(&format!("{BY_RANGE}; create schema partman")).await;
    let mut connection = deployment.database.connect().await;
    sqlx::raw_sql("create extension pg_partman schema partman")
        .execute(&mut connection)
        .await
        .expect("pg_partman is needed: apt-get install postgresql-15-partman");
    sql(
        &mut connection,
        "set timezone = 'UTC';
         select partman.create_parent('public.inbox', 'processed_at', 'native', 'daily', p_premake := 3);
         update partman.part_config set retention = '7 days', retention_keep_table = false",
    )
    .await;
    let old = random_id();
    insert_at(
        &mut connection,
        old,
        inboxd::clock::Clock::system().now() - TimeDelta::days(1),
    )
    .await;
    let found = remedies(&deployment.database.url);
    assert_eq!(
        found[0], "delete from \"partman\".part_config where parent_table = 'public.inbox'",
        "{found:?}"
    );
    assert!(found.iter().any(|step| step.contains("drain_default")), "{found:?}");
    for step in &found {
        if step.starts_with("delete") {
            sql(&mut connection, step).await;
        } else if let Some((_, rename)) = step.split_once("in a quiet moment: ") {
            sql(&mut connection, rename).await;
        }
    }
    // Before version 5 it had a template table beside its configuration; that is nobody's now, and may be dropped.
    sql(&mut connection, "alter table inbox detach partition inbox_default").await;
    let keyless: Vec<String> = deployment.partitions("inbox").await;
    assert!(keyless.len() >= 7, "{keyless:?}");
    let noted = ask(&deployment.database.url, &["adopt", "--check"]).must(0, &["until a run has made it"]);
    assert_eq!(
        noted.out.matches("until a run has made it").count(),
        keyless.len(),
        "{noted:?}"
    );
    must_become_an_inbox(&deployment, old).await;
}
