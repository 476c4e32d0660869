//! The webhook: posts changes of health, signed as the specification of standard webhooks says.
//!
//! Its invariants: nobody ever waits for it, neither whoever tells a change nor, beyond [`GOODBYE`], the shutdown; and what
//! it keeps is bounded, in number and in tries.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::SecondsFormat;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::Full;
use hyper::{Method, Request, StatusCode, body::Bytes, header};
use sha2::Sha256;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    caught::caught,
    changes::{HealthChange, HealthState},
    config::{Secret, Webhook},
    health::HealthStatus,
    outward::HttpClient,
};
use crate::{clock::Clock, maintain::random_uuid, pure::Severity};

/// A bad day of 200 inboxes has fewer changes that somebody still wants to read; beyond, the oldest goes.
const MOST_WAITING: usize = 100;
/// With the pauses between them some six minutes: a receiver is deployed meanwhile.
const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long a post in hand may go on at the shutdown.
const GOODBYE: Duration = Duration::from_secs(2);

/// What became of the changes, and what waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WebhookCounts {
    pub(super) sent: u64,
    pub(super) failed: u64,
    pub(super) dropped: u64,
    pub(super) retries: u64,
    pub(super) waiting: usize,
}

/// What is posted.
#[derive(Debug)]
enum Post {
    Changed(HealthChange),
    Stated(HealthState),
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Post>,
    counts: WebhookCounts,
}

/// What waits to be posted.
#[derive(Debug, Clone)]
pub(super) struct Queue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    severity: Severity,
    state: Mutex<State>,
    more: Notify,
}

impl Queue {
    pub(super) fn new(severity: Severity) -> Self {
        Self(Arc::new(Inner {
            severity,
            state: Mutex::default(),
            more: Notify::new(),
        }))
    }

    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Leaves a change to be posted, if it is bad enough.
    pub(super) fn push(&self, change: HealthChange) {
        let least = self.least();
        if change.to >= least || change.from.is_some_and(|from| from >= least) {
            self.wait(Post::Changed(change));
        }
    }

    /// Leaves a state to be posted, with what is bad enough.
    pub(super) fn push_state(&self, mut state: HealthState) {
        let least = self.least();
        state.not_well.retain(|entry| entry.status >= least);
        self.wait(Post::Stated(state));
    }

    fn least(&self) -> HealthStatus {
        HealthStatus::from(self.0.severity)
    }

    fn wait(&self, post: Post) {
        self.update(|state| {
            if state.waiting.len() >= MOST_WAITING {
                state.waiting.pop_front();
                state.counts.dropped += 1;
            }
            state.waiting.push_back(post);
        });
        self.0.more.notify_one();
    }

    pub(super) fn counts(&self) -> WebhookCounts {
        self.update(|state| WebhookCounts {
            waiting: state.waiting.len(),
            ..state.counts
        })
    }

    async fn pop(&self) -> Post {
        loop {
            if let Some(post) = self.update(|state| state.waiting.pop_front()) {
                return post;
            }
            self.0.more.notified().await;
        }
    }
}

/// The task that posts.
#[derive(Debug)]
pub(super) struct Poster {
    webhook: Webhook,
    client: HttpClient,
    queue: Queue,
    clock: Clock,
    shutdown: CancellationToken,
}

impl Poster {
    /// # Errors
    /// When the system has no certificates to trust.
    pub(super) fn new(
        webhook: Webhook,
        queue: Queue,
        clock: Clock,
        shutdown: CancellationToken,
    ) -> std::io::Result<Self> {
        Ok(Self {
            client: HttpClient::new(webhook.url.scheme_str() == Some("https"))?,
            webhook,
            queue,
            clock,
            shutdown,
        })
    }

    /// Posts until the shutdown. What waits then is given up, and counted.
    pub(super) async fn post_until_shutdown(self) {
        let goodbye = async {
            self.shutdown.cancelled().await;
            tokio::time::sleep(GOODBYE).await;
        };
        let in_hand = tokio::select! {
            () = self.post_each() => 0,
            () = goodbye => {
                self.queue.update(|state| state.counts.failed += 1);
                1
            }
        };
        let left = in_hand + self.queue.update(|state| state.waiting.len());
        if left > 0 {
            tracing::warn!(left, "changes of health were not posted before the end");
        }
    }

