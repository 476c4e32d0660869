//! Applies one step, with bounded retries.

use std::time::{Duration, Instant};

use rand::RngExt;
use sqlx::PgConnection;

use super::report::{StepOutcome, StepReport};
use crate::{
    postgres::{
        DbError, ErrorKind, catalog,
        catalog::Observed,
        ddl::{self, Create},
    },
    pure::{Action, InboxSpec, Step},
};

/// How often a step is tried, and the pause between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// The most tries of one step in one run.
    pub attempts: i32,
    /// The pause after the first failure; it doubles, and each is drawn between half and one and a half of it.
    pub pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        // With a lock timeout of two seconds a step gives up after some seven; the next run is minutes away.
        Self {
            attempts: 3,
            pause: Duration::from_millis(250),
        }
    }
}

impl Retries {
    fn pause_after(self, attempt: i32) -> Duration {
        let doubled = self.pause.saturating_mul(1 << (attempt - 1).clamp(0, 6));
        doubled.mul_f64(rand::rng().random_range(0.5..1.5))
    }
}

/// Applies a step. Only an unreachable database is an error: every other failure is the step's own outcome.
///
/// # Errors
/// When the connection is lost.
pub(super) async fn apply(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    observed: &Observed,
    step: Step,
    retries: Retries,
) -> Result<StepReport, DbError> {
    let begun = Instant::now();
    let mut action = step.action;
    let mut attempts = 0;
    let outcome = loop {
        attempts += 1;
        let error = match attempt(connection, spec, observed, &step, action).await {
            Ok(()) => break StepOutcome::Done,
            Err(error) if error.kind().is_unreachable() => return Err(error),
            Err(error) => error,
        };
        if error.kind() == ErrorKind::Taken && is_there(connection, &step).await? {
            // A lost race: somebody made it meanwhile.
            break StepOutcome::Done;
        }
        if !error.kind().is_retryable() || attempts >= retries.attempts {
            break StepOutcome::Failed {
                kind: error.kind(),
                error: error.to_string(),
            };
        }
        tokio::time::sleep(retries.pause_after(attempts)).await;
        if action == Action::Detach {
            action = what_is_left_of_a_detach(connection, &step).await?;
        }
    };
    let duration_ms = i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX);
    Ok(StepReport {
        step,
        outcome,
        attempts,
        duration_ms,
    })
}

async fn attempt(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    observed: &Observed,
    step: &Step,
    action: Action,
) -> Result<(), DbError> {
    let inbox_id = observed.found.inbox_id;
    match (action, step.day) {
        (Action::Create, Some(day)) => {
            ddl::create(
                connection,
                Create {
                    spec,
                    inbox_id,
                    inbox: &observed.found.inbox,
                    day,
                },
            )
            .await
        }
        (Action::Create, None) => Err(DbError::noticed(ErrorKind::Other, "a partition is created for a day")),
        (Action::Detach, _) => ddl::detach(connection, spec, inbox_id, step).await,
        (Action::Finalize, _) => ddl::finalize(connection, spec, inbox_id, step).await,
        (Action::MarkAttached, _) => ddl::mark_attached(connection, inbox_id, step).await,
        (Action::MarkDetached, _) => ddl::mark_detached(connection, inbox_id, step).await,
        (Action::Drop, _) => ddl::drop_detached(connection, inbox_id, step).await,
    }
}

async fn is_there(connection: &mut PgConnection, step: &Step) -> Result<bool, DbError> {
    let found = catalog::relation_by_name(connection, &step.schema, &step.relation).await?;
    Ok(step.action == Action::Create && found.is_some_and(|relation| relation.is_partition))
}

/// A detach that was cut in its second phase is pending, and only a finalize goes on from there.
async fn what_is_left_of_a_detach(connection: &mut PgConnection, step: &Step) -> Result<Action, DbError> {
    let found = catalog::relation_by_name(connection, &step.schema, &step.relation).await?;
    Ok(match found {
        Some(relation) if relation.is_pending => Action::Finalize,
        Some(relation) if !relation.is_partition => Action::MarkDetached,
        _ => Action::Detach,
    })
}
