//! Metrics in the text format of Prometheus, rendered from the status and what the workers counted.
//!
//! Rendered by hand, not through the `metrics` facade: a recorder would go on showing the partitions of an inbox that is
//! gone and the runway of a database that cannot be read. Here a series is there exactly while it is known. Labels are
//! names of the configuration and words of this program, so there are as many series as there are inboxes times some forty.

use std::{collections::BTreeMap, fmt::Write};

use super::{
    counters::{Counts, RUN_BUCKETS},
    health::{Health, HealthStatus, existing_days_ahead, health},
    status::{DatabaseStatus, InboxStatus, PartitionState, PartitionStatus, Status},
    webhook::WebhookCounts,
};
use crate::pure::Severity;

/// What is rendered.
pub(super) struct Source<'a> {
    pub(super) status: &'a Status,
    pub(super) counts: &'a [(&'a str, Counts)],
    pub(super) webhook: Option<WebhookCounts>,
}

/// Everything, in the text format.
pub(super) fn render(source: &Source<'_>) -> String {
    let mut page = Page(String::new());
    of_service(&mut page, source.status);
    of_health(&mut page, &health(source.status));
    of_databases(&mut page, source.status);
    of_inboxes(&mut page, source.status);
    of_runs(&mut page, source.counts);
    of_drops(&mut page, source.counts);
    if let Some(counts) = source.webhook {
        of_webhook(&mut page, counts);
    }
    page.0
}

struct Page(String);

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    /// HELP and TYPE; the samples follow.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"");
            for character in text.chars() {
                match character {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = match value {
            value if value == f64::INFINITY => writeln!(self.0, " +Inf"),
            value => writeln!(self.0, " {value}"),
        };
    }

    /// A gauge with a sample for each inbox that has the value.
    fn of_each_inbox(
        &mut self,
        status: &Status,
        (name, help): (&str, &str),
        value: impl Fn(&DatabaseStatus, &InboxStatus) -> Option<f64>,
    ) {
        self.family(name, "gauge", help);
        for database in &status.databases {
            for inbox in &database.inboxes {
                if let Some(value) = value(database, inbox) {
                    self.sample(
                        name,
                        &[("database", &database.database), ("inbox", &inbox.inbox)],
                        value,
                    );
                }
            }
        }
    }

    /// A gauge with a sample for each database that has the value.
    fn of_each_database(
        &mut self,
        status: &Status,
        (name, help): (&str, &str),
        value: impl Fn(&DatabaseStatus) -> Option<f64>,
    ) {
        self.family(name, "gauge", help);
        for database in &status.databases {
            if let Some(value) = value(database) {
                self.sample(name, &[("database", &database.database)], value);
            }
        }
    }
}

fn of_service(page: &mut Page, status: &Status) {
    page.family(
        "inboxd_build_info",
        "gauge",
        "Always 1; the label says which version runs.",
    );
    page.sample("inboxd_build_info", &[("version", status.version)], 1.0);
    page.family(
        "inboxd_next_run_timestamp_seconds",
        "gauge",
        "When the schedule asks for the next run.",
    );
    if let Some(next) = status.next_runs.first() {
        page.sample("inboxd_next_run_timestamp_seconds", &[], next.timestamp() as f64);
    }
}

fn of_health(page: &mut Page, health: &Health) {
    let value = |status: HealthStatus| match status {
        HealthStatus::Pass => 0.0,
        HealthStatus::Warn => 1.0,
        HealthStatus::Fail => 2.0,
    };
    page.family(
        "inboxd_health",
        "gauge",
        "The worst of all checks: 0 pass, 1 warn, 2 fail.",
    );
    page.sample("inboxd_health", &[], value(health.status));
    let name = "inboxd_health_check";
    page.family(
        name,
        "gauge",
        "One check of one inbox or database: 0 pass, 1 warn, 2 fail.",
    );
    for (check, entries) in &health.checks {
        for entry in entries {
            let inbox = if entry.component_type == "inbox" {
                entry.component_id.as_str()
            } else {
                ""
            };
            let labels = [
                ("check", *check),
                ("database", entry.database.as_str()),
                ("inbox", inbox),
            ];
            page.sample(name, &labels, value(entry.status));
        }
    }
}

