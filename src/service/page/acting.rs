//! `POST /act/{act}`: does what a person has decided, and goes back to the page, which tells what it came to.

use axum::{
    extract::{Form, State, rejection::FormRejection},
    http::StatusCode,
    response::Response,
};
use futures_util::future::join_all;

use super::{
    Page,
    asking::{Act, Wanted, missing},
    visitor::{Admin, Visitor},
    words,
};
use crate::{
    maintain::operate::OperateErrorKind,
    postgres::ErrorKind,
    pure::Day,
    service::{
        acts::ActError,
        http::{Path, SetOff, set_off},
    },
};

/// Does it.
pub(super) async fn act(
    State(page): State<Page>,
    Admin(visitor): Admin,
    Path(act): Path<Act>,
    form: Result<Form<Wanted>, FormRejection>,
) -> Response {
    let Ok(Form(wanted)) = form else {
        let said = "The form could not be read. Go back and send it again.";
        return visitor.refused(&page, StatusCode::BAD_REQUEST, "Nothing was done", said, "/");
    };
    let done = match act {
        Act::Run => run(&page, &visitor, &wanted).await,
        Act::Hold | Act::Release | Act::Restore | Act::ConfirmDrops => of_an_inbox(&page, &visitor, act, &wanted).await,
        Act::ConfirmClock | Act::Pause | Act::Resume => of_databases(&page, &visitor, act, &wanted).await,
    };
    match done {
        Ok(told) => visitor.done(&told, &wanted.back(&page)),
        Err(refusal) => refusal,
    }
}

/// What was not done, and why.
pub(super) fn failure(page: &Page, visitor: &Visitor, said: &[String], error: &ActError, back: &str) -> Response {
    let (status, title) = match error {
        ActError::Crowded
        | ActError::Unavailable {
            kind: ErrorKind::LockTimeout,
            ..
        } => (StatusCode::SERVICE_UNAVAILABLE, "It was not done"),
        ActError::Unavailable { .. } => (StatusCode::SERVICE_UNAVAILABLE, "The database is away"),
        ActError::Broken => (StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong here"),
        ActError::Refused(error) if error.kind() == OperateErrorKind::Invalid => {
            (StatusCode::UNPROCESSABLE_ENTITY, "It was not done")
        }
        ActError::Refused(_) => (StatusCode::CONFLICT, "It was not done"),
    };
    visitor.refused(page, status, title, said.join(" "), back)
}

/// Acts on one inbox.
async fn of_an_inbox(page: &Page, visitor: &Visitor, act: Act, wanted: &Wanted) -> Result<String, Response> {
    let (member, spec) = page
        .inbox(&wanted.inbox)
        .ok_or_else(|| missing(page, visitor, wanted))?;
    let (acts, by) = (&member.acts, visitor.name.as_str());
    let inbox = &spec.name;
    let told = if act == Act::ConfirmDrops {
        let expected = wanted.expected.parse().map_err(|_| missing(page, visitor, wanted))?;
        acts.confirm_drops(by, spec, expected).await.map(|confirmed| {
            let count = words::counted(confirmed.confirmed.due.len(), "day");
            format!("The next run may remove {count} of {inbox}.")
        })
    } else {
        let day: Day = wanted.day.parse().map_err(|_| missing(page, visitor, wanted))?;
        match act {
            Act::Hold => acts.hold(by, spec, day, &wanted.reason).await.map(|held| {
                if held.is_new {
                    format!("{day} of {inbox} is on hold.")
                } else {
                    format!("{day} of {inbox} was on hold already.")
                }
            }),
            Act::Release => acts.release(by, spec, day).await.map(|released| match released.hold {
                Some(_) => format!("{day} of {inbox} is released; the next run does with it what is due."),
                None => format!("{day} of {inbox} was not on hold."),
            }),
            _ => {
                let reason = Some(wanted.reason.trim()).filter(|reason| !reason.is_empty());
                acts.restore(by, spec, day, reason).await.map(|restored| {
                    let Some(restored) = restored else {
                        return format!("The restore of {day} of {inbox} is going on; look again in a moment.");
                    };
                    let caught = if restored.catches_duplicates {
                        "its duplicates are caught again"
                    } else {
                        "claims do not look at it, for it lies beyond the retention"
                    };
                    format!("{day} of {inbox} is part of the inbox again, and on hold; {caught}.")
                })
            }
        }
    };
    told.map_err(|error| failure(page, visitor, &[error.in_words()], &error, &wanted.back(page)))
}

/// Acts on databases, one or all of them.
async fn of_databases(page: &Page, visitor: &Visitor, act: Act, wanted: &Wanted) -> Result<String, Response> {
    let members = wanted.members(page);
    if members.is_empty() {
        return Err(missing(page, visitor, wanted));
    }
    let by = visitor.name.as_str();
    let doing = members.into_iter().map(|member| async move {
        let database = &member.database.name;
        let told = match act {
            Act::Pause => member.acts.pause(by, &wanted.reason).await.map(|paused| {
                if paused.is_new {
                    format!("The schedule is paused in database {database}.")
                } else {
                    format!("The schedule was paused already in database {database}.")
                }
            }),
            Act::Resume => member.acts.resume(by).await.map(|resumed| match resumed.pause {
                Some(_) => format!("The schedule goes on in database {database}."),
                None => format!("The schedule was not paused in database {database}."),
            }),
            _ => member.acts.confirm_clock(by).await.map(|confirmed| {
                let mut told = format!("The clock of database {database} is trusted.");
                if !confirmed.still_blocked.is_empty() {
                    told.push_str(" Removal waits all the same: ");
                    told.push_str(&confirmed.still_blocked.join("; "));
                    told.push('.');
                }
                told
            }),
        };
        told.map_err(|error| (format!("Database {database}: {}.", error.in_words()), error))
    });
    let (mut told, mut failed) = (Vec::new(), None);
    for done in join_all(doing).await {
        match done {
            Ok(text) => told.push(text),
            Err((text, error)) => {
                told.push(text);
                failed = Some(error);
            }
        }
    }
    match failed {
        None => Ok(told.join(" ")),
        Some(error) => Err(failure(page, visitor, &told, &error, &wanted.back(page))),
    }
}

/// A run now; it needs no asking back.
async fn run(page: &Page, visitor: &Visitor, wanted: &Wanted) -> Result<String, Response> {
    let mut members = wanted.members(page);
    let inbox = Some(wanted.inbox.clone()).filter(|inbox| !inbox.is_empty());
    if let Some(name) = &inbox {
        members.retain(|member| member.database.inboxes.iter().any(|spec| spec.name == *name));
    }
    if members.is_empty() {
        return Err(missing(page, visitor, wanted));
    }
    let members = members.into_iter().cloned().collect();
    match set_off(&page.context, members, inbox, &visitor.name).await {
        Some((_, SetOff::Going(_))) => Ok("The run is going; its steps appear here as they are done.".to_owned()),
        Some((_, SetOff::Ended(databases))) => {
            let told: Vec<String> = databases.iter().map(|database| database.in_words()).collect();
            Ok(told.join(" "))
        }
        None => {
            let said = "The run broke off; the log says where.";
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Err(visitor.refused(page, status, "Something went wrong here", said, "/"))
        }
    }
}
