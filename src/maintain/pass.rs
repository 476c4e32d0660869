//! One pass over the inboxes of a database.

use sqlx::PgConnection;
use tracing::Instrument;
use uuid::Uuid;

use super::{
    apply::{Retries, apply},
    operate,
    record::{RunRecord, unless_full},
    report::{InboxReport, PassOutcome, PlannedInbox, RunOutcome, RunReport, StepOutcome, StepReport, Trigger},
};
use crate::{
    clock::Clock,
    postgres::{
        DbError,
        catalog::{self, Observation, Observed, Viewer},
        decisions, journal, lock, schema,
    },
    pure::{Action, InboxSpec, Plan, ROUNDS, Step, distrust, plan},
};

/// What a pass is asked to do.
#[derive(Clone, Copy)]
pub struct PassRequest<'a> {
    /// The name under which the replicas manage their inboxes.
    pub deployment: &'a str,
    /// The inboxes of this database.
    pub specs: &'a [InboxSpec],
    /// The replica that runs it; none for a command.
    pub replica: Option<&'a Replica>,
    /// What set it off.
    pub trigger: Trigger,
    /// Whether a person has confirmed that the database's clock is right.
    pub confirm_clock: bool,
    /// How steps are retried.
    pub retries: Retries,
    /// The host's clock.
    pub clock: &'a Clock,
    /// Asked between steps, and ten times a second while something else than the database is waited for: once true, the step
    /// in hand has been the last.
    pub stop: &'a (dyn Fn() -> bool + Send + Sync),
}

/// A process that runs passes again and again. While it counts as alive, its configuration is heeded by the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    id: Uuid,
    host: String,
    /// How long a heartbeat is good for, in seconds: until the next pass is due, and some.
    alive_for_seconds: i64,
}

impl Replica {
    /// A replica that has just started on a host, and runs a pass at least every `period`.
    #[must_use]
    pub fn new(host: impl Into<String>, period: chrono::TimeDelta) -> Self {
        let alive_for_seconds = period.num_seconds().saturating_mul(2).saturating_add(60);
        Self {
            id: random_uuid(),
            host: host.into(),
            alive_for_seconds,
        }
    }

    /// Takes it off the record when it ends, so that its configuration is no longer heeded.
    ///
    /// # Errors
    /// When the database fails; it then counts as gone once its heartbeat is old.
    pub async fn goodbye(&self, connection: &mut PgConnection) -> Result<(), DbError> {
        journal::goodbye(connection, self.id).await
    }
}

/// A random UUID of version 4.
pub(crate) fn random_uuid() -> Uuid {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid()
}

impl PassRequest<'_> {
    pub(super) fn viewer(&self) -> Viewer<'_> {
        Viewer {
            deployment: self.deployment,
            replica: self.replica.map(|replica| replica.id),
            host_now: self.clock.now(),
        }
    }
}

impl std::fmt::Debug for PassRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PassRequest")
            .field("deployment", &self.deployment)
            .field("trigger", &self.trigger)
            .finish_non_exhaustive()
    }
}

/// What a run would do now to each inbox. Reads only.
///
/// # Errors
/// When the database fails, or its control schema is missing or of another version.
pub async fn plan_all(
    connection: &mut PgConnection,
    specs: &[InboxSpec],
    deployment: &str,
    clock: &Clock,
) -> Result<(Observation, Vec<PlannedInbox>), DbError> {
    schema::check(connection).await?;
    let observation = catalog::observe(
        connection,
        specs,
        Viewer {
            deployment,
            replica: None,
            host_now: clock.now(),
        },
    )
    .await?;
    let planned = plans(specs, &observation)
        .zip(specs)
        .map(|(plan, spec)| PlannedInbox {
            inbox: spec.name.clone(),
            table: spec.table.clone(),
            plan,
        })
        .collect();
    Ok((observation, planned))
}

fn plans(specs: &[InboxSpec], observation: &Observation) -> impl Iterator<Item = Plan> {
    let now = observation.server.now;
    specs
        .iter()
        .zip(&observation.inboxes)
        .map(move |(spec, observed)| plan(now, &spec.policy, &observed.found))
}

/// Runs one pass: lock, observe, plan, apply step by step, record.
///
/// The connection is the pass's own, with the settings of [`crate::postgres::session_options`]: the run lock lives on it.
/// This future is never to be dropped half-way; ask it to stop through [`PassRequest::stop`] and await it.
///
/// # Errors
/// When the database cannot be reached or cut us off, or the control schema is not of our version. A step that fails is
/// no error: the run is then partial, and the next one heals it.
pub async fn run_pass(connection: &mut PgConnection, request: PassRequest<'_>) -> Result<PassOutcome, DbError> {
    run_pass_as(connection, request, random_uuid()).await
}

