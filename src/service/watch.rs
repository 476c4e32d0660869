//! The watch over health: judges it after each pass and every while, and tells what has changed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{
    caught::caught,
    changes::{SEEN_AGAIN_AFTER, Told},
    health::health,
    http::Context,
    systemd::sentence,
    webhook::Queue,
};

/// A database that goes away between two passes is told within this, another look, and the time that two readings take: half a
/// minute at most. Readings are those that HTTP shares.
const PERIOD: Duration = Duration::from_secs(15);
/// Between two judgements, however often passes end.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// How soon it is judged again what looks worse; together with the pause before it can be told then.
const LOOK_AGAIN: Duration = SEEN_AGAIN_AFTER.saturating_sub(SHORTEST_PAUSE);

/// The watch over all databases of a deployment.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) context: Context,
    /// Told when a pass has ended, or canaries have landed.
    pub(super) judge: Arc<Notify>,
    pub(super) webhook: Option<Queue>,
    /// Where it says how all fares, in a sentence.
    pub(super) said: watch::Sender<String>,
    pub(super) shutdown: CancellationToken,
}

impl Watch {
    /// Judges until the shutdown, which ends it at once: it only reads.
    pub(super) async fn watch(self) {
        tokio::select! {
            () = self.shutdown.cancelled() => {}
            () = self.judge_again_and_again() => {}
        }
    }

    async fn judge_again_and_again(&self) {
        let mut told = Told::default();
        let mut period = PERIOD;
        loop {
            // Its time over is as good a reason as being told.
            let _ = tokio::time::timeout(period, self.judge.notified()).await;
            let is_unsettled = caught("the watch over health", self.judge_once(&mut told)).await;
            period = match is_unsettled {
                Some(true) => LOOK_AGAIN,
                _ => PERIOD,
            };
            tokio::time::sleep(SHORTEST_PAUSE).await;
        }
    }

    /// Whether it is to be judged again soon.
    async fn judge_once(&self, told: &mut Told) -> bool {
        let members = &self.context.members;
        let is_judged = |name: &str| {
            let member = members.iter().find(|member| member.database.name == name);
            // Before the first pass has made what must be there, it would be told that it is missing.
            member.is_some_and(|member| member.shared.has_begun())
        };
        if !members.iter().any(|member| member.shared.has_begun()) {
            return false;
        }
        let mut status = self.context.status().await;
        status.databases.retain(|database| is_judged(&database.database));
        let health = health(&status);
        let sentence = sentence(&health);
        self.said.send_if_modified(|said| {
            let is_new = *said != sentence;
            *said = sentence;
            is_new
        });
        let judged = told.judge(&health, self.context.clock.now(), Instant::now());
        if let Some(webhook) = &self.webhook {
            for state in judged.states {
                webhook.push_state(state);
            }
        }
        for change in judged.changes {
            change.log();
            if let Some(webhook) = &self.webhook {
                webhook.push(change);
            }
        }
        judged.is_unsettled
    }
}
