//! The guard of a pass: bounds what the server does not, by a clock that does not step.
//!
//! The server ends each of our statements in time, but by its wall clock: when that steps back by an hour, a timeout that was
//! running fires an hour late. A server that has vanished never answers at all. And whoever ends the service does not wait
//! for the longest statement. A statement that has outlived its limit is cancelled on the server; a pass that cannot even be
//! told so is given up, and its connection with it.

use std::{
    sync::atomic::{AtomicI32, Ordering},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::super::config::Database;
use crate::postgres::{self, DbError, ErrorKind, Timeouts, ddl::LONGEST_KEY_BUILD, in_hand, in_hand::InHand};

/// What the server may be late by before somebody else ends its statement.
const SLACK: Duration = Duration::from_secs(5);
/// How long a look, or a cancel, may take.
const LOOK: Duration = Duration::from_secs(3);
/// At the end of the service: so long for the step in hand, then so long for what it leaves when its statement is cancelled.
/// Together with the goodbye that is less than five seconds.
const STEP_IN_HAND: Duration = Duration::from_secs(2);
const CANCEL: Duration = Duration::from_millis(500);
const AFTER_CANCEL: Duration = Duration::from_millis(500);

/// Watches one pass.
pub(super) struct Guard<'a> {
    pub(super) database: &'a Database,
    pub(super) timeouts: Timeouts,
    pub(super) shutdown: &'a CancellationToken,
    /// The process that serves the pass's session; 0 before there is one.
    pub(super) pid: &'a AtomicI32,
}

impl Guard<'_> {
    /// Comes to its end when the pass is to be given up; says why.
    pub(super) async fn gives_up(&self) -> &'static str {
        let limit = self.timeouts.statement + SLACK;
        let pause = (self.timeouts.statement / 4).clamp(Duration::from_secs(1), Duration::from_secs(10));
        let mut watch = Watch::new(limit, Instant::now());
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return self.end().await,
                () = tokio::time::sleep(pause) => {}
            }
            let pid = self.pid.load(Ordering::SeqCst);
            if pid == 0 {
                // It is still connecting, which bounds itself.
                continue;
            }
            match watch.note(self.look(pid).await.ok(), Instant::now()) {
                Verdict::Fine => {}
                Verdict::Outlived => {
                    tracing::error!(
                        database = self.database.name,
                        pid,
                        limit_s = limit.as_secs(),
                        "a statement of the run has outlived its limit, which the server should have kept; it is cancelled"
                    );
                    // Where it cannot be cancelled, the next looks fail as well.
                    let _ = self.cancel(pid).await;
                }
                Verdict::Vanished => return "the server does not answer any more; the run is given up",
            }
        }
    }

    async fn end(&self) -> &'static str {
        tokio::time::sleep(STEP_IN_HAND).await;
        let pid = self.pid.load(Ordering::SeqCst);
        let cancelled = tokio::time::timeout(CANCEL, self.cancel(pid)).await;
        if matches!(cancelled, Ok(Ok(()))) {
            tracing::info!(
                database = self.database.name,
                pid,
                "the service is shutting down; the statement in hand is cancelled"
            );
            tokio::time::sleep(AFTER_CANCEL).await;
        }
        "the service is shutting down, and the run did not end in time"
    }

    async fn look(&self, pid: i32) -> Result<Option<InHand>, DbError> {
        let looking = async {
            let mut connection = self.connect().await?;
            let found = in_hand::in_hand(&mut connection, pid).await?;
            let _ = sqlx::Connection::close(connection).await;
            Ok(found)
        };
        tokio::time::timeout(LOOK, looking)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    async fn cancel(&self, pid: i32) -> Result<(), DbError> {
        let cancelling = async { in_hand::cancel(&mut self.connect().await?, pid).await };
        tokio::time::timeout(LOOK, cancelling)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    async fn connect(&self) -> Result<sqlx::PgConnection, DbError> {
        let options = self
            .database
            .connect_options()
            .map_err(|error| DbError::noticed(ErrorKind::Refused, error.to_string()))?;
        postgres::connect(options, "inboxd guard", self.timeouts).await
    }
}

fn late() -> DbError {
    DbError::noticed(ErrorKind::Unreachable, "the server does not answer in time")
}

/// What a look came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fine,
    /// The same statement is in hand for longer than it may be.
    Outlived,
    /// The server has not answered for as long.
    Vanished,
}

