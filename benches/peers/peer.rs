//! Those who are compared: how each keeps its inbox, claims from it, and gets rid of old days.

use chrono::{DateTime, Days, TimeDelta, Utc};
use inboxd::{
    Ahead, InboxSpec, Retention,
    maintain::{Retries, StepOutcome},
    postgres::Timeouts,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use crate::support::{
    clock::ClockServer,
    inbox::{Deployment, spec, sql, v7_at, v7_spec},
    server::TestDatabase,
};

/// All keep the days after this many.
pub(crate) const RETENTION_DAYS: u64 = 2;
/// And all have this many ahead, but pg_partman, whose own default it is.
const AHEAD: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The unpartitioned table, swept by one `DELETE`.
    DeleteAtOnce,
    /// The same, by many small ones.
    DeleteInBatches,
    /// `create table … partition of` and `drop table`, by hand.
    Bare,
    Partman,
    ByTime,
    ById,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DeleteAtOnce => "`DELETE` at once",
            Self::DeleteInBatches => "`DELETE` in batches of 5,000",
            Self::Bare => "`partition of` and `drop`",
            Self::Partman => "pg_partman",
            Self::ByTime => "inboxd, `processed_at`",
            Self::ById => "inboxd, `message_id`",
        }
    }

    /// The name without code marks, for a plot.
    pub(crate) fn plain(self) -> String {
        self.name().replace('`', "")
    }
}

/// One of them, with a database of its own.
pub(crate) struct Peer {
    pub(crate) kind: Kind,
    pub(crate) database: TestDatabase,
    deployment: Option<Deployment>,
}

/// Whether a server has pg_partman to offer.
pub(crate) async fn has_partman(server: &ClockServer) -> bool {
    let mut admin = server.database().await.connect().await;
    sqlx::query_scalar("select count(*) > 0 from pg_available_extensions where name = 'pg_partman'")
        .fetch_one(&mut admin)
        .await
        .unwrap()
}

/// Those of a list that a server can have; who is missing is told.
pub(crate) async fn available(server: &ClockServer, kinds: &[Kind]) -> Vec<Kind> {
    let has_partman = has_partman(server).await;
    if !has_partman {
        eprintln!("-- pg_partman is left out: this server does not have it (apt-get install postgresql-15-partman)");
    }
    kinds
        .iter()
        .copied()
        .filter(|kind| *kind != Kind::Partman || has_partman)
        .collect()
}

impl Peer {
    pub(crate) async fn new(server: &ClockServer, kind: Kind) -> Self {
        let database = server.database().await;
        let mut admin = database.connect().await;
        let columns =
            "message_id uuid not null, topic varchar(255) not null, processed_at timestamptz not null default now()";
        let mut deployment = None;
        match kind {
            Kind::DeleteAtOnce => {
                sql(
                    &mut admin,
                    format!("create table inbox ({columns}, primary key (message_id))"),
                )
                .await
            }
            // Without the second index each batch would read all that the batches before it left dead.
            Kind::DeleteInBatches => {
                let text = format!(
                    "create table inbox ({columns}, primary key (message_id)); create index on inbox (processed_at)"
                );
                sql(&mut admin, text).await;
            }
            Kind::Bare | Kind::Partman => {
                let text = format!(
                    "create table inbox ({columns}, primary key (message_id, processed_at)) partition by range (processed_at)"
                );
                sql(&mut admin, text).await;
            }
            Kind::ByTime => deployment = Some(of_inboxd(server, &database, spec("public.inbox")).await),
            Kind::ById => deployment = Some(of_inboxd(server, &database, v7_spec("public.inbox")).await),
        }
        if kind == Kind::Partman {
            for text in [
                "create schema partman",
                "create extension pg_partman schema partman",
                "select partman.create_parent('public.inbox', 'processed_at', 'native', 'daily', p_premake := 4)",
            ] {
                sql(&mut admin, text).await;
            }
            let text = format!(
                "update partman.part_config set retention = '{RETENTION_DAYS} days', retention_keep_table = false, infinite_time_partitions = true"
            );
            sql(&mut admin, text).await;
        }
        let peer = Self {
            kind,
            database,
            deployment,
        };
        if kind == Kind::Bare {
            let today = start_of_day(server.now());
            for nth in 0..=AHEAD {
                sql(&mut admin, create_of(today + Days::new(nth))).await;
            }
        }
        peer
    }

