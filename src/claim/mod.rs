//! The claim: the dedup insert, made in the transaction of the business work.
//!
//! The claim itself is a set of SQL functions that stand beside each inbox, so that consumers of every language share one
//! implementation. This module owns what those functions were made with.

mod constants;

pub use constants::{CLAIM_VERSION, ClaimConstants};
