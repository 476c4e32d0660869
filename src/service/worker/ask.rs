//! How a worker is asked for passes, and how it answers.

use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::{
    maintain::{RunReport, Trigger, operate::Pause},
    postgres::{ErrorKind, lock::LockHolder},
};

/// What a worker listens to.
pub(in crate::service) struct Asked {
    pub(super) triggers: mpsc::Receiver<Trigger>,
    pub(super) runs: mpsc::Receiver<RunRequest>,
}

/// Asks for passes.
#[derive(Debug, Clone)]
pub(in crate::service) struct Asker {
    pub(super) triggers: mpsc::Sender<Trigger>,
    pub(super) runs: mpsc::Sender<RunRequest>,
}

impl Asker {
    /// Asks for a pass; when one is already waiting, that one will do.
    pub(in crate::service) fn ask(&self, trigger: Trigger) {
        // Full: a pass is waiting already. Closed: the service is shutting down.
        let _ = self.triggers.try_send(trigger);
    }

    /// Asks for a run of a person's own, whose end is told; none when another such is waiting, or at shutdown.
    pub(in crate::service) fn ask_for_run(&self, id: Uuid, inbox: Option<String>) -> Option<oneshot::Receiver<Ended>> {
        let (told, ended) = oneshot::channel();
        self.runs.try_send(RunRequest { id, inbox, told }).ok()?;
        Some(ended)
    }
}

/// A run that a person asked for.
#[derive(Debug)]
pub(super) struct RunRequest {
    pub(super) id: Uuid,
    /// The only inbox that it is about; none for all.
    pub(super) inbox: Option<String>,
    pub(super) told: oneshot::Sender<Ended>,
}

/// What became of a pass.
#[derive(Debug)]
pub(in crate::service) enum Ended {
    /// It ran.
    Ran(RunReport),
    /// Another process is running one.
    Busy {
        /// Who.
        holder: Option<LockHolder>,
        /// Its run, where it is on record.
        run: Option<Uuid>,
    },
    /// The schedule is paused.
    Paused(Pause),
    /// The server is a standby.
    Standby,
    /// It failed as a whole.
    Failed {
        /// What kind of error it was.
        kind: ErrorKind,
        /// Why, in our words.
        why: String,
    },
}
