//! `docs/other-languages.md`: its Python consumer is run as it stands there, and its vectors are those of the file.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use uuid::Uuid;

use crate::support::{
    inbox::{Deployment, claim, spec, sql, v7_spec},
    proxy::{Cut, Proxy},
};

/// Long enough for a loaded machine; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

const PAGE: &str = include_str!("../../docs/other-languages.md");
const EXAMPLE: &str = include_str!("../../docs/examples/consumer.py");
const VECTORS: &str = include_str!("vectors/message_ids.json");

/// Python with psycopg and the example within its reach.
fn python() -> Command {
    static CHECKED: OnceLock<bool> = OnceLock::new();
    let there = CHECKED.get_or_init(|| {
        let mut ask = interpreter().into_std();
        ask.args(["-c", "import psycopg"])
            .output()
            .is_ok_and(|output| output.status.success())
    });
    assert!(
        there,
        "python3 and psycopg are needed to run the Python example; install them with: tests/psycopg"
    );
    interpreter()
}

fn interpreter() -> Command {
    let psycopg = std::env::var_os("INBOXD_PYTHON_DIR").map_or_else(|| "/var/tmp/inboxd-python".into(), PathBuf::from);
    let reach = std::env::join_paths([psycopg, examples()]).unwrap();
    let mut command = Command::new("python3");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(&name);
        }
    }
    command
        .env("PYTHONPATH", reach)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUTF8", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples")
}

/// The example as a running script. It ends with its input, hence with the test process.
struct Consumer {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Consumer {
    fn start(url: &str) -> Self {
        let mut command = python();
        command.arg(examples().join("consumer.py"));
        Self::spawn(command, url)
    }

    /// The same with another handler, the body of `def handle(connection, delivery)`.
    fn handling_by(url: &str, body: &str) -> Self {
        let mut command = python();
        command.arg("-c").arg(format!(
            "import sys, psycopg, consumer\ndef handle(connection, delivery):\n    {body}\n\
             consumer.consume(consumer.connect_to_database, map(consumer.StandIn, sys.stdin), handle)"
        ));
        Self::spawn(command, url)
    }

    fn spawn(mut command: Command, url: &str) -> Self {
        let mut child = command
            .env("DATABASE_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take().unwrap(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    async fn send(&mut self, name: &str) {
        self.stdin
            .write_all(format!("{name} orders\n").as_bytes())
            .await
            .unwrap();
    }

    async fn line(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.lines.next_line())
            .await
            .expect("the consumer says something")
            .unwrap()
            .unwrap_or_default()
    }

    /// Delivers a message: its outcome and what was told the broker.
    async fn deliver(&mut self, name: &str) -> (String, String) {
        self.send(name).await;
        let (outcome, verdict) = (self.line().await, self.line().await);
        let behind_name = |line: String| line.strip_prefix(&format!("{name} ")).unwrap_or(&line).to_owned();
        (behind_name(outcome), behind_name(verdict))
    }

    /// Ends its input: its exit code and what it wrote to standard error.
    async fn end(self) -> (Option<i32>, String) {
        drop(self.stdin);
        let ended = tokio::time::timeout(PATIENCE, self.child.wait_with_output()).await;
        let output = ended.expect("the consumer ends").unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// Ends its input; it must have had nothing to complain about.
    async fn end_well(self) {
        assert_eq!(self.end().await, (Some(0), String::new()));
    }
}

/// `public.inbox` and the table of the work.
async fn deployment() -> (Deployment, PgConnection) {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut connection = deployment.database.connect().await;
    sql(&mut connection, "create table orders (name text, topic text)").await;
    (deployment, connection)
}

/// How often the work of all messages is done.
async fn orders(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar("select count(*) from orders")
        .fetch_one(connection)
        .await
        .unwrap()
}

fn vectors() -> Vec<Value> {
    serde_json::from_str(VECTORS).unwrap()
}

/// The id of a name, as the vectors have it.
fn id_of(name: &str) -> Uuid {
    let found = vectors()
        .into_iter()
        .find(|vector| vector["kind"] == "name" && vector["name"] == name);
    found.unwrap()["id"].as_str().unwrap().parse().unwrap()
}

fn pair(outcome: &str, verdict: &str) -> (String, String) {
    (outcome.to_owned(), verdict.to_owned())
}

#[test]
fn the_page_holds_the_example_as_it_is_run() {
    let (_, behind) = PAGE.split_once("```python\n").unwrap();
    let (block, _) = behind.split_once("```\n").unwrap();
    assert!(
        block == EXAMPLE,
        "docs/other-languages.md and docs/examples/consumer.py differ"
    );
}

#[test]
fn the_page_names_every_vector() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 7);
    for vector in vectors {
        let id = vector["id"].as_str().unwrap_or("refused");
        let row = match (vector["created_at"].as_str(), vector["name"].as_str().unwrap()) {
            (Some(created_at), name) => format!("| `{created_at}` | `{name}` | `{id}` |"),
            (None, "") => "| (empty) | refused |".to_owned(),
            (None, name) if name == "a".repeat(300) => format!("| 300 times `a` | `{id}` |"),
            (None, name) => format!("| `{name}` | `{id}` |"),
        };
        assert!(PAGE.contains(&row), "{row}");
    }
}

