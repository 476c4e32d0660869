//! A message of RabbitMQ.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use futures_util::FutureExt;
use lapin::{
    BasicProperties,
    options::{BasicAckOptions, BasicNackOptions},
    types::{AMQPValue, FieldTable},
};

use super::{
    super::{Delivery, Rejection},
    dead_letter::{DeadLetter, Publisher},
};
use crate::claim::{BoxError, unit::sleep};

/// Where a quorum queue puts how often it has delivered the message before.
const DELIVERY_COUNT: &str = "x-delivery-count";

/// The pause before a message that could not be dead-lettered is delivered again.
const REJECT_PAUSE: Duration = Duration::from_secs(1);

/// Of a message that is stored on disk.
const PERSISTENT: u8 = 2;

/// A message of a queue.
pub struct RabbitDelivery {
    inner: lapin::message::Delivery,
    dead_letter: Option<Arc<DeadLetter>>,
    /// It holds the connection open, too, over which it is settled.
    publisher: Arc<Publisher>,
}

impl fmt::Debug for RabbitDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitDelivery")
            .field("exchange", &self.exchange())
            .field("routing_key", &self.routing_key())
            .field("is_redelivered", &self.is_redelivered())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

impl RabbitDelivery {
    pub(super) fn new(
        inner: lapin::message::Delivery,
        dead_letter: Option<Arc<DeadLetter>>,
        publisher: Arc<Publisher>,
    ) -> Self {
        Self {
            inner,
            dead_letter,
            publisher,
        }
    }

    /// The exchange that it was published to; empty for the default one.
    #[must_use]
    pub fn exchange(&self) -> &str {
        self.inner.exchange.as_str()
    }

    /// The key that it was published with.
    #[must_use]
    pub fn routing_key(&self) -> &str {
        self.inner.routing_key.as_str()
    }

    /// Whether it has been delivered before, to whomever.
    #[must_use]
    pub fn is_redelivered(&self) -> bool {
        self.inner.redelivered
    }

    /// Its properties, headers among them, as the client has them.
    #[must_use]
    pub fn properties(&self) -> &BasicProperties {
        &self.inner.properties
    }

    fn value(&self, header: &str) -> Option<&AMQPValue> {
        self.properties().headers().as_ref()?.inner().get(header)
    }

    async fn requeue(self) -> Result<(), BoxError> {
        self.nack(true).await
    }

    async fn nack(self, requeue: bool) -> Result<(), BoxError> {
        let options = BasicNackOptions {
            requeue,
            ..Default::default()
        };
        written(self.inner.acker.nack(options).await?)
    }

    async fn publish_dead_letter(&self, to: &DeadLetter, rejection: &Rejection) -> Result<(), BoxError> {
        let routing_key = to.routing_key.as_deref().unwrap_or_else(|| self.routing_key());
        let properties = dead_letter_properties(self.properties(), rejection);
        self.publisher
            .publish(&to.exchange, routing_key, &self.inner.data, properties)
            .await
    }
}

impl Delivery for RabbitDelivery {
    const BROKER_DELAYS: bool = false;

    fn topic(&self) -> Cow<'_, str> {
        // A fanout exchange needs no routing key.
        match self.routing_key() {
            "" => self.exchange().into(),
            routing_key => routing_key.into(),
        }
    }

    fn payload(&self) -> &[u8] {
        &self.inner.data
    }

    fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        match self.value(name)? {
            AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok().map(Into::into),
            AMQPValue::ShortString(text) => Some(text.as_str().into()),
            _ => None,
        }
    }

    fn id_property(&self) -> Option<Cow<'_, str>> {
        self.properties().message_id().as_ref().map(|id| id.as_str().into())
    }

    fn coordinates(&self) -> Option<String> {
        None
    }

    fn attempt(&self) -> Option<u32> {
        match self.value(DELIVERY_COUNT).and_then(whole_number) {
            Some(before) => u32::try_from(before).ok().map(|before| before.saturating_add(1)),
            None => (!self.is_redelivered()).then_some(1),
        }
    }

    async fn ack(self) -> Result<(), BoxError> {
        written(self.inner.acker.ack(BasicAckOptions::default()).await?)
    }

    async fn retry_later(self, _: Duration) -> Result<(), BoxError> {
        self.requeue().await
    }

    async fn reject(self, rejection: &Rejection) -> Result<(), BoxError> {
        match self.dead_letter.clone() {
            Some(to) => match self.publish_dead_letter(&to, rejection).await {
                Ok(()) => self.ack().await,
                Err(error) => {
                    // It will be no better the next moment.
                    sleep(REJECT_PAUSE).await;
                    self.requeue().await?;
                    Err(error)
                }
            },
            None => self.nack(false).await,
        }
    }

    async fn leave(self) -> Result<(), BoxError> {
        self.requeue().await
    }
}

