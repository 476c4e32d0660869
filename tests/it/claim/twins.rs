//! One id in many sessions at once: exactly one is fresh, nothing is lost, nobody waits longer than it would.

use std::sync::Arc;

use sqlx::{Connection, PgConnection};
use tokio::sync::Barrier;
use uuid::Uuid;

use super::{TABLES, both_routings, new_id};
use crate::support::{
    claims::{Claim, batch, pid_of, rows_of, wait_until_blocked},
    inbox::{Deployment, claim, spec, sql, sqlstate, try_claim, v7_spec},
    server,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c1_of_many_copies_at_once_exactly_one_is_handled() {
    const COPIES: usize = 8;
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    sql(&mut connection, "create table work (message_id uuid not null)").await;
    for table in TABLES {
        let ids: Arc<Vec<Uuid>> = Arc::new((0..25).map(|_| new_id()).collect());
        let barrier = Arc::new(Barrier::new(COPIES));
        let copies: Vec<_> = (0..COPIES)
            .map(|_| {
                let (database, ids, barrier) = (deployment.database.clone(), ids.clone(), barrier.clone());
                tokio::spawn(async move {
                    let mut connection = database.connect().await;
                    for id in ids.iter() {
                        barrier.wait().await;
                        let mut work = connection.begin().await.unwrap();
                        if claim(&mut work, table, *id).await.unwrap() {
                            sqlx::query("insert into work values ($1)")
                                .bind(id)
                                .execute(&mut *work)
                                .await
                                .unwrap();
                        }
                        work.commit().await.unwrap();
                    }
                })
            })
            .collect();
        for copy in copies {
            copy.await.unwrap();
        }
        for id in ids.iter() {
            assert_eq!(rows_of(&mut connection, "work", *id).await, 1, "{table}");
            assert_eq!(rows_of(&mut connection, table, *id).await, 1, "{table}");
        }
    }
}

#[tokio::test]
async fn c2_the_loser_waits_and_what_becomes_of_the_winner_decides() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    for table in TABLES {
        for (commits, expected) in [(true, "duplicate"), (false, "fresh")] {
            let message = Claim::of(table, new_id());
            let mut work = connection.begin().await.unwrap();
            assert_eq!(message.outcome(&mut work).await, "fresh");
            let twin = message.behind_its_twin(&deployment.database).await;
            if commits {
                work.commit().await.unwrap();
            } else {
                work.rollback().await.unwrap();
            }
            assert_eq!(twin.end().await.unwrap().0, expected, "{table}");
            assert_eq!(message.outcome(&mut connection).await, "duplicate", "{table}");
            assert_eq!(rows_of(&mut connection, table, message.id.unwrap()).await, 1);
        }
    }
}

#[tokio::test]
async fn c2_the_loser_owns_the_message_once_the_winner_is_killed() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    for table in TABLES {
        let message = Claim::of(table, new_id());
        let mut winner = deployment.database.connect().await;
        let pid = pid_of(&mut winner).await;
        sql(&mut winner, "begin").await;
        assert_eq!(message.outcome(&mut winner).await, "fresh");
        let twin = message.behind_its_twin(&deployment.database).await;
        sqlx::query("select pg_terminate_backend($1)")
            .bind(pid)
            .execute(&mut connection)
            .await
            .unwrap();
        assert_eq!(twin.end().await.unwrap().0, "fresh", "{table}");
    }
}

#[tokio::test]
async fn c3_c4_a_bounded_wait_gives_in_flight_and_the_connection_back() {
    let deployment = both_routings().await;
    let mut slow = deployment.database.connect().await;
    let mut pool = Vec::new();
    for _ in 0..4 {
        pool.push(deployment.database.connect().await);
    }
    for table in TABLES {
        let message = Claim::of(table, new_id());
        let mut work = slow.begin().await.unwrap();
        assert_eq!(message.outcome(&mut work).await, "fresh");
        for connection in &mut pool {
            for wait in ["0", "40 milliseconds"] {
                let answer = message.clone().waiting(wait).on(connection).await.unwrap();
                assert_eq!(answer, ("in_flight".to_owned(), None), "{table}");
            }
            assert!(
                claim(connection, table, new_id()).await.unwrap(),
                "an unrelated message goes on"
            );
        }
        work.rollback().await.unwrap();
        // Whoever was told "in flight" did not ack: the message is there to be owned.
        assert_eq!(message.waiting("0").outcome(&mut pool[0]).await, "fresh", "{table}");
    }
}

