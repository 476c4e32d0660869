//! One act from its turn to its end, which comes whatever the server does.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::{Connection, PgConnection};
use tokio::time::{sleep, timeout};

use super::{ActError, Inner, Kind};
use crate::{
    maintain::{
        Retries,
        operate::{Actor, OperateError, Operator},
    },
    postgres::{self, DbError, ErrorKind, Timeouts, in_hand},
};

/// How long one more waits for its turn.
const TURN_PATIENCE: Duration = Duration::from_secs(2);
/// How long a connection may take to open.
const CONNECT_PATIENCE: Duration = Duration::from_secs(4);
/// How long a person waits for one statement, and for one lock; maintenance may be more patient.
const PATIENCE: Timeouts = Timeouts {
    lock: Duration::from_secs(2),
    statement: Duration::from_secs(5),
};
/// The longest that an act takes, which is made of a few statements; a server that says nothing any more ends it. With the
/// waits above, and what its end takes, it is less than a request may take. A restore may take longer.
const DEADLINE: Duration = Duration::from_secs(7);
/// How long a session is given to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// At the end of the service: so long for an act in hand, then so long for each cancel of its statement and for what it does
/// after the first. Together that is less than it is waited for.
const ACT_IN_HAND: Duration = Duration::from_secs(2);
const CANCEL: Duration = Duration::from_millis(500);
const AFTER_CANCEL: Duration = Duration::from_millis(500);

const LATE: &str = "the database did not answer in time";
const NOT_KNOWN: &str = "the database did not answer in time; see whether it was done";
const ENDING: &str = "the service is shutting down; see whether it was done";

/// The longest that a restore takes: each try ends with its lock or its statement; what comes before and after takes
/// milliseconds, unless the server says nothing any more.
fn longest_restore(timeouts: Timeouts, retries: Retries) -> Duration {
    let tries =
        (1..=retries.attempts).map(|attempt| timeouts.lock + timeouts.statement + retries.longest_pause_after(attempt));
    tries.sum::<Duration>() + DEADLINE
}

impl Inner {
    pub(super) async fn act<T, A>(&self, kind: Kind, actor: &Actor, act: A) -> Result<T, ActError>
    where
        A: for<'a> FnOnce(&'a mut PgConnection, Operator<'a>) -> BoxFuture<'a, Result<T, OperateError>>,
    {
        let turns = if kind == Kind::Look {
            &self.looks
        } else {
            &self.decisions
        };
        let turn = timeout(TURN_PATIENCE, turns.acquire()).await;
        // It is never closed.
        let Ok(Ok(_turn)) = turn else {
            return Err(ActError::Crowded);
        };
        // Nothing has begun that could be cut in two.
        let connecting = self.shutdown.run_until_cancelled(self.connect(kind));
        let (mut connection, pid) = match connecting.await {
            Some(connected) => connected?,
            None => return Err(ActError::unreachable("the service is shutting down")),
        };
        let operator = Operator {
            deployment: &self.config.deployment,
            actor,
            clock: &self.clock,
            retries: self.config.retries,
        };
        let done = tokio::select! {
            done = act(&mut connection, operator) => Ok(done),
            why = self.gives_up(kind, pid) => Err(why),
        };
        if kind != Kind::Look {
            // Also after a failure: the answer to a commit may be what was lost.
            self.reader.forget();
        }
        let (database, by) = (&self.database.name, actor.as_str());
        match done {
            Ok(done) => {
                let _ = timeout(GOODBYE, connection.close()).await;
                if let (Kind::Restore, Err(error)) = (kind, &done) {
                    // Whoever asked may not have waited for it.
                    tracing::info!(database, by, %error, "the restore was refused");
                }
                done.map_err(|error| ActError::of(&self.database, error))
            }
            // Its connection goes with it, and what is not committed goes with that.
            Err(why) => {
                if kind == Kind::Restore {
                    tracing::warn!(
                        database,
                        by,
                        why,
                        "the restore was given up, and it is not known whether it was done"
                    );
                }
                Err(ActError::unreachable(why))
            }
        }
    }

    /// Comes to its end when an act is to be given up; says why. What it has in hand is cancelled on the server first.
    async fn gives_up(&self, kind: Kind, pid: i32) -> &'static str {
        let limit = match kind {
            Kind::Look | Kind::Change => DEADLINE,
            Kind::Restore => longest_restore(self.config.timeouts, self.config.retries),
        };
        let ending = async {
            self.shutdown.cancelled().await;
            sleep(ACT_IN_HAND).await;
        };
        let why = tokio::select! {
            () = sleep(limit) => NOT_KNOWN,
            () = ending => ENDING,
        };
        if let Ok(Ok(())) = timeout(CANCEL, self.cancel(pid)).await {
            sleep(AFTER_CANCEL).await;
            // A restore may have begun its next try by now, and the server would wait on alone.
            let _ = timeout(CANCEL, self.cancel(pid)).await;
        }
        why
    }

    async fn cancel(&self, pid: i32) -> Result<(), ActError> {
        let (mut connection, _) = self.connect(Kind::Look).await?;
        let cancelled = in_hand::cancel(&mut connection, pid).await;
        cancelled.map_err(|error| ActError::of(&self.database, error.into()))
    }

    /// A session of its own, and the process that serves it.
    async fn connect(&self, kind: Kind) -> Result<(PgConnection, i32), ActError> {
        let failed = |error: DbError| ActError::of(&self.database, error.into());
        let options = self
            .database
            .connect_options()
            .map_err(|error| failed(DbError::noticed(ErrorKind::Refused, error.to_string())))?;
        let configured = self.config.timeouts;
        let timeouts = match kind {
            Kind::Restore => configured,
            Kind::Look | Kind::Change => Timeouts {
                lock: configured.lock.min(PATIENCE.lock),
                statement: configured.statement.min(PATIENCE.statement),
            },
        };
        let connecting = async {
            let mut connection = postgres::connect(options, "inboxd act", timeouts).await?;
            let pid = in_hand::session_pid(&mut connection).await?;
            Ok((connection, pid))
        };
        match timeout(CONNECT_PATIENCE, connecting).await {
            Ok(connected) => connected.map_err(failed),
            Err(_) => Err(ActError::unreachable(LATE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restore_has_the_time_of_its_tries_and_not_much_more() {
        let configured = |attempts| {
            let retries = Retries {
                attempts,
                ..Retries::default()
            };
            longest_restore(Timeouts::default(), retries)
        };
        let one = Timeouts::DEFAULT_LOCK + Timeouts::DEFAULT_STATEMENT;
        for attempts in [1, 3, 20] {
            let longest = configured(attempts);
            let tries = one * attempts.unsigned_abs();
            assert!(longest > tries && longest < tries * 2, "{attempts}: {longest:?}");
        }
    }
}
