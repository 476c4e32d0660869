//! What a scenario wants of a broker.

use inboxd::claim::middleware::{Delivery, Source};
use uuid::Uuid;

/// The header in which a message's id stands.
pub(super) const ID: &str = "event-id";

/// A broker with one queue, topic or stream of a test's own, and a place for what is rejected from it.
pub(super) trait Broker: Sized {
    /// The module of [`super::conformance`] that runs the scenarios on it.
    const MODULE: &'static str;

    type Delivery: Delivery + Sync + 'static;
    type Source: Source<Delivery = Self::Delivery> + 'static;

    /// A broker, which other tests may use too.
    async fn start() -> Self;

    /// A broker that this test may kill, and that delivers again what is not acked within [`super::place::ACK_TIMEOUT`].
    async fn start_apart() -> Self;

    /// From where another process makes the same source, in one line.
    fn address(&self) -> String;

    async fn source_at(address: &str) -> Self::Source;

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
}

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
