//! `claim`, `claim_on` and `claim_batch` in a transaction of the caller's own.

use std::time::Duration;

use chrono::TimeDelta;
use inboxd::{
    claim::{Claim, ClaimErrorKind, Inbox, Message, MessageId, Verdict},
    clock::Clock,
};
use sqlx::{Connection, PgPool};
use uuid::Uuid;

use super::{TABLES, new_message, open, workplace};
use crate::{
    claim::for_many,
    support::inbox::{Deployment, random_id, spec, sql, v7_at, v7_spec},
};

#[tokio::test]
async fn each_outcome_is_told_and_leaves_the_transaction_usable() {
    let (deployment, pool) = workplace(4).await;
    for table in TABLES {
        let inbox = open(&pool, table).await.with_wait(Duration::from_millis(20));
        for inbox in [inbox.clone(), inbox.with_prepared_statements()] {
            tells_each_outcome(&deployment, &pool, &inbox).await;
        }
    }
}

async fn tells_each_outcome(deployment: &Deployment, pool: &PgPool, inbox: &Inbox) {
    let now = Clock::system().now();
    let message = new_message().created_at(now);
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(inbox.claim(&mut tx, &message).await.unwrap(), Claim::Fresh);
    assert_eq!(inbox.claim(&mut tx, &message).await.unwrap(), Claim::Repeated);
    let mut twin = pool.begin().await.unwrap();
    assert_eq!(inbox.claim(&mut twin, &message).await.unwrap(), Claim::InFlight);
    tx.commit().await.unwrap();
    let Claim::Duplicate { first_processed_at } = inbox.claim(&mut twin, &message).await.unwrap() else {
        panic!("a committed twin is a duplicate");
    };
    assert!((now - first_processed_at).abs() < TimeDelta::minutes(1));
    assert!(inbox.claim(&mut twin, &new_message()).await.unwrap().is_fresh());
    twin.commit().await.unwrap();
    let on = inbox.claim_on(&mut deployment.database.connect().await, &message).await;
    assert_eq!(on.unwrap(), Claim::Duplicate { first_processed_at });
}

#[tokio::test]
async fn a_claim_is_prepared_only_where_that_is_asked_for() {
    let (_deployment, pool) = workplace(1).await;
    let inbox = open(&pool, "by_time").await;
    let mut tx = pool.begin().await.unwrap();
    for (inbox, expected) in [(inbox.clone(), 0), (inbox.with_prepared_statements(), 1)] {
        for _ in 0..3 {
            assert!(inbox.claim(&mut tx, &new_message()).await.unwrap().is_fresh());
        }
        let prepared: i64 =
            sqlx::query_scalar("select count(*) from pg_prepared_statements where statement like '-- inboxd: claim%'")
                .persistent(false)
                .fetch_one(&mut *tx)
                .await
                .unwrap();
        assert_eq!(prepared, expected);
    }
}

#[tokio::test]
async fn c26_what_cannot_be_claimed_is_an_error_of_its_own_and_leaves_the_transaction_usable() {
    let (_deployment, pool) = workplace(1).await;
    let inbox = open(&pool, "by_id").await;
    let now = Clock::system().now();
    let message = |id: Uuid| Message::new(MessageId::from_uuid(id).unwrap(), "orders").unwrap();
    let mut tx = pool.begin().await.unwrap();
    for (id, kind) in [
        (v7_at(now - TimeDelta::days(30)), ClaimErrorKind::TooOld),
        (v7_at(now + TimeDelta::days(30)), ClaimErrorKind::TooNew),
        (random_id(), ClaimErrorKind::InvalidId),
    ] {
        let error = inbox.claim(&mut tx, &message(id)).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.kind().verdict()),
            (kind, Verdict::Reject),
            "{error}"
        );
        assert!(error.to_string().contains(&id.to_string()), "{error}");
        assert!(inbox.claim(&mut tx, &new_message()).await.unwrap().is_fresh());
    }
    // A lookup in the other direction: the predicates.
    let too_old = inbox.claim(&mut tx, &message(v7_at(now - TimeDelta::days(30)))).await;
    assert!(too_old.unwrap_err().is_too_old());
}

