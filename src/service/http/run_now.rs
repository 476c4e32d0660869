//! `POST /v1/runs`: a run now. It is the worker that runs it, so it is never the second at a time, and a client that hangs
//! up cuts nothing.

use std::time::Duration;

use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{
    Context, Member,
    access::Caller,
    acts,
    extract::Body,
    openapi::RunNowProblems,
    problem::{Going, Problem, ProblemType},
    requested::{Elsewhere, Requested},
};
use crate::{
    maintain::{RunReport, StepOutcome, StepReport, operate::OperateErrorKind},
    postgres::{ErrorKind, lock::LockHolder},
    pure::{Action, Day, Finding, Step},
    service::{acts::ActError, worker::Ended},
};

/// Most runs take well under a second; whoever waits longer is given a place to look.
const WAITED_FOR: Duration = Duration::from_secs(8);

/// What is to be run; all inboxes of all databases where nothing is said.
#[derive(Debug, Default, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRun {
    /// Only this database.
    #[serde(default)]
    database: Option<String>,
    /// Only this inbox.
    #[serde(default)]
    inbox: Option<String>,
    /// Only tell what would be done.
    #[serde(default)]
    dry_run: bool,
}

/// What became of it.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub(super) struct NewRunAnswer {
    /// The run's identity, the same in each database.
    id: Uuid,
    /// Whether it was only told what would be done.
    dry_run: bool,
    /// One for each database.
    databases: Vec<DatabaseAnswer>,
}

/// How it went in one database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum NewRunOutcome {
    /// Every step is done.
    Done,
    /// Some step failed or was left out; the next run heals it.
    Partial,
    /// It failed as a whole.
    Failed,
    /// Another run was going, and nothing was done.
    Busy,
    /// The server is a standby, and nothing was done.
    Standby,
    /// It has not ended yet; see the run.
    Going,
    /// A dry run: nothing was done.
    Planned,
}

/// What a run did to one database.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub(in crate::service) struct DatabaseAnswer {
    database: String,
    outcome: NewRunOutcome,
    /// Why nothing was done, or not all.
    error: Option<String>,
    /// What kind of error that is.
    error_kind: Option<ErrorKind>,
    /// When it began, by the database's clock.
    started_at: Option<DateTime<Utc>>,
    /// When it ended, by the database's clock.
    finished_at: Option<DateTime<Utc>>,
    inboxes: Vec<InboxAnswer>,
    /// Who is in the way.
    #[serde(skip)]
    going: Option<(Option<Uuid>, Option<LockHolder>)>,
    /// Why it did not even begin.
    #[serde(skip)]
    refused: Option<Problem>,
}

/// What a run did to one inbox.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
struct InboxAnswer {
    inbox: String,
    steps: Vec<StepAnswer>,
    /// What was noticed afterwards.
    findings: Vec<Finding>,
    /// Seconds until the first claim would fail for want of a partition; none when the partitions never end.
    runway_seconds: Option<i64>,
}

/// One step.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
struct StepAnswer {
    day: Option<Day>,
    relation: String,
    action: Action,
    reason: String,
    outcome: StepAnswerOutcome,
    /// What kind of error it ended with; the log says more.
    error_kind: Option<ErrorKind>,
    /// Why it was left out.
    skipped_because: Option<String>,
    attempts: i32,
    duration_ms: i64,
}

#[derive(Debug, Clone, Copy, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
enum StepAnswerOutcome {
    Done,
    Failed,
    Skipped,
    Planned,
}

