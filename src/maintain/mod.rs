//! Maintenance: `init`, and one pass of lock → observe → plan → apply → record.
//!
//! The pass is a function that returns a report. Schedule, HTTP and command line all call it; none has logic of its own.

mod adopt;
mod apply;
mod before_drop;
mod canary;
mod init;
pub mod operate;
mod pass;
mod record;
mod release;
mod report;
mod takeover;

pub use adopt::{
    AdoptRequest, Adopted, AdoptionState, DEFAULT_ADOPT_ATTEMPTS, DEFAULT_ADOPT_LOCK_TIMEOUT, abort_adoption, adopt,
    look_at_adoption, prepare_adoption,
};
pub use apply::Retries;
pub use canary::{Canary, LONGEST_CANARY_ROUND, canaries};
pub use init::{InitReport, InitializedInbox, init};
#[cfg(feature = "service")]
pub(crate) use pass::random_uuid;
pub use pass::{PassRequest, Replica, plan_all, run_pass, run_pass_as};
pub use release::{ReleasedInbox, release_inbox};
pub use report::{InboxReport, PassOutcome, PlannedInbox, RunOutcome, RunReport, StepOutcome, StepReport, Trigger};
pub use takeover::{Takeover, takeover};
