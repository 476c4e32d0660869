//! Does each step in the database and in the model, and compares.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::{Consumers, Day, Routing};
use sqlx::{Connection, PgConnection};

use super::{
    Form, Inbox, Move, Op, TABLE, ask,
    state::{Answer, Key, Model},
};
use crate::support::{
    claims::{pid_of, wait_until_blocked},
    inbox::{random_id, v7_at},
};

pub(super) const SESSIONS: usize = 3;

/// This long before and after a midnight the clock is set: within the tolerance for a clock that steps back.
const BESIDE_MIDNIGHT: TimeDelta = TimeDelta::minutes(10);

/// How often each thing was seen, over all cases.
pub(super) type Tally = BTreeMap<String, usize>;

pub(super) struct Driver<'a> {
    inbox: &'a Inbox,
    model: Model,
    connections: Vec<PgConnection>,
    pids: Vec<i32>,
    /// The day and whether it is its first minutes or its last.
    day: Day,
    morning: bool,
    seen: Tally,
}

impl<'a> Driver<'a> {
    /// Begins in the evening of a day whose pass has run.
    pub(super) async fn start(inbox: &'a Inbox, day: Day) -> Result<Self, String> {
        let keys = keys(inbox.routing, inbox.consumers, day);
        let (mut connections, mut pids) = (Vec::new(), Vec::new());
        for _ in 0..SESSIONS {
            let mut connection = inbox.deployment.database.connect().await;
            pids.push(pid_of(&mut connection).await);
            connections.push(connection);
        }
        let mut driver = Self {
            inbox,
            model: Model::new(inbox.routing, keys, SESSIONS),
            connections,
            pids,
            day,
            morning: false,
            seen: Tally::new(),
        };
        driver.set_clock();
        driver.pass().await?;
        Ok(driver)
    }

    /// Rolls back what is open; the day that the clock came to, and what was seen.
    pub(super) async fn end(self) -> (Day, Tally) {
        for mut connection in self.connections {
            // One that failed may wait for nobody, but it may be in an aborted transaction.
            sqlx::query("rollback").execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }
        (self.day, self.seen)
    }

