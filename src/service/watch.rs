//! The watch over health: judges it after each pass and every while, and tells what has changed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{caught::caught, changes::Told, health::health, http::Context, systemd::sentence, webhook::Queue};

/// A database that goes away between two passes is told within this and the time that a reading takes. Readings are those
/// that HTTP shares.
const PERIOD: Duration = Duration::from_secs(15);
/// Between two judgements, however often passes end.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

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
        loop {
            // Its time over is as good a reason as being told.
            let _ = tokio::time::timeout(PERIOD, self.judge.notified()).await;
            caught("the watch over health", self.judge_once(&mut told)).await;
            tokio::time::sleep(SHORTEST_PAUSE).await;
        }
    }

    async fn judge_once(&self, told: &mut Told) {
        let members = &self.context.members;
        let is_judged = |name: &str| {
            let member = members.iter().find(|member| member.database.name == name);
            // Before the first pass has made what must be there, it would be told that it is missing.
            member.is_some_and(|member| member.shared.has_begun())
        };
        if !members.iter().any(|member| member.shared.has_begun()) {
            return;
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
        for change in told.judge(&health, self.context.clock.now(), Instant::now()) {
            change.log();
            if let Some(webhook) = &self.webhook {
                webhook.push(change);
            }
        }
    }
}
