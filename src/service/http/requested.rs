//! The runs that were asked for here, for those that never began; those that did are on record in the database.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use uuid::Uuid;

use super::run_now::NewRunOutcome;

const MOST_REMEMBERED: usize = 100;

/// A database in which a run was asked for and did not begin.
#[derive(Debug, Clone, serde::Serialize, utoipa::ToSchema)]
pub(in crate::service) struct Elsewhere {
    pub(super) database: String,
    pub(super) outcome: NewRunOutcome,
    pub(super) error: Option<String>,
}

/// The runs that were asked for here, the last hundred.
#[derive(Debug, Clone, Default)]
pub(in crate::service) struct Requested(Arc<Mutex<VecDeque<RequestedRun>>>);

type RequestedRun = (Uuid, Vec<Elsewhere>);

impl Requested {
    /// What is known of a run that was asked for here.
    pub(super) fn elsewhere(&self, id: Uuid) -> Option<Vec<Elsewhere>> {
        let requested = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        requested
            .iter()
            .find(|(known, _)| *known == id)
            .map(|(_, all)| all.clone())
    }

    pub(super) fn note(&self, id: Uuid, elsewhere: Vec<Elsewhere>) {
        let mut requested = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        requested.retain(|(known, _)| *known != id);
        requested.push_back((id, elsewhere));
        while requested.len() > MOST_REMEMBERED {
            requested.pop_front();
        }
    }
}
