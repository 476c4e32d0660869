//! The days of an inbox as a picture: a cell for each, from the oldest that is still on disk to the last one ahead. Pure.

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike, Utc, Weekday};

use super::words::{self, Exact};
use crate::{
    pure::{Day, FindingCode, Severity},
    service::status::{InboxStatus, PartitionState, PartitionStatus},
};

/// How many steps a bar has; each is a class of the style sheet, which may hold no numbers of ours.
pub(super) const BAR_STEPS: i64 = 20;
/// A journal that is smaller than this in all is not drawn as if it were full.
const SMALLEST_SCALE_BYTES: i64 = 1024 * 1024;
/// More days than these are cut from the old end: a retention of years is no picture.
const MOST_CELLS: i64 = 400;
/// A strip is a few centimetres: these days before today, and after.
const STRIP_BEFORE: i64 = 30;
const STRIP_AFTER: i64 = 14;

/// What a day is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// There is no partition, and there is to be one.
    Gap,
    /// There never was one, so nothing is missing.
    NeverMade,
    /// A partition.
    Partition(State),
    /// Held by a partition of several days.
    Wide,
}

/// The state of a partition, in the order of its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Ahead,
    Today,
    Live,
    Expired,
    PendingDetach,
    Detached,
    Foreign,
}

impl From<PartitionState> for State {
    fn from(state: PartitionState) -> Self {
        match state {
            PartitionState::Ahead => Self::Ahead,
            PartitionState::Today => Self::Today,
            PartitionState::Live => Self::Live,
            PartitionState::Expired => Self::Expired,
            PartitionState::PendingDetach => Self::PendingDetach,
            PartitionState::Detached => Self::Detached,
            PartitionState::Foreign => Self::Foreign,
        }
    }
}

impl Kind {
    /// The class of the style sheet.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::NeverMade => "never",
            Self::Wide | Self::Partition(State::Foreign) => "wide",
            Self::Partition(State::Ahead) => "ahead",
            Self::Partition(State::Today) => "today",
            Self::Partition(State::Live) => "live",
            Self::Partition(State::Expired) => "expired",
            Self::Partition(State::PendingDetach) => "pending",
            Self::Partition(State::Detached) => "detached",
        }
    }

    /// The same for people.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Gap => "missing",
            Self::NeverMade => "never made",
            Self::Wide => "several days",
            Self::Partition(State::Foreign) => "not a day's",
            Self::Partition(State::PendingDetach) => "leaving",
            other => other.class(),
        }
    }
}

/// One day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) day: Day,
    pub(super) kind: Kind,
    /// `Tue`; empty where the month takes its place.
    pub(super) weekday: &'static str,
    /// `1`; the month too where it begins, and on the first cell.
    pub(super) date: String,
    /// From 0 to [`BAR_STEPS`].
    pub(super) bar: i64,
    pub(super) size: Option<Exact>,
    pub(super) is_held: bool,
    /// What becomes of it, in a few words.
    pub(super) note: String,
    /// All of it in a sentence.
    pub(super) title: String,
}

/// The days in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timeline {
    pub(super) cells: Vec<Cell>,
    /// How many older days are left out.
    pub(super) left_out: i64,
    /// How close the cells stand: `roomy`, `dense` or `tiny`.
    pub(super) density: &'static str,
    /// `7 live, 1 today, 7 ahead`.
    pub(super) summary: String,
}

