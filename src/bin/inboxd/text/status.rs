//! What `status` and `check` print.

use std::fmt::Write as _;

use inboxd::{
    Severity,
    service::{DatabaseStatus, InboxStatus, PartitionState, Status},
    show_duration,
};

use super::{bytes, findings, runway, severity, state, time};

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
