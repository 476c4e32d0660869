//! What is looked at throughout: whom claims wait for, and what leaves an inbox.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::Day;
use sqlx::{ConnectOptions, PgConnection, postgres::PgConnectOptions};
use tokio::task::JoinHandle;

use crate::{
    claims::CONSUMER,
    course::INBOXES,
    world::{GRACE, RETENTION_DAYS},
};

/// A clock that steps back by no more than this may make something leave that much too soon.
const CLOCK_STEP: TimeDelta = TimeDelta::hours(1);

/// Who blocked a claim, sampled as often as the server answers. Maintenance never does.
pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    task: JoinHandle<(u64, Vec<String>)>,
}

impl Sampler {
    pub(crate) fn start(options: &PgConnectOptions) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(sample(options.clone().application_name("sampler"), stop.clone()));
        Self { stop, task }
    }

    /// How often it looked; fails if a claim has waited for maintenance.
    pub(crate) async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        let (samples, blockers) = self.task.await.unwrap();
        assert!(blockers.is_empty(), "claims waited for maintenance: {blockers:#?}");
        samples
    }
}

async fn sample(options: PgConnectOptions, stop: Arc<AtomicBool>) -> (u64, Vec<String>) {
    let (mut connection, mut samples, mut seen) = (None, 0, Vec::new());
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    while !stop.load(Ordering::SeqCst) {
        tick.tick().await;
        if connection.is_none() {
            connection = options.connect().await.ok();
        }
        let Some(open) = &mut connection else { continue };
        let blockers: Result<Vec<String>, _> = sqlx::query_scalar(
            "select concat_ws(': ', blocker.application_name, blocker.query, 'before', waiting.query)
             from pg_stat_activity as waiting
             cross join unnest(pg_blocking_pids(waiting.pid)) as blocking (pid)
             join pg_stat_activity as blocker on blocker.pid = blocking.pid
             where waiting.application_name = $1 and blocker.application_name like 'inboxd %'",
        )
        .bind(CONSUMER)
        .fetch_all(open)
        .await;
        match blockers {
            Ok(blockers) => {
                samples += 1;
                if seen.len() < 3 {
                    seen.extend(blockers);
                }
            }
            // The server was killed, or its lock table is full.
            Err(_) => connection = None,
        }
    }
    (samples, seen)
}

/// A table that is, or was, a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Leaf {
    inbox: String,
    day: Day,
    is_attached: bool,
}

/// The partitions, as they were seen last.
#[derive(Debug, Default)]
pub(crate) struct Leaves {
    seen: BTreeMap<i64, Leaf>,
    seen_at: DateTime<Utc>,
    /// Tables that somebody's hand has taken out or dropped.
    by_hand: BTreeSet<i64>,
    held: BTreeSet<(String, Day)>,
    foreign: BTreeMap<i64, String>,
}

impl Leaves {
    pub(crate) fn by_hand(&mut self, oid: i64) {
        self.by_hand.insert(oid);
    }

    pub(crate) fn hold(&mut self, inbox: &str, day: Day) {
        self.held.insert((inbox.to_owned(), day));
    }

    pub(crate) fn release(&mut self, inbox: &str, day: Day) {
        self.held.remove(&(inbox.to_owned(), day));
    }

    /// Nothing but a person may touch it.
    pub(crate) fn foreign(&mut self, oid: i64, name: &str) {
        self.foreign.insert(oid, name.to_owned());
    }

    pub(crate) fn forget_foreign(&mut self, oid: i64) {
        self.foreign.remove(&oid);
    }

    /// Looks at what there is, and fails if something has left that should not have.
    pub(crate) async fn look(&mut self, admin: &mut PgConnection, now: DateTime<Utc>) {
        let found = leaves(admin).await;
        for (oid, before) in &self.seen {
            let expired = before.day.end() + TimeDelta::days(RETENTION_DAYS) <= now + CLOCK_STEP;
            let is_held = self.held.contains(&(before.inbox.clone(), before.day));
            match found.get(oid) {
                Some(after) if before.is_attached && !after.is_attached => {
                    let excused = self.by_hand.contains(oid) || (expired && !is_held);
                    assert!(excused, "{before:?} was detached (held: {is_held}) at {now}");
                }
                None => {
                    // If it was attached when it was seen last, its grace began after that.
                    let grace_may_be_over = !before.is_attached || self.seen_at + GRACE <= now + CLOCK_STEP;
                    let excused = self.by_hand.contains(oid) || (expired && !is_held && grace_may_be_over);
                    assert!(
                        excused,
                        "{before:?} was dropped (held: {is_held}) at {now}; seen last at {}",
                        self.seen_at
                    );
                }
                Some(_) => {}
            }
        }
        for (oid, name) in &self.foreign {
            let rows: Option<String> = sqlx::query_scalar(
                "select relname::text from pg_class where oid = $1 and not relispartition
                   and obj_description(oid, 'pg_class') is null",
            )
            .bind(oid)
            .fetch_optional(&mut *admin)
            .await
            .unwrap();
            assert_eq!(rows.as_ref(), Some(name), "a foreign table was touched");
        }
        (self.seen, self.seen_at) = (found, now);
    }
}

/// All tables that are named as partitions, or marked as such.
async fn leaves(admin: &mut PgConnection) -> BTreeMap<i64, Leaf> {
    let rows: Vec<(i64, String, bool)> = sqlx::query_as(
        "select oid::bigint, relname::text, relispartition and exists (
             select from pg_inherits where inhrelid = pg_class.oid and not inhdetachpending)
         from pg_class
         where relkind = 'r' and relnamespace = 'public'::regnamespace and relname ~ '^by_(time|id)_\\d{4}_\\d\\d_\\d\\d$'
           and obj_description(oid, 'pg_class') is not null",
    )
    .fetch_all(admin)
    .await
    .unwrap();
    let leaf = |(oid, name, is_attached): (i64, String, bool)| {
        let inbox = INBOXES.iter().find(|inbox| name.starts_with(**inbox)).unwrap();
        let day = name[inbox.len() + 1..].replace('_', "-").parse().unwrap();
        let leaf = Leaf {
            inbox: (*inbox).to_owned(),
            day,
            is_attached,
        };
        (oid, leaf)
    };
    rows.into_iter().map(leaf).collect()
}