    pub(super) async fn step(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Begin(session) => {
                if !self.model.is_open(*session) {
                    self.sql(*session, "begin").await;
                    self.model.begin(*session);
                }
            }
            Op::Commit(session) => self.end_of(*session, true).await,
            Op::Rollback(session) => self.end_of(*session, false).await,
            Op::Savepoint(session) => {
                if self.model.is_open(*session) {
                    self.sql(*session, "savepoint a").await;
                    self.model.savepoint(*session);
                }
            }
            Op::RollbackToSavepoint(session) => {
                if self.model.has_savepoint(*session) {
                    self.sql(*session, "rollback to savepoint a").await;
                    self.model.roll_back_to_savepoint(*session);
                }
            }
            Op::Claim { session, key, form } => self.claim(*session, self.key(*key), *form).await?,
            Op::Batch { session, keys, waits } => self.batch(*session, keys, *waits).await?,
            Op::WaitBehind {
                session,
                held,
                commits,
                over_midnight,
            } => self.wait_behind(*session, *held, *commits, *over_midnight).await?,
            Op::Forget { session, key } => self.forget(*session, self.key(*key)).await?,
            Op::Clock(by) => self.step_clock(*by),
            Op::Pass => self.pass().await?,
        }
        Ok(())
    }

    fn key(&self, key: usize) -> usize {
        key % self.model.keys.len()
    }

    fn now(&self) -> DateTime<Utc> {
        self.inbox.server.now()
    }

    async fn sql(&mut self, session: usize, text: &'static str) {
        sqlx::query(text).execute(&mut self.connections[session]).await.unwrap();
    }

    async fn end_of(&mut self, session: usize, commits: bool) {
        if !self.model.is_open(session) {
            return;
        }
        if commits {
            self.sql(session, "commit").await;
            self.model.commit(session);
        } else {
            self.sql(session, "rollback").await;
            self.model.roll_back(session);
        }
    }

    fn step_clock(&mut self, by: Move) {
        match by {
            Move::PastMidnight if self.morning => self.morning = false,
            Move::PastMidnight => (self.day, self.morning) = (self.day.next(), true),
            // Within the tolerance there is one midnight to step back over.
            Move::BackOverMidnight if self.morning => (self.day, self.morning) = (self.day.plus(-1), false),
            Move::BackOverMidnight => {}
            Move::Days(days) => self.day = self.day.plus(days),
        }
        self.set_clock();
    }

    fn set_clock(&self) {
        self.inbox.server.set_to(if self.morning {
            self.day.start() + BESIDE_MIDNIGHT
        } else {
            self.day.end() - BESIDE_MIDNIGHT
        });
    }

    async fn pass(&mut self) -> Result<(), String> {
        let deployment = &self.inbox.deployment;
        let report = deployment.pass().await;
        for step in report.steps() {
            *self.seen.entry(step.step.action.as_str().to_owned()).or_default() += 1;
        }
        let attached: BTreeSet<Day> = deployment
            .partitions(TABLE)
            .await
            .iter()
            .filter_map(|name| Day::from_underscored(name.strip_prefix(TABLE)?.strip_prefix('_')?))
            .collect();
        self.model.passed(self.now(), attached)
    }

    async fn claim(&mut self, session: usize, key: usize, form: Form) -> Result<(), String> {
        // Nobody would end the wait: this is one step at a time.
        let form = if self.model.is_locked(session, key) {
            Form::NoWait
        } else {
            form
        };
        let now = self.now();
        let expected = self.model.expected(session, key, now);
        let answer = self.ask(session, key, form).await;
        self.judge(session, key, answer, &expected, now)?;
        self.after(session, answer, form == Form::Boolean).await;
        Ok(())
    }

    /// Compares an answer with what was expected, and takes note of both.
    fn judge(
        &mut self,
        session: usize,
        key: usize,
        answer: Answer,
        expected: &[Answer],
        now: DateTime<Utc>,
    ) -> Result<(), String> {
        if !answer.is_one_of(expected) {
            return Err(format!(
                "session {session} claimed key {key} ({:?}) at {now}: {answer:?}, expected one of {expected:?}",
                self.model.keys[key]
            ));
        }
        self.model.claimed(session, key, answer);
        let what = match answer {
            Answer::Duplicate(at) if Day::containing(at) != Day::containing(now) => "duplicate of another day",
            Answer::Fresh(_) if expected.iter().any(|other| matches!(other, Answer::Duplicate(_))) => {
                "fresh after retention"
            }
            Answer::Fresh(_) => "fresh",
            Answer::Duplicate(_) => "duplicate",
            Answer::Repeated(_) => "repeated",
            Answer::NotFresh => "not fresh",
            Answer::InFlight => "in flight",
            Answer::TooOld => "too old",
            Answer::TooNew => "too new",
            Answer::Invalid => "invalid",
            Answer::Missing => "missing",
        };
        *self.seen.entry(what.to_owned()).or_default() += 1;
        Ok(())
    }

    /// A claim outside a transaction is committed; one that failed has ended its transaction.
    async fn after(&mut self, session: usize, answer: Answer, boolean: bool) {
        let refused = matches!(answer, Answer::TooOld | Answer::TooNew | Answer::Invalid);
        if answer == Answer::Missing || boolean && refused {
            // Also outside a transaction: the server says what failed before it lets go of the locks, but answers this after.
            self.sql(session, "rollback").await;
            self.model.roll_back(session);
        } else if !self.model.is_open(session) {
            self.model.commit(session);
        }
    }

    async fn ask(&mut self, session: usize, key: usize, form: Form) -> Answer {
        ask::one(&mut self.connections[session], self.model.keys[key], form).await
    }

    async fn batch(&mut self, session: usize, keys: &[usize], waits: bool) -> Result<(), String> {
        let consumer = self.model.keys[self.key(keys[0])].consumer;
        let keys: Vec<usize> = keys.iter().map(|key| self.key(*key)).collect();
        let keys: Vec<usize> = keys
            .into_iter()
            .filter(|key| self.model.keys[*key].consumer == consumer)
            .collect();
        let waits = waits && !keys.iter().any(|key| self.model.is_locked(session, *key));
        let now = self.now();
        let all_expected: Vec<Vec<Answer>> = keys.iter().map(|key| self.model.expected(session, *key, now)).collect();
        let claimed: Vec<Key> = keys.iter().map(|key| self.model.keys[*key]).collect();
        let answers = ask::batch(&mut self.connections[session], &claimed, waits).await;
        let answers = match answers {
            Ok(answers) => answers,
            Err(Answer::Missing) if all_expected.iter().any(|one| one.contains(&Answer::Missing)) => {
                *self.seen.entry("missing".to_owned()).or_default() += 1;
                self.after(session, Answer::Missing, false).await;
                return Ok(());
            }
            Err(answer) => {
                return Err(format!(
                    "session {session} claimed {keys:?} at {now}: {answer:?}, expected {all_expected:?}"
                ));
            }
        };
        for (n, key) in keys.iter().enumerate() {
            let expected = match keys[..n].iter().position(|earlier| earlier == key) {
                Some(first) => match answers[first] {
                    Answer::Fresh(at) => vec![Answer::Repeated(at)],
                    other => vec![other],
                },
                None => all_expected[n].clone(),
            };
            self.judge(session, *key, answers[n], &expected, now)?;
        }
        *self.seen.entry("batch".to_owned()).or_default() += 1;
        if !self.model.is_open(session) {
            self.model.commit(session);
        }
        Ok(())
    }

    /// A claim that waits for a twin, and what it comes to once that one's transaction has ended.
    async fn wait_behind(
        &mut self,
        session: usize,
        held: usize,
        commits: bool,
        over_midnight: bool,
    ) -> Result<(), String> {
        let before = self.now();
        let held_keys: Vec<usize> = (0..self.model.keys.len())
            .filter(|key| self.model.expected(session, *key, before) == [Answer::InFlight])
            .collect();
        let Some(key) = held_keys.get(held % held_keys.len().max(1)).copied() else {
            return Ok(());
        };
        let Some(holder) = self.model.holder(session, key) else {
            return Ok(());
        };
        let mut waiting = std::mem::replace(
            &mut self.connections[session],
            self.inbox.deployment.database.connect().await,
        );
        let pid = self.pids[session];
        let described = self.model.keys[key];
        let database = self.inbox.deployment.database.clone();
        let answer = {
            let waits = ask::one(&mut waiting, described, Form::Waits);
            tokio::pin!(waits);
            tokio::select! {
                answer = &mut waits => {
                    return Err(format!("key {key} is held by session {holder}, and a claim of it did not wait: {answer:?}"));
                }
                () = wait_until_blocked(&database, pid) => {}
            }
            if over_midnight && !self.morning {
                self.step_clock(Move::PastMidnight);
            }
            self.end_of(holder, commits).await;
            waits.await
        };
        let fresh_connection = std::mem::replace(&mut self.connections[session], waiting);
        fresh_connection.close().await.unwrap();
        // By the id's own day the claim was made when it began to wait; by time, when it goes on.
        let now = match self.inbox.routing {
            Routing::ProcessedAt => self.now(),
            Routing::MessageId => before,
        };
        let expected = self.model.expected(session, key, now);
        self.judge(session, key, answer, &expected, now)?;
        let how = if commits {
            "waited for a commit"
        } else {
            "waited for a rollback"
        };
        *self.seen.entry(how.to_owned()).or_default() += 1;
        self.after(session, answer, false).await;
        Ok(())
    }

    async fn forget(&mut self, session: usize, key: usize) -> Result<(), String> {
        let expected = self.model.expected_of_forget(session, key);
        let described = self.model.keys[key];
        let forgotten = ask::forget(&mut self.connections[session], described).await;
        if !expected.contains(&forgotten) {
            return Err(format!(
                "session {session} forgot key {key} ({described:?}): {forgotten:?}, expected one of {expected:?}"
            ));
        }
        *self.seen.entry(format!("forget {forgotten:?}")).or_default() += 1;
        if let Some(was_there) = forgotten {
            self.model.forgotten(session, key, was_there);
            self.after(session, Answer::NotFresh, false).await;
        } else {
            self.after(session, Answer::Missing, false).await;
        }
        Ok(())
    }
}

