//! The canaries of one database: a task of its own, so that neither a pass nor a shutdown ever waits for one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use chrono::{DateTime, Utc};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::{
    super::{caught::caught, config::Database, cron::Schedule},
    state::is_overdue,
};
use crate::{
    clock::Clock,
    maintain::{Canary, LONGEST_CANARY_ROUND, canaries},
    pure::{InboxSpec, Severity},
};

/// What the last canary of an inbox met: what a consumer saw then.
#[derive(Debug, Clone, PartialEq, serde::Serialize, utoipa::ToSchema)]
pub struct CanaryStatus {
    /// When it was tried, by the host's clock.
    pub at: DateTime<Utc>,
    /// How long ago that was.
    pub age_seconds: i64,
    /// Whether another should have been tried long since.
    pub is_stale: bool,
    /// How its claim came out: `fresh` when all is well, another outcome of a claim, or a kind of error.
    pub outcome: String,
    /// How bad that is.
    pub severity: Severity,
    /// What a consumer would see; none when its claim comes out fresh.
    pub message: Option<String>,
    /// What to do; none when there is nothing to do.
    pub remedy: Option<String>,
    /// How long the claim took, in seconds.
    pub duration_seconds: f64,
}

/// When it was met: by the host's clock, and by one that does not step.
type At = (DateTime<Utc>, Instant);
type ByInbox = BTreeMap<String, (At, Canary)>;

/// What the canaries met last, by inbox, with the time of each.
#[derive(Debug, Clone, Default)]
pub(in crate::service) struct Met(Arc<Mutex<ByInbox>>);

impl Met {
    /// What a consumer of an inbox would have seen last, and how long ago that was.
    pub(in crate::service) fn last(
        &self,
        inbox: &str,
        schedule: &Schedule,
        now: DateTime<Utc>,
    ) -> Option<CanaryStatus> {
        let met = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ((at, since), canary) = met.get(inbox)?;
        let elapsed = since.elapsed();
        let age = i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX);
        Some(CanaryStatus {
            at: *at,
            age_seconds: (now - *at).num_seconds().max(age),
            is_stale: is_overdue(schedule, *at, elapsed, now),
            outcome: canary.outcome.clone(),
            severity: canary.severity,
            message: canary.message.clone(),
            remedy: canary.remedy.clone(),
            duration_seconds: canary.duration_seconds,
        })
    }

    fn note(&self, database: &str, at: At, canary: Canary) {
        let mut met = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = met
            .get(&canary.inbox)
            .map_or("fresh", |(_, before)| before.outcome.as_str());
        // The change of health is told elsewhere, without what the database said.
        if let Some(error) = canary.error.as_ref().filter(|_| before != canary.outcome) {
            tracing::warn!(
                database,
                inbox = canary.inbox,
                outcome = canary.outcome,
                error,
                "the canary's claim failed"
            );
        }
        met.insert(canary.inbox.clone(), (at, canary));
    }

    /// Who has waited longest comes first; a round does not always reach all.
    fn longest_first<'a>(&self, specs: &'a [InboxSpec]) -> Vec<&'a InboxSpec> {
        let met = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut specs: Vec<&InboxSpec> = specs.iter().collect();
        specs.sort_by_key(|spec| met.get(&spec.name).map(|((_, since), _)| *since));
        specs
    }
}

/// The task that flies them.
#[derive(Debug)]
pub(in crate::service) struct Canaries {
    pub(in crate::service) database: Arc<Database>,
    pub(in crate::service) clock: Clock,
    pub(in crate::service) met: Met,
    /// Told after each round.
    pub(in crate::service) landed: Arc<Notify>,
    pub(in crate::service) shutdown: CancellationToken,
}

impl Canaries {
    /// Flies a round each time that it is asked, until the shutdown.
    pub(in crate::service) async fn fly(self, mut asked: mpsc::Receiver<()>) {
        let mut logged = None;
        while let Some(()) = self.until_shutdown(asked.recv()).await.flatten() {
            // In the middle of a claim too: the server rolls it back when the connection ends.
            let round = caught("a round of canaries", self.round());
            let Some(flown) = self.until_shutdown(round).await else {
                return;
            };
            let failure = flown.flatten();
            if let Some(error) = failure.as_ref().filter(|_| failure != logged) {
                tracing::info!(database = self.database.name, error, "the canaries could not fly");
            }
            logged = failure;
            self.landed.notify_one();
        }
    }

