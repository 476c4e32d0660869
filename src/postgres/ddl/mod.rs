//! All DDL. Every statement that changes the catalog is made and run here, from a template in `sql/ddl`.
//!
//! The invariant it keeps: nothing here makes a claim wait. Partitions are made as tables of their own and attached, taken
//! out concurrently, and dropped only when they are part of nothing.

mod functions;
mod inbox;
mod partition;
mod template;

use sqlx::{AssertSqlSafe, PgConnection};

pub(crate) use self::template::Sql;
pub use self::{
    functions::install_functions,
    inbox::{create_control_schema, create_inbox, grant_roles},
    partition::{Create, create, detach, drop_detached, finalize, mark_attached, mark_detached},
};
use super::error::{DbError, Doing};

/// Renders and runs one statement.
async fn execute(connection: &mut PgConnection, template: &'static str, values: &[(&str, Sql)]) -> Result<(), DbError> {
    let text = template::render(template, values);
    // The simple protocol: one round trip, no prepared statement left behind.
    sqlx::raw_sql(AssertSqlSafe(text))
        .execute(connection)
        .await
        .doing(|| first_comment(template))?;
    Ok(())
}

/// What a template does, from the comment that it begins with.
fn first_comment(template: &'static str) -> String {
    template
        .lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches("-- inboxd: ")
        .to_owned()
}
