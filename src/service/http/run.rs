//! `GET /v1/runs/{id}`: one run with its steps, in each database where it ran.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{
    Context, Member,
    extract::Path,
    inboxes::Unreadable,
    openapi::RunProblems,
    paging::{acquire, told},
    problem::{Problem, ProblemType},
    requested::Elsewhere,
    runs::{Run, history_of},
};
use crate::{
    postgres::history::{self, RecordedStep, RunFilter},
    pure::Day,
    service::reading::ReadError,
};

/// A run, wherever it ran.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct OneRun {
    id: Uuid,
    /// One for each database in which it has begun.
    runs: Vec<RunWithSteps>,
    /// Databases in which it was asked for and did not begin, or not yet.
    elsewhere: Vec<Elsewhere>,
    /// Databases that cannot be read; it may have run there too.
    unreadable: Vec<Unreadable>,
}

/// A run in one database.
#[derive(serde::Serialize, utoipa::ToSchema)]
struct RunWithSteps {
    #[serde(flatten)]
    run: Run,
    /// In the order in which they were done.
    steps: Vec<RunStep>,
}

/// One step of a run.
#[derive(serde::Serialize, utoipa::ToSchema)]
struct RunStep {
    /// Its place in the run, from 1.
    ordinal: i32,
    /// The inbox; none when it is configured no more.
    inbox: Option<String>,
    /// The day that it was about.
    day: Option<Day>,
    /// The partition.
    relation: String,
    /// What was done.
    action: String,
    /// Why.
    reason: String,
    /// `done`, `failed` or `skipped`.
    outcome: String,
    /// What kind of error it ended with; the log says more.
    error_kind: Option<String>,
    /// How often it was tried.
    attempts: i32,
    /// When it began, by the database's clock.
    started_at: DateTime<Utc>,
    /// How long it took, in milliseconds.
    duration_ms: i64,
}

impl RunStep {
    fn of(member: &Member, step: RecordedStep) -> Self {
        let spec = step
            .table
            .and_then(|table| member.database.inboxes.iter().find(|spec| spec.table == table));
        Self {
            ordinal: step.ordinal,
            inbox: spec.map(|spec| spec.name.clone()),
            day: step.day,
            relation: step.relation,
            action: step.action,
            reason: step.reason,
            outcome: step.outcome,
            error_kind: step.error_kind,
            attempts: step.attempts,
            started_at: step.started_at,
            duration_ms: step.duration_ms,
        }
    }
}

/// One run with its steps. A run that was asked for here and has not begun is known as well.
#[utoipa::path(
    get,
    path = "/v1/runs/{id}",
    tag = "runs",
    params(("id" = Uuid, Path, description = "The run's identity")),
    responses((status = 200, description = "The run", body = OneRun), RunProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn run(State(context): State<Context>, Path(id): Path<Uuid>) -> Result<Json<OneRun>, Problem> {
    let looks = context.members.iter().map(|member| find(&context, member, id));
    let looks = futures_util::future::join_all(looks).await;
    let mut elsewhere = context.requested.elsewhere(id).unwrap_or_default();
    let (mut runs, mut unreadable) = (Vec::new(), Vec::new());
    for (member, look) in context.members.iter().zip(looks) {
        match look {
            Ok(found) => runs.extend(found),
            Err(error) => unreadable.push(Unreadable {
                database: member.database.name.clone(),
                error: error.message,
            }),
        }
    }
    elsewhere.retain(|not_run| runs.iter().all(|found| found.run.database != not_run.database));
    match unreadable.first() {
        _ if !(runs.is_empty() && elsewhere.is_empty()) => Ok(Json(OneRun {
            id,
            runs,
            elsewhere,
            unreadable,
        })),
        // It may be in the one that cannot be read.
        Some(first) => Err(Problem::unavailable(first.error.clone())),
        None => Err(Problem::new(
            ProblemType::RunNotFound,
            "it is unknown, or no longer on record",
        )),
    }
}

async fn find(context: &Context, member: &Member, id: Uuid) -> Result<Option<RunWithSteps>, ReadError> {
    let filter = RunFilter {
        id: Some(id),
        ..RunFilter::default()
    };
    let Some(record) = history_of(context, member, filter, 1).await?.pop() else {
        return Ok(None);
    };
    let look = async { history::steps(&mut *acquire(member).await?, id).await };
    let steps = look.await.map_err(|error| told(member, &error))?;
    Ok(Some(RunWithSteps {
        run: Run::of(&member.database.name, record),
        steps: steps.into_iter().map(|step| RunStep::of(member, step)).collect(),
    }))
}
