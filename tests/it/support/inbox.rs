//! An inbox on a database of the test's own, with passes and claims in a line each.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::{
    Ahead, ClaimSpec, Consumers, Day, InboxSpec, OnExpiry, Plan, Policy, Retention, Routing,
    clock::Clock,
    maintain::{self, InboxReport, PassOutcome, PassRequest, PlannedInbox, Retries, RunReport, StepOutcome, Trigger},
    postgres::{self, DbError, Timeouts},
};
use sqlx::{AssertSqlSafe, PgConnection, postgres::PgConnectOptions};
use uuid::Uuid;

use super::server::TestDatabase;

pub(crate) const DEPLOYMENT: &str = "test";

/// The defaults, for one table.
pub(crate) fn spec(table: &str) -> InboxSpec {
    InboxSpec {
        name: table.to_owned(),
        table: table.parse().unwrap(),
        policy: Policy {
            routing: Routing::ProcessedAt,
            consumers: Consumers::One,
            ahead: Ahead::DEFAULT,
            retention: Retention::For(TimeDelta::days(7)),
            on_expiry: OnExpiry::Drop,
            drop_grace: TimeDelta::hours(24),
            max_drops_per_run: 4,
            max_clock_skew: TimeDelta::minutes(5),
            max_clock_leap: TimeDelta::days(7),
            drain_default: false,
            seal_days: false,
            digest: false,
        },
        claim: ClaimSpec::default(),
        before_drop: None,
        owner: None,
        consumer_roles: Vec::new(),
        admin_roles: Vec::new(),
    }
}

/// The same with `message_id` routing.
pub(crate) fn v7_spec(table: &str) -> InboxSpec {
    let mut spec = spec(table);
    spec.policy.routing = Routing::MessageId;
    spec
}

/// A database with the inboxes of one deployment.
#[derive(Debug, Clone)]
pub(crate) struct Deployment {
    pub(crate) database: TestDatabase,
    pub(crate) specs: Vec<InboxSpec>,
    pub(crate) clock: Clock,
    pub(crate) timeouts: Timeouts,
    pub(crate) retries: Retries,
    pub(crate) name: String,
    /// How maintenance connects; the database's superuser unless a test says otherwise.
    pub(crate) options: PgConnectOptions,
}

impl Deployment {
    pub(crate) fn new(database: TestDatabase, clock: Clock, specs: Vec<InboxSpec>) -> Self {
        Self {
            options: database.options.clone(),
            database,
            specs,
            clock,
            // Short, so that a test about waiting does not wait.
            timeouts: Timeouts {
                lock: Duration::from_millis(500),
                statement: Duration::from_secs(20),
            },
            retries: Retries {
                attempts: 3,
                pause: Duration::from_millis(20),
            },
            name: DEPLOYMENT.to_owned(),
        }
    }

    /// A fresh database on the shared server with these inboxes in it, initialized.
    pub(crate) async fn initialized(specs: Vec<InboxSpec>) -> Self {
        let deployment = Self::new(super::server::database().await, Clock::system(), specs);
        deployment.init().await.unwrap();
        deployment
    }

    /// The same, with a first pass.
    pub(crate) async fn running(specs: Vec<InboxSpec>) -> Self {
        let deployment = Self::initialized(specs).await;
        deployment.done().await;
        deployment
    }

    pub(crate) async fn maintenance(&self) -> PgConnection {
        postgres::connect(&self.options, "inboxd maintenance", self.timeouts)
            .await
            .unwrap()
    }

    pub(crate) async fn init(&self) -> Result<maintain::InitReport, DbError> {
        maintain::init(&mut self.maintenance().await, &self.specs, &self.name, &self.clock).await
    }

    pub(crate) async fn plan(&self) -> Vec<PlannedInbox> {
        maintain::plan_all(&mut self.maintenance().await, &self.specs, &self.name, &self.clock)
            .await
            .unwrap()
            .1
    }

    pub(crate) async fn outcome(&self, confirm_clock: bool) -> Result<PassOutcome, DbError> {
        let mut connection = self.maintenance().await;
        let request = PassRequest {
            deployment: &self.name,
            specs: &self.specs,
            replica: None,
            trigger: Trigger::Manual,
            confirm_clock,
            retries: self.retries,
            clock: &self.clock,
            stop: &|| false,
        };
        maintain::run_pass(&mut connection, request).await
    }

