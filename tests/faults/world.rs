//! What the harness drives: a server under a stepped clock, one or more real services behind a proxy, and consumers behind
//! another.

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::{Ahead, Day, InboxSpec, Retention, Routing};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, pool::PoolConnection, postgres::PgPoolOptions};

use crate::{
    course::INBOXES,
    support::{
        clock::ClockServer,
        folder::Folder,
        inbox::{Deployment, spec, sql, v7_spec},
        program::{Answer, Service, config_file, inboxd},
        proxy::Proxy,
        server::TestDatabase,
    },
};

pub(crate) const RETENTION_DAYS: i64 = 3;
pub(crate) const GRACE: TimeDelta = TimeDelta::hours(24);
pub(crate) const AHEAD: i64 = 3;
/// The role that the service connects as, which owns all of it.
pub(crate) const KEEPER: &str = "keeper";
/// The role that consumers connect as.
pub(crate) const CONSUMER: &str = "consumer";
/// Bounds what should take a moment, and a schedule that has fallen silent: the service begins a new one after 95 s.
const PATIENCE: Duration = Duration::from_secs(150);

const CONFIG: &str = r#"
deployment = "test"
[schedule]
cron = "*/3 * * * * *"
[maintenance]
lock_timeout = "100ms"
statement_timeout = "5s"
attempts = 2
max_clock_leap = "3d"
[[inbox]]
table = "public.by_time"
name = "by_time"
ahead = 3
retention = "3d"
drop_grace = "24h"
drain_default = {drains 0}
seal_days = {digest}
digest = {digest}
consumer_roles = ["consumer"]
[[inbox]]
table = "public.by_id"
name = "by_id"
routing = "message_id"
ahead = 3
retention = "3d"
drop_grace = "24h"
drain_default = {drains 1}
consumer_roles = ["consumer"]
"#;

/// All of it, for one seed.
pub(crate) struct World {
    pub(crate) clock: ClockServer,
    pub(crate) database: TestDatabase,
    /// The same inboxes, for what the operator does.
    pub(crate) deployment: Deployment,
    pub(crate) to_services: Proxy,
    pub(crate) to_consumers: Proxy,
    pub(crate) services: Vec<Option<Service>>,
    lookers: PgPool,
    folder: Folder,
    pub(crate) shape: Shape,
    /// The midnight that the stepped days are counted from.
    first: DateTime<Utc>,
    http: reqwest::Client,
}

/// What differs between one world's inboxes and another's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) ahead: i64,
    /// Whether default partitions are drained, of each inbox.
    pub(crate) drains: [bool; INBOXES.len()],
    /// Whether days of the inbox by time are sealed, and claims ask a digest of them.
    pub(crate) digest: bool,
}

fn specs(shape: Shape) -> Vec<InboxSpec> {
    let of = |mut spec: InboxSpec, nth: usize| {
        spec.name = INBOXES[nth].to_owned();
        spec.policy.drain_default = shape.drains[nth];
        spec.policy.seal_days = shape.digest && spec.policy.routing == Routing::ProcessedAt;
        spec.policy.digest = spec.policy.seal_days;
        spec.policy.ahead = Ahead::new(shape.ahead).unwrap();
        spec.policy.retention = Retention::For(TimeDelta::days(RETENTION_DAYS));
        spec.policy.drop_grace = GRACE;
        spec.policy.max_clock_leap = TimeDelta::days(3);
        spec.consumer_roles = vec![inboxd::Ident::new(CONSUMER).unwrap()];
        spec
    };
    vec![of(spec("public.by_time"), 0), of(v7_spec("public.by_id"), 1)]
}

