//! Claims in every form, and twins: claims of one id in two sessions, brought into step by what the server shows of them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, PgConnection};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::server::TestDatabase;

/// Long enough for a loaded machine; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(90);

/// What `<t>_try_claim` answers.
pub(crate) type Answer = (String, Option<DateTime<Utc>>);

/// A claim with everything that it can be told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claim {
    pub(crate) table: &'static str,
    pub(crate) id: Option<Uuid>,
    pub(crate) created_at: Option<DateTime<Utc>>,
    pub(crate) consumer: Option<&'static str>,
    /// As PostgreSQL writes an interval.
    pub(crate) wait: Option<&'static str>,
}

impl Claim {
    pub(crate) fn of(table: &'static str, id: Uuid) -> Self {
        Self {
            table,
            id: Some(id),
            ..Self::default()
        }
    }

    pub(crate) fn waiting(mut self, wait: &'static str) -> Self {
        self.wait = Some(wait);
        self
    }

    pub(crate) fn by(mut self, consumer: &'static str) -> Self {
        self.consumer = Some(consumer);
        self
    }

    /// `<t>_try_claim`.
    pub(crate) async fn on(&self, connection: &mut PgConnection) -> Result<Answer, sqlx::Error> {
        let text = format!(
            "select outcome, processed_at from {}_try_claim($1, 'orders', $2, $3, $4::text::interval)",
            self.table
        );
        sqlx::query_as(AssertSqlSafe(text))
            .bind(self.id)
            .bind(self.created_at)
            .bind(self.consumer)
            .bind(self.wait)
            .fetch_one(connection)
            .await
    }

    /// `<t>_try_claim`, its outcome alone.
    pub(crate) async fn outcome(&self, connection: &mut PgConnection) -> String {
        self.on(connection).await.unwrap().0
    }

    /// `<t>_claim`.
    pub(crate) async fn fresh(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        sqlx::query_scalar(AssertSqlSafe(format!(
            "select {}_claim($1, 'orders', $2, $3)",
            self.table
        )))
        .bind(self.id)
        .bind(self.created_at)
        .bind(self.consumer)
        .fetch_one(connection)
        .await
    }

    /// Starts the claim in a session of its own and returns once it waits for another.
    pub(crate) async fn behind_its_twin(&self, database: &TestDatabase) -> Twin {
        let mut connection = database.connect().await;
        let pid = pid_of(&mut connection).await;
        let claim = self.clone();
        let task = tokio::spawn(async move {
            let answer = claim.on(&mut connection).await;
            (connection, answer)
        });
        wait_until_blocked(database, pid).await;
        Twin { pid, task }
    }
}

/// A claim that waits, or waited, for another session.
pub(crate) struct Twin {
    pub(crate) pid: i32,
    task: JoinHandle<(PgConnection, Result<Answer, sqlx::Error>)>,
}

impl Twin {
    /// What it came to.
    pub(crate) async fn end(self) -> Result<Answer, sqlx::Error> {
        let (_, answer) = tokio::time::timeout(PATIENCE, self.task)
            .await
            .expect("the twin goes on")
            .unwrap();
        answer
    }
}

/// `<t>_claim_batch` with a topic for each id: the outcomes, in the order of the answer, whose ordinals are checked.
pub(crate) async fn batch(
    connection: &mut PgConnection,
    table: &str,
    ids: &[Option<Uuid>],
    wait: Option<&str>,
) -> Result<Vec<String>, sqlx::Error> {
    let rows: Vec<(i32, String, Option<DateTime<Utc>>)> = sqlx::query_as(AssertSqlSafe(format!(
        "select ord, outcome, processed_at
         from {table}_claim_batch($1, array_fill('orders'::text, array[cardinality($1)]), null, null, $2::text::interval)"
    )))
    .bind(ids)
    .bind(wait)
    .fetch_all(connection)
    .await?;
    let ordinals: Vec<usize> = rows.iter().map(|row| usize::try_from(row.0).unwrap()).collect();
    assert_eq!(ordinals, (1..=ids.len()).collect::<Vec<_>>());
    Ok(rows.into_iter().map(|row| row.1).collect())
}

/// How many rows of a message an inbox holds.
pub(crate) async fn rows_of(connection: &mut PgConnection, table: &str, id: Uuid) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(format!(
        "select count(*) from {table} where message_id = $1"
    )))
    .bind(id)
    .fetch_one(connection)
    .await
    .unwrap()
}

/// A session's process.
pub(crate) async fn pid_of(connection: &mut PgConnection) -> i32 {
    sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(connection)
        .await
        .unwrap()
}

/// Returns once a session waits for a lock that another session holds.
pub(crate) async fn wait_until_blocked(database: &TestDatabase, pid: i32) {
    let blocked = "select wait_event_type is not distinct from 'Lock' and cardinality(pg_blocking_pids(pid)) > 0
                   from pg_stat_activity where pid = $1";
    wait_until(database, &format!("{pid} is blocked"), blocked, pid).await;
}

/// Returns once a question about a session is answered with yes.
pub(crate) async fn wait_until(database: &TestDatabase, what: &str, question: &'static str, pid: i32) {
    let mut observer = database.connect().await;
    let ask = async {
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        loop {
            tick.tick().await;
            let yes: Option<bool> = sqlx::query_scalar(question)
                .bind(pid)
                .fetch_optional(&mut observer)
                .await
                .unwrap()
                .flatten();
            if yes == Some(true) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, ask)
        .await
        .unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

/// Returns once any session of the database waits for a lock that another holds.
pub(crate) async fn wait_until_any_blocked(database: &TestDatabase) {
    eventually("a session is blocked", async || {
        let question = "select count(*) > 0 from pg_stat_activity
                        where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0";
        sqlx::query_scalar(question)
            .fetch_one(&mut database.connect().await)
            .await
            .unwrap()
    })
    .await;
}

/// Returns once a session has ended.
pub(crate) async fn wait_until_gone(database: &TestDatabase, pid: i32) {
    eventually("the session has ended", async || {
        sqlx::query_scalar("select not exists (select from pg_stat_activity where pid = $1)")
            .bind(pid)
            .fetch_one(&mut database.connect().await)
            .await
            .unwrap()
    })
    .await;
}

/// Returns once a question is answered with yes.
pub(crate) async fn eventually(what: &str, question: impl AsyncFn() -> bool) {
    let ask = async {
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        loop {
            tick.tick().await;
            if question().await {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, ask)
        .await
        .unwrap_or_else(|_| panic!("waited in vain until {what}"));
}
