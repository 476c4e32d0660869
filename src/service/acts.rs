//! What a person decides, done in one database for whoever serves that person: the API and the page. Nothing of HTTP is here.
//!
//! Its invariant: an act that has begun is not cut because whoever asked has gone. Each is a task of its own on a connection
//! of its own, and the end of the service waits for those that are going. Each comes to an end: a server that says nothing
//! any more keeps neither its turn nor the service.

mod one;

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use sqlx::PgConnection;
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;
use uuid::Uuid;

use super::{
    config::{Config, Database},
    reading::Reader,
};
use crate::{
    clock::Clock,
    maintain::operate::{
        self, Actor, ConfirmedClock, ConfirmedDrops, DueDrops, Forgotten, FoundMessage, Held, HeldNow, OperateError,
        OperateErrorKind, Operator, PausedNow, Released, Restored, Resumed,
    },
    postgres::ErrorKind,
    pure::{Day, InboxSpec},
};

/// How many decisions are carried out in one database at a time, and how many looks: a person has one of them in hand, and
/// each has a connection. Those who look keep nobody from deciding.
const MOST_AT_ONCE: usize = 3;
/// How long whoever asks for a restore waits for it. It takes some milliseconds, unless somebody has the inbox locked.
const RESTORE_PATIENCE: Duration = Duration::from_secs(10);

/// Why an act was not done, or is not known to be. Holds no words of the database.
#[derive(Debug)]
pub(super) enum ActError {
    /// The database cannot be reached, or failed. Whether it was done is not known if it answered no more half-way.
    Unavailable {
        /// What kind of error it was.
        kind: ErrorKind,
        /// Why, in our words.
        message: String,
    },
    /// Too many acts are going in that database.
    Crowded,
    /// It was refused; nothing has changed.
    Refused(OperateError),
    /// It broke off; please report this.
    Broken,
}

impl ActError {
    /// What is so, then what to do.
    pub(super) fn in_words(&self) -> String {
        match self {
            Self::Unavailable { message, .. } => message.clone(),
            Self::Crowded => "too many decisions are being carried out at once; try again in a moment".to_owned(),
            Self::Refused(error) => error.in_our_words(),
            Self::Broken => "it broke off; the log says where".to_owned(),
        }
    }

    fn of(database: &Database, error: OperateError) -> Self {
        match error.kind() {
            // Of these the person is to know more than that something is away.
            OperateErrorKind::Database(kind) if kind != ErrorKind::ReadOnly => {
                tracing::warn!(database = database.name, %error, "an act failed");
                Self::Unavailable {
                    kind,
                    message: error.in_our_words(),
                }
            }
            _ => Self::Refused(error),
        }
    }

    fn unreachable(message: &str) -> Self {
        Self::Unavailable {
            kind: ErrorKind::Unreachable,
            message: message.to_owned(),
        }
    }
}

/// Whether an act changes what is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It only reads.
    Look,
    /// It changes a few rows.
    Change,
    /// It changes partitions, may wait for long, and is not cut while the server answers.
    Restore,
}

/// Does a person's acts in one database.
#[derive(Debug, Clone)]
pub(super) struct Acts(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Arc<Config>,
    database: Arc<Database>,
    clock: Clock,
    /// Told that what it has read is old, after each act.
    reader: Reader,
    decisions: Semaphore,
    looks: Semaphore,
    /// Those that are going, in all databases.
    going: TaskTracker,
    shutdown: CancellationToken,
}