#[tokio::test]
async fn a_cancelled_claim_leaves_nothing_behind() {
    let deployment = both_routings().await;
    let (mut connection, mut other) = (deployment.database.connect().await, deployment.database.connect().await);
    for table in TABLES {
        for wait in [None, Some("1 hour")] {
            let message = Claim {
                wait,
                ..Claim::of(table, new_id())
            };
            let mut work = connection.begin().await.unwrap();
            assert_eq!(message.outcome(&mut work).await, "fresh");
            let twin = message.behind_its_twin(&deployment.database).await;
            sqlx::query("select pg_cancel_backend($1)")
                .bind(twin.pid)
                .execute(&mut other)
                .await
                .unwrap();
            // Not taken for a wait that ran out: somebody meant to stop it.
            assert_eq!(sqlstate(&twin.end().await.unwrap_err()), "57014", "{table}");
            work.rollback().await.unwrap();
            assert_eq!(message.outcome(&mut other).await, "fresh", "{table}");
        }
    }
}

#[tokio::test]
async fn c6_an_older_snapshot_is_refused_where_it_could_hide_a_claim() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    for level in ["repeatable read", "serializable"] {
        for call in [
            "select by_time_claim(gen_random_uuid(), 'orders')",
            "select by_time_try_claim(gen_random_uuid(), 'orders', null, null, null)",
            "select by_time_try_claim(gen_random_uuid(), 'orders', null, null, '1 second')",
            "select by_time_claim_batch(array[gen_random_uuid()], array['orders'], null, null, null)",
            "select by_time_claim_batch(array[gen_random_uuid()], array['orders'], null, null, '1 second')",
        ] {
            sql(&mut connection, format!("begin isolation level {level}")).await;
            let error = sqlx::query(call).execute(&mut connection).await.unwrap_err();
            assert_eq!(sqlstate(&error), "IX004", "{level}: {call}");
            sql(&mut connection, "rollback").await;
        }
        sql(&mut connection, format!("begin isolation level {level}")).await;
        let id = new_id();
        assert!(claim(&mut connection, "by_id", id).await.unwrap());
        assert_eq!(try_claim(&mut connection, "by_id", id, None).await.unwrap(), "repeated");
        sql(&mut connection, "commit").await;
        sql(&mut connection, format!("begin isolation level {level}")).await;
        assert!(!claim(&mut connection, "by_id", id).await.unwrap());
        sql(&mut connection, "rollback").await;
    }
    sql(&mut connection, "begin isolation level read uncommitted").await;
    assert!(claim(&mut connection, "by_time", new_id()).await.unwrap());
    sql(&mut connection, "rollback").await;
}

