//! `adopt`: a table that is in use becomes an inbox, in three moves: prepare, swap, or take it back.
//!
//! Nothing is remembered between the moves: each looks at the catalog first, so that any of them can be killed anywhere and
//! run again. Two kinds of transaction make claims wait, both short and both bounded by the request's lock timeout: the one
//! that adds or drops the checks, and the swap.

mod brief;
mod swap;

use std::time::Duration;

use sqlx::{Connection, PgConnection};

pub(super) use self::brief::{briefly, lock_run};
pub use self::swap::adopt;
use super::init::{identity, register};
use crate::{
    claim::ClaimConstants,
    clock::Clock,
    postgres::{
        DbError, ErrorKind,
        catalog::{self, Registered, Server, Viewer},
        ddl,
        decisions::{self, AuditRecord},
        journal, schema,
    },
    pure::{
        AdoptAction, Adoption, Derived, FoundInbox, FoundTable, Ident, InboxSpec, Ownership, Sql, adopt_until, adoption,
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
}

impl Seen {
    pub(super) fn state(&self) -> AdoptionState {
        match &self.table {
            None => AdoptionState::Done,
            Some((_, adoption)) => AdoptionState::ToDo(Box::new(adoption.clone())),
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
        });
    }
    let Some(mut table) = catalog::adoptable(connection, spec).await? else {
        return Err(DbError::noticed(
            ErrorKind::Missing,
            format!("there is no table {}; `inboxd init` makes a new one", spec.table),
        ));
    };
    if let Some(registered) = &registered {
        let wanted = ClaimConstants::of(spec, registered.id, registered.lock_key);
        let comment = catalog::claim_comment(connection, spec).await?;
        let made_with = comment.as_deref().and_then(ClaimConstants::from_comment);
        table.has_functions =
            made_with.as_ref() == Some(&wanted) && ddl::has_functions(connection, spec, &table.owner).await?;
    }
    let adoption = adoption(&spec.table, spec.policy.routing, spec.policy.consumers, &table);
    Ok(Seen {
        server,
        registered,
        table: Some((table, adoption)),
    })
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

/// Makes the claim functions on the table as it is, and sees to it that the swap needs no scan. Nothing that consumers do
/// changes by it, but that rows must stay below the deadline, which is at least 48 hours away.
///
/// # Errors
/// When the table cannot be adopted, with every reason and its remedy, or a step fails; what was done before stays.
pub async fn prepare_adoption(connection: &mut PgConnection, request: AdoptRequest<'_>) -> Result<Adopted, DbError> {
    writable(connection).await?;
    let seen = look(connection, request).await?;
    if let Some((_, adoption)) = &seen.table {
        must_be_fit(request, adoption)?;
    }
    schema::migrate(connection).await?;
    lock_run(connection, request).await?;
    let mut done = Vec::new();
    // A step leaves its trace in the catalog; the next look no longer finds it to do. Four kinds, each done once.
    for _ in 0..8 {
        let seen = look(connection, request).await?;
        let Some((table, adoption)) = &seen.table else { break };
        must_be_fit(request, adoption)?;
        if let (Some(refusal), Some(left)) = (&adoption.swap_is_refused, adoption.seconds_left())
            && left < 3600
        {
            return Err(refuse(
                request,
                &format!("is late: {}; {}", refusal.what, refusal.remedy),
            ));
        }
        let steps: Vec<AdoptAction> = adoption.prepare.iter().map(|step| step.action).collect();
        let Some(action) = steps
            .iter()
            .copied()
            .find(|action| *action != AdoptAction::Scan || !done.contains(&"scan"))
        else {
            break;
        };
        let estimate = adoption.prepare.iter().find(|step| step.action == action);
        (request.tell)(&format!(
            "{} ({})",
            words(action),
            estimate.map_or("", |step| step.estimate.as_str())
        ));
        match action {
            AdoptAction::Scan => scan(connection, request, adoption).await?,
            AdoptAction::MakeFunctions => make_functions(connection, request, &seen, &table.owner).await?,
            AdoptAction::AddChecks => add_checks(connection, request, adoption).await?,
            AdoptAction::Validate => validate(connection, request, table).await?,
            AdoptAction::Swap | AdoptAction::DropChecks => break,
        }
        done.push(action.as_str());
    }
    let now = look(connection, request).await?.state();
    crate::postgres::lock::release(connection).await?;
    Ok(Adopted {
        inbox: request.spec.name.clone(),
        done,
        now,
        under_lock_ms: None,
    })
}

fn words(action: AdoptAction) -> &'static str {
    match action {
        AdoptAction::Scan => "looking through the table",
        AdoptAction::MakeFunctions => "making the claim functions",
        AdoptAction::AddChecks => "adding the check constraint",
        AdoptAction::Validate => "validating it",
        AdoptAction::Swap => "swapping",
        AdoptAction::DropChecks => "dropping the check constraint",
    }
}

async fn writable(connection: &mut PgConnection) -> Result<(), DbError> {
    let server = catalog::server(connection).await?;
    if server.in_recovery {
        let what = "the server is a standby; adopt on the primary";
        return Err(DbError::noticed(ErrorKind::ReadOnly, what));
    }
    server.must_be_writable()
}

