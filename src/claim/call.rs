//! The calls of the claim functions.
//!
//! Each is one simple query with its values as literals, made by [`Sql`] only: one round trip from the first call on, and
//! nothing is prepared, so that it works behind a pooler in transaction mode (a statement that is prepared anew each time
//! needs two round trips, a cached one breaks there). Where a consumer says that nothing like that is in between, single
//! claims are one statement that the driver prepares once a session.
//!
//! With the outcome comes the server's clock, against which ages are told, and the transaction's id, by which its commit is
//! verified. Times travel as seconds since 1970: their own text would follow the session's DateStyle. Each operator or cast more
//! would be looked up by the server each time: three of them cost a quarter of the call.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row, Transaction};

use super::{Claim, ClaimError, ClaimErrorKind, Inbox, Message, answer::Answer};
use crate::pure::{Consumers, Sql, render};

/// What a claim takes: id, topic, creation time, consumer, and the longest wait.
const TYPES: [&str; 5] = ["uuid", "text", "timestamptz", "text", "interval"];

impl Inbox {
    /// Claims a message in the transaction of its work.
    ///
    /// In an inbox with `processed_at` routing the transaction must be READ COMMITTED. After the work, commit; ack only once
    /// the commit has succeeded. [`Inbox::process`] does all of that, and keeps clear of two traps of sqlx 0.9 that a
    /// transaction written by hand meets: `Transaction::commit` reports success when the server has rolled back, because a
    /// statement had failed and its error was passed over; and a `Pool::begin` that is cancelled, by a timeout around it,
    /// leaves an open transaction to the connection's next borrower.
    ///
    /// # Errors
    /// When the claim was not made. The message must not be acked then, unless a policy of the consumer's own says so for
    /// one that is too old, too new or invalid. After an error of the database the transaction can only be rolled back.
    ///
    /// # Examples
    /// ```no_run
    /// # use inboxd::claim::{Claim, Inbox, Message};
    /// # async fn example(inbox: Inbox, pool: sqlx::PgPool, message: Message) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// match inbox.claim(&mut tx, &message).await? {
    ///     Claim::Fresh => {
    ///         sqlx::query("insert into orders default values").execute(&mut *tx).await?;
    ///         tx.commit().await?;
    ///     }
    ///     Claim::Duplicate { first_processed_at } => println!("processed at {first_processed_at}"),
    ///     Claim::Repeated => println!("claimed in this transaction before"),
    ///     Claim::InFlight => return Err("try again later, and do not ack".into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A claim outside a transaction would be kept although the work failed. It does not compile:
    /// ```compile_fail
    /// # use inboxd::claim::{Inbox, Message};
    /// # async fn example(inbox: Inbox, pool: sqlx::PgPool, message: Message) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut connection = pool.acquire().await?;
    /// let _ = inbox.claim(&mut connection, &message).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn claim(&self, tx: &mut Transaction<'_, Postgres>, message: &Message) -> Result<Claim, ClaimError> {
        self.claim_on(tx, message).await
    }

    /// [`Inbox::claim`] on any connection, for those who handle their transactions themselves.
    ///
    /// **Unchecked:** on a connection without an open transaction the claim commits at once, and the message is lost if the
    /// work then fails.
    ///
    /// # Errors
    /// As [`Inbox::claim`].
    pub async fn claim_on(&self, connection: &mut PgConnection, message: &Message) -> Result<Claim, ClaimError> {
        self.counted_claim(connection, message).await?.claim
    }

    /// Claims many messages in the transaction of their work, in one round trip. The answers stand in the order of the
    /// messages. A message that stands there twice is [`Claim::Repeated`] at the second place.
    ///
    /// The claims are made in the order of their lock keys, so that two batches cannot deadlock with each other.
    ///
    /// # Errors
    /// When no claim was made: the batch is over the inbox's limit, its messages name different consumers, or the database
    /// failed. What keeps a single message from being claimed stands at its place.
    pub async fn claim_batch(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        messages: &[Message],
    ) -> Result<Vec<Result<Claim, ClaimError>>, ClaimError> {
        let messages: Vec<&Message> = messages.iter().collect();
        let answers = self.counted_batch(tx, &messages).await?;
        Ok(answers.into_iter().map(|answer| answer.claim).collect())
    }

    pub(super) async fn counted_claim(
        &self,
        connection: &mut PgConnection,
        message: &Message,
    ) -> Result<Answer, ClaimError> {
        let began = Instant::now();
        let asked = self.ask(connection, message, self.wait()).await;
        self.count_call(began.elapsed());
        match &asked {
            Ok(answer) => self.count_claim(message, answer),
            Err(_) => self.count_outcome("error"),
        }
        asked
    }

    pub(super) async fn counted_batch(
        &self,
        connection: &mut PgConnection,
        messages: &[&Message],
    ) -> Result<Vec<Answer>, ClaimError> {
        let began = Instant::now();
        let asked = self.ask_batch(connection, messages).await;
        self.count_call(began.elapsed());
        match &asked {
            Ok(answers) => {
                for (message, answer) in messages.iter().zip(answers) {
                    self.count_claim(message, answer);
                }
            }
            Err(_) => self.count_outcome("error"),
        }
        asked
    }

    pub(super) async fn ask(
        &self,
        connection: &mut PgConnection,
        message: &Message,
        wait: Option<Duration>,
    ) -> Result<Answer, ClaimError> {
        self.check_consumer(message)?;
        let values = [
            Some(message.id().to_string()),
            Some(message.topic().to_owned()),
            message.said_created_at().map(timestamp),
            message.consumer_name().map(str::to_owned),
            wait.map(interval),
        ];
        let asked = match self.prepared_claim() {
            Some(prepared) => {
                let query = sqlx::query(AssertSqlSafe(prepared));
                let bound = values.into_iter().fold(query, sqlx::query::Query::bind);
                bound.fetch_one(connection).await
            }
            None => {
                // Without a cast for what is null: the server would look each one up.
                let literal =
                    |nth: usize| or_null(values[nth].as_deref().map(|text| as_type(Sql::text(text), TYPES[nth])));
                let query = claim_query(self.try_claim(), std::array::from_fn(literal), Sql::fixed(""));
                sqlx::raw_sql(AssertSqlSafe(query)).fetch_one(connection).await
            }
        };
        let doing = || format!("claim of message {} in inbox {}", message.id(), self.table());
        let row = asked.map_err(|error| ClaimError::of(doing(), error))?;
        Answer::read(&row, &self.label(), message).map_err(|error| ClaimError::of(doing(), error))
    }

    async fn ask_batch(&self, connection: &mut PgConnection, messages: &[&Message]) -> Result<Vec<Answer>, ClaimError> {
        let Some(first) = messages.first() else {
            return Ok(Vec::new());
        };
        self.check_batch(first, messages)?;
        let texts = |text: fn(&Message) -> Sql| Sql::array(messages.iter().map(|message| text(message)));
        let query = render(
            include_str!("../../sql/client/claim_batch.sql"),
            &[
                ("claim_batch", self.batch_function()),
                (
                    "ids",
                    typed(texts(|message| Sql::text(&message.id().to_string())), "uuid[]"),
                ),
                ("topics", typed(texts(|message| Sql::text(message.topic())), "text[]")),
                (
                    "created_ats",
                    typed(
                        texts(|message| or_null(message.said_created_at().map(timestamp).as_deref().map(Sql::text))),
                        "timestamptz[]",
                    ),
                ),
                ("consumer", or_null(first.consumer_name().map(Sql::text))),
                (
                    "wait",
                    or_null(
                        self.wait()
                            .map(interval)
                            .map(|wait| typed(Sql::text(&wait), "interval")),
                    ),
                ),
            ],
        );
        let doing = || format!("claim of {} messages in inbox {}", messages.len(), self.table());
        let failed = |error| ClaimError::of(doing(), error);
        let rows = sqlx::raw_sql(AssertSqlSafe(query))
            .fetch_all(connection)
            .await
            .map_err(failed)?;
        let places: Result<Vec<i32>, sqlx::Error> = rows.iter().map(|row| row.try_get("ord")).collect();
        // An answer at a wrong place would ack a message that was not claimed.
        if !places
            .map_err(failed)?
            .into_iter()
            .eq(1..=i32::try_from(messages.len()).unwrap_or(i32::MAX))
        {
            return Err(ClaimError::noticed(
                ClaimErrorKind::Other,
                format!("{}: the answer is not one a message", doing()),
            ));
        }
        rows.iter()
            .zip(messages)
            .map(|(row, message)| Answer::read(row, &self.label(), message).map_err(failed))
            .collect()
    }

    fn check_batch(&self, first: &Message, messages: &[&Message]) -> Result<(), ClaimError> {
        let (length, limit) = (messages.len(), self.constants().max_batch);
        if u32::try_from(length).map_or(true, |length| length > limit) {
            return Err(ClaimError::noticed(
                ClaimErrorKind::BatchTooLarge,
                format!(
                    "a batch of {length} messages is over the limit of {limit} of inbox {}: split it, or raise max_batch",
                    self.table()
                ),
            ));
        }
        if let Some(other) = messages
            .iter()
            .find(|message| message.consumer_name() != first.consumer_name())
        {
            return Err(ClaimError::noticed(
                ClaimErrorKind::InvalidArgument,
                format!(
                    "messages {} and {} of one batch name different consumers",
                    first.id(),
                    other.id()
                ),
            ));
        }
        self.check_consumer(first)
    }

    /// The functions refuse it as well, but an error there aborts the caller's transaction.
    fn check_consumer(&self, message: &Message) -> Result<(), ClaimError> {
        let what = match (self.consumers(), message.consumer_name()) {
            (Consumers::One, Some(consumer)) => format!(
                "inbox {} is made for one consumer, and message {} names {consumer:?}",
                self.table(),
                message.id()
            ),
            (Consumers::Many, None) => format!(
                "inbox {} is shared by many consumers, and message {} names none",
                self.table(),
                message.id()
            ),
            _ => return Ok(()),
        };
        Err(ClaimError::noticed(ClaimErrorKind::InvalidArgument, what))
    }
}

