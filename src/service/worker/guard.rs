//! The guard of a pass, or of a restore: bounds what the server does not, by a clock that does not step.
//!
//! The server ends each of our statements in time, but by its wall clock: when that steps back by an hour, a timeout that was
//! running fires an hour late. A server that has vanished never answers at all, and neither does one whose answers get lost
//! on the way while it answers others. And whoever ends the service does not wait for the longest statement. A statement that
//! has outlived its limit is cancelled on the server; a pass that cannot even be told so, or whose session has nothing in hand
//! for as long while the pass waits for it, is given up, and its connection with it.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;

use super::super::config::Database;
use crate::postgres::{
    self, DbError, ErrorKind, Timeouts,
    ddl::LONGEST_BUILD,
    in_hand::{self, Backend, Seen},
};

/// What the server may be late by before somebody else ends its statement.
const SLACK: Duration = Duration::from_secs(5);
/// How long the first question may take, before the guard knows whom to look at. The opening of the connection has its own.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// How long a look, or a cancel, may take.
const LOOK: Duration = Duration::from_secs(3);
/// At the end of the service: so long for the step in hand, then so long for what it leaves when its statement is cancelled.
/// Together with the goodbye that is less than five seconds.
const STEP_IN_HAND: Duration = Duration::from_secs(2);
const CANCEL: Duration = Duration::from_millis(500);
const AFTER_CANCEL: Duration = Duration::from_millis(500);
const GIVEN_UP_AT_THE_END: &str = "the service is shutting down, and it did not end in time";

/// What a pass tells its guard.
#[derive(Debug)]
pub(in crate::service) struct Session(Mutex<Told>);

#[derive(Debug, Clone, Copy)]
struct Told {
    /// The process that serves it; none before there is one.
    backend: Option<Backend>,
    /// When it said last that it goes on, or waits for something else than the server, such as a command.
    awake_at: Instant,
}

impl Session {
    pub(in crate::service) fn new() -> Self {
        Self(Mutex::new(Told {
            backend: None,
            awake_at: Instant::now(),
        }))
    }

    /// Finds out who serves it.
    pub(in crate::service) async fn find_backend(&self, connection: &mut PgConnection) -> Result<(), DbError> {
        let found = in_time(FIRST_ANSWER, in_hand::backend(connection)).await?;
        self.is_served_by(found);
        Ok(())
    }

    pub(in crate::service) fn is_served_by(&self, backend: Backend) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).backend = Some(backend);
    }

    /// The pass does not wait for the server just now: it makes progress.
    pub(in crate::service) fn is_awake(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).awake_at = Instant::now();
    }

    /// How long it has not been so.
    pub(super) fn silent_for(&self) -> Duration {
        self.told().awake_at.elapsed()
    }

    /// Sets that back, where the machine has run for that long.
    #[cfg(test)]
    pub(in crate::service) fn was_awake(&self, ago: Duration) -> bool {
        let long_ago = Instant::now().checked_sub(ago);
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.awake_at = long_ago.unwrap_or(told.awake_at);
        long_ago.is_some()
    }

    fn told(&self) -> Told {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches one pass, or one restore.
pub(in crate::service) struct Guard<'a> {
    pub(in crate::service) database: &'a Database,
    pub(in crate::service) timeouts: Timeouts,
    /// How long it may wait for something else than the server without saying so.
    pub(in crate::service) pauses: Duration,
    pub(in crate::service) shutdown: &'a CancellationToken,
    pub(in crate::service) session: &'a Session,
}

