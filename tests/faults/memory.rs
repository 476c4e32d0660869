//! What must be remembered: the work that was done, and the days whose memory was lost by hand.
//!
//! Work is counted in the database, in the transaction of its claim. Order is told by the sequence of that table, never by a
//! clock: clocks step.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::Day;
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use crate::world::RETENTION_DAYS;

/// A clock that steps back by no more than this may make a day leave the retention that much too soon.
const CLOCK_STEP: TimeDelta = TimeDelta::hours(1);

/// Work that was done, as the table has it.
#[derive(Debug, Clone)]
struct Work {
    inbox: String,
    message_id: Uuid,
    seq: i64,
    at: DateTime<Utc>,
}

type Row = (String, Uuid, i64, DateTime<Utc>);

impl From<Row> for Work {
    fn from((inbox, message_id, seq, at): Row) -> Self {
        Self {
            inbox,
            message_id,
            seq,
            at,
        }
    }
}

/// A stretch in which a day's claims were not, or are no longer, looked at, by somebody's hand.
#[derive(Debug, Clone, Copy)]
struct Gap {
    from: i64,
    to: i64,
    /// Whether what was claimed until its end is gone for good.
    for_good: bool,
}

/// The days of each inbox that somebody's hand has touched.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    gaps: BTreeMap<(String, Day), Vec<Gap>>,
}

impl Memory {
    /// From now on the claims of a day are not seen.
    pub(crate) async fn goes_away(&mut self, connection: &mut PgConnection, inbox: &str, day: Day) {
        let from = mark(connection).await;
        let gaps = self.gaps.entry((inbox.to_owned(), day)).or_default();
        gaps.push(Gap {
            from,
            to: i64::MAX,
            for_good: false,
        });
    }

    /// The claims of a day have gone for good: those made until now.
    pub(crate) async fn is_lost(&mut self, connection: &mut PgConnection, inbox: &str, day: Day) {
        let to = mark(connection).await;
        if let Some(gap) = self.open(inbox, day) {
            gap.to = to;
            gap.for_good = true;
        }
    }

    /// The claims of a day are seen again. Not to be called while claims are made.
    pub(crate) async fn is_back(&mut self, connection: &mut PgConnection, inbox: &str, day: Day) {
        let to = mark(connection).await;
        if let Some(gap) = self.open(inbox, day) {
            gap.to = to;
        }
    }

    fn open(&mut self, inbox: &str, day: Day) -> Option<&mut Gap> {
        let gaps = self.gaps.get_mut(&(inbox.to_owned(), day))?;
        gaps.iter_mut().rev().find(|gap| gap.to == i64::MAX)
    }

    /// Days that are out by hand now.
    pub(crate) fn away(&self) -> impl Iterator<Item = (&str, Day)> {
        let is_open = |gaps: &Vec<Gap>| gaps.iter().any(|gap| gap.to == i64::MAX);
        self.gaps
            .iter()
            .filter(move |(_, gaps)| is_open(gaps))
            .map(|((inbox, day), _)| (inbox.as_str(), *day))
    }

    /// Days of an inbox that were lost by hand.
    pub(crate) fn lost<'m>(&'m self, inbox: &'m str) -> impl Iterator<Item = Day> + 'm {
        self.gaps
            .iter()
            .filter(move |((of, _), gaps)| of == inbox && gaps.iter().any(|gap| gap.for_good))
            .map(|((_, day), _)| *day)
    }

    /// Whether a claim may have been forgotten when another of the same message was made (or now).
    fn may_have_forgotten(&self, first: &Work, later_seq: i64) -> bool {
        days_of(first).into_iter().any(|day| {
            let gaps = self.gaps.get(&(first.inbox.clone(), day)).into_iter().flatten();
            gaps.into_iter()
                .any(|gap| first.seq <= gap.to && later_seq >= gap.from && (gap.for_good || later_seq <= gap.to))
        })
    }

