//! The only place with catalog reads and DDL.

pub(crate) mod blockers;
pub mod catalog;
pub mod ddl;
pub(crate) mod decisions;
pub mod embedded;
mod error;
pub mod history;
#[cfg(feature = "service")]
pub(crate) mod in_hand;
pub mod journal;
pub mod lock;
pub(crate) mod messages;
pub mod schema;
mod session;

pub use error::{DbError, ErrorKind};
pub use session::{Timeouts, connect, describe, session_options};
