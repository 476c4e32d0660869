//! What a run leaves on record.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    pass::PassRequest,
    report::{RunOutcome, StepOutcome, StepReport},
};
use crate::postgres::{DbError, ErrorKind, catalog::Observed, journal};

/// The record of one run.
///
/// On a full disk a run goes on without, for what it drops is what gives room again; from then on it is on record.
#[derive(Debug)]
pub(super) struct RunRecord<'a> {
    id: Uuid,
    request: PassRequest<'a>,
    started_at: Option<DateTime<Utc>>,
}

impl<'a> RunRecord<'a> {
    pub(super) fn new(id: Uuid, request: PassRequest<'a>) -> Self {
        Self {
            id,
            request,
            started_at: None,
        }
    }

    /// When it began, by the database's clock; none while it could not be recorded.
    pub(super) async fn begin(&mut self, connection: &mut PgConnection) -> Result<Option<DateTime<Utc>>, DbError> {
        if self.started_at.is_none() {
            let (deployment, trigger) = (self.request.deployment, self.request.trigger.as_str());
            let started = journal::run_started(connection, self.id, deployment, trigger).await;
            self.started_at = unless_full(started)?;
        }
        Ok(self.started_at)
    }

    pub(super) async fn step(
        &mut self,
        connection: &mut PgConnection,
        ordinal: i32,
        observed: &Observed,
        report: &StepReport,
    ) -> Result<(), DbError> {
        if self.begin(connection).await?.is_none() {
            return Ok(());
        }
        let (outcome, error_kind, error) = match &report.outcome {
            StepOutcome::Done => ("done", None, None),
            StepOutcome::Failed { kind, error } => ("failed", Some(kind.as_str()), Some(error.as_str())),
            StepOutcome::Skipped { why } => ("skipped", None, Some(why.as_str())),
        };
        let record = journal::StepRecord {
            ordinal,
            inbox_id: observed.found.inbox_id,
            step: &report.step,
            outcome,
            error_kind,
            error,
            attempts: report.attempts,
            duration_ms: report.duration_ms,
        };
        unless_full(journal::record_step(connection, self.id, record).await)?;
        Ok(())
    }

    /// When it ended; none where that could not be recorded.
    pub(super) async fn finish(
        &mut self,
        connection: &mut PgConnection,
        outcome: RunOutcome,
    ) -> Result<Option<DateTime<Utc>>, DbError> {
        if self.begin(connection).await?.is_none() {
            return Ok(None);
        }
        unless_full(journal::run_finished(connection, self.id, outcome.as_str(), None).await)
    }
}

/// What could not be put on record because the disk is full is told in the log, and is no reason to stop.
pub(super) fn unless_full<T>(recorded: Result<T, DbError>) -> Result<Option<T>, DbError> {
    match recorded {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::DiskFull => {
            tracing::warn!(%error, "the disk is full: a run goes on without its record");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
