//! The last runs with their steps.

use chrono::{DateTime, Utc};

use super::MOST_STEPS;
use crate::{
    postgres::history::{RecordedStep, RunRecord},
    service::page::words::{self, When},
};

/// A run as it is on record.
#[derive(Debug, Clone)]
pub(in crate::service::page) struct PastRun {
    pub(in crate::service::page) database: String,
    pub(in crate::service::page) record: RunRecord,
    /// Each with the name of its inbox, where that is still configured.
    pub(in crate::service::page) steps: Vec<(Option<String>, RecordedStep)>,
}

/// The last runs, the newest first.
#[derive(Debug, Default)]
pub(in crate::service::page) struct RunsView {
    pub(in crate::service::page) entries: Vec<Entry>,
}

/// A run that did something, or those in a row that found nothing to do.
#[derive(Debug)]
pub(in crate::service::page) enum Entry {
    Idle(IdleRuns),
    Run(RunView),
}

/// Runs in a row with nothing to do.
#[derive(Debug)]
pub(in crate::service::page) struct IdleRuns {
    pub(in crate::service::page) runs: usize,
    pub(in crate::service::page) first: When,
    pub(in crate::service::page) last: When,
}

/// One run.
#[derive(Debug)]
pub(in crate::service::page) struct RunView {
    pub(in crate::service::page) id: String,
    pub(in crate::service::page) database: String,
    pub(in crate::service::page) when: When,
    pub(in crate::service::page) trigger: String,
    pub(in crate::service::page) class: &'static str,
    pub(in crate::service::page) outcome: &'static str,
    pub(in crate::service::page) took: Option<String>,
    pub(in crate::service::page) summary: String,
    pub(in crate::service::page) steps: Vec<StepView>,
    pub(in crate::service::page) more: usize,
    /// Whether it failed as a whole.
    pub(in crate::service::page) has_error: bool,
}

/// One step of a run.
#[derive(Debug)]
pub(in crate::service::page) struct StepView {
    pub(in crate::service::page) inbox: Option<String>,
    pub(in crate::service::page) action: String,
    pub(in crate::service::page) relation: String,
    pub(in crate::service::page) reason: String,
    pub(in crate::service::page) class: &'static str,
    pub(in crate::service::page) outcome: String,
    pub(in crate::service::page) took: String,
}

/// A class of the style sheet for how a run ended.
pub(super) fn class(outcome: Option<&str>) -> &'static str {
    match outcome {
        Some("done") => "pass",
        Some("partial") => "warn",
        Some(_) => "fail",
        None => "going",
    }
}

/// The same as a word.
pub(super) fn word(outcome: Option<&str>) -> &'static str {
    match outcome {
        Some("done") => "done",
        Some("partial") => "partial",
        Some(_) => "failed",
        None => "not ended",
    }
}

/// The last runs in words, the newest first; those of `inbox` only, where one is named.
pub(in crate::service::page) fn runs(
    past: &[PastRun],
    inbox: Option<&str>,
    now: DateTime<Utc>,
    most: usize,
) -> RunsView {
    let mut past: Vec<&PastRun> = past.iter().collect();
    past.sort_by_key(|run| std::cmp::Reverse((run.record.started_at, run.record.ordinal)));
    let mut entries: Vec<Entry> = Vec::new();
    for run in past {
        let view = view(run, inbox, now);
        let is_idle = view.steps.is_empty() && run.record.outcome.as_deref() == Some("done");
        let is_full = entries.len() == most;
        match entries.last_mut() {
            Some(Entry::Idle(idle)) if is_idle => idle.with(view.when),
            _ if is_full => break,
            _ if is_idle => entries.push(Entry::Idle(IdleRuns::of(view.when))),
            _ => entries.push(Entry::Run(view)),
        }
    }
    RunsView { entries }
}

impl IdleRuns {
    fn of(when: When) -> Self {
        Self {
            runs: 1,
            first: when.clone(),
            last: when,
        }
    }

    /// One before them.
    fn with(&mut self, when: When) {
        self.runs += 1;
        self.first = when;
    }

    /// How many they are.
    pub(in crate::service::page) fn count(&self) -> String {
        words::counted(self.runs, "run")
    }
}

fn view(run: &PastRun, inbox: Option<&str>, now: DateTime<Utc>) -> RunView {
    let record = &run.record;
    let ours: Vec<&(Option<String>, RecordedStep)> = run
        .steps
        .iter()
        .filter(|(name, _)| inbox.is_none_or(|wanted| name.as_deref() == Some(wanted)))
        .collect();
    let of = |outcome: &str| ours.iter().filter(|(_, step)| step.outcome == outcome).count();
    let counts = [
        (of("done"), "done"),
        (of("failed"), "failed"),
        (of("skipped"), "left out"),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    RunView {
        id: record.id.to_string(),
        database: run.database.clone(),
        when: words::when(record.started_at, now),
        trigger: match record.trigger.as_str() {
            "start" => "at the start",
            "schedule" => "by the schedule",
            "retry" => "tried again",
            "manual" => "by a person",
            other => other,
        }
        .to_owned(),
        class: class(record.outcome.as_deref()),
        outcome: word(record.outcome.as_deref()),
        took: record
            .finished_at
            .map(|at| words::milliseconds((at - record.started_at).num_milliseconds().max(0))),
        summary: if counts.is_empty() {
            "no step".to_owned()
        } else {
            counts.join(", ")
        },
        steps: ours
            .iter()
            .take(MOST_STEPS)
            .map(|(name, step)| step_view(name, step))
            .collect(),
        more: ours.len().saturating_sub(MOST_STEPS),
        has_error: record.has_error,
    }
}

fn step_view(inbox: &Option<String>, step: &RecordedStep) -> StepView {
    let tried = match step.attempts {
        ..=1 => String::new(),
        times => format!(", tried {times} times"),
    };
    let kind = step
        .error_kind
        .as_deref()
        .map(|kind| format!(": {}", kind.replace('_', " ")));
    StepView {
        inbox: inbox.clone(),
        action: step.action.replace('_', " "),
        relation: step.relation.clone(),
        reason: step.reason.clone(),
        class: match step.outcome.as_str() {
            "done" => "pass",
            "failed" => "fail",
            _ => "warn",
        },
        outcome: match step.outcome.as_str() {
            "skipped" => "left out".to_owned(),
            outcome => format!("{outcome}{}{tried}", kind.unwrap_or_default()),
        },
        took: words::milliseconds(step.duration_ms),
    }
}
