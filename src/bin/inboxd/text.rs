//! Text for people. The values are the library's; nothing is decided here.

use std::{collections::BTreeMap, fmt::Write as _};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use inboxd::{
    Finding, Happening, Plan, Severity,
    maintain::{InitReport, PassOutcome, PlannedInbox, StepOutcome, Takeover},
    postgres::DbError,
    service::{DatabaseStatus, InboxStatus, PartitionState, Status},
    show_duration,
};

use crate::{
    commands::{Answered, Answers, Inboxes, Simulated},
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
        if cause.is::<DbError>() {
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

pub(crate) fn outcomes(answers: &Answers<PassOutcome>) -> String {
    let mut text = String::new();
    for answer in &answers.databases {
        let Answered::Done(done) = &answer.result else { continue };
        if answers.databases.len() > 1 {
            let _ = writeln!(text, "database {}", answer.database);
        }
        let _ = writeln!(text, "{}", outcome(done).trim_end());
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
    text
}

pub(crate) fn status(status: &Status) -> String {
    let mut text = format!("{}: deployment {:?}\n", state(status.severity), status.deployment);
    let next: Vec<String> = status.next_runs.iter().copied().map(time).collect();
    let _ = writeln!(text, "next runs, if `inboxd serve` is up: {}", next.join(", "));
    for database in &status.databases {
        status_of_database(&mut text, database);
    }
    text
}

fn status_of_database(text: &mut String, database: &DatabaseStatus) {
    if let Some(error) = &database.error {
        let _ = writeln!(text, "\nFAIL: database {}: {error}", database.database);
        return;
    }
    let standby = if database.standby { ", a standby" } else { "" };
    let now = database
        .now
        .map_or_else(String::new, |now| format!(", its time {}", time(now)));
    let _ = writeln!(
        text,
        "\n{}: database {}{now}{standby}",
        state(database.severity),
        database.database
    );
    match (&database.last_run, database.now) {
        (Some(run), Some(now)) => {
            let ago = show_duration(now - run.started_at);
            let outcome = run.outcome.as_deref().unwrap_or("not finished");
            let _ = writeln!(
                text,
                "last run: {ago} ago ({outcome}; {} steps done, {} failed)",
                run.steps_done, run.steps_failed
            );
        }
        _ => text.push_str("last run: none\n"),
    }
    for replica in &database.replicas {
        let (host, process, version) = (&replica.host, replica.process_id, &replica.version);
        let _ = writeln!(
            text,
            "replica: {host}, process {process}, version {version}, heartbeat {}",
            time(replica.heartbeat_at)
        );
    }
    checks(text, database);
    for inbox in &database.inboxes {
        text.push('\n');
        status_of_inbox(text, inbox);
    }
}

fn checks(text: &mut String, database: &DatabaseStatus) {
    for check in &database.checks {
        let _ = writeln!(
            text,
            "  {}  {}\n        -> {}",
            severity(check.severity),
            check.message,
            check.remedy
        );
    }
}

fn status_of_inbox(text: &mut String, inbox: &InboxStatus) {
    let _ = writeln!(
        text,
        "{}: {} (routing {}, {} consumer{}, retention {}, {} days ahead)",
        state(inbox.severity),
        inbox.inbox,
        inbox.routing,
        inbox.consumers,
        if inbox.consumers == inboxd::Consumers::Many {
            "s"
        } else {
            ""
        },
        inbox.retention,
        inbox.ahead_days
    );
    let _ = writeln!(text, "  runway {}", runway(inbox.runway_seconds));
    findings(text, &inbox.findings);
    for partition in &inbox.partitions {
        let state = match partition.state {
            PartitionState::Ahead => "ahead",
            PartitionState::Today => "today",
            PartitionState::Live => "live",
            PartitionState::Expired => "expired",
            PartitionState::PendingDetach => "pending",
            PartitionState::Detached => "detached",
            PartitionState::Foreign => "foreign",
        };
        let size = partition.bytes.map_or_else(|| "locked".to_owned(), bytes);
        let rows = partition
            .estimated_rows
            .map_or_else(String::new, |rows| format!("~{rows} rows"));
        let until = match (partition.dropped_after, partition.expires_at) {
            (Some(at), _) => format!("dropped after {}", time(at)),
            (None, Some(at)) => format!("expires {}", time(at)),
            (None, None) => "never expires".to_owned(),
        };
        let held = partition
            .held_since
            .map_or_else(String::new, |since| format!(", on hold since {}", time(since)));
        let _ = writeln!(
            text,
            "  {:<9} {:<24} {size:>10} {rows:>14}  {until}{held}",
            state, partition.relation
        );
    }
    if !inbox.steps.is_empty() {
        let _ = writeln!(
            text,
            "  the next run has {} steps; see `inboxd plan`",
            inbox.steps.len()
        );
    }
}

pub(crate) fn check(status: &Status) -> String {
    let mut text = format!(
        "{}\n",
        match status.severity {
            Severity::Info => "all is well",
            Severity::Warn => "warning: a person should look",
            Severity::Fail => "fail: claims fail, or soon will, or could double, or it cannot be told",
        }
    );
    for database in &status.databases {
        if status.databases.len() > 1 {
            let _ = writeln!(text, "{}: database {}", state(database.severity), database.database);
        }
        if let Some(error) = &database.error {
            let _ = writeln!(text, "fail: {error}");
        }
        checks(&mut text, database);
        for inbox in &database.inboxes {
            let _ = writeln!(
                text,
                "{}: {}, runway {}",
                state(inbox.severity),
                inbox.inbox,
                runway(inbox.runway_seconds)
            );
            findings(&mut text, &inbox.findings);
        }
    }
    text
}

pub(crate) fn greeting(greeting: &Greeting) -> String {
    format!(
        "\nA private PostgreSQL is running; its data is in {}.\n\n\
         Claim a message, twice: the first time it is fresh (t), then a duplicate (f).\n\n  {}\n\n\
         Look at it:\n\n  curl {}\n  DATABASE_URL='{}' inboxd status\n\n\
         Ctrl-C ends both; the data stays.\n",
        greeting.data_dir.display(),
        greeting.first_claim,
        greeting.status,
        greeting.url
    )
}