impl Guard<'_> {
    /// Comes to its end when the pass is to be given up; says why.
    pub(in crate::service) async fn gives_up(&self) -> &'static str {
        let limit = self.timeouts.statement + SLACK;
        let pause = (self.timeouts.statement / 4).clamp(Duration::from_secs(1), Duration::from_secs(10));
        let mut watch = Watch::new(limit, limit + self.pauses, Instant::now());
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return self.end().await,
                () = tokio::time::sleep(pause) => {}
            }
            let Some(backend) = self.session.told().backend else {
                // It is still connecting, which bounds itself.
                continue;
            };
            let seen = match self.look(backend).await {
                Ok(seen) => Some(Some(seen)),
                // It may have no room for one more session, but it answers.
                Err(error) if error.sqlstate().is_some() => Some(None),
                Err(_) => None,
            };
            match watch.note(seen, self.session.told().awake_at, Instant::now()) {
                Verdict::Fine => {}
                Verdict::Outlived => {
                    tracing::error!(
                        database = self.database.name,
                        pid = backend.pid,
                        limit_s = limit.as_secs(),
                        "a statement of ours has outlived its limit, which the server should have kept; it is cancelled"
                    );
                    // Where it cannot be cancelled, the next looks fail as well.
                    let _ = self.cancel(backend).await;
                }
                Verdict::Vanished => return "the server does not answer any more; it is given up",
                Verdict::Unheard => {
                    // Its lock would keep every run away for as long as the server takes the connection for alive.
                    let _ = self.end_session(backend).await;
                    return "the connection has gone silent, though the server answers others; it is given up";
                }
            }
        }
    }

    async fn end(&self) -> &'static str {
        tokio::time::sleep(STEP_IN_HAND).await;
        let Some(backend) = self.session.told().backend else {
            return GIVEN_UP_AT_THE_END;
        };
        let cancelled = tokio::time::timeout(CANCEL, self.cancel(backend)).await;
        if matches!(cancelled, Ok(Ok(()))) {
            tracing::info!(
                database = self.database.name,
                pid = backend.pid,
                "the service is shutting down; the statement in hand is cancelled"
            );
            tokio::time::sleep(AFTER_CANCEL).await;
        }
        GIVEN_UP_AT_THE_END
    }

    async fn look(&self, backend: Backend) -> Result<Seen, DbError> {
        let looking = async {
            let mut connection = self.connect().await?;
            let found = in_hand::look(&mut connection, backend).await?;
            let _ = sqlx::Connection::close(connection).await;
            Ok(found)
        };
        in_time(LOOK, looking).await
    }

    async fn cancel(&self, backend: Backend) -> Result<(), DbError> {
        in_time(LOOK, async {
            in_hand::cancel(&mut self.connect().await?, backend).await
        })
        .await
    }

    async fn end_session(&self, backend: Backend) -> Result<(), DbError> {
        in_time(LOOK, async { in_hand::end(&mut self.connect().await?, backend).await }).await
    }

    async fn connect(&self) -> Result<PgConnection, DbError> {
        let options = self
            .database
            .connect_options()
            .map_err(|error| DbError::noticed(ErrorKind::Refused, error.to_string()))?;
        postgres::connect(options, "inboxd guard", self.timeouts).await
    }
}

async fn in_time<T>(limit: Duration, asking: impl Future<Output = Result<T, DbError>>) -> Result<T, DbError> {
    let late = |_| DbError::noticed(ErrorKind::Unreachable, "the server does not answer in time");
    tokio::time::timeout(limit, asking).await.map_err(late)?
}

/// What a look came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fine,
    /// The same statement is in hand for longer than it may be.
    Outlived,
    /// The server has not answered for as long.
    Vanished,
    /// The session waits for us, or is gone, and we wait for it.
    Unheard,
}

/// What was seen at the looks before.
#[derive(Debug)]
struct Watch {
    limit: Duration,
    idle_limit: Duration,
    seen: Option<Seen>,
    /// Since when that is so.
    since: Instant,
    answered_at: Instant,
}

impl Watch {
    fn new(limit: Duration, idle_limit: Duration, at: Instant) -> Self {
        Self {
            limit,
            idle_limit,
            seen: None,
            since: at,
            answered_at: at,
        }
    }

