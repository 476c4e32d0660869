//! The program is killed at every step of every move, and run again: it ends as if nothing had happened.

use std::process::{Child, Stdio};

use sqlx::{AssertSqlSafe, ConnectOptions};

use super::*;
use crate::support::{
    folder::Folder,
    program::{A_WHILE, config_file},
    proxy::{Cut, Proxy},
};

/// Everything that a move leaves: the catalog of the application's schema, and what is on record. Ids and lock keys, which
/// are made by chance, are left out.
const FINGERPRINT: &str = include_str!("fingerprint.sql");

/// One day after the adopted ones is enough here: each more is ten statements more.
const CONFIG: &str = "deployment = 'test'\n[[inbox]]\ntable = 'public.inbox'\nahead = 3\n";

/// What a move begins with, and how it is called.
struct Move {
    server: ClockServer,
    begins_with: TestDatabase,
    arguments: &'static [&'static str],
    old: Uuid,
    folder: Folder,
}

impl Move {
    /// A move of a table that is so far that these commands have been run on it.
    async fn after(commands: &[&[&str]], arguments: &'static [&'static str]) -> Self {
        let server = ClockServer::start(&[]).await;
        server.set_to("2026-12-02T12:00:00Z".parse().unwrap());
        let begins_with = server.database().await;
        let mut connection = begins_with.connect().await;
        let columns =
            "message_id uuid primary key, topic varchar(255), processed_at timestamptz not null default now()";
        sql(
            &mut connection,
            format!("create table inbox ({columns}); grant select on inbox to public"),
        )
        .await;
        let old = random_id();
        insert_at(&mut connection, old, server.now() - TimeDelta::days(2)).await;
        connection.close().await.unwrap();
        let this = Self {
            server,
            begins_with,
            arguments,
            old,
            folder: Folder::new(),
        };
        for arguments in commands {
            this.run(&this.begins_with.url, arguments).must(0, &[]);
        }
        this
    }

    fn command(&self, url: &str, arguments: &[&str]) -> std::process::Command {
        let mut command = inboxd(arguments);
        command
            .env("DATABASE_URL", url)
            .env("INBOXD_CONFIG", config_file(self.folder.path(), CONFIG))
            .envs(self.server.shim_environment());
        command
    }

    fn run(&self, url: &str, arguments: &[&str]) -> Answer {
        Answer::of(&mut self.command(url, arguments))
    }

    fn start(&self, url: &str) -> Child {
        let mut command = self.command(url, self.arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    async fn copy(&self) -> TestDatabase {
        let copy = self.server.server.copy_of(&self.begins_with).await;
        let mut connection = copy.connect().await;
        if is_on_record(&mut connection).await {
            // Else it would be known for a copy, and left alone.
            let own = "(select oid from pg_database where datname = current_database())";
            sql(
                &mut connection,
                format!("update inboxd.inboxes set database_oid = {own}"),
            )
            .await;
        }
        connection.close().await.unwrap();
        copy
    }

    async fn drop_copy(&self, copy: TestDatabase) {
        let mut admin = self
            .server
            .server
            .cluster
            .connect_options("postgres")
            .connect()
            .await
            .unwrap();
        let statement = format!("drop database {} with (force)", copy.name);
        sqlx::query(AssertSqlSafe(statement)).execute(&mut admin).await.unwrap();
    }

    /// Runs it through, and through a proxy that counts: what it leaves, its simple queries and its round trips.
    async fn undisturbed(&self) -> (Vec<String>, usize, usize) {
        let copy = self.copy().await;
        let proxy = Proxy::in_front_of(&copy).await;
        let mut child = self.start(&proxy.url());
        assert!(ended(&mut child).await, "undisturbed it succeeds");
        let left = fingerprint(&copy).await;
        let counted = (left, proxy.queries().len(), proxy.round_trips());
        self.drop_copy(copy).await;
        counted
    }

    /// Kills it at each of its statements in turn.
    async fn killed_at_each(self) {
        let (expected, queries, round_trips) = self.undisturbed().await;
        assert!(expected.len() > 15, "{expected:#?}");
        let every_round_trip = std::env::var_os("INBOXD_TEST_EVERY_ROUND_TRIP").is_some();
        let times = if every_round_trip { round_trips } else { queries };
        assert!(times > 3, "{times}");
        let before = fingerprint(&self.copy().await).await;
        let mut undone = 0;
        for number in 1..=times {
            let copy = self.copy().await;
            let proxy = Proxy::in_front_of(&copy).await;
            if every_round_trip {
                proxy.cut_at_round_trip(number, Cut::Held);
            } else {
                proxy.cut_at_query(number, Cut::Held);
            }
            let mut child = self.start(&proxy.url());
            let held = held(&proxy, &mut child).await;
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(held, "{:?}: it never came to {number} of {times}", self.arguments);
            let at = proxy.queries().last().cloned().unwrap_or_default();
            proxy.cut_all();
            alone(&copy).await;
            undone += usize::from(fingerprint(&copy).await == before);

            // Whatever there is now works: an old row is a duplicate, and a new one is not.
            let mut connection = copy.connect().await;
            assert!(!claim_or_insert(&mut connection, self.old).await, "{number}: {at}");
            let new = random_id();
            assert!(claim_or_insert(&mut connection, new).await, "{number}: {at}");
            assert!(!claim_or_insert(&mut connection, new).await, "{number}: {at}");
            connection.close().await.unwrap();

            let again = self.run(&copy.url, self.arguments);
            let was_done = again.err.contains("no inbox on record");
            assert!(again.code == Some(0) || was_done, "{number}: {at}: {again:?}");
            let left = fingerprint(&copy).await;
            assert_eq!(
                left, expected,
                "{:?} killed at {number} of {times}: {at}",
                self.arguments
            );
            self.drop_copy(copy).await;
        }
        println!(
            "{:?}: killed {times} times, {undone} times before anything had changed",
            self.arguments
        );
        assert!(undone > 0, "those at its beginning change nothing");
    }
}

/// Waits for the end of a program; whether it succeeded.
async fn ended(child: &mut Child) -> bool {
    for _ in 0..A_WHILE.as_millis() / 5 {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("it does not end");
}

/// Waits until the program is held at the statement that it is to be killed at; whether it came so far.
async fn held(proxy: &Proxy, child: &mut Child) -> bool {
    for _ in 0..A_WHILE.as_millis() / 5 {
        if proxy.cuts() > 0 {
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return proxy.cuts() > 0;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

/// Waits until the session of the killed program is gone, with its locks.
async fn alone(database: &TestDatabase) {
    let mut connection = database.connect().await;
    for _ in 0..6_000 {
        let sessions: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap();
        if sessions == 0 {
            connection.close().await.unwrap();
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("its session stays");
}

async fn is_on_record(connection: &mut PgConnection) -> bool {
    sqlx::query_scalar("select to_regclass('inboxd.inboxes') is not null")
        .fetch_one(connection)
        .await
        .unwrap()
}

async fn fingerprint(database: &TestDatabase) -> Vec<String> {
    let mut connection = database.connect().await;
    let has_record = is_on_record(&mut connection).await;
    let on_record = if has_record { ON_RECORD } else { "" };
    let left = sqlx::query_scalar(AssertSqlSafe(format!("{FINGERPRINT}{on_record} order by 1")))
        .fetch_all(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    left
}

const ON_RECORD: &str = "
  union all
  select concat_ws(' ', 'on record:', schema_name, table_name, deployment) from inboxd.inboxes
  union all
  select concat_ws(' ', 'day on record:', day, relation_oid::regclass, detached_at, dropped_at) from inboxd.partitions
  union all
  select concat_ws(' ', 'on the audit:', action, detail) from inboxd.audit";

/// The claim function where there is one already, and the insert of old otherwise.
async fn claim_or_insert(connection: &mut PgConnection, id: Uuid) -> bool {
    match claim(connection, "inbox", id).await {
        Ok(is_fresh) => is_fresh,
        Err(error) => {
            assert_eq!(sqlstate(&error), "42883", "{error}");
            insert_old(connection, id).await.unwrap()
        }
    }
}

const PREPARE: &[&str] = &["adopt", "--prepare"];
const SWAP: &[&str] = &["adopt", "--confirm-consumers-moved"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preparation_that_is_killed_anywhere_and_run_again_ends_the_same() {
    Move::after(&[], PREPARE).await.killed_at_each().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swap_that_is_killed_anywhere_and_run_again_ends_the_same() {
    Move::after(&[PREPARE], SWAP).await.killed_at_each().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taking_it_back_when_killed_anywhere_and_run_again_ends_the_same() {
    Move::after(&[PREPARE], &["adopt", "--abort"])
        .await
        .killed_at_each()
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_killed_anywhere_and_run_again_ends_the_same() {
    let commands = &[PREPARE, SWAP, &["run"]];
    let release = Move::after(commands, &["release", "main.public.inbox", "--yes"]).await;
    release.killed_at_each().await;
}
