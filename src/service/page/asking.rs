//! `GET /ask/{act}`: says what an act would come to, and asks whether it is to be done. Nothing changes here.

use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};
use futures_util::future::join_all;

use super::{
    Page,
    acting::failure,
    view::{self, Piece},
    visitor::{Admin, Frame, Visitor},
    words,
};
use crate::{
    pure::Day,
    service::{
        http::{Member, Path, Query},
        status::PartitionStatus,
    },
};

/// What a person can do on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Act {
    Run,
    Hold,
    Release,
    Restore,
    ConfirmDrops,
    ConfirmClock,
    Pause,
    Resume,
}

/// What it is to be done to, and why. What an act does not need is not looked at.
#[derive(Debug, Default, serde::Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    pub(super) inbox: String,
    #[serde(default)]
    pub(super) day: String,
    /// A database; all of them where it is empty.
    #[serde(default)]
    pub(super) database: String,
    #[serde(default)]
    pub(super) reason: String,
    /// How many removals the person was shown.
    #[serde(default)]
    pub(super) expected: String,
}

impl Wanted {
    /// Where to go back to.
    pub(super) fn back(&self, page: &Page) -> String {
        match page.inbox(&self.inbox) {
            Some(_) => format!("/inboxes/{}", self.inbox),
            None => "/".to_owned(),
        }
    }

    /// The databases that are meant.
    pub(super) fn members<'a>(&self, page: &'a Page) -> Vec<&'a Member> {
        let all = page.context.members.iter();
        all.filter(|member| self.database.is_empty() || member.database.name == self.database)
            .collect()
    }
}

#[derive(Template)]
#[template(path = "ask.html")]
struct AskPage {
    frame: Frame,
    question: Question,
    back: String,
}