/// The same with an identity that the caller knows before it begins. It must be new to the database.
///
/// # Errors
/// As [`run_pass`].
pub async fn run_pass_as(
    connection: &mut PgConnection,
    request: PassRequest<'_>,
    id: Uuid,
) -> Result<PassOutcome, DbError> {
    let server = catalog::server(connection).await?;
    if server.in_recovery {
        return Ok(PassOutcome::Standby);
    }
    server.must_be_writable()?;
    schema::check(connection).await?;
    if let Some(replica) = request.replica {
        let heartbeat = journal::heartbeat(
            connection,
            replica.id,
            request.deployment,
            &replica.host,
            replica.alive_for_seconds,
            request.specs,
        )
        .await;
        unless_full(heartbeat)?;
    }
    let paused = operate::paused(connection, request.deployment).await?;
    if let (Some(pause), false) = (&paused, request.trigger == Trigger::Manual) {
        return Ok(PassOutcome::Paused(pause.clone()));
    }
    if let Err(holder) = lock::try_lock(connection).await? {
        return Ok(PassOutcome::Busy { holder });
    }
    let report = locked_pass(connection, request, id).await;
    if let Err(error) = &report {
        // Where the connection is gone this fails as well, and the run stays without an end.
        let _ = journal::run_finished(connection, id, "failed", Some(&error.to_string())).await;
    }
    // A lost connection has given the lock back already; its error is the one to report.
    let released = lock::release(connection).await;
    let report = report?;
    released?;
    Ok(PassOutcome::Ran(RunReport { paused, ..report }))
}

async fn locked_pass(connection: &mut PgConnection, request: PassRequest<'_>, id: Uuid) -> Result<RunReport, DbError> {
    let PassRequest { specs, trigger, .. } = request;
    let mut record = RunRecord::new(id, request);
    let recorded_from = record.begin(connection).await?;
    if request.confirm_clock {
        journal::confirm_clock(connection, None).await?;
    }
    let mut observation = catalog::observe(connection, specs, request.viewer()).await?;
    let started_at = recorded_from.unwrap_or(observation.server.now);
    let mut planned: Vec<Plan> = plans(specs, &observation).collect();
    let mut steps: Vec<Vec<StepReport>> = specs.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        let first = steps.iter().map(Vec::len).sum();
        let done = apply_plans(connection, request, &mut record, first, &observation, &planned).await?;
        if done.iter().all(Vec::is_empty) {
            break;
        }
        for (observed, done) in observation.inboxes.iter().zip(&done) {
            if is_used_up(observed, done) {
                decisions::use_drops(connection, observed.found.inbox_id).await?;
            }
        }
        observation = catalog::observe(connection, specs, request.viewer()).await?;
        planned = plans(specs, &observation).collect();
        let looks_again = done
            .iter()
            .flatten()
            .any(|report| report.step.action.asks_for_another_look() && report.outcome == StepOutcome::Done);
        for (all, done) in steps.iter_mut().zip(done) {
            all.extend(done);
        }
        if !looks_again {
            break;
        }
    }
    if clock_is_trusted(specs, &observation) {
        unless_full(journal::trust_clock(connection, observation.server.now).await)?;
    }
    let whole = steps.iter().flatten().all(|step| step.outcome == StepOutcome::Done);
    let outcome = if whole { RunOutcome::Done } else { RunOutcome::Partial };
    let finished_at = record
        .finish(connection, outcome)
        .await?
        .unwrap_or(observation.server.now);
    let inboxes = specs
        .iter()
        .zip(steps)
        .zip(planned)
        .map(|((spec, steps), after)| InboxReport {
            inbox: spec.name.clone(),
            steps,
            after,
        })
        .collect();
    Ok(RunReport {
        id,
        trigger,
        started_at,
        finished_at,
        outcome,
        inboxes,
        paused: None,
    })
}

/// Whether all is done that a person had confirmed beyond the cap. While some of it has failed, the next run may go on.
fn is_used_up(observed: &Observed, done: &[StepReport]) -> bool {
    let confirmed = &observed.found.confirmed;
    let of_confirmed = |report: &&StepReport| {
        let days = match report.step.action {
            Action::Detach => &confirmed.detach,
            Action::Drop => &confirmed.drop,
            _ => return false,
        };
        report.step.day.is_some_and(|day| days.contains(&day))
    };
    let mut steps = done.iter().filter(of_confirmed).peekable();
    steps.peek().is_some() && steps.all(|report| report.outcome == StepOutcome::Done)
}