/// One that nothing was said about goes back at once: as long as its channel lives, the broker would keep it from everybody, and
/// count it against the prefetch.
impl Drop for RabbitDelivery {
    fn drop(&mut self) {
        if self.inner.acker.usable() {
            let options = BasicNackOptions {
                requeue: true,
                ..Default::default()
            };
            // The client takes it over when it is asked first; only its word is waited for after that.
            let _ = self.inner.acker.nack(options).now_or_never();
        }
    }
}

/// Whether the client has written what it was told to.
fn written(is_written: bool) -> Result<(), BoxError> {
    match is_written {
        true => Ok(()),
        false => Err("the channel of the delivery was closed since, so the broker delivers it again".into()),
    }
}

fn whole_number(value: &AMQPValue) -> Option<i64> {
    match value {
        AMQPValue::ShortShortInt(number) => Some((*number).into()),
        AMQPValue::ShortShortUInt(number) => Some((*number).into()),
        AMQPValue::ShortInt(number) => Some((*number).into()),
        AMQPValue::ShortUInt(number) => Some((*number).into()),
        AMQPValue::LongInt(number) => Some((*number).into()),
        AMQPValue::LongUInt(number) => Some((*number).into()),
        AMQPValue::LongLongInt(number) => Some(*number),
        _ => None,
    }
}

/// The message's own, with the reason, as far as they hold for another publisher and another queue: it must not expire there,
/// nor be refused for the user who sent it first, nor bring its count along when it is put back.
fn dead_letter_properties(own: &BasicProperties, rejection: &Rejection) -> BasicProperties {
    let mut headers = FieldTable::default();
    let kept = own.headers().iter().flat_map(|headers| headers.inner());
    for (name, value) in kept.filter(|(name, _)| name.as_str() != DELIVERY_COUNT) {
        headers.insert(name.clone(), value.clone());
    }
    for (name, value) in rejection.headers() {
        headers.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    let mut properties = BasicProperties::default()
        .with_headers(headers)
        .with_delivery_mode(PERSISTENT);
    let copies = [
        (own.content_type(), BasicProperties::with_content_type as fn(_, _) -> _),
        (own.content_encoding(), BasicProperties::with_content_encoding),
        (own.correlation_id(), BasicProperties::with_correlation_id),
        (own.reply_to(), BasicProperties::with_reply_to),
        (own.message_id(), BasicProperties::with_message_id),
        (own.kind(), BasicProperties::with_type),
        (own.app_id(), BasicProperties::with_app_id),
    ];
    for (value, set) in copies {
        if let Some(value) = value {
            properties = set(properties, value.clone());
        }
    }
    if let Some(priority) = own.priority() {
        properties = properties.with_priority(*priority);
    }
    if let Some(timestamp) = own.timestamp() {
        properties = properties.with_timestamp(*timestamp);
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_keeps_what_tells_of_the_message_and_drops_what_binds_it_to_its_queue() {
        let mut headers = FieldTable::default();
        headers.insert("event-id".into(), AMQPValue::LongString("1".into()));
        headers.insert(DELIVERY_COUNT.into(), AMQPValue::LongLongInt(4));
        let own = BasicProperties::default()
            .with_headers(headers)
            .with_message_id("m".into())
            .with_type("t".into())
            .with_timestamp(7)
            .with_expiration("60000".into())
            .with_user_id("somebody".into())
            .with_delivery_mode(1);
        let rejection = Rejection {
            reason: "failed",
            detail: "no".to_owned(),
            attempt: 5,
        };
        let properties = dead_letter_properties(&own, &rejection);
        let text = |value: &str| Some(value.into());
        assert_eq!((properties.message_id(), properties.kind()), (&text("m"), &text("t")));
        assert_eq!(
            (properties.timestamp(), properties.delivery_mode()),
            (&Some(7), &Some(PERSISTENT))
        );
        assert_eq!((properties.expiration(), properties.user_id()), (&None, &None));
        let headers = properties.headers().as_ref().unwrap().inner();
        let names: Vec<_> = headers.keys().map(|name| name.as_str()).collect();
        assert_eq!(names, ["event-id", "inboxd-attempt", "inboxd-detail", "inboxd-reason"]);
    }
}
