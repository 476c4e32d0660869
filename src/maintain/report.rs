//! What a pass did, as values that the log, HTTP and the command line render alike.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::operate::Pause;
use crate::{
    postgres::{ErrorKind, lock::LockHolder},
    pure::{Plan, Step, TableName},
};

/// What set a pass off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The service has started.
    Start,
    /// The schedule.
    Schedule,
    /// The pass before it failed or was partial.
    Retry,
    /// A person.
    Manual,
}

impl Trigger {
    /// The trigger as one word, as it is recorded.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Schedule => "schedule",
            Self::Retry => "retry",
            Self::Manual => "manual",
        }
    }
}

/// How a pass ended.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "result")]
pub enum PassOutcome {
    /// It ran.
    Ran(RunReport),
    /// Another pass has the run lock.
    Busy {
        /// Who has it; none when it was given back meanwhile.
        holder: Option<LockHolder>,
    },
    /// The server is a standby; nothing is written there.
    Standby,
    /// The schedule is paused, and it was the schedule that set this pass off.
    Paused(Pause),
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// Every step is done.
    Done,
    /// Some step failed or was left out; the next run heals it.
    Partial,
}

impl RunOutcome {
    /// The outcome as one word, as it is recorded.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Partial => "partial",
        }
    }
}

/// One run over the inboxes of a database.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct RunReport {
    /// Its identity. The runs that one request set off in several databases share it.
    pub id: Uuid,
    /// What set it off.
    pub trigger: Trigger,
    /// When it began, by the database's clock.
    pub started_at: DateTime<Utc>,
    /// When it ended, by the database's clock.
    pub finished_at: DateTime<Utc>,
    /// How it ended.
    pub outcome: RunOutcome,
    /// What it did to each inbox.
    pub inboxes: Vec<InboxReport>,
    /// The pause of the schedule, which a run that a person sets off does not heed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
}

impl RunReport {
    /// All steps, of all inboxes.
    pub fn steps(&self) -> impl Iterator<Item = &StepReport> {
        self.inboxes.iter().flat_map(|inbox| &inbox.steps)
    }
}

/// What a run did to one inbox.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct InboxReport {
    /// The inbox's name.
    pub inbox: String,
    /// Its steps with their outcomes, in the order in which they were done.
    pub steps: Vec<StepReport>,
    /// What a run would still do, and what was noticed, after the steps.
    pub after: Plan,
}

/// One step with its outcome.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct StepReport {
    /// The step.
    #[serde(flatten)]
    pub step: Step,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: StepOutcome,
    /// How often it was tried.
    pub attempts: i32,
    /// What ended the tries before the last, for the metrics.
    #[serde(skip)]
    pub retried_for: Vec<ErrorKind>,
    /// How long it took, in milliseconds.
    pub duration_ms: i64,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum StepOutcome {
    /// It is done.
    Done,
    /// It failed; the next run tries again.
    Failed {
        /// What kind of error it was.
        kind: ErrorKind,
        /// What the database said.
        error: String,
    },
    /// It was left out.
    Skipped {
        /// Why.
        why: String,
    },
}

/// What a run would do to one inbox now.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct PlannedInbox {
    /// The inbox's name.
    pub inbox: String,
    /// Its table.
    pub table: TableName,
    /// The plan.
    #[serde(flatten)]
    pub plan: Plan,
}
