//! The control schema: its migrations, with their ledger inside that schema.

use std::borrow::Cow;

use sqlx::{
    PgConnection, SqlSafeStr,
    migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator},
};

use super::{
    ddl,
    error::{DbError, Doing, ErrorKind},
};

/// The ledger of our migrations; the host application's own stays untouched.
const LEDGER: &str = "inboxd.migrations";

/// Every migration, in order: version, what it is, and its text.
const MIGRATIONS: &[(i64, &str, &str)] = &[(
    1,
    "control schema",
    include_str!("../../migrations/0001_control_schema.sql"),
)];

/// The version of the control schema that this build works with.
pub const SCHEMA_VERSION: i64 = MIGRATIONS[MIGRATIONS.len() - 1].0;

fn migrator() -> Migrator {
    let migrations = MIGRATIONS
        .iter()
        .map(|(version, what, sql)| {
            Migration::new(
                *version,
                Cow::Borrowed(*what),
                MigrationType::Simple,
                sql.into_sql_str(),
                false,
            )
        })
        .collect();
    let mut migrator = Migrator::with_migrations(migrations);
    migrator.dangerous_set_table_name(LEDGER);
    migrator
}

/// Makes the control schema, or brings it up to this build's version. Harmless when there is nothing to do.
///
/// # Errors
/// When a newer version made it (the remedy is a newer inboxd), or a statement fails.
pub async fn migrate(connection: &mut PgConnection) -> Result<(), DbError> {
    if version(connection).await?.is_none() {
        match ddl::create_control_schema(connection).await {
            // Another init was faster, or it stands there empty.
            Err(error) if error.kind() == ErrorKind::Taken => {}
            other => other?,
        }
    }
    migrator()
        .run_direct(None, connection, false)
        .await
        .map_err(|error| match error {
            MigrateError::VersionMissing(version) => newer(version),
            MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => {
                DbError::new("migrate the control schema", source)
            }
            other => DbError::noticed(ErrorKind::Other, format!("migrate the control schema: {other}")),
        })
}

/// Makes sure that the control schema is of this build's version, and changes nothing.
///
/// # Errors
/// When it is missing or older (the remedy is `inboxd init`), or newer (the remedy is a newer inboxd).
pub async fn check(connection: &mut PgConnection) -> Result<(), DbError> {
    match version(connection).await? {
        Some(version) if version == SCHEMA_VERSION => Ok(()),
        Some(version) if version > SCHEMA_VERSION => Err(newer(version)),
        Some(version) => Err(DbError::noticed(
            ErrorKind::Missing,
            format!(
                "the control schema is of version {version}, this inboxd needs {SCHEMA_VERSION}; run `inboxd init`"
            ),
        )),
        None => Err(DbError::noticed(
            ErrorKind::Missing,
            "the database has no control schema \"inboxd\"; run `inboxd init`",
        )),
    }
}

fn newer(version: i64) -> DbError {
    DbError::noticed(
        ErrorKind::Other,
        format!(
            "the control schema is of version {version}, newer than the {SCHEMA_VERSION} of this inboxd; install the newer inboxd"
        ),
    )
}

/// The version of the control schema; none when there is none.
///
/// # Errors
/// When the database fails.
pub async fn version(connection: &mut PgConnection) -> Result<Option<i64>, DbError> {
    let there: bool = sqlx::query_scalar(include_str!("../../sql/observe/control_schema.sql"))
        .fetch_one(&mut *connection)
        .await
        .doing(|| "look for the control schema".to_owned())?;
    if !there {
        return Ok(None);
    }
    let doing = "read the migrations of the control schema";
    let applied = connection
        .list_applied_migrations(LEDGER)
        .await
        .map_err(|error| match error {
            MigrateError::Execute(source) => DbError::new(doing, source),
            other => DbError::noticed(ErrorKind::Other, format!("{doing}: {other}")),
        })?;
    Ok(applied.iter().map(|migration| migration.version).max())
}