impl World {
    pub(crate) async fn new(replicas: usize, shape: Shape) -> Self {
        let clock = ClockServer::start(&[("max_connections", "60"), ("log_min_messages", "warning")]).await;
        let first: DateTime<Utc> = "2027-12-01T00:00:00Z".parse().unwrap();
        clock.set_to(first + TimeDelta::hours(12));
        let database = clock.database().await;
        let mut admin = database.connect().await;
        sql(
            &mut admin,
            format!(
                "create role {KEEPER} login; create role {CONSUMER} login;
                 grant create on database {} to {KEEPER}; revoke create on schema public from public;
                 grant create, usage on schema public to {KEEPER}; grant usage on schema public to {CONSUMER};
                 create sequence work_seq;
                 create table work (inbox text not null, message_id uuid not null, seq bigint not null default nextval('work_seq'),
                   at timestamptz not null default clock_timestamp());
                 create index work_by_message on work (message_id, inbox);
                 create index work_by_time on work (at);
                 grant insert on work to {CONSUMER}; grant usage on sequence work_seq to {CONSUMER}",
                database.name
            ),
        )
        .await;
        let deployment = Self::deployment(&clock, &database, specs(shape)).await;
        let folder = Folder::new();
        let config = CONFIG
            .replace("ahead = 3", &format!("ahead = {}", shape.ahead))
            .replace("{drains 0}", &shape.drains[0].to_string())
            .replace("{drains 1}", &shape.drains[1].to_string())
            .replace("{digest}", &shape.digest.to_string());
        config_file(folder.path(), &config);
        let to_services = Proxy::start(&database.options.clone().username(KEEPER)).await;
        let to_consumers = Proxy::start(&database.options.clone().username(CONSUMER)).await;
        let mut world = Self {
            lookers: PgPoolOptions::new()
                .max_connections(4)
                .max_lifetime(None)
                .idle_timeout(None)
                .connect_lazy_with(database.options.clone()),
            clock,
            database,
            deployment,
            to_services,
            to_consumers,
            services: (0..replicas).map(|_| None).collect(),
            folder,
            shape,
            first,
            http: reqwest::Client::builder()
                .timeout(Duration::from_secs(20))
                .build()
                .unwrap(),
        };
        world.start_services();
        world
    }

    /// Inboxes in a database, initialized by their owner.
    pub(crate) async fn deployment(clock: &ClockServer, database: &TestDatabase, specs: Vec<InboxSpec>) -> Deployment {
        let mut deployment = Deployment::new(database.clone(), clock.clock(), specs);
        deployment.options = database.options.clone().username(KEEPER);
        deployment.timeouts.lock = Duration::from_millis(100);
        deployment.init().await.unwrap();
        deployment
    }

    pub(crate) fn specs(&self) -> Vec<InboxSpec> {
        specs(self.shape)
    }

    /// Whether runs drain a default partition of this inbox.
    pub(crate) fn drains(&self, inbox: &str) -> bool {
        INBOXES
            .iter()
            .zip(self.shape.drains)
            .any(|(one, drains)| *one == inbox && drains)
    }

    /// What `inboxd check` says, from beside the services: its exit code, and its words.
    pub(crate) fn check(&self) -> (i32, String) {
        let mut command = inboxd(&["check"]);
        command
            .env("INBOXD_CONFIG", self.folder.path().join("inboxd.toml"))
            .env("DATABASE_URL", &self.database.url)
            .envs(self.clock.shim_environment());
        let answer = Answer::of(&mut command);
        (answer.code.unwrap_or(-1), answer.out + &answer.err)
    }

    /// A session that only looks; who sets or locks anything takes one of its own.
    pub(crate) async fn looker(&self) -> PoolConnection<Postgres> {
        self.lookers.acquire().await.unwrap()
    }

    pub(crate) async fn admin(&self) -> PgConnection {
        self.database.connect().await
    }

    /// The n-th day's clock.
    pub(crate) fn set_day(&self, nth: u32, time: Duration) {
        let time = TimeDelta::from_std(time).unwrap();
        self.clock.set_to(self.first + TimeDelta::days((nth + 1).into()) + time);
    }

    pub(crate) fn today(&self) -> Day {
        Day::containing(self.clock.now())
    }

    /// Starts every replica that does not run.
    pub(crate) fn start_services(&mut self) {
        for nth in 0..self.services.len() {
            let lives = self.services[nth].as_mut().is_some_and(Service::lives);
            if !lives {
                let mut command = inboxd(&["serve"]);
                command
                    .env("INBOXD_CONFIG", self.folder.path().join("inboxd.toml"))
                    .env("DATABASE_URL", self.to_services.url())
                    .envs(self.clock.shim_environment());
                self.services[nth] = Some(Service::spawn(command));
            }
        }
    }

