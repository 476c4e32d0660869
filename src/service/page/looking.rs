//! `GET /` and `GET /inboxes/{inbox}`: all inboxes at a glance, and one with all that is known of it.

use std::sync::Arc;

use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};

use super::{
    Page,
    view::{self, Act, Entry, InboxView, Overview, PastRun, RunsView},
    visitor::{Frame, Visitor},
};
use crate::service::{
    http::{Path, Query},
    status::Status,
};

/// How many lines the history has here, and on an inbox's own page.
const MOST_RUNS: usize = 8;

#[derive(Debug, serde::Deserialize)]
pub(super) struct Find {
    #[serde(default)]
    find: String,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    view: Overview,
    runs: RunsView,
    /// Databases whose runs could not be read.
    unread: Vec<String>,
}

#[derive(Template)]
#[template(path = "inbox.html")]
struct InboxPage {
    frame: Frame,
    view: InboxView,
    runs: RunsView,
    unread: Vec<String>,
}

/// All inboxes at a glance.
pub(super) async fn overview(
    State(page): State<Page>,
    visitor: Visitor,
    Query(Find { find }): Query<Find>,
) -> Response {
    let status = page.context.status().await;
    let (past, unread) = past(&page, &status).await;
    let now = page.context.clock.now();
    let view = view::overview(&status, &find);
    let title = format!("{} – inboxd", view.problems.sentence);
    visitor.show(&OverviewPage {
        frame: Frame {
            refreshes: true,
            ..visitor.frame(&page, &title)
        },
        view,
        runs: view::runs(&past, None, now, MOST_RUNS),
        unread,
    })
}

/// One inbox.
pub(super) async fn inbox(State(page): State<Page>, visitor: Visitor, Path(name): Path<String>) -> Response {
    let status = page.context.status().await;
    let Some(view) = view::inbox(&status, &name) else {
        return missing(&page, &visitor, &status, &name);
    };
    let (past, unread) = past(&page, &status).await;
    let past: Vec<PastRun> = past
        .into_iter()
        .filter(|run| run.database == view.database.name)
        .collect();
    let now = page.context.clock.now();
    let title = format!("{name}: {} – inboxd", view.problems.sentence);
    visitor.show(&InboxPage {
        frame: Frame {
            refreshes: true,
            ..visitor.frame(&page, &title)
        },
        runs: view::runs(&past, Some(&name), now, MOST_RUNS),
        view,
        unread,
    })
}

/// An inbox that is not in the status: its database cannot be read, or it is not configured.
fn missing(page: &Page, visitor: &Visitor, status: &Status, name: &str) -> Response {
    let member = page.member_of(name);
    let error = member.and_then(|member| {
        let database = status
            .databases
            .iter()
            .find(|database| database.database == member.database.name)?;
        database.error.clone()
    });
    match (member, error) {
        (Some(member), Some(error)) => {
            let said = format!("Database {} cannot be read: {error}.", member.database.name);
            visitor.refused(
                page,
                StatusCode::SERVICE_UNAVAILABLE,
                "The inbox cannot be seen",
                said,
                "/",
            )
        }
        _ => {
            let said = "No inbox of that name is configured.";
            visitor.refused(page, StatusCode::NOT_FOUND, "There is no such inbox", said, "/")
        }
    }
}

/// The last runs in all databases that can be read, and the names of those whose runs cannot be.
async fn past(page: &Page, status: &Status) -> (Vec<PastRun>, Vec<String>) {
    let members = page.context.members.iter().zip(page.pasts.iter());
    let looks = members
        .zip(&status.databases)
        .map(|((member, past), database)| async move {
            let read = past.read(&page.context, member, database).await;
            read.map_err(|_| database.database.clone())
        });
    let (mut past, mut unread) = (Vec::new(), Vec::new());
    for look in futures_util::future::join_all(looks).await {
        match look {
            Ok(runs) => past.extend(Arc::unwrap_or_clone(runs)),
            Err(database) => unread.push(database),
        }
    }
    (past, unread)
}
