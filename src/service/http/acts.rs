//! How what a person decides is answered: each refusal a problem of its own, and one answer for several databases.

use super::{
    Context, Member, inbox_not_found,
    problem::{Going, Problem, ProblemType},
};
use crate::{
    maintain::operate::{OperateError, OperateErrorKind},
    postgres::ErrorKind,
    pure::InboxSpec,
    service::acts::ActError,
};

/// The inbox of a name, and its database.
pub(super) fn inbox<'c>(context: &'c Context, name: &str) -> Result<(&'c Member, &'c InboxSpec), Problem> {
    context.spec(name).ok_or_else(inbox_not_found)
}

/// The databases that are meant: the one of a name, or all.
pub(super) fn databases<'c>(context: &'c Context, name: Option<&str>) -> Result<Vec<&'c Member>, Problem> {
    let members: Vec<&Member> = context
        .members
        .iter()
        .filter(|member| name.is_none_or(|name| member.database.name == name))
        .collect();
    if members.is_empty() {
        let detail = "see /v1/status for those that are configured";
        return Err(Problem::new(ProblemType::DatabaseNotFound, detail));
    }
    Ok(members)
}

/// Why an act was not done.
pub(super) fn problem(member: &Member, error: ActError) -> Problem {
    let words = error.in_words();
    match error {
        // It is there, and waits for somebody.
        ActError::Unavailable {
            kind: ErrorKind::LockTimeout,
            ..
        } => Problem::new(ProblemType::Locked, words),
        ActError::Unavailable { .. } => Problem::unavailable(words),
        ActError::Crowded => Problem::new(ProblemType::Overloaded, words),
        ActError::Broken => Problem::new(ProblemType::Internal, words),
        ActError::Refused(error) => refused(member, &error, words),
    }
}

fn refused(member: &Member, error: &OperateError, words: String) -> Problem {
    let kind = match error.kind() {
        OperateErrorKind::Busy => {
            return Problem::run_going(vec![Going {
                database: member.database.name.clone(),
                run: member.shared.going(),
                holder: error.holder().cloned(),
            }]);
        }
        OperateErrorKind::UnknownInbox => ProblemType::InboxNotFound,
        OperateErrorKind::NotOurs => ProblemType::NotOurs,
        OperateErrorKind::NoSuchDay => ProblemType::DayNotFound,
        OperateErrorKind::NotDetached => ProblemType::NotDetached,
        OperateErrorKind::Dropped => ProblemType::Dropped,
        OperateErrorKind::NotRestorable => ProblemType::NotRestorable,
        OperateErrorKind::Locked => ProblemType::Locked,
        OperateErrorKind::NothingDue => ProblemType::NothingDue,
        OperateErrorKind::Changed => ProblemType::Changed,
        OperateErrorKind::UntrustedClock => ProblemType::UntrustedClock,
        OperateErrorKind::InFlight => ProblemType::InFlight,
        OperateErrorKind::Published => ProblemType::Published,
        OperateErrorKind::InvalidId => ProblemType::InvalidId,
        OperateErrorKind::InvalidConsumer => ProblemType::InvalidConsumer,
        OperateErrorKind::Invalid => ProblemType::InvalidBody,
        OperateErrorKind::Standby => ProblemType::Standby,
        // The only kind of a database's that is a refusal.
        OperateErrorKind::Database(_) => ProblemType::ReadOnly,
    };
    Problem::new(kind, words)
}

/// What became of an act in one database.
pub(super) struct Outcome<T> {
    pub(super) database: String,
    pub(super) done: Option<T>,
    pub(super) problem: Option<Problem>,
}

/// What became of an act in several databases, unless it was done in none; then the first one's problem.
pub(super) fn outcomes<T>(members: &[&Member], done: Vec<Result<T, ActError>>) -> Result<Vec<Outcome<T>>, Problem> {
    let outcomes: Vec<Outcome<T>> = members
        .iter()
        .zip(done)
        .map(|(member, done)| {
            let (done, problem) = match done {
                Ok(done) => (Some(done), None),
                Err(error) => (None, Some(problem(member, error))),
            };
            Outcome {
                database: member.database.name.clone(),
                done,
                problem,
            }
        })
        .collect();
    match outcomes.iter().find_map(|outcome| outcome.problem.clone()) {
        Some(problem) if outcomes.iter().all(|outcome| outcome.done.is_none()) => Err(problem),
        _ => Ok(outcomes),
    }
}