fn or_null(value: Option<Sql>) -> Sql {
    value.unwrap_or_else(Sql::null)
}

/// Typed where it is no text already.
fn as_type(value: Sql, of: &'static str) -> Sql {
    match of {
        "text" => value,
        of => typed(value, of),
    }
}

fn typed(value: Sql, of: &'static str) -> Sql {
    Sql::of("{{value}}::{{of}}", &[("value", value), ("of", Sql::fixed(of))])
}

/// A claim with its values as literals or as parameters, and its numbers as they come or as text.
fn claim_query(function: Sql, values: [Sql; TYPES.len()], as_text: Sql) -> String {
    let [id, topic, created_at, consumer, wait] = values;
    render(
        include_str!("../../sql/client/claim.sql"),
        &[
            ("try_claim", function),
            ("id", id),
            ("topic", topic),
            ("created_at", created_at),
            ("consumer", consumer),
            ("wait", wait),
            ("as_text", as_text),
        ],
    )
}

/// The claim as the driver prepares it. All of its values travel as text, as literals do.
pub(super) fn prepared(function: Sql) -> String {
    let parameters = ["$1", "$2", "$3", "$4", "$5"].map(Sql::fixed);
    let mut types = TYPES.into_iter();
    let values = parameters.map(|value| as_type(value, types.next().unwrap_or_default()));
    claim_query(function, values, Sql::fixed("::text"))
}

