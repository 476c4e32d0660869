//! What is on the wire: round trips, a lost COMMIT, and a pooler in between.

use std::time::Duration;

use inboxd::claim::{ClaimErrorKind, Inbox, Message, Outcome, ProcessError, Verdict};
use sqlx::{PgPool, postgres::PgConnectOptions};

use super::{TABLES, done, new_message, none_stays_open, open, work, workplace};
use crate::support::{
    claims::{eventually, rows_of},
    inbox::Deployment,
    pgbouncer::Bouncer,
    pool,
    proxy::{Cut, Proxy},
    server,
};

fn through(options: PgConnectOptions, connections: u32) -> PgPool {
    pool::options(connections).connect_lazy_with(options)
}

async fn deliver(inbox: &Inbox, pool: &PgPool, message: &Message) -> Result<Outcome<()>, ProcessError> {
    inbox.process(pool, message, async |tx| work(tx, message).await).await
}

/// Whatever was said of a unit: the redelivery ends it, and its work was done once.
async fn the_redelivery_settles_it(deployment: &Deployment, inbox: &Inbox, pool: &PgPool, message: &Message) {
    let again = deliver(inbox, pool, message).await.unwrap();
    assert_eq!(again.verdict(), Verdict::Ack);
    assert_eq!(done(deployment, message).await, 1);
    none_stays_open(deployment).await;
}

/// A pool as small as can be: the question what became of the commit needs a connection too.
#[tokio::test]
async fn c18_a_commit_whose_answer_was_lost_is_found_in_the_journal() {
    let (deployment, _) = workplace(1).await;
    let proxy = Proxy::in_front_of(&deployment.database).await;
    let pool = through(proxy.options(), 1);
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        proxy.cut("commit", Cut::After);
        let outcome = deliver(&inbox, &pool, &message).await.unwrap();
        assert_eq!((outcome, outcome.verdict()), (Outcome::Done(()), Verdict::Ack));
        the_redelivery_settles_it(&deployment, &inbox, &pool, &message).await;
    }
    assert_eq!(proxy.cuts(), TABLES.len());
}

#[tokio::test]
async fn c18_a_commit_that_never_arrived_is_not_acked() {
    let (deployment, _) = workplace(1).await;
    let proxy = Proxy::in_front_of(&deployment.database).await;
    let pool = through(proxy.options(), 1);
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        proxy.cut("commit", Cut::Before);
        let result = deliver(&inbox, &pool, &message).await;
        assert!(matches!(result, Err(ProcessError::Connection(_))), "{result:?}");
        assert_eq!(
            (Verdict::of(&result), done(&deployment, &message).await),
            (Verdict::Retry, 0)
        );
        the_redelivery_settles_it(&deployment, &inbox, &pool, &message).await;
    }
    assert_eq!(proxy.cuts(), TABLES.len());
}

#[tokio::test]
async fn c18_a_commit_of_which_nothing_can_be_learned_is_unknown_and_not_acked() {
    let (deployment, direct) = workplace(1).await;
    for table in TABLES {
        for cut in [Cut::Before, Cut::After] {
            for refuse in [true, false] {
                let mut proxy = Proxy::in_front_of(&deployment.database).await;
                let pool = through(proxy.options(), 1);
                let inbox = open(&pool, table).await.with_settle_timeout(Duration::from_millis(300));
                let message = new_message();
                // Its one connection exists; no further one comes through.
                let warm = deliver(&inbox, &pool, &new_message()).await.unwrap();
                assert_eq!(warm, Outcome::Done(()));
                if refuse {
                    proxy.refuse().await;
                } else {
                    proxy.blackhole().await;
                }
                proxy.cut("commit", cut);
                let outcome = deliver(&inbox, &pool, &message).await.unwrap();
                assert_eq!((outcome, outcome.verdict()), (Outcome::Unknown, Verdict::Retry));
                assert_eq!(proxy.cuts(), 1);
                let inbox = open(&direct, table).await;
                the_redelivery_settles_it(&deployment, &inbox, &direct, &message).await;
            }
        }
    }
}

