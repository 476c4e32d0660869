//! The middleware: a consumer writes only its handler.
//!
//! A [`Consumer`] takes deliveries from a broker's [`Source`], claims each in the transaction of its handler, commits, and
//! only then settles it with the broker. It owns the order of these, how long each may take, and what is done when one
//! fails. It knows no broker: that is what [`Source`] and [`Delivery`] are for, of which each broker's feature brings its own.
//!
//! One future drives everything: handlers run side by side while they wait, and no task is spawned. A handler must not block
//! its thread, as ever in async code: it would hold up the others and the signals that keep the broker patient.
//!
#![doc = include_str!("../../../docs/verdicts.md")]

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
