//! What a scenario wants of a broker.

use std::time::Duration;

use inboxd::claim::{
    BoxError,
    middleware::{Consumer, Delivery, Source},
};
use sqlx::{Postgres, Transaction};
use uuid::Uuid;

use super::place::CONCURRENCY;

/// The header in which a message's id stands.
pub(super) const ID: &str = "event-id";

/// A broker with one queue, topic or stream of a test's own, and a place for what is rejected from it.
pub(super) trait Broker: Sized {
    /// The module of [`super::conformance`] that runs the scenarios on it.
    const MODULE: &'static str;

    /// Whether consumers take batches.
    const IN_BATCHES: bool = false;

    type Delivery: Delivery + Sync + 'static;
    type Source: Source<Delivery = Self::Delivery> + 'static;

    /// A broker, which other tests may use too.
    async fn start() -> Self;

    /// A broker that this test may kill, and that delivers again what is not acked within [`super::place::ACK_TIMEOUT`].
    async fn start_apart() -> Self;

    /// From where another process makes the same source, in one line.
    fn address(&self) -> String;

    async fn source_at(address: &str) -> Self::Source;

    /// The example for it, with the environment in which it works here.
    fn example(&self) -> (&'static str, Vec<(&'static str, String)>);

    async fn source(&self) -> Self::Source {
        Self::source_at(&self.address()).await
    }

    /// Publishes a message of that id, and returns once the broker has stored it.
    async fn publish(&self, id: Option<Uuid>);

    /// Returns once the broker has nothing left to hand out, as far as it shows while a consumer is there.
    async fn quiet(&self);

    /// How many messages are not settled, now that no consumer is there.
    async fn left(&self) -> u64;

    /// All that has been rejected.
    async fn dead(&self) -> Vec<Dead>;

    /// Kills it outright; for a broker that was started apart.
    fn kill(&self);

    fn start_again(&self);

    /// Runs a consumer, with batches where that is said.
    async fn run<H, E>(
        consumer: &Consumer<Self::Delivery>,
        source: impl Source<Delivery = Self::Delivery>,
        until: impl Future<Output = ()>,
        handler: H,
    ) where
        H: AsyncFn(&mut Transaction<'_, Postgres>, &Self::Delivery) -> Result<(), E>,
        E: Into<BoxError>,
    {
        consumer.run(source, until, handler).await;
    }
}

/// A broker whose consumers take batches. The handler of a scenario is run for each message of one, in its order.
pub(super) struct InBatches<B>(B);

/// Less than a broker hands out at once, so that some are in a batch and some are alone.
pub(super) const BATCH: usize = 3;

impl<B: Broker> Broker for InBatches<B> {
    const MODULE: &'static str = B::MODULE;
    const IN_BATCHES: bool = true;

    type Delivery = B::Delivery;
    type Source = B::Source;

    async fn start() -> Self {
        Self(B::start().await)
    }

    async fn start_apart() -> Self {
        Self(B::start_apart().await)
    }

    fn address(&self) -> String {
        self.0.address()
    }

    async fn source_at(address: &str) -> Self::Source {
        B::source_at(address).await
    }

    fn example(&self) -> (&'static str, Vec<(&'static str, String)>) {
        self.0.example()
    }

    async fn publish(&self, id: Option<Uuid>) {
        self.0.publish(id).await;
    }

    async fn quiet(&self) {
        self.0.quiet().await;
    }

    async fn left(&self) -> u64 {
        self.0.left().await
    }

    async fn dead(&self) -> Vec<Dead> {
        self.0.dead().await
    }

    fn kill(&self) {
        self.0.kill();
    }

    fn start_again(&self) {
        self.0.start_again();
    }

    async fn run<H, E>(
        consumer: &Consumer<Self::Delivery>,
        source: impl Source<Delivery = Self::Delivery>,
        until: impl Future<Output = ()>,
        handler: H,
    ) where
        H: AsyncFn(&mut Transaction<'_, Postgres>, &Self::Delivery) -> Result<(), E>,
        E: Into<BoxError>,
    {
        let of_all = async |tx: &mut Transaction<'_, Postgres>, deliveries: &[&Self::Delivery]| {
            for delivery in deliveries {
                handler(tx, delivery).await?;
            }
            Ok::<_, E>(())
        };
        consumer.run_batches(source, until, of_all).await;
    }
}

/// How many messages a consumer has in hand at most.
pub(super) const fn in_hand_at_most<B: Broker>() -> usize {
    let batch = if B::IN_BATCHES { BATCH } else { 1 };
    CONCURRENCY as usize * batch
}

/// How long the first of a batch waits for the others.
pub(super) const BATCH_WAIT: Duration = Duration::from_millis(20);

/// A message that was rejected.
#[derive(Debug, Clone)]
pub(super) struct Dead {
    pub(super) payload: String,
    pub(super) headers: Vec<(String, String)>,
}

impl Dead {
    pub(super) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map_or("", |(_, value)| value)
    }
}
