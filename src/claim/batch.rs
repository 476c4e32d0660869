//! Many messages in one transaction.

use std::collections::HashSet;

use sqlx::{Acquire, PgPool, Postgres, Transaction};

use super::{
    BatchOutcome, BoxError, Claim, ClaimError, ClaimErrorKind, Inbox, Message, MessageId, Outcome, ProcessError,
    answer::{Answer, Receipt},
    outcome::label_of,
    process::Fate,
    unit::{Commit, Unit, commit, roll_back, run},
};

/// How often a batch is begun again without the messages that failed in it. Failures are found all at once, so the second
/// round usually commits.
const ROUNDS: u32 = 4;

impl Inbox {
    /// Processes many messages with one handler in one transaction: all of them are committed, or none.
    ///
    /// All are claimed in one round trip. The handler gets those that are fresh, in their order, and does not run when none
    /// is. Otherwise as [`Inbox::process`]: the commit is verified, conflicts are tried again, nothing is left in the pool.
    ///
    /// # Errors
    /// When nothing was done, and no message may be acked. A message that cannot be claimed on its own account (too old, say)
    /// does not fail the batch; it stands in the outcome.
    ///
    /// # Examples
    /// ```no_run
    /// # use inboxd::claim::{Inbox, Message};
    /// # async fn example(inbox: Inbox, pool: sqlx::PgPool, messages: Vec<Message>) -> Result<(), Box<dyn std::error::Error>> {
    /// let outcome = inbox
    ///     .process_batch(&pool, &messages, async |tx, fresh| {
    ///         let ids: Vec<_> = fresh.iter().map(|message| message.id().uuid()).collect();
    ///         sqlx::query("insert into orders (id) select unnest($1::uuid[])").bind(ids).execute(&mut **tx).await
    ///     })
    ///     .await?;
    /// for (message, verdict) in messages.iter().zip(outcome.verdicts()) {
    ///     println!("{}: {verdict:?}", message.id());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn process_batch<T, E: Into<BoxError>>(
        &self,
        pool: &PgPool,
        messages: &[Message],
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>, &[&Message]) -> Result<T, E> + Clone,
    ) -> Result<BatchOutcome<T>, ProcessError> {
        let mut attempt = 1;
        loop {
            let result = self.batch_once(pool, messages, handler.clone()).await;
            if !self.tries_again(&result, attempt).await {
                match &result {
                    Ok(outcome) => outcome.messages.iter().for_each(|message| {
                        self.count_unit(message.as_ref().map_or("not_claimed", Outcome::label));
                    }),
                    Err(error) => messages.iter().for_each(|_| self.count_unit(error.label())),
                }
                return result;
            }
            attempt += 1;
        }
    }

    async fn batch_once<T, E: Into<BoxError>>(
        &self,
        pool: &PgPool,
        messages: &[Message],
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>, &[&Message]) -> Result<T, E> + Clone,
    ) -> Result<BatchOutcome<T>, ProcessError> {
        let all: Vec<&Message> = messages.iter().collect();
        let mut unit = Unit::acquire(self, pool).await?;
        let mut tx = unit.begin().await?;
        let worked = async {
            let answers = trusted(&all, self.counted_batch(&mut tx, &all).await?);
            let claimed = Claimed::of(&all, answers);
            let value = match claimed.fresh.is_empty() {
                true => None,
                false => Some(run(self, handler(&mut tx, &claimed.fresh)).await?),
            };
            Ok::<_, ProcessError>((claimed, value))
        }
        .await;
        let (claimed, value) = match worked {
            Ok(worked) => worked,
            Err(error) => {
                let clean = roll_back(tx, error.leaves_no_statement()).await;
                unit.end(clean);
                return Err(error);
            }
        };
        let Some((first, receipt)) = &claimed.receipt else {
            let clean = roll_back(tx, true).await;
            unit.end(clean);
            return Ok(claimed.outcome(Fate::Committed, value));
        };
        let committed = commit(tx, receipt).await;
        unit.end(matches!(committed, Ok(Commit::Done)));
        // All claims stood in one transaction: what became of one became of all.
        let fate = self.fate(pool, first, receipt, committed?).await?;
        Ok(claimed.outcome(fate, value))
    }

    /// Processes many messages in one transaction, each with a run of the handler of its own.
    ///
    /// All are claimed in one round trip. Each fresh one's handler runs in a savepoint, so that a failure is its own. A claim
    /// cannot be taken back alone, though: when messages failed, everything is rolled back and the batch begun again without
    /// them. So the handler of a message may run more than once before its work is committed once; its work outside the
    /// database is repeated.
    ///
    /// A transaction with more than 64 savepoints that wrote slows down every snapshot of the server; prefer
    /// [`Inbox::process_batch`] for large batches.
    ///
    /// # Errors
    /// When nothing was done, and no message may be acked. Otherwise each message's own result stands at its place.
    ///
    /// # Examples
    /// ```no_run
    /// # use inboxd::claim::{Inbox, Message, Verdict};
    /// # async fn example(inbox: Inbox, pool: sqlx::PgPool, messages: Vec<Message>) -> Result<(), Box<dyn std::error::Error>> {
    /// let results = inbox
    ///     .process_each(&pool, &messages, async |tx, message| {
    ///         sqlx::query("insert into orders (id) values ($1)").bind(message.id().uuid()).execute(&mut **tx).await
    ///     })
    ///     .await?;
    /// for (message, result) in messages.iter().zip(&results) {
    ///     println!("{}: {:?}", message.id(), Verdict::of(result));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn process_each<T, E: Into<BoxError>>(
        &self,
        pool: &PgPool,
        messages: &[Message],
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>, &Message) -> Result<T, E> + Clone,
    ) -> Result<Vec<Result<Outcome<T>, ProcessError>>, ProcessError> {
        let mut results: Vec<Option<Result<Outcome<T>, ProcessError>>> = messages.iter().map(|_| None).collect();
        let (mut attempt, mut round) = (1, 1);
        loop {
            let todo = still_to_do(messages, &results);
            let result = self.each_once(pool, &todo, handler.clone()).await;
            if self.tries_again(&result, attempt).await {
                attempt += 1;
                continue;
            }
            let Round { committed, ends } = result.inspect_err(|error| {
                messages.iter().for_each(|_| self.count_unit(error.label()));
            })?;
            for (place, end) in ends {
                results[place] = Some(end);
            }
            if committed || round == ROUNDS {
                break;
            }
            round += 1;
        }
        Ok(self.gathered(messages, results))
    }

    /// One round. When a handler fails, nothing is committed, and the failures are all that the round brings.
    async fn each_once<T, E: Into<BoxError>>(
        &self,
        pool: &PgPool,
        todo: &[(usize, &Message)],
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>, &Message) -> Result<T, E> + Clone,
    ) -> Result<Round<T>, ProcessError> {
        let mut unit = Unit::acquire(self, pool).await?;
        let mut tx = unit.begin().await?;
        let worked = match self.work_each(&mut tx, todo, handler).await {
            Ok(worked) => worked,
            Err(error) => {
                let clean = roll_back(tx, true).await;
                unit.end(clean);
                return Err(error);
            }
        };
        if !worked.failed.is_empty() {
            let clean = roll_back(tx, worked.leaves_no_statement()).await;
            unit.end(clean);
            let ends = worked.failed.into_iter().map(|(place, error)| (place, Err(error)));
            return Ok(Round {
                committed: false,
                ends: ends.collect(),
            });
        }
        let Some((first, receipt)) = worked.receipt else {
            let clean = roll_back(tx, true).await;
            unit.end(clean);
            return Ok(Round {
                committed: true,
                ends: worked.ended,
            });
        };
        let committed = commit(tx, &receipt).await;
        unit.end(matches!(committed, Ok(Commit::Done)));
        let fate = self.fate(pool, first, &receipt, committed?).await?;
        let ends = worked.ended.into_iter().map(|(place, end)| (place, under(fate, end)));
        Ok(Round {
            committed: true,
            ends: ends.collect(),
        })
    }

    /// Claims all, and runs the handler of each that is fresh in a savepoint.
    async fn work_each<'m, T, E: Into<BoxError>>(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        todo: &[(usize, &'m Message)],
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>, &Message) -> Result<T, E> + Clone,
    ) -> Result<Worked<'m, T>, ProcessError> {
        let messages: Vec<&Message> = todo.iter().map(|(_, message)| *message).collect();
        let answers = trusted(&messages, self.counted_batch(tx, &messages).await?);
        let mut worked = Worked {
            ended: Vec::new(),
            failed: Vec::new(),
            receipt: None,
        };
        for ((place, message), answer) in todo.iter().zip(answers) {
            let claim = match answer.claim {
                Ok(claim) => claim,
                Err(error) => {
                    worked.ended.push((*place, Err(error.into())));
                    continue;
                }
            };
            if let Some(outcome) = claim.skipped() {
                worked.ended.push((*place, Ok(outcome)));
                continue;
            }
            worked.receipt.get_or_insert((*message, answer.receipt));
            match self.work_one(tx, message, handler.clone()).await {
                Ok(value) => worked.ended.push((*place, Ok(Outcome::Done(value)))),
                // The snapshot or the locks of the whole transaction are at fault.
                Err(error) if error.is_conflict() => return Err(error),
                Err(error) => {
                    worked.failed.push((*place, error));
                    if !worked.leaves_no_statement() {
                        break;
                    }
                }
            }
        }
        Ok(worked)
    }

    async fn work_one<T, E: Into<BoxError>>(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        message: &Message,
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>, &Message) -> Result<T, E> + Clone,
    ) -> Result<T, ProcessError> {
        let mut savepoint = tx.begin().await.map_err(ProcessError::Connection)?;
        match run(self, handler(&mut savepoint, message)).await {
            Ok(value) => match savepoint.commit().await {
                Ok(()) => Ok(value),
                Err(error) if ClaimErrorKind::of(&error) == ClaimErrorKind::Aborted => {
                    Err(ProcessError::ErrorPassedOver(error))
                }
                Err(error) => Err(ProcessError::Connection(error)),
            },
            Err(error) => {
                if error.leaves_no_statement() {
                    savepoint.rollback().await.map_err(ProcessError::Connection)?;
                }
                Err(error)
            }
        }
    }

    fn gathered<T>(
        &self,
        messages: &[Message],
        results: Vec<Option<Result<Outcome<T>, ProcessError>>>,
    ) -> Vec<Result<Outcome<T>, ProcessError>> {
        let failed = failed_ids(messages, &results);
        let results = messages.iter().zip(results).map(|(message, result)| {
            result.unwrap_or_else(|| {
                Err(match failed.contains(&message.id()) {
                    true => ProcessError::RepeatsFailed,
                    false => ProcessError::BatchFailed,
                })
            })
        });
        results.inspect(|result| self.count_unit(label_of(result))).collect()
    }
}