impl Acts {
    /// Those of a database. `going` tells the end of the service what it is to wait for, `shutdown` tells that it has come.
    pub(super) fn new(
        config: Arc<Config>,
        database: Arc<Database>,
        clock: Clock,
        reader: Reader,
        going: TaskTracker,
        shutdown: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            config,
            database,
            clock,
            reader,
            decisions: Semaphore::new(MOST_AT_ONCE),
            looks: Semaphore::new(MOST_AT_ONCE),
            going,
            shutdown,
        }))
    }

    /// See [`operate::hold`].
    pub(super) async fn hold(&self, by: &str, spec: &InboxSpec, day: Day, reason: &str) -> Result<HeldNow, ActError> {
        let (spec, reason) = (spec.clone(), reason.to_owned());
        self.act(Kind::Change, by, move |connection, operator| {
            Box::pin(async move { operate::hold(connection, operator, &spec, day, &reason).await })
        })
        .await
    }

    /// See [`operate::release`].
    pub(super) async fn release(&self, by: &str, spec: &InboxSpec, day: Day) -> Result<Released, ActError> {
        let spec = spec.clone();
        self.act(Kind::Change, by, move |connection, operator| {
            Box::pin(async move { operate::release(connection, operator, &spec, day).await })
        })
        .await
    }

    /// The days on hold of this database's inboxes; see [`operate::holds`].
    pub(super) async fn holds(&self) -> Result<Vec<Held>, ActError> {
        let inner = self.0.clone();
        self.act(Kind::Look, "a look", move |connection, operator| {
            Box::pin(async move { operate::holds(connection, operator.deployment, &inner.database.inboxes).await })
        })
        .await
    }

    /// See [`operate::restore`]. None where it takes long: it goes on, as it does when this future is dropped.
    pub(super) async fn restore(
        &self,
        by: &str,
        spec: &InboxSpec,
        day: Day,
        reason: Option<&str>,
    ) -> Result<Option<Restored>, ActError> {
        let (spec, reason) = (spec.clone(), reason.map(str::to_owned));
        let restoring = self.act(Kind::Restore, by, move |connection, operator| {
            Box::pin(async move { operate::restore(connection, operator, &spec, day, reason.as_deref()).await })
        });
        match tokio::time::timeout(RESTORE_PATIENCE, restoring).await {
            Ok(restored) => restored.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// See [`operate::confirm_clock`].
    pub(super) async fn confirm_clock(&self, by: &str) -> Result<ConfirmedClock, ActError> {
        let inner = self.0.clone();
        self.act(Kind::Change, by, move |connection, operator| {
            Box::pin(async move { operate::confirm_clock(connection, operator, &inner.database.inboxes).await })
        })
        .await
    }

    /// What [`Acts::confirm_drops`] would confirm.
    pub(super) async fn due_drops(&self, spec: &InboxSpec) -> Result<DueDrops, ActError> {
        let spec = spec.clone();
        self.act(Kind::Look, "a look", move |connection, operator| {
            Box::pin(async move { operate::due_drops(connection, operator, &spec).await })
        })
        .await
    }

    /// See [`operate::confirm_drops`]. `expected` is how many removals the person was shown.
    pub(super) async fn confirm_drops(
        &self,
        by: &str,
        spec: &InboxSpec,
        expected: usize,
    ) -> Result<ConfirmedDrops, ActError> {
        let spec = spec.clone();
        self.act(Kind::Change, by, move |connection, operator| {
            Box::pin(async move { operate::confirm_drops(connection, operator, &spec, Some(expected)).await })
        })
        .await
    }

    /// See [`operate::pause`].
    pub(super) async fn pause(&self, by: &str, reason: &str) -> Result<PausedNow, ActError> {
        let reason = reason.to_owned();
        self.act(Kind::Change, by, move |connection, operator| {
            Box::pin(async move { operate::pause(connection, operator, &reason).await })
        })
        .await
    }

    /// See [`operate::resume`].
    pub(super) async fn resume(&self, by: &str) -> Result<Resumed, ActError> {
        self.act(Kind::Change, by, |connection, operator| {
            Box::pin(operate::resume(connection, operator))
        })
        .await
    }

    /// See [`operate::run_asked_for`].
    pub(super) async fn run_asked_for(&self, by: &str, run: Uuid, spec: Option<&InboxSpec>) -> Result<(), ActError> {
        let spec = spec.cloned();
        self.act(Kind::Change, by, move |connection, operator| {
            Box::pin(async move { operate::run_asked_for(connection, operator, run, spec.as_ref()).await })
        })
        .await
    }

    /// See [`operate::message`].
    pub(super) async fn message(
        &self,
        spec: &InboxSpec,
        id: Uuid,
        consumer: Option<&str>,
    ) -> Result<FoundMessage, ActError> {
        let (spec, consumer) = (spec.clone(), consumer.map(str::to_owned));
        self.act(Kind::Look, "a look", move |connection, operator| {
            Box::pin(async move { operate::message(connection, operator, &spec, id, consumer.as_deref()).await })
        })
        .await
    }

    /// See [`operate::forget`].
    pub(super) async fn forget(
        &self,
        by: &str,
        spec: &InboxSpec,
        id: Uuid,
        consumer: Option<&str>,
        reason: &str,
    ) -> Result<Forgotten, ActError> {
        let (spec, consumer, reason) = (spec.clone(), consumer.map(str::to_owned), reason.to_owned());
        self.act(Kind::Change, by, move |connection, operator| {
            Box::pin(
                async move { operate::forget(connection, operator, &spec, id, consumer.as_deref(), &reason).await },
            )
        })
        .await
    }

    /// Does it in a task of its own, and waits for its end for as long as it is itself waited for.
    async fn act<T, A>(&self, kind: Kind, by: &str, act: A) -> Result<T, ActError>
    where
        T: Send + 'static,
        A: for<'a> FnOnce(&'a mut PgConnection, Operator<'a>) -> BoxFuture<'a, Result<T, OperateError>>
            + Send
            + 'static,
    {
        let actor = Actor::new(by).map_err(ActError::Refused)?;
        let inner = self.0.clone();
        let acting = async move { inner.act(kind, &actor, act).await };
        match self.0.going.spawn(acting.in_current_span()).await {
            Ok(done) => done,
            // Its text is on standard error, or it was cut at the end of the process.
            Err(_) => Err(ActError::Broken),
        }
    }
}