#[tokio::test]
async fn python_derives_the_ids_of_the_vectors() {
    let derive = "
import json, sys
from datetime import datetime
from consumer import message_id, time_ordered_id
ids = []
for vector in json.load(sys.stdin):
    try:
        if vector['kind'] == 'name':
            ids.append(str(message_id(vector['name'])))
        else:
            created_at = datetime.fromisoformat(vector['created_at'].replace('Z', '+00:00'))
            ids.append(str(time_ordered_id(created_at, vector['name'])))
    except ValueError:
        ids.append(None)
print(json.dumps(ids))";
    let mut child = python()
        .args(["-c", derive])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(VECTORS.as_bytes()).await.unwrap();
    drop(stdin);
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    let derived: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let wanted: Vec<Value> = vectors().into_iter().map(|mut vector| vector["id"].take()).collect();
    assert_eq!(derived, wanted);
}

#[tokio::test]
async fn a_message_is_fresh_once_and_acked_each_time() {
    let (deployment, mut connection) = deployment().await;
    let mut consumer = Consumer::start(&deployment.database.url);
    assert_eq!(consumer.deliver("order-1").await, pair("fresh", "ack"));
    assert_eq!(consumer.deliver("order-1").await, pair("duplicate", "ack"));
    assert_eq!(consumer.deliver("Größe").await, pair("fresh", "ack"));
    consumer.end_well().await;
    assert_eq!(orders(&mut connection).await, 2);
    // Any other client sees the same ids.
    assert!(!claim(&mut connection, "inbox", id_of("order-1")).await.unwrap());
    assert!(!claim(&mut connection, "inbox", id_of("Größe")).await.unwrap());
}

#[tokio::test]
async fn c3_a_message_in_flight_is_not_acked_and_is_fresh_once_its_twin_is_rolled_back() {
    let (deployment, mut connection) = deployment().await;
    let mut twin = deployment.database.connect().await;
    let mut transaction = twin.begin().await.unwrap();
    assert!(claim(&mut transaction, "inbox", id_of("order-1")).await.unwrap());
    let mut consumer = Consumer::start(&deployment.database.url);
    assert_eq!(consumer.deliver("order-1").await, pair("in_flight", "retry after 5"));
    assert_eq!(consumer.deliver("order-2").await, pair("fresh", "ack"));
    transaction.rollback().await.unwrap();
    assert_eq!(consumer.deliver("order-1").await, pair("fresh", "ack"));
    consumer.end_well().await;
    assert_eq!(orders(&mut connection).await, 2);
}

#[tokio::test]
async fn a_handler_that_fails_is_rolled_back_and_the_next_delivery_is_fresh() {
    let (deployment, mut connection) = deployment().await;
    // The SQLSTATE of a missing partition, from the handler: it must not stop the consumer.
    sql(
        &mut connection,
        "alter table orders add constraint refused check (name <> 'order-1')",
    )
    .await;
    let mut consumer = Consumer::start(&deployment.database.url);
    assert_eq!(consumer.deliver("order-1").await, pair("failed", "retry after 5"));
    assert_eq!(consumer.deliver("order-2").await, pair("fresh", "ack"));
    sql(&mut connection, "alter table orders drop constraint refused").await;
    assert_eq!(consumer.deliver("order-1").await, pair("fresh", "ack"));
    let (code, complaints) = consumer.end().await;
    assert!(code == Some(0) && complaints.contains("CheckViolation"), "{complaints}");
    assert_eq!(orders(&mut connection).await, 2);
}

