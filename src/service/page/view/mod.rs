//! What the page shows, as plain values: made of a status and its health, rendered by the templates. Pure.

mod inbox;
mod overview;
mod problems;
mod runs;

use chrono::{DateTime, Utc};

pub(super) use self::{
    inbox::{InboxView, inbox},
    overview::{Overview, overview},
    problems::{Act, Problems, problems},
    runs::{Entry, PastRun, RunsView, runs},
};
use super::words::{self, When};
use crate::{
    pure::Step,
    service::{health::HealthStatus, status::DatabaseStatus},
};

/// More steps than these are counted, not listed.
const MOST_STEPS: usize = 60;

/// A class of the style sheet for how well something is.
pub(super) fn class(status: HealthStatus) -> &'static str {
    match status {
        HealthStatus::Pass => "pass",
        HealthStatus::Warn => "warn",
        HealthStatus::Fail => "fail",
    }
}

/// The same as a word.
pub(super) fn word(status: HealthStatus) -> &'static str {
    match status {
        HealthStatus::Pass => "ok",
        HealthStatus::Warn => "warning",
        HealthStatus::Fail => "fails",
    }
}

/// A piece of a sentence; what stood between backticks is code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) is_code: bool,
    pub(super) text: String,
}

/// A sentence in pieces.
pub(super) fn pieces(text: &str) -> Vec<Piece> {
    text.split('`')
        .enumerate()
        .filter(|(_, text)| !text.is_empty())
        .map(|(index, text)| Piece {
            is_code: index % 2 == 1,
            text: text.to_owned(),
        })
        .collect()
}

/// One step that a run would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedStep {
    pub(super) action: String,
    pub(super) relation: String,
    pub(super) reason: String,
    /// Each lock with what it means for others.
    pub(super) locks: Vec<String>,
}

/// What a run would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Planned {
    pub(super) steps: Vec<PlannedStep>,
    /// How many more there are.
    pub(super) more: usize,
    pub(super) summary: String,
}

pub(super) fn planned(steps: &[Step]) -> Planned {
    let told = steps.iter().take(MOST_STEPS).map(|step| PlannedStep {
        action: step.action.as_str().replace('_', " "),
        relation: step.relation.to_string(),
        reason: step.reason.clone(),
        locks: step
            .locks
            .iter()
            .map(|lock| format!("{} on {}: {}", lock.mode, lock.on, lock.effect))
            .collect(),
    });
    Planned {
        steps: told.collect(),
        more: steps.len().saturating_sub(MOST_STEPS),
        summary: match steps.len() {
            0 => "nothing to do".to_owned(),
            count => words::counted(count, "step"),
        },
    }
}

/// One database in a few lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DatabaseView {
    pub(super) name: String,
    /// Why it cannot be read.
    pub(super) error: Option<String>,
    pub(super) is_standby: bool,
    pub(super) clock: Option<String>,
    pub(super) last_run: Option<LastRunView>,
    /// Hosts and processes.
    pub(super) replicas: Vec<String>,
    pub(super) paused: Option<PausedView>,
}

/// The last run in a few words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastRunView {
    pub(super) when: When,
    pub(super) class: &'static str,
    pub(super) outcome: String,
    pub(super) steps: String,
}

/// A schedule that is paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PausedView {
    pub(super) since: When,
    pub(super) by: String,
    pub(super) reason: String,
}

pub(super) fn database(status: &DatabaseStatus) -> DatabaseView {
    let now = status.now.unwrap_or(DateTime::<Utc>::UNIX_EPOCH);
    DatabaseView {
        name: status.database.clone(),
        error: status.error.clone(),
        is_standby: status.standby,
        clock: status.now.map(words::exact),
        last_run: status.last_run.as_ref().map(|run| LastRunView {
            when: words::when(run.started_at, now),
            class: runs::class(run.outcome.as_deref()),
            outcome: runs::word(run.outcome.as_deref()).to_owned(),
            steps: match (run.steps_done, run.steps_not_done) {
                (0, 0) => "nothing to do".to_owned(),
                (done, 0) => format!("{done} done"),
                (done, not_done) => format!("{done} done, {not_done} not"),
            },
        }),
        replicas: status
            .replicas
            .iter()
            .map(|replica| {
                format!(
                    "{}, process {}, version {}",
                    replica.host, replica.process_id, replica.version
                )
            })
            .collect(),
        paused: status.paused.as_ref().map(|pause| PausedView {
            since: words::when(pause.paused_at, now),
            by: pause.paused_by.clone(),
            reason: pause.reason.clone(),
        }),
    }
}

#[cfg(test)]
mod tests;
