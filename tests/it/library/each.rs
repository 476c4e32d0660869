//! `process_each`: many messages in one transaction, each with a handler and an end of its own.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use inboxd::claim::{Message, MessageId, Outcome, ProcessError, Verdict};
use sqlx::{Postgres, Transaction};

use super::{TABLES, done, new_message, none_stays_open, open, work, workplace};

#[tokio::test]
async fn a_message_that_fails_takes_no_other_with_it() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let messages: Vec<Message> = (0..6).map(|_| new_message()).collect();
        let bad: [MessageId; 3] = [messages[1].id(), messages[3].id(), messages[4].id()];
        let handler = async |tx: &mut Transaction<'_, Postgres>, message: &Message| {
            work(tx, message).await?;
            match bad.iter().position(|id| *id == message.id()) {
                Some(0) => anyhow::bail!("out of stock"),
                // An error of the database that is handed on, and one that is passed over.
                Some(1) => sqlx::query("select 1 / 0").execute(&mut **tx).await.map(|_| ())?,
                Some(_) => drop(sqlx::query("select 1 / 0").execute(&mut **tx).await),
                None => {}
            }
            anyhow::Ok("worked")
        };
        let results = inbox.process_each(&pool, &messages, handler).await.unwrap();
        for (place, (message, result)) in messages.iter().zip(&results).enumerate() {
            match (place, result) {
                (1 | 3, Err(ProcessError::Handler(_))) | (4, Err(ProcessError::ErrorPassedOver(_))) => {}
                (0 | 2 | 5, Ok(Outcome::Done("worked"))) => {}
                other => panic!("{other:?}"),
            }
            let times = i64::from(result.is_ok());
            assert_eq!(done(&deployment, message).await, times, "place {place}");
        }
        // Those that failed are not claimed: their next delivery works.
        let again = inbox
            .process_each(&pool, &messages, async |tx, message| work(tx, message).await)
            .await
            .unwrap();
        for (message, result) in messages.iter().zip(&again) {
            assert_eq!(Verdict::of(result), Verdict::Ack);
            assert_eq!(done(&deployment, message).await, 1);
        }
        none_stays_open(&deployment).await;
    }
}

#[tokio::test]
async fn c12_a_repeat_fares_as_its_first() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let (good, bad) = (new_message(), new_message());
        let messages = [good.clone(), bad.clone(), good.clone(), bad.clone()];
        let results = inbox
            .process_each(&pool, &messages, async |tx, message| {
                work(tx, message).await?;
                anyhow::ensure!(message.id() != bad.id(), "out of stock");
                Ok(())
            })
            .await
            .unwrap();
        assert!(
            matches!(
                results[..],
                [
                    Ok(Outcome::Done(())),
                    Err(ProcessError::Handler(_)),
                    Ok(Outcome::Repeated),
                    Err(ProcessError::RepeatsFailed)
                ]
            ),
            "{results:?}"
        );
        assert_eq!((done(&deployment, &good).await, done(&deployment, &bad).await), (1, 0));
    }
}

#[tokio::test]
async fn a_handler_that_takes_too_long_is_given_up_alone() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table)
            .await
            .with_handler_timeout(Duration::from_millis(200));
        let messages: Vec<Message> = (0..3).map(|_| new_message()).collect();
        let slow = messages[1].id();
        let results = inbox
            .process_each(&pool, &messages, async |tx, message| {
                work(tx, message).await?;
                if message.id() == slow {
                    sqlx::query("select pg_sleep(1)").execute(&mut **tx).await?;
                }
                Ok::<_, sqlx::Error>(())
            })
            .await
            .unwrap();
        assert!(
            matches!(
                results[..],
                [
                    Ok(Outcome::Done(())),
                    Err(ProcessError::HandlerTimeout { .. }),
                    Ok(Outcome::Done(()))
                ]
            ),
            "{results:?}"
        );
        for (message, times) in messages.iter().zip([1, 0, 1]) {
            assert_eq!(done(&deployment, message).await, times);
        }
    }
}

#[tokio::test]
async fn messages_that_keep_failing_one_by_one_are_given_up_in_the_end() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let messages: Vec<Message> = (0..10).map(|_| new_message()).collect();
        let (left, ran) = (AtomicU32::new(3), AtomicU32::new(0));
        // Each round the fourth message fails, whichever it is.
        let results = inbox
            .process_each(&pool, &messages, async |tx, message| {
                work(tx, message).await?;
                ran.fetch_add(1, Ordering::SeqCst);
                if left.fetch_sub(1, Ordering::SeqCst) == 0 {
                    left.store(3, Ordering::SeqCst);
                    anyhow::bail!("out of luck");
                }
                anyhow::Ok(())
            })
            .await
            .unwrap();
        assert!(
            results.iter().all(|result| Verdict::of(result) == Verdict::Retry),
            "{results:?}"
        );
        assert!(
            results
                .iter()
                .any(|result| matches!(result, Err(ProcessError::BatchFailed)))
        );
        assert!(ran.into_inner() <= 40, "bounded");
        for message in &messages {
            assert_eq!(done(&deployment, message).await, 0);
        }
    }
}

#[tokio::test]
async fn c6_a_conflict_of_one_message_makes_the_whole_batch_be_tried_again() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let messages: Vec<Message> = (0..3).map(|_| new_message()).collect();
        let ran = AtomicU32::new(0);
        let results = inbox
            .process_each(&pool, &messages, async |tx, message| {
                work(tx, message).await?;
                if ran.fetch_add(1, Ordering::SeqCst) == 1 {
                    sqlx::raw_sql("do $$ begin raise exception using errcode = '40P01'; end $$")
                        .execute(&mut **tx)
                        .await?;
                }
                Ok::<_, sqlx::Error>(())
            })
            .await
            .unwrap();
        assert!(
            results.iter().all(|result| matches!(result, Ok(Outcome::Done(())))),
            "{results:?}"
        );
        assert_eq!(ran.into_inner(), 5);
        for message in &messages {
            assert_eq!(done(&deployment, message).await, 1);
        }
    }
}