#[tokio::test]
async fn c6_a_twin_that_committed_after_the_snapshot_is_retryable_in_message_id_routing() {
    let deployment = both_routings().await;
    let (mut connection, mut other) = (deployment.database.connect().await, deployment.database.connect().await);
    for level in ["repeatable read", "serializable"] {
        let id = new_id();
        sql(&mut other, format!("begin isolation level {level}")).await;
        sql(&mut other, "select 1 from by_id").await;
        assert!(claim(&mut connection, "by_id", id).await.unwrap());
        assert_eq!(sqlstate(&claim(&mut other, "by_id", id).await.unwrap_err()), "40001");
        sql(&mut other, "rollback").await;
        assert!(!claim(&mut other, "by_id", id).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c11_two_batches_in_opposite_order_do_not_deadlock() {
    let deployment = both_routings().await;
    let (mut one, mut other) = (deployment.database.connect().await, deployment.database.connect().await);
    for table in TABLES {
        for wait in [None, Some("20 seconds")] {
            for _ in 0..10 {
                let ids: Vec<Option<Uuid>> = (0..100).map(|_| Some(new_id())).collect();
                let reversed: Vec<Option<Uuid>> = ids.iter().rev().copied().collect();
                let (first, second) = tokio::join!(
                    batch(&mut one, table, &ids, wait),
                    batch(&mut other, table, &reversed, wait)
                );
                let (first, mut second) = (first.unwrap(), second.unwrap());
                second.reverse();
                for pair in first.iter().zip(&second) {
                    let mut pair = [pair.0.as_str(), pair.1.as_str()];
                    pair.sort_unstable();
                    assert_eq!(pair, ["duplicate", "fresh"], "{table}");
                }
            }
        }
    }
}

async fn outcome(connection: &mut PgConnection, table: &str, id: Uuid) -> String {
    try_claim(connection, table, id, None).await.unwrap()
}

#[tokio::test]
async fn c34_the_same_id_again_in_one_transaction_is_repeated_until_it_is_rolled_back() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    let connection = &mut connection;
    for table in TABLES {
        let id = new_id();
        sql(connection, "begin").await;
        sql(connection, "savepoint a").await;
        assert_eq!(outcome(connection, table, id).await, "fresh");
        assert_eq!(
            outcome(connection, table, id).await,
            "repeated",
            "in the same subtransaction"
        );
        assert!(!claim(connection, table, id).await.unwrap());
        sql(connection, "savepoint b").await;
        assert_eq!(outcome(connection, table, id).await, "repeated", "in one within it");
        sql(connection, "release savepoint b").await;
        sql(connection, "rollback to savepoint a").await;
        assert_eq!(outcome(connection, table, id).await, "fresh", "after the rollback");
        sql(connection, "release savepoint a").await;
        assert_eq!(
            outcome(connection, table, id).await,
            "repeated",
            "of one that was released"
        );
        let in_a_block = format!(
            "do $$ begin assert (select outcome from {table}_try_claim('{id}', 'orders', null, null, '1 second')) = 'repeated'; \
             exception when division_by_zero then null; end $$"
        );
        sql(connection, in_a_block).await;
        // Beyond 64 subtransactions a session's snapshot does not list them any more.
        for _ in 0..80 {
            assert_eq!(
                Claim::of(table, new_id()).waiting("1 second").outcome(connection).await,
                "fresh"
            );
        }
        assert_eq!(
            outcome(connection, table, id).await,
            "repeated",
            "of many subtransactions"
        );
        sql(connection, "commit").await;
        assert_eq!(outcome(connection, table, id).await, "duplicate");
        assert_eq!(rows_of(connection, table, id).await, 1);
    }
}

#[tokio::test]
async fn c34_a_claim_rolled_back_to_a_savepoint_lets_its_twin_go_on() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    for table in TABLES {
        let message = Claim::of(table, new_id());
        sql(&mut connection, "begin").await;
        sql(&mut connection, "savepoint a").await;
        assert_eq!(message.outcome(&mut connection).await, "fresh");
        let twin = message.behind_its_twin(&deployment.database).await;
        sql(&mut connection, "rollback to savepoint a").await;
        assert_eq!(twin.end().await.unwrap().0, "fresh", "{table}");
        assert_eq!(message.outcome(&mut connection).await, "duplicate", "{table}");
        sql(&mut connection, "rollback").await;
    }
}

#[tokio::test]
async fn c35_a_prepared_claim_is_in_flight_until_it_is_committed() {
    let server = server::own(&[("max_prepared_transactions", "5")]).await;
    let specs = vec![spec("public.by_time"), v7_spec("public.by_id")];
    let deployment = Deployment::new(server.database().await, inboxd::clock::Clock::system(), specs);
    deployment.init().await.unwrap();
    deployment.done().await;
    let mut connection = deployment.database.connect().await;
    for table in TABLES {
        for (end, expected) in [("commit", "duplicate"), ("rollback", "fresh")] {
            let message = Claim::of(table, new_id());
            sql(&mut connection, "begin").await;
            assert_eq!(message.outcome(&mut connection).await, "fresh");
            sql(&mut connection, "prepare transaction 'claimed'").await;
            assert_eq!(
                message
                    .clone()
                    .waiting("30 milliseconds")
                    .outcome(&mut connection)
                    .await,
                "in_flight",
                "{table}"
            );
            let mut other = deployment.database.connect().await;
            let pid = pid_of(&mut other).await;
            let (answer, ()) = tokio::join!(message.on(&mut other), async {
                wait_until_blocked(&deployment.database, pid).await;
                sql(&mut connection, format!("{end} prepared 'claimed'")).await;
            });
            assert_eq!(answer.unwrap().0, expected, "{table}");
        }
    }
}