/// The days of an inbox, as its database's clock has them.
pub(super) fn timeline(inbox: &InboxStatus, now: DateTime<Utc>) -> Timeline {
    let today = Day::containing(now);
    let by_day = by_day(inbox);
    let oldest = [by_day.keys().next().copied(), first_gap(inbox), Some(today)];
    let oldest = oldest.into_iter().flatten().min().unwrap_or(today);
    let newest = by_day.keys().next_back().copied().unwrap_or(today);
    let newest = newest.max(today.plus(inbox.ahead_days));
    let days = oldest.days_until(newest) + 1;
    let left_out = (days - MOST_CELLS).max(0).min(oldest.days_until(today).max(0));
    let first = oldest.plus(left_out);
    let largest = inbox.partitions.iter().filter_map(|partition| partition.bytes).max();
    let scale = largest.unwrap_or(0).max(SMALLEST_SCALE_BYTES);
    let count = (days - left_out).min(MOST_CELLS);
    let cells: Vec<Cell> = (0..count)
        .map(|offset| {
            let day = first.plus(offset);
            let partition = by_day.get(&day).copied();
            cell(inbox, day, partition, scale, offset == 0, now)
        })
        .collect();
    let density = match cells.len() {
        0..=34 => "roomy",
        35..=120 => "dense",
        _ => "tiny",
    };
    let summary = summary(&cells);
    Timeline {
        cells,
        left_out,
        density,
        summary,
    }
}

/// What holds each day: what is attached comes before what is only still there.
fn by_day(inbox: &InboxStatus) -> BTreeMap<Day, &PartitionStatus> {
    let mut by_day: BTreeMap<Day, &PartitionStatus> = BTreeMap::new();
    for partition in &inbox.partitions {
        let Some(day) = partition.day else { continue };
        let standing = by_day.entry(day).or_insert(partition);
        if standing.state == PartitionState::Detached {
            *standing = partition;
        }
    }
    by_day
}

/// The first day that is known to have lost its partition.
fn first_gap(inbox: &InboxStatus) -> Option<Day> {
    let gaps = inbox.findings.iter().filter(|finding| finding.code == FindingCode::Gap);
    gaps.filter(|finding| finding.severity > Severity::Info)
        .filter_map(|finding| finding.day)
        .min()
}

/// What a day without a partition of its own is. A finding names the first of several days.
fn without_partition(inbox: &InboxStatus, day: Day, today: Day) -> Kind {
    let mut spans = inbox.partitions.iter().filter(|partition| partition.day.is_none());
    if spans.any(|partition| partition.bounds.is_some_and(|span| span.covers(day))) {
        return Kind::Wide;
    }
    if day >= today {
        return Kind::Gap;
    }
    let told = inbox
        .findings
        .iter()
        .filter(|finding| finding.code == FindingCode::Gap && finding.day.is_some_and(|first| first <= day))
        .max_by_key(|finding| finding.day);
    match told {
        Some(finding) if finding.severity > Severity::Info => Kind::Gap,
        _ => Kind::NeverMade,
    }
}

fn cell(
    inbox: &InboxStatus,
    day: Day,
    partition: Option<&PartitionStatus>,
    scale: i64,
    is_first: bool,
    now: DateTime<Utc>,
) -> Cell {
    let kind = partition.map_or_else(
        || without_partition(inbox, day, Day::containing(now)),
        |partition| Kind::Partition(partition.state.into()),
    );
    let date = chrono::NaiveDate::from(day);
    let size = partition.and_then(|partition| partition.bytes);
    let bar = size.map_or(0, |bytes| bar(bytes, scale));
    let note = partition.map_or_else(String::new, |partition| note(partition, now));
    let is_held = partition.is_some_and(|partition| partition.held_since.is_some());
    let mut title = format!("{day}: {}", kind.word());
    let exact = size.map(words::bytes);
    let rows = partition.and_then(|partition| partition.estimated_rows);
    let more = exact.iter().map(|size| size.text.clone());
    let more = more.chain(rows.map(|rows| words::about(rows, "rows").text));
    let more = more.chain(is_held.then(|| {
        format!("on hold {}", partition.map(hold).unwrap_or_default())
            .trim_end()
            .to_owned()
    }));
    for part in more.chain((!note.is_empty()).then(|| note.clone())) {
        title.push_str(", ");
        title.push_str(&part);
    }
    let shows_month = is_first || date.day() == 1;
    Cell {
        day,
        kind,
        weekday: if shows_month { "" } else { weekday(date.weekday()) },
        date: if shows_month {
            date.format("%-d %b").to_string()
        } else {
            date.day().to_string()
        },
        bar,
        size: exact,
        is_held,
        note,
        title,
    }
}

