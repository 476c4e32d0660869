//! The control schema and the inbox tables: made by `init`, and by nothing else.

use sqlx::PgConnection;

use super::{Sql, derive, execute, functions::signature, key_columns, refused};
use crate::{
    postgres::error::DbError,
    pure::{Consumers, Derived, Function, Ident, InboxSpec, Routing},
};

/// Makes the control schema.
///
/// # Errors
/// `Taken` when it is there already.
pub async fn create_control_schema(connection: &mut PgConnection) -> Result<(), DbError> {
    execute(connection, include_str!("../../../sql/ddl/create_schema.sql"), &[]).await
}

/// Makes an inbox's table, without partitions, and gives it its owner.
///
/// # Errors
/// When a statement fails; the caller rolls back.
pub async fn create_inbox(connection: &mut PgConnection, spec: &InboxSpec, owner: &Ident) -> Result<(), DbError> {
    let many = spec.policy.consumers == Consumers::Many;
    // Only where the partition key is part of it can the parent carry the key; else each partition has its own.
    let key = match spec.policy.routing {
        Routing::ProcessedAt => Sql::fixed(""),
        Routing::MessageId => Sql::of(
            ",\n  constraint {{name}} primary key ({{columns}})",
            &[
                ("name", Sql::ident(&derive(&spec.table, Derived::InboxKey)?)),
                ("columns", key_columns(spec.policy.consumers)),
            ],
        ),
    };
    let inbox = Sql::table(&spec.table);
    execute(
        connection,
        include_str!("../../../sql/ddl/create_inbox.sql"),
        &[
            ("inbox", inbox.clone()),
            (
                "consumer_definition",
                Sql::fixed(if many { ",\n  consumer text not null" } else { "" }),
            ),
            ("key_definition", key),
            ("column", Sql::fixed(spec.policy.routing.column())),
        ],
    )
    .await?;
    execute(
        connection,
        include_str!("../../../sql/ddl/set_owner.sql"),
        &[("relation", inbox), ("role", Sql::ident(owner))],
    )
    .await
}

/// Gives consumers the claims, admins the forget, and the owner what a forget needs to leave its trace.
///
/// # Errors
/// When a statement fails, for example because a role does not exist; the caller rolls back.
pub async fn grant_roles(connection: &mut PgConnection, spec: &InboxSpec, owner: &Ident) -> Result<(), DbError> {
    let claims = [Function::Claim, Function::TryClaim, Function::ClaimBatch];
    for (roles, functions) in [
        (&spec.consumer_roles, &claims[..]),
        (&spec.admin_roles, &[Function::Forget][..]),
    ] {
        for role in roles {
            grant_usage(connection, spec.table.schema(), role).await?;
            for function in functions {
                let values = [("function", signature(spec, *function)?), ("role", Sql::ident(role))];
                execute(connection, include_str!("../../../sql/ddl/grant_execute.sql"), &values).await?;
            }
        }
    }
    let control = Ident::new("inboxd").map_err(refused)?;
    grant_usage(connection, &control, owner).await?;
    execute(
        connection,
        include_str!("../../../sql/ddl/grant_audit.sql"),
        &[("role", Sql::ident(owner))],
    )
    .await
}

async fn grant_usage(connection: &mut PgConnection, schema: &Ident, role: &Ident) -> Result<(), DbError> {
    let values = [("schema", Sql::ident(schema)), ("role", Sql::ident(role))];
    execute(connection, include_str!("../../../sql/ddl/grant_usage.sql"), &values).await
}
