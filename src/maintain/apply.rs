//! Applies one step, with bounded retries.

use std::time::{Duration, Instant};

use rand::RngExt;
use sqlx::PgConnection;

use super::{
    before_drop,
    pass::PassRequest,
    report::{StepOutcome, StepReport},
};
use crate::{
    postgres::{
        DbError, ErrorKind,
        blockers::{self, WaitsFor},
        catalog,
        catalog::{Observed, Viewer},
        ddl::{self, Drained, Work},
    },
    pure::{Action, FoundInbox, InboxSpec, Step, digest_scope, drain_scope},
};

/// How soon a shutdown is noticed, and how often whoever watches us hears that we do not wait for the database.
const STOP_IS_ASKED_EVERY: Duration = Duration::from_millis(100);

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
    pub(super) fn pause_after(self, attempt: i32) -> Duration {
        self.doubled(attempt).mul_f64(rand::rng().random_range(0.5..1.5))
    }

    /// The longest of its pauses.
    #[cfg(feature = "service")]
    pub(crate) fn longest_pause(self) -> Duration {
        self.doubled(self.attempts).mul_f64(1.5)
    }

    fn doubled(self, attempt: i32) -> Duration {
        self.pause.saturating_mul(1 << (attempt - 1).clamp(0, 6))
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
    request: PassRequest<'_>,
) -> Result<StepReport, DbError> {
    let retries = request.retries;
    let begun = Instant::now();
    let mut action = step.action;
    let (mut attempts, mut retried_for) = (0, Vec::new());
    if let (Action::Drop, Some(hook)) = (action, &spec.before_drop)
        && let Err(error) = before_drop::run(hook, spec, &step, request.stop).await
    {
        let outcome = if (request.stop)() {
            StepOutcome::Skipped { why: error }
        } else {
            StepOutcome::Failed {
                kind: ErrorKind::Other,
                error,
            }
        };
        return Ok(StepReport {
            step,
            outcome,
            attempts: 1,
            retried_for: Vec::new(),
            duration_ms: millis(begun),
        });
    }
    let outcome = loop {
        attempts += 1;
        let done = match action {
            Action::Drain => drain(connection, spec, observed, &step, request).await,
            Action::BuildDigest => build_digest(connection, spec, &step, request.viewer())
                .await
                .map(|()| None),
            _ => attempt(connection, spec, observed, &step, action).await.map(|()| None),
        };
        let error = match done {
            Ok(Some(why)) => break StepOutcome::Skipped { why },
            // A detach that came through as a finalize is not on record yet.
            Ok(None) if step.action == Action::Detach && action == Action::Finalize => {
                action = Action::MarkDetached;
                continue;
            }
            Ok(None) => break StepOutcome::Done,
            Err(error) if error.kind().is_unreachable() => return Err(error),
            Err(error) => error,
        };
        if error.kind() == ErrorKind::Taken && is_there(connection, &step).await? {
            // A lost race: somebody made it meanwhile.
            break StepOutcome::Done;
        }
        let may_go_on = error.kind().is_retryable() && attempts < retries.attempts;
        if !may_go_on || is_stopped_within(retries.pause_after(attempts), request.stop).await {
            break StepOutcome::Failed {
                kind: error.kind(),
                error: format!("{error}{}", in_the_way(connection, spec, &step, &error).await),
            };
        }
        retried_for.push(error.kind());
        if action == Action::Detach {
            action = what_is_left_of_a_detach(connection, &step).await?;
        }
    };
    let duration_ms = millis(begun);
    Ok(StepReport {
        step,
        outcome,
        attempts,
        retried_for,
        duration_ms,
    })
}

/// Who was in the way of a step that could not be done in time, as a clause; nothing where that is not known.
async fn in_the_way(connection: &mut PgConnection, spec: &InboxSpec, step: &Step, error: &DbError) -> String {
    if !matches!(error.kind(), ErrorKind::LockTimeout | ErrorKind::StatementTimeout) {
        return String::new();
    }
    let waits = match step.action {
        Action::Detach | Action::Finalize => WaitsFor::Snapshots,
        Action::Seal => WaitsFor::Writers,
        _ => WaitsFor::Users,
    };
    // Should it fail, that is no reason to say less about the step itself.
    let blockers = blockers::blockers(connection, &spec.table, &step.relation, waits)
        .await
        .unwrap_or_default();
    blockers::clause(&blockers)
}

/// Comes to its end when a shutdown is asked for.
pub(super) async fn asked_to(stop: &(dyn Fn() -> bool + Send + Sync)) {
    while !stop() {
        tokio::time::sleep(STOP_IS_ASKED_EVERY).await;
    }
}

/// Waits; true, and at once, when a shutdown is asked for meanwhile.
async fn is_stopped_within(pause: Duration, stop: &(dyn Fn() -> bool + Send + Sync)) -> bool {
    tokio::time::timeout(pause, asked_to(stop)).await.is_ok()
}

fn millis(since: Instant) -> i64 {
    i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX)
}

async fn attempt(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    observed: &Observed,
    step: &Step,
    action: Action,
) -> Result<(), DbError> {
    ddl::perform(connection, work(spec, observed, step)?, action).await
}

fn work<'a>(spec: &'a InboxSpec, observed: &'a Observed, step: &'a Step) -> Result<Work<'a>, DbError> {
    let FoundInbox::Fit(parent) = &observed.found.inbox else {
        return Err(DbError::noticed(ErrorKind::WrongState, "the inbox does not fit"));
    };
    Ok(Work {
        spec,
        inbox_id: observed.found.inbox_id,
        parent,
        step,
    })
}

/// Goes on with a drain; why it is not finished, if it is not.
async fn drain(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    observed: &Observed,
    step: &Step,
    request: PassRequest<'_>,
) -> Result<Option<String>, DbError> {
    let now = catalog::server(connection).await?.now;
    let scope = drain_scope(now, &spec.policy, &observed.found);
    let drained = ddl::drain(connection, work(spec, observed, step)?, &scope, request.stop).await?;
    Ok(match drained {
        Drained::Whole => None,
        Drained::Unfinished(why) => Some(why),
    })
}

/// Looks once more: days may just have been sealed, and others have left.
async fn build_digest(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    step: &Step,
    viewer: Viewer<'_>,
) -> Result<(), DbError> {
    let gone = |what| DbError::noticed(ErrorKind::WrongState, what);
    let observation = catalog::observe(connection, std::slice::from_ref(spec), viewer).await?;
    let observed = observation.inboxes.first().ok_or_else(|| gone("the inbox is gone"))?;
    let constants = observed
        .made_with
        .as_ref()
        .ok_or_else(|| gone("the claim functions are not known"))?;
    let scope = digest_scope(observation.server.now, &observed.found).ok_or_else(|| gone("yesterday is not sealed"))?;
    ddl::build_digest(connection, work(spec, observed, step)?, constants, &scope).await
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
