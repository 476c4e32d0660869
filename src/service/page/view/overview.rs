//! All inboxes at a glance, the worst first.

use std::cmp::Reverse;

use super::{DatabaseView, Planned, Problems, class, database, planned, problems, word};
use crate::service::{
    health::{self, Health, HealthStatus},
    page::{
        timeline::{Strip, Timeline, timeline},
        words::{self, Exact, When},
    },
    status::{DatabaseStatus, InboxStatus, Status},
};

/// So many inboxes are shown with all their days; more with a strip each.
const MOST_IN_FULL: usize = 3;
/// With more there is a way to find one.
const MANY: usize = 12;
/// What a run would do is told for so many inboxes; the others have it on their own pages.
const MOST_PLANNED: usize = 20;

/// All inboxes of a deployment.
#[derive(Debug)]
pub(in crate::service::page) struct Overview {
    pub(in crate::service::page) problems: Problems,
    pub(in crate::service::page) databases: Vec<DatabaseView>,
    pub(in crate::service::page) next_run: Option<When>,
    pub(in crate::service::page) inboxes: Vec<InboxRow>,
    /// How many there are in all.
    pub(in crate::service::page) count: usize,
    pub(in crate::service::page) is_searchable: bool,
    /// What was searched for.
    pub(in crate::service::page) find: String,
    /// Whether there is more than one database.
    pub(in crate::service::page) has_databases: bool,
    pub(in crate::service::page) planned: Vec<PlannedFor>,
    /// How many more inboxes a run would do something to.
    pub(in crate::service::page) planned_more: usize,
    pub(in crate::service::page) planned_summary: String,
}

/// One inbox in a line, or with all its days.
#[derive(Debug)]
pub(in crate::service::page) struct InboxRow {
    pub(in crate::service::page) name: String,
    pub(in crate::service::page) database: String,
    pub(in crate::service::page) class: &'static str,
    pub(in crate::service::page) word: &'static str,
    /// The first thing that is wrong with it.
    pub(in crate::service::page) trouble: Option<String>,
    pub(in crate::service::page) policy: String,
    pub(in crate::service::page) timeline: Option<Timeline>,
    pub(in crate::service::page) strip: Strip,
    pub(in crate::service::page) runway: Exact,
    pub(in crate::service::page) runway_class: &'static str,
    pub(in crate::service::page) size: Exact,
    pub(in crate::service::page) rows: Exact,
    pub(in crate::service::page) planned: String,
}

/// What a run would do to an inbox.
#[derive(Debug)]
pub(in crate::service::page) struct PlannedFor {
    pub(in crate::service::page) inbox: String,
    pub(in crate::service::page) planned: Planned,
}

/// Puts a status into the words of the page; `find` leaves out the inboxes whose names do not hold it.
pub(in crate::service::page) fn overview(status: &Status, find: &str) -> Overview {
    let health = health::health(status);
    let mut inboxes: Vec<(&DatabaseStatus, &InboxStatus, HealthStatus)> = status
        .databases
        .iter()
        .flat_map(|database| database.inboxes.iter().map(move |inbox| (database, inbox)))
        .map(|(database, inbox)| (database, inbox, worst_of(&health, &inbox.inbox)))
        .collect();
    inboxes.sort_by_key(|(_, inbox, worst)| {
        let runway = inbox.runway_seconds.unwrap_or(i64::MAX);
        (Reverse(*worst), runway, inbox.inbox.clone())
    });
    let count = inboxes.len();
    let wanted = find.trim().to_lowercase();
    inboxes.retain(|(_, inbox, _)| inbox.inbox.to_lowercase().contains(&wanted));
    let in_full = count <= MOST_IN_FULL;
    let rows = inboxes
        .iter()
        .map(|(database, inbox, worst)| row(database, inbox, *worst, &health, in_full));
    let busy: Vec<_> = inboxes.iter().filter(|(_, inbox, _)| !inbox.steps.is_empty()).collect();
    let steps: usize = busy.iter().map(|(_, inbox, _)| inbox.steps.len()).sum();
    Overview {
        problems: problems(&health, status),
        databases: status.databases.iter().map(database).collect(),
        next_run: next_run(status),
        inboxes: rows.collect(),
        count,
        is_searchable: count > MANY,
        find: find.to_owned(),
        has_databases: status.databases.len() > 1,
        planned_more: busy.len().saturating_sub(MOST_PLANNED),
        planned_summary: match busy.len() {
            0 => "nothing to do".to_owned(),
            1 => words::counted(steps, "step"),
            inboxes => format!("{} in {inboxes} inboxes", words::counted(steps, "step")),
        },
        planned: busy
            .iter()
            .take(MOST_PLANNED)
            .map(|(_, inbox, _)| PlannedFor {
                inbox: inbox.inbox.clone(),
                planned: planned(&inbox.steps),
            })
            .collect(),
    }
}