async fn scan(connection: &mut PgConnection, request: AdoptRequest<'_>, adoption: &Adoption) -> Result<(), DbError> {
    let until = adoption.until.unwrap_or_else(|| adopt_until(adoption.now));
    let table = &request.spec.table;
    let (too_new, unfilled) =
        ddl::unchecked(connection, table, until, &adoption.nullable, request.lock_timeout).await?;
    if too_new > 0 {
        let what = format!(
            "cannot be adopted: {too_new} rows have a processed_at at or after {until} (set them to a time that has been: update {} set processed_at = now() where processed_at >= '{until}')",
            table.quoted()
        );
        return Err(refuse(request, &what));
    }
    if unfilled > 0 {
        let columns = adoption.nullable.join(" or ");
        let what = format!("cannot be adopted: {unfilled} rows have no {columns} (fill them, or delete them)");
        return Err(refuse(request, &what));
    }
    Ok(())
}

/// The record, the functions and their grants, in one transaction, as `init` makes them.
async fn make_functions(
    connection: &mut PgConnection,
    request: AdoptRequest<'_>,
    seen: &Seen,
    owner: &Ident,
) -> Result<(), DbError> {
    let spec = request.spec;
    let mut transaction = connection
        .begin()
        .await
        .map_err(|error| DbError::new("begin to make the claim functions", error))?;
    let on = &mut *transaction;
    journal::lock_inboxes(on).await?;
    let registered = match &seen.registered {
        Some(registered) => registered.clone(),
        None => {
            let (id, lock_key) = identity(on, spec).await?;
            register(on, spec, request.deployment, &seen.server, id, lock_key).await?
        }
    };
    let wanted = ClaimConstants::of(spec, registered.id, registered.lock_key);
    ddl::install_functions(on, spec, owner, &wanted).await?;
    ddl::grant_roles(on, spec, owner).await?;
    transaction
        .commit()
        .await
        .map_err(|error| DbError::new("commit the claim functions", error))
}

async fn add_checks(
    connection: &mut PgConnection,
    request: AdoptRequest<'_>,
    adoption: &Adoption,
) -> Result<(), DbError> {
    let nullable: &[&'static str] = if adoption.has_filled_check {
        &[]
    } else {
        &adoption.nullable
    };
    let is_there = adoption.until.is_some();
    briefly(connection, request, async |on| {
        ddl::be_brief(on, &request.spec.table, request.lock_timeout).await?;
        // By the clock of this try, which may come after a midnight.
        let now = catalog::server(on).await?.now;
        let until = (!is_there).then(|| adopt_until(now));
        ddl::add_checks(on, request.spec, until, nullable).await
    })
    .await?;
    Ok(())
}

async fn validate(connection: &mut PgConnection, request: AdoptRequest<'_>, table: &FoundTable) -> Result<(), DbError> {
    for check in our_checks(request.spec, table)? {
        let is_valid = table
            .checks
            .iter()
            .any(|found| found.name == check.as_str() && found.is_validated);
        if !is_valid {
            let name = &request.spec.table;
            ddl::validate(connection, name, &check, request.lock_timeout)
                .await
                .map_err(|error| {
                    if error.sqlstate().as_deref() == Some("23514") {
                        let remedy =
                            "rows came in that cannot stay: mend them and run it again, or take it back with --abort";
                        error.meaning(ErrorKind::WrongState, remedy)
                    } else {
                        error
                    }
                })?;
        }
    }
    Ok(())
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

/// Takes back what the preparation did to the table, and takes the inbox off the record. The claim functions stay: consumers
/// may use them already, and on the table as it is they are exact.
///
/// # Errors
/// When the table was adopted already, or the lock cannot be had in time; nothing has changed then.
pub async fn abort_adoption(connection: &mut PgConnection, request: AdoptRequest<'_>) -> Result<Adopted, DbError> {
    writable(connection).await?;
    let seen = look(connection, request).await?;
    if seen.table.is_none() {
        return Err(refuse(request, "is adopted already; `inboxd release` gives it back"));
    }
    let mut done = Vec::new();
    if schema::version(connection).await?.is_some() {
        lock_run(connection, request).await?;
    }
    let seen = look(connection, request).await?;
    let Some((table, _)) = &seen.table else {
        return Err(refuse(request, "is adopted already; `inboxd release` gives it back"));
    };
    let checks = our_checks(request.spec, table)?;
    let registered = seen.registered.as_ref().map(|registered| registered.id);
    if !checks.is_empty() || registered.is_some() {
        (request.tell)("taking it back");
        briefly(connection, request, async |on| {
            if !checks.is_empty() {
                ddl::be_brief(on, &request.spec.table, request.lock_timeout).await?;
                ddl::drop_checks(on, Sql::table(&request.spec.table), &checks).await?;
            }
            let Some(id) = registered else { return Ok(()) };
            audit(on, request, "abort_adoption", id, serde_json::json!({})).await?;
            journal::release_inbox(on, id).await
        })
        .await?;
        done.push(AdoptAction::DropChecks.as_str());
    }
    let now = look(connection, request).await?.state();
    crate::postgres::lock::release(connection).await?;
    Ok(Adopted {
        inbox: request.spec.name.clone(),
        done,
        now,
        under_lock_ms: None,
    })
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