/// What one round over the messages of a batch brought: all ends when it was committed, only the failures when it was not.
struct Round<T> {
    committed: bool,
    ends: Vec<(usize, Result<Outcome<T>, ProcessError>)>,
}

/// What a round came to before its commit.
struct Worked<'m, T> {
    ended: Vec<(usize, Result<Outcome<T>, ProcessError>)>,
    failed: Vec<(usize, ProcessError)>,
    /// The first claim that was fresh: by it the whole transaction is known again.
    receipt: Option<(&'m Message, Receipt)>,
}

impl<T> Worked<'_, T> {
    fn leaves_no_statement(&self) -> bool {
        self.failed.iter().all(|(_, error)| error.leaves_no_statement())
    }
}

/// The messages without a result, but for those that repeat one that failed.
fn still_to_do<'m, T>(
    messages: &'m [Message],
    results: &[Option<Result<Outcome<T>, ProcessError>>],
) -> Vec<(usize, &'m Message)> {
    let failed = failed_ids(messages, results);
    messages
        .iter()
        .enumerate()
        .filter(|(_, message)| !failed.contains(&message.id()))
        .collect()
}

fn failed_ids<T>(messages: &[Message], results: &[Option<Result<Outcome<T>, ProcessError>>]) -> HashSet<MessageId> {
    messages
        .iter()
        .zip(results)
        .filter(|(_, result)| matches!(result, Some(Err(_))))
        .map(|(message, _)| message.id())
        .collect()
}

