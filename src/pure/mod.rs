//! The pure core: identifiers, days, bounds, policy, and the plan.
//!
//! Knows no database, no runtime and no clock: everything is a value that came from outside. What is decided about an
//! inbox is decided here, in [`plan`], and nowhere else.

#[cfg(feature = "maintain")]
mod adopt;
mod bounds;
mod day;
mod effect;
mod found;
mod ident;
mod marker;
mod plan;
mod policy;
mod simulate;
mod spec;
mod sql_text;

#[cfg(feature = "maintain")]
pub use adopt::{AdoptAction, AdoptStep, Adoption, PartitionedTable, Problem, adopt_until};
#[cfg(feature = "maintain")]
pub(crate) use adopt::{FoundCheck, FoundChild, FoundColumn, FoundPartitioned, FoundTable, adoption, partitioned};
pub use bounds::{Bounds, Span};
pub use day::{Day, DayError};
pub use found::{
    Attachment, Clocks, Covers, DIGEST_SLOTS, DigestSlot, Found, FoundInbox, FoundRelation, Grant, Ownership, Parent,
    RelationKind, Removals, ReplicaIdentity, ReplicaPolicy, STORAGE_PARAMETERS,
};
pub use ident::{Derived, Function, Ident, IdentError, MAX_IDENT_BYTES, MAX_TABLE_BYTES, TableName};
pub use marker::{LeftByDrain, Marker};
pub use plan::{Action, Finding, FindingCode, Lock, Plan, Severity, Step, plan};
#[cfg(feature = "maintain")]
pub(crate) use plan::{DigestScope, DrainScope, Leaf, ROUNDS, digest_scope, distrust, drain_scope};
pub use policy::{Ahead, Consumers, OnExpiry, Policy, PolicyError, Retention, Routing, parse_duration, show_duration};
pub use simulate::{Event, Happening, Scenario, simulate};
pub use spec::{BeforeDrop, ClaimSpec, InboxSpec};
pub(crate) use sql_text::{Sql, render};
