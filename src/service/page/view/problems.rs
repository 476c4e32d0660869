//! The checks of a health, what is wrong first, and the one sentence that says whether all is well.

use std::collections::{BTreeMap, BTreeSet};

use super::{Piece, class, pieces, word};
use crate::{
    pure::FindingCode,
    service::{
        health::{Health, HealthCheck, HealthStatus},
        page::words,
        status::Status,
    },
};

/// More places with the same trouble are counted, not listed.
const MOST_PLACES: usize = 5;
/// What stops claims comes first; all else follows by name.
const FIRST: [&str; 6] = ["database", "schema_version", "runway", "table", "key", "gaps"];

/// The health of a deployment, or of one inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::service::page) struct Problems {
    pub(in crate::service::page) class: &'static str,
    /// Whether all is well, in one sentence.
    pub(in crate::service::page) sentence: String,
    /// What fails, then what warns.
    pub(in crate::service::page) groups: Vec<Group>,
    /// What is well.
    pub(in crate::service::page) passes: Vec<Pass>,
    pub(in crate::service::page) passed: usize,
}

/// The same trouble, wherever it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::service::page) struct Group {
    pub(in crate::service::page) class: &'static str,
    pub(in crate::service::page) word: &'static str,
    /// The check.
    pub(in crate::service::page) name: String,
    pub(in crate::service::page) remedy: Vec<Piece>,
    pub(in crate::service::page) places: Vec<Place>,
    pub(in crate::service::page) more: usize,
    /// What a person can do about it here.
    pub(in crate::service::page) act: Option<Act>,
}

/// Where it is, and how it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::service::page) struct Place {
    pub(in crate::service::page) component: String,
    /// Whether it is an inbox, which has a page.
    pub(in crate::service::page) is_inbox: bool,
    pub(in crate::service::page) output: Vec<Piece>,
    /// Whether more is due to go than one run may take.
    pub(in crate::service::page) is_over_the_cap: bool,
}

/// What a person can do about a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::service::page) enum Act {
    Run,
    Resume,
    ConfirmClock,
    ConfirmDrops,
}

/// A check that passes, in so many places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::service::page) struct Pass {
    pub(in crate::service::page) name: String,
    pub(in crate::service::page) count: usize,
    /// What there is to say all the same.
    pub(in crate::service::page) outputs: Vec<String>,
}

/// The checks of a health; the status tells how much there is that is well.
pub(in crate::service::page) fn problems(health: &Health, status: &Status) -> Problems {
    let capped = over_the_cap(status);
    let mut groups: Vec<Group> = Vec::new();
    let mut found: BTreeMap<(HealthSort, usize, &str, &str), Vec<&HealthCheck>> = BTreeMap::new();
    let mut passes = Vec::new();
    for (name, checks) in &health.checks {
        let (well, bad): (Vec<_>, Vec<_>) = checks.iter().partition(|check| check.status == HealthStatus::Pass);
        if !well.is_empty() {
            passes.push(pass(name, &well));
        }
        let rank = FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len());
        for check in bad {
            let remedy = check.remedy.as_deref().unwrap_or_default();
            let key = (HealthSort(check.status), rank, *name, remedy);
            found.entry(key).or_default().push(check);
        }
    }
    for ((HealthSort(status), _, name, remedy), checks) in &found {
        groups.push(group(*status, name, remedy, checks, &capped));
    }
    Problems {
        class: class(health.status),
        sentence: sentence(health, status, &groups),
        groups,
        passed: passes.iter().map(|pass: &Pass| pass.count).sum(),
        passes,
    }
}

/// The worst first.
#[derive(PartialEq, Eq)]
struct HealthSort(HealthStatus);

impl Ord for HealthSort {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.cmp(&self.0)
    }
}

impl PartialOrd for HealthSort {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The inboxes in which a person may let a run go beyond its cap.
fn over_the_cap(status: &Status) -> BTreeSet<&str> {
    let inboxes = status.databases.iter().flat_map(|database| &database.inboxes);
    let capped = inboxes.filter(|inbox| {
        let mut codes = inbox.findings.iter().map(|finding| finding.code);
        codes.any(|code| code == FindingCode::BlockedByCap)
    });
    capped.map(|inbox| inbox.inbox.as_str()).collect()
}

fn group(status: HealthStatus, name: &str, remedy: &str, checks: &[&HealthCheck], capped: &BTreeSet<&str>) -> Group {
    let places = checks.iter().take(MOST_PLACES).map(|check| Place {
        component: check.component_id.clone(),
        is_inbox: check.component_type == "inbox",
        output: pieces(check.output.as_deref().unwrap_or("it is not well")),
        is_over_the_cap: capped.contains(check.component_id.as_str()),
    });
    let act = match name {
        "last_success" => Some(Act::Run),
        "schedule" => Some(Act::Resume),
        "clock_skew" => Some(Act::ConfirmClock),
        "blocked_drops" if checks.iter().any(|check| capped.contains(check.component_id.as_str())) => {
            Some(Act::ConfirmDrops)
        }
        _ => None,
    };
    Group {
        class: class(status),
        word: word(status),
        name: name.replace('_', " "),
        remedy: pieces(remedy),
        places: places.collect(),
        more: checks.len().saturating_sub(MOST_PLACES),
        act,
    }
}

fn pass(name: &str, well: &[&HealthCheck]) -> Pass {
    let outputs = well.iter().filter_map(|check| {
        let output = check.output.as_ref()?;
        Some(format!("{}: {output}", check.component_id))
    });
    Pass {
        name: name.replace('_', " "),
        count: well.len(),
        outputs: outputs.take(MOST_PLACES).collect(),
    }
}

/// Whether all is well.
fn sentence(health: &Health, status: &Status, groups: &[Group]) -> String {
    let inboxes = || status.databases.iter().flat_map(|database| &database.inboxes);
    let of_class = |wanted: &str| -> usize {
        let groups = groups.iter().filter(|group| group.class == wanted);
        groups.map(|group| group.places.len() + group.more).sum()
    };
    match health.status {
        HealthStatus::Pass => {
            let count = words::counted_in(inboxes().count(), "inbox", "inboxes");
            let shortest = inboxes().filter_map(|inbox| inbox.runway_seconds).min();
            let time = words::runway(shortest).text;
            match inboxes().count() {
                0 => "All is well, but there is no inbox.".to_owned(),
                1 => format!("All is well: 1 inbox, with partitions for {time} to come."),
                _ => format!("All is well: {count}, each with partitions for at least {time} to come."),
            }
        }
        HealthStatus::Warn => {
            let count = of_class("warn");
            let things = if count == 1 {
                "one thing".to_owned()
            } else {
                format!("{count} things")
            };
            format!("Claims go on, but {things} should be looked at in the next days.")
        }
        HealthStatus::Fail => {
            let worst = groups.first().and_then(|group| group.places.first());
            let what = worst.map_or_else(String::new, |place| {
                let said: String = place.output.iter().map(|piece| piece.text.as_str()).collect();
                let said = said.split("; ").next().unwrap_or_default().to_owned();
                format!("{}: {said}", place.component)
            });
            match of_class("fail") {
                0 | 1 => format!("Act now: {what}."),
                2 => format!("Act now: {what}, and one more check fails."),
                count => format!("Act now: {what}, and {} more checks fail.", count - 1),
            }
        }
    }
}
