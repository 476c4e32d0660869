//! What an inbox should answer, from a few lists in memory: the rows that are committed, and what each session did since.
//!
//! It knows nothing of look-backs, keys or snapshots. From the catalog it takes one thing, the days that are attached, and
//! checks after each pass that they are all those that the policy promises.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::{Day, Routing};
use uuid::Uuid;

pub(super) const RETENTION: TimeDelta = TimeDelta::days(1);
pub(super) const AHEAD: i64 = 2;

/// What a claim answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Fresh(DateTime<Utc>),
    Duplicate(DateTime<Utc>),
    Repeated(DateTime<Utc>),
    /// The boolean form's false.
    NotFresh,
    InFlight,
    TooOld,
    TooNew,
    Invalid,
    Missing,
}

impl Answer {
    /// Whether it is one of those that were expected. When a fresh row was made nobody can expect to the microsecond.
    pub(super) fn is_one_of(self, expected: &[Answer]) -> bool {
        expected.iter().any(|expected| match (self, *expected) {
            (Self::Fresh(at), Self::Fresh(now)) => Day::containing(at) == Day::containing(now),
            (Self::NotFresh, Self::Duplicate(_) | Self::Repeated(_)) => true,
            (answer, expected) => answer == expected,
        })
    }
}

/// A message for a consumer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) id: Uuid,
    /// When the message was made, if its id says so.
    pub(super) made_at: Option<DateTime<Utc>>,
    /// What the claims of it say about that.
    pub(super) created_at: Option<DateTime<Utc>>,
    pub(super) consumer: Option<&'static str>,
}

/// A row of the inbox, or of a transaction that is still open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    key: usize,
    at: DateTime<Utc>,
    day: Day,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// The id's lock, of `processed_at` routing.
    Locked(usize),
    /// A forget's, which no claim takes in `message_id` routing.
    LockedToForget(usize),
    Inserted(Row),
    Deleted(Row),
}

#[derive(Debug, Default)]
struct Session {
    open: bool,
    events: Vec<Event>,
    savepoints: Vec<usize>,
    /// Days that came or went since it began. A transaction that has the inbox locked already need not notice: PostgreSQL
    /// reads what others changed about a table when it locks the table for the first time.
    unsure: BTreeSet<Day>,
}

pub(super) struct Model {
    routing: Routing,
    pub(super) keys: Vec<Key>,
    committed: Vec<Row>,
    sessions: Vec<Session>,
    attached: BTreeSet<Day>,
    /// The latest instant at which a pass ran: what had expired by then may be gone, whatever the clock shows since.
    last_pass: DateTime<Utc>,
}

impl Model {
    pub(super) fn new(routing: Routing, keys: Vec<Key>, sessions: usize) -> Self {
        Self {
            routing,
            keys,
            committed: Vec::new(),
            sessions: (0..sessions).map(|_| Session::default()).collect(),
            attached: BTreeSet::new(),
            last_pass: DateTime::UNIX_EPOCH,
        }
    }

    pub(super) fn is_open(&self, session: usize) -> bool {
        self.sessions[session].open
    }

    pub(super) fn begin(&mut self, session: usize) {
        self.sessions[session].open = true;
    }

    pub(super) fn savepoint(&mut self, session: usize) {
        let session = &mut self.sessions[session];
        session.savepoints.push(session.events.len());
    }

    pub(super) fn has_savepoint(&self, session: usize) -> bool {
        !self.sessions[session].savepoints.is_empty()
    }

    /// To the latest savepoint, which stays.
    pub(super) fn roll_back_to_savepoint(&mut self, session: usize) {
        let session = &mut self.sessions[session];
        if let Some(length) = session.savepoints.last() {
            session.events.truncate(*length);
        }
    }

    pub(super) fn roll_back(&mut self, session: usize) {
        self.sessions[session] = Session::default();
    }

    pub(super) fn commit(&mut self, session: usize) {
        for event in std::mem::take(&mut self.sessions[session]).events {
            apply(&mut self.committed, event);
        }
    }

