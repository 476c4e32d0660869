//! What is configured about one inbox.

use std::{fmt, time::Duration};

use chrono::TimeDelta;

use super::{Ident, Policy, TableName};

/// One inbox, as the configuration describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxSpec {
    /// The name under which people and URLs know it.
    pub name: String,
    /// Its table.
    pub table: TableName,
    /// How it is kept.
    pub policy: Policy,
    /// What its claim functions are made with.
    pub claim: ClaimSpec,
    /// What must succeed before a partition is dropped.
    pub before_drop: Option<BeforeDrop>,
    /// The role that owns the table, its partitions and its functions; the connecting role when none is named.
    pub owner: Option<Ident>,
    /// Roles that may claim, and nothing else.
    pub consumer_roles: Vec<Ident>,
    /// Roles that may forget a message.
    pub admin_roles: Vec<Ident>,
}

/// A command that must succeed before a partition is dropped, for those who export a day before it goes.
#[derive(Clone, PartialEq, Eq)]
pub struct BeforeDrop {
    /// The program and its arguments. No shell reads them.
    pub command: Vec<String>,
    /// How long it may take; it is killed then, and the partition stays.
    pub timeout: Duration,
}

impl BeforeDrop {
    /// Ten minutes: an export of a day of ten million rows takes about one.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
}

impl fmt::Debug for BeforeDrop {
    /// Its arguments may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BeforeDrop")
            .field("program", &self.command.first())
            .field("arguments", &self.command.len().saturating_sub(1))
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// The constants of the claim functions that are not policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimSpec {
    /// How far a producer's clock may be off: the look-back goes this much further back than a message's creation.
    pub producer_clock_tolerance: TimeDelta,
    /// How far the server's clock may step back: this long before midnight tomorrow's partition is probed too.
    pub clock_step_tolerance: TimeDelta,
    /// The most ids in one batch.
    pub max_batch: u32,
}

impl Default for ClaimSpec {
    fn default() -> Self {
        Self {
            // A day, so that yesterday is always probed.
            producer_clock_tolerance: TimeDelta::hours(24),
            clock_step_tolerance: TimeDelta::hours(1),
            // Each id holds a lock in a table that the whole server shares; 8,000 in one transaction exhausted it at
            // PostgreSQL's default settings, 14,000 over 8 sessions fitted.
            max_batch: 1_000,
        }
    }
}