/// The next run, seen from the host's clock, which the schedule goes by.
pub(super) fn next_run(status: &Status) -> Option<When> {
    let next = status.next_runs.first()?;
    // The databases' clocks are the only ones in a status; they differ from the host's by seconds.
    let now = status.databases.iter().find_map(|database| database.now);
    Some(words::when(*next, now.unwrap_or(*next)))
}

fn worst_of(health: &Health, inbox: &str) -> HealthStatus {
    let checks = health.checks.values().flatten();
    let ours = checks.filter(|check| check.component_type == "inbox" && check.component_id == inbox);
    ours.map(|check| check.status).max().unwrap_or(HealthStatus::Pass)
}

fn row(
    database: &DatabaseStatus,
    inbox: &InboxStatus,
    worst: HealthStatus,
    health: &Health,
    in_full: bool,
) -> InboxRow {
    // What can be read has a clock.
    let now = database.now.unwrap_or_default();
    let timeline = timeline(inbox, now);
    let trouble = health
        .checks
        .values()
        .flatten()
        .filter(|check| check.component_id == inbox.inbox && check.status > HealthStatus::Pass)
        .max_by_key(|check| check.status);
    InboxRow {
        name: inbox.inbox.clone(),
        database: database.database.clone(),
        class: class(worst),
        word: word(worst),
        trouble: trouble.and_then(|check| check.output.clone()),
        policy: policy(inbox),
        strip: timeline.strip(now),
        timeline: in_full.then_some(timeline),
        runway: words::runway(inbox.runway_seconds),
        runway_class: runway_class(health, &inbox.inbox),
        size: size(inbox),
        rows: rows(inbox),
        planned: planned(&inbox.steps).summary,
    }
}

/// How an inbox is kept, in a line.
pub(super) fn policy(inbox: &InboxStatus) -> String {
    let consumers = match inbox.consumers {
        crate::pure::Consumers::One => "one consumer",
        crate::pure::Consumers::Many => "many consumers",
    };
    format!(
        "remembers {}, {} ahead, by {}, {consumers}",
        inbox.retention,
        words::counted(usize::try_from(inbox.ahead_days).unwrap_or(0), "day"),
        inbox.routing
    )
}

pub(super) fn runway_class(health: &Health, inbox: &str) -> &'static str {
    let checks = health.checks.get("runway").into_iter().flatten();
    let ours = checks.filter(|check| check.component_id == inbox);
    class(ours.map(|check| check.status).max().unwrap_or(HealthStatus::Pass))
}

pub(super) fn size(inbox: &InboxStatus) -> Exact {
    words::bytes(inbox.partitions.iter().filter_map(|partition| partition.bytes).sum())
}

pub(super) fn rows(inbox: &InboxStatus) -> Exact {
    let rows = inbox.partitions.iter().filter_map(|partition| partition.estimated_rows);
    words::about(rows.sum(), "rows")
}
