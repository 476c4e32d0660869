//! What a worker counts since the start, for metrics. Labels are few and known beforehand; inboxes are those configured.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    maintain::{RunReport, StepOutcome},
    pure::Action,
};

/// A pass that finds nothing to do takes tens of milliseconds; one that waits for locks, up to minutes.
pub(super) const RUN_BUCKETS: [f64; 8] = [0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];

/// Outcomes that are shown from the start, so that the first failure is an increase.
const RUN_OUTCOMES: [&str; 3] = ["done", "partial", "failed"];

/// How long something took, by upper bounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Histogram {
    /// Not cumulative: one for each of [`RUN_BUCKETS`], and the last for what took longer.
    pub(super) buckets: [u64; RUN_BUCKETS.len() + 1],
    pub(super) sum_seconds: f64,
}

/// How often and how long in all.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Total {
    pub(super) count: u64,
    pub(super) seconds: f64,
}

/// What is counted in one database.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Counts {
    /// Runs by outcome.
    pub(super) runs: BTreeMap<&'static str, Histogram>,
    /// Steps by action and outcome.
    pub(super) steps: BTreeMap<(&'static str, &'static str), Total>,
    /// Steps that failed, by kind of error.
    pub(super) failures: BTreeMap<&'static str, u64>,
    /// Tries of steps after one that failed, by the kind of error that ended that.
    pub(super) retries: BTreeMap<&'static str, u64>,
    /// Partitions dropped, and the bytes that gave back, by inbox.
    pub(super) drops: BTreeMap<String, (u64, u64)>,
    /// Passes that panicked.
    pub(super) panics: u64,
}

/// The counts of one database, shared by its worker and HTTP.
#[derive(Debug, Clone)]
pub(super) struct Counters(Arc<Mutex<Counts>>);

impl Counters {
    pub(super) fn new<'a>(inboxes: impl Iterator<Item = &'a str>) -> Self {
        Self(Arc::new(Mutex::new(Counts {
            runs: RUN_OUTCOMES
                .into_iter()
                .map(|outcome| (outcome, Histogram::default()))
                .collect(),
            steps: BTreeMap::new(),
            failures: BTreeMap::new(),
            retries: BTreeMap::new(),
            drops: inboxes.map(|inbox| (inbox.to_owned(), (0, 0))).collect(),
            panics: 0,
        })))
    }

    pub(super) fn counts(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn update(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A pass has ended like this.
    pub(super) fn run(&self, outcome: &'static str, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = RUN_BUCKETS
            .iter()
            .position(|bound| seconds <= *bound)
            .unwrap_or(RUN_BUCKETS.len());
        self.update(|counts| {
            let histogram = counts.runs.entry(outcome).or_default();
            histogram.buckets[bucket] += 1;
            histogram.sum_seconds += seconds;
        });
    }

    pub(super) fn panicked(&self) {
        self.update(|counts| counts.panics += 1);
    }

    /// What a run did; `bytes` knows how large a relation was before it.
    pub(super) fn steps(&self, report: &RunReport, bytes: impl Fn(u32) -> Option<i64>) {
        self.update(|counts| {
            for (inbox, step) in report
                .inboxes
                .iter()
                .flat_map(|inbox| inbox.steps.iter().map(move |step| (&inbox.inbox, step)))
            {
                let outcome = match &step.outcome {
                    StepOutcome::Done => "done",
                    StepOutcome::Failed { kind, .. } => {
                        *counts.failures.entry(kind.as_str()).or_default() += 1;
                        "failed"
                    }
                    StepOutcome::Skipped { .. } => "skipped",
                };
                let total = counts.steps.entry((step.step.action.as_str(), outcome)).or_default();
                total.count += 1;
                total.seconds += Duration::from_millis(u64::try_from(step.duration_ms).unwrap_or(0)).as_secs_f64();
                for kind in &step.retried_for {
                    *counts.retries.entry(kind.as_str()).or_default() += 1;
                }
                if step.step.action == Action::Drop && outcome == "done" {
                    let (drops, freed) = counts.drops.entry(inbox.clone()).or_default();
                    *drops += 1;
                    let size = step.step.oid.and_then(&bytes).unwrap_or(0);
                    *freed += u64::try_from(size).unwrap_or(0);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_counted_in_the_bucket_that_it_fits_and_failures_are_there_from_the_start() {
        let counters = Counters::new(["a"].into_iter());
        counters.run("done", Duration::from_millis(50));
        counters.run("done", Duration::from_millis(51));
        counters.run("done", Duration::from_secs(301));
        let counts = counters.counts();
        assert_eq!(counts.runs["done"].buckets, [1, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(counts.runs["failed"], Histogram::default());
        assert_eq!(counts.drops["a"], (0, 0));
    }
}
