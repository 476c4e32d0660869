//! NATS JetStream: a pull consumer with explicit acks.
//!
//! - An ack, a retry and a rejection each wait for the server's word (a *double ack*).
//! - A delivery that is worked on for longer than the consumer's `ack_wait` is kept by in-progress signals, three in that time.
//! - A retry is a nak with its pause; the server waits.
//! - A rejection is a term. Where a dead-letter subject is set, the message is first published there, with its headers, those
//!   of [`Rejection::headers`] and the stream's acknowledgement; without one it stays in its stream, is not delivered again
//!   to this consumer, and the server publishes an advisory.
//! - The server counts the deliveries. Leave the consumer's `max_deliver` unlimited, or above the attempts: beyond it the
//!   server drops the message for this consumer without a word to it.
//! - What is left unacked is delivered again after `ack_wait`.
//!
//! [`super::IdSource::Coordinates`] are the stream, the instant at which it was created, and the sequence in it: a stream that
//! is deleted and made again does not repeat them.

use std::{borrow::Cow, pin::pin, time::Duration};

use async_nats::{
    HeaderMap,
    connection::State,
    jetstream::{
        self, AckKind,
        consumer::{AckPolicy, PullConsumer, pull},
    },
};
use futures_util::{
    StreamExt,
    future::{Either, select},
};

use super::{Delivery, Rejection, Source};
use crate::claim::{BoxError, unit::sleep};

/// The name of the header that JetStream calls the id of a message.
const ID_HEADER: &str = "Nats-Msg-Id";

/// The longest that a pull request waits at the server: so soon a consumer that was deleted is noticed.
const PULL_EXPIRES: Duration = Duration::from_secs(10);

/// How soon a lost connection is noticed.
const CONNECTION_POLL: Duration = Duration::from_millis(500);

/// A durable pull consumer of a stream. It is opened, and opened again after a failure, when a delivery is asked for.
#[derive(Debug)]
pub struct NatsSource {
    context: jetstream::Context,
    stream: String,
    consumer: String,
    batch: usize,
    dead_letter: Option<String>,
    open: Option<Open>,
}

struct Open {
    messages: pull::Stream,
    ack_wait: Duration,
    incarnation: String,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Open")
    }
}

/// A message of JetStream.
#[derive(Debug)]
pub struct NatsDelivery {
    message: jetstream::Message,
    dead_letter: Option<String>,
    ack_wait: Duration,
    incarnation: String,
    attempt: Option<u32>,
    sequence: Option<u64>,
}

impl NatsSource {
    /// The consumer of this name on a stream; both must be there, the consumer with explicit acks. `batch` is how many messages
    /// are fetched ahead, which wait unacked while the consumer is busy: the concurrency, or less.
    #[must_use]
    pub fn new(
        context: jetstream::Context,
        stream: impl Into<String>,
        consumer: impl Into<String>,
        batch: usize,
    ) -> Self {
        Self {
            context,
            stream: stream.into(),
            consumer: consumer.into(),
            batch: batch.max(1),
            dead_letter: None,
            open: None,
        }
    }

    /// Publishes what is rejected to this subject, which a stream must take.
    #[must_use]
    pub fn with_dead_letter(mut self, subject: impl Into<String>) -> Self {
        self.dead_letter = Some(subject.into());
        self
    }

    /// The client connects anew by itself and says nothing of it, so it is looked at now and then.
    async fn next_message(&self, messages: &mut pull::Stream) -> Result<jetstream::Message, BoxError> {
        loop {
            match select(messages.next(), pin!(sleep(CONNECTION_POLL))).await {
                Either::Left((Some(message), _)) => return Ok(message?),
                Either::Left((None, _)) => return Err("the stream of messages has ended".into()),
                Either::Right(_) if self.context.client().connection_state() == State::Connected => {}
                Either::Right(_) => return Err("the connection is lost".into()),
            }
        }
    }