/// What is outside the years 1970 to 9999 is moved to their edge: for a claim the one is as early, the other as much beyond
/// any tolerance.
fn timestamp(instant: DateTime<Utc>) -> String {
    let latest = DateTime::from_timestamp(253_402_300_799, 0).unwrap_or(DateTime::<Utc>::MAX_UTC);
    let instant = instant.clamp(DateTime::UNIX_EPOCH, latest);
    instant.format("%Y-%m-%d %H:%M:%S%.6f+00").to_string()
}

fn interval(length: Duration) -> String {
    // A longer one than PostgreSQL takes for a lock timeout (24 days) is as good as that.
    let millis = length.as_millis().min(i32::MAX as u128);
    format!("{millis} milliseconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_to_the_microsecond_and_within_the_years_that_a_claim_can_use() {
        let text = |instant: &str| timestamp(instant.parse().unwrap());
        assert_eq!(text("2026-12-01T23:59:59.999999999Z"), "2026-12-01 23:59:59.999999+00");
        assert_eq!(text("1066-10-14T09:00:00Z"), "1970-01-01 00:00:00.000000+00");
        assert_eq!(timestamp(DateTime::<Utc>::MAX_UTC), "9999-12-31 23:59:59.000000+00");
        assert_eq!(interval(Duration::MAX), "2147483647 milliseconds");
    }
}