    /// Notes what the session does, or that it could not be told; nothing where the server did not answer. What counts is how
    /// long the pass has waited for the server since it was awake last: a command may run for hours, and what has become of
    /// the server meanwhile is found out after it.
    fn note(&mut self, seen: Option<Option<Seen>>, awake_at: Instant, at: Instant) -> Verdict {
        let is_over = |since: Instant, limit: Duration| at.saturating_duration_since(since.max(awake_at)) > limit;
        let Some(seen) = seen else {
            let is_late = is_over(self.answered_at, self.limit);
            return if is_late { Verdict::Vanished } else { Verdict::Fine };
        };
        self.answered_at = at;
        let Some(seen) = seen else { return Verdict::Fine };
        if self.seen != Some(seen) {
            (self.seen, self.since) = (Some(seen), at);
            return Verdict::Fine;
        }
        match seen {
            Seen::InHand { builds, .. } => {
                let limit = match builds {
                    true => self.limit.max(LONGEST_BUILD + SLACK),
                    false => self.limit,
                };
                if at.duration_since(self.since) <= limit {
                    return Verdict::Fine;
                }
                // A cancel may be missed by a statement that was just ending: asked for again after as long.
                self.since = at;
                Verdict::Outlived
            }
            // It may be about to come to its end.
            Seen::Gone if is_over(self.since, SLACK) => Verdict::Unheard,
            Seen::Idle { .. } if is_over(self.since, self.idle_limit) => Verdict::Unheard,
            Seen::Gone | Seen::Idle { .. } => Verdict::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn when(nth: u64) -> Option<DateTime<chrono::Utc>> {
        DateTime::from_timestamp(i64::try_from(nth).unwrap(), 0)
    }

    fn in_hand(nth: u64, builds: bool) -> Option<Option<Seen>> {
        let began_at = when(nth);
        Some(Some(Seen::InHand { began_at, builds }))
    }

    fn idle_after(nth: u64) -> Option<Option<Seen>> {
        let last_began_at = when(nth);
        Some(Some(Seen::Idle { last_began_at }))
    }

    /// A watch with the limit, and how it is told of what was seen some seconds after its start by a pass that was awake at
    /// some second.
    fn watch(limit_s: u64) -> impl FnMut(Option<Option<Seen>>, u64, u64) -> Verdict {
        let start = Instant::now();
        let limit = Duration::from_secs(limit_s);
        let mut watch = Watch::new(limit, limit, start);
        let at = move |seconds| start + Duration::from_secs(seconds);
        move |seen, awake_at, now| watch.note(seen, at(awake_at), at(now))
    }

    #[test]
    fn c31_the_repair_of_a_key_is_given_its_own_time() {
        let mut note = watch(35);
        assert_eq!(note(in_hand(1, true), 0, 0), Verdict::Fine);
        assert_eq!(note(in_hand(1, true), 0, 305), Verdict::Fine);
        assert_eq!(note(in_hand(1, true), 0, 306), Verdict::Outlived);
    }

    #[test]
    fn a_statement_that_stays_in_hand_has_outlived_its_limit_and_one_after_another_never_does() {
        let mut note = watch(30);
        for second in 0..100 {
            assert_eq!(note(in_hand(second, false), 0, second), Verdict::Fine);
        }
        assert_eq!(note(in_hand(7, false), 0, 100), Verdict::Fine);
        assert_eq!(note(in_hand(7, false), 0, 130), Verdict::Fine);
        assert_eq!(note(in_hand(7, false), 0, 131), Verdict::Outlived);
        assert_eq!(
            note(in_hand(7, false), 0, 132),
            Verdict::Fine,
            "it is given time to end"
        );
    }

    #[test]
    fn a_session_that_waits_for_us_while_we_wait_for_it_is_given_up_and_one_with_a_command_or_quick_statements_is_not()
    {
        let mut note = watch(30);
        // Statements so quick that none is ever seen.
        for second in 0..100 {
            assert_eq!(note(idle_after(second), 0, second), Verdict::Fine);
        }
        // A command that runs for hours says all the while that it does.
        for second in 100..10_000 {
            assert_eq!(note(idle_after(99), second, second), Verdict::Fine);
        }
        assert_eq!(note(idle_after(99), 9_999, 10_029), Verdict::Fine);
        assert_eq!(note(idle_after(99), 9_999, 10_030), Verdict::Unheard);
    }

    #[test]
    fn a_session_that_is_gone_is_given_up_soon_but_not_while_its_pass_comes_to_its_end() {
        let mut note = watch(30);
        assert_eq!(note(Some(Some(Seen::Gone)), 0, 10), Verdict::Fine);
        assert_eq!(note(Some(Some(Seen::Gone)), 0, 15), Verdict::Fine);
        assert_eq!(note(Some(Some(Seen::Gone)), 14, 16), Verdict::Fine, "a command runs");
        assert_eq!(note(Some(Some(Seen::Gone)), 14, 20), Verdict::Unheard);
    }

    #[test]
    fn a_server_that_does_not_answer_is_given_as_long_as_a_statement() {
        let mut note = watch(30);
        assert_eq!(note(idle_after(0), 0, 10), Verdict::Fine);
        assert_eq!(note(None, 0, 40), Verdict::Fine);
        assert_eq!(note(None, 20, 50), Verdict::Fine, "nobody waited for it");
        assert_eq!(note(None, 20, 51), Verdict::Vanished);
        assert_eq!(note(idle_after(1), 20, 52), Verdict::Fine);
        // It has no room for one more session, for as long as it likes.
        for second in 52..1_000 {
            assert_eq!(note(Some(None), 20, second), Verdict::Fine);
        }
        assert_eq!(note(None, 20, 1_029), Verdict::Fine);
    }
}
