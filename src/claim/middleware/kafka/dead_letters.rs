//! Where rejected messages go.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rdkafka::{
    ClientConfig, ClientContext,
    config::RDKafkaLogLevel,
    error::KafkaError,
    message::{DeliveryResult, Header, Headers, Message, OwnedHeaders, OwnedMessage},
    producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer},
};
use tokio::sync::oneshot;

use super::{
    desk::{Desk, Held, Stale},
    member::log,
};
use crate::claim::{BoxError, middleware::Rejection};

/// Headers that say where a dead letter comes from: topic, partition, offset.
pub const ORIGIN_HEADERS: [&str; 3] = ["inboxd-topic", "inboxd-partition", "inboxd-offset"];

/// A producer for a topic. It is made when it is first needed, and anew once it can go on no more.
pub(super) struct DeadLetters {
    config: ClientConfig,
    topic: String,
    producer: Mutex<Option<Arc<ThreadedProducer<Reports>>>>,
}

/// What is done when the broker has answered for a letter, whoever still waits for it.
struct Pending {
    desk: Arc<Desk>,
    held: Held,
    pause: Duration,
    answer: Mutex<Option<oneshot::Sender<Result<(), BoxError>>>>,
}

struct Reports;

impl DeadLetters {
    /// With the connection of the consumer's configuration.
    pub(super) fn new(consumer: &ClientConfig, topic: String) -> Self {
        let mut config = consumer.clone();
        // A group, and what only it has, is not for a producer; librdkafka would complain of each.
        for key in OF_CONSUMERS {
            config.remove(key);
        }
        config.set("acks", "all").set("enable.idempotence", "true");
        Self {
            config,
            topic,
            producer: Mutex::new(None),
        }
    }

    /// Sends it. The offset is settled when, and only when, the broker has the letter; otherwise the message is delivered
    /// again after the pause. That happens also when the returned future is dropped.
    pub(super) async fn send(
        &self,
        desk: Arc<Desk>,
        held: Held,
        pause: Duration,
        rejection: &Rejection,
    ) -> Result<(), BoxError> {
        let (answer, answered) = oneshot::channel();
        let message = Arc::clone(&held.message);
        let pending = Pending {
            desk,
            held,
            pause,
            answer: Mutex::new(Some(answer)),
        };
        self.produce(&message, rejection, Box::new(pending));
        // It is answered whatever happens, unless the process ends.
        answered.await?
    }

    fn produce(&self, message: &OwnedMessage, rejection: &Rejection, pending: Box<Pending>) {
        let producer = match self.producer() {
            Ok(producer) => producer,
            Err(error) => return pending.end(Err(error)),
        };
        let mut record = BaseRecord::with_opaque_to(&self.topic, pending).headers(headers(message, rejection));
        record.key = message.key();
        record.payload = message.payload();
        if let Err((error, record)) = producer.send::<[u8], [u8]>(record) {
            record.delivery_opaque.end(Err(error));
        }
    }

    fn producer(&self) -> Result<Arc<ThreadedProducer<Reports>>, KafkaError> {
        let mut kept = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = kept.take().filter(|producer| producer.client().fatal_error().is_none());
        let producer = match usable {
            Some(producer) => producer,
            None => Arc::new(self.config.create_with_context(Reports)?),
        };
        *kept = Some(Arc::clone(&producer));
        Ok(producer)
    }
}

impl fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters")
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

impl Pending {
    fn end(self, sent: Result<(), KafkaError>) {
        let result = match sent {
            Ok(()) => self.desk.settle(&self.held).map_err(Into::into),
            Err(error) => {
                // Where it is stale, it is delivered again elsewhere.
                let _: Result<(), Stale> = self.desk.put_back(self.held, self.pause);
                Err(format!("the dead letter was not taken by the broker: {error}").into())
            }
        };
        let answer = self.answer.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answer {
            // Nobody may wait for it any more.
            let _ = answer.send(result);
        }
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        log(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(error = %error, reason, "the producer of dead letters has trouble");
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<Pending>;

    fn delivery(&self, result: &DeliveryResult<'_>, pending: Box<Pending>) {
        pending.end(match result {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(error.clone()),
        });
    }
}

/// Those of the message, without what an earlier rejection has put there, and those that say why and from where.
fn headers(message: &OwnedMessage, rejection: &Rejection) -> OwnedHeaders {
    let origin = [
        message.topic().to_owned(),
        message.partition().to_string(),
        message.offset().to_string(),
    ];
    let ours: Vec<(&str, String)> = rejection
        .headers()
        .into_iter()
        .chain(ORIGIN_HEADERS.into_iter().zip(origin))
        .collect();
    let mut headers = OwnedHeaders::new();
    for header in message.headers().into_iter().flat_map(Headers::iter) {
        if !ours.iter().any(|(name, _)| *name == header.key) {
            headers = headers.insert(header);
        }
    }
    for (key, value) in &ours {
        headers = headers.insert(Header {
            key,
            value: Some(value),
        });
    }
    headers
}

/// Settings that only a consumer has, as far as librdkafka knows them.
const OF_CONSUMERS: [&str; 33] = [
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.protocol.type",
    "group.remote.assignor",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "coordinator.query.interval.ms",
    "max.poll.interval.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "auto.commit.interval.ms",
    "auto.commit.enable",
    "auto.offset.reset",
    "queued.min.messages",
    "queued.max.messages.kbytes",
    "fetch.wait.max.ms",
    "fetch.queue.backoff.ms",
    "fetch.message.max.bytes",
    "max.partition.fetch.bytes",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "fetch.error.backoff.ms",
    "offset.store.method",
    "offset.store.path",
    "offset.store.sync.interval.ms",
    "isolation.level",
    "enable.partition.eof",
    "check.crcs",
    "client.rack",
    "consume.callback.max.messages",
    "allow.auto.create.topics",
];