/// Runs a pass now, or tells what one would do.
///
/// Answers when the run has ended in every database, or after a few seconds with 202 and the place to look.
#[utoipa::path(
    post,
    path = "/v1/runs",
    tag = "runs",
    request_body = Option<NewRun>,
    responses(
        (status = 200, description = "It has ended, or it was a dry run", body = NewRunAnswer),
        (status = 202, description = "It is going; `Location` is the run's", body = NewRunAnswer),
        RunNowProblems
    ),
    security((), ("bearer" = []))
)]
pub(super) async fn run_now(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    Body(wanted): Body<NewRun>,
) -> Result<Response, Problem> {
    let members = chosen(&context, &wanted)?;
    if wanted.dry_run {
        return dry_run(crate::maintain::random_uuid(), &members, wanted.inbox.as_deref()).await;
    }
    let inbox = wanted.inbox;
    let Some((id, set_off)) = set_off(&context, members, inbox, &caller.name).await else {
        return Err(Problem::new(ProblemType::Internal, "the log says what"));
    };
    let place: [(HeaderName, String); 1] = [(header::LOCATION, format!("/v1/runs/{id}"))];
    let answer = |databases| NewRunAnswer {
        id,
        dry_run: false,
        databases,
    };
    match set_off {
        SetOff::Ended(databases) => told(answer(databases)).map(|answer| (place, Json(answer)).into_response()),
        SetOff::Going(databases) => Ok((StatusCode::ACCEPTED, place, Json(answer(databases))).into_response()),
    }
}

/// What became of a run within the time that it is waited for.
#[derive(Debug)]
pub(in crate::service) enum SetOff {
    /// It has ended everywhere.
    Ended(Vec<DatabaseAnswer>),
    /// It goes on.
    Going(Vec<DatabaseAnswer>),
}

/// Sets a run off in these databases, for all their inboxes or one; none when it broke off.
pub(in crate::service) async fn set_off(
    context: &Context,
    members: Vec<Member>,
    inbox: Option<String>,
    by: &str,
) -> Option<(Uuid, SetOff)> {
    let id = crate::maintain::random_uuid();
    let names: Vec<&str> = members.iter().map(|member| member.database.name.as_str()).collect();
    tracing::info!(by, run = %id, databases = names.join(","), inbox, "a run is asked for");
    let going: Vec<DatabaseAnswer> = members
        .iter()
        .map(|member| DatabaseAnswer::new(&member.database.name, NewRunOutcome::Going))
        .collect();
    note(&context.requested, id, &going);
    // A task of its own: it goes on when whoever asked has gone.
    let (requested, by) = (context.requested.clone(), by.to_owned());
    let running = tokio::spawn(async move {
        let runs = members.iter().map(|member| run_in(member, id, &by, inbox.clone()));
        let databases = futures_util::future::join_all(runs).await;
        note(&requested, id, &databases);
        databases
    });
    match tokio::time::timeout(WAITED_FOR, running).await {
        Ok(Ok(databases)) => Some((id, SetOff::Ended(databases))),
        Ok(Err(_)) => None,
        Err(_) => Some((id, SetOff::Going(going))),
    }
}

/// An answer, unless nothing was done anywhere for one and the same reason that has a status of its own.
fn told(answer: NewRunAnswer) -> Result<NewRunAnswer, Problem> {
    let all = |wanted: &dyn Fn(&DatabaseAnswer) -> bool| answer.databases.iter().all(wanted);
    if all(&|database| database.outcome == NewRunOutcome::Busy) {
        let going = answer.databases.into_iter().map(|database| {
            let (run, holder) = database.going.unwrap_or_default();
            Going {
                database: database.database,
                run,
                holder,
            }
        });
        return Err(Problem::run_going(going.collect()));
    }
    let is_away = |database: &DatabaseAnswer| {
        database.outcome == NewRunOutcome::Failed
            && matches!(
                database.error_kind,
                Some(ErrorKind::Unreachable | ErrorKind::Refused | ErrorKind::Missing)
            )
    };
    if all(&|database| database.refused.is_some() || is_away(database)) {
        let refused = answer.databases.iter().find_map(|database| database.refused.clone());
        let why = answer.databases.into_iter().find_map(|database| database.error);
        return Err(refused.unwrap_or_else(|| Problem::unavailable(why.unwrap_or_default())));
    }
    Ok(answer)
}