/// Asked of every inbox, also of those that this run leaves alone: a run for another deployment, or on a copy, must not
/// vouch for a clock that it never had a reason to look at.
fn clock_is_trusted(specs: &[InboxSpec], observation: &Observation) -> bool {
    specs
        .iter()
        .zip(&observation.inboxes)
        .all(|(spec, observed)| distrust(observation.server.now, &spec.policy, observed.found.clocks).is_none())
}

/// What keeps claims alive comes before what mends, and that before what takes away, over all inboxes.
const PHASES: [&[Action]; 3] = [
    &[
        Action::Finalize,
        Action::MarkAttached,
        Action::Drain,
        Action::Create,
        Action::Attach,
    ],
    &[
        Action::RepairMarker,
        Action::RepairKey,
        Action::RepairGrants,
        Action::RepairStorage,
        Action::RepairOwner,
        Action::RepairReplicaIdentity,
        Action::Seal,
        Action::BuildDigest,
        Action::ClearDigest,
    ],
    &[
        Action::Detach,
        Action::MarkDetached,
        Action::Archive,
        Action::Drop,
        Action::DropDrained,
    ],
];

async fn apply_plans(
    connection: &mut PgConnection,
    request: PassRequest<'_>,
    record: &mut RunRecord<'_>,
    first: usize,
    observation: &Observation,
    plans: &[Plan],
) -> Result<Vec<Vec<StepReport>>, DbError> {
    let mut reports: Vec<Vec<StepReport>> = plans.iter().map(|_| Vec::new()).collect();
    let mut ordinal = i32::try_from(first).unwrap_or(i32::MAX);
    for phase in PHASES {
        for (index, plan) in plans.iter().enumerate() {
            let (spec, observed) = (&request.specs[index], &observation.inboxes[index]);
            for step in plan.steps.iter().filter(|step| phase.contains(&step.action)) {
                let why_not = why_skip(request, &reports[index], step);
                ordinal += 1;
                let (action, relation) = (step.action.as_str(), step.relation.as_str());
                let span = tracing::info_span!("step", inbox = spec.name, action, relation);
                let taken = async {
                    let report = match why_not {
                        Some(why) => StepReport {
                            step: step.clone(),
                            outcome: StepOutcome::Skipped { why },
                            attempts: 0,
                            retried_for: Vec::new(),
                            duration_ms: 0,
                        },
                        None => apply(connection, spec, observed, step.clone(), request).await?,
                    };
                    record.step(connection, ordinal, observed, &report).await?;
                    log_step(&spec.name, &report);
                    Ok(report)
                };
                reports[index].push(taken.instrument(span).await?);
            }
        }
    }
    Ok(reports)
}

/// Why a step is left out of this run, if it is.
fn why_skip(request: PassRequest<'_>, before: &[StepReport], step: &Step) -> Option<String> {
    if (request.stop)() {
        return Some("the service is shutting down".to_owned());
    }
    if step.action == Action::Seal {
        // No day before one that is older.
        let open = before
            .iter()
            .find(|report| report.step.action == Action::Seal && report.outcome != StepOutcome::Done)?;
        return Some(format!("{} could not be sealed, which is older", open.step.relation));
    }
    if step.action == Action::BuildDigest {
        let open = before
            .iter()
            .find(|report| report.step.action == Action::Seal && report.outcome != StepOutcome::Done)?;
        return Some(format!("{} could not be sealed", open.step.relation));
    }
    let unfinished = before.iter().find(|report| {
        matches!(report.step.action, Action::Finalize | Action::Detach)
            && matches!(report.outcome, StepOutcome::Failed { .. })
    })?;
    (step.action == Action::Detach).then(|| {
        format!(
            "the detach of {} is not finished, and PostgreSQL allows one at a time",
            unfinished.step.relation
        )
    })
}

fn log_step(inbox: &str, report: &StepReport) {
    let StepReport {
        step,
        outcome,
        attempts,
        duration_ms,
        ..
    } = report;
    let (action, relation, reason) = (step.action.as_str(), step.relation.as_str(), step.reason.as_str());
    match outcome {
        StepOutcome::Done => tracing::info!(
            inbox,
            relation,
            action,
            reason,
            duration_ms,
            attempts,
            "{action} {relation}: done"
        ),
        StepOutcome::Failed { kind, error } => {
            tracing::warn!(
                inbox,
                relation,
                action,
                reason,
                kind = kind.as_str(),
                error,
                attempts,
                duration_ms,
                "{action} {relation}: failed"
            );
        }
        StepOutcome::Skipped { why } => tracing::info!(inbox, relation, action, why, "{action} {relation}: left out"),
    }
}
