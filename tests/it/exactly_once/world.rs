//! Where a shape is tried: a server under a stepped clock, an inbox in the middle of its life, and a table of work done
//! that has no constraint, so that it counts what was really done.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::{Consumers, Day, InboxSpec, Routing};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use crate::support::{
    claims::pid_of,
    clock::ClockServer,
    inbox::{Deployment, spec, sql},
};

/// The inbox's table.
pub(crate) const TABLE: &str = "inbox";

/// A message for one consumer group: the unit whose work must be done once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Message {
    pub(crate) id: Uuid,
    pub(crate) created_at: Option<DateTime<Utc>>,
    pub(crate) consumer: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) server: ClockServer,
    pub(crate) deployment: Deployment,
    /// The first midnight that is stepped over.
    pub(crate) midnight: DateTime<Utc>,
}

impl World {
    /// The evening before a midnight, with an inbox that has lived for some days: from eight on its retention is full.
    pub(crate) async fn before(midnight: &str, days: i64, routing: Routing, consumers: Consumers) -> Self {
        Self::of(midnight, days, inbox(routing, consumers)).await
    }

    pub(crate) async fn of(midnight: &str, days: i64, inbox: InboxSpec) -> Self {
        let server = ClockServer::start(&[("max_connections", "60")]).await;
        let midnight: DateTime<Utc> = midnight.parse().unwrap();
        server.set_to(midnight - TimeDelta::days(days) - TimeDelta::hours(1));
        let deployment = Deployment::new(server.database().await, server.clock(), vec![inbox]);
        deployment.init().await.unwrap();
        deployment.done().await;
        for _ in 0..days {
            server.step(TimeDelta::days(1));
            deployment.done().await;
        }
        let world = Self {
            server,
            deployment,
            midnight,
        };
        sql(
            &mut world.connect().await,
            "create table work (message_id uuid not null, consumer text, at timestamptz not null default clock_timestamp())",
        )
        .await;
        world.evening(0);
        world
    }

    /// Sets the clock some seconds before the n-th midnight.
    pub(crate) fn evening(&self, nth: i64) {
        self.server
            .set_to(self.midnight + TimeDelta::days(nth) - TimeDelta::seconds(30));
    }

    /// Sets the clock some seconds after the n-th midnight.
    pub(crate) fn morning(&self, nth: i64) {
        self.server
            .set_to(self.midnight + TimeDelta::days(nth) + TimeDelta::seconds(30));
    }

    pub(crate) async fn connect(&self) -> PgConnection {
        self.deployment.database.connect().await
    }

    /// A session and its process, which somebody may have to kill.
    pub(crate) async fn session(&self) -> (PgConnection, i32) {
        let mut connection = self.connect().await;
        let pid = pid_of(&mut connection).await;
        (connection, pid)
    }

    pub(crate) async fn version(&self) -> i32 {
        sqlx::query_scalar("select current_setting('server_version_num')::int")
            .fetch_one(&mut self.connect().await)
            .await
            .unwrap()
    }

    /// So many ids that say when they were made, and where the routing takes them, others too; all made about the first
    /// midnight. Where many consumers share the inbox, two receive each id.
    pub(crate) fn messages(&self, count: usize, seed: u64) -> Vec<Message> {
        let policy = &self.deployment.specs[0].policy;
        let consumers: &[Option<&'static str>] = match policy.consumers {
            Consumers::One => &[None],
            Consumers::Many => &[Some("mailer"), Some("biller")],
        };
        let mut random = StdRng::seed_from_u64(seed);
        let ids = (0..count).map(|n| {
            let made_at = self.midnight + TimeDelta::milliseconds(random.random_range(-60_000..60_000));
            match (policy.routing, n % 3) {
                (Routing::ProcessedAt, 0) => (uuid::Builder::from_random_bytes(random.random()).into_uuid(), None),
                (Routing::ProcessedAt, 1) => (
                    uuid::Builder::from_random_bytes(random.random()).into_uuid(),
                    Some(made_at),
                ),
                _ => (v7(made_at, random.random()), None),
            }
        });
        let ids: Vec<_> = ids.collect();
        let of_all = ids.into_iter().flat_map(|(id, created_at)| {
            consumers.iter().map(move |consumer| Message {
                id,
                created_at,
                consumer: *consumer,
            })
        });
        of_all.collect()
    }

    /// How often the work of each message was done.
    pub(crate) async fn work_done(&self) -> BTreeMap<(Uuid, Option<String>), i64> {
        let rows: Vec<(Uuid, Option<String>, i64)> =
            sqlx::query_as("select message_id, consumer, count(*) from work group by 1, 2")
                .fetch_all(&mut self.connect().await)
                .await
                .unwrap();
        rows.into_iter()
            .map(|(id, consumer, count)| ((id, consumer), count))
            .collect()
    }

    /// Fails unless the work of each message was done exactly once, and nothing else's.
    pub(crate) async fn assert_each_once(&self, messages: &[Message]) {
        let wrong = self.not_once(messages).await;
        assert!(
            wrong.is_empty(),
            "{} of {} messages were not processed exactly once, such as {:?}",
            wrong.len(),
            messages.len(),
            wrong.iter().take(5).collect::<Vec<_>>()
        );
        assert_eq!(self.work_done().await.len(), messages.len());
    }

    /// The messages whose work was done more or less often than once, and how often.
    pub(crate) async fn not_once(&self, messages: &[Message]) -> Vec<(Message, i64)> {
        let done = self.work_done().await;
        let times = messages.iter().map(|message| {
            let key = (message.id, message.consumer.map(str::to_owned));
            (*message, done.get(&key).copied().unwrap_or(0))
        });
        times.filter(|(_, times)| *times != 1).collect()
    }

    /// The days that rows of the inbox were processed on.
    pub(crate) async fn days(&self) -> Vec<Day> {
        let days: Vec<DateTime<Utc>> = sqlx::query_scalar(AssertSqlSafe(format!(
            "select distinct date_trunc('day', processed_at, 'UTC') from {TABLE} order by 1"
        )))
        .fetch_all(&mut self.connect().await)
        .await
        .unwrap();
        days.into_iter().map(Day::containing).collect()
    }

    /// The days whose claims find a digest of all before.
    pub(crate) async fn digests(&self) -> Vec<String> {
        sqlx::query_scalar(AssertSqlSafe(format!(
            "select covered_to::date::text from (select covered_to from {TABLE}_digest_0 union select covered_to from {TABLE}_digest_1
               union select covered_to from {TABLE}_digest_2) as slot order by 1"
        )))
        .fetch_all(&mut self.connect().await)
        .await
        .unwrap()
    }
}

pub(crate) fn inbox(routing: Routing, consumers: Consumers) -> InboxSpec {
    let mut inbox = spec(&format!("public.{TABLE}"));
    inbox.policy.routing = routing;
    inbox.policy.consumers = consumers;
    inbox.policy.drop_grace = TimeDelta::hours(1);
    inbox
}

fn v7(made_at: DateTime<Utc>, random: [u8; 10]) -> Uuid {
    uuid::Builder::from_unix_timestamp_millis(u64::try_from(made_at.timestamp_millis()).unwrap(), &random).into_uuid()
}
