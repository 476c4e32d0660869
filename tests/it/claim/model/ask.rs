//! Claims and forgets in SQL, and what they answer.

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, PgConnection};

use super::{
    Form, TABLE,
    state::{Answer, Key},
};
use crate::support::{claims::Claim, inbox::sqlstate};

pub(super) async fn one(connection: &mut PgConnection, key: Key, form: Form) -> Answer {
    let claim = Claim {
        table: TABLE,
        id: Some(key.id),
        created_at: key.created_at,
        consumer: key.consumer,
        wait: (form == Form::NoWait).then_some("0"),
    };
    if form != Form::Boolean {
        return match claim.on(connection).await {
            Ok((outcome, at)) => answer(&outcome, at),
            Err(error) => failure(&error),
        };
    }
    match claim.fresh(connection).await {
        Ok(true) => Answer::Fresh(newest(connection, key).await),
        Ok(false) => Answer::NotFresh,
        Err(error) => failure(&error),
    }
}

/// A batch, which fails as a whole.
pub(super) async fn batch(connection: &mut PgConnection, keys: &[Key], waits: bool) -> Result<Vec<Answer>, Answer> {
    let rows = sqlx::query_as::<_, (String, Option<DateTime<Utc>>)>(AssertSqlSafe(format!(
        "select outcome, processed_at from {TABLE}_claim_batch(
           $1, array_fill('orders'::text, array[cardinality($1)]), $2, $3, $4::text::interval) order by ord"
    )))
    .bind(keys.iter().map(|key| key.id).collect::<Vec<_>>())
    .bind(keys.iter().map(|key| key.created_at).collect::<Vec<_>>())
    .bind(keys[0].consumer)
    .bind((!waits).then_some("0"))
    .fetch_all(connection)
    .await;
    let rows = rows.map_err(|error| failure(&error))?;
    assert_eq!(rows.len(), keys.len());
    Ok(rows.into_iter().map(|(outcome, at)| answer(&outcome, at)).collect())
}

/// Whether there was something to forget; none when the message is in flight.
pub(super) async fn forget(connection: &mut PgConnection, key: Key) -> Option<bool> {
    let forgotten: Result<bool, sqlx::Error> =
        sqlx::query_scalar(AssertSqlSafe(format!("select {TABLE}_forget($1, $2)")))
            .bind(key.id)
            .bind(key.consumer)
            .fetch_one(connection)
            .await;
    match forgotten {
        Ok(forgotten) => Some(forgotten),
        Err(error) if sqlstate(&error) == "IX005" => None,
        Err(error) => panic!("{error}"),
    }
}

fn answer(outcome: &str, at: Option<DateTime<Utc>>) -> Answer {
    match (outcome, at) {
        ("fresh", Some(at)) => Answer::Fresh(at),
        ("duplicate", Some(at)) => Answer::Duplicate(at),
        ("repeated", Some(at)) => Answer::Repeated(at),
        ("in_flight", None) => Answer::InFlight,
        ("too_old", None) => Answer::TooOld,
        ("too_new", None) => Answer::TooNew,
        ("invalid", None) => Answer::Invalid,
        other => panic!("no claim answers {other:?}"),
    }
}

fn failure(error: &sqlx::Error) -> Answer {
    match sqlstate(error).as_str() {
        "23514" => Answer::Missing,
        "IX001" => Answer::TooOld,
        "IX002" => Answer::TooNew,
        "IX003" => Answer::Invalid,
        _ => panic!("{error}"),
    }
}

/// When the row was made that a session has just made; the boolean form does not say.
async fn newest(connection: &mut PgConnection, key: Key) -> DateTime<Utc> {
    let by_consumer = if key.consumer.is_some() {
        "and consumer = $2"
    } else {
        "and $2::text is null"
    };
    sqlx::query_scalar(AssertSqlSafe(format!(
        "select processed_at from {TABLE} where message_id = $1 {by_consumer} order by processed_at desc limit 1"
    )))
    .bind(key.id)
    .bind(key.consumer)
    .fetch_one(connection)
    .await
    .unwrap()
}
