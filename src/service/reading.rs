//! One reading of a database for everybody who asks at the same time.
//!
//! Its invariant: however many ask, a database sees at most one reading at a time, and after each a pause of
//! [`FRESH_FOR`]. A failure is kept as long as a success, so that a database that is down is not pressed by those who look.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sqlx::PgPool;
use tokio::sync::watch;

use super::{
    config::{Config, Database},
    status::{DatabaseStatus, read_status},
};
use crate::{
    clock::Clock,
    postgres::{DbError, ErrorKind},
};

/// Shorter than anybody's patience, and a page that refreshes each second still reads only so often.
const FRESH_FOR: Duration = Duration::from_millis(1500);
/// The longest that one reading may take; the server's own limits are shorter.
const READING_TIMEOUT: Duration = Duration::from_secs(8);
/// The longest that one asker waits for it: half of the ten seconds that Prometheus gives a scrape.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a database cannot be read, in words for outside. What the database itself said is in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadError {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
}

impl ReadError {
    pub(super) fn of(error: &DbError) -> Self {
        Self {
            kind: error.kind(),
            message: error.in_our_words(),
        }
    }

    fn unreachable(message: &str) -> Self {
        Self {
            kind: ErrorKind::Unreachable,
            message: message.to_owned(),
        }
    }
}

type Reading = Result<Arc<DatabaseStatus>, ReadError>;

/// Reads one database for everybody.
#[derive(Debug, Clone)]
pub(super) struct Reader(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Arc<Config>,
    database: Arc<Database>,
    clock: Clock,
    /// None where no URL is configured.
    pool: Option<PgPool>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<(Instant, Reading)>,
    /// The reading that is going, and which it is: one that has been disowned no longer tells us anything.
    flight: Option<watch::Receiver<Option<Reading>>>,
    flights: u64,
    /// What the last reading failed with, whole, as the log has it.
    logged: Option<String>,
}

impl Reader {
    pub(super) fn new(config: Arc<Config>, database: Arc<Database>, clock: Clock, pool: Option<PgPool>) -> Self {
        Self(Arc::new(Inner {
            config,
            database,
            clock,
            pool,
            state: Mutex::default(),
        }))
    }

    /// The connections that readings share with other looks into the database.
    pub(super) fn pool(&self) -> Option<&PgPool> {
        self.0.pool.as_ref()
    }

    /// What was read last, when that is fresh; else what the reading finds that is going or begins now.
    pub(super) async fn read(&self) -> Reading {
        let mut flight = match self.join() {
            Ok(fresh) => return fresh,
            Err(flight) => flight,
        };
        let landed = tokio::time::timeout(PATIENCE, flight.wait_for(Option::is_some)).await;
        match landed {
            Ok(Ok(reading)) => reading.clone().unwrap_or_else(|| Err(broken())),
            Ok(Err(_)) => Err(broken()),
            Err(_) => Err(ReadError::unreachable("the database did not answer in time")),
        }
    }

    /// What comes now is read anew: the database has just been changed.
    pub(super) fn forget(&self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last = None;
        state.flight = None;
    }

    fn join(&self) -> Result<Reading, watch::Receiver<Option<Reading>>> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, reading)) = &state.last
            && at.elapsed() < FRESH_FOR
        {
            return Ok(reading.clone());
        }
        // One whose task panicked has no sender any more.
        if let Some(flight) = state.flight.as_ref().filter(|flight| flight.has_changed().is_ok()) {
            return Err(flight.clone());
        }
        let (sender, receiver) = watch::channel(None);
        state.flights += 1;
        state.flight = Some(receiver.clone());
        // A task of its own: the one that began it may hang up, and others wait for it.
        tokio::spawn(self.0.clone().fly(state.flights, sender));
        Err(receiver)
    }
}

impl Inner {
    async fn fly(self: Arc<Self>, number: u64, sender: watch::Sender<Option<Reading>>) {
        let reading = match tokio::time::timeout(READING_TIMEOUT, self.look()).await {
            Ok(Ok(status)) => {
                self.is_news(None);
                Ok(Arc::new(status))
            }
            Ok(Err(error)) => {
                let database = &self.database.name;
                if self.is_news(Some(error.to_string())) {
                    tracing::warn!(database, %error, "cannot read the status");
                } else {
                    tracing::debug!(database, %error, "still cannot read the status");
                }
                Err(ReadError::of(&error))
            }
            Err(_) => Err(ReadError::unreachable("the database did not answer in time")),
        };
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.flights == number && state.flight.take().is_some() {
                state.last = Some((Instant::now(), reading.clone()));
            }
        }
        sender.send_replace(Some(reading));
    }

    /// Whether a reading ended otherwise than the last.
    fn is_news(&self, failure: Option<String>) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = state.logged != failure;
        state.logged = failure;
        is_news
    }

    async fn look(&self) -> Result<DatabaseStatus, DbError> {
        let pool = self
            .pool
            .as_ref()
            .ok_or_else(|| DbError::noticed(ErrorKind::Refused, "no database is configured"))?;
        let mut connection = pool.acquire().await.map_err(|error| DbError::new("connect", error))?;
        read_status(&mut connection, &self.config, &self.database, &self.clock).await
    }
}

fn broken() -> ReadError {
    ReadError {
        kind: ErrorKind::Other,
        message: "the reading broke off; please report this".to_owned(),
    }
}
