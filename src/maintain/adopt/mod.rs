//! `adopt`: a table that is in use becomes an inbox, in three moves: prepare, swap, or take it back.
//!
//! Nothing is remembered between the moves: each looks at the catalog first, so that any of them can be killed anywhere and
//! run again. Two kinds of transaction make claims wait, both short and both bounded by the request's lock timeout: the one
//! that adds or drops the checks, and the swap.

mod abort;
mod brief;
mod prepare;
mod swap;

use std::time::Duration;

use sqlx::PgConnection;

pub(super) use self::brief::lock_run;
pub use self::{abort::abort_adoption, prepare::prepare_adoption, swap::adopt};
use crate::{
    claim::ClaimConstants,
    clock::Clock,
    postgres::{
        DbError, ErrorKind,
        catalog::{self, Registered, Server, Viewer},
        ddl,
        decisions::{self, AuditRecord},
        schema,
    },
    pure::{
        Adoption, Derived, FoundInbox, FoundTable, Ident, InboxSpec, Ownership, PartitionedTable, adoption, partitioned,
    },
};

/// How long a claim waits behind an adoption at most, before that has its lock: a quarter of a second is longer than most
/// business transactions, and shorter than what anybody calls a stall.
pub const DEFAULT_ADOPT_LOCK_TIMEOUT: Duration = Duration::from_millis(250);
/// With the pauses between them some twenty seconds; whoever holds the table for longer is named.
pub const DEFAULT_ADOPT_ATTEMPTS: i32 = 40;

/// What an adoption needs to know.
#[derive(Clone, Copy)]
pub struct AdoptRequest<'a> {
    /// The name under which the inbox will be managed.
    pub deployment: &'a str,
    /// The inbox.
    pub spec: &'a InboxSpec,
    /// Who does it, for the audit.
    pub actor: &'a str,
    /// The host's clock.
    pub clock: &'a Clock,
    /// The longest wait for a lock that claims wait behind.
    pub lock_timeout: Duration,
    /// How often such a transaction is tried.
    pub attempts: i32,
    /// Hears what is being done.
    pub tell: &'a (dyn Fn(&str) + Send + Sync),
}

impl std::fmt::Debug for AdoptRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdoptRequest")
            .field("deployment", &self.deployment)
            .field("table", &self.spec.table)
            .finish_non_exhaustive()
    }
}

/// How far it has come.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum AdoptionState {
    /// It is an inbox already.
    Done,
    /// It is a table still, with what is to be done.
    ToDo(Box<Adoption>),
    /// It is partitioned already: there is nothing to swap, and `init` takes it over once nothing is in the way.
    Partitioned(Box<PartitionedTable>),
}

/// What a move did.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Adopted {
    /// The inbox.
    pub inbox: String,
    /// What was done, in order; empty when there was nothing to do.
    pub done: Vec<&'static str>,
    /// How far it has come now.
    pub now: AdoptionState,
    /// How long the transaction of the swap lasted once it had its lock, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_lock_ms: Option<u128>,
}

/// What one look found.
pub(super) struct Seen {
    pub(super) server: Server,
    pub(super) registered: Option<Registered>,
    pub(super) table: Option<(FoundTable, Adoption)>,
    pub(super) partitioned: Option<PartitionedTable>,
}

impl Seen {
    pub(super) fn state(&self) -> AdoptionState {
        match (&self.table, &self.partitioned) {
            (Some((_, adoption)), _) => AdoptionState::ToDo(Box::new(adoption.clone())),
            (None, Some(partitioned)) => AdoptionState::Partitioned(Box::new(partitioned.clone())),
            (None, None) => AdoptionState::Done,
        }
    }
}

/// How far an adoption has come, and what each move would do. Changes nothing.
///
/// # Errors
/// When there is no such table, it belongs to another deployment, or the database fails.
pub async fn look_at_adoption(
    connection: &mut PgConnection,
    request: AdoptRequest<'_>,
) -> Result<AdoptionState, DbError> {
    Ok(look(connection, request).await?.state())
}

pub(super) async fn look(connection: &mut PgConnection, request: AdoptRequest<'_>) -> Result<Seen, DbError> {
    let spec = request.spec;
    let server = catalog::server(connection).await?;
    let (registered, state) = if schema::version(connection).await?.is_some() {
        schema::check(connection).await?;
        recorded(connection, request, &server).await?
    } else {
        (None, FoundInbox::Missing)
    };
    if registered.is_some() && matches!(state, FoundInbox::Fit(_)) {
        return Ok(Seen {
            server,
            registered,
            table: None,
            partitioned: None,
        });
    }
    let Some(mut table) = catalog::adoptable(connection, spec).await? else {
        return Err(DbError::noticed(
            ErrorKind::Missing,
            format!("there is no table {}; `inboxd init` makes a new one", spec.table),
        ));
    };
    if table.kind == "p" {
        return Ok(Seen {
            server,
            registered,
            table: None,
            partitioned: Some(partitioned_already(connection, spec).await?),
        });
    }
    if let Some(registered) = &registered {
        let wanted = ClaimConstants::of(spec, registered.id, registered.lock_key);
        let comment = catalog::claim_comment(connection, spec).await?;
        let made_with = comment.as_deref().and_then(ClaimConstants::from_comment);
        table.has_functions =
            made_with.as_ref() == Some(&wanted) && ddl::has_functions(connection, spec, &table.owner, &wanted).await?;
    }
    let adoption = adoption(&spec.table, spec.policy.routing, spec.policy.consumers, &table);
    Ok(Seen {
        server,
        registered,
        table: Some((table, adoption)),
        partitioned: None,
    })
}