/// One question.
#[derive(Debug, Default)]
struct Question {
    title: String,
    act: &'static str,
    /// What it would come to.
    said: Vec<Vec<Piece>>,
    /// What would go, where a list is asked about.
    days: Vec<String>,
    hidden: Vec<(&'static str, String)>,
    reason: Option<Reason>,
    button: &'static str,
    is_grave: bool,
}

#[derive(Debug)]
struct Reason {
    label: &'static str,
    is_required: bool,
}

const WHY: Option<Reason> = Some(Reason {
    label: "Why? It stands on the audit, and where the hold or the pause is shown.",
    is_required: true,
});

impl Question {
    fn say(mut self, text: &str) -> Self {
        self.said.push(view::pieces(text));
        self
    }
}

/// Asks back.
pub(super) async fn ask(
    State(page): State<Page>,
    Admin(visitor): Admin,
    Path(act): Path<Act>,
    Query(wanted): Query<Wanted>,
) -> Response {
    let asked = match act {
        Act::Hold | Act::Release | Act::Restore => of_a_day(&page, &visitor, act, &wanted).await,
        Act::ConfirmDrops => drops(&page, &visitor, &wanted).await,
        Act::ConfirmClock => clock(&page, &visitor, &wanted).await,
        Act::Pause => pause(&page, &wanted).ok_or_else(|| missing(&page, &visitor, &wanted)),
        Act::Run | Act::Resume => Err(missing(&page, &visitor, &wanted)),
    };
    match asked {
        Ok(question) => visitor.show(&AskPage {
            frame: visitor.frame(&page, &question.title),
            question,
            back: wanted.back(&page),
        }),
        Err(refusal) => refusal,
    }
}

/// What is asked about is not there.
pub(super) fn missing(page: &Page, visitor: &Visitor, wanted: &Wanted) -> Response {
    let said = "It names no inbox, day or database that there is. Go back and look again.";
    let back = wanted.back(page);
    visitor.refused(
        page,
        StatusCode::NOT_FOUND,
        "There is nothing to do this to",
        said,
        &back,
    )
}

async fn of_a_day(page: &Page, visitor: &Visitor, act: Act, wanted: &Wanted) -> Result<Question, Response> {
    let missing = || missing(page, visitor, wanted);
    let day: Day = wanted.day.parse().map_err(|_| missing())?;
    page.inbox(&wanted.inbox).ok_or_else(missing)?;
    let found = page.context.inbox(&wanted.inbox).await.ok();
    let partition = found.as_ref().and_then(|(_, inbox)| {
        let mut partitions = inbox.partitions.iter();
        partitions.find(|partition| partition.day == Some(day))
    });
    let inbox = &wanted.inbox;
    let question = Question {
        hidden: vec![("inbox", inbox.clone()), ("day", day.to_string())],
        ..Question::default()
    };
    let what = partition.map_or_else(String::new, described);
    Ok(match act {
        Act::Release => Question {
            title: format!("Release {day} of {inbox}?"),
            act: "release",
            button: "Release it",
            is_grave: true,
            ..question
        }
        .say(&format!("{day} is on hold, and so it is kept. {what}"))
        .say("Once it is released, the next run does with it what is due: a day that has expired leaves the inbox, and one whose grace is over is dropped for good."),
        Act::Restore => Question {
            title: format!("Restore {day} of {inbox}?"),
            act: "restore",
            button: "Restore it",
            reason: Some(Reason {
                label: "Why? It stands on the audit. It may stay empty.",
                is_required: false,
            }),
            ..question
        }
        .say(&format!("The partition becomes part of the inbox again. {what}"))
        .say("Its day is put on hold, or the next run would take it out again. Its duplicates are caught again if it lies within the retention. No claim waits for it."),
        _ => Question {
            title: format!("Put {day} of {inbox} on hold?"),
            act: "hold",
            button: "Put it on hold",
            reason: WHY,
            ..question
        }
        .say(&format!("A day on hold neither leaves the inbox nor is dropped, until it is released. {what}")),
    })
}

/// What goes, in a sentence.
fn described(partition: &PartitionStatus) -> String {
    let size = partition
        .bytes
        .map_or_else(|| "of unknown size".to_owned(), |size| words::bytes(size).text);
    let rows = partition
        .estimated_rows
        .map_or_else(String::new, |rows| format!(" and {}", words::about(rows, "rows").title));
    format!("Its table is `{}`, {size}{rows}.", partition.relation)
}

async fn drops(page: &Page, visitor: &Visitor, wanted: &Wanted) -> Result<Question, Response> {
    let (member, spec) = page
        .inbox(&wanted.inbox)
        .ok_or_else(|| missing(page, visitor, wanted))?;
    let due = member.acts.due_drops(spec).await;
    let due = due.map_err(|error| failure(page, visitor, &[error.in_words()], &error, &wanted.back(page)))?;
    if !due.is_over_the_cap() {
        let said = format!(
            "No more than the {} that one run may take are due by now.",
            due.max_drops_per_run
        );
        return Err(visitor.refused(
            page,
            StatusCode::CONFLICT,
            "Nothing is to be confirmed",
            said,
            &wanted.back(page),
        ));
    }
    let detach = due.due.detach.iter().map(|day| format!("{day} leaves the inbox"));
    let dropped = due.due.drop.iter().map(|day| format!("{day} is dropped for good"));
    Ok(Question {
        title: format!("Let the next run of {} remove {}?", spec.name, words::counted(due.due.len(), "day")),
        act: "confirm_drops",
        days: dropped.chain(detach).collect(),
        hidden: vec![
            ("inbox", spec.name.clone()),
            ("expected", due.due.len().to_string()),
        ],
        button: "Let it remove them",
        is_grave: true,
        ..Question::default()
    }
    .say(&format!(
        "One run takes at most {} of each. This lets the next one take exactly these days at once, and no others.",
        due.max_drops_per_run
    ))
    .say("If that is more than you expect, look whether `retention` was cut by mistake. What is dropped is gone; what leaves the inbox can be restored within its grace."))
}

async fn clock(page: &Page, visitor: &Visitor, wanted: &Wanted) -> Result<Question, Response> {
    let members = wanted.members(page);
    if members.is_empty() {
        return Err(missing(page, visitor, wanted));
    }
    let host = page.context.clock.now();
    let mut question = Question {
        title: "Trust the database's clock?".to_owned(),
        act: "confirm_clock",
        hidden: vec![("database", wanted.database.clone())],
        button: "Trust it",
        is_grave: true,
        ..Question::default()
    }
    .say("Removal waits, because the clock has come further than outages explain, or differs from this host's. Under a clock that is wrong, days that are still needed would be taken for expired.")
    .say(&format!("This host's clock says `{}`.", words::exact(host)));
    // All at once: one that is silent takes seconds.
    let readings = join_all(members.iter().map(|member| member.reader.read())).await;
    for (member, reading) in members.into_iter().zip(readings) {
        let says = match reading {
            Ok(status) => status.now.map_or_else(|| "nothing".to_owned(), words::exact),
            Err(error) => error.message,
        };
        question = question.say(&format!(
            "The clock of database {} says `{says}`.",
            member.database.name
        ));
    }
    Ok(question)
}

fn pause(page: &Page, wanted: &Wanted) -> Option<Question> {
    let members = wanted.members(page);
    if members.is_empty() {
        return None;
    }
    let names: Vec<&str> = members.iter().map(|member| member.database.name.as_str()).collect();
    let question = Question {
        title: "Pause the schedule?".to_owned(),
        act: "pause",
        hidden: vec![("database", wanted.database.clone())],
        reason: WHY,
        button: "Pause it",
        is_grave: true,
        ..Question::default()
    }
    .say(&format!("In database {}, for every replica, until it is resumed; a restart does not end it.", names.join(", ")))
    .say("Nothing is removed meanwhile, and nothing is created either: the runway falls, and claims fail once it is used up. A run that a person asks for still does its work.");
    Some(question)
}