    async fn post_each(&self) {
        while !self.shutdown.is_cancelled() {
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                post = self.queue.pop() => {
                    if caught("the webhook", self.post(&post)).await.is_none() {
                        self.queue.update(|state| state.counts.failed += 1);
                    }
                }
            }
        }
    }

    async fn post(&self, post: &Post) {
        // The same for each try, so that a receiver knows what it has had.
        let id = format!("msg_{}", random_uuid().simple());
        let body = post.body();
        let mut attempt = 1;
        let why = loop {
            let why = match self.try_once(&id, &body).await {
                Ok(status) if status.is_success() => {
                    self.queue.update(|state| state.counts.sent += 1);
                    return;
                }
                // The receiver wants no more of it.
                Ok(StatusCode::GONE) => break StatusCode::GONE.to_string(),
                Ok(status) => format!("it answered {status}"),
                Err(why) => why,
            };
            if attempt >= ATTEMPTS || self.shutdown.is_cancelled() {
                break why;
            }
            let pause = FIRST_PAUSE * 4_u32.pow(attempt - 1);
            let jittered = pause.mul_f64(rand::RngExt::random_range(&mut rand::rng(), 0.75..1.25));
            tokio::select! {
                () = tokio::time::sleep(jittered) => {}
                () = self.shutdown.cancelled() => break why,
            }
            attempt += 1;
            self.queue.update(|state| state.counts.retries += 1);
        };
        self.queue.update(|state| state.counts.failed += 1);
        let (host, about) = (self.webhook.host(), post.about());
        tracing::warn!(host, about, attempt, why, "a change of health could not be posted");
    }

    async fn try_once(&self, id: &str, body: &str) -> Result<StatusCode, String> {
        let timestamp = self.clock.now().timestamp();
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.webhook.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("inboxd/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header(
                "webhook-signature",
                signature(&self.webhook.secret, id, timestamp, body),
            )
            .body(Full::new(Bytes::from(body.to_owned())))
            .map_err(|error| error.to_string())?;
        match tokio::time::timeout(self.webhook.timeout, self.client.send(request)).await {
            // What the answer says beyond its status is not read.
            Ok(answer) => answer.map(|answer| answer.status()),
            Err(_) => Err("it did not answer in time".to_owned()),
        }
    }
}

impl Post {
    /// What it is about, for the log.
    fn about(&self) -> &str {
        match self {
            Self::Changed(change) => change.check,
            Self::Stated(state) => &state.database,
        }
    }

    fn body(&self) -> String {
        let (kind, at, data) = match self {
            Self::Changed(change) => ("inboxd.health.changed", change.at, serde_json::to_value(change)),
            Self::Stated(state) => ("inboxd.health.stated", state.at, serde_json::to_value(state)),
        };
        serde_json::json!({
            "type": kind,
            "timestamp": at.to_rfc3339_opts(SecondsFormat::Millis, true),
            // Both are made of texts alone, which cannot fail.
            "data": data.unwrap_or_default(),
        })
        .to_string()
    }
}

/// Over identity, time and body, so that none of them can be another's.
fn signature(secret: &Secret, id: &str, timestamp: i64, body: &str) -> String {
    let signed = format!("{id}.{timestamp}.{body}");
    // A key of any length is one for HMAC.
    let tag = Hmac::<Sha256>::new_from_slice(secret.bytes())
        .map(|mac| mac.chain_update(signed.as_bytes()).finalize().into_bytes())
        .unwrap_or_default();
    format!("v1,{}", STANDARD.encode(tag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::changes::NotWell;

    fn change(from: Option<HealthStatus>, to: HealthStatus) -> HealthChange {
        HealthChange {
            at: chrono::DateTime::UNIX_EPOCH,
            deployment: "test".to_owned(),
            check: "canary",
            component_id: "orders".to_owned(),
            component_type: "inbox",
            database: "main".to_owned(),
            from,
            to,
            output: None,
            remedy: None,
        }
    }

    #[test]
    fn a_full_queue_drops_the_oldest_and_counts_it() {
        let queue = Queue::new(Severity::Warn);
        for number in 0..MOST_WAITING + 3 {
            queue.push(HealthChange {
                component_id: number.to_string(),
                ..change(None, HealthStatus::Fail)
            });
        }
        let counts = queue.counts();
        assert_eq!((counts.waiting, counts.dropped), (MOST_WAITING, 3));
        queue.update(|state| match state.waiting.front() {
            Some(Post::Changed(first)) => assert_eq!(first.component_id, "3"),
            other => panic!("{other:?}"),
        });
    }

    #[test]
    fn what_is_not_bad_enough_is_not_posted_but_its_end_is() {
        use HealthStatus::{Fail, Pass, Warn};
        let posted = |severity, from, to| {
            let queue = Queue::new(severity);
            queue.push(change(from, to));
            queue.counts().waiting == 1
        };
        assert!(posted(Severity::Warn, Some(Pass), Warn) && posted(Severity::Warn, Some(Warn), Pass));
        assert!(!posted(Severity::Fail, Some(Pass), Warn) && !posted(Severity::Fail, None, Warn));
        assert!(posted(Severity::Fail, Some(Fail), Warn) && posted(Severity::Fail, Some(Warn), Fail));
    }

    #[test]
    fn a_state_is_posted_also_where_it_is_empty_and_lists_what_is_bad_enough() {
        let queue = Queue::new(Severity::Fail);
        let entry = |status| NotWell {
            check: "canary",
            component_id: "orders".to_owned(),
            component_type: "inbox",
            status,
            output: None,
            remedy: None,
        };
        queue.push_state(HealthState {
            at: chrono::DateTime::UNIX_EPOCH,
            deployment: "test".to_owned(),
            database: "main".to_owned(),
            not_well: vec![entry(HealthStatus::Warn)],
        });
        let body = queue.update(|state| state.waiting.front().map(Post::body));
        let body: serde_json::Value = serde_json::from_str(&body.unwrap()).unwrap();
        assert_eq!(
            body,
            serde_json::json!({
                "type": "inboxd.health.stated",
                "timestamp": "1970-01-01T00:00:00.000Z",
                "data": {"deployment": "test", "database": "main", "not_well": []}
            })
        );
    }
}
