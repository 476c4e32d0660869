//! The middleware: a consumer writes only its handler.
//!
//! A [`Consumer`] takes deliveries from a broker's [`Source`], claims each in the transaction of its handler, commits, and
//! only then settles it with the broker. It owns the order of these, how long each may take, and what is done when one
//! fails. It knows no broker: that is what [`Source`] and [`Delivery`] are for, of which each broker's feature brings its own.
//!
//! # What is done with a delivery
//! The first five come from [`super::Verdict`]; the rest is what only a consumer with a broker at hand can decide.
//!
//! | what happened | what is done | counts as a failure |
//! | --- | --- | --- |
//! | done, and the commit is certain | ack | |
//! | processed before, or earlier in the batch | ack, however often it was delivered | |
//! | in flight: another transaction holds it | held and tried again for [`Consumer::with_in_flight_patience`], then retry later | no |
//! | commit unknown | left unacked; the redelivery's claim decides | no |
//! | too old, too new, an id that the inbox does not take | [`Unclaimable`]: reject | |
//! | no id, or an id that is none | [`MissingId`]: reject | |
//! | the handler failed, panicked or took too long | retry later, longer each time; reject at [`Consumer::with_attempts`] | yes |
//! | the database is away | held, nothing is taken, not ready; tried again with back-off | no |
//! | no partition, no privilege, no claim functions | held, nothing is taken, not ready, alarm; tried again with back-off | no |
//! | another error of the claim | retry later | no |
//!
//! One future drives everything: handlers run side by side while they wait, and no task is spawned. A handler must not block
//! its thread, as ever in async code: it would hold up the others and the signals that keep the broker patient.

mod batch;
mod collected;
mod consumer;
mod delivery;
mod drive;
mod failures;
mod gate;
mod ids;
#[cfg(feature = "kafka")]
pub mod kafka;
mod metrics;
#[cfg(feature = "nats")]
pub mod nats;
mod one;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
mod settings;
mod table;
mod work;

pub use consumer::Consumer;
pub use delivery::{Delivery, Rejection, Source};
pub use gate::State;
pub use ids::{IdSource, MissingId};
pub use metrics::describe_metrics;
pub use settings::Unclaimable;