    pub(crate) async fn admin(&self) -> PgConnection {
        self.database.connect().await
    }

    /// A claim of `$1`.
    pub(crate) fn claim(&self) -> &'static str {
        match self.kind {
            Kind::DeleteAtOnce | Kind::DeleteInBatches => {
                "insert into inbox (message_id, topic) values ($1, 'orders') on conflict (message_id) do nothing returning true"
            }
            Kind::Bare | Kind::Partman => {
                "insert into inbox (message_id, topic) values ($1, 'orders') on conflict do nothing returning true"
            }
            Kind::ByTime | Kind::ById => "select inbox_claim($1, 'orders')",
        }
    }

    /// A new message's id.
    pub(crate) fn new_id(now: DateTime<Utc>) -> Uuid {
        v7_at(now)
    }

    /// What is done once a day: the days ahead, and the removal of those that have expired. Of inboxd: which steps it took, or
    /// tried.
    pub(crate) async fn maintain(&self, now: DateTime<Utc>) -> Vec<&'static str> {
        let mut admin = self.admin().await;
        let before = start_of_day(now) - Days::new(RETENTION_DAYS);
        match self.kind {
            Kind::DeleteAtOnce => sql(&mut admin, format!("delete from inbox where processed_at < '{before}'")).await,
            Kind::DeleteInBatches => self.delete_in_batches(&mut admin, before).await,
            Kind::Bare => {
                sql(&mut admin, create_of(start_of_day(now) + Days::new(AHEAD))).await;
                sql(
                    &mut admin,
                    format!("drop table if exists {}", leaf(before - Days::new(1))),
                )
                .await;
            }
            Kind::Partman => sql(&mut admin, "call partman.run_maintenance_proc()").await,
            Kind::ByTime | Kind::ById => {
                // A step that could not be done now is left to the next run, as in life.
                let report = self.deployment().pass().await;
                for step in report.steps() {
                    if let StepOutcome::Failed { error, .. } = &step.outcome {
                        eprintln!(
                            "   {}: {} is left to the next run: {error}",
                            self.kind.plain(),
                            step.step.action.as_str()
                        );
                    }
                }
                return report.steps().map(|step| step.step.action.as_str()).collect();
            }
        }
        Vec::new()
    }

    /// A few rows of now.
    pub(crate) async fn fill_today(&self, now: DateTime<Utc>) {
        let mut admin = self.admin().await;
        for _ in 0..200 {
            sqlx::query(self.claim())
                .bind(Self::new_id(now))
                .execute(&mut admin)
                .await
                .unwrap();
        }
    }

    /// The same until what has expired is gone: inboxd drops in the run after the one that detached.
    pub(crate) async fn get_rid(&self, now: DateTime<Utc>) {
        let runs = if self.deployment.is_some() { 2 } else { 1 };
        for _ in 0..runs {
            self.maintain(now).await;
        }
    }

    async fn delete_in_batches(&self, admin: &mut PgConnection, before: DateTime<Utc>) {
        let text = format!(
            "delete from inbox where ctid in (select ctid from inbox where processed_at < '{before}' limit 5000)"
        );
        loop {
            let done = sqlx::query(AssertSqlSafe(text.clone()))
                .execute(&mut *admin)
                .await
                .unwrap();
            if done.rows_affected() == 0 {
                return;
            }
        }
    }

    pub(crate) fn deployment(&self) -> &Deployment {
        self.deployment.as_ref().expect("of an inbox of inboxd only")
    }

    /// Puts rows into a day, as fast as it goes: the key is made afterwards where that is possible. Their ids are random where
    /// the routing takes such.
    pub(crate) async fn fill(&self, day: DateTime<Utc>, rows: u64) {
        self.fill_with(day, rows, RANDOM).await;
    }

    /// The same with UUIDv7 ids.
    pub(crate) async fn fill_v7(&self, day: DateTime<Utc>, rows: u64) {
        self.fill_with(day, rows, V7_OF_DAY).await;
    }

    async fn fill_with(&self, day: DateTime<Utc>, rows: u64, id: &str) {
        let mut admin = self.admin().await;
        sql(&mut admin, "set maintenance_work_mem = '512MB'; set timezone = 'UTC'").await;
        let insert = |table: &str, id: &str| {
            format!(
                "insert into {table} (message_id, topic, processed_at)
                 select {id}, 'orders', given.at
                 from (select '{day}'::timestamptz + n * (interval '1 day' / {rows}) as at from generate_series(0, {rows} - 1) as n) as given"
            )
        };
        match self.kind {
            Kind::DeleteAtOnce | Kind::DeleteInBatches => {
                let text = "alter table inbox drop constraint inbox_pkey; drop index if exists inbox_processed_at_idx";
                sql(&mut admin, text).await;
                sql(&mut admin, insert("inbox", id)).await;
                sql(&mut admin, "alter table inbox add primary key (message_id)").await;
                if self.kind == Kind::DeleteInBatches {
                    sql(&mut admin, "create index on inbox (processed_at)").await;
                }
            }
            Kind::ByTime => {
                let leaf = leaf(day);
                sql(&mut admin, format!("alter table {leaf} drop constraint {leaf}_pkey")).await;
                sql(&mut admin, insert(&leaf, id)).await;
                sql(&mut admin, format!("alter table {leaf} add primary key (message_id)")).await;
            }
            // Keys that belong to one of the parent stay where they are.
            Kind::Bare | Kind::Partman => sql(&mut admin, insert("inbox", id)).await,
            Kind::ById => sql(&mut admin, insert("inbox", V7_OF_DAY)).await,
        }
        admin.close().await.unwrap();
    }
}

