//! **inboxd** keeps a PostgreSQL *transactional inbox* alive.
//!
//! Brokers deliver at least once. A consumer claims a message's id in the same transaction as its business work, and a
//! second delivery finds the id and skips. inboxd makes the inbox's daily partitions ahead of time and drops the expired
//! ones whole, so that the journal never needs `DELETE` or vacuum.
//!
//! # Which part is yours
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
//!
//! Without features the crate brings neither a runtime nor TLS: a consumer has its own. Whoever runs the program and writes
//! consumers in another language needs nothing of this API.
//!
//! # A consumer
//!
//! `inboxd init` has made the table and its claim functions. [`claim::Inbox::process`] does the rest for one message: it
//! begins, claims, runs the handler in the same transaction, makes certain that the commit took effect, and
//! [`claim::Verdict`] says what the broker may be told.
//!
//! ```no_run
//! use inboxd::claim::{Inbox, Message, MessageId, Outcome, Verdict};
//!
//! # async fn consume(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let inbox = Inbox::open(&mut *pool.acquire().await?, "public.inbox").await?;
//! // A broker's name for a message becomes an id, the same in every delivery and in every language.
//! let message = Message::new(MessageId::from_name("order-17")?, "orders")?;
//! let result = inbox
//!     .process(&pool, &message, async |tx| {
//!         sqlx::query("update stock set amount = amount - 1").execute(&mut **tx).await?;
//!         Ok::<_, sqlx::Error>(())
//!     })
//!     .await;
//! match Verdict::of(&result) {
//!     Verdict::Ack => { /* done now, or processed before */ }
//!     Verdict::Retry => { /* deliver it again after a pause */ }
//!     Verdict::Reject => { /* dead-letter it */ }
//!     Verdict::Pause => { /* do not ack, stop consuming, alarm */ }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The failing edge: a message that was claimed before is an outcome, not an error, and its handler does not run. What cannot
//! be claimed at all (created outside the days that are kept, in `message_id` routing) is an error with a kind, so that it is
//! never acked by mistake. [`claim`] has the whole of it.
//!
//! # Ids
//!
//! ```
//! use inboxd::claim::MessageId;
//!
//! let id = MessageId::from_name("order-1")?;
//! assert_eq!(id.to_string(), "bf1678e7-09f2-52f2-aa20-bf806408c983");
//! assert!(MessageId::from_name("").is_err(), "a message without a name has no id");
//! # Ok::<_, inboxd::claim::MessageIdError>(())
//! ```
//!
//! # What maintenance decides
//!
//! [`plan`] is a pure function of what was found and of a [`Policy`]; a [`Step`] carries its reason. The program, HTTP and the
//! page show the same values. With the feature `maintain`, `maintain::run_pass` observes, plans, applies and records once, and
//! says in its report what became of each step; `service` calls it on a schedule.
//!
//! # Days
//!
//! All days are UTC, and only `clock` reads a clock.
//!
//! ```
//! use inboxd::{Day, TableName};
//!
//! let day: Day = "2026-12-01".parse()?;
//! let table: TableName = "public.inbox".parse()?;
//! assert_eq!(table.partition(day).as_str(), "inbox_2026_12_01");
//! // The day's partition has to carry an index of its own name, and a name has 63 bytes.
//! assert!("x".repeat(48).parse::<TableName>().is_err());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

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
    Action, Ahead, Attachment, BeforeDrop, Bounds, ClaimSpec, Clocks, Consumers, Covers, DIGEST_SLOTS, Day, DayError,
    Derived, DigestSlot, Event, Finding, FindingCode, Found, FoundInbox, FoundRelation, Function, Grant, Happening,
    Ident, IdentError, InboxSpec, LeftByDrain, Lock, MAX_IDENT_BYTES, MAX_TABLE_BYTES, Marker, OnExpiry, Ownership,
    Parent, Plan, Policy, PolicyError, RelationKind, Removals, ReplicaIdentity, ReplicaPolicy, Retention, Routing,
    STORAGE_PARAMETERS, Scenario, Severity, Span, Step, TableName, parse_duration, plan, show_duration, simulate,
};
#[cfg(feature = "maintain")]
pub use pure::{AdoptAction, AdoptStep, Adoption, PartitionedTable, Problem, adopt_until};
