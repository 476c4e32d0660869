//! A transaction in which a person's decision is written down and put on the audit.

use sqlx::{Connection, PgConnection, Postgres, Transaction};
use uuid::Uuid;

use super::Operator;
use crate::postgres::{
    DbError,
    decisions::{self, AuditRecord},
};

/// A decision in hand. Dropped before [`Audited::commit`], it has changed nothing.
pub(super) struct Audited<'c> {
    transaction: Transaction<'c, Postgres>,
    actor: &'c str,
    doing: &'static str,
}

impl<'c> Audited<'c> {
    /// `doing` is what an error says was being done.
    pub(super) async fn begin(
        connection: &'c mut PgConnection,
        operator: Operator<'c>,
        doing: &'static str,
    ) -> Result<Self, DbError> {
        let transaction = connection.begin().await.map_err(|error| DbError::new(doing, error))?;
        Ok(Self {
            transaction,
            actor: operator.actor.as_str(),
            doing,
        })
    }

    /// What the decision is written on.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }

    /// Puts on the audit who does it, what and why.
    pub(super) async fn audit(
        &mut self,
        action: &str,
        inbox_id: Option<Uuid>,
        reason: Option<&str>,
        detail: serde_json::Value,
    ) -> Result<(), DbError> {
        let record = AuditRecord {
            actor: self.actor,
            action,
            inbox_id,
            reason,
            detail: &detail,
        };
        decisions::audit(&mut self.transaction, record).await
    }

    pub(super) async fn commit(self) -> Result<(), DbError> {
        let Self { transaction, doing, .. } = self;
        transaction.commit().await.map_err(|error| DbError::new(doing, error))
    }
}
