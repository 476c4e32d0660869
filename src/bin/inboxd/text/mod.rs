//! Text for people. The values are the library's; nothing is decided here.

pub(crate) mod operate;
mod run;
mod status;

use std::{collections::BTreeMap, fmt::Write as _};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use inboxd::{
    Finding, Happening, Plan, Severity,
    maintain::{InitReport, PlannedInbox, Takeover, operate::OperateError},
    postgres::DbError,
    show_duration,
};

pub(crate) use self::{
    run::outcomes,
    status::{check, status},
};
use crate::{
    commands::{Answers, Inboxes, Simulated},
    embedded::Greeting,
};

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warn => "WARN",
        Severity::Fail => "FAIL",
    }
}

/// The state of a whole, in one word.
fn state(worst: Severity) -> &'static str {
    match worst {
        Severity::Info => "ok",
        Severity::Warn | Severity::Fail => severity(worst),
    }
}

fn runway(seconds: Option<i64>) -> String {
    match seconds {
        None => "the partitions never end".to_owned(),
        Some(0) => "none: claims fail now".to_owned(),
        // To the minute: nobody plans by seconds here.
        Some(seconds) => show_duration(TimeDelta::seconds(seconds - seconds % 60)),
    }
}

fn bytes(bytes: i64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1024.0 {
            return if unit == "B" {
                format!("{bytes} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TB")
}

fn findings(text: &mut String, findings: &[Finding]) {
    for finding in findings {
        let on = finding
            .relation
            .as_deref()
            .map(|relation| format!("{relation}: "))
            .unwrap_or_default();
        let _ = writeln!(text, "  {}  {on}{}", severity(finding.severity), finding.message);
        let _ = writeln!(text, "        -> {}", finding.remedy);
    }
}

/// An error with its causes, each told once: some types tell their source themselves.
pub(crate) fn error(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            let colon = if text.is_empty() { "" } else { ": " };
            let _ = write!(text, "{colon}{cause_text}");
        }
        // It tells the database's sentence; what follows is the driver's wording of the same.
        if cause.is::<DbError>() || cause.is::<OperateError>() {
            break;
        }
    }
    text
}

pub(crate) fn init(answers: &Answers<InitReport>) -> String {
    let mut text = String::new();
    for inbox in answers.done().flat_map(|report| &report.inboxes) {
        let table = if inbox.table_made {
            "table made"
        } else {
            "table was there"
        };
        let functions = match (inbox.functions_made, inbox.functions_had.is_empty()) {
            (false, _) => "claim functions up to date".to_owned(),
            (true, true) => "claim functions made".to_owned(),
            (true, false) => format!("claim functions replaced ({})", inbox.functions_had.join("; ")),
        };
        let _ = writeln!(text, "{}: {table}, {functions}", inbox.inbox);
    }
    if text.is_empty() {
        return text;
    }
    text.push_str("Next: `inboxd run` makes the partitions once, `inboxd serve` keeps them.\n");
    text
}

pub(crate) fn plan(answers: &Answers<Inboxes<PlannedInbox>>) -> String {
    let mut text = String::new();
    for PlannedInbox { inbox, plan, .. } in answers.done().flat_map(|planned| &planned.inboxes) {
        let _ = writeln!(text, "{inbox}: {}", what_is_planned(plan));
        for step in &plan.steps {
            let _ = writeln!(
                text,
                "  {:<13} {}  {}",
                step.action.as_str(),
                step.relation,
                step.reason
            );
            for lock in &step.locks {
                let _ = writeln!(text, "                locks {} {}: {}", lock.on, lock.mode, lock.effect);
            }
        }
        findings(&mut text, &plan.findings);
    }
    text
}

fn what_is_planned(plan: &Plan) -> String {
    let steps = match plan.steps.len() {
        0 => "nothing to do".to_owned(),
        1 => "1 step".to_owned(),
        count => format!("{count} steps"),
    };
    format!("{steps}; runway {}", runway(plan.runway_seconds))
}

pub(crate) fn takeover(answers: &Answers<Inboxes<Takeover>>) -> String {
    let mut text = String::new();
    for Takeover {
        inbox,
        deployment_before,
        is_taken,
    } in answers.done().flat_map(|taken| &taken.inboxes)
    {
        let what = if *is_taken {
            format!("taken over from deployment {deployment_before:?}")
        } else {
            "was ours already".to_owned()
        };
        let _ = writeln!(text, "{inbox}: {what}");
    }
    text
}

pub(crate) fn simulation(answers: &Answers<Inboxes<Simulated>>) -> String {
    let mut text = String::new();
    for Simulated { inbox, events } in answers.done().flat_map(|simulated| &simulated.inboxes) {
        let _ = writeln!(text, "{inbox}");
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for event in events {
            let what = match &event.what {
                Happening::Step(step) => {
                    *counts.entry(step.action.as_str()).or_default() += 1;
                    format!("{:<13} {}  {}", step.action.as_str(), step.relation, step.reason)
                }
                Happening::ClaimsFail => "CLAIMS FAIL for want of a partition".to_owned(),
                Happening::ClaimsGoOn => "claims go on".to_owned(),
                Happening::Severity { severity, because } => {
                    format!(
                        "{}: {}",
                        state(*severity),
                        because.as_deref().unwrap_or("all is well again")
                    )
                }
            };
            let clock = if event.at == event.database_time {
                String::new()
            } else {
                format!(" (database: {})", time(event.database_time))
            };
            let _ = writeln!(text, "  {}{clock}  {what}", time(event.at));
        }
        let counts: Vec<String> = counts
            .iter()
            .map(|(action, count)| format!("{count} {action}"))
            .collect();
        let counts = if counts.is_empty() {
            "no step".to_owned()
        } else {
            counts.join(", ")
        };
        let _ = writeln!(text, "  in all: {counts}");
    }
    text
}

pub(crate) fn greeting(greeting: &Greeting) -> String {
    format!(
        "\nA private PostgreSQL is running; its data is in {}.\n\n\
         Claim a message, twice: the first time it is fresh (t), then a duplicate (f).\n\n  {}\n\n\
         Look at it:\n\n  curl {}\n  DATABASE_URL='{}' {} status\n\n\
         Ctrl-C ends both; the data stays.\n",
        greeting.data_dir.display(),
        greeting.first_claim,
        greeting.status,
        greeting.url,
        ourselves()
    )
}

/// How this program is called: by its path where the shell would not find it, as after `deploy/quickstart`.
fn ourselves() -> String {
    let name = "inboxd".to_owned();
    let Ok(program) = std::env::current_exe() else {
        return name;
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_found = std::env::split_paths(&path).any(|folder| program.parent() == Some(folder.as_path()));
    if is_found { name } else { program.display().to_string() }
}