/// What was seen at the looks before.
#[derive(Debug)]
struct Watch {
    limit: Duration,
    statement: Option<InHand>,
    statement_since: Instant,
    answered_at: Instant,
}

impl Watch {
    fn new(limit: Duration, at: Instant) -> Self {
        Self {
            limit,
            statement: None,
            statement_since: at,
            answered_at: at,
        }
    }

    /// Notes the statement in hand; nothing where the server did not answer.
    fn note(&mut self, seen: Option<Option<InHand>>, at: Instant) -> Verdict {
        let Some(statement) = seen else {
            let is_late = at.duration_since(self.answered_at) > self.limit;
            return if is_late { Verdict::Vanished } else { Verdict::Fine };
        };
        self.answered_at = at;
        if statement.is_none() || statement != self.statement {
            (self.statement, self.statement_since) = (statement, at);
            return Verdict::Fine;
        }
        let limit = match statement {
            Some(InHand { repairs_key: true, .. }) => self.limit.max(LONGEST_KEY_BUILD + SLACK),
            _ => self.limit,
        };
        if at.duration_since(self.statement_since) <= limit {
            return Verdict::Fine;
        }
        // A cancel may be missed by a statement that was just ending: asked for again after as long.
        self.statement_since = at;
        Verdict::Outlived
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn in_hand(nth: i64, repairs_key: bool) -> InHand {
        InHand {
            began_at: DateTime::from_timestamp(nth, 0).unwrap(),
            repairs_key,
        }
    }

    #[test]
    fn c31_the_repair_of_a_key_is_given_its_own_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut watch = Watch::new(Duration::from_secs(35), start);
        let repair = Some(Some(in_hand(1, true)));
        assert_eq!(watch.note(repair, at(0)), Verdict::Fine);
        assert_eq!(watch.note(repair, at(305)), Verdict::Fine);
        assert_eq!(watch.note(repair, at(306)), Verdict::Outlived);
    }

    #[test]
    fn a_statement_that_stays_in_hand_has_outlived_its_limit_and_one_after_another_never_does() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let statement = |nth| Some(Some(in_hand(nth, false)));
        let mut watch = Watch::new(Duration::from_secs(30), start);
        for seconds in 0..100 {
            assert_eq!(
                watch.note(statement(i64::try_from(seconds).unwrap()), at(seconds)),
                Verdict::Fine
            );
        }
        assert_eq!(watch.note(statement(7), at(100)), Verdict::Fine);
        assert_eq!(watch.note(statement(7), at(130)), Verdict::Fine);
        assert_eq!(watch.note(statement(7), at(131)), Verdict::Outlived);
        assert_eq!(
            watch.note(statement(7), at(132)),
            Verdict::Fine,
            "it is given time to end"
        );
        // A hook that runs for hours is no statement.
        for seconds in 133..1_000 {
            assert_eq!(watch.note(Some(None), at(seconds)), Verdict::Fine);
        }
    }

    #[test]
    fn a_server_that_does_not_answer_is_given_as_long_as_a_statement() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut watch = Watch::new(Duration::from_secs(30), start);
        assert_eq!(watch.note(Some(None), at(10)), Verdict::Fine);
        assert_eq!(watch.note(None, at(40)), Verdict::Fine);
        assert_eq!(watch.note(None, at(41)), Verdict::Vanished);
        assert_eq!(watch.note(Some(None), at(42)), Verdict::Fine);
    }
}
