//! `process`: begin, claim, work, verified commit, verdict.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use inboxd::claim::{Claim, Message, MessageId, Outcome, ProcessError, Verdict};
use sqlx::{AssertSqlSafe, Connection};

use super::{TABLES, done, new_message, none_stays_open, open, work, workplace};
use crate::support::{claims::pid_of, inbox::sql};

#[tokio::test]
async fn a_message_is_worked_on_once_and_its_second_delivery_is_acked_without_work() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        let first = inbox
            .process(&pool, &message, async |tx| work(tx, &message).await.map(|()| "worked"))
            .await
            .unwrap();
        assert_eq!((first, first.verdict()), (Outcome::Done("worked"), Verdict::Ack));
        let second = inbox
            .process(&pool, &message, async |tx| work(tx, &message).await)
            .await
            .unwrap();
        assert!(matches!(second, Outcome::Duplicate { .. }), "{second:?}");
        assert_eq!((second.verdict(), done(&deployment, &message).await), (Verdict::Ack, 1));
    }
}

/// It can be spawned, and takes any error that can be boxed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c1_of_many_copies_at_once_exactly_one_handler_runs() {
    let (deployment, pool) = workplace(8).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let messages: Vec<Message> = (0..20).map(|_| new_message()).collect();
        let consumers: Vec<_> = (0..8)
            .map(|_| {
                let (inbox, pool, messages) = (inbox.clone(), pool.clone(), messages.clone());
                tokio::spawn(async move {
                    for message in &messages {
                        let outcome = inbox
                            .process(&pool, message, async |tx| {
                                work(tx, message).await?;
                                Ok::<_, anyhow::Error>(())
                            })
                            .await
                            .unwrap();
                        assert_eq!(outcome.verdict(), Verdict::Ack);
                    }
                })
            })
            .collect();
        for consumer in consumers {
            consumer.await.unwrap();
        }
        for message in &messages {
            assert_eq!(done(&deployment, message).await, 1, "{table}");
        }
    }
}

#[tokio::test]
async fn a_handler_that_fails_undoes_its_claim_and_the_next_delivery_works() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        let result = inbox
            .process(&pool, &message, async |tx| {
                work(tx, &message).await.unwrap();
                Err::<(), _>("out of stock")
            })
            .await;
        assert_eq!(Verdict::of(&result), Verdict::Retry);
        let error = result.unwrap_err();
        assert!(
            matches!(&error, ProcessError::Handler(source) if source.to_string() == "out of stock"),
            "{error}"
        );
        assert_eq!(done(&deployment, &message).await, 0);
        assert!(
            inbox
                .process(&pool, &message, async |tx| work(tx, &message).await)
                .await
                .is_ok()
        );
        assert_eq!(done(&deployment, &message).await, 1);
    }
}

#[tokio::test]
async fn c17_a_handler_that_passes_over_a_database_error_has_failed() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        let error = inbox
            .process(&pool, &message, async |tx| {
                work(tx, &message).await.unwrap();
                let passed_over = sqlx::query("select 1 / 0").execute(&mut **tx).await;
                assert!(passed_over.is_err());
                Ok::<_, sqlx::Error>(())
            })
            .await
            .unwrap_err();
        assert!(matches!(error, ProcessError::ErrorPassedOver(_)), "{error:?}");
        assert_eq!(
            (error.verdict(), done(&deployment, &message).await),
            (Verdict::Retry, 0)
        );
        none_stays_open(&deployment).await;
        assert!(
            inbox
                .process(&pool, &message, async |tx| work(tx, &message).await)
                .await
                .is_ok()
        );
    }
}

#[tokio::test]
async fn a_handler_that_ends_the_transaction_itself_is_found_out() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        for ends in [
            "rollback",
            "commit",
            "rollback; begin",
            "commit; begin; insert into work values (gen_random_uuid())",
        ] {
            let message = new_message();
            let error = inbox
                .process(&pool, &message, async |tx| {
                    work(tx, &message).await?;
                    sqlx::raw_sql(ends).execute(&mut **tx).await
                })
                .await
                .unwrap_err();
            assert!(matches!(error, ProcessError::TransactionEnded), "{ends}: {error:?}");
            assert_eq!(error.verdict(), Verdict::Retry);
            none_stays_open(&deployment).await;
        }
    }
}