/// The verdict on a table that is partitioned already.
async fn partitioned_already(connection: &mut PgConnection, spec: &InboxSpec) -> Result<PartitionedTable, DbError> {
    let mut found = catalog::partitioned_already(connection, spec).await?;
    if let FoundInbox::Unfit(why) = catalog::unregistered_table(connection, spec).await? {
        found.unfit = Some(why);
    }
    if let Some(schema) = &found.partman {
        let schema =
            Ident::new(schema.clone()).map_err(|error| DbError::noticed(ErrorKind::Other, error.to_string()))?;
        if !ddl::partman_looks_after(connection, &schema, &spec.table).await? {
            found.partman = None;
        }
    }
    Ok(partitioned(&spec.table, spec.policy.drain_default, &found))
}

/// A table that is partitioned already needs none of the moves.
pub(super) fn must_not_be_partitioned(request: AdoptRequest<'_>, seen: &Seen) -> Result<(), DbError> {
    match &seen.partitioned {
        None => Ok(()),
        Some(_) => Err(refuse(
            request,
            "is partitioned already, so there is nothing to swap: `inboxd adopt … --check` says what is in the way of \
             `inboxd init`, which takes it over",
        )),
    }
}

/// What the control schema says of the inbox, if anything.
async fn recorded(
    connection: &mut PgConnection,
    request: AdoptRequest<'_>,
    server: &Server,
) -> Result<(Option<Registered>, FoundInbox), DbError> {
    let viewer = Viewer {
        deployment: request.deployment,
        replica: None,
        host_now: request.clock.now(),
    };
    let Some(observed) = catalog::observe_record_in(connection, request.spec, viewer, server).await? else {
        return Ok((None, FoundInbox::Missing));
    };
    let table = &request.spec.table;
    match (&observed.registered, &observed.found.ownership) {
        (Some(_), Ownership::OtherDeployment(name)) => Err(DbError::noticed(
            ErrorKind::WrongState,
            format!("table {table} belongs to deployment {name:?}; ask that one, or run `inboxd takeover`"),
        )),
        (Some(_), Ownership::OtherServer) => Err(DbError::noticed(
            ErrorKind::WrongState,
            format!(
                "table {table} was begun to be adopted in another database, of which this is a copy; run `inboxd takeover`"
            ),
        )),
        _ => Ok((observed.registered, observed.found.inbox)),
    }
}

/// Refuses a table that cannot be adopted, with all that is in the way.
pub(super) fn must_be_fit(request: AdoptRequest<'_>, adoption: &Adoption) -> Result<(), DbError> {
    if adoption.problems.is_empty() {
        return Ok(());
    }
    let problems: Vec<String> = adoption
        .problems
        .iter()
        .map(|problem| format!("{} ({})", problem.what, problem.remedy))
        .collect();
    Err(refuse(request, &format!("cannot be adopted: {}", problems.join("; "))))
}

pub(super) fn refuse(request: AdoptRequest<'_>, why: &str) -> DbError {
    DbError::noticed(ErrorKind::WrongState, format!("table {} {why}", request.spec.table))
}

async fn writable(connection: &mut PgConnection) -> Result<(), DbError> {
    let server = catalog::server(connection).await?;
    if server.in_recovery {
        let what = "the server is a standby; adopt on the primary";
        return Err(DbError::noticed(ErrorKind::ReadOnly, what));
    }
    server.must_be_writable()
}

/// The checks of an adoption that are there.
fn our_checks(spec: &InboxSpec, table: &FoundTable) -> Result<Vec<Ident>, DbError> {
    let filled = spec.table.derive(Derived::AdoptFilled).ok();
    table
        .checks
        .iter()
        .filter(|check| {
            spec.table.adopted_until(&check.name).is_some()
                || filled.as_ref().is_some_and(|name| name.as_str() == check.name)
        })
        .map(|check| Ident::new(check.name.clone()))
        .collect::<Result<_, _>>()
        .map_err(|error| DbError::noticed(ErrorKind::Other, error.to_string()))
}

pub(super) async fn audit(
    on: &mut PgConnection,
    request: AdoptRequest<'_>,
    action: &str,
    id: uuid::Uuid,
    mut detail: serde_json::Value,
) -> Result<(), DbError> {
    detail["table"] = request.spec.table.to_string().into();
    let record = AuditRecord {
        actor: request.actor,
        action,
        inbox_id: Some(id),
        reason: None,
        detail: &detail,
    };
    decisions::audit(on, record).await
}
