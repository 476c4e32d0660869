//! One message, from BEGIN to the verdict.

use sqlx::{PgPool, Postgres, Transaction};

use super::{
    BoxError, Inbox, Message, Outcome, ProcessError,
    answer::Receipt,
    outcome::label_of,
    settle::{Settled, settle},
    unit::{Commit, Unit, commit, pause, roll_back, run},
};

impl Inbox {
    /// Processes one message: begins a transaction, claims the message, runs the handler in the same transaction if it is
    /// fresh, commits, and says what may be acked.
    ///
    /// The order of things is fixed, and each is certain before the next:
    /// 1. The transaction is READ COMMITTED in an inbox with `processed_at` routing, whatever the session's default is.
    /// 2. A duplicate, or a message in flight, ends it; the handler does not run.
    /// 3. The handler runs within its timeout. When it fails, everything is rolled back, the claim too.
    /// 4. In one round trip, before COMMIT, the server compares the transaction with the claim's, which fails in an aborted one: it
    ///    answers COMMIT there with ROLLBACK, which the driver reports as success.
    /// 5. If the connection is lost while COMMIT is outstanding, the journal is asked on a new one whether it took effect.
    ///
    /// A serialization failure or a deadlock, in the claim, in the handler or at the commit, makes the whole unit be tried
    /// again, at most as often as [`Inbox::with_attempts`] says. The claim alone is never tried again.
    ///
    /// The handler is cloned for each attempt, so it can borrow what it reads, but carries nothing from one attempt to the next.
    /// It gets the transaction of the claim; what it does on another connection is not part of it. It must not end
    /// the transaction: what it has committed itself stays committed, the claim too, and the message counts as failed. When
    /// the returned future is dropped, or the handler panics, the connection is closed and the server rolls back.
    ///
    /// # Errors
    /// When the work was not done, and its message must not be acked; [`ProcessError::verdict`] says what to do instead.
    ///
    /// # Examples
    /// ```no_run
    /// # use inboxd::claim::{Inbox, Message, MessageId, Outcome, Verdict};
    /// # async fn example(inbox: Inbox, pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let message = Message::new(MessageId::from_name("order-1")?, "orders")?;
    /// let result = inbox
    ///     .process(&pool, &message, async |tx| {
    ///         sqlx::query("update stock set amount = amount - 1").execute(&mut **tx).await
    ///     })
    ///     .await;
    /// if Verdict::of(&result) == Verdict::Ack {
    ///     // Only now.
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn process<T, E: Into<BoxError>>(
        &self,
        pool: &PgPool,
        message: &Message,
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>) -> Result<T, E> + Clone,
    ) -> Result<Outcome<T>, ProcessError> {
        let mut attempt = 1;
        loop {
            let result = self.process_once(pool, message, handler.clone()).await;
            if !self.tries_again(&result, attempt).await {
                self.count_unit(label_of(&result));
                return result;
            }
            attempt += 1;
        }
    }

    async fn process_once<T, E: Into<BoxError>>(
        &self,
        pool: &PgPool,
        message: &Message,
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>) -> Result<T, E> + Clone,
    ) -> Result<Outcome<T>, ProcessError> {
        let mut unit = Unit::acquire(self, pool).await?;
        let mut tx = unit.begin().await?;
        let (value, receipt) = match self.work(&mut tx, message, handler).await {
            Ok(Worked::Done(value, receipt)) => (value, receipt),
            Ok(Worked::Skipped(outcome)) => {
                let clean = roll_back(tx, true).await;
                unit.end(clean);
                return Ok(outcome);
            }
            Err(error) => {
                let clean = roll_back(tx, error.leaves_no_statement()).await;
                unit.end(clean);
                return Err(error);
            }
        };
        let committed = commit(tx, &receipt).await;
        unit.end(matches!(committed, Ok(Commit::Done)));
        Ok(match self.fate(pool, message, &receipt, committed?).await? {
            Fate::Committed => Outcome::Done(value),
            Fate::Unknown => Outcome::Unknown,
        })
    }

    /// Claims, and runs the handler if it is to run.
    async fn work<T, E: Into<BoxError>>(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        message: &Message,
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>) -> Result<T, E> + Clone,
    ) -> Result<Worked<T>, ProcessError> {
        let answer = self.counted_claim(tx, message).await?;
        match answer.claim?.skipped() {
            // A unit's first claim repeats none of its own: somebody has left the connection with a transaction open and
            // this message claimed in it. It is rolled back now, and so is no proof that the work was done.
            Some(Outcome::Repeated) => Ok(Worked::Skipped(Outcome::InFlight)),
            Some(outcome) => Ok(Worked::Skipped(outcome)),
            None => Ok(Worked::Done(run(self, handler(tx)).await?, answer.receipt)),
        }
    }

    /// What a COMMIT came to. The connection is given up before, so that a pool of one has another to ask on.
    ///
    /// # Errors
    /// When it has turned out that nothing was committed.
    pub(super) async fn fate(
        &self,
        pool: &PgPool,
        message: &Message,
        receipt: &Receipt,
        commit: Commit,
    ) -> Result<Fate, ProcessError> {
        let Commit::Unanswered(error) = commit else {
            return Ok(Fate::Committed);
        };
        let settled = match receipt.claimed_at {
            Some(claimed_at) => settle(self, pool, message, claimed_at).await,
            None => Settled::Unknown,
        };
        tracing::warn!(
            inbox = %self.table(), message_id = %message.id(), %error, ?settled,
            "the connection was lost while a commit was outstanding"
        );
        match settled {
            Settled::Committed => Ok(Fate::Committed),
            Settled::Unknown => Ok(Fate::Unknown),
            Settled::RolledBack => Err(ProcessError::Connection(error)),
        }
    }

    /// Whether a unit is tried again; waits a moment if so.
    pub(super) async fn tries_again<T>(&self, result: &Result<T, ProcessError>, attempt: u32) -> bool {
        let Err(error) = result else {
            return false;
        };
        if !error.is_conflict() || attempt >= self.attempts() {
            return false;
        }
        self.count_retry();
        tracing::debug!(inbox = %self.table(), attempt, %error, "the unit of work is tried again");
        pause(attempt).await;
        true
    }
}

/// What became of what a unit has committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Committed,
    Unknown,
}

/// What came of claim and handler, before the commit.
enum Worked<T> {
    Done(T, Receipt),
    Skipped(Outcome<T>),
}
