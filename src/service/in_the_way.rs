//! Who is in the way: of the steps of the last run, and of all runs. For the checks that tell it.

use sqlx::PgConnection;

use super::{
    config::Database,
    status::{Check, CheckCode},
};
use crate::{
    postgres::{DbError, blockers, journal::LastRun, lock},
    pure::InboxSpec,
};

/// Of how many steps it is told who was in their way: they are likely the same.
const MOST_IN_THE_WAY: usize = 3;

/// Who was in the way of a step of the last run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InTheWay {
    /// The inbox; none where it is not configured here.
    pub(super) inbox: Option<String>,
    /// The partition, and the sessions.
    pub(super) words: String,
}

/// Where no run begins or ends, it may be that one never will: its process lives, but nobody hears of it.
pub(super) async fn name_who_keeps_runs_away(
    connection: &mut PgConnection,
    checks: &mut [Check],
) -> Result<(), DbError> {
    let is_about_it = |check: &&mut Check| matches!(check.code, CheckCode::RunOverdue | CheckCode::RunUnfinished);
    let mut about_it = checks.iter_mut().filter(is_about_it).peekable();
    if about_it.peek().is_some()
        && let Some(holder) = lock::holder(connection).await?
    {
        about_it.for_each(|check| check.message = format!("{}; {holder} has the run lock", check.message));
    }
    Ok(())
}

/// Asked only after a run that left something undone.
pub(super) async fn in_the_way(
    connection: &mut PgConnection,
    database: &Database,
    last_run: Option<&LastRun>,
) -> Result<Vec<InTheWay>, DbError> {
    let Some(run) = last_run.filter(|run| run.outcome.as_deref() == Some("partial")) else {
        return Ok(Vec::new());
    };
    let blocked = blockers::blocked_steps(connection, run.id).await?;
    let told = blocked.into_iter().map(|step| {
        let is_its = |spec: &&InboxSpec| {
            (spec.table.schema().as_str(), spec.table.table().as_str()) == (&*step.table.0, &*step.table.1)
        };
        InTheWay {
            inbox: database.inboxes.iter().find(is_its).map(|spec| spec.name.clone()),
            words: format!("in the way of {}: {}", step.relation, step.by),
        }
    });
    Ok(told.collect())
}

/// The first of those who were in the way, as clauses after a sentence.
pub(super) fn clauses<'a>(all: impl Iterator<Item = &'a InTheWay>) -> String {
    all.take(MOST_IN_THE_WAY)
        .map(|one| format!("; {}", one.words))
        .collect()
}
