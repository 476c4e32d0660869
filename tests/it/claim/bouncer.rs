//! Claims through pgbouncer in transaction mode, where a session is another one after each commit.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row};
use tokio::sync::Barrier;
use uuid::Uuid;

use super::{TABLES, new_id};
use crate::support::{
    claims::rows_of,
    inbox::{Deployment, spec, sql, v7_spec},
    pgbouncer::Bouncer,
    server,
};

/// Fewer than the clients, so that they share them.
const SERVER_SESSIONS: usize = 3;
const CLIENTS: usize = 6;

/// A claim without a prepared statement, which the next session would not know.
async fn claim(connection: &mut PgConnection, call: String) -> String {
    sqlx::query_scalar(AssertSqlSafe(call))
        .persistent(false)
        .fetch_one(connection)
        .await
        .unwrap()
}

/// The calls of a claim of one id, each of which gives its outcome.
fn calls(table: &str, id: Uuid) -> [String; 4] {
    [
        format!("select case when {table}_claim('{id}', 'orders') then 'fresh' else 'duplicate' end"),
        format!("select outcome from {table}_try_claim('{id}', 'orders', null, null, null)"),
        format!("select outcome from {table}_try_claim('{id}', 'orders', null, null, '20 seconds')"),
        format!(
            "select outcome from {table}_claim_batch(array['{id}'::uuid], array['orders'], null, null, '20 seconds')"
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c28_claims_work_through_pgbouncer_in_transaction_mode_and_leave_nothing_in_its_sessions() {
    let own = server::own(&[]).await;
    let specs = vec![spec("public.by_time"), v7_spec("public.by_id")];
    let deployment = Deployment::new(own.database().await, inboxd::clock::Clock::system(), specs);
    deployment.init().await.unwrap();
    deployment.done().await;
    let mut direct = deployment.database.connect().await;
    sql(&mut direct, "create table work (message_id uuid not null)").await;

    let bouncer = Bouncer::sharing(own.cluster.socket_dir(), SERVER_SESSIONS);
    let options = bouncer.options(&deployment.database.name);
    for table in TABLES {
        let ids: Arc<Vec<Uuid>> = Arc::new((0..40).map(|_| new_id()).collect());
        let barrier = Arc::new(Barrier::new(CLIENTS));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|nth| {
                let (options, ids, barrier) = (options.clone(), ids.clone(), barrier.clone());
                tokio::spawn(async move {
                    let mut connection = options.connect().await.unwrap();
                    for (round, id) in ids.iter().enumerate() {
                        barrier.wait().await;
                        let call = calls(table, *id)[(nth + round) % 4].clone();
                        sqlx::raw_sql("begin").execute(&mut connection).await.unwrap();
                        if claim(&mut connection, call).await == "fresh" {
                            let done = format!("insert into work values ('{id}')");
                            sqlx::raw_sql(AssertSqlSafe(done))
                                .execute(&mut connection)
                                .await
                                .unwrap();
                        }
                        sqlx::raw_sql("commit").execute(&mut connection).await.unwrap();
                    }
                    connection.close().await.unwrap();
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        for id in ids.iter() {
            assert_eq!(rows_of(&mut direct, "work", *id).await, 1, "{table}");
            assert_eq!(rows_of(&mut direct, table, *id).await, 1, "{table}");
        }
    }

    // What a session keeps when its client's transaction has ended, the next client would get.
    let pooled = "datname = current_database() and client_addr is null and pid <> pg_backend_pid()";
    let row = sqlx::query(AssertSqlSafe(format!(
        "select (select count(*) from pg_stat_activity where {pooled}) as sessions,
           (select count(*) from pg_locks where locktype = 'advisory' and pid in
             (select pid from pg_stat_activity where {pooled})) as locks"
    )))
    .fetch_one(&mut direct)
    .await
    .unwrap();
    let (sessions, locks): (i64, i64) = (row.get("sessions"), row.get("locks"));
    assert!(
        sessions > 0 && sessions <= i64::try_from(SERVER_SESSIONS).unwrap(),
        "{sessions} sessions"
    );
    assert_eq!(locks, 0);
    let mut client = options.connect().await.unwrap();
    for _ in 0..SERVER_SESSIONS {
        let timeout = claim(&mut client, "select current_setting('lock_timeout')".to_owned()).await;
        assert_eq!(timeout, "0");
    }
}