#[tokio::test]
async fn c18_a_batch_whose_commit_was_not_answered_is_settled_as_one() {
    let (deployment, _) = workplace(1).await;
    let proxy = Proxy::in_front_of(&deployment.database).await;
    let pool = through(proxy.options(), 1);
    for table in TABLES {
        let inbox = open(&pool, table).await;
        for (cut, acked) in [(Cut::After, true), (Cut::Before, false)] {
            let messages: Vec<Message> = (0..5).map(|_| new_message()).collect();
            let all = async |tx: &mut sqlx::Transaction<'_, sqlx::Postgres>, fresh: &[&Message]| {
                for message in fresh {
                    work(tx, message).await?;
                }
                Ok::<_, sqlx::Error>(fresh.len())
            };
            proxy.cut("commit", cut);
            let result = inbox.process_batch(&pool, &messages, all).await;
            assert_eq!(result.is_ok(), acked, "{result:?}");
            if let Ok(outcome) = result {
                assert_eq!(outcome.value, Some(5));
                assert!(outcome.verdicts().all(|verdict| verdict == Verdict::Ack));
            }
            let again = inbox.process_batch(&pool, &messages, all).await.unwrap();
            assert!(again.verdicts().all(|verdict| verdict == Verdict::Ack));

            let messages: Vec<Message> = (0..5).map(|_| new_message()).collect();
            proxy.cut("commit", cut);
            let result = inbox
                .process_each(&pool, &messages, async |tx, message| work(tx, message).await)
                .await;
            assert_eq!(result.is_ok(), acked, "{result:?}");
            let again = inbox
                .process_each(&pool, &messages, async |tx, message| work(tx, message).await)
                .await;
            assert!(again.unwrap().iter().all(|result| Verdict::of(result) == Verdict::Ack));
            for message in &messages {
                assert_eq!(done(&deployment, message).await, 1);
            }
        }
    }
}

/// Made again alone, it would meet its own row, call it a duplicate, and the message would be acked without its work.
#[tokio::test]
async fn c23_a_claim_whose_answer_was_lost_is_not_made_again() {
    let (deployment, _) = workplace(1).await;
    let proxy = Proxy::in_front_of(&deployment.database).await;
    let pool = through(proxy.options(), 1);
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        proxy.forget();
        proxy.cut("select", Cut::After);
        let result = deliver(&inbox, &pool, &message).await;
        assert_eq!(proxy.cuts(), 1);
        assert!(
            matches!(&result, Err(ProcessError::Claim(error)) if error.kind() == ClaimErrorKind::Connection),
            "{result:?}"
        );
        assert_eq!(
            (Verdict::of(&result), done(&deployment, &message).await),
            (Verdict::Retry, 0)
        );
        let claims = proxy
            .queries()
            .iter()
            .filter(|query| query.contains("_try_claim"))
            .count();
        assert_eq!(claims, 1, "{:?}", proxy.queries());
        the_redelivery_settles_it(&deployment, &inbox, &pool, &message).await;
    }
}

/// Unanswered is not lost: the server is still at it, and holds the message until it has ended.
#[tokio::test]
async fn c18_a_session_that_still_holds_the_message_is_waited_for() {
    let (deployment, _) = workplace(1).await;
    let mut connection = deployment.database.connect().await;
    // The commit takes half a second, so that the first questions find the message in flight.
    crate::support::inbox::sql(
        &mut connection,
        "create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.5); return null; end $$;
         create constraint trigger slow after insert on work deferrable initially deferred for each row execute function slow()",
    )
    .await;
    let proxy = Proxy::in_front_of(&deployment.database).await;
    let pool = through(proxy.options(), 1);
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        proxy.cut("commit", Cut::After);
        assert_eq!(deliver(&inbox, &pool, &message).await.unwrap(), Outcome::Done(()));
        assert_eq!(rows_of(&mut connection, table, message.id().uuid()).await, 1);
    }
}