fn of_databases(page: &mut Page, status: &Status) {
    let up = ("inboxd_database_up", "Whether the database could be read.");
    page.of_each_database(status, up, |database| {
        Some(f64::from(u8::from(database.error.is_none())))
    });
    let standby = (
        "inboxd_database_standby",
        "Whether the server is a standby, on which nothing is written.",
    );
    page.of_each_database(status, standby, |database| {
        database.error.is_none().then(|| f64::from(u8::from(database.standby)))
    });
    let skew = (
        "inboxd_clock_skew_seconds",
        "How far the database's clock is ahead of this host's.",
    );
    page.of_each_database(status, skew, |database| database.clock_skew_seconds);
    let replicas = ("inboxd_replicas", "Replicas of the deployment that are alive.");
    page.of_each_database(status, replicas, |database| {
        database.error.is_none().then_some(database.replicas.len() as f64)
    });
    let success = (
        "inboxd_last_success_timestamp_seconds",
        "When the last run ended in which every step was done, by the database's clock.",
    );
    page.of_each_database(status, success, |database| {
        Some(database.last_run.as_ref()?.last_success_at?.timestamp() as f64)
    });
    let last = (
        "inboxd_last_run_timestamp_seconds",
        "When the last run began, by the database's clock.",
    );
    page.of_each_database(status, last, |database| {
        Some(database.last_run.as_ref()?.started_at.timestamp() as f64)
    });
}

fn of_inboxes(page: &mut Page, status: &Status) {
    let sum = |inbox: &InboxStatus, of: fn(&PartitionStatus) -> Option<i64>| {
        Some(inbox.partitions.iter().filter_map(of).sum::<i64>() as f64)
    };
    let runway = (
        "inboxd_runway_seconds",
        "Time until the first claim would fail for want of a partition; +Inf when the partitions never end.",
    );
    page.of_each_inbox(status, runway, |_, inbox| {
        Some(inbox.runway_seconds.map_or(f64::INFINITY, |seconds| seconds as f64))
    });
    let ahead = (
        "inboxd_partitions_ahead",
        "Days after today that have a partition, without a gap before them.",
    );
    page.of_each_inbox(status, ahead, |database, inbox| {
        Some(existing_days_ahead(inbox, database.now?).map_or(f64::INFINITY, |days| days as f64))
    });
    let wanted = (
        "inboxd_partitions_ahead_wanted",
        "Days after today that must have a partition.",
    );
    page.of_each_inbox(status, wanted, |_, inbox| Some(inbox.ahead_days as f64));
    let bytes = (
        "inboxd_inbox_size_bytes",
        "Size on disk of all partitions, as far as it is known.",
    );
    page.of_each_inbox(status, bytes, |_, inbox| sum(inbox, |partition| partition.bytes));
    let rows = (
        "inboxd_inbox_estimated_rows",
        "The statistics collector's estimate of all rows.",
    );
    page.of_each_inbox(status, rows, |_, inbox| {
        sum(inbox, |partition| partition.estimated_rows)
    });
    let dead = (
        "inboxd_inbox_dead_rows",
        "The statistics collector's estimate of all dead rows.",
    );
    page.of_each_inbox(status, dead, |_, inbox| sum(inbox, |partition| partition.dead_rows));
    let age = (
        "inboxd_inbox_xid_age",
        "Transactions since the oldest row that is not frozen.",
    );
    page.of_each_inbox(status, age, |_, inbox| {
        inbox
            .partitions
            .iter()
            .filter_map(|partition| partition.xid_age)
            .max()
            .map(f64::from)
    });
    let oldest = (
        "inboxd_oldest_transaction_seconds",
        "Age of the oldest transaction that holds the inbox; 0 when none does, or it may not be seen.",
    );
    page.of_each_inbox(status, oldest, |_, inbox| {
        Some(inbox.oldest_transaction_seconds.unwrap_or(0) as f64)
    });
    canaries(page, status);
    let steps = ("inboxd_planned_steps", "Steps that a run would do now.");
    page.of_each_inbox(status, steps, |_, inbox| Some(inbox.steps.len() as f64));
    partitions(page, status);
}

fn canaries(page: &mut Page, status: &Status) {
    let success = (
        "inboxd_canary_success",
        "Whether the last canary, a claim that is rolled back, came out fresh.",
    );
    page.of_each_inbox(status, success, |_, inbox| {
        Some(f64::from(u8::from(inbox.canary.as_ref()?.severity == Severity::Info)))
    });
    let duration = (
        "inboxd_canary_duration_seconds",
        "How long the last canary's claim took.",
    );
    page.of_each_inbox(status, duration, |_, inbox| {
        Some(inbox.canary.as_ref()?.duration_seconds)
    });
    let at = (
        "inboxd_canary_timestamp_seconds",
        "When the last canary was tried, by this host's clock.",
    );
    page.of_each_inbox(
        status,
        at,
        |_, inbox| Some(inbox.canary.as_ref()?.at.timestamp() as f64),
    );
}

