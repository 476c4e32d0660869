//! Kafka: a member of a consumer group that commits an offset only after the database has committed all before it.
//!
//! - Automatic commits and stores are switched off. What is settled out of order waits for what lies before it, so what is
//!   delivered again after a crash are duplicates, at most [`KafkaSource::with_lag_limit`] of each partition.
//! - An ack is noted in memory and committed within [`KafkaSource::with_commit_interval`], and before the partition is given up.
//!   Once it is given up, or was taken away, an ack fails and changes nothing: who has the partition now decides.
//! - Kafka never delivers a single record again, and counts no attempts. A record that is to be retried waits in this process
//!   while others pass it: **their order is not kept**. The offset stays before it. Failures are counted by the
//!   [`super::Consumer`], in its memory: after a restart, and for another member, the count begins anew.
//! - Kafka has no dead letters either: [`Rejected`] says what becomes of what is rejected, and there is no default. The offset is
//!   settled once all replicas in sync have the dead letter. A member that loses its partition at that very moment leaves it
//!   to the next, and the letter may then be there twice, with the same `inboxd-partition` and `inboxd-offset`.
//! - The member polls in a thread of its own. A handler may take longer than `max.poll.interval.ms`, and costs the
//!   others of its partition nothing but the commit.
//! - When the source is dropped, the member commits and leaves its group; [`super::Source::closed`] waits for it.
//!
//! [`super::IdSource::Coordinates`] are the topic's name, the partition and the offset. **A topic that is deleted and made again
//! counts from the start, and nothing in a record tells that: new messages then get the ids of old ones, and are skipped as
//! duplicates.** Prefer what the producer sets.
//!
//! The client is librdkafka, by [`rdkafka`], which this module re-exports. TLS (`ssl`), `gssapi`, gzip (`libz`) and zstd (`zstd`)
//! are features of that crate, and none is switched on here: name `rdkafka` in your own `Cargo.toml` with those that you need.
//! LZ4 and Snappy are always there; a batch in a compression that is not is an error each time it is fetched, and is not skipped.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

pub use rdkafka;
use rdkafka::ClientConfig;
use tokio::sync::watch;

use super::Source;
use crate::claim::{BoxError, unit::sleep};

mod dead_letters;
mod delivery;
mod desk;
mod member;
mod watermark;

pub use self::{dead_letters::ORIGIN_HEADERS, delivery::KafkaDelivery};
use self::{
    delivery::Destination,
    desk::{Desk, Next, Reach},
    member::{Orders, join},
};

/// What becomes of messages that are rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejected {
    /// They go to this topic, with key, payload and headers, and with [`super::Rejection::headers`] and [`ORIGIN_HEADERS`].
    ToTopic(String),
    /// They are logged without their content, and are gone once Kafka's retention is over.
    Discard,
}

impl Rejected {
    /// To a topic.
    pub fn to_topic(topic: impl Into<String>) -> Self {
        Self::ToTopic(topic.into())
    }
}

/// Why a source cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KafkaSourceError {
    /// The configuration names no `group.id`.
    #[error("a consumer needs a group.id")]
    NoGroup,
    /// No topic is named.
    #[error("a consumer needs a topic")]
    NoTopic,
    /// What is rejected would be delivered again.
    #[error("rejected messages would go to {0}, which is consumed")]
    Circle(String),
    /// The client does not take the configuration.
    #[error("the configuration is not taken")]
    Config(#[source] rdkafka::error::KafkaError),
}

/// A member of a consumer group. It joins when a delivery is first asked for, and joins again when its client has failed.
pub struct KafkaSource {
    orders: Orders,
    rejected: Arc<Destination>,
    member: Option<Arc<Desk>>,
    /// Held by each member until it has left.
    present: Arc<watch::Sender<()>>,
}

impl KafkaSource {
    /// A member of the group that the configuration names, for these topics.
    ///
    /// `auto.offset.reset` is `earliest` unless it is set: the client's own default skips what was there before the group.
    /// `enable.auto.commit` and `enable.auto.offset.store` are always `false`. A static member (`group.instance.id`) and
    /// either assignment protocol will do.
    ///
    /// # Errors
    /// When group or topic are missing, when the dead-letter topic is consumed itself, and when librdkafka does not take the
    /// configuration.
    pub fn new<T: Into<String>>(
        mut config: ClientConfig,
        topics: impl IntoIterator<Item = T>,
        rejected: Rejected,
    ) -> Result<Self, KafkaSourceError> {
        let topics: Vec<String> = topics.into_iter().map(Into::into).collect();
        if config.get("group.id").is_none_or(str::is_empty) {
            return Err(KafkaSourceError::NoGroup);
        }
        if topics.is_empty() {
            return Err(KafkaSourceError::NoTopic);
        }
        if let Rejected::ToTopic(topic) = &rejected
            && topics.contains(topic)
        {
            return Err(KafkaSourceError::Circle(topic.clone()));
        }
        if config.get("auto.offset.reset").is_none() {
            config.set("auto.offset.reset", "earliest");
        }
        config
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false");
        config.create_native_config().map_err(KafkaSourceError::Config)?;
        Ok(Self {
            rejected: Arc::new(Destination::new(rejected, &config)),
            orders: Orders {
                config,
                topics,
                // A crash costs the duplicates of a second; each commit is a write at the broker.
                commit_interval: Duration::from_secs(1),
                // One that is retried with the default pauses holds the offset for about ten seconds.
                lag_limit: 10_000,
            },
            member: None,
            present: Arc::new(watch::Sender::new(())),
        })
    }