/// BEGIN, the claim and COMMIT, as in a transaction written by hand: the comparison before COMMIT, and the ROLLBACK behind it, go
/// along with what is sent anyway.
#[tokio::test]
async fn a_unit_costs_as_many_round_trips_as_a_transaction_written_by_hand() {
    let (deployment, _) = workplace(1).await;
    let proxy = Proxy::in_front_of(&deployment.database).await;
    // Without the question that a pool asks before it hands out a connection.
    let pool = pool::options(1)
        .test_before_acquire(false)
        .connect_lazy_with(proxy.options());
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let message = new_message();
        let by_hand = async || {
            let mut tx = pool.begin().await.unwrap();
            let query = format!("select outcome from {table}_try_claim($1, 'orders', null, null, '5 seconds')");
            let outcome: String = sqlx::query_scalar(sqlx::AssertSqlSafe(query))
                .bind(new_message().id().uuid())
                .fetch_one(&mut *tx)
                .await
                .unwrap();
            assert_eq!(outcome, "fresh");
            tx.commit().await.unwrap();
        };
        // Twice: the first time prepares its statement. The pool itself asks a connection that comes back how it is.
        by_hand().await;
        returned(&pool, &proxy).await;
        proxy.forget();
        by_hand().await;
        let written_by_hand = returned(&pool, &proxy).await;
        assert_eq!(written_by_hand, 4, "BEGIN, claim, COMMIT, and the pool");
        proxy.forget();
        let outcome = inbox.process(&pool, &message, async |_| Ok::<_, sqlx::Error>(())).await;
        assert_eq!(outcome.unwrap(), Outcome::Done(()));
        assert_eq!(returned(&pool, &proxy).await, written_by_hand, "{:?}", proxy.queries());
        // A duplicate: BEGIN, claim, ROLLBACK.
        proxy.forget();
        assert!(matches!(
            deliver(&inbox, &pool, &message).await.unwrap(),
            Outcome::Duplicate { .. }
        ));
        assert_eq!(returned(&pool, &proxy).await, written_by_hand, "{:?}", proxy.queries());
        // A batch: one for all claims.
        let messages: Vec<Message> = (0..200).map(|_| new_message()).collect();
        proxy.forget();
        let outcome = inbox
            .process_batch(&pool, &messages, async |_, fresh| Ok::<_, sqlx::Error>(fresh.len()))
            .await;
        assert_eq!(outcome.unwrap().value, Some(200));
        assert_eq!(returned(&pool, &proxy).await, written_by_hand);
    }
}

/// The round trips up to when the pool has its connection back.
async fn returned(pool: &PgPool, proxy: &Proxy) -> usize {
    eventually("the connection is back", async || pool.num_idle() == 1).await;
    proxy.round_trips()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c28_a_pooler_in_transaction_mode_may_stand_in_between() {
    let (deployment, _) = workplace(1).await;
    let bouncer = Bouncer::start(server::shared().cluster.socket_dir());
    let pool = through(bouncer.options(&deployment.database.name), 4);
    for table in TABLES {
        let inbox = open(&pool, table).await;
        let messages: Vec<Message> = (0..50).map(|_| new_message()).collect();
        let insert = async |tx: &mut sqlx::Transaction<'_, sqlx::Postgres>, message: &Message| {
            sqlx::query("insert into work values ($1)")
                .bind(message.id().uuid())
                .persistent(false)
                .execute(&mut **tx)
                .await
        };
        let consumers: Vec<_> = (0..4)
            .map(|_| {
                let (inbox, pool, messages) = (inbox.clone(), pool.clone(), messages.clone());
                tokio::spawn(async move {
                    for message in &messages {
                        let outcome = inbox
                            .process(&pool, message, async |tx| insert(tx, message).await)
                            .await;
                        assert_eq!(outcome.unwrap().verdict(), Verdict::Ack);
                    }
                    let more: Vec<Message> = (0..20).map(|_| new_message()).collect();
                    let results = inbox.process_each(&pool, &more, insert).await.unwrap();
                    assert!(results.iter().all(|result| matches!(result, Ok(Outcome::Done(_)))));
                })
            })
            .collect();
        for consumer in consumers {
            consumer.await.unwrap();
        }
        for message in &messages {
            assert_eq!(done(&deployment, message).await, 1);
        }
    }
}