    /// One pass, whatever becomes of its steps.
    pub(crate) async fn pass(&self) -> RunReport {
        match self.outcome(false).await.unwrap() {
            PassOutcome::Ran(report) => report,
            other => panic!("the pass did not run: {other:?}"),
        }
    }

    /// One pass all of whose steps must be done; returns what was done, as `action relation`.
    pub(crate) async fn done(&self) -> Vec<String> {
        let report = self.pass().await;
        for step in report.steps() {
            assert_eq!(step.outcome, StepOutcome::Done, "{step:?}");
        }
        steps(&report)
    }

    /// The names of the attached partitions of a table, in order.
    pub(crate) async fn partitions(&self, table: &str) -> Vec<String> {
        sqlx::query_scalar(
            "select relation.relname::text from pg_catalog.pg_inherits as child
             join pg_catalog.pg_class as relation on relation.oid = child.inhrelid
             where child.inhparent = $1::regclass and not child.inhdetachpending order by 1",
        )
        .bind(table)
        .fetch_all(&mut self.database.connect().await)
        .await
        .unwrap()
    }
}

/// What a run did, as `action relation`, in order.
pub(crate) fn steps(report: &RunReport) -> Vec<String> {
    report
        .steps()
        .map(|report| format!("{} {}", report.step.action.as_str(), report.step.relation))
        .collect()
}

/// The only inbox of a report.
pub(crate) fn only(report: &RunReport) -> &InboxReport {
    assert_eq!(report.inboxes.len(), 1);
    &report.inboxes[0]
}

/// The codes of a plan's findings, as JSON has them, sorted.
pub(crate) fn codes(plan: &Plan) -> Vec<String> {
    let mut codes: Vec<String> = plan
        .findings
        .iter()
        .map(|finding| serde_json::to_value(finding.code).unwrap().as_str().unwrap().to_owned())
        .collect();
    codes.sort();
    codes
}

/// Attaches empty partitions of these days before another, made by hand; the next run takes them on.
pub(crate) async fn attach_days_before(
    connection: &mut PgConnection,
    (table, key): (&str, &str),
    day: Day,
    count: i64,
) {
    for past in (1..=count).map(|days| day.plus(-days)) {
        let leaf = format!("{table}_{}", past.underscored());
        let (from, to) = (past.start(), past.end());
        sql(
            connection,
            format!(
                "create table {leaf} (like {table} including defaults, primary key ({key}));
                 alter table {table} attach partition {leaf} for values from ('{from}') to ('{to}')"
            ),
        )
        .await;
    }
}

/// Runs SQL, one or many statements, on a connection.
pub(crate) async fn sql(connection: &mut PgConnection, text: impl Into<String>) {
    let text = text.into();
    sqlx::raw_sql(AssertSqlSafe(text.clone()))
        .execute(connection)
        .await
        .unwrap_or_else(|error| panic!("{text}: {error}"));
}

/// `<t>_claim(id, topic)`: true when fresh.
pub(crate) async fn claim(connection: &mut PgConnection, table: &str, id: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(AssertSqlSafe(format!("select {table}_claim($1, 'orders')")))
        .bind(id)
        .fetch_one(connection)
        .await
}

/// `<t>_try_claim(id, topic)` with a bounded wait: the outcome.
pub(crate) async fn try_claim(
    connection: &mut PgConnection,
    table: &str,
    id: Uuid,
    wait: Option<Duration>,
) -> Result<String, sqlx::Error> {
    let wait = wait.map(|wait| format!("{} milliseconds", wait.as_millis()));
    sqlx::query_scalar(AssertSqlSafe(format!(
        "select outcome from {table}_try_claim($1, 'orders', null, null, $2::interval)"
    )))
    .bind(id)
    .bind(wait)
    .fetch_one(connection)
    .await
}

/// A random id of version 4.
pub(crate) fn random_id() -> Uuid {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid()
}

/// A UUIDv7 created at an instant.
pub(crate) fn v7_at(instant: DateTime<Utc>) -> Uuid {
    uuid::Builder::from_unix_timestamp_millis(u64::try_from(instant.timestamp_millis()).unwrap(), &rand::random())
        .into_uuid()
}

/// The SQLSTATE of a database error.
pub(crate) fn sqlstate(error: &sqlx::Error) -> String {
    error
        .as_database_error()
        .and_then(|error| error.code())
        .map(|code| code.into_owned())
        .unwrap_or_default()
}
