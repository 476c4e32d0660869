//! `process_batch`: many messages, one handler, one transaction.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use chrono::TimeDelta;
use inboxd::{
    claim::{ClaimErrorKind, Message, MessageId, Outcome, ProcessError, Verdict},
    clock::Clock,
};
use sqlx::{Connection, Postgres, Transaction};

use super::{TABLES, done, new_message, none_stays_open, open, work, workplace};
use crate::support::inbox::v7_at;

async fn work_on_all(tx: &mut Transaction<'_, Postgres>, fresh: &[&Message]) -> Result<usize, sqlx::Error> {
    for message in fresh {
        work(tx, message).await?;
    }
    Ok(fresh.len())
}

#[tokio::test]
async fn c12_a_batch_tells_what_became_of_each_message() {
    let (deployment, pool) = workplace(2).await;
    for table in TABLES {
        let inbox = open(&pool, table).await.with_wait(Duration::ZERO);
        let (old, held, new) = (new_message(), new_message(), new_message());
        let _ = inbox
            .process(&pool, &old, async |tx| work(tx, &old).await)
            .await
            .unwrap();
        let mut holder = deployment.database.connect().await;
        let mut holding = holder.begin().await.unwrap();
        assert!(inbox.claim(&mut holding, &held).await.unwrap().is_fresh());

        let messages = [new.clone(), old.clone(), held.clone(), new.clone()];
        let outcome = inbox.process_batch(&pool, &messages, work_on_all).await.unwrap();
        assert_eq!(outcome.value, Some(1), "the handler gets what is fresh");
        let outcomes: Vec<_> = outcome
            .messages
            .iter()
            .map(|message| *message.as_ref().unwrap())
            .collect();
        assert!(
            matches!(
                outcomes[..],
                [
                    Outcome::Done(()),
                    Outcome::Duplicate { .. },
                    Outcome::InFlight,
                    Outcome::Repeated
                ]
            ),
            "{outcomes:?}"
        );
        let verdicts: Vec<_> = outcome.verdicts().collect();
        assert_eq!(verdicts, [Verdict::Ack, Verdict::Ack, Verdict::Retry, Verdict::Ack]);
        holding.rollback().await.unwrap();
        for (message, times) in [(&old, 1), (&held, 0), (&new, 1)] {
            assert_eq!(done(&deployment, message).await, times);
        }
    }
}

#[tokio::test]
async fn nothing_fresh_means_no_work() {
    let (_deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let messages = [new_message(), new_message()];
        inbox
            .process_batch(&pool, &messages, work_on_all)
            .await
            .unwrap()
            .verdicts()
            .for_each(drop);
        let ran = AtomicU32::new(0);
        for messages in [&messages[..], &[]] {
            let outcome = inbox
                .process_batch(&pool, messages, async |_, _| {
                    ran.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, sqlx::Error>(())
                })
                .await
                .unwrap();
            assert_eq!((outcome.value, outcome.messages.len()), (None, messages.len()));
            assert!(outcome.verdicts().all(|verdict| verdict == Verdict::Ack));
        }
        assert_eq!(ran.into_inner(), 0);
    }
}

#[tokio::test]
async fn c13_a_message_that_cannot_be_claimed_does_not_fail_the_others() {
    let (deployment, pool) = workplace(1).await;
    let inbox = open(&pool, "by_id").await;
    let ancient = v7_at(Clock::system().now() - TimeDelta::days(90));
    let ancient = Message::new(MessageId::from_uuid(ancient).unwrap(), "orders").unwrap();
    let messages = [new_message(), ancient, new_message()];
    let outcome = inbox.process_batch(&pool, &messages, work_on_all).await.unwrap();
    let verdicts: Vec<_> = outcome.verdicts().collect();
    assert_eq!(verdicts, [Verdict::Ack, Verdict::Reject, Verdict::Ack]);
    assert_eq!(outcome.messages[1].as_ref().unwrap_err().kind(), ClaimErrorKind::TooOld);
    assert_eq!(done(&deployment, &messages[2]).await, 1);
}

#[tokio::test]
async fn c17_a_batch_that_fails_fails_as_a_whole() {
    let (deployment, pool) = workplace(1).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let messages: Vec<Message> = (0..3).map(|_| new_message()).collect();
        let failed = inbox
            .process_batch(&pool, &messages, async |tx, fresh| {
                work_on_all(tx, fresh).await?;
                anyhow::bail!("out of stock");
                #[expect(unreachable_code, reason = "it names the type")]
                Ok(())
            })
            .await
            .unwrap_err();
        assert!(matches!(failed, ProcessError::Handler(_)), "{failed:?}");
        let passed_over = inbox
            .process_batch(&pool, &messages, async |tx, fresh| {
                work_on_all(tx, fresh).await?;
                let _ = sqlx::query("select 1 / 0").execute(&mut **tx).await;
                Ok::<_, sqlx::Error>(())
            })
            .await
            .unwrap_err();
        assert!(
            matches!(passed_over, ProcessError::ErrorPassedOver(_)),
            "{passed_over:?}"
        );
        none_stays_open(&deployment).await;
        let outcome = inbox.process_batch(&pool, &messages, work_on_all).await.unwrap();
        assert_eq!(outcome.value, Some(3));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c11_batches_in_opposite_order_at_once_do_each_message_once() {
    let (deployment, pool) = workplace(4).await;
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let mut messages: Vec<Message> = (0..100).map(|_| new_message()).collect();
        let consumers: Vec<_> = (0..4)
            .map(|_| {
                messages.reverse();
                let (inbox, pool, messages) = (inbox.clone(), pool.clone(), messages.clone());
                tokio::spawn(async move { inbox.process_batch(&pool, &messages, work_on_all).await.unwrap() })
            })
            .collect();
        let mut worked = 0;
        for consumer in consumers {
            let outcome = consumer.await.unwrap();
            worked += outcome.value.unwrap_or(0);
            assert!(outcome.verdicts().all(|verdict| verdict == Verdict::Ack));
        }
        assert_eq!(worked, 100);
        for message in &messages {
            assert_eq!(done(&deployment, message).await, 1);
        }
    }
}