/// At least one step for what is more than an empty table.
fn bar(bytes: i64, scale: i64) -> i64 {
    let steps = (bytes as f64 / scale as f64 * BAR_STEPS as f64).round() as i64;
    steps.clamp(i64::from(bytes > 0), BAR_STEPS)
}

fn weekday(day: Weekday) -> &'static str {
    match day {
        Weekday::Mon => "Mon",
        Weekday::Tue => "Tue",
        Weekday::Wed => "Wed",
        Weekday::Thu => "Thu",
        Weekday::Fri => "Fri",
        Weekday::Sat => "Sat",
        Weekday::Sun => "Sun",
    }
}

/// Who holds a partition and why: `by ops: an audit`.
pub(super) fn hold(partition: &PartitionStatus) -> String {
    match (&partition.held_by, &partition.held_because) {
        (Some(by), Some(why)) => format!("by {by}: {why}"),
        _ => String::new(),
    }
}

/// What becomes of a partition.
pub(super) fn note(partition: &PartitionStatus, now: DateTime<Utc>) -> String {
    let left = |at: DateTime<Utc>| words::rough(at - now);
    if partition.held_since.is_some() {
        return "kept until it is released".to_owned();
    }
    match (partition.state, partition.dropped_after, partition.expires_at) {
        (PartitionState::Detached, Some(at), _) if at > now => format!("dropped in {}", left(at)),
        (PartitionState::Detached, Some(_), _) => "dropped by the next run".to_owned(),
        (PartitionState::Detached, None, _) => "taken out".to_owned(),
        (PartitionState::Expired, ..) => "leaves with the next run".to_owned(),
        (PartitionState::PendingDetach, ..) => "its detach goes on with the next run".to_owned(),
        (PartitionState::Live, _, Some(at)) => format!("leaves in {}", left(at)),
        (PartitionState::Foreign, ..) => "left alone".to_owned(),
        (PartitionState::Live, _, None) => "never leaves".to_owned(),
        (PartitionState::Ahead | PartitionState::Today, ..) => String::new(),
    }
}

/// How many days there are of each kind, the worst first.
fn summary(cells: &[Cell]) -> String {
    let mut counts: BTreeMap<Kind, usize> = BTreeMap::new();
    for cell in cells {
        *counts.entry(cell.kind).or_default() += 1;
    }
    let held = cells.iter().filter(|cell| cell.is_held).count();
    let mut parts: Vec<String> = counts
        .iter()
        .map(|(kind, count)| match kind {
            Kind::Partition(State::Today) => "today".to_owned(),
            kind => format!("{count} {}", kind.word()),
        })
        .collect();
    if held > 0 {
        parts.push(format!("{held} on hold"));
    }
    parts.join(", ")
}

/// One rectangle of a strip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) x: usize,
    pub(super) y: i64,
    pub(super) height: i64,
    pub(super) class: &'static str,
    pub(super) is_held: bool,
}

/// A timeline in a few centimetres.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Strip {
    pub(super) marks: Vec<Mark>,
    pub(super) width: usize,
    pub(super) summary: String,
}

impl Timeline {
    /// The days about today as bars: what is missing fills its whole height.
    pub(super) fn strip(&self, now: DateTime<Utc>) -> Strip {
        let today = Day::containing(now);
        let near = today.plus(-STRIP_BEFORE)..=today.plus(STRIP_AFTER);
        let marks: Vec<Mark> = self
            .cells
            .iter()
            .filter(|cell| near.contains(&cell.day))
            .enumerate()
            .map(|(index, cell)| {
                let height = match cell.kind {
                    Kind::Gap => BAR_STEPS,
                    Kind::NeverMade => 1,
                    Kind::Partition(State::Ahead) => cell.bar.max(3),
                    Kind::Wide => BAR_STEPS / 2,
                    Kind::Partition(_) => cell.bar.max(4),
                };
                Mark {
                    x: index * 6,
                    y: BAR_STEPS - height,
                    height,
                    class: cell.kind.class(),
                    is_held: cell.is_held,
                }
            })
            .collect();
        Strip {
            width: (marks.len() * 6).max(6) - 1,
            marks,
            summary: self.summary.clone(),
        }
    }
}