#[tokio::test]
async fn c6_c25_errors_are_told_apart_by_their_sqlstate() {
    let (deployment, pool) = workplace(1).await;
    let mut connection = deployment.database.connect().await;
    let by_time = open(&pool, "by_time").await;
    let mut tx = pool.begin_with("begin isolation level repeatable read").await.unwrap();
    let error = by_time.claim(&mut tx, &new_message()).await.unwrap_err();
    assert_eq!(error.kind(), ClaimErrorKind::Isolation);
    assert!(error.to_string().contains("READ COMMITTED"), "{error}");
    tx.rollback().await.unwrap();
    for table in TABLES {
        let inbox = open(&pool, table).await;
        sql(
            &mut connection,
            format!(
                "do $$ declare day text; begin
                   for day in select inhrelid::regclass from pg_inherits where inhparent = '{table}'::regclass
                     and inhrelid in (select oid from pg_class where relkind = 'r') loop
                     execute 'drop table ' || day; end loop; end $$"
            ),
        )
        .await;
        let mut tx = pool.begin().await.unwrap();
        let error = inbox.claim(&mut tx, &new_message()).await.unwrap_err();
        assert!(error.is_missing_partition() && !error.is_retryable(), "{error:?}");
        assert_eq!(error.kind().verdict(), Verdict::Pause);
        assert!(error.to_string().contains("inboxd"), "{error}");
        // The database's own error is the source.
        assert!(std::error::Error::source(&error).is_some());
        let error = inbox.claim(&mut tx, &new_message()).await.unwrap_err();
        assert_eq!(error.kind(), ClaimErrorKind::Aborted, "{error:?}");
    }
}

