//! Logical replication of an inbox to a second server: what works over new days, and what is told before it breaks.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use inboxd::InboxSpec;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::support::{
    clock::ClockServer,
    inbox::{Deployment, claim, codes, random_id, spec, sql, try_claim, v7_at, v7_spec},
    program::{A_WHILE, ask},
    server,
};

const NOON: &str = "2026-12-01T12:00:00Z";

async fn managed(server: &ClockServer, specs: Vec<InboxSpec>) -> Deployment {
    server.set_to(NOON.parse().unwrap());
    let deployment = Deployment::new(server.database().await, server.clock(), specs);
    deployment.init().await.unwrap();
    deployment.done().await;
    deployment
}

/// Waits until the subscriber has as many rows.
async fn must_have(subscriber: &Deployment, table: &str, rows: i64) {
    must_count(subscriber, &format!("select count(*) from {table}"), rows).await;
}

async fn must_count(subscriber: &Deployment, statement: &str, wanted: i64) {
    let mut connection = subscriber.database.connect().await;
    let begin = Instant::now();
    loop {
        let found: i64 = sqlx::query_scalar(AssertSqlSafe(statement.to_owned()))
            .fetch_one(&mut connection)
            .await
            .unwrap();
        if found == wanted {
            return;
        }
        assert!(begin.elapsed() < A_WHILE, "{statement}: {found}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inserts_published_through_the_root_reach_an_inbox_on_a_second_server_over_new_days_and_a_forget() {
    // A stepped clock would end the connection between the two for its silence.
    let logical = [
        ("wal_level", "logical"),
        ("wal_sender_timeout", "0"),
        ("wal_receiver_timeout", "0"),
        ("wal_retrieve_retry_interval", "100ms"),
    ];
    let (first, second) = (ClockServer::start(&logical).await, ClockServer::start(&logical).await);
    let specs = || vec![spec("public.inbox"), v7_spec("public.by_id")];
    let (publisher, subscriber) = (managed(&first, specs()).await, managed(&second, specs()).await);
    let (mut here, mut there) = (publisher.database.connect().await, subscriber.database.connect().await);
    sql(
        &mut here,
        "create publication inboxes for table public.inbox, public.by_id
         with (publish = 'insert', publish_via_partition_root = true)",
    )
    .await;
    let subscribe = format!(
        "create subscription inboxes connection '{}' publication inboxes",
        publisher.database.url
    );
    sql(&mut there, subscribe).await;
    // What is forgotten before a table is first copied is not in the copy.
    let ready = "select count(*) from pg_subscription_rel where srsubstate = 'r'";
    must_count(&subscriber, ready, 2).await;
    let mut claimed: Vec<(&str, Uuid)> = Vec::new();
    // Beyond the days that were there when it began.
    for day in 0..9 {
        if day > 0 {
            first.step(TimeDelta::days(1));
            second.step(TimeDelta::days(1));
            publisher.done().await;
            subscriber.done().await;
        }
        for (table, id) in [("inbox", random_id()), ("by_id", v7_at(first.now()))] {
            assert!(claim(&mut here, table, id).await.unwrap());
            claimed.push((table, id));
        }
        // A forget on the publisher deletes, which is not published: nothing stops over it.
        let forgotten = random_id();
        claim(&mut here, "inbox", forgotten).await.unwrap();
        let done: bool = sqlx::query_scalar("select inbox_forget($1, null, 'a test')")
            .bind(forgotten)
            .fetch_one(&mut here)
            .await
            .unwrap();
        assert!(done);
        // What has expired is detached, and then dropped, on both.
        let days_left = i64::from(day) + 1 - i64::from(day > 7);
        must_have(&subscriber, "inbox", 2 * days_left).await;
        must_have(&subscriber, "by_id", days_left).await;
    }
    for deployment in [&publisher, &subscriber] {
        for planned in deployment.plan().await {
            assert_eq!(codes(&planned.plan), [""; 0], "{:?}", planned.plan.findings);
        }
    }
    // Consumers that move to the second server find what was claimed on the first.
    for (table, id) in claimed.into_iter().rev().take(12) {
        assert_eq!(
            try_claim(&mut there, table, id, None).await.unwrap(),
            "duplicate",
            "{table} {id}"
        );
    }
    sql(&mut there, "drop subscription inboxes").await;
}

#[tokio::test]
async fn any_other_publication_of_an_inbox_fails_the_check_and_its_remedy_mends_it() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    ask(&database.url, &["run"]).must(0, &[]);
    let mut admin = database.connect().await;
    let leaf: String =
        sqlx::query_scalar("select min(inhrelid::regclass::text) from pg_inherits where inhparent = 'inbox'::regclass")
            .fetch_one(&mut admin)
            .await
            .unwrap();
    let good = "publish = 'insert', publish_via_partition_root = true";
    for (what, fits) in [
        (format!("for table inbox with ({good})"), true),
        ("for table inbox".to_owned(), false),
        ("for table inbox with (publish = 'insert')".to_owned(), false),
        (
            "for table inbox with (publish_via_partition_root = true)".to_owned(),
            false,
        ),
        (
            "for table inbox with (publish = 'insert, delete', publish_via_partition_root = true)".to_owned(),
            false,
        ),
        (format!("for table {leaf}"), false),
        ("for all tables".to_owned(), false),
        (format!("for all tables with ({good})"), true),
        ("for table inboxd.runs".to_owned(), true),
    ] {
        sql(&mut admin, format!("create publication \"Every\"\"thing\" {what}")).await;
        let answer = ask(&database.url, &["check"]);
        if fits {
            answer.must(0, &["all is well"]);
        } else {
            let remedy =
                "alter publication \"Every\"\"thing\" set (publish = 'insert', publish_via_partition_root = true)";
            answer.must(2, &["publication \"Every\"\"thing\" publishes", remedy]);
            sql(&mut admin, remedy).await;
            ask(&database.url, &["check"]).must(0, &["all is well"]);
        }
        sql(&mut admin, "drop publication \"Every\"\"thing\"").await;
    }
}
