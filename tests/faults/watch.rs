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
    defaults::{default_stands, has_default},
    world::{GRACE, RETENTION_DAYS, default_of},
};

/// A clock that steps back by no more than this may make something leave that much too soon.
const CLOCK_STEP: TimeDelta = TimeDelta::hours(1);

/// Who blocked a claim, sampled as often as the server answers. Maintenance never does.
pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Sampled>,
}

/// What it found, with the session that it keeps from day to day.
struct Sampled {
    samples: u64,
    blockers: Vec<(String, f64)>,
    session: Option<PgConnection>,
}

impl Sampler {
    pub(crate) fn start(options: &PgConnectOptions, session: Option<PgConnection>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(sample(
            options.clone().application_name("sampler"),
            session,
            stop.clone(),
        ));
        Self { stop, task }
    }

    /// How often it looked; fails if a claim has waited for maintenance, or for longer than a moment where it may have been
    /// the exchange of a default partition.
    pub(crate) async fn stop(self, may_exchange: bool) -> (u64, Option<PgConnection>) {
        self.stop.store(true, Ordering::SeqCst);
        let Sampled {
            samples,
            mut blockers,
            session,
        } = self.task.await.unwrap();
        blockers.retain(|(_, seconds)| !may_exchange || *seconds > LONGEST_EXCHANGE.as_secs_f64());
        assert!(blockers.is_empty(), "claims waited for maintenance: {blockers:#?}");
        (samples, session)
    }
}

async fn sample(options: PgConnectOptions, mut session: Option<PgConnection>, stop: Arc<AtomicBool>) -> Sampled {
    let (mut samples, mut seen) = (0, Vec::new());
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    while !stop.load(Ordering::SeqCst) {
        tick.tick().await;
        if session.is_none() {
            session = options.connect().await.ok();
        }
        let Some(open) = &mut session else { continue };
        let blockers: Result<Vec<(String, f64)>, _> = sqlx::query_as(
            "select concat_ws(': ', blocker.application_name, waiting.wait_event, blocker.query, 'before', waiting.query),
               extract(epoch from clock_timestamp() - waiting.query_start)::float8
             from pg_stat_activity as waiting
             cross join unnest(pg_blocking_pids(waiting.pid)) as blocking (pid)
             join pg_stat_activity as blocker on blocker.pid = blocking.pid
             -- Who waits for nobody has no blockers, and to be asked costs as much as a claim.
             where waiting.application_name = $1 and waiting.wait_event_type = 'Lock' and blocker.application_name like 'inboxd %'
               -- The canary's claim adds a page to the day's table as any other claim does, and holds this lock no longer.
               and not (blocker.application_name = 'inboxd canary' and waiting.wait_event = 'extend')",
        )
        .bind(CONSUMER)
        .fetch_all(open)
        .await;
        match blockers {
            Ok(blockers) => {
                samples += 1;
                if seen.len() < 300 {
                    seen.extend(blockers);
                }
            }
            // The server was killed, or its lock table is full.
            Err(_) => session = None,
        }
    }
    Sampled {
        samples,
        blockers: seen,
        session,
    }
}

/// Its lock and its statements are bounded to 0.1 s and 1 s; machines are busy.
const LONGEST_EXCHANGE: Duration = Duration::from_secs(5);

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
    /// Days on hold: whether a detach had begun before, which goes on to its end.
    held: BTreeMap<(String, Day), bool>,
    foreign: BTreeMap<i64, String>,
    /// Default partitions that somebody made, by inbox: whether they are drained, and the time until which what was drained stays.
    defaults: BTreeMap<String, Option<DateTime<Utc>>>,
    /// Whether nothing may have been removed since the last look.
    pub(crate) barred: bool,
}

impl Leaves {
    pub(crate) fn by_hand(&mut self, oid: i64) {
        self.by_hand.insert(oid);
    }

    pub(crate) fn hold(&mut self, inbox: &str, day: Day, leaves: bool) {
        self.held.insert((inbox.to_owned(), day), leaves);
    }

    pub(crate) fn release(&mut self, inbox: &str, day: Day) {
        self.held.remove(&(inbox.to_owned(), day));
    }

    /// Somebody has made a default partition.
    pub(crate) fn default_made(&mut self, inbox: &str) {
        self.defaults.insert(inbox.to_owned(), None);
    }

    /// Somebody has taken it away.
    pub(crate) fn default_gone(&mut self, inbox: &str) {
        self.defaults.remove(inbox);
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
        self.look_at_defaults(admin, now).await;
        let found = leaves(admin).await;
        for (oid, before) in &self.seen {
            let expired = before.day.end() + TimeDelta::days(RETENTION_DAYS) <= now + CLOCK_STEP;
            let held = self.held.get(&(before.inbox.clone(), before.day));
            match found.get(oid) {
                Some(after) if before.is_attached && !after.is_attached => {
                    let leaves = held.is_none_or(|leaves| *leaves);
                    let excused = self.by_hand.contains(oid) || (expired && leaves && !self.barred);
                    assert!(
                        excused,
                        "{before:?} was detached (held: {held:?}, barred: {}) at {now}",
                        self.barred
                    );
                }
                None => {
                    // If it was attached when it was seen last, its grace began after that.
                    let grace_may_be_over = !before.is_attached || self.seen_at + GRACE <= now + CLOCK_STEP;
                    let excused =
                        self.by_hand.contains(oid) || (expired && held.is_none() && !self.barred && grace_may_be_over);
                    assert!(
                        excused,
                        "{before:?} was dropped (held: {held:?}, barred: {}) at {now}; seen last at {}",
                        self.barred, self.seen_at
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

    /// What was drained stays for its grace, for it is all that is left should the drain have gone wrong.
    async fn look_at_defaults(&mut self, admin: &mut PgConnection, now: DateTime<Utc>) {
        let mut gone = Vec::new();
        for (inbox, stays_until) in &mut self.defaults {
            let default = default_of(inbox);
            match (
                default_stands(admin, inbox).await,
                has_default(admin, inbox).await,
                *stays_until,
            ) {
                (true, _, _) => {}
                // It was attached when it was looked at last.
                (false, true, None) => *stays_until = Some(self.seen_at + GRACE),
                (false, true, Some(_)) => {}
                (false, false, until) => {
                    let until = until.unwrap_or(self.seen_at + GRACE);
                    assert!(
                        until <= now + CLOCK_STEP && !self.barred,
                        "{default} was dropped at {now}, and stays until {until}"
                    );
                    gone.push(inbox.clone());
                }
            }
        }
        for inbox in gone {
            self.defaults.remove(&inbox);
        }
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
