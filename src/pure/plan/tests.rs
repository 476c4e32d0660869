//! The planner's behaviour, sentence by sentence. Those of the list of cases begin with their number.

mod arbitrary;
mod creation;
mod findings;
mod identity;
mod limits;
mod model;
mod outages;
mod properties;
mod removal;
mod trust;
