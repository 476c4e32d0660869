//! `takeover`: another deployment, or a copy of the database, becomes the manager of its inboxes.

use sqlx::PgConnection;

use crate::{
    postgres::{DbError, ErrorKind, catalog, journal, schema},
    pure::InboxSpec,
};

/// What `takeover` did to one inbox.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Takeover {
    /// Its name.
    pub inbox: String,
    /// The deployment that managed it before.
    pub deployment_before: String,
    /// Whether anything changed: the deployment, or the server's identity.
    pub is_taken: bool,
}

/// Makes this deployment, on this server, the manager of the inboxes. Each is put on the audit.
///
/// # Errors
/// When the server is a standby, an inbox is not on record (the remedy is `inboxd init`), or the database fails. What was
/// taken over before that stays so.
pub async fn takeover(
    connection: &mut PgConnection,
    specs: &[InboxSpec],
    deployment: &str,
) -> Result<Vec<Takeover>, DbError> {
    let server = catalog::server(connection).await?;
    if server.in_recovery {
        return Err(DbError::noticed(
            ErrorKind::ReadOnly,
            "the server is a standby; promote it first",
        ));
    }
    server.must_be_writable()?;
    schema::check(connection).await?;
    let mut taken = Vec::new();
    for spec in specs {
        let Some((deployment_before, is_taken)) = journal::take_over(connection, spec, deployment, &server).await?
        else {
            return Err(DbError::noticed(
                ErrorKind::Missing,
                format!("table {} is no inbox on record; run `inboxd init`", spec.table),
            ));
        };
        taken.push(Takeover {
            inbox: spec.name.clone(),
            deployment_before,
            is_taken,
        });
    }
    Ok(taken)
}
