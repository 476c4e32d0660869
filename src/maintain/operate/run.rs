//! A person asks for a run: who did is put on the audit before it begins. The run itself is a pass like any other.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{OperateError, Operator, writable};
use crate::{postgres::decisions, pure::InboxSpec};

/// Puts on the audit who asks for a run, of all inboxes of the database or of one.
///
/// # Errors
/// As every act.
pub async fn run_asked_for(
    connection: &mut PgConnection,
    operator: Operator<'_>,
    run: Uuid,
    spec: Option<&InboxSpec>,
) -> Result<(), OperateError> {
    writable(connection).await?;
    let table = spec.map(|spec| &spec.table);
    decisions::run_asked_for(connection, operator.actor.as_str(), operator.deployment, table, run).await?;
    Ok(())
}