    /// A run that begins after this call and comes to its end, asked for over HTTP, or the schedule's.
    pub(crate) async fn run(&mut self, by_schedule: bool) {
        let mut admin = self.looker().await;
        let last: i64 = last_run(&mut admin).await;
        let begin = Instant::now();
        let mut said = Value::Null;
        while begin.elapsed() < PATIENCE {
            if by_schedule {
                tokio::time::sleep(Duration::from_millis(50)).await;
            } else {
                let replica = begin.elapsed().as_millis() as usize % self.services.len();
                said = self.ask_for_a_run(replica).await;
            }
            // One that began before may have looked before, too.
            let ended: bool = sqlx::query_scalar(
                "select exists (select from inboxd.runs where ordinal > $1 and outcome in ('done', 'partial')
                   and ($2 or trigger = 'schedule'))",
            )
            .bind(last)
            .bind(!by_schedule)
            .fetch_one(&mut *admin)
            .await
            .unwrap();
            if ended {
                return;
            }
        }
        let runs: Vec<(String, Option<String>, Option<String>)> =
            sqlx::query_as("select trigger, outcome, error from inboxd.runs where ordinal > $1 order by ordinal")
                .bind(last)
                .fetch_all(&mut *admin)
                .await
                .unwrap();
        let logs: Vec<_> = self.services.iter().flatten().map(last_lines).collect();
        panic!(
            "no run comes to an end (by the schedule: {by_schedule}); the last answer was {said}; the runs since: {runs:?}; {logs:#?}"
        );
    }

    /// Asks each service for a run and does not wait for it.
    pub(crate) fn poke(&mut self) {
        for service in self.services.iter_mut().flatten() {
            if service.lives() {
                let asked = self.http.post(service.url("/v1/runs")).json(&json!({})).send();
                tokio::spawn(asked);
            }
        }
    }

    async fn ask_for_a_run(&mut self, replica: usize) -> Value {
        let Some(service) = &mut self.services[replica] else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            return Value::Null;
        };
        let url = service.url("/v1/runs");
        let answer = self.http.post(url).json(&json!({})).send().await;
        let Ok(answer) = answer else {
            return Value::Null;
        };
        if answer.status() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        answer.json().await.unwrap_or_default()
    }

    /// Whether claims of the inbox by time find a digest of all days before today.
    pub(crate) async fn has_digest(&self, admin: &mut PgConnection) -> bool {
        // The one of a day is the one of its number: this finds it among all three.
        let slots = (0..3).map(|slot| {
            format!("select covered_from <= $1 - interval '{RETENTION_DAYS} days' and covered_to = $1 from by_time_digest_{slot}")
        });
        let text = format!(
            "select exists (select from ({}) as slot (covers) where covers)",
            slots.collect::<Vec<_>>().join(" union all ")
        );
        self.shape.digest
            && sqlx::query_scalar(AssertSqlSafe(text))
                .bind(self.today().start())
                .fetch_one(admin)
                .await
                .unwrap()
    }

    /// Fails unless today and tomorrow have a partition in both inboxes, if only a default one that somebody made.
    pub(crate) async fn must_have_today_and_tomorrow(&self, admin: &mut PgConnection) {
        for inbox in INBOXES {
            for day in [self.today(), self.today().next()] {
                let is_there: bool = sqlx::query_scalar(
                    "select exists (select from pg_inherits where inhparent = $1::regclass and not inhdetachpending
                       and inhrelid in (to_regclass($2), to_regclass($3)))",
                )
                .bind(inbox)
                .bind(format!("{inbox}_{}", day.underscored()))
                .bind(default_of(inbox))
                .fetch_one(&mut *admin)
                .await
                .unwrap();
                if !is_there {
                    let steps = last_steps(admin).await;
                    panic!("{inbox} has no partition of {day} after a run; {steps:#?}");
                }
            }
        }
    }
}

/// How somebody calls a default partition.
pub(crate) fn default_of(inbox: &str) -> String {
    format!("{inbox}_default")
}

/// The newest run that has begun.
async fn last_run(admin: &mut PgConnection) -> i64 {
    sqlx::query_scalar("select coalesce(max(ordinal), 0) from inboxd.runs")
        .fetch_one(admin)
        .await
        .unwrap()
}

/// What the last runs did, for a person who reads a failure.
pub(crate) async fn last_steps(admin: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar(AssertSqlSafe(
        "select concat_ws(' ', run.ordinal, run.trigger, run.outcome, run.error, step.action, step.relation_name, step.outcome, step.error)
         from inboxd.runs as run left join inboxd.steps as step on step.run_id = run.id
         order by run.ordinal desc, step.ordinal desc limit 30"
            .to_owned(),
    ))
    .fetch_all(admin)
    .await
    .unwrap()
}

fn last_lines(service: &Service) -> Vec<String> {
    let log = service.log();
    log.iter()
        .rev()
        .take(8)
        .map(|line| line["fields"].to_string())
        .collect()
}
