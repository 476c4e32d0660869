//! What a consumer is told, and how it is run.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::{PgPool, Postgres, Transaction};
use tokio::sync::{Semaphore, watch};

use super::{
    Delivery, IdSource, MissingId, Source, State, Unclaimable,
    failures::Failures,
    gate::Gate,
    one::One,
    settings::{Batch, Settings},
    work::{Many, Single},
};
use crate::claim::{BoxError, Inbox};

/// Runs a source's deliveries through an inbox. The module's page has the table of what becomes of each.
///
/// # Examples
/// ```no_run
/// # use inboxd::claim::{Inbox, middleware::{Consumer, Delivery, IdSource, Source}};
/// # async fn example<S: Source>(inbox: Inbox, pool: sqlx::PgPool, source: S, shutdown: impl Future<Output = ()>) {
/// let consumer = Consumer::new(inbox, pool, IdSource::header("event-id")).with_concurrency(8);
/// let handler = async |tx: &mut sqlx::Transaction<'_, sqlx::Postgres>, delivery: &S::Delivery| {
///     sqlx::query("insert into orders (body) values ($1)").bind(delivery.payload()).execute(&mut **tx).await?;
///     Ok::<_, sqlx::Error>(())
/// };
/// consumer.run(source, shutdown, handler).await;
/// # }
/// ```
pub struct Consumer<D> {
    pub(super) inbox: Inbox,
    pool: PgPool,
    pub(super) settings: Settings<D>,
    pub(super) gate: Gate,
    failures: Failures,
}

impl<D> fmt::Debug for Consumer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("inbox", self.inbox.table())
            .field("id", &self.settings.id)
            .field("missing_id", &self.settings.missing_id)
            .field("concurrency", &self.settings.concurrency)
            .field("state", &self.gate.state())
            .finish_non_exhaustive()
    }
}

impl<D: Delivery> Consumer<D> {
    /// A consumer with the defaults. Give the pool at least as many connections as the concurrency, and an `acquire_timeout`
    /// of a few seconds: so long it takes to notice that the database is away.
    #[must_use]
    pub fn new(inbox: Inbox, pool: PgPool, id: IdSource<D>) -> Self {
        Self {
            inbox,
            pool,
            settings: Settings::new(id),
            gate: Gate::new(),
            failures: Failures::default(),
        }
    }

    /// Says what becomes of a message without an id; by default it is rejected.
    #[must_use]
    pub fn with_missing_id(mut self, missing_id: MissingId<D>) -> Self {
        self.settings.missing_id = missing_id;
        self
    }

    /// Says what becomes of a message that the inbox will never take; by default it is rejected.
    #[must_use]
    pub fn with_unclaimable(mut self, unclaimable: Unclaimable) -> Self {
        self.settings.unclaimable = unclaimable;
        self
    }

    /// Says when the event of a delivery was created; see [`crate::claim::Message::created_at`].
    #[must_use]
    pub fn with_created_at(mut self, created_at: impl Fn(&D) -> Option<DateTime<Utc>> + Send + Sync + 'static) -> Self {
        self.settings.created_at = Some(Arc::new(created_at));
        self
    }

    /// Names the consumer, for an inbox with `consumers = "many"`.
    #[must_use]
    pub fn with_consumer_name(mut self, name: impl Into<String>) -> Self {
        self.settings.consumer_name = Some(name.into());
        self
    }

