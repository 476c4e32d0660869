//! The proxy itself, against the shared server.

use sqlx::{ConnectOptions, Connection, PgConnection};

use super::wire::begins_with;
use super::*;
use crate::support::inbox::sql;
use crate::support::server;

/// Longer than any answer takes, and short enough to wait for in vain.
const A_MOMENT: Duration = Duration::from_millis(300);

async fn start() -> (TestDatabase, Proxy) {
    let database = server::database().await;
    sql(&mut database.connect().await, "create table work (id int)").await;
    let proxy = Proxy::in_front_of(&database).await;
    (database, proxy)
}

/// How many rows are committed, as soon as they are as many as expected; or after a while.
async fn rows(database: &TestDatabase, expected: i64) -> i64 {
    let mut connection = database.connect().await;
    let begin = std::time::Instant::now();
    loop {
        let found: i64 = sqlx::query_scalar("select count(*) from work")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        if found == expected || begin.elapsed() > PATIENCE {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until no session but our own is on the database: what was cut off has come to its end.
async fn alone(database: &TestDatabase) {
    let others = "select count(*) = 0 from pg_stat_activity where datname = current_database() and pid <> $1";
    let mut connection = database.connect().await;
    let pid = crate::support::claims::pid_of(&mut connection).await;
    let begin = std::time::Instant::now();
    while !sqlx::query_scalar::<_, bool>(others)
        .bind(pid)
        .fetch_one(&mut connection)
        .await
        .unwrap()
    {
        assert!(begin.elapsed() < PATIENCE, "a session stays");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn insert_and_commit(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    sqlx::query("insert into work values (1)")
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}

#[tokio::test]
async fn a_simple_query_is_one_round_trip_and_a_first_prepared_one_is_two() {
    let (_database, proxy) = start().await;
    let mut connection = proxy.options().connect().await.unwrap();
    proxy.forget();
    sql(&mut connection, "select 1").await;
    assert_eq!((proxy.round_trips(), proxy.queries()), (1, vec!["select 1".to_owned()]));

    let mut counts = Vec::new();
    for _ in 0..2 {
        proxy.forget();
        let sum: i32 = sqlx::query_scalar("select 1 + $1")
            .bind(2)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(sum, 3);
        counts.push(proxy.round_trips());
    }
    assert_eq!(counts, [2, 1], "prepared, then run; the second time run alone");
}

#[tokio::test]
async fn what_is_larger_than_any_buffer_goes_through_whole() {
    let (_database, proxy) = start().await;
    let mut connection = proxy.options().connect().await.unwrap();
    proxy.forget();
    let text = "x".repeat(3_000_000);
    let back: String = sqlx::query_scalar("select $1 || $1")
        .bind(&text)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(back.len() == 2 * text.len() && proxy.round_trips() == 2);
}

#[tokio::test]
async fn a_commit_that_is_cut_before_it_never_happens() {
    let (database, proxy) = start().await;
    let mut connection = proxy.options().connect().await.unwrap();
    proxy.cut("commit", Cut::Before);
    insert_and_commit(&mut connection).await.unwrap_err();
    drop(connection);
    alone(&database).await;
    assert_eq!((rows(&database, 0).await, proxy.cuts()), (0, 1));
}

#[tokio::test]
async fn a_commit_that_is_cut_after_it_happens_and_its_client_does_not_know() {
    let (database, proxy) = start().await;
    let mut connection = proxy.options().connect().await.unwrap();
    proxy.cut("COMMIT", Cut::After);
    insert_and_commit(&mut connection).await.unwrap_err();
    assert_eq!((rows(&database, 1).await, proxy.cuts()), (1, 1));
    // It is done with: the next one passes.
    insert_and_commit(&mut proxy.options().connect().await.unwrap())
        .await
        .unwrap();
    assert_eq!((rows(&database, 2).await, proxy.cuts()), (2, 1));
    drop(connection);
    alone(&database).await;
}

#[test]
fn a_word_is_a_whole_word_in_any_case_behind_comments() {
    for text in [
        "commit",
        "  COMMIT;",
        "Commit prepared 'x'",
        "-- why\n  commit",
        "-- why\nselect 1;\ncommit and chain",
    ] {
        assert!(begins_with(text, "COMMIT"), "{text}");
    }
    for text in [
        "",
        "comm",
        "committed",
        "commit_it()",
        "-- commit",
        "select 'commit'",
        "öööö",
    ] {
        assert!(!begins_with(text, "commit"), "{text}");
    }
}

#[tokio::test]
async fn a_refusal_is_that_of_a_closed_port_and_ends_when_allowed_again() {
    let (_database, mut proxy) = start().await;
    let mut before = proxy.options().connect().await.unwrap();
    proxy.refuse().await;
    let error = proxy.options().connect().await.unwrap_err();
    let sqlx::Error::Io(error) = error else {
        panic!("{error}")
    };
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    before.ping().await.unwrap();
    proxy.allow().await;
    proxy.options().connect().await.unwrap().ping().await.unwrap();
    assert_eq!(proxy.connections(), 2);
}

#[tokio::test]
async fn a_black_hole_takes_new_connections_and_never_answers() {
    let (_database, mut proxy) = start().await;
    let mut before = proxy.options().connect().await.unwrap();
    proxy.blackhole().await;
    let connecting = tokio::time::timeout(A_MOMENT, proxy.options().connect()).await;
    assert!(connecting.is_err(), "{connecting:?}");
    before.ping().await.unwrap();
    proxy.allow().await;
    proxy.options().connect().await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn an_answer_that_is_held_comes_once_released() {
    let (database, proxy) = start().await;
    let mut connection = proxy.options().connect().await.unwrap();
    proxy.hold();
    let mut waiting = tokio::spawn(async move { sql(&mut connection, "insert into work values (1)").await });
    proxy.wait_for_query("insert").await;
    assert_eq!(rows(&database, 1).await, 1, "the server has done it");
    let early = tokio::time::timeout(A_MOMENT, &mut waiting).await;
    assert!(early.is_err(), "the answer came through");
    proxy.release();
    tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn cutting_all_ends_what_is_there_and_lets_new_connections_through() {
    let (_database, proxy) = start().await;
    let mut connection = proxy.options().connect().await.unwrap();
    proxy.cut_all();
    tokio::time::timeout(PATIENCE, connection.ping())
        .await
        .unwrap()
        .unwrap_err();
    proxy.options().connect().await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn the_last_words_of_a_server_reach_the_client() {
    let (database, proxy) = start().await;
    let mut connection = proxy.options().connect().await.unwrap();
    let pid = crate::support::claims::pid_of(&mut connection).await;
    sqlx::query("select pg_terminate_backend($1, 20000)")
        .bind(pid)
        .execute(&mut database.connect().await)
        .await
        .unwrap();
    let error = connection.ping().await.unwrap_err();
    assert_eq!(crate::support::inbox::sqlstate(&error), "57P01", "{error:?}");
}
