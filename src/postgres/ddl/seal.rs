//! A day takes no row any more.

use sqlx::{Acquire, PgConnection};

use super::{Sql, Work, execute, functions::qualified};
use crate::{
    postgres::{
        catalog,
        error::{DbError, Doing, ErrorKind},
    },
    pure::Function,
};

/// Seals a day with a trigger. Its lock conflicts with that of every transaction that has inserted into the day, which is held
/// until it ends, prepared or not, and with no reader's. So once this has committed, all rows of the day are there for every
/// later snapshot, and whoever inserts later finds the trigger.
///
/// It fires also for what a subscription applies: a row in silence would be one that claims do not look for.
pub(super) async fn seal(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let day = Sql::literal(&work.day()?.to_string());
    let function = qualified(work.spec, Function::Sealed)?;
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    let on = &mut *transaction;
    let values = [("relation", work.relation()), ("function", function), ("day", day)];
    execute(on, include_str!("../../../sql/ddl/seal.sql"), &values).await?;
    execute(on, include_str!("../../../sql/ddl/enable_seal.sql"), &values[..1]).await?;
    // Under the lock, so that it still is when this commits.
    let found = catalog::relation(on, work.oid()?, &work.step.schema, &work.step.relation).await?;
    if found.is_none_or(|relation| !relation.is_partition) {
        let name = &work.step.relation;
        return Err(DbError::noticed(
            ErrorKind::WrongState,
            format!("{name} is not the partition that was planned for any more"),
        ));
    }
    transaction.commit().await.doing(|| "commit the seal".to_owned())
}