    /// Fails unless every message was processed at most once, but for what retention or somebody's hand explains, and
    /// everything within retention is still in its inbox.
    pub(crate) async fn check(&self, connection: &mut PgConnection, now: DateTime<Utc>) {
        self.check_once(connection).await;
        self.check_kept(connection, now).await;
        check_nothing_swallowed(connection).await;
    }

    async fn check_once(&self, connection: &mut PgConnection) {
        let repeated: Vec<Row> = sqlx::query_as(
            "select inbox, message_id, seq, at from work where (inbox, message_id) in (
               select inbox, message_id from work group by inbox, message_id having count(*) > 1)
             order by inbox, message_id, seq",
        )
        .fetch_all(connection)
        .await
        .unwrap();
        let repeated: Vec<Work> = repeated.into_iter().map(Work::from).collect();
        for (nth, later) in repeated.iter().enumerate() {
            let firsts = repeated[..nth]
                .iter()
                .rev()
                .take_while(|first| (&first.inbox, first.message_id) == (&later.inbox, later.message_id));
            for first in firsts {
                let excused = has_expired(first, later.at) || self.may_have_forgotten(first, later.seq);
                assert!(
                    excused,
                    "a message was processed twice: {first:?}, {later:?}; {:?}",
                    self.gaps
                );
            }
        }
    }

    async fn check_kept(&self, connection: &mut PgConnection, now: DateTime<Utc>) {
        for inbox in crate::course::INBOXES {
            let missing: Vec<Row> = sqlx::query_as(AssertSqlSafe(format!(
                "select inbox, message_id, seq, at from work
                 where inbox = $1 and at > $2
                   and not exists (select from {inbox} as claim where claim.message_id = work.message_id)"
            )))
            .bind(inbox)
            .bind(now - TimeDelta::days(RETENTION_DAYS + 1))
            .fetch_all(&mut *connection)
            .await
            .unwrap();
            for work in missing.into_iter().map(Work::from) {
                let excused = has_expired(&work, now) || self.may_have_forgotten(&work, i64::MAX);
                assert!(
                    excused,
                    "a claim within retention is forgotten: {work:?} at {now}; {:?}",
                    self.gaps
                );
            }
        }
    }
}

/// A claim without its work would swallow a message.
async fn check_nothing_swallowed(connection: &mut PgConnection) {
    for inbox in crate::course::INBOXES {
        let swallowed: Vec<Uuid> = sqlx::query_scalar(AssertSqlSafe(format!(
            "select message_id from {inbox} as claim where not exists (
               select from work where work.inbox = $1 and work.message_id = claim.message_id)"
        )))
        .bind(inbox)
        .fetch_all(&mut *connection)
        .await
        .unwrap();
        assert!(
            swallowed.is_empty(),
            "claimed in {inbox} without the work: {swallowed:?}"
        );
    }
}

/// Whether the day of a claim had left the retention when the message came again.
fn has_expired(first: &Work, later: DateTime<Utc>) -> bool {
    let is_over = |day: Day| day.end() + TimeDelta::days(RETENTION_DAYS) <= later + CLOCK_STEP;
    days_of(first).into_iter().any(is_over)
}

/// The day that a claim was made on. Its work was done a moment after, which may have been the next day.
fn days_of(work: &Work) -> [Day; 2] {
    match work.inbox.as_str() {
        "by_id" => [day_of_id(work.message_id); 2],
        _ => [
            Day::containing(work.at),
            Day::containing(work.at - TimeDelta::seconds(5)),
        ],
    }
}

/// The day that a UUIDv7 was made on.
pub(crate) fn day_of_id(id: Uuid) -> Day {
    let (seconds, nanos) = id.get_timestamp().expect("a UUIDv7").to_unix();
    Day::containing(DateTime::from_timestamp(seconds.try_into().unwrap(), nanos).unwrap())
}

/// A place in the order of all work.
async fn mark(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar("select nextval('work_seq')")
        .fetch_one(connection)
        .await
        .unwrap()
}
