//! `GET /v1/runs`: the history of runs, the newest first, a page at a time.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{
    Context, Member,
    extract::Query,
    inboxes::Unreadable,
    openapi::RunsProblems,
    paging::{Asked, Placed, acquire, told},
    problem::Problem,
};
use crate::{
    postgres::history::{self, RunFilter, RunRecord},
    service::{reading::ReadError, status::THE_LOG_SAYS_WHY},
};

/// Which runs.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Those of one database.
    database: Option<String>,
    /// Those that ended like this.
    outcome: Option<RecordedOutcome>,
    /// The most in one answer.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<i64>,
    /// `next_cursor` of the page before.
    #[param(pattern = "^[A-Za-z0-9._~-]+:-?[0-9]{1,18}(,[A-Za-z0-9._~-]+:-?[0-9]{1,18})*$")]
    cursor: Option<String>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordedOutcome {
    /// Every step was done.
    Done,
    /// Some step failed or was left out.
    Partial,
    /// It failed as a whole.
    Failed,
    /// It has not ended, or its process died.
    Running,
}

impl RecordedOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Running => "running",
        }
    }

    fn of(recorded: Option<&str>) -> Self {
        match recorded {
            Some("done") => Self::Done,
            Some("partial") => Self::Partial,
            Some(_) => Self::Failed,
            None => Self::Running,
        }
    }
}

/// A page of the history.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct Runs {
    /// The newest first; within a database in the order in which they ran.
    runs: Vec<Run>,
    /// Asks for the next page; none on the last.
    next_cursor: Option<String>,
    /// Databases that cannot be read; their runs are missing here, and on the next page if they can be read by then.
    unreadable: Vec<Unreadable>,
}

/// One run in one database.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub(super) struct Run {
    /// Its identity. The runs that one request set off in several databases share it.
    pub(super) id: Uuid,
    /// The database.
    pub(super) database: String,
    /// What set it off.
    trigger: String,
    /// The version of the program that ran it.
    version: String,
    /// When it began, by the database's clock.
    started_at: DateTime<Utc>,
    /// When it ended; none while it runs, or when its process died.
    finished_at: Option<DateTime<Utc>>,
    outcome: RecordedOutcome,
    /// Only when it failed as a whole.
    error: Option<String>,
    /// Steps that were done.
    steps_done: i64,
    /// Steps that failed.
    steps_failed: i64,
    /// Steps that were left out.
    steps_skipped: i64,
}

impl Run {
    pub(super) fn of(database: &str, record: RunRecord) -> Self {
        Self {
            id: record.id,
            database: database.to_owned(),
            trigger: record.trigger,
            version: record.version,
            started_at: record.started_at,
            finished_at: record.finished_at,
            outcome: RecordedOutcome::of(record.outcome.as_deref()),
            // What stands on record is what the database said.
            error: record.has_error.then(|| THE_LOG_SAYS_WHY.to_owned()),
            steps_done: record.steps_done,
            steps_failed: record.steps_failed,
            steps_skipped: record.steps_skipped,
        }
    }
}

/// The history of runs, the newest first.
#[utoipa::path(
    get,
    path = "/v1/runs",
    tag = "runs",
    params(Wanted),
    responses((status = 200, description = "A page of runs", body = Runs), RunsProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn runs(State(context): State<Context>, Query(wanted): Query<Wanted>) -> Result<Json<Runs>, Problem> {
    let asked = Asked::of(
        &context,
        wanted.database.as_deref(),
        wanted.limit,
        wanted.cursor.as_deref(),
    )?;
    let looks = asked.members.iter().map(|member| {
        let filter = RunFilter {
            id: None,
            before: asked.before(member),
            outcome: wanted.outcome.map(RecordedOutcome::as_str),
        };
        history_of(&context, member, filter, asked.fetched())
    });
    let looks = futures_util::future::join_all(looks).await;
    let page = asked.page(looks)?;
    let runs = page.records.into_iter();
    Ok(Json(Runs {
        runs: runs.map(|(database, record)| Run::of(&database, record)).collect(),
        next_cursor: page.next_cursor,
        unreadable: page.unreadable,
    }))
}

impl Placed for RunRecord {
    fn at(&self) -> DateTime<Utc> {
        self.started_at
    }

    fn place(&self) -> i64 {
        self.ordinal
    }
}

/// The records of a database's runs, over the connections that only read.
pub(super) async fn history_of(
    context: &Context,
    member: &Member,
    filter: RunFilter<'_>,
    limit: i64,
) -> Result<Vec<RunRecord>, ReadError> {
    let look = async {
        let mut connection = acquire(member).await?;
        crate::postgres::schema::check(&mut connection).await?;
        history::runs(&mut connection, &context.config.deployment, filter, limit).await
    };
    look.await.map_err(|error| told(member, &error))
}