#[tokio::test]
async fn c6_a_serialization_failure_runs_the_whole_unit_again_a_bounded_number_of_times() {
    let (deployment, mut connection) = deployment().await;
    sql(
        &mut connection,
        "create sequence tries;
         create function refuse() returns trigger language plpgsql as $$ begin
           if nextval('tries') % 4 <> 3 then raise exception using errcode = '40001', message = 'again'; end if;
           return new;
         end $$;
         create trigger refuse before insert on orders for each row execute function refuse()",
    )
    .await;
    let mut consumer = Consumer::start(&deployment.database.url);
    assert_eq!(consumer.deliver("order-1").await, pair("fresh", "ack"));
    assert_eq!(orders(&mut connection).await, 1);
    sql(&mut connection, "alter sequence tries restart with 4").await;
    sql(&mut connection, "alter sequence tries increment by 4").await;
    assert_eq!(consumer.deliver("order-2").await, pair("failed", "retry after 5"));
    consumer.end().await;
    let tries: i64 = sqlx::query_scalar("select last_value from tries")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(
        (tries, orders(&mut connection).await),
        (12, 1),
        "three tries, at 4, 8 and 12"
    );
}

#[tokio::test]
async fn c17_a_handler_that_swallows_an_sql_error_has_failed() {
    let (deployment, mut connection) = deployment().await;
    let body = "
    consumer.insert_order(connection, delivery)
    try:
        connection.execute('select 1 / 0')
    except psycopg.Error:
        pass";
    let mut consumer = Consumer::handling_by(&deployment.database.url, body);
    assert_eq!(consumer.deliver("order-1").await, pair("failed", "retry after 5"));
    let (_, complaints) = consumer.end().await;
    assert!(complaints.contains("COMMIT was answered with ROLLBACK"), "{complaints}");
    let fresh = claim(&mut connection, "inbox", id_of("order-1")).await.unwrap();
    assert!(fresh && orders(&mut connection).await == 0);
}

#[tokio::test]
async fn c18_when_the_connection_is_lost_during_commit_the_redelivery_decides() {
    for (cut, then) in [(Cut::Before, "fresh"), (Cut::After, "duplicate")] {
        let (deployment, mut connection) = deployment().await;
        let proxy = Proxy::in_front_of(&deployment.database).await;
        proxy.cut("commit", cut);
        let mut consumer = Consumer::start(&proxy.url());
        assert_eq!(consumer.deliver("order-1").await, pair("unknown", "retry after 5"));
        assert_eq!((proxy.cuts(), proxy.connections()), (1, 1), "not run again by itself");
        // Either its twin has ended by now, or the claim waits for it.
        assert_eq!(consumer.deliver("order-1").await, pair(then, "ack"));
        consumer.end_well().await;
        assert_eq!(orders(&mut connection).await, 1);
    }
}

#[tokio::test]
async fn c25_a_day_without_a_partition_pauses_the_consumer_and_acks_nothing() {
    let (deployment, mut connection) = deployment().await;
    for partition in deployment.partitions("inbox").await {
        sql(
            &mut connection,
            format!("alter table inbox detach partition {partition}"),
        )
        .await;
    }
    let mut consumer = Consumer::start(&deployment.database.url);
    consumer.send("order-1").await;
    assert_eq!(consumer.line().await, "order-1 retry after 5");
    assert_eq!(consumer.line().await, "", "it has ended");
    let (code, complaints) = consumer.end().await;
    assert!(
        code == Some(1) && complaints.starts_with("paused: no partition"),
        "{complaints}"
    );
}

#[tokio::test]
async fn c16_an_id_that_the_inbox_cannot_take_is_dead_lettered() {
    let deployment = Deployment::running(vec![v7_spec("public.inbox")]).await;
    let mut consumer = Consumer::start(&deployment.database.url);
    assert_eq!(consumer.deliver("order-1").await, pair("invalid", "dead_letter"));
    consumer.end_well().await;
}

#[tokio::test]
async fn c28_it_works_through_a_pooler_in_transaction_mode() {
    let (deployment, mut connection) = deployment().await;
    let bouncer = crate::support::pgbouncer::Bouncer::start(crate::support::server::shared().cluster.socket_dir());
    // The second comes to a session in which the first would have prepared its statements, under the same names.
    for first in [0, 8] {
        let mut consumer = Consumer::start(&bouncer.url(&deployment.database.name));
        // More often than psycopg needs to begin to prepare a statement.
        for round in first..first + 8 {
            let name = format!("order-{round}");
            assert_eq!(consumer.deliver(&name).await, pair("fresh", "ack"));
            assert_eq!(consumer.deliver(&name).await, pair("duplicate", "ack"));
        }
        consumer.end_well().await;
    }
    assert_eq!(orders(&mut connection).await, 16);
}