fn partitions(page: &mut Page, status: &Status) {
    let name = "inboxd_partitions";
    page.family(name, "gauge", "Partitions by what is becoming of them.");
    for database in &status.databases {
        for inbox in &database.inboxes {
            for state in PartitionState::ALL {
                let count = inbox
                    .partitions
                    .iter()
                    .filter(|partition| partition.state == state)
                    .count();
                let labels = [
                    ("database", database.database.as_str()),
                    ("inbox", inbox.inbox.as_str()),
                    ("state", state.as_str()),
                ];
                page.sample(name, &labels, count as f64);
            }
        }
    }
}

fn of_runs(page: &mut Page, counts: &[(&str, Counts)]) {
    let name = "inboxd_run_duration_seconds";
    page.family(
        name,
        "histogram",
        "How long runs took, by outcome, since the start of this process.",
    );
    for (database, counts) in counts {
        for (outcome, histogram) in &counts.runs {
            let mut count = 0;
            let bounds = RUN_BUCKETS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
            for (bound, bucket) in bounds.zip(histogram.buckets) {
                count += bucket;
                let labels = [("database", *database), ("outcome", *outcome), ("le", bound.as_str())];
                page.sample(&format!("{name}_bucket"), &labels, count as f64);
            }
            let labels = [("database", *database), ("outcome", *outcome)];
            page.sample(&format!("{name}_sum"), &labels, histogram.sum_seconds);
            page.sample(&format!("{name}_count"), &labels, count as f64);
        }
    }
    let name = "inboxd_step_duration_seconds";
    page.family(
        name,
        "summary",
        "How long steps took, by action and outcome, since the start of this process.",
    );
    for (database, counts) in counts {
        for ((action, outcome), total) in &counts.steps {
            let labels = [("database", *database), ("action", *action), ("outcome", *outcome)];
            page.sample(&format!("{name}_sum"), &labels, total.seconds);
            page.sample(&format!("{name}_count"), &labels, total.count as f64);
        }
    }
    by_kind(
        page,
        "inboxd_step_failures_total",
        "Steps that failed, by kind of error, since the start of this process.",
        counts,
        |counts| &counts.failures,
    );
    by_kind(
        page,
        "inboxd_step_retries_total",
        "Tries of a step after one that failed, by the kind of error that ended that, since the start of this process.",
        counts,
        |counts| &counts.retries,
    );
    let name = "inboxd_run_panics_total";
    page.family(
        name,
        "counter",
        "Runs that panicked since the start of this process; please report them.",
    );
    for (database, counts) in counts {
        page.sample(name, &[("database", database)], counts.panics as f64);
    }
}

/// A counter by kind of error.
fn by_kind(
    page: &mut Page,
    name: &str,
    help: &str,
    counts: &[(&str, Counts)],
    of: fn(&Counts) -> &BTreeMap<&'static str, u64>,
) {
    page.family(name, "counter", help);
    for (database, counts) in counts {
        // A series from the start, so that the first is an increase.
        let none = BTreeMap::from([("lock_timeout", 0)]);
        for (kind, count) in none.into_iter().chain(of(counts).clone()).collect::<BTreeMap<_, _>>() {
            page.sample(name, &[("database", database), ("kind", kind)], count as f64);
        }
    }
}

fn of_webhook(page: &mut Page, counts: WebhookCounts) {
    let name = "inboxd_webhook_changes_total";
    let help =
        "Changes of health by what became of them: sent, failed after all tries, dropped because too many waited.";
    page.family(name, "counter", help);
    for (outcome, count) in [
        ("sent", counts.sent),
        ("failed", counts.failed),
        ("dropped", counts.dropped),
    ] {
        page.sample(name, &[("outcome", outcome)], count as f64);
    }
    let name = "inboxd_webhook_retries_total";
    page.family(name, "counter", "Tries of a post after its first.");
    page.sample(name, &[], counts.retries as f64);
    let name = "inboxd_webhook_waiting";
    page.family(name, "gauge", "Changes of health that wait to be posted.");
    page.sample(name, &[], counts.waiting as f64);
}

fn of_drops(page: &mut Page, counts: &[(&str, Counts)]) {
    let drops = |counts: &[(&str, Counts)], page: &mut Page, name: &str, of: fn(&(u64, u64)) -> u64| {
        for (database, counts) in counts {
            for (inbox, drop) in &counts.drops {
                page.sample(name, &[("database", database), ("inbox", inbox)], of(drop) as f64);
            }
        }
    };
    let name = "inboxd_dropped_partitions_total";
    page.family(name, "counter", "Partitions dropped since the start of this process.");
    drops(counts, page, name, |(count, _)| *count);
    let name = "inboxd_dropped_bytes_total";
    page.family(
        name,
        "counter",
        "Bytes that dropped partitions gave back since the start of this process.",
    );
    drops(counts, page, name, |(_, bytes)| *bytes);
}

#[cfg(test)]
mod tests;
