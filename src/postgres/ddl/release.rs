//! An inbox that is released gets an open end, so that no claim ever fails for want of a partition.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Sql, Work, derive, execute, key_columns, repair};
use crate::{
    postgres::error::{DbError, ErrorKind},
    pure::{Action, Bounds, Day, Derived, Ident, InboxSpec, Parent, Routing, STORAGE_PARAMETERS, Step},
};

/// Makes the partition that takes whatever comes after the last one, in the caller's transaction. It is made as a table of its
/// own and attached, so no claim waits.
pub(crate) async fn open_the_end(
    on: &mut PgConnection,
    spec: &InboxSpec,
    inbox_id: Uuid,
    parent: &Parent,
    from: DateTime<Utc>,
) -> Result<Ident, DbError> {
    let name = derive(&spec.table, Derived::Rest)?;
    let inbox = Sql::table(&spec.table);
    let rest = Sql::in_schema(spec.table.schema(), &name);
    let made = [
        ("partition", rest.clone()),
        ("inbox", inbox.clone()),
        // Nothing drops it whole any more: it is vacuumed as any table.
        ("storage", Sql::list(&STORAGE_PARAMETERS[1..])),
        ("tablespace", Sql::fixed("")),
    ];
    execute(on, include_str!("../../../sql/ddl/create_table.sql"), &made).await?;
    let step = Step {
        day: Some(Day::containing(from)),
        schema: spec.table.schema().clone(),
        relation: name.clone(),
        oid: None,
        action: Action::Create,
        reason: String::new(),
        locks: Vec::new(),
    };
    let work = Work {
        spec,
        inbox_id,
        parent,
        step: &step,
    };
    repair::owner(on, work).await?;
    repair::grants(on, work).await?;
    repair::replica_identity(on, work).await?;
    // In `message_id` routing the attach gives it the parent's key.
    if spec.policy.routing == Routing::ProcessedAt {
        let keyed = [
            ("partition", rest.clone()),
            ("key", Sql::ident(&derive(&spec.table, Derived::RestKey)?)),
            ("columns", key_columns(spec.policy.consumers)),
        ];
        execute(on, include_str!("../../../sql/ddl/add_key.sql"), &keyed).await?;
    }
    let day = Day::containing(from);
    if day.start() != from {
        return Err(DbError::noticed(
            ErrorKind::WrongState,
            format!("the last partition ends at {from}, which is no midnight"),
        ));
    }
    let [from, _] = Bounds::ends(day, spec.policy.routing);
    let values = [("inbox", inbox), ("partition", rest), ("from", Sql::literal(&from))];
    execute(on, include_str!("../../../sql/ddl/release/attach_rest.sql"), &values).await?;
    Ok(name)
}
