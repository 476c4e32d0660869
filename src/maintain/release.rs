//! `release`: an inbox becomes something that works without us.
//!
//! Its partitions stay, and one without an upper bound comes after the last, so that no claim ever fails for want of a
//! partition. The claim functions stay and are as exact as before: they need no service. Nothing makes or drops days any more.

use sqlx::{Connection, PgConnection};

use super::adopt::{AdoptRequest, audit, lock_run};
use crate::{
    postgres::{
        DbError, ErrorKind,
        catalog::{self, Viewer},
        ddl, journal, lock, schema,
    },
    pure::{Attachment, Bounds, FoundInbox, FoundRelation, Ident, Ownership, Parent},
};

/// What a release left.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ReleasedInbox {
    /// The inbox.
    pub inbox: String,
    /// The partition that takes what comes after the last day; none when something took it already.
    pub rest: Option<Ident>,
    /// Its partitions, oldest first.
    pub partitions: Vec<String>,
    /// Tables of days that were detached, and that nothing drops any more.
    pub detached: Vec<String>,
}

/// Releases an inbox. One transaction, which no claim waits for.
///
/// # Errors
/// When the inbox is not ours or not sound (a detach that was interrupted, days that are missing), a run is going, or the
/// database fails; nothing has changed then.
pub async fn release_inbox(connection: &mut PgConnection, request: AdoptRequest<'_>) -> Result<ReleasedInbox, DbError> {
    let spec = request.spec;
    catalog::server(connection).await?.must_be_writable()?;
    schema::check(connection).await?;
    lock_run(connection, request).await?;
    let doing = |what: &str| format!("{what} the release of {}", spec.table);
    let mut transaction = connection
        .begin()
        .await
        .map_err(|error| DbError::new(doing("begin"), error))?;
    let on = &mut *transaction;
    let server = catalog::server(on).await?;
    let viewer = Viewer {
        deployment: request.deployment,
        replica: None,
        host_now: request.clock.now(),
    };
    let observed = catalog::observe_in(on, std::slice::from_ref(spec), viewer, &server).await?;
    let refuse = |why: &str| DbError::noticed(ErrorKind::WrongState, format!("table {} {why}", spec.table));
    let Some((registered, found)) = observed
        .into_iter()
        .next()
        .and_then(|observed| Some((observed.registered?, observed.found)))
    else {
        return Err(refuse("is no inbox on record; there is nothing to release"));
    };
    if found.ownership != Ownership::Ours {
        return Err(refuse(
            "belongs to another deployment, or its database is a copy; run `inboxd takeover` first",
        ));
    }
    let parent = match &found.inbox {
        FoundInbox::Fit(parent) => parent,
        FoundInbox::BeingAdopted { .. } => {
            return Err(refuse("is not adopted yet; `inboxd adopt … --abort` takes that back"));
        }
        FoundInbox::Missing | FoundInbox::Unfit(_) => {
            return Err(refuse("is not as an inbox must be; see `inboxd check`"));
        }
    };
    if found
        .relations
        .iter()
        .any(|relation| relation.attachment == Attachment::PendingDetach)
    {
        return Err(refuse(
            "has a detach that was interrupted; run `inboxd run`, which finalizes it",
        ));
    }
    let rest = open_the_end(on, request, registered.id, parent, &found.relations, server.now).await?;
    let names = |attachment: Attachment| {
        let mut names: Vec<(Option<crate::pure::Day>, String)> = found
            .relations
            .iter()
            .filter(|relation| {
                relation.attachment == attachment && (attachment == Attachment::Attached || relation.marker.is_some())
            })
            .map(|relation| (relation.day(), relation.name.to_string()))
            .collect();
        names.sort();
        names.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
    };
    let released = ReleasedInbox {
        inbox: spec.name.clone(),
        rest,
        partitions: names(Attachment::Attached),
        detached: names(Attachment::Loose),
    };
    let detail = serde_json::json!({ "rest": released.rest, "detached": released.detached });
    audit(on, request, "release", registered.id, detail).await?;
    journal::release_inbox(on, registered.id).await?;
    transaction
        .commit()
        .await
        .map_err(|error| DbError::new(doing("commit"), error))?;
    lock::release(connection).await?;
    Ok(released)
}

/// What comes after the last day gets a partition, unless something takes it already.
async fn open_the_end(
    on: &mut PgConnection,
    request: AdoptRequest<'_>,
    inbox_id: uuid::Uuid,
    parent: &Parent,
    relations: &[FoundRelation],
    now: chrono::DateTime<chrono::Utc>,
) -> Result<Option<Ident>, DbError> {
    let spans: Vec<_> = relations
        .iter()
        .filter(|relation| relation.attachment == Attachment::Attached)
        .filter_map(|relation| relation.bounds.as_ref().and_then(Bounds::span))
        .collect();
    let is_taken = spans.iter().any(|span| span.to.is_none())
        || relations
            .iter()
            .any(|relation| relation.bounds == Some(Bounds::Default));
    if is_taken {
        return Ok(None);
    }
    // Day by day from now: the first instant that is not held must be the end of all.
    let mut reached = now;
    while let Some(span) = spans.iter().find(|span| span.contains(reached)) {
        let Some(to) = span.to else { return Ok(None) };
        reached = to;
    }
    if spans.iter().any(|span| span.to.is_some_and(|to| to > reached)) || reached == now {
        return Err(DbError::noticed(
            ErrorKind::WrongState,
            format!(
                "table {} lacks days; run `inboxd run` first, so that it is whole when it is released",
                request.spec.table
            ),
        ));
    }
    ddl::open_the_end(on, request.spec, inbox_id, parent, reached)
        .await
        .map(Some)
}