    /// Takes note of what a pass left attached; fails where that is not what it promises.
    pub(super) fn passed(&mut self, now: DateTime<Utc>, attached: BTreeSet<Day>) -> Result<(), String> {
        self.last_pass = self.last_pass.max(now);
        let today = Day::containing(now);
        let first = match self.routing {
            Routing::ProcessedAt => today,
            Routing::MessageId => Day::containing(self.last_pass - RETENTION),
        };
        let mut promised: BTreeSet<Day> = (0..=first.days_until(today.plus(AHEAD)))
            .map(|n| first.plus(n))
            .collect();
        promised.extend(self.attached.iter().filter(|day| !self.is_expired(**day, now)));
        let lacking: Vec<Day> = promised.difference(&attached).copied().collect();
        for session in self.sessions.iter_mut().filter(|session| session.open) {
            session.unsure.extend(self.attached.symmetric_difference(&attached));
        }
        self.attached = attached;
        if lacking.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "after a pass at {now} these days are not attached: {lacking:?}"
            ))
        }
    }

    /// Whether nothing is promised of a day any more: it is older than the retention, or was when a pass last ran.
    fn is_expired(&self, day: Day, now: DateTime<Utc>) -> bool {
        day.end() <= self.last_pass.max(now) - RETENTION
    }

    /// Whether another session keeps a lock of the key. Its claim may have been a duplicate.
    pub(super) fn is_locked(&self, session: usize, key: usize) -> bool {
        self.others(session).any(|event| match event {
            Event::Locked(locked) => *locked == key,
            Event::Inserted(row) | Event::Deleted(row) => row.key == key,
            Event::LockedToForget(_) => false,
        })
    }

    /// The session that has the key claimed, or forgotten, and has not ended.
    pub(super) fn holder(&self, session: usize, key: usize) -> Option<usize> {
        (0..self.sessions.len())
            .filter(|other| *other != session)
            .find(|other| {
                let wrote =
                    |event: &Event| matches!(event, Event::Inserted(row) | Event::Deleted(row) if row.key == key);
                self.sessions[*other].events.iter().any(wrote)
            })
    }

    fn others(&self, session: usize) -> impl Iterator<Item = &Event> {
        let others = self.sessions.iter().enumerate().filter(move |(n, _)| *n != session);
        others.flat_map(|(_, other)| &other.events)
    }

    /// The rows of a key that a session sees, each with whether it is the session's own.
    fn visible(&self, session: usize, key: usize) -> Vec<(Row, bool)> {
        let mut rows = self.committed.clone();
        for event in &self.sessions[session].events {
            apply(&mut rows, *event);
        }
        let attached = rows
            .into_iter()
            .filter(|row| row.key == key && (self.attached.contains(&row.day) || self.is_unsure(session, row.day)));
        attached.map(|row| (row, !self.committed.contains(&row))).collect()
    }

    /// What a claim may answer that does not wait.
    pub(super) fn expected(&self, session: usize, key: usize, now: DateTime<Utc>) -> Vec<Answer> {
        if let Some(refused) = self.refused(session, key, now) {
            return vec![refused];
        }
        if self.holder(session, key).is_some() {
            return vec![Answer::InFlight];
        }
        let mut expected = match self.routing {
            Routing::ProcessedAt => self.by_time(session, key, now),
            Routing::MessageId => self.by_id(session, key, now),
        };
        // A twin that was told "duplicate" keeps its lock: "in flight" is true, and so is what it hides.
        if self.is_locked(session, key) {
            expected.push(Answer::InFlight);
        }
        expected
    }

    /// What is answered before anybody could be waited for.
    fn refused(&self, session: usize, key: usize, now: DateTime<Utc>) -> Option<Answer> {
        let key = self.keys[key];
        if key.id.is_nil() {
            return Some(Answer::Invalid);
        }
        if self.routing == Routing::ProcessedAt {
            return None;
        }
        let day = Day::containing(key.made_at?);
        if day < Day::containing(now - RETENTION) {
            Some(Answer::TooOld)
        } else if day > Day::containing(now).plus(AHEAD) {
            Some(Answer::TooNew)
        } else if !self.attached.contains(&day) && !self.is_unsure(session, day) {
            Some(Answer::Missing)
        } else {
            None
        }
    }

    fn by_time(&self, session: usize, key: usize, now: DateTime<Utc>) -> Vec<Answer> {
        let rows = self.visible(session, key);
        let mut expected: Vec<Answer> = rows.iter().map(|(row, own)| seen(row, *own)).collect();
        // After the retention and before the day is gone, either answer is right.
        let is_optional = |row: &Row| self.is_expired(row.day, now) || self.is_unsure(session, row.day);
        if rows.iter().all(|(row, _)| is_optional(row)) {
            let today = Day::containing(now);
            let (is_attached, is_unsure) = (self.attached.contains(&today), self.is_unsure(session, today));
            expected.extend((is_attached || is_unsure).then_some(Answer::Fresh(now)));
            expected.extend((!is_attached || is_unsure).then_some(Answer::Missing));
        }
        expected
    }

    fn by_id(&self, session: usize, key: usize, now: DateTime<Utc>) -> Vec<Answer> {
        let mut expected = match self.visible(session, key).first() {
            Some((row, own)) => vec![seen(row, *own)],
            None => vec![Answer::Fresh(now)],
        };
        let day = self.keys[key].made_at.map(Day::containing);
        if day.is_some_and(|day| self.is_unsure(session, day)) {
            expected.push(Answer::Missing);
        }
        expected
    }

    fn is_unsure(&self, session: usize, day: Day) -> bool {
        self.sessions[session].unsure.contains(&day)
    }

    /// Takes note of an answer.
    pub(super) fn claimed(&mut self, session: usize, key: usize, answer: Answer) {
        let day_of_id = self.keys[key].made_at.map(Day::containing);
        let by_time = self.routing == Routing::ProcessedAt;
        let events = &mut self.sessions[session].events;
        let locks = matches!(
            answer,
            Answer::Fresh(_) | Answer::Duplicate(_) | Answer::Repeated(_) | Answer::NotFresh
        );
        let locked = |event: &Event| matches!(event, Event::Locked(locked) if *locked == key);
        if by_time && locks && !events.iter().any(locked) {
            events.push(Event::Locked(key));
        }
        if let Answer::Fresh(at) = answer {
            let day = day_of_id.filter(|_| !by_time).unwrap_or(Day::containing(at));
            events.push(Event::Inserted(Row { key, at, day }));
        }
    }

    /// What a forget may answer: whether there was something to forget, or that the message is in flight.
    pub(super) fn expected_of_forget(&self, session: usize, key: usize) -> Vec<Option<bool>> {
        let forgetting = self
            .others(session)
            .any(|event| matches!(event, Event::LockedToForget(locked) if *locked == key));
        let rows = self.visible(session, key);
        let there = Some(!rows.is_empty());
        let in_flight = self.is_locked(session, key);
        match self.routing {
            _ if forgetting => vec![None],
            Routing::ProcessedAt if in_flight => vec![None],
            // What is not committed is not there to be forgotten, or is in flight: neither takes anything away.
            Routing::MessageId if in_flight => vec![None, there],
            _ if rows.iter().any(|(row, _)| self.is_unsure(session, row.day)) => vec![Some(true), Some(false)],
            _ => vec![there],
        }
    }

    pub(super) fn forgotten(&mut self, session: usize, key: usize, was_there: bool) {
        let mut rows = self.visible(session, key);
        rows.retain(|_| was_there);
        let lock = match self.routing {
            Routing::ProcessedAt => Event::Locked(key),
            Routing::MessageId => Event::LockedToForget(key),
        };
        let same = |event: &Event| match (event, lock) {
            (Event::Locked(a), Event::Locked(b)) | (Event::LockedToForget(a), Event::LockedToForget(b)) => *a == b,
            _ => false,
        };
        let events = &mut self.sessions[session].events;
        if !events.iter().any(same) {
            events.push(lock);
        }
        events.extend(rows.into_iter().map(|(row, _)| Event::Deleted(row)));
    }
}

fn seen(row: &Row, own: bool) -> Answer {
    if own {
        Answer::Repeated(row.at)
    } else {
        Answer::Duplicate(row.at)
    }
}

fn apply(rows: &mut Vec<Row>, event: Event) {
    match event {
        Event::Inserted(row) => rows.push(row),
        Event::Deleted(row) => rows.retain(|other| *other != row),
        Event::Locked(_) | Event::LockedToForget(_) => {}
    }
}
