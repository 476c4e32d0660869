//! The swap: the table becomes the first partition of a table of its name.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use sqlx::PgConnection;

use super::{
    AdoptRequest, Adopted, audit,
    brief::{briefly, lock_run, locked},
    look, must_be_fit, must_not_be_partitioned, our_checks, refuse, writable,
};
use crate::{
    postgres::{
        DbError,
        catalog::{self, OldConsumer},
        ddl::{self, Exchange},
        journal, lock,
    },
    pure::{Adoption, Day, FoundTable, Grant, Parent},
};

/// For so long nobody may be seen to insert directly: a session shows its last statement only, and a consumer that does
/// something else in between shows that.
const LOOKS: u32 = 25;
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// Each try makes them anew, and they are not needed before the deadline; what is missing, the next run makes.
const MOST_DAYS: i64 = 8;

/// Adopts a prepared table. Done already, it is done.
///
/// Safety conditions, in order: the table can be adopted; functions and check are there, and the check is known to hold for all
/// rows and says what the partition's bounds will say; the deadline is more than an hour away; no consumer inserts directly any
/// more, as far as can be seen, or a person has confirmed it. All but the last are asked again in the transaction that swaps,
/// and what they were asked of the table is compared once more under the lock.
///
/// # Errors
/// When one of these is not so, or the lock cannot be had in time; nothing has changed then.
pub async fn adopt(
    connection: &mut PgConnection,
    request: AdoptRequest<'_>,
    consumers_have_moved: bool,
) -> Result<Adopted, DbError> {
    writable(connection).await?;
    let seen = look(connection, request).await?;
    must_not_be_partitioned(request, &seen)?;
    let done = |done, now, under_lock_ms| Adopted {
        inbox: request.spec.name.clone(),
        done,
        now,
        under_lock_ms,
    };
    let Some((_, adoption)) = &seen.table else {
        return Ok(done(Vec::new(), seen.state(), None));
    };
    must_be_ready(request, adoption)?;
    if !consumers_have_moved {
        (request.tell)("looking for consumers that still insert directly");
        consumers_must_have_moved(connection, request).await?;
    }
    lock_run(connection, request).await?;
    (request.tell)("swapping");
    let locked_at = briefly(connection, request, async |on| swap(on, request).await).await?;
    // With the commit, which ends the lock.
    let under_lock_ms = locked_at.elapsed().as_millis();
    let now = look(connection, request).await?.state();
    lock::release(connection).await?;
    Ok(done(vec!["swap"], now, Some(under_lock_ms)))
}

fn must_be_ready(request: AdoptRequest<'_>, adoption: &Adoption) -> Result<(), DbError> {
    must_be_fit(request, adoption)?;
    match &adoption.swap_is_refused {
        None => Ok(()),
        Some(refusal) => Err(refuse(
            request,
            &format!("is not adopted: {}; {}", refusal.what, refusal.remedy),
        )),
    }
}

async fn consumers_must_have_moved(connection: &mut PgConnection, request: AdoptRequest<'_>) -> Result<(), DbError> {
    for look in 0..LOOKS {
        if look > 0 {
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        let seen = catalog::old_consumers(connection, &request.spec.table).await?;
        if !seen.is_empty() {
            let who: Vec<String> = seen.iter().map(describe).collect();
            return Err(refuse(
                request,
                &format!(
                    "is not adopted: {} could still insert directly, which fails with 42P10 after the swap; move them to the claim functions, or say that they have moved with --confirm-consumers-moved",
                    who.join(", ")
                ),
            ));
        }
    }
    Ok(())
}

fn describe(seen: &OldConsumer) -> String {
    let name = seen.application_name.as_deref().filter(|name| !name.is_empty());
    let role = seen.role.as_deref().unwrap_or("unknown");
    let hidden = if seen.is_hidden {
        ", whose statement our role may not see: grant it pg_read_all_stats"
    } else {
        ""
    };
    let name = name.unwrap_or("without an application name");
    format!("pid {} ({name}, role {role}{hidden})", seen.pid)
}

/// One try, in a transaction of its own: when it had the lock. What can be read or made before is done before; under the lock
/// the table is only compared with what was read, and exchanged.
async fn swap(on: &mut PgConnection, request: AdoptRequest<'_>) -> Result<Instant, DbError> {
    let spec = request.spec;
    // The ledger stays as it is read here.
    journal::lock_inboxes(on).await?;
    let seen = look(on, request).await?;
    let (Some(registered), Some((table, adoption))) = (&seen.registered, &seen.table) else {
        return Err(has_changed(request));
    };
    must_be_ready(request, adoption)?;
    let Some(until) = adoption.until else {
        return Err(refuse(request, "has no check any more; run `inboxd adopt … --prepare`"));
    };
    must_say(request, table, until)?;
    let (inserters, grants) = table
        .grants
        .iter()
        .cloned()
        .partition::<BTreeSet<Grant>, _>(|grant| grant.privilege == "INSERT");
    let parent = Parent {
        owner: table.owner.to_string(),
        grants,
        replica_identity: table.replica_identity,
        tablespace: table.tablespace.clone(),
    };
    let today = Day::containing(table.now);
    let exchange = Exchange {
        spec,
        inbox_id: registered.id,
        parent: &parent,
        until,
        nullable: &adoption.nullable,
        checks: &our_checks(spec, table)?,
        comment: table.comment.as_deref(),
        last: today.plus(spec.policy.ahead.days()).min(until.plus(MOST_DAYS)),
    };
    ddl::make_parent(on, exchange).await?;
    let detail = serde_json::json!({
        "adopted_as": spec.table.adopted().to_string(),
        "until": until.to_string(),
        "no_longer_insert": inserters.into_iter().map(|grant| grant.grantee).collect::<BTreeSet<_>>(),
    });
    audit(on, request, "adopt", registered.id, detail).await?;
    locked(on, request, async |on| {
        let found = catalog::adoptable_again(on, spec).await?;
        if !found.is_some_and(|found| table.is_still(&found)) {
            return Err(has_changed(request));
        }
        ddl::exchange(on, exchange).await
    })
    .await
}

fn has_changed(request: AdoptRequest<'_>) -> DbError {
    refuse(
        request,
        "has changed meanwhile; look again with `inboxd adopt … --check`",
    )
}

/// Makes sure that the check says what the bounds will say, and no more: else the attach would read the whole table under the
/// lock, or refuse.
fn must_say(request: AdoptRequest<'_>, table: &FoundTable, until: Day) -> Result<(), DbError> {
    let expected = format!("CHECK ((processed_at < '{until} 00:00:00+00'::timestamp with time zone))");
    let is_so = table.checks.iter().any(|check| {
        request.spec.table.adopted_until(&check.name) == Some(until) && check.is_validated && check.says == expected
    });
    if is_so {
        return Ok(());
    }
    Err(refuse(
        request,
        "has a check of the adoption's name that says something else; take it back with `--abort` and prepare again",
    ))
}
