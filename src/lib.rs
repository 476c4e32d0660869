//! **inboxd** keeps a PostgreSQL *transactional inbox* alive.
//!
//! Brokers deliver at least once. A consumer claims a message's id in the same transaction as its business work, and a
//! second delivery finds the id and skips. inboxd makes the inbox's daily partitions ahead of time and drops the expired
//! ones whole, so that the journal never needs `DELETE` or vacuum.
//!
//! | feature | what it adds | for whom |
//! | --- | --- | --- |
//! | none | the pure core, and [`claim`]: the library half | consumers |
//! | `middleware` | a consumer that is only a handler, for any broker: [`claim::middleware`](claim) | consumers |
//! | `nats` | the same, for NATS JetStream | consumers |
//! | `rabbitmq` | the same, for RabbitMQ | consumers |
//! | `kafka` | the same, for Kafka; builds librdkafka, with a C compiler and make | consumers |
//! | `maintain` | catalog, DDL, one maintenance pass, a private PostgreSQL | who runs maintenance in a process of their own |
//! | `service` (default) | config, schedule, HTTP and the `inboxd` program | operators |
//! | `otlp` | spans of runs and steps over OTLP | operators with a collector |

pub mod claim;
#[cfg(feature = "maintain")]
pub mod clock;
#[cfg(feature = "maintain")]
pub mod maintain;
#[cfg(feature = "maintain")]
pub mod postgres;
mod pure;
#[cfg(feature = "service")]
pub mod service;

pub use pure::{
    Action, Ahead, Attachment, BeforeDrop, Bounds, ClaimSpec, Clocks, Consumers, Day, DayError, Derived, Event,
    Finding, FindingCode, Found, FoundInbox, FoundRelation, Function, Grant, Happening, Ident, IdentError, InboxSpec,
    LeftByDrain, Lock, MAX_IDENT_BYTES, MAX_TABLE_BYTES, Marker, OnExpiry, Ownership, Parent, Plan, Policy,
    PolicyError, RelationKind, Removals, ReplicaIdentity, ReplicaPolicy, Retention, Routing, STORAGE_PARAMETERS,
    Scenario, Severity, Span, Step, TableName, parse_duration, plan, show_duration, simulate,
};
#[cfg(feature = "maintain")]
pub use pure::{AdoptAction, AdoptStep, Adoption, Problem, adopt_until};