/// The databases that are meant.
fn chosen(context: &Context, wanted: &NewRun) -> Result<Vec<Member>, Problem> {
    let mut members: Vec<Member> = context.members.to_vec();
    if let Some(name) = &wanted.database {
        members.retain(|member| member.database.name == *name);
        if members.is_empty() {
            let detail = "see /v1/status for those that are configured";
            return Err(Problem::new(ProblemType::DatabaseNotFound, detail));
        }
    }
    if let Some(name) = &wanted.inbox {
        members.retain(|member| member.database.inboxes.iter().any(|spec| spec.name == *name));
        if members.is_empty() {
            let detail = "see /v1/inboxes for those that are configured, each in its database";
            return Err(Problem::new(ProblemType::InboxNotFound, detail));
        }
    }
    Ok(members)
}

fn note(requested: &Requested, id: Uuid, databases: &[DatabaseAnswer]) {
    let elsewhere = databases
        .iter()
        .map(|database| Elsewhere {
            database: database.database.clone(),
            outcome: database.outcome,
            error: database.error.clone(),
        })
        .collect();
    requested.note(id, elsewhere);
}

async fn run_in(member: &Member, id: Uuid, by: &str, inbox: Option<String>) -> DatabaseAnswer {
    let answer = |outcome| DatabaseAnswer::new(&member.database.name, outcome);
    let busy = |run, holder| DatabaseAnswer {
        error: Some("another run is going".to_owned()),
        going: Some((run, holder)),
        ..answer(NewRunOutcome::Busy)
    };
    if let Some(run) = member.shared.going() {
        return busy(Some(run), None);
    }
    let spec = inbox
        .as_ref()
        .and_then(|name| member.database.inboxes.iter().find(|spec| spec.name == *name));
    if let Err(error) = member.acts.run_asked_for(by, id, spec).await {
        return not_asked_for(member, error);
    }
    let Some(ended) = member.asker.ask_for_run(id, inbox) else {
        return busy(member.shared.going(), None);
    };
    match ended.await {
        Ok(Ended::Ran(report)) => DatabaseAnswer::of(&member.database.name, report),
        Ok(Ended::Busy { holder, run }) => busy(run, holder),
        Ok(Ended::Standby) => DatabaseAnswer {
            error: Some("the server is a standby: nothing is written until it is promoted".to_owned()),
            ..answer(NewRunOutcome::Standby)
        },
        // Only the schedule heeds a pause.
        Ok(Ended::Paused(_)) => DatabaseAnswer {
            error: Some("the schedule is paused".to_owned()),
            ..answer(NewRunOutcome::Failed)
        },
        Ok(Ended::Failed { kind, why }) => DatabaseAnswer {
            error: Some(why),
            error_kind: Some(kind),
            ..answer(NewRunOutcome::Failed)
        },
        Err(_) => DatabaseAnswer {
            error: Some("the service is shutting down".to_owned()),
            ..answer(NewRunOutcome::Failed)
        },
    }
}

/// Nothing is run of which nobody can tell who asked for it.
fn not_asked_for(member: &Member, error: ActError) -> DatabaseAnswer {
    let (outcome, error_kind) = match &error {
        ActError::Unavailable { kind, .. } => (NewRunOutcome::Failed, Some(*kind)),
        ActError::Refused(error) => match error.kind() {
            OperateErrorKind::Standby => (NewRunOutcome::Standby, None),
            OperateErrorKind::Database(kind) => (NewRunOutcome::Failed, Some(kind)),
            _ => (NewRunOutcome::Failed, None),
        },
        ActError::Crowded | ActError::Broken => (NewRunOutcome::Failed, None),
    };
    let told = Some(error.in_words());
    // A standby is no failure: nothing is to be written there.
    let refused = (outcome == NewRunOutcome::Failed).then(|| acts::problem(member, error));
    DatabaseAnswer {
        error: told,
        error_kind,
        refused,
        ..DatabaseAnswer::new(&member.database.name, outcome)
    }
}

async fn dry_run(id: Uuid, members: &[Member], inbox: Option<&str>) -> Result<Response, Problem> {
    let tells = members.iter().map(|member| planned_in(member, inbox));
    let databases = futures_util::future::join_all(tells).await;
    if databases
        .iter()
        .all(|database| database.outcome == NewRunOutcome::Failed)
    {
        let why = databases.into_iter().find_map(|database| database.error);
        return Err(Problem::unavailable(why.unwrap_or_default()));
    }
    let answer = NewRunAnswer {
        id,
        dry_run: true,
        databases,
    };
    Ok(Json(answer).into_response())
}

