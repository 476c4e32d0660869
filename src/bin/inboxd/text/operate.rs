//! What the commands print with which a person decides something.

use std::{collections::BTreeSet, fmt::Write as _};

use inboxd::{
    Day,
    maintain::operate::{
        ConfirmedClock, ConfirmedDrops, DueDrops, Forgotten, FoundMessage, Held, HeldNow, HeldState, Pause, PausedNow,
        Released, Restored, Resumed,
    },
};

use super::time;
use crate::{
    commands::{Answered, Answers},
    operate::Holds,
};

/// A pause as one sentence.
pub(crate) fn paused(pause: &Pause) -> String {
    format!(
        "The schedule of deployment {:?} is paused since {} by {}: {} (`inboxd resume` lets it go on).",
        pause.deployment,
        time(pause.paused_at),
        pause.paused_by,
        pause.reason
    )
}

fn held(hold: &Held) -> String {
    format!(
        "{} {} on hold since {} by {}: {}",
        hold.inbox,
        hold.day,
        time(hold.held_at),
        hold.held_by,
        hold.reason
    )
}

pub(crate) fn hold(now: &HeldNow) -> String {
    let what = if now.is_new { "" } else { "It was on hold already. " };
    let partition = match (&now.partition, now.state) {
        (Some(partition), Some(HeldState::Detaching)) => {
            format!("partition {partition}, whose detach has begun: it leaves the inbox, is kept, and can be restored")
        }
        (Some(partition), Some(HeldState::Detached)) => {
            format!("partition {partition}, detached: it is kept, and can be restored")
        }
        (Some(partition), _) => format!("partition {partition}"),
        (None, _) => "no partition yet".to_owned(),
    };
    format!("{what}{} ({partition})", held(&now.hold))
}

pub(crate) fn released(released: &Released) -> String {
    match &released.hold {
        Some(hold) => format!("Released. It was: {}", held(hold)),
        None => format!("{} {} was not on hold.", released.inbox, released.day),
    }
}

pub(crate) fn holds(answers: &Answers<Holds>) -> String {
    let lines: Vec<String> = answers.done().flat_map(|done| &done.holds).map(held).collect();
    match lines.is_empty() {
        true if answers.done().count() > 0 => "No day is on hold.".to_owned(),
        _ => lines.join("\n"),
    }
}

pub(crate) fn restored(restored: &Restored) -> String {
    let Restored {
        inbox,
        day,
        partition,
        hold,
        ..
    } = restored;
    let mut text = format!("{inbox}: partition {partition} is attached again.\n");
    if restored.catches_duplicates {
        let _ = writeln!(text, "Duplicates of {day} are caught again.");
    } else {
        let _ = writeln!(
            text,
            "Claims do not look at {day}: it is older than the retention. Lengthen that and run `inboxd init`."
        );
    }
    let _ = writeln!(
        text,
        "{}\nWhen it may go: inboxd hold {inbox} {day} --release",
        held(hold)
    );
    text
}

pub(crate) fn confirmed_clock(answers: &Answers<ConfirmedClock>) -> String {
    let mut text = String::new();
    for answer in &answers.databases {
        let Answered::Done(done) = &answer.result else { continue };
        let before = done.trusted_before.map_or_else(|| "none".to_owned(), time);
        let _ = writeln!(
            text,
            "database {}: its time {} is trusted (before: {before})",
            answer.database,
            time(done.trusted_at)
        );
        for blocked in &done.still_blocked {
            let _ = writeln!(text, "  removal stays blocked: {blocked}");
        }
    }
    text
}

fn days(days: &BTreeSet<Day>, what: &str) -> Option<String> {
    let (first, last) = (days.first()?, days.last()?);
    Some(format!("{} to be {what} ({first} to {last})", days.len()))
}

/// What is due, as one phrase.
pub(crate) fn due(due: &DueDrops) -> String {
    let parts: Vec<String> = [
        days(&due.due.detach, "detached"),
        days(&due.due.drop, "dropped for good"),
    ]
    .into_iter()
    .flatten()
    .collect();
    format!("{} partitions of {}: {}", due.due.len(), due.inbox, parts.join(", "))
}

pub(crate) fn confirmed_drops(confirmed: &ConfirmedDrops) -> String {
    format!("Confirmed for the next run, once: {}", due(&confirmed.confirmed))
}

pub(crate) fn pauses(answers: &Answers<PausedNow>) -> String {
    let lines: Vec<String> = answers
        .done()
        .map(|now| {
            let already = if now.is_new { "" } else { "It was paused already. " };
            format!("{already}{}", paused(&now.pause))
        })
        .collect();
    lines.join("\n")
}

pub(crate) fn resumed(answers: &Answers<Resumed>) -> String {
    let mut text = String::new();
    for answer in &answers.databases {
        let Answered::Done(done) = &answer.result else { continue };
        let what = match &done.pause {
            Some(pause) => format!("goes on; it was paused since {}", time(pause.paused_at)),
            None => "was not paused".to_owned(),
        };
        let _ = writeln!(text, "database {}: the schedule {what}", answer.database);
    }
    text
}

pub(crate) fn forgotten(forgotten: &Forgotten) -> String {
    let Forgotten { inbox, message_id, .. } = forgotten;
    if forgotten.was_there {
        format!("{inbox}: message {message_id} is forgotten; its next delivery is fresh.")
    } else {
        format!("{inbox}: message {message_id} was not there; its next delivery is fresh anyway.")
    }
}

pub(crate) fn message(found: &FoundMessage) -> String {
    let FoundMessage { inbox, message_id, .. } = found;
    let mut text = String::new();
    if found.processed.is_empty() {
        let _ = writeln!(
            text,
            "{inbox}: message {message_id} was not processed, as far as was looked"
        );
    }
    for processed in &found.processed {
        let consumer = processed
            .consumer
            .as_ref()
            .map_or_else(String::new, |consumer| format!(" by {consumer:?}"));
        let detached = if processed.is_attached {
            ""
        } else {
            ", which is detached: claims do not see it"
        };
        let _ = writeln!(
            text,
            "{inbox}: message {message_id} was processed at {}{consumer} (topic {:?}), in partition {}{detached}",
            time(processed.processed_at),
            processed.topic,
            processed.partition
        );
    }
    let looked_at: Vec<String> = found.looked_at.iter().map(Day::to_string).collect();
    let looked_at = if looked_at.is_empty() {
        "none".to_owned()
    } else {
        looked_at.join(", ")
    };
    let _ = writeln!(text, "  looked at: {looked_at}");
    for partition in &found.not_looked_at {
        let _ = writeln!(text, "  not looked at: {}, for {}", partition.partition, partition.why);
    }
    text
}
