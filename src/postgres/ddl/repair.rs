//! A partition is put right: the inbox's owner, privileges, storage parameters, replica identity, and its key.

use std::time::Duration;

use sqlx::PgConnection;

use super::{Sql, Work, derive, execute, key_columns, refused};
use crate::{
    postgres::{
        catalog::{self, Relation},
        error::{DbError, ErrorKind},
    },
    pure::{Derived, Grant, Ident, ReplicaIdentity, STORAGE_PARAMETERS},
};

/// Takes ACCESS EXCLUSIVE: for tables that nobody uses yet.
pub(super) async fn owner(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    if look(connection, work).await?.owner == work.parent.owner {
        return Ok(());
    }
    let values = [("relation", work.relation()), ("role", role(&work.parent.owner)?)];
    execute(connection, include_str!("../../../sql/ddl/set_owner.sql"), &values).await
}

/// Gives a table exactly the inbox's privileges. Takes no lock on it.
pub(super) async fn grants(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let (has, wanted) = (look(connection, work).await?.grants, &work.parent.grants);
    for grant in has.difference(wanted) {
        let values = [
            ("privilege", privilege(grant)?),
            ("relation", work.relation()),
            ("role", role(&grant.grantee)?),
        ];
        execute(connection, include_str!("../../../sql/ddl/revoke.sql"), &values).await?;
    }
    for grant in wanted.difference(&has) {
        let option = Sql::fixed(if grant.grantable { " with grant option" } else { "" });
        let values = [
            ("privilege", privilege(grant)?),
            ("relation", work.relation()),
            ("role", role(&grant.grantee)?),
            ("option", option),
        ];
        execute(connection, include_str!("../../../sql/ddl/grant.sql"), &values).await?;
    }
    Ok(())
}

/// Takes SHARE UPDATE EXCLUSIVE, which no claim meets.
pub(super) async fn storage(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let values = [
        ("relation", work.relation()),
        ("storage", Sql::list(STORAGE_PARAMETERS)),
    ];
    execute(connection, include_str!("../../../sql/ddl/set_storage.sql"), &values).await
}

/// Takes ACCESS EXCLUSIVE: for tables that nobody uses yet.
pub(super) async fn replica_identity(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let identity = match work.parent.replica_identity {
        // What a table has when it is made.
        ReplicaIdentity::Default if look(connection, work).await?.has_default_replica_identity => return Ok(()),
        ReplicaIdentity::Default => "default",
        ReplicaIdentity::Full => "full",
        ReplicaIdentity::Nothing => "nothing",
        // An index of the inbox's has no counterpart that could be told by its name.
        ReplicaIdentity::Index => return Ok(()),
    };
    let values = [("relation", work.relation()), ("identity", Sql::fixed(identity))];
    execute(
        connection,
        include_str!("../../../sql/ddl/set_replica_identity.sql"),
        &values,
    )
    .await
}

/// The limit of each statement that makes a key again, or a digest. An index on three million random ids took 3 s, and a concurrent build
/// waits for every older snapshot in the database: under the session's own limits a large day, or a report of a few
/// seconds, kept a day without its key for ever, and every claim on it fails meanwhile. Nobody waits for such a build.
pub(crate) const LONGEST_BUILD: Duration = Duration::from_secs(300);

/// Makes the key of a partition again, concurrently. A unique index on exactly the key counts as the key: to make a primary
/// key of it would take ACCESS EXCLUSIVE.
pub(super) async fn key(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let limit = format!("{}ms", LONGEST_BUILD.as_millis());
    let limit = [("limit", Sql::literal(&limit))];
    execute(connection, include_str!("../../../sql/ddl/be_patient.sql"), &limit).await?;
    let built = build_key(connection, work).await;
    let back = execute(connection, include_str!("../../../sql/ddl/be_impatient.sql"), &[]).await;
    built.and(back)
}

async fn build_key(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let name = derive(&work.spec.table, Derived::RepairedKey(work.day()?))?;
    // An interrupted build leaves an invalid index of that name.
    if catalog::is_invalid_index(connection, work.oid()?, &name).await? {
        let index = Sql::in_schema(&work.step.schema, &name);
        execute(
            connection,
            include_str!("../../../sql/ddl/drop_index.sql"),
            &[("index", index)],
        )
        .await?;
    }
    let values = [
        ("index", Sql::ident(&name)),
        ("relation", work.relation()),
        ("columns", key_columns(work.spec.policy.consumers)),
    ];
    execute(connection, include_str!("../../../sql/ddl/create_key.sql"), &values).await
}

async fn look(connection: &mut PgConnection, work: Work<'_>) -> Result<Relation, DbError> {
    let (schema, name) = (&work.step.schema, &work.step.relation);
    let found = catalog::relation_by_name(connection, schema, name).await?;
    found.ok_or_else(|| DbError::noticed(ErrorKind::Missing, format!("{name} is gone")))
}

/// A role as the catalog names it; empty is everybody.
fn role(name: &str) -> Result<Sql, DbError> {
    if name.is_empty() {
        return Ok(Sql::fixed("public"));
    }
    Ident::new(name).map(|name| Sql::ident(&name)).map_err(refused)
}

/// A privilege that a table can carry. Text of the catalog becomes SQL only when we know it.
fn privilege(grant: &Grant) -> Result<Sql, DbError> {
    const KNOWN: &[&str] = &[
        "SELECT",
        "INSERT",
        "UPDATE",
        "DELETE",
        "TRUNCATE",
        "REFERENCES",
        "TRIGGER",
        "MAINTAIN",
    ];
    KNOWN
        .iter()
        .find(|known| **known == grant.privilege)
        .map(|known| Sql::fixed(known))
        .ok_or_else(|| {
            DbError::noticed(
                ErrorKind::Other,
                format!("unknown privilege {:?} on the inbox", grant.privilege),
            )
        })
}
