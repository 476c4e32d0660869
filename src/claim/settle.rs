//! What became of a COMMIT whose answer was lost.
//!
//! The journal itself tells. A claim is made again, on a new connection, and rolled back:
//! - a duplicate whose first claim has the very instant of ours is ours: the commit took effect;
//! - a duplicate with another instant is a twin's, which could claim only because our transaction had rolled back;
//! - fresh: no transaction holds the message, and none has committed it: ours has rolled back;
//! - in flight: the server has not yet noticed that our connection is gone, or is still committing. Ask again, for a while.
//!
//! The status of the transaction's id would tell the same, but only on the same server and timeline, which a consumer cannot
//! know for certain; after a failover the id may be another's. The row says it wherever it was replicated to.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use super::{
    Claim, Inbox, Message,
    unit::{Unit, pause, roll_back, within},
};

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    Committed,
    RolledBack,
    Unknown,
}

/// The longest wait of one question for a transaction that is still open.
const PATIENCE: Duration = Duration::from_secs(1);

/// Finds out what became of the unit that claimed `message` at `claimed_at`.
pub(super) async fn settle(inbox: &Inbox, pool: &PgPool, message: &Message, claimed_at: DateTime<Utc>) -> Settled {
    let deadline = Instant::now() + inbox.settle_timeout();
    let mut attempt = 0;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Settled::Unknown;
        }
        let asked = within(left, ask(inbox, pool, message, claimed_at, left.min(PATIENCE))).await;
        if let Some(Some(settled)) = asked {
            return settled;
        }
        attempt += 1;
        pause(attempt).await;
    }
}

/// One question; none while there is no answer.
async fn ask(
    inbox: &Inbox,
    pool: &PgPool,
    message: &Message,
    claimed_at: DateTime<Utc>,
    wait: Duration,
) -> Option<Settled> {
    let mut unit = Unit::acquire(inbox, pool).await.ok()?;
    let mut tx = unit.begin().await.ok()?;
    let answer = inbox.ask(&mut tx, message, Some(wait)).await;
    let clean = roll_back(tx, true).await;
    unit.end(clean);
    match answer.ok()?.claim.ok()? {
        Claim::Fresh => Some(Settled::RolledBack),
        Claim::Duplicate { first_processed_at } if first_processed_at == claimed_at => Some(Settled::Committed),
        Claim::Duplicate { .. } => Some(Settled::RolledBack),
        Claim::InFlight | Claim::Repeated => None,
    }
}
