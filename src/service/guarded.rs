//! What the command line does in a database, bounded as the service's own passes are: see [`Guard`].

use std::time::Duration;

use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;

use super::{
    config::{Config, Database},
    worker::{Guard, Session},
};
use crate::{
    maintain::LONGEST_CANARY_ROUND,
    postgres::{self, DbError, ErrorKind},
};

/// Watches over one session after another.
#[derive(Debug)]
pub struct Guarded {
    session: Session,
    /// How long it may wait for something else than the server without saying so: a pause before a restore is tried again, or
    /// a round of canaries.
    pauses: Duration,
}

impl Guarded {
    /// One that knows the longest pauses of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            session: Session::new(),
            pauses: config.retries.longest_pause().max(LONGEST_CANARY_ROUND),
        }
    }

    /// It does not wait for the server just now; to be said again and again while that is so.
    pub fn is_awake(&self) {
        self.session.is_awake();
    }

    /// Does something on a session of its own. It is given up, and its session ended, when the server has vanished or the
    /// connection has gone silent; a statement that outlives its limit is cancelled.
    ///
    /// # Errors
    /// When there is no session, or it was given up.
    pub async fn session<T>(
        &self,
        config: &Config,
        database: &Database,
        doing: impl AsyncFnOnce(&mut PgConnection) -> T,
    ) -> Result<T, DbError> {
        let options = database
            .connect_options()
            .map_err(|error| DbError::noticed(ErrorKind::Refused, error.to_string()))?;
        let mut connection = postgres::connect(options, "inboxd", config.timeouts).await?;
        self.session.find_backend(&mut connection).await?;
        self.session.is_awake();
        // Whoever sits before it says when it is to end.
        let never = CancellationToken::new();
        let guard = Guard {
            database,
            timeouts: config.timeouts,
            pauses: self.pauses,
            shutdown: &never,
            session: &self.session,
        };
        tokio::select! {
            done = doing(&mut connection) => Ok(done),
            why = guard.gives_up() => Err(DbError::noticed(ErrorKind::Unreachable, why)),
        }
    }
}