/// A handful of messages that the two routings could treat each in its own way, made for a case that begins in the
/// evening of a day.
fn keys(routing: Routing, consumers: Consumers, day: Day) -> Vec<Key> {
    let noon = |offset: i64| day.plus(offset).start() + TimeDelta::hours(12);
    let of_id = |made_at| (v7_at(made_at), Some(made_at), None);
    let messages = match routing {
        Routing::MessageId => [of_id(noon(0)), of_id(noon(1)), of_id(noon(-1)), of_id(noon(3))],
        Routing::ProcessedAt => [
            (random_id(), None, None),
            (random_id(), None, Some(noon(0))),
            of_id(noon(0)),
            // Of a producer whose clock is ahead of ours.
            of_id(noon(1)),
        ],
    };
    let key = |(id, made_at, created_at), consumer| Key {
        id,
        made_at,
        created_at,
        consumer,
    };
    let nil = (uuid::Uuid::nil(), None, None);
    match consumers {
        Consumers::One => messages
            .into_iter()
            .chain([nil])
            .map(|message| key(message, None))
            .collect(),
        Consumers::Many => vec![
            key(messages[0], Some("mailer")),
            key(messages[0], Some("biller")),
            key(messages[1], Some("mailer")),
            key(messages[2], Some("mailer")),
            key(messages[3], Some("biller")),
            key(nil, Some("mailer")),
        ],
    }
}
