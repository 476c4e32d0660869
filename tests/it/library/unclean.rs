//! Units that end in the middle: cancelled, panicked, too slow. Nothing of them stays, and the next borrower of a connection
//! gets a clean one.

use std::{sync::Arc, time::Duration};

use inboxd::claim::{Inbox, Message, Outcome, ProcessError, Verdict};
use sqlx::{Acquire, PgPool, Row};
use tokio::sync::Notify;

use super::{TABLES, done, new_message, none_stays_open, open, work, workplace};
use crate::support::inbox::Deployment;

/// The next delivery is worked on, once the server has noticed that the last one is gone.
async fn the_next_delivery_works(deployment: &Deployment, inbox: &Inbox, pool: &PgPool, message: &Message) {
    let next = inbox.process(pool, message, async |tx| work(tx, message).await).await;
    assert_eq!(next.unwrap(), Outcome::Done(()));
    assert_eq!(done(deployment, message).await, 1);
    none_stays_open(deployment).await;
}

#[tokio::test]
async fn c21_a_handler_that_panics_is_rolled_back() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        let task = tokio::spawn({
            let (inbox, pool, message) = (inbox.clone(), pool.clone(), message.clone());
            async move {
                let _ = inbox
                    .process(&pool, &message, async |tx| -> Result<(), sqlx::Error> {
                        work(tx, &message).await?;
                        panic!("a mistake of the handler's")
                    })
                    .await;
            }
        });
        assert!(task.await.unwrap_err().is_panic());
        the_next_delivery_works(&deployment, &inbox, &pool, &message).await;
    }
}

#[tokio::test]
async fn c21_a_unit_that_is_aborted_or_dropped_is_rolled_back() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        for abort in [true, false] {
            let message = new_message();
            let works = Arc::new(Notify::new());
            let unit = {
                let (inbox, pool, message, works) = (inbox.clone(), pool.clone(), message.clone(), works.clone());
                async move {
                    let _ = inbox
                        .process(&pool, &message, async |tx| -> Result<(), sqlx::Error> {
                            work(tx, &message).await?;
                            works.notify_one();
                            std::future::pending().await
                        })
                        .await;
                }
            };
            if abort {
                let task = tokio::spawn(unit);
                works.notified().await;
                task.abort();
                assert!(task.await.unwrap_err().is_cancelled());
            } else {
                tokio::select! {
                    () = unit => unreachable!("its handler never ends"),
                    () = works.notified() => {}
                }
            }
            the_next_delivery_works(&deployment, &inbox, &pool, &message).await;
        }
    }
}

/// Wherever a unit is cancelled, from the acquire to the commit, nothing is left behind and nothing is done twice.
#[tokio::test]
async fn c20_a_unit_that_is_cancelled_at_any_point_leaves_no_open_transaction_in_the_pool() {
    let (deployment, pool) = workplace(3).await;
    let mut delivered = 0;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        for polls in 0..60 {
            let message = new_message();
            let unit = inbox.process(&pool, &message, async |tx| work(tx, &message).await);
            let ended = after_polls(polls, unit).await;
            delivered += usize::from(ended.is_some());
            // Acquired from the same pool, on whatever connection it hands out.
            let mut connection = pool.acquire().await.unwrap();
            // One simple query: the protocol of prepared statements begins the transaction a message earlier.
            let clean: bool = sqlx::raw_sql("select statement_timestamp() = transaction_timestamp()")
                .fetch_one(&mut *connection)
                .await
                .unwrap()
                .get(0);
            assert!(clean, "cancelled after {polls} polls: a transaction is open");
            drop(connection);
            let again = inbox
                .process(&pool, &message, async |tx| work(tx, &message).await)
                .await
                .unwrap();
            assert_eq!(again.verdict(), Verdict::Ack);
            assert_eq!(
                done(&deployment, &message).await,
                1,
                "{table}, cancelled after {polls} polls"
            );
        }
    }
    assert!(delivered > 0, "the longest ones come to their end");
    none_stays_open(&deployment).await;
}

/// Polls a future so many times at most, each time when it has been woken.
async fn after_polls<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut left = polls;
    std::future::poll_fn(move |context| {
        if left == 0 {
            return std::task::Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

#[tokio::test]
async fn a_handler_that_takes_too_long_is_given_up() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await.with_handler_timeout(Duration::from_millis(50));
        let message = new_message();
        let result = inbox
            .process(&pool, &message, async |tx| {
                work(tx, &message).await?;
                // A statement is running when its time is over.
                sqlx::query("select pg_sleep(0.4)").execute(&mut **tx).await
            })
            .await;
        assert!(matches!(result, Err(ProcessError::HandlerTimeout { .. })), "{result:?}");
        assert_eq!(Verdict::of(&result), Verdict::Retry);
        let inbox = inbox.with_handler_timeout(Duration::from_secs(20));
        the_next_delivery_works(&deployment, &inbox, &pool, &message).await;
    }
}

/// The driver ends the innermost transaction that it knows of. With a savepoint left open its COMMIT would be a RELEASE, and its
/// ROLLBACK is a ROLLBACK TO.
#[tokio::test]
async fn a_savepoint_that_a_handler_leaks_is_committed_with_the_rest_or_rolled_back_and_not_left_in_the_pool() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        for fails in [false, true] {
            let message = new_message();
            let result = inbox
                .process(&pool, &message, async |tx| {
                    std::mem::forget(tx.begin().await?);
                    work(tx, &message).await?;
                    if fails { Err(sqlx::Error::RowNotFound) } else { Ok(()) }
                })
                .await;
            let (verdict, times) = if fails { (Verdict::Retry, 0) } else { (Verdict::Ack, 1) };
            assert_eq!(Verdict::of(&result), verdict, "{table}: {result:?}");
            assert_eq!(done(&deployment, &message).await, times, "{table}");
            let next = if fails { message } else { new_message() };
            the_next_delivery_works(&deployment, &inbox, &pool, &next).await;
        }
        let messages = [new_message(), new_message()];
        let results = inbox
            .process_each(&pool, &messages, async |tx, message| {
                std::mem::forget(tx.begin().await?);
                work(tx, message).await
            })
            .await
            .unwrap();
        assert!(
            results.iter().all(|result| matches!(result, Ok(Outcome::Done(())))),
            "{table}: {results:?}"
        );
        for message in &messages {
            assert_eq!(done(&deployment, message).await, 1, "{table}");
        }
        the_next_delivery_works(&deployment, &inbox, &pool, &new_message()).await;
    }
}

#[tokio::test]
async fn a_claim_that_somebody_left_open_on_a_connection_is_no_proof_of_work() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        let mut connection = pool.acquire().await.unwrap();
        sqlx::raw_sql("begin").execute(&mut *connection).await.unwrap();
        assert!(inbox.claim_on(&mut connection, &message).await.unwrap().is_fresh());
        drop(connection);
        let result = inbox
            .process(&pool, &message, async |tx| work(tx, &message).await)
            .await;
        assert_ne!(Verdict::of(&result), Verdict::Ack, "{table}: {result:?}");
        the_next_delivery_works(&deployment, &inbox, &pool, &message).await;
    }
}
