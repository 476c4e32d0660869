//! `GET /v1/runs`: the history of runs, the newest first, a page at a time.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{
    Context, Member,
    extract::Query,
    inboxes::Unreadable,
    openapi::RunsProblems,
    problem::{Problem, ProblemType},
};
use crate::{
    postgres::{
        DbError, ErrorKind,
        history::{self, RunFilter, RunRecord},
    },
    service::{reading::ReadError, status::THE_LOG_SAYS_WHY},
};

const DEFAULT_LIMIT: i64 = 50;
const LARGEST_LIMIT: i64 = 500;

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
    let limit = wanted.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=LARGEST_LIMIT).contains(&limit) {
        return Err(bad(format!("limit must be from 1 to {LARGEST_LIMIT}")));
    }
    let members: Vec<&Member> = context
        .members
        .iter()
        .filter(|member| {
            wanted
                .database
                .as_ref()
                .is_none_or(|name| member.database.name == *name)
        })
        .collect();
    if members.is_empty() {
        let detail = "see /v1/status for those that are configured";
        return Err(Problem::new(ProblemType::DatabaseNotFound, detail));
    }
    let mut places = match &wanted.cursor {
        None => BTreeMap::new(),
        Some(text) => read_cursor(text).ok_or_else(|| bad("the cursor is none that this API gave".to_owned()))?,
    };
    let looks = members.iter().map(|member| {
        let filter = RunFilter {
            id: None,
            before: places.get(member.database.name.as_str()).copied(),
            outcome: wanted.outcome.map(RecordedOutcome::as_str),
        };
        // One more than fits tells whether there is a next page.
        history_of(&context, member, filter, limit + 1)
    });
    let looks = futures_util::future::join_all(looks).await;
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for (member, look) in members.iter().zip(looks) {
        let database = member.database.name.clone();
        match look {
            Ok(records) => found.push((database, records.into_iter().peekable())),
            Err(error) => unreadable.push(Unreadable {
                database,
                error: error.message,
            }),
        }
    }
    if let (true, Some(first)) = (found.is_empty(), unreadable.first()) {
        return Err(Problem::unavailable(first.error.clone()));
    }
    let mut runs = Vec::new();
    let has_more = loop {
        let newest = found
            .iter_mut()
            .filter_map(|(database, records)| Some((records.peek()?.started_at, database.clone())))
            .max();
        let Some((_, newest)) = newest else { break false };
        if i64::try_from(runs.len()).is_ok_and(|count| count == limit) {
            break true;
        }
        for (database, records) in found.iter_mut().filter(|(database, _)| *database == newest) {
            if let Some(record) = records.next() {
                places.insert(database.clone(), record.ordinal);
                runs.push(Run::of(database, record));
            }
        }
    };
    Ok(Json(Runs {
        runs,
        next_cursor: has_more.then(|| write_cursor(&places)),
        unreadable,
    }))
}

fn bad(detail: String) -> Problem {
    Problem::new(ProblemType::BadRequest, detail)
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

pub(in crate::service) async fn acquire(
    member: &Member,
) -> Result<sqlx::pool::PoolConnection<sqlx::Postgres>, DbError> {
    let pool = member
        .reader
        .pool()
        .ok_or_else(|| DbError::noticed(ErrorKind::Refused, "no database is configured"))?;
    pool.acquire().await.map_err(|error| DbError::new("connect", error))
}

pub(super) fn told(member: &Member, error: &DbError) -> ReadError {
    tracing::warn!(database = member.database.name, %error, "cannot read the history of runs");
    ReadError::of(error)
}

/// The last run that was told of each database. Neither a name nor a number holds a comma or a colon.
fn write_cursor(places: &BTreeMap<String, i64>) -> String {
    let places: Vec<String> = places
        .iter()
        .map(|(database, ordinal)| format!("{database}:{ordinal}"))
        .collect();
    places.join(",")
}

fn read_cursor(text: &str) -> Option<BTreeMap<String, i64>> {
    text.split(',')
        .map(|place| {
            let (database, ordinal) = place.split_once(':')?;
            Some((database.to_owned(), ordinal.parse().ok()?))
        })
        .collect()
}
