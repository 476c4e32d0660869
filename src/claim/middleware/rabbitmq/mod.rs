//! RabbitMQ, by AMQP 0-9-1: a queue of any kind, best a quorum queue, which counts deliveries.
//!
//! - An ack is on its way when the client has written it; AMQP answers none. One on a channel that was closed since is noticed,
//!   and counted as not confirmed. Either way the message comes again, and is a duplicate.
//! - The broker does not wait before it delivers again, so the consumer waits first, and requeues then: a quorum queue's
//!   delivery limit is spent at the consumer's pace.
//! - With [`RabbitSource::with_dead_letter`] a rejected message is published there with its properties and the headers of
//!   [`Rejection::headers`], and acked once the broker has confirmed it and has found a queue for it. Without, it is rejected
//!   to the queue's own dead-letter exchange, which does not carry the reason, or to nowhere if the queue has none.
//! - A quorum queue counts the deliveries beyond the first; a classic queue does not, and the consumer's own count holds. Deaths
//!   (`x-death`) are not counted: a message that somebody puts back would be rejected at its first failure.
//! - A commit that is unknown is requeued: the broker keeps what a channel holds from everybody else.
//! - A lost connection or channel is made again by the source. The broker closes the channel of a consumer that holds a delivery
//!   for longer than its `consumer_timeout`, half an hour by default; AMQP has no signal against it. Keep the consumer's
//!   deadline below it.
//!
//! A queue has no place that a message keeps, so [`super::IdSource::Coordinates`] find nothing here.

mod dead_letter;
mod delivery;

use std::{fmt, sync::Arc, time::Duration};

use futures_util::StreamExt;
use lapin::{
    Connection, ConnectionProperties,
    options::{BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};

use self::dead_letter::{DeadLetter, Publisher};
pub use self::delivery::RabbitDelivery;
#[cfg(doc)]
use super::Rejection;
use super::Source;
use crate::claim::{BoxError, unit::within};

/// The longest wait for a connection with a consumer on it.
const OPEN_LIMIT: Duration = Duration::from_secs(20);

/// A queue. It is connected to, and anew after a failure, when a delivery is asked for.
pub struct RabbitSource {
    uri: String,
    properties: ConnectionProperties,
    queue: String,
    prefetch: u16,
    dead_letter: Option<Arc<DeadLetter>>,
    was_warned: bool,
    open: Option<Open>,
}

struct Open {
    consumer: lapin::Consumer,
    publisher: Arc<Publisher>,
}

impl fmt::Debug for RabbitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URI, which holds the password.
        f.debug_struct("RabbitSource")
            .field("queue", &self.queue)
            .field("prefetch", &self.prefetch)
            .field("dead_letter", &self.dead_letter)
            .field("is_open", &self.open.is_some())
            .finish_non_exhaustive()
    }
}

impl RabbitSource {
    /// A queue that is there, at a broker (`amqp://user:password@host:5672/%2f`, or `amqps`). `prefetch` is how many unacked
    /// messages the broker hands out: the concurrency. More of them wait here, out of the reach of other consumers.
    #[must_use]
    pub fn new(uri: impl Into<String>, queue: impl Into<String>, prefetch: u16) -> Self {
        let queue = queue.into();
        Self {
            uri: uri.into(),
            properties: ConnectionProperties::default().with_connection_name(format!("inboxd {queue}").into()),
            queue,
            // Zero is without a bound.
            prefetch: prefetch.max(1),
            dead_letter: None,
            was_warned: false,
            open: None,
        }
    }

    /// Sets the client's properties: another connection name, another way to authenticate. Its own recovery stays off, as a
    /// delivery must not outlive its channel.
    #[must_use]
    pub fn with_connection_properties(mut self, properties: ConnectionProperties) -> Self {
        self.properties = properties;
        self
    }

    /// Publishes what is rejected to this exchange (the empty name is the default one, whose routing keys are queues) with this
    /// routing key, or with the message's own. It must lead to a queue, or nothing can be rejected.
    #[must_use]
    pub fn with_dead_letter(mut self, exchange: impl Into<String>, routing_key: Option<String>) -> Self {
        self.dead_letter = Some(Arc::new(DeadLetter {
            exchange: exchange.into(),
            routing_key,
        }));
        self
    }

    async fn open(&mut self) -> Result<Open, BoxError> {
        if self.dead_letter.is_none() && !self.was_warned {
            self.was_warned = true;
            tracing::warn!(
                queue = self.queue,
                "no dead-letter exchange is set: what is rejected goes where the queue itself sends it, which may be nowhere"
            );
        }
        let connection = Connection::connect(&self.uri, self.properties.clone()).await?;
        let channel = connection.create_channel().await?;
        channel.basic_qos(self.prefetch, BasicQosOptions::default()).await?;
        let consumer = channel
            .basic_consume(
                self.queue.as_str().into(),
                "".into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            )
            .await?;
        Ok(Open {
            consumer,
            publisher: Arc::new(Publisher::new(connection)),
        })
    }
}

impl Source for RabbitSource {
    type Delivery = RabbitDelivery;

    async fn connect(&mut self) -> Result<bool, BoxError> {
        if self.open.is_none() {
            // The client waits for ever for a broker that takes the connection and says nothing.
            let opened = within(OPEN_LIMIT, self.open()).await;
            self.open = Some(opened.ok_or("the broker does not answer")??);
        }
        Ok(true)
    }

    async fn next(&mut self) -> Result<Option<RabbitDelivery>, BoxError> {
        self.connect().await?;
        let mut open = self.open.take().ok_or("not connected")?;
        // Not put back after an error: it is opened again. The connection lives on in the deliveries in hand.
        let delivery = match open.consumer.next().await {
            Some(delivery) => delivery?,
            None => return Err("the broker has cancelled the consumer".into()),
        };
        let delivery = RabbitDelivery::new(delivery, self.dead_letter.clone(), open.publisher.clone());
        self.open = Some(open);
        Ok(Some(delivery))
    }
}