    async fn until_shutdown<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            () = self.shutdown.cancelled() => None,
            value = future => Some(value),
        }
    }

    /// Why a round broke off, if it did. What was met before still stands, and grows old.
    async fn round(&self) -> Option<String> {
        let options = self.database.connect_options().ok()?;
        let specs = self.met.longest_first(&self.database.inboxes);
        let told = |canary: Canary| {
            self.met
                .note(&self.database.name, (self.clock.now(), Instant::now()), canary)
        };
        let flown = canaries(options, specs.into_iter(), LONGEST_CANARY_ROUND, told).await;
        flown.err().map(|error| error.to_string())
    }
}

impl CanaryStatus {
    /// What a consumer would see, in a sentence; none when all is well.
    pub(in crate::service) fn complaint(&self) -> Option<(Severity, String, String)> {
        let age = crate::pure::show_duration(chrono::TimeDelta::seconds(self.age_seconds));
        if self.severity > Severity::Info {
            let message = self.message.clone().unwrap_or_default();
            let remedy = self.remedy.clone().unwrap_or_default();
            return Some((self.severity, format!("{message} (tried {age} ago)"), remedy));
        }
        self.is_stale.then(|| {
            let message = format!("no claim has been tried for {age}");
            (
                Severity::Warn,
                message,
                "see the log for why passes or their canaries do not end".to_owned(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn met(severity: Severity) -> Canary {
        Canary {
            inbox: "orders".to_owned(),
            outcome: "in_flight".to_owned(),
            severity,
            message: Some("claims wait".to_owned()),
            remedy: Some("see pg_locks".to_owned()),
            duration_seconds: 0.5,
            error: None,
        }
    }

    #[test]
    fn a_canary_is_stale_once_the_next_should_have_flown_and_then_that_is_told() {
        let (all, schedule) = (Met::default(), "*/10 * * * *".parse().unwrap());
        assert_eq!(all.last("orders", &schedule, at("2026-12-01T00:00:00Z")), None);
        all.note(
            "main",
            (at("2026-12-01T00:00:05Z"), Instant::now()),
            met(Severity::Info),
        );
        let fresh = all.last("orders", &schedule, at("2026-12-01T00:15:00Z")).unwrap();
        assert_eq!(
            (fresh.is_stale, fresh.age_seconds, fresh.complaint()),
            (false, 895, None)
        );
        let stale = all.last("orders", &schedule, at("2026-12-01T00:15:01Z")).unwrap();
        let (severity, message, _) = stale.complaint().unwrap();
        assert_eq!(
            (severity, message.as_str()),
            (Severity::Warn, "no claim has been tried for 14m 56s")
        );
    }

    #[test]
    fn what_a_consumer_would_see_is_told_with_its_age() {
        let (all, schedule) = (Met::default(), "*/10 * * * *".parse().unwrap());
        all.note(
            "main",
            (at("2026-12-01T00:00:05Z"), Instant::now()),
            met(Severity::Warn),
        );
        let bad = all.last("orders", &schedule, at("2026-12-01T00:01:05Z")).unwrap();
        assert_eq!(
            bad.complaint().unwrap(),
            (
                Severity::Warn,
                "claims wait (tried 1m ago)".to_owned(),
                "see pg_locks".to_owned()
            )
        );
    }

    #[test]
    fn who_was_not_reached_is_the_first_of_the_next_round() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("inboxd.toml");
        let inboxes = ["a", "b", "c"].map(|name| format!("[[inbox]]\ntable = '{name}'\nname = '{name}'\n"));
        std::fs::write(&file, inboxes.concat()).unwrap();
        let environment = [("DATABASE_URL".to_owned(), "postgres://localhost/d".to_owned())];
        let config = crate::service::config::Config::load(Some(&file), environment.into()).unwrap();
        let all = Met::default();
        // The clock has stepped back in between.
        for (inbox, when) in [("b", "2026-12-01T00:00:02Z"), ("a", "2026-12-01T00:00:01Z")] {
            let canary = Canary {
                inbox: inbox.to_owned(),
                ..met(Severity::Info)
            };
            all.note("main", (at(when), Instant::now()), canary);
        }
        let order: Vec<_> = all
            .longest_first(&config.databases[0].inboxes)
            .into_iter()
            .map(|spec| spec.name.as_str())
            .collect();
        assert_eq!(order, ["c", "b", "a"]);
    }
}