async fn planned_in(member: &Member, inbox: Option<&str>) -> DatabaseAnswer {
    // What was just changed is to be seen.
    member.reader.forget();
    let name = &member.database.name;
    match member.reader.read().await {
        Ok(status) => DatabaseAnswer {
            inboxes: status
                .inboxes
                .iter()
                .filter(|status| inbox.is_none_or(|name| status.inbox == name))
                .map(|status| InboxAnswer {
                    inbox: status.inbox.clone(),
                    steps: status.steps.iter().map(StepAnswer::planned).collect(),
                    findings: status.findings.clone(),
                    runway_seconds: status.runway_seconds,
                })
                .collect(),
            ..DatabaseAnswer::new(name, NewRunOutcome::Planned)
        },
        Err(error) => DatabaseAnswer {
            error: Some(error.message),
            error_kind: Some(error.kind),
            ..DatabaseAnswer::new(name, NewRunOutcome::Failed)
        },
    }
}

impl DatabaseAnswer {
    /// How it went, in a sentence.
    pub(in crate::service) fn in_words(&self) -> String {
        let steps = || self.inboxes.iter().flat_map(|inbox| &inbox.steps);
        let done = steps()
            .filter(|step| matches!(step.outcome, StepAnswerOutcome::Done))
            .count();
        let why = self.error.as_deref().unwrap_or("the log says why");
        let what = match self.outcome {
            NewRunOutcome::Done if done == 0 => "the run found nothing to do".to_owned(),
            NewRunOutcome::Done => format!("the run is done, {done} steps"),
            NewRunOutcome::Partial => format!("of {} steps {done} are done; the next run heals it", steps().count()),
            NewRunOutcome::Failed => format!("the run failed: {why}"),
            NewRunOutcome::Busy | NewRunOutcome::Standby => format!("nothing was done: {why}"),
            NewRunOutcome::Going => "the run is going".to_owned(),
            NewRunOutcome::Planned => "nothing was done".to_owned(),
        };
        format!("Database {}: {what}.", self.database)
    }

    fn new(database: &str, outcome: NewRunOutcome) -> Self {
        Self {
            database: database.to_owned(),
            outcome,
            error: None,
            error_kind: None,
            started_at: None,
            finished_at: None,
            inboxes: Vec::new(),
            going: None,
            refused: None,
        }
    }

    fn of(database: &str, report: RunReport) -> Self {
        let outcome = match report.outcome {
            crate::maintain::RunOutcome::Done => NewRunOutcome::Done,
            crate::maintain::RunOutcome::Partial => NewRunOutcome::Partial,
        };
        let inboxes = report.inboxes.into_iter().map(|inbox| InboxAnswer {
            inbox: inbox.inbox,
            steps: inbox.steps.into_iter().map(StepAnswer::of).collect(),
            findings: inbox.after.findings,
            runway_seconds: inbox.after.runway_seconds,
        });
        Self {
            started_at: Some(report.started_at),
            finished_at: Some(report.finished_at),
            inboxes: inboxes.collect(),
            ..Self::new(database, outcome)
        }
    }
}

impl StepAnswer {
    fn planned(step: &Step) -> Self {
        Self {
            day: step.day,
            relation: step.relation.to_string(),
            action: step.action,
            reason: step.reason.clone(),
            outcome: StepAnswerOutcome::Planned,
            error_kind: None,
            skipped_because: None,
            attempts: 0,
            duration_ms: 0,
        }
    }

    fn of(report: StepReport) -> Self {
        let (outcome, error_kind, skipped_because) = match report.outcome {
            StepOutcome::Done => (StepAnswerOutcome::Done, None, None),
            StepOutcome::Failed { kind, .. } => (StepAnswerOutcome::Failed, Some(kind), None),
            StepOutcome::Skipped { why } => (StepAnswerOutcome::Skipped, None, Some(why)),
        };
        Self {
            outcome,
            error_kind,
            skipped_because,
            attempts: report.attempts,
            duration_ms: report.duration_ms,
            ..Self::planned(&report.step)
        }
    }
}
