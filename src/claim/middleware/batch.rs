//! A batch of deliveries, from the broker's hand to their settlements.
//!
//! 1. What has no message is rejected, and what has failed before goes its own way: it would only fail the others again.
//! 2. The rest is tried in one transaction. Each is then judged by the table on its own.
//! 3. What the table says is done is told to the broker. Everything else is tried once more, alone: each message of a
//!    batch that failed, because the innocent must not fail with the guilty; each that is in flight; and where nothing can
//!    be done for now, the first one finds that out again and closes the gate.
//!
//! So whatever becomes of a batch, a message fails, is held and is given up by itself alone. A batch that failed as a whole is
//! no failure of any of its messages.

use std::{
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicBool, Ordering},
};

use futures_util::{FutureExt, StreamExt, future::join, stream::FuturesUnordered};
use tracing::Instrument;

use super::{
    Delivery,
    one::{One, Settlement, keeping_the_broker_patient, what_it_said},
    table::{Attempt, Judgement, judge},
    work::WorkOnMany,
};
use crate::claim::{BatchOutcome, Message, Outcome, ProcessError, unit::within};

/// A delivery with what it was read as.
type Read<D> = (D, Message);

impl<D: Delivery, W: WorkOnMany<D>> One<'_, D, W> {
    pub(super) async fn handle_batch(&self, deliveries: Vec<D>) {
        let (mut batch, mut alone, rejected) = (Vec::new(), Vec::new(), FuturesUnordered::new());
        for delivery in deliveries {
            match self.readable(&delivery) {
                Err(rejection) => rejected.push(self.settle(delivery, Settlement::Reject(rejection))),
                Ok(message) if self.failures.has(message.id()) => alone.push((delivery, message)),
                Ok(message) => batch.push((delivery, message)),
            }
        }
        if batch.len() == 1 {
            alone.append(&mut batch);
        }
        let others = join(all(rejected), self.handle_alone(alone));
        join(Box::pin(self.handle_together(batch)), Box::pin(others)).await;
    }

    async fn handle_together(&self, batch: Vec<Read<D>>) {
        if batch.is_empty() {
            return;
        }
        let span = tracing::info_span!("batch", inbox = %self.inbox.table(), deliveries = batch.len());
        let (deliveries, messages): (Vec<D>, Vec<Message>) = batch.into_iter().unzip();
        let patient: Vec<&D> = deliveries.iter().collect();
        let trying = async {
            match self.gate.wait_open().await {
                true => self.attempt_batch(&deliveries, &messages).await,
                // All of them are left.
                false => Tried::Each(messages.iter().map(|_| unknown()).collect()),
            }
        };
        let tried = keeping_the_broker_patient(&patient, trying.instrument(span)).await;
        let batch = deliveries.into_iter().zip(messages);
        let attempts = match tried {
            Tried::Each(attempts) => attempts,
            Tried::Failed(attempt) => {
                self.inbox.count_batch("failed");
                tracing::info!(
                    inbox = %self.inbox.table(), outcome = attempt.label(), detail = attempt.detail(),
                    "a batch has failed; each of its messages is tried alone"
                );
                return self.handle_alone(batch.collect()).await;
            }
        };
        self.inbox.count_batch("ended");
        let (settled, mut alone) = (FuturesUnordered::new(), Vec::new());
        for ((delivery, message), attempt) in batch.zip(attempts) {
            match judge(&attempt) {
                judgement @ (Judgement::Ack | Judgement::Leave | Judgement::Unclaimable) => {
                    settled.push(self.settle_as_judged(delivery, message, attempt, judgement));
                }
                _ => alone.push((delivery, message)),
            }
        }
        join(all(settled), self.handle_alone(alone)).await;
    }

    async fn settle_as_judged(&self, delivery: D, message: Message, attempt: Attempt, judgement: Judgement) {
        let settlement = self.settlement(&delivery, &message, &attempt, judgement).await;
        self.settle(delivery, settlement).await;
    }

    async fn handle_alone(&self, deliveries: Vec<Read<D>>) {
        let each = deliveries.into_iter();
        all(each
            .map(|(delivery, message)| Box::pin(self.handle_message(delivery, message)))
            .collect())
        .await;
    }

    async fn attempt_batch(&self, deliveries: &[D], messages: &[Message]) -> Tried {
        // Never closed.
        let _transaction = self.transactions.acquire().await;
        let is_worked_on = AtomicBool::new(true);
        let processing = self.inbox.process_batch(self.pool, messages, async |tx, fresh| {
            is_worked_on.store(true, Ordering::SeqCst);
            let result = match of_these(deliveries, messages, fresh) {
                Some(fresh) => self.work.on_many(tx, &fresh).await,
                None => Err("the fresh messages of a batch are not in its order".into()),
            };
            is_worked_on.store(result.is_err(), Ordering::SeqCst);
            result
        });
        let caught = AssertUnwindSafe(Box::pin(processing)).catch_unwind();
        match within(self.settings.deadline, caught).await {
            Some(Ok(Ok(BatchOutcome { messages, .. }))) => {
                let ended = messages.into_iter().map(|message| message.map_err(ProcessError::from));
                Tried::Each(ended.map(Attempt::Ended).collect())
            }
            Some(Ok(Err(error))) => Tried::Failed(Attempt::Ended(Err(error))),
            Some(Err(panic)) => Tried::Failed(Attempt::Panicked(what_it_said(&*panic))),
            None if is_worked_on.into_inner() => Tried::Failed(Attempt::TimedOut(self.settings.deadline)),
            // The commit may have been on its way.
            None => Tried::Each(messages.iter().map(|_| unknown()).collect()),
        }
    }
}

/// What became of a batch.
enum Tried {
    /// Each message has an end of its own, in their order.
    Each(Vec<Attempt>),
    /// Nothing of it was done.
    Failed(Attempt),
}

/// The deliveries of some of the messages; none where they are not some of them, in their order.
fn of_these<'d, D>(deliveries: &'d [D], messages: &[Message], some: &[&Message]) -> Option<Vec<&'d D>> {
    let mut pairs = deliveries.iter().zip(messages);
    let mut find = |some: &Message| pairs.find(|(_, message)| std::ptr::eq(*message, some));
    some.iter().map(|message| Some(find(message)?.0)).collect()
}

fn unknown() -> Attempt {
    Attempt::Ended(Ok(Outcome::Unknown))
}

async fn all<F: Future<Output = ()>>(mut running: FuturesUnordered<F>) {
    while running.next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::MessageId;

    #[test]
    fn the_fresh_ones_of_a_batch_find_their_deliveries_by_place_also_where_ids_repeat() {
        let message = |name: &str| Message::new(MessageId::from_name(name).unwrap(), "orders").unwrap();
        let messages = [message("a"), message("b"), message("b"), message("c")];
        let find = |some: &[&Message]| of_these(&[1, 2, 3, 4], &messages, some).map(|found| found.into_iter().sum());
        assert_eq!(find(&[&messages[0], &messages[2], &messages[3]]), Some(8));
        assert_eq!(find(&[]), Some(0));
        assert_eq!(find(&[&messages[3], &messages[0]]), None);
        assert_eq!(find(&[&message("a")]), None::<i32>);
    }
}
