//! The preparation: what can be done while old consumers go on, so that little is left for the swap.

use sqlx::{Connection, PgConnection};

use super::{
    AdoptRequest, Adopted, Seen,
    brief::{briefly, lock_run, locked},
    look, must_be_fit, must_not_be_partitioned, our_checks, refuse, writable,
};
use crate::{
    claim::ClaimConstants,
    maintain::init::{identity, register},
    postgres::{DbError, ErrorKind, catalog, ddl, journal, lock, schema},
    pure::{AdoptAction, Adoption, FoundTable, Ident, adopt_until},
};

/// Makes the claim functions on the table as it is, and sees to it that the swap needs no scan. Nothing that consumers do
/// changes by it, but that rows must stay below the deadline, which is at least 48 hours away.
///
/// # Errors
/// When the table cannot be adopted, with every reason and its remedy, or a step fails; what was done before stays.
pub async fn prepare_adoption(connection: &mut PgConnection, request: AdoptRequest<'_>) -> Result<Adopted, DbError> {
    writable(connection).await?;
    let seen = look(connection, request).await?;
    must_not_be_partitioned(request, &seen)?;
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
    lock::release(connection).await?;
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
        // By the clock of this try, which may come after a midnight, also while it waits for the lock.
        let at_the_latest = catalog::server(on).await?.now + request.lock_timeout;
        let until = (!is_there).then(|| adopt_until(at_the_latest));
        locked(on, request, async |on| {
            ddl::add_checks(on, request.spec, until, nullable).await
        })
        .await
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