/// What a message's end is once the fate of its transaction is known.
fn under<T>(fate: Fate, end: Result<Outcome<T>, ProcessError>) -> Result<Outcome<T>, ProcessError> {
    match (fate, end) {
        (Fate::Unknown, Ok(Outcome::Done(_) | Outcome::Repeated)) => Ok(Outcome::Unknown),
        (_, end) => end,
    }
}

/// The answers, where a repeat of nothing in this batch is in flight: somebody has left the connection with a transaction open
/// and that message claimed in it, which is no proof that the work was done.
fn trusted(messages: &[&Message], mut answers: Vec<Answer>) -> Vec<Answer> {
    let mut fresh = HashSet::new();
    for (message, answer) in messages.iter().zip(&mut answers) {
        match answer.claim {
            Ok(Claim::Fresh) => {
                fresh.insert(message.id());
            }
            Ok(Claim::Repeated) if !fresh.contains(&message.id()) => answer.claim = Ok(Claim::InFlight),
            _ => {}
        }
    }
    answers
}

/// The claims of a batch, and what its one handler works on.
struct Claimed<'m> {
    claims: Vec<Result<Claim, ClaimError>>,
    fresh: Vec<&'m Message>,
    /// The first of the fresh ones: by it the whole transaction is known again.
    receipt: Option<(&'m Message, Receipt)>,
}

impl<'m> Claimed<'m> {
    fn of(messages: &[&'m Message], answers: Vec<Answer>) -> Self {
        let mut claimed = Self {
            claims: Vec::new(),
            fresh: Vec::new(),
            receipt: None,
        };
        for (message, answer) in messages.iter().zip(answers) {
            if matches!(answer.claim, Ok(Claim::Fresh)) {
                claimed.fresh.push(*message);
                claimed.receipt.get_or_insert((*message, answer.receipt));
            }
            claimed.claims.push(answer.claim);
        }
        claimed
    }

    fn outcome<T>(self, fate: Fate, value: Option<T>) -> BatchOutcome<T> {
        let messages = self.claims.into_iter().map(|claim| {
            let outcome = claim?.skipped().unwrap_or(Outcome::Done(()));
            Ok(match (fate, outcome) {
                (Fate::Unknown, Outcome::Done(()) | Outcome::Repeated) => Outcome::Unknown,
                (_, outcome) => outcome,
            })
        });
        BatchOutcome {
            messages: messages.collect(),
            value: value.filter(|_| fate == Fate::Committed),
        }
    }
}