    /// Sets how many deliveries are in hand at most, or batches of them, at least one; 10 by default. Each is a transaction.
    #[must_use]
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency.max(1);
        self
    }

    /// Sets what makes a batch of [`Consumer::run_batches`] full: so many deliveries, at least one, or so long a wait of its first
    /// one for the others; 100 and 10 ms by default. Let the source fetch as many as the batches in hand hold together.
    #[must_use]
    pub fn with_batch(mut self, size: usize, wait: Duration) -> Self {
        self.settings.batch = Batch {
            size: size.max(1),
            wait,
        };
        self
    }

    /// Sets at which delivery a message whose handler fails is rejected, at least the first; 5 by default. The broker's count
    /// is taken where it has one; it holds all deliveries, also those that did not fail. Where it has none, or a lower one, the
    /// failures that this consumer remembers are counted: another one, or the next process, tries it as often again.
    #[must_use]
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.settings.attempts = attempts.max(1);
        self
    }

    /// Bounds one attempt from its first wait for a connection to the certain commit; 5 minutes by default. Set it above the
    /// inbox's handler timeout, which bounds the handler alone.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// Bounds the wait for a broker's word on an ack, a retry or a rejection; 10 seconds by default.
    #[must_use]
    pub fn with_settle_deadline(mut self, deadline: Duration) -> Self {
        self.settings.settle_deadline = deadline;
        self
    }

    /// Bounds the time in which what is in hand is finished after the shutdown; 25 seconds by default. What is then still in
    /// hand is rolled back and stays with the broker.
    #[must_use]
    pub fn with_drain_deadline(mut self, deadline: Duration) -> Self {
        self.settings.drain_deadline = deadline;
        self
    }

    /// Sets how long a message in flight is held before the broker is told to deliver it again; one minute by default. A
    /// broker that bounds deliveries (20 in a quorum queue) counts once in this time.
    #[must_use]
    pub fn with_in_flight_patience(mut self, patience: Duration) -> Self {
        self.settings.in_flight_patience = patience;
        self
    }

    /// Sets the first and the longest pause before a retry: of a message, of the database, of the broker. 200 ms and 30 s by
    /// default.
    #[must_use]
    pub fn with_pauses(mut self, first: Duration, longest: Duration) -> Self {
        self.settings.first_pause = first;
        self.settings.longest_pause = longest.max(first);
        self
    }

    /// What it is doing now.
    #[must_use]
    pub fn state(&self) -> State {
        self.gate.state()
    }

    /// What it is doing, for who wants to wait for a change or answer a readiness probe elsewhere.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<State> {
        self.gate.subscribe()
    }

    /// Runs until `shutdown` or the end of the source, and finishes what is in hand.
    ///
    /// A broker or a database that is away does not end it. When the returned future is dropped, the transactions of what is
    /// in hand are rolled back, and their messages stay with the broker.
    ///
    /// The future can be given to `tokio::spawn` if the handler is a function, or an `async move` closure: one that borrows is
    /// one that the compiler cannot follow between threads. What several handlers share, share by an `Arc`.
    ///
    /// # Examples
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use inboxd::claim::middleware::{Consumer, Delivery, Source};
    /// # use sqlx::{Postgres, Transaction};
    /// struct Orders { table: String }
    ///
    /// impl Orders {
    ///     async fn handle<D: Delivery>(&self, tx: &mut Transaction<'_, Postgres>, delivery: &D) -> Result<(), sqlx::Error> {
    ///         // …
    /// #       let _ = (tx, &self.table, delivery.payload());
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # fn example<S: Source<Delivery: Sync + 'static> + 'static>(
    /// #     consumer: Arc<Consumer<S::Delivery>>, source: S, shutdown: tokio::sync::oneshot::Receiver<()>, orders: Orders
    /// # ) {
    /// let orders = Arc::new(orders);
    /// let running = tokio::spawn(async move {
    ///     let shutdown = async { drop(shutdown.await) };
    ///     let handler = async move |tx: &mut Transaction<'_, Postgres>, delivery: &S::Delivery| orders.handle(tx, delivery).await;
    ///     consumer.run(source, shutdown, handler).await;
    /// });
    /// # drop(running);
    /// # }
    /// ```
    pub async fn run<S, H, E>(&self, source: S, shutdown: impl Future<Output = ()>, handler: H)
    where
        S: Source<Delivery = D>,
        H: AsyncFn(&mut Transaction<'_, Postgres>, &D) -> Result<(), E>,
        E: Into<BoxError>,
    {
        let one = self.each_with(Single::new(handler));
        // One delivery a batch.
        let handle = |deliveries: Vec<D>| async {
            for delivery in deliveries {
                one.handle(delivery).await;
            }
        };
        self.drive(source, shutdown, Batch::OF_ONE, handle).await;
    }

    /// The same with batches: collects deliveries as [`Consumer::with_batch`] says, claims them all in one round trip, and runs
    /// the handler once for those that are fresh, in the order in which they came. All of them are committed together, and
    /// each is settled by the table on its own.
    ///
    /// When the handler fails, each message of the batch is tried alone at once, by the handler with this one delivery: what
    /// fails there has failed, is tried again later, and alone from then on. So the handler of a message may run once more
    /// than without batches, and an innocent one costs a poisonous one nothing but that.
    ///
    /// # Examples
    /// ```no_run
    /// # use std::time::Duration;
    /// # use inboxd::claim::{Inbox, middleware::{Consumer, Delivery, IdSource, Source}};
    /// # async fn example<S: Source>(inbox: Inbox, pool: sqlx::PgPool, source: S, shutdown: impl Future<Output = ()>) {
    /// let consumer = Consumer::new(inbox, pool, IdSource::header("event-id"))
    ///     .with_concurrency(2)
    ///     .with_batch(100, Duration::from_millis(20));
    /// let handler = async |tx: &mut sqlx::Transaction<'_, sqlx::Postgres>, deliveries: &[&S::Delivery]| {
    ///     let bodies: Vec<&[u8]> = deliveries.iter().map(|delivery| delivery.payload()).collect();
    ///     sqlx::query("insert into orders (body) select unnest($1)").bind(bodies).execute(&mut **tx).await?;
    ///     Ok::<_, sqlx::Error>(())
    /// };
    /// consumer.run_batches(source, shutdown, handler).await;
    /// # }
    /// ```
    pub async fn run_batches<S, H, E>(&self, source: S, shutdown: impl Future<Output = ()>, handler: H)
    where
        S: Source<Delivery = D>,
        H: AsyncFn(&mut Transaction<'_, Postgres>, &[&D]) -> Result<(), E>,
        E: Into<BoxError>,
    {
        let one = self.each_with(Many::new(handler));
        let handle = |deliveries| Box::pin(one.handle_batch(deliveries));
        self.drive(source, shutdown, self.settings.batch, handle).await;
    }

    fn each_with<W>(&self, work: W) -> One<'_, D, W> {
        One {
            inbox: &self.inbox,
            pool: &self.pool,
            settings: &self.settings,
            gate: &self.gate,
            failures: &self.failures,
            work,
            transactions: Semaphore::new(self.settings.concurrency.min(Semaphore::MAX_PERMITS)),
        }
    }
}