/// What the deferred constraint refuses is refused at COMMIT.
#[tokio::test]
async fn a_refused_commit_is_a_failure() {
    let (deployment, pool) = workplace(1).await;
    let mut connection = deployment.database.connect().await;
    sql(
        &mut connection,
        "create table orders (id int primary key, parent int references orders deferrable initially deferred)",
    )
    .await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        let error = inbox
            .process(&pool, &message, async |tx| {
                work(tx, &message).await?;
                sqlx::query("insert into orders values (1, 2)").execute(&mut **tx).await
            })
            .await
            .unwrap_err();
        assert!(matches!(error, ProcessError::Commit(_)), "{error:?}");
        assert_eq!(
            (error.verdict(), done(&deployment, &message).await),
            (Verdict::Retry, 0)
        );
    }
}

#[tokio::test]
async fn c6_a_conflict_makes_the_whole_unit_be_tried_again_a_bounded_number_of_times() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await.with_attempts(3);
        for (failures, runs, works) in [(1, 2, true), (2, 3, true), (9, 3, false)] {
            for code in ["40001", "40P01"] {
                let (message, ran) = (new_message(), AtomicU32::new(0));
                let result = inbox
                    .process(&pool, &message, async |tx| {
                        work(tx, &message).await?;
                        if ran.fetch_add(1, Ordering::SeqCst) < failures {
                            let raise = format!("do $$ begin raise exception using errcode = '{code}'; end $$");
                            sqlx::raw_sql(AssertSqlSafe(raise)).execute(&mut **tx).await?;
                        }
                        anyhow::Ok(())
                    })
                    .await;
                assert_eq!(
                    (ran.into_inner(), result.is_ok()),
                    (runs, works),
                    "{table}, {code}: {result:?}"
                );
                assert_eq!(done(&deployment, &message).await, i64::from(works));
            }
        }
        // Another error is the consumer's to try again, after a pause.
        let (message, ran) = (new_message(), AtomicU32::new(0));
        let result = inbox
            .process(&pool, &message, async |tx| {
                ran.fetch_add(1, Ordering::SeqCst);
                sqlx::query("select 1 / 0").execute(&mut **tx).await
            })
            .await;
        assert!(result.is_err() && ran.into_inner() == 1);
    }
}

#[tokio::test]
async fn c6_a_twin_that_commits_after_the_snapshot_is_tried_again_and_is_a_duplicate() {
    let (deployment, _) = workplace(1).await;
    let mut connection = deployment.database.connect().await;
    let database = &deployment.database.name;
    sql(
        &mut connection,
        format!("alter database {database} set default_transaction_isolation = 'serializable'"),
    )
    .await;
    let pool = deployment.database.pool(2);
    let message = new_message();
    let by_id = open(&pool, "by_id").await.with_unbounded_wait();
    let mut twin = pool.begin().await.unwrap();
    assert!(by_id.claim(&mut twin, &message).await.unwrap().is_fresh());
    let (outcome, ()) = tokio::join!(
        by_id.process(&pool, &message, async |tx| work(tx, &message).await),
        async {
            // Its snapshot is older than our commit, for it waits for us.
            crate::support::claims::wait_until_any_blocked(&deployment.database).await;
            twin.commit().await.unwrap();
        }
    );
    assert!(matches!(outcome.unwrap(), Outcome::Duplicate { .. }));
    // The other routing chooses its isolation level itself.
    let by_time = open(&pool, "by_time").await;
    let outcome = by_time
        .process(&pool, &message, async |tx| work(tx, &message).await)
        .await;
    assert!(matches!(outcome.unwrap(), Outcome::Done(())));
}

