//! `init`: the control schema, the inbox tables, their claim functions, and the grants.

use sqlx::{Acquire, PgConnection};
use uuid::Uuid;

use super::pass::random_uuid;
use crate::{
    claim::ClaimConstants,
    clock::Clock,
    postgres::{
        DbError, ErrorKind,
        catalog::{self, Observed, Registered, Server, Viewer},
        ddl, journal, schema,
    },
    pure::{FoundInbox, Ident, InboxSpec, Ownership},
};

/// What `init` did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct InitReport {
    /// The inboxes, in the order of the configuration.
    pub inboxes: Vec<InitializedInbox>,
}

/// What `init` did to one inbox.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct InitializedInbox {
    /// Its name.
    pub inbox: String,
    /// Whether the table was made.
    pub table_made: bool,
    /// Whether the claim functions were made or replaced.
    pub functions_made: bool,
    /// What the replaced functions had been made with.
    pub functions_had: Vec<String>,
}

/// Makes what is missing and brings up to date what is there. Running it again is harmless; each inbox is one transaction.
///
/// # Errors
/// When the server is a standby or too old, the control schema is newer, a table does not fit or belongs to another
/// deployment, a role does not exist, or a statement fails. What was done for the inboxes before stays.
pub async fn init(
    connection: &mut PgConnection,
    specs: &[InboxSpec],
    deployment: &str,
    clock: &Clock,
) -> Result<InitReport, DbError> {
    let server = catalog::server(connection).await?;
    if server.in_recovery {
        return Err(DbError::noticed(
            ErrorKind::ReadOnly,
            "the server is a standby; run `inboxd init` against the primary",
        ));
    }
    server.must_be_writable()?;
    schema::migrate(connection).await?;
    let mut inboxes = Vec::new();
    for spec in specs {
        inboxes.push(init_one(connection, spec, deployment, &server, clock).await?);
    }
    Ok(InitReport { inboxes })
}

async fn init_one(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    deployment: &str,
    server: &Server,
    clock: &Clock,
) -> Result<InitializedInbox, DbError> {
    let doing = |what: &str| format!("{what} {}", spec.table);
    let mut transaction = connection
        .begin()
        .await
        .map_err(|error| DbError::new(doing("begin to make"), error))?;
    let on = &mut *transaction;
    journal::lock_inboxes(on).await?;
    let (registered, owner, table_made) = table(on, spec, deployment, server, clock).await?;

    let wanted = ClaimConstants::of(spec, registered.id, registered.lock_key);
    let made_with = catalog::claim_comment(on, spec)
        .await?
        .as_deref()
        .and_then(ClaimConstants::from_comment);
    let functions_made = made_with.as_ref() != Some(&wanted) || !ddl::has_functions(on, spec, &owner, &wanted).await?;
    if functions_made {
        ddl::install_functions(on, spec, &owner, &wanted).await?;
    }
    ddl::grant_roles(on, spec, &owner).await?;
    transaction
        .commit()
        .await
        .map_err(|error| DbError::new(doing("commit"), error))?;
    if !wanted.digest {
        // Nobody asks them any more but who has just begun to; where it cannot be had in time, the next `init` does it.
        match ddl::drop_slots(connection, spec, registered.id).await {
            Err(error) if error.kind().is_retryable() => {
                tracing::warn!(inbox = spec.name, %error, "the digest's tables are not used any more and still there; run init again");
            }
            dropped => dropped?,
        }
    }
    let functions_had = made_with.map(|made| made.drift_from(&wanted)).unwrap_or_default();
    Ok(InitializedInbox {
        inbox: spec.name.clone(),
        table_made,
        functions_made,
        functions_had,
    })
}

/// The inbox's record, its owner, and whether its table was made now.
async fn table(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    deployment: &str,
    server: &Server,
    clock: &Clock,
) -> Result<(Registered, Ident, bool), DbError> {
    let viewer = Viewer {
        deployment,
        replica: None,
        host_now: clock.now(),
    };
    let observed = catalog::observe_record_in(connection, spec, viewer, server).await?;
    let (registered, state) = match observed {
        Some(Observed {
            registered: Some(registered),
            found,
            ..
        }) => {
            if let Ownership::OtherDeployment(name) = &found.ownership {
                return Err(refuse(
                    spec,
                    &format!("belongs to deployment {name:?}"),
                    "configure that deployment, or another table",
                ));
            }
            (Some(registered), found.inbox)
        }
        _ => (None, catalog::unregistered_table(connection, spec).await?),
    };
    let current = journal::current_role(connection).await?;
    let to_ident =
        |name: String| Ident::new(name).map_err(|error| DbError::noticed(ErrorKind::Other, error.to_string()));
    let configured = spec.owner.clone();
    let (owner, missing) = match state {
        FoundInbox::Unfit(why) => {
            return Err(refuse(
                spec,
                &format!("cannot be an inbox: {why}"),
                "rename it, or configure another table",
            ));
        }
        FoundInbox::BeingAdopted { .. } => {
            return Err(refuse(
                spec,
                "is being adopted",
                "end that with `inboxd adopt`, or take it back with `inboxd adopt --abort`",
            ));
        }
        FoundInbox::Fit(parent) => (to_ident(parent.owner)?, false),
        FoundInbox::Missing => (configured.map_or_else(|| to_ident(current), Ok)?, true),
    };
    if missing {
        ddl::create_inbox(connection, spec, &owner).await?;
    }
    let registered = match registered {
        Some(registered) => registered,
        None => {
            let (id, lock_key) = identity(connection, spec).await?;
            register(connection, spec, deployment, server, id, lock_key).await?
        }
    };
    Ok((registered, owner, missing))
}

/// The identity and the lock key of an inbox that is not on record: those of its claim functions where they have outlived
/// the record, as after a restore without the control schema. With others no partition would be the inbox's own, and
/// claims that are under way would exclude none of the new ones.
pub(super) async fn identity(connection: &mut PgConnection, spec: &InboxSpec) -> Result<(Uuid, i64), DbError> {
    let comment = catalog::claim_comment(connection, spec).await?;
    match comment.as_deref().and_then(ClaimConstants::from_comment) {
        // A copy in another schema carries the identity of the inbox that it was copied from.
        Some(made) if !catalog::is_registered(connection, made.inbox).await? => Ok((made.inbox, made.lock_key)),
        _ => Ok((random_uuid(), rand::random())),
    }
}

pub(super) async fn register(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    deployment: &str,
    server: &Server,
    id: Uuid,
    lock_key: i64,
) -> Result<Registered, DbError> {
    journal::register_inbox(connection, spec, deployment, server, id, lock_key).await?;
    let (routing, consumers) = (spec.policy.routing, spec.policy.consumers);
    Ok(Registered {
        id,
        lock_key,
        routing,
        consumers,
        deployment: deployment.to_owned(),
    })
}

fn refuse(spec: &InboxSpec, why: &str, remedy: &str) -> DbError {
    DbError::noticed(ErrorKind::WrongState, format!("table {} {why}; {remedy}", spec.table))
}
