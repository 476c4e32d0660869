//! The last runs of a database, read again only when there is news.
//!
//! Its invariant: however many look, a database is asked for its history once for each change of its last run, and by one
//! at a time.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::view::PastRun;
use crate::{
    postgres::{
        DbError,
        history::{self, RunFilter},
        journal::LastRun,
    },
    service::{
        http::{Context, Member, acquire},
        reading::ReadError,
        status::DatabaseStatus,
    },
};

/// A day of the default schedule has 144 runs, of which one does something: enough to find a few that did.
const MOST_RUNS: i64 = 300;
/// Of so many the steps are read.
const MOST_WITH_STEPS: usize = 8;

/// What is known of one database's runs.
#[derive(Debug, Default)]
pub(super) struct Past(Mutex<Option<(LastRun, Arc<Vec<PastRun>>)>>);

impl Past {
    /// The last runs; none where the database cannot be read, which its status says.
    pub(super) async fn read(
        &self,
        context: &Context,
        member: &Member,
        status: &DatabaseStatus,
    ) -> Result<Arc<Vec<PastRun>>, ReadError> {
        let Some(last) = &status.last_run else {
            return Ok(Arc::default());
        };
        // Whoever waits here finds the answer of the one before.
        let mut known = self.0.lock().await;
        if let Some((of, past)) = &*known
            && of == last
        {
            return Ok(past.clone());
        }
        let past = look(context, member).await.map_err(|error| {
            tracing::warn!(database = member.database.name, %error, "cannot read the history of runs");
            ReadError::of(&error)
        })?;
        let past = Arc::new(past);
        *known = Some((last.clone(), past.clone()));
        Ok(past)
    }
}

async fn look(context: &Context, member: &Member) -> Result<Vec<PastRun>, DbError> {
    let mut connection = acquire(member).await?;
    let deployment = &context.config.deployment;
    let records = history::runs(&mut connection, deployment, RunFilter::default(), MOST_RUNS).await?;
    let mut with_steps = 0;
    let mut past = Vec::with_capacity(records.len());
    for record in records {
        let has_steps = record.steps_done + record.steps_failed + record.steps_skipped > 0;
        let steps = if has_steps && with_steps < MOST_WITH_STEPS {
            with_steps += 1;
            history::steps(&mut connection, record.id).await?
        } else if has_steps {
            // What came before is in the API.
            break;
        } else {
            Vec::new()
        };
        let named = steps.into_iter().map(|step| {
            let inboxes = &member.database.inboxes;
            let spec = inboxes.iter().find(|spec| Some(&spec.table) == step.table.as_ref());
            (spec.map(|spec| spec.name.clone()), step)
        });
        past.push(PastRun {
            database: member.database.name.clone(),
            steps: named.collect(),
            record,
        });
    }
    Ok(past)
}