    /// Sets how often offsets are committed; once a second by default.
    #[must_use]
    pub fn with_commit_interval(mut self, interval: Duration) -> Self {
        self.orders.commit_interval = interval;
        self
    }

    /// Bounds how many messages of a partition, settled or not, lie behind the first one that is not settled; 10,000 by default,
    /// at least one. At the bound nothing more of this partition is fetched. So many are delivered again after a crash.
    #[must_use]
    pub fn with_lag_limit(mut self, messages: usize) -> Self {
        self.orders.lag_limit = messages.max(1);
        self
    }

    fn member(&mut self) -> Result<Arc<Desk>, BoxError> {
        if let Some(desk) = &self.member {
            return Ok(Arc::clone(desk));
        }
        let desk = Arc::new(Desk::default());
        // The producer's last owner should be the thread: its end takes a moment.
        let until_then = (Arc::clone(&self.rejected), Arc::clone(&self.present));
        join(self.orders.clone(), Arc::clone(&desk), until_then)?;
        self.member = Some(Arc::clone(&desk));
        Ok(desk)
    }
}

impl Source for KafkaSource {
    type Delivery = KafkaDelivery;

    async fn connect(&mut self) -> Result<bool, BoxError> {
        match self.member()?.reach() {
            Reach::There => Ok(true),
            // What has been fetched is worked on all the same; where nothing is left, `next` fails.
            Reach::Unknown | Reach::Away => Ok(false),
        }
    }

    async fn next(&mut self) -> Result<Option<KafkaDelivery>, BoxError> {
        let desk = self.member()?;
        loop {
            let due = match desk.next(Instant::now()) {
                Next::Deliver(held) => {
                    let rejected = Arc::clone(&self.rejected);
                    return Ok(Some(KafkaDelivery::new(desk, held, rejected)));
                }
                Next::Fail(error) => return Err(error),
                Next::End => {
                    self.member = None;
                    return Err("the client has ended; the group is joined again".into());
                }
                Next::Wait(due) => due,
            };
            match due {
                Some(due) => {
                    let pause = due.saturating_duration_since(Instant::now());
                    tokio::select! {
                        () = desk.changed.notified() => {}
                        () = sleep(pause) => {}
                    }
                }
                None => desk.changed.notified().await,
            }
        }
    }

    fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut present = self.present.subscribe();
        // Never told anything: it ends when nobody is left who could.
        async move { while present.changed().await.is_ok() {} }
    }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        if let Some(desk) = &self.member {
            desk.close();
        }
    }
}

impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the configuration, which may hold a password.
        f.debug_struct("KafkaSource")
            .field("group", &self.orders.config.get("group.id"))
            .field("topics", &self.orders.topics)
            .field("rejected", &self.rejected)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairs: &[(&str, &str)]) -> ClientConfig {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_source_that_could_not_work_is_refused_before_it_starts() {
        let group = ("group.id", "workers");
        let make = |pairs: &[(&str, &str)], topics: &[&str], rejected| {
            KafkaSource::new(config(pairs), topics.iter().copied(), rejected).map(drop)
        };
        let dead = || Rejected::to_topic("dead");
        assert!(matches!(make(&[], &["orders"], dead()), Err(KafkaSourceError::NoGroup)));
        assert!(matches!(make(&[group], &[], dead()), Err(KafkaSourceError::NoTopic)));
        assert!(matches!(
            make(&[group], &["dead"], dead()),
            Err(KafkaSourceError::Circle(_))
        ));
        let unknown = make(&[group, ("no.such.key", "1")], &["orders"], dead());
        assert!(matches!(unknown, Err(KafkaSourceError::Config(_))));
        assert!(make(&[group], &["orders"], Rejected::Discard).is_ok());
    }

    #[test]
    fn the_client_never_commits_by_itself_whatever_it_was_told() {
        let asked = config(&[("group.id", "workers"), ("enable.auto.commit", "true")]);
        let source = KafkaSource::new(asked, ["orders"], Rejected::Discard).unwrap();
        let used = |key: &str| source.orders.config.get(key).map(str::to_owned);
        for key in ["enable.auto.commit", "enable.auto.offset.store"] {
            assert_eq!(used(key).as_deref(), Some("false"));
        }
        assert_eq!(used("auto.offset.reset").as_deref(), Some("earliest"));
    }
}