const RANDOM: &str = "gen_random_uuid()";
/// A UUIDv7 of the time that the row is given.
const V7_OF_DAY: &str = "(lpad(to_hex((extract(epoch from given.at) * 1000)::bigint), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid";

async fn of_inboxd(server: &ClockServer, database: &TestDatabase, mut spec: InboxSpec) -> Deployment {
    spec.policy.ahead = Ahead::new(i64::try_from(AHEAD).unwrap()).unwrap();
    spec.policy.retention = Retention::For(TimeDelta::days(i64::try_from(RETENTION_DAYS).unwrap()));
    // The others have none.
    spec.policy.drop_grace = TimeDelta::zero();
    let mut deployment = Deployment::new(database.clone(), server.clock(), vec![spec]);
    deployment.timeouts = Timeouts {
        lock: Timeouts::DEFAULT_LOCK,
        statement: Timeouts::DEFAULT_STATEMENT,
    };
    deployment.retries = Retries::default();
    deployment.init().await.unwrap();
    deployment.done().await;
    deployment
}

pub(crate) fn start_of_day(now: DateTime<Utc>) -> DateTime<Utc> {
    now.date_naive().and_time(chrono::NaiveTime::MIN).and_utc()
}

/// The name that a day's partition has.
pub(crate) fn leaf(day: DateTime<Utc>) -> String {
    format!("inbox_{}", day.format("%Y_%m_%d"))
}

fn create_of(day: DateTime<Utc>) -> String {
    let (leaf, to) = (leaf(day), day + Days::new(1));
    format!("create table {leaf} partition of inbox for values from ('{day}') to ('{to}')")
}
