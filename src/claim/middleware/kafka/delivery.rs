//! A record, as a delivery.

use std::{borrow::Cow, sync::Arc, time::Duration};

use rdkafka::message::{Headers, Message, OwnedMessage};

use super::{
    Rejected,
    dead_letters::DeadLetters,
    desk::{Desk, Held},
};
use crate::claim::{
    BoxError,
    middleware::{Delivery, Rejection},
};

/// The first pause of a message that came back without a word on when to deliver it again: its commit is unknown, the
/// settlement was given up, or the dead letter was refused. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How often it doubles: to 32 seconds.
const DOUBLINGS: u32 = 5;

/// A record of a topic. One that is dropped unsettled is delivered again after a pause: Kafka itself would not do so before
/// the partition changes hands.
#[derive(Debug)]
pub struct KafkaDelivery {
    desk: Arc<Desk>,
    /// Taken when it is settled.
    held: Option<Held>,
    message: Arc<OwnedMessage>,
    rejected: Arc<Destination>,
}

/// Where rejected messages go, once that is set up.
#[derive(Debug)]
pub(super) enum Destination {
    Topic(DeadLetters),
    Nowhere,
}

impl Destination {
    pub(super) fn new(rejected: Rejected, config: &rdkafka::ClientConfig) -> Self {
        match rejected {
            Rejected::ToTopic(topic) => Self::Topic(DeadLetters::new(config, topic)),
            Rejected::Discard => Self::Nowhere,
        }
    }
}

impl KafkaDelivery {
    pub(super) fn new(desk: Arc<Desk>, held: Held, rejected: Arc<Destination>) -> Self {
        Self {
            desk,
            message: Arc::clone(&held.message),
            held: Some(held),
            rejected,
        }
    }

    /// The record as the client has it: key, partition, offset, timestamp.
    #[must_use]
    pub fn message(&self) -> &OwnedMessage {
        &self.message
    }

    /// What is in hand, which is then somebody else's duty.
    fn into_held(mut self) -> Result<(Arc<Desk>, Held), BoxError> {
        // There until it is settled, which consumes the delivery.
        let held = self.held.take().ok_or("the delivery is settled already")?;
        Ok((Arc::clone(&self.desk), held))
    }
}

impl Drop for KafkaDelivery {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            let (pause, held) = returned(held);
            // Where it is stale, it is delivered again elsewhere.
            let _ = self.desk.put_back(held, pause);
        }
    }
}

/// How long it waits now, and once it has come back another time.
fn returned(mut held: Held) -> (Duration, Held) {
    let pause = FIRST_PAUSE.saturating_mul(1 << held.returns.min(DOUBLINGS));
    held.returns = held.returns.saturating_add(1);
    (pause, held)
}

impl Delivery for KafkaDelivery {
    /// It is this process that waits, but the consumer need not.
    const BROKER_DELAYS: bool = true;

    fn topic(&self) -> Cow<'_, str> {
        self.message.topic().into()
    }

    fn payload(&self) -> &[u8] {
        self.message.payload().unwrap_or_default()
    }

    /// The last one of this name, where there are several.
    fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        let headers = self.message.headers()?;
        let last = headers.iter().filter(|header| header.key == name).last()?;
        std::str::from_utf8(last.value?).ok().map(Into::into)
    }

    /// None: Kafka has no property for it. A key says what a record is about, not which one it is: as an id it would make one
    /// message of all those of an entity. Where it is unlike in each record, [`super::super::IdSource::with`] reads it.
    fn id_property(&self) -> Option<Cow<'_, str>> {
        None
    }

    fn coordinates(&self) -> Option<String> {
        let message = &self.message;
        Some(format!(
            "kafka:{}:{}:{}",
            message.topic(),
            message.partition(),
            message.offset()
        ))
    }

    /// Kafka does not count; the consumer counts what failed.
    fn attempt(&self) -> Option<u32> {
        None
    }

    async fn ack(self) -> Result<(), BoxError> {
        let (desk, held) = self.into_held()?;
        Ok(desk.settle(&held)?)
    }

    async fn retry_later(self, after: Duration) -> Result<(), BoxError> {
        let (desk, held) = self.into_held()?;
        Ok(desk.put_back(held, after)?)
    }

    async fn reject(self, rejection: &Rejection) -> Result<(), BoxError> {
        let rejected = Arc::clone(&self.rejected);
        let (desk, held) = self.into_held()?;
        match &*rejected {
            Destination::Topic(dead_letters) => {
                if !desk.is_assigned(held.tenure) {
                    // Who has it now sends the letter.
                    return Err(super::desk::Stale.into());
                }
                let (pause, held) = returned(held);
                dead_letters.send(desk, held, pause, rejection).await
            }
            Destination::Nowhere => {
                let message = &held.message;
                tracing::error!(
                    topic = message.topic(),
                    partition = message.partition(),
                    offset = message.offset(),
                    "a rejected message is discarded, as configured"
                );
                Ok(desk.settle(&held)?)
            }
        }
    }

    async fn leave(self) -> Result<(), BoxError> {
        let (desk, held) = self.into_held()?;
        let (pause, held) = returned(held);
        Ok(desk.put_back(held, pause)?)
    }
}