    async fn open(&self) -> Result<Open, BoxError> {
        let stream = self.context.get_stream(&self.stream).await?;
        let consumer: PullConsumer = stream.get_consumer(&self.consumer).await?;
        let config = &consumer.cached_info().config;
        if config.ack_policy != AckPolicy::Explicit {
            return Err(format!(
                "consumer {} of stream {} has another ack policy than explicit, with which an ack would ack others too",
                self.consumer, self.stream
            )
            .into());
        }
        // The server's own default, where the consumer's configuration says nothing.
        let ack_wait = match config.ack_wait {
            Duration::ZERO => Duration::from_secs(30),
            ack_wait => ack_wait,
        };
        let created = stream.cached_info().created;
        let messages = consumer
            .stream()
            .max_messages_per_batch(self.batch)
            .expires(PULL_EXPIRES)
            .messages()
            .await?;
        Ok(Open {
            messages,
            ack_wait,
            incarnation: format!("{}@{}", self.stream, created.unix_timestamp_nanos()),
        })
    }
}

impl Source for NatsSource {
    type Delivery = NatsDelivery;

    async fn connect(&mut self) -> Result<bool, BoxError> {
        if self.open.is_none() {
            self.open = Some(self.open().await?);
        }
        Ok(true)
    }

    async fn next(&mut self) -> Result<Option<NatsDelivery>, BoxError> {
        self.connect().await?;
        let mut open = self.open.take().ok_or("not connected")?;
        // Not put back after an error: it is opened again.
        let message = self.next_message(&mut open.messages).await?;
        let info = message.info().ok();
        let delivery = NatsDelivery {
            dead_letter: self.dead_letter.clone(),
            ack_wait: open.ack_wait,
            incarnation: open.incarnation.clone(),
            attempt: info.as_ref().and_then(|info| u32::try_from(info.delivered).ok()),
            sequence: info.as_ref().map(|info| info.stream_sequence),
            message,
        };
        self.open = Some(open);
        Ok(Some(delivery))
    }
}

impl NatsDelivery {
    /// The message as the client has it.
    #[must_use]
    pub fn message(&self) -> &async_nats::Message {
        &self.message
    }

    async fn publish_dead_letter(&self, subject: String, rejection: &Rejection) -> Result<(), BoxError> {
        let mut headers = self.message.headers.clone().unwrap_or_default();
        // Its own: the dead letter's stream must take it even if it has seen the message itself, and only once.
        let id = self.sequence.map(|sequence| format!("{}:{sequence}", self.incarnation));
        for (name, value) in rejection.headers() {
            headers.insert(name, value);
        }
        match id {
            Some(id) => headers.insert(ID_HEADER, id),
            None => headers = without_id(&headers),
        }
        let payload = self.message.payload.clone();
        let sent = self
            .message
            .context
            .publish_with_headers(subject, headers, payload)
            .await?;
        sent.await?;
        Ok(())
    }
}

fn without_id(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for (name, values) in headers.iter() {
        let name: &str = name.as_ref();
        if name.eq_ignore_ascii_case(ID_HEADER) {
            continue;
        }
        for value in values {
            kept.append(name, value.clone());
        }
    }
    kept
}

impl Delivery for NatsDelivery {
    const BROKER_DELAYS: bool = true;

    fn topic(&self) -> Cow<'_, str> {
        self.message.subject.as_str().into()
    }

    fn payload(&self) -> &[u8] {
        &self.message.payload
    }

    fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        let value = self.message.headers.as_ref()?.get(name)?;
        Some(value.as_str().into())
    }

    fn id_property(&self) -> Option<Cow<'_, str>> {
        self.header(ID_HEADER)
    }

    fn coordinates(&self) -> Option<String> {
        self.sequence
            .map(|sequence| format!("nats:{}:{sequence}", self.incarnation))
    }

    fn attempt(&self) -> Option<u32> {
        self.attempt
    }

    fn progress_interval(&self) -> Option<Duration> {
        Some((self.ack_wait / 3).max(Duration::from_millis(10)))
    }

    async fn in_progress(&self) {
        let _ = self.message.ack_with(AckKind::Progress).await;
    }

    async fn ack(self) -> Result<(), BoxError> {
        self.message.double_ack().await
    }

    async fn retry_later(self, after: Duration) -> Result<(), BoxError> {
        self.message.double_ack_with(AckKind::Nak(Some(after))).await
    }

    async fn reject(self, rejection: &Rejection) -> Result<(), BoxError> {
        if let Some(subject) = self.dead_letter.clone() {
            self.publish_dead_letter(subject, rejection).await?;
        }
        self.message.double_ack_with(AckKind::Term).await
    }
}