#[tokio::test]
async fn c12_a_batch_answers_in_the_order_of_its_messages() {
    let (_deployment, pool) = workplace(2).await;
    for table in TABLES {
        let inbox = open(&pool, table).await.with_wait(Duration::ZERO);
        let (duplicate, held) = (new_message(), new_message());
        let mut tx = pool.begin().await.unwrap();
        let _ = inbox.claim(&mut tx, &duplicate).await.unwrap();
        tx.commit().await.unwrap();
        let mut holder = pool.begin().await.unwrap();
        let _ = inbox.claim(&mut holder, &held).await.unwrap();
        let fresh = new_message();
        let messages = [fresh.clone(), duplicate, held, fresh, new_message()];
        let mut tx = pool.begin().await.unwrap();
        let claims: Vec<Claim> = inbox
            .claim_batch(&mut tx, &messages)
            .await
            .unwrap()
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert!(
            matches!(
                claims[..],
                [
                    Claim::Fresh,
                    Claim::Duplicate { .. },
                    Claim::InFlight,
                    Claim::Repeated,
                    Claim::Fresh
                ]
            ),
            "{claims:?}"
        );
        assert!(inbox.claim_batch(&mut tx, &[]).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn c13_c14_what_fails_one_message_and_what_fails_the_batch() {
    let (_deployment, pool) = workplace(1).await;
    let inbox = open(&pool, "by_id").await;
    let odd = Message::new(MessageId::from_uuid(random_id()).unwrap(), "orders").unwrap();
    let mut messages: Vec<Message> = (0..200).map(|_| new_message()).collect();
    messages[77] = odd;
    let mut tx = pool.begin().await.unwrap();
    let claims = inbox.claim_batch(&mut tx, &messages).await.unwrap();
    for (place, claim) in claims.iter().enumerate() {
        match claim {
            Ok(claim) => assert!(claim.is_fresh() && place != 77),
            Err(error) => assert!(error.is_invalid_id() && place == 77, "{place}: {error}"),
        }
    }
    let many: Vec<Message> = (0..1_001).map(|_| new_message()).collect();
    let error = inbox.claim_batch(&mut tx, &many).await.unwrap_err();
    assert_eq!(error.kind(), ClaimErrorKind::BatchTooLarge);
    assert!(
        error.to_string().contains("1001") && error.to_string().contains("1000"),
        "{error}"
    );
    // Nothing was asked of the server, so the transaction is as it was.
    assert!(inbox.claim(&mut tx, &new_message()).await.unwrap().is_fresh());
}

#[tokio::test]
async fn c15_each_of_many_consumers_claims_for_itself() {
    let deployment = Deployment::running(vec![
        for_many(spec("public.by_time")),
        for_many(v7_spec("public.by_id")),
    ])
    .await;
    let pool = deployment.database.pool(1);
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        let by = |name: &'static str| message.clone().consumer(name).unwrap();
        let mut tx = pool.begin().await.unwrap();
        let error = inbox.claim(&mut tx, &message).await.unwrap_err();
        assert_eq!(error.kind(), ClaimErrorKind::InvalidArgument, "{error}");
        assert!(inbox.claim(&mut tx, &by("mailer")).await.unwrap().is_fresh());
        assert!(inbox.claim(&mut tx, &by("it's \\ büro")).await.unwrap().is_fresh());
        assert_eq!(inbox.claim(&mut tx, &by("mailer")).await.unwrap(), Claim::Repeated);
        let mixed = [by("mailer"), by("biller")];
        let error = inbox.claim_batch(&mut tx, &mixed).await.unwrap_err();
        assert_eq!(error.kind(), ClaimErrorKind::InvalidArgument, "{error}");
        tx.rollback().await.unwrap();
    }
    let one = Deployment::running(vec![spec("public.inbox")]).await;
    let mut connection = one.database.connect().await;
    let inbox = Inbox::open(&mut connection, "inbox").await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let named = new_message().consumer("mailer").unwrap();
    let error = inbox.claim(&mut tx, &named).await.unwrap_err();
    assert_eq!(error.kind(), ClaimErrorKind::InvalidArgument, "{error}");
}

fn arbitrary_texts(count: usize) -> Vec<String> {
    use proptest::strategy::{Strategy, ValueTree};
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let texts = proptest::string::string_regex("[^\\x00]{1,255}").unwrap();
    (0..count)
        .map(|_| texts.new_tree(&mut runner).unwrap().current())
        .collect()
}

/// The values travel as literals; whatever they are made of, they arrive as they were.
#[tokio::test]
async fn any_topic_arrives_as_it_is_under_any_setting() {
    let (_deployment, pool) = workplace(1).await;
    let inbox = open(&pool, "by_time").await;
    let mut connection = pool.acquire().await.unwrap();
    for setting in [
        "set standard_conforming_strings = on",
        "set standard_conforming_strings = off; set escape_string_warning = off; set backslash_quote = off",
        "set client_encoding = 'SJIS'",
        "set datestyle = 'German, DMY'; set intervalstyle = 'iso_8601'; set timezone = 'Asia/Kolkata'",
    ] {
        sql(&mut connection, setting).await;
        let topics = arbitrary_texts(40);
        for topic in
            topics
                .into_iter()
                .chain(["'; drop table work; --".to_owned(), "\\".to_owned(), "ソ'表".to_owned()])
        {
            let message = Message::new(new_message().id(), topic.clone())
                .unwrap()
                .created_at(Clock::system().now());
            let mut tx = connection.begin().await.unwrap();
            assert!(inbox.claim(&mut tx, &message).await.unwrap().is_fresh());
            let batch = [Message::new(new_message().id(), topic.clone()).unwrap()];
            assert!(
                inbox.claim_batch(&mut tx, &batch).await.unwrap()[0]
                    .as_ref()
                    .unwrap()
                    .is_fresh()
            );
            let stored: Vec<Vec<u8>> =
                sqlx::query_scalar("select convert_to(topic, 'UTF8') from by_time where message_id = any ($1)")
                    .bind([message.id().uuid(), batch[0].id().uuid()])
                    .fetch_all(&mut *tx)
                    .await
                    .unwrap();
            assert_eq!(stored, [topic.as_bytes(), topic.as_bytes()], "{setting}");
            tx.rollback().await.unwrap();
        }
    }
}
