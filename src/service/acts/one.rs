//! One act from its turn to its end, which comes whatever the server does.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::{Connection, PgConnection};
use tokio::time::{sleep, timeout};

use super::{
    super::worker::{Guard, Session},
    ActError, Inner, Kind,
};
use crate::{
    maintain::operate::{Actor, OperateError, Operator},
    postgres::{
        self, DbError, ErrorKind, Timeouts,
        in_hand::{self, Backend},
    },
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
/// waits above, and what its end takes, it is less than a request may take. A restore may take longer, under a guard.
const DEADLINE: Duration = Duration::from_secs(7);
/// How long a session is given to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// At the end of the service: so long for an act in hand, then so long for the cancel of its statement.
const ACT_IN_HAND: Duration = Duration::from_secs(2);
const CANCEL: Duration = Duration::from_millis(500);

const LATE: &str = "the database did not answer in time";
const ENDING: &str = "the service is shutting down";

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
        let (mut connection, backend) = match connecting.await {
            Some(connected) => connected?,
            None => return Err(ActError::unreachable(ENDING)),
        };
        let operator = Operator {
            deployment: &self.config.deployment,
            actor,
            clock: &self.clock,
            retries: self.config.retries,
        };
        let done = tokio::select! {
            done = act(&mut connection, operator) => Ok(done),
            why = self.gives_up(kind, backend) => Err(why),
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
                Err(ActError::unreachable(&format!("{why}; see whether it was done")))
            }
        }
    }

    /// Comes to its end when an act is to be given up; says why. What it has in hand is cancelled on the server first.
    async fn gives_up(&self, kind: Kind, backend: Backend) -> &'static str {
        if kind == Kind::Restore {
            let session = Session::new();
            session.is_served_by(backend);
            let guard = Guard {
                database: &self.database,
                timeouts: self.config.timeouts,
                pauses: self.config.retries.longest_pause(),
                shutdown: &self.shutdown,
                session: &session,
            };
            let why = guard.gives_up().await;
            // It may have begun its next try after a cancel, and the server would wait on alone.
            let _ = timeout(CANCEL, self.cancel(backend)).await;
            return why;
        }
        let ending = async {
            self.shutdown.cancelled().await;
            sleep(ACT_IN_HAND).await;
        };
        let why = tokio::select! {
            () = sleep(DEADLINE) => LATE,
            () = ending => ENDING,
        };
        let _ = timeout(CANCEL, self.cancel(backend)).await;
        why
    }

    async fn cancel(&self, backend: Backend) -> Result<(), ActError> {
        let (mut connection, _) = self.connect(Kind::Look).await?;
        let cancelled = in_hand::cancel(&mut connection, backend).await;
        cancelled.map_err(|error| ActError::of(&self.database, error.into()))
    }

    /// A session of its own, and the process that serves it.
    async fn connect(&self, kind: Kind) -> Result<(PgConnection, Backend), ActError> {
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
            let backend = in_hand::backend(&mut connection).await?;
            Ok((connection, backend))
        };
        match timeout(CONNECT_PATIENCE, connecting).await {
            Ok(connected) => connected.map_err(failed),
            Err(_) => Err(ActError::unreachable(LATE)),
        }
    }
}
