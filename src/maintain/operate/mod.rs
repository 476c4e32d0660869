//! What a person decides, an act a file: hold and release, restore, confirm, pause and resume, forget, a run, and the
//! question after one message. HTTP and the command line call these functions and add nothing of their own.
//!
//! The invariant: whatever changes is put on the audit in the same transaction, with who did it and why.

mod audited;
mod confirm;
mod error;
mod forget;
mod hold;
mod message;
mod pause;
mod restore;
mod run;

use sqlx::PgConnection;
use uuid::Uuid;

pub use self::{
    confirm::{ConfirmedClock, ConfirmedDrops, DueDrops, confirm_clock, confirm_drops, due_drops},
    error::{OperateError, OperateErrorKind},
    forget::{Forgotten, forget},
    hold::{Held, HeldNow, HeldState, Released, hold, holds, release},
    message::{FoundMessage, NotLookedAt, Processed, message},
    pause::{Pause, PausedNow, Resumed, pause, paused, resume},
    restore::{Restored, restore},
    run::run_asked_for,
};
use super::Retries;
use crate::{
    clock::Clock,
    postgres::{
        catalog::{self, Observed, Server, Viewer},
        schema,
    },
    pure::{InboxSpec, Ownership, Routing},
};

/// The longest name of an actor, and the longest reason, in characters, as the API's description has it: a line each.
const LONGEST_TEXT: usize = 500;

/// Who does something, as the audit names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor(String);

impl Actor {
    /// A name: of an account, or of an access token. Never the token itself.
    ///
    /// # Errors
    /// `Invalid` when it is empty or longer than 500 characters.
    pub fn new(name: impl Into<String>) -> Result<Self, OperateError> {
        let name = name.into();
        checked("the name of who does it", &name)?;
        Ok(Self(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Who acts, for which deployment.
#[derive(Debug, Clone, Copy)]
pub struct Operator<'a> {
    /// The deployment whose inboxes they are.
    pub deployment: &'a str,
    /// Who acts.
    pub actor: &'a Actor,
    /// The host's clock.
    pub clock: &'a Clock,
    /// How an act that changes partitions is retried.
    pub retries: Retries,
}

/// A text that a person gave: not empty, no longer than a line, and nothing that PostgreSQL cannot hold.
fn checked<'a>(what: &str, text: &'a str) -> Result<&'a str, OperateError> {
    let trimmed = text.trim();
    if trimmed.is_empty() || trimmed.chars().count() > LONGEST_TEXT || trimmed.contains('\0') {
        return Err(OperateError::new(
            OperateErrorKind::Invalid,
            format!("{what} is missing or too long"),
            format!("give it in 1 to {LONGEST_TEXT} characters"),
        ));
    }
    Ok(trimmed)
}

/// An id that the inbox can hold.
fn checked_id(spec: &InboxSpec, id: Uuid) -> Result<(), OperateError> {
    let by_id = spec.policy.routing == Routing::MessageId;
    if id.is_nil() || (by_id && id.get_version_num() != 7) {
        let remedy = if by_id {
            "an inbox with message_id routing holds UUIDv7 ids only"
        } else {
            "give the id of the message as it was claimed"
        };
        return Err(OperateError::new(
            OperateErrorKind::InvalidId,
            format!("{id} is no id that inbox {} can hold", spec.name),
            remedy,
        ));
    }
    Ok(())
}

/// Makes sure that what a person decides can be written down.
async fn writable(connection: &mut PgConnection) -> Result<Server, OperateError> {
    let server = catalog::server(connection).await?;
    if server.in_recovery {
        return Err(OperateError::new(
            OperateErrorKind::Standby,
            "the server is a standby, where nothing can be written",
            "ask the primary",
        ));
    }
    server.must_be_writable()?;
    schema::check(connection).await?;
    Ok(server)
}

/// One inbox as it is now.
struct Seen {
    id: Uuid,
    server: Server,
    observed: Observed,
}

/// Looks at an inbox, which must be on record and this deployment's.
async fn look(connection: &mut PgConnection, operator: Operator<'_>, spec: &InboxSpec) -> Result<Seen, OperateError> {
    let viewer = Viewer {
        deployment: operator.deployment,
        replica: None,
        host_now: operator.clock.now(),
    };
    let mut observation = catalog::observe(connection, std::slice::from_ref(spec), viewer).await?;
    let observed = observation.inboxes.pop();
    let Some((id, observed)) = observed.and_then(|observed| Some((observed.registered.as_ref()?.id, observed))) else {
        return Err(OperateError::new(
            OperateErrorKind::UnknownInbox,
            format!("table {} is no inbox on record", spec.table),
            "run `inboxd init`",
        ));
    };
    if let Ownership::OtherDeployment(name) = &observed.found.ownership {
        return Err(OperateError::new(
            OperateErrorKind::NotOurs,
            format!("inbox {} belongs to deployment {name:?}", spec.name),
            "ask that one, or run `inboxd takeover` if it is gone for good",
        ));
    }
    let server = observation.server;
    Ok(Seen { id, server, observed })
}
