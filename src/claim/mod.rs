//! The claim: the dedup insert, made in the transaction of the business work.
//!
//! The claim itself is a set of SQL functions that stand beside each inbox, so that consumers of every language share one
//! implementation. This module calls them and owns what a consumer must not get wrong around them: the order of claim, work
//! and commit, and what may be acked. It knows nothing of partitions, maintenance or configuration, and brings neither a
//! runtime nor TLS.
//!
//! - [`Inbox::process`] does all of it for one message: begin, claim, handler, verified commit, and the verdict.
//! - [`Inbox::process_batch`] and [`Inbox::process_each`] do it for many in one transaction.
//! - [`Inbox::claim`] and [`Inbox::claim_batch`] make the claim in a transaction of the caller's own.
//!
//! # Examples
//! ```no_run
//! use inboxd::claim::{Inbox, Message, MessageId, Verdict};
//!
//! # async fn consume(pool: sqlx::PgPool, delivery: Delivery) -> Result<(), Box<dyn std::error::Error>> {
//! let inbox = Inbox::open(&mut *pool.acquire().await?, "public.inbox").await?;
//!
//! let message = Message::new(delivery.id.parse()?, "orders")?;
//! let result = inbox
//!     .process(&pool, &message, async |tx| {
//!         sqlx::query("insert into orders (id) values ($1)").bind(delivery.order).execute(&mut **tx).await?;
//!         Ok::<_, sqlx::Error>(())
//!     })
//!     .await;
//! match Verdict::of(&result) {
//!     Verdict::Ack => delivery.ack(),
//!     Verdict::Retry => delivery.nack_after_a_pause(),
//!     Verdict::Reject => delivery.dead_letter(),
//!     Verdict::Pause => delivery.stop_consuming_and_alarm(),
//! }
//! # Ok(())
//! # }
//! # struct Delivery { id: String, order: i64 }
//! # impl Delivery { fn ack(&self) {} fn nack_after_a_pause(&self) {} fn dead_letter(&self) {} fn stop_consuming_and_alarm(&self) {} }
//! ```

mod answer;
mod batch;
mod call;
mod constants;
mod error;
mod inbox;
mod message;
mod message_id;
mod metrics;
#[cfg(feature = "middleware")]
pub mod middleware;
mod outcome;
mod process;
mod settle;
mod unit;

pub use answer::Claim;
#[cfg(feature = "maintain")]
pub(crate) use constants::SEALED_SINCE_VERSION;
pub use constants::{CLAIM_VERSION, ClaimConstants};
pub use error::{ClaimError, ClaimErrorKind};
pub use inbox::{Inbox, OpenError};
pub use message::{Message, MessageError};
pub use message_id::{MessageId, MessageIdError};
pub use metrics::describe_metrics;
pub use outcome::{BatchOutcome, BoxError, Outcome, ProcessError, Verdict};
