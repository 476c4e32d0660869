//! All DDL. Every statement that changes the catalog is made and run here, from a template in `sql/ddl`.
//!
//! The invariant it keeps: nothing here makes a claim wait. Partitions are made as tables of their own and attached, taken
//! out concurrently, and dropped only when they are part of nothing.

mod adopt;
mod digest;
mod drain;
mod exchange;
mod functions;
mod inbox;
mod leaving;
mod looks;
mod partition;
mod release;
mod repair;
mod seal;

use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

pub(crate) use self::repair::LONGEST_BUILD;
pub(crate) use self::{
    adopt::{add_checks, be_brief, drop_checks, partman_looks_after, unchecked, validate},
    digest::build as build_digest,
    drain::{Drained, drain},
    exchange::{Exchange, exchange, make_parent},
    release::open_the_end,
};
pub use self::{
    digest::drop_slots,
    functions::{has_functions, install_functions},
    inbox::{create_control_schema, create_inbox, grant_roles},
};
use super::error::{DbError, Doing, ErrorKind};
use crate::pure::{
    Action, Consumers, Day, Derived, Ident, IdentError, InboxSpec, Parent, Sql, Step, TableName, render,
};

/// What a step is performed on.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    /// The inbox.
    pub spec: &'a InboxSpec,
    /// Its identity.
    pub inbox_id: Uuid,
    /// What its partitions have in common with its table.
    pub parent: &'a Parent,
    /// The step.
    pub step: &'a Step,
}

/// Performs an action on the partition of a step: the step's own action, or what is left of it after a failure.
///
/// # Errors
/// When a statement fails, or the table is no longer the one that was planned for. Nothing is left half done but a detach,
/// which may be pending; `finalize` goes on from there.
pub async fn perform(connection: &mut PgConnection, work: Work<'_>, action: Action) -> Result<(), DbError> {
    match action {
        Action::Create => partition::create(connection, work).await,
        Action::Attach => partition::attach(connection, work).await,
        Action::MarkAttached => partition::mark_attached(connection, work).await,
        Action::Detach => leaving::detach(connection, work).await,
        Action::Finalize => leaving::finalize(connection, work).await,
        Action::MarkDetached => leaving::mark_detached(connection, work).await,
        Action::Archive => leaving::archive(connection, work).await,
        Action::Drop => leaving::drop_detached(connection, work).await,
        Action::DropDrained => drain::drop_what_is_left(connection, work).await,
        // It comes in parts, and is asked between them whether to stop.
        Action::Drain => Err(DbError::noticed(ErrorKind::Other, "a drain is asked for by its name")),
        Action::RepairMarker => partition::mark_attached(connection, work).await,
        Action::RepairKey => repair::key(connection, work).await,
        Action::RepairOwner => repair::owner(connection, work).await,
        Action::RepairGrants => repair::grants(connection, work).await,
        Action::RepairStorage => repair::storage(connection, work).await,
        Action::Seal => seal::seal(connection, work).await,
        // What it is made of is asked for with it.
        Action::BuildDigest => Err(DbError::noticed(ErrorKind::Other, "a digest is asked for by its name")),
        Action::ClearDigest => digest::clear(connection, work).await,
        Action::RepairReplicaIdentity => repair::replica_identity(connection, work).await,
    }
}

impl Work<'_> {
    /// The partition, ready for SQL text.
    fn relation(&self) -> Sql {
        Sql::in_schema(&self.step.schema, &self.step.relation)
    }

    fn inbox(&self) -> Sql {
        Sql::table(&self.spec.table)
    }

    fn day(&self) -> Result<Day, DbError> {
        self.step.day.ok_or_else(|| {
            DbError::noticed(
                ErrorKind::WrongState,
                format!("{} holds no single day", self.step.relation),
            )
        })
    }

    fn oid(&self) -> Result<u32, DbError> {
        self.step
            .oid
            .ok_or_else(|| DbError::noticed(ErrorKind::WrongState, format!("{} was not found", self.step.relation)))
    }
}

/// Renders and runs one statement.
async fn execute(connection: &mut PgConnection, template: &'static str, values: &[(&str, Sql)]) -> Result<(), DbError> {
    let text = render(template, values);
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

fn key_columns(consumers: Consumers) -> Sql {
    Sql::fixed(match consumers {
        Consumers::One => "message_id",
        Consumers::Many => "message_id, consumer",
    })
}

fn derive(table: &TableName, derived: Derived) -> Result<Ident, DbError> {
    table.derive(derived).map_err(refused)
}

pub(super) fn refused(error: IdentError) -> DbError {
    DbError::noticed(ErrorKind::Other, error.to_string())
}
