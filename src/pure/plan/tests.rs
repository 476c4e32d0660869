//! The planner's behaviour, sentence by sentence. Those of the list of cases begin with their number.

mod arbitrary;
mod confirmed;
mod creation;
mod digest;
mod findings;
mod identity;
mod limits;
pub(in crate::pure) mod model;
mod outages;
mod properties;
mod removal;
mod seal;
mod trust;