#[tokio::test]
async fn c3_c4_duplicates_of_a_slow_message_are_in_flight_and_give_their_connections_back() {
    let (deployment, pool) = workplace(4).await;
    let mut slow = deployment.database.connect().await;
    for table in TABLES {
        let inbox = open(&pool, table).await.with_wait(Duration::from_millis(50));
        let message = new_message();
        let mut holding = slow.begin().await.unwrap();
        assert!(inbox.claim(&mut holding, &message).await.unwrap().is_fresh());
        let duplicate = async || {
            inbox
                .process(&pool, &message, async |tx| work(tx, &message).await)
                .await
        };
        let (a, b, c, d) = tokio::join!(duplicate(), duplicate(), duplicate(), duplicate());
        for outcome in [a, b, c, d] {
            let outcome = outcome.unwrap();
            assert_eq!((outcome, outcome.verdict()), (Outcome::InFlight, Verdict::Retry));
        }
        let other = new_message();
        let outcome = inbox.process(&pool, &other, async |tx| work(tx, &other).await).await;
        assert_eq!(outcome.unwrap(), Outcome::Done(()));
        holding.rollback().await.unwrap();
        assert_eq!(duplicate().await.unwrap(), Outcome::Done(()));
        assert_eq!(done(&deployment, &message).await, 1);
    }
}

#[tokio::test]
async fn c19_c30_claim_and_work_are_on_one_connection_and_nothing_reconnects_inside() {
    let (deployment, pool) = workplace(2).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        let error = inbox
            .process(&pool, &message, async |tx| {
                // The claim is seen from here and from nowhere else: it is in the handler's transaction.
                assert_eq!(inbox.claim(tx, &message).await.unwrap(), Claim::Repeated);
                work(tx, &message).await?;
                let pid = pid_of(tx).await;
                let mut other = deployment.database.connect().await;
                sqlx::query("select pg_terminate_backend($1, 10000)")
                    .bind(pid)
                    .execute(&mut other)
                    .await?;
                // The handler notices nothing, and says that all is well.
                Ok::<_, sqlx::Error>(())
            })
            .await
            .unwrap_err();
        assert!(matches!(error, ProcessError::Connection(_)), "{error:?}");
        assert_eq!(
            (error.verdict(), done(&deployment, &message).await),
            (Verdict::Retry, 0)
        );
        assert!(
            inbox
                .process(&pool, &message, async |tx| work(tx, &message).await)
                .await
                .is_ok()
        );
    }
}

#[tokio::test]
async fn c22_a_session_that_the_server_ends_in_a_slow_handler_has_committed_nothing() {
    let (deployment, _) = workplace(1).await;
    let options = deployment
        .database
        .options
        .clone()
        .options([("idle_in_transaction_session_timeout", "50ms")]);
    let pool = crate::support::pool::options(1).connect_lazy_with(options);
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        let error = inbox
            .process(&pool, &message, async |tx| {
                work(tx, &message).await?;
                let pid = pid_of(tx).await;
                crate::support::claims::wait_until_gone(&deployment.database, pid).await;
                Ok::<_, sqlx::Error>(())
            })
            .await
            .unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        assert_eq!(done(&deployment, &message).await, 0);
        assert!(
            inbox
                .process(&pool, &message, async |tx| work(tx, &message).await)
                .await
                .is_ok()
        );
    }
}

#[tokio::test]
async fn c24_nothing_is_remembered_of_a_unit_that_failed() {
    let (deployment, pool) = workplace(1).await;
    let inbox = open(&pool, "by_time").await;
    let message = Message::new(
        MessageId::from_name(format!("order-{}", uuid::Uuid::new_v4())).unwrap(),
        "orders",
    )
    .unwrap();
    for _ in 0..3 {
        let failed = inbox.process(&pool, &message, async |_| Err::<(), _>("not yet")).await;
        assert!(failed.is_err());
    }
    let outcome = inbox
        .process(&pool, &message, async |tx| work(tx, &message).await)
        .await;
    assert_eq!(
        (outcome.unwrap(), done(&deployment, &message).await),
        (Outcome::Done(()), 1)
    );
}
