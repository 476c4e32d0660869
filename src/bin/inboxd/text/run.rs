//! What `run` prints.

use std::fmt::Write as _;

use inboxd::maintain::{Canary, PassOutcome, StepOutcome};

use super::{findings, operate::paused, runway};
use crate::{
    commands::{Answered, Answers},
    run::Ran,
};

pub(crate) fn outcomes(answers: &Answers<Ran>) -> String {
    let mut text = String::new();
    for answer in &answers.databases {
        let Answered::Done(done) = &answer.result else { continue };
        if answers.databases.len() > 1 {
            let _ = writeln!(text, "database {}", answer.database);
        }
        let _ = writeln!(text, "{}", outcome(&done.outcome).trim_end());
        for canary in &done.canaries {
            let _ = writeln!(text, "{}", self::canary(canary));
        }
    }
    text
}

fn outcome(outcome: &PassOutcome) -> String {
    let mut text = String::new();
    let report = match outcome {
        PassOutcome::Ran(report) => report,
        PassOutcome::Standby => {
            return "The server is a standby: nothing was done, and nothing will be until it is promoted.".to_owned();
        }
        PassOutcome::Paused(pause) => return format!("{} Nothing was done.", paused(pause)),
        PassOutcome::Busy { holder: None } => return "Another run was going; nothing was done.".to_owned(),
        PassOutcome::Busy { holder: Some(holder) } => {
            let who = holder.application_name.as_deref().unwrap_or("unknown");
            let from = holder.client_address.as_deref().unwrap_or("unknown");
            return format!(
                "Another run is going: pid {} ({who:?} from {from}). Nothing was done.",
                holder.pid
            );
        }
    };
    for inbox in &report.inboxes {
        let done = inbox
            .steps
            .iter()
            .filter(|report| report.outcome == StepOutcome::Done)
            .count();
        let total = inbox.steps.len();
        let steps = if total == 0 {
            "nothing to do".to_owned()
        } else {
            format!("{done} of {total} steps done")
        };
        let _ = writeln!(
            text,
            "{}: {steps}; runway {}",
            inbox.inbox,
            runway(inbox.after.runway_seconds)
        );
        for report in &inbox.steps {
            let step = &report.step;
            let outcome = match &report.outcome {
                StepOutcome::Done => format!("done in {} ms", report.duration_ms),
                StepOutcome::Failed { error, .. } => format!("FAILED after {} tries: {error}", report.attempts),
                StepOutcome::Skipped { why } => format!("left out: {why}"),
            };
            let _ = writeln!(
                text,
                "  {:<13} {}  {} ({})",
                step.action.as_str(),
                step.relation,
                outcome,
                step.reason
            );
        }
        findings(&mut text, &inbox.after.findings);
    }
    let _ = writeln!(text, "run {} {}", report.id, report.outcome.as_str());
    if let Some(pause) = &report.paused {
        let _ = writeln!(text, "{} This run was a person's.", paused(pause));
    }
    text
}

fn canary(canary: &Canary) -> String {
    let millis = (canary.duration_seconds * 1000.0).ceil();
    match (&canary.error, &canary.message) {
        (Some(error), _) | (None, Some(error)) => {
            let remedy = canary.remedy.as_deref().unwrap_or_default();
            format!(
                "{}: a claim, tried and rolled back, was not fresh: {error}; {remedy}",
                canary.inbox
            )
        }
        (None, None) => format!(
            "{}: a claim, tried and rolled back, was fresh within {millis} ms",
            canary.inbox
        ),
    }
}
