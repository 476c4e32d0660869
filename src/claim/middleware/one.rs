//! One delivery, from the broker's hand to its settlement.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use futures_util::{
    FutureExt,
    future::{Either, select},
};
use sqlx::PgPool;
use tokio::sync::Semaphore;
use tracing::Instrument;

use super::{
    Delivery, Rejection, State, Unclaimable,
    failures::Failures,
    gate::{Gate, Probe, backoff},
    ids::{id_of, rejection},
    settings::Settings,
    table::{Attempt, Judgement, judge},
    work::Work,
};
use crate::claim::{
    Inbox, Message, Outcome,
    unit::{sleep, within},
};

/// The longest wait for the database's answer to whether it is there.
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// What each delivery is handled with.
///
/// What holds the futures of a driver, a handler or a client is boxed: inlined into each other they come to hundreds of kilobytes,
/// which a build without optimization moves over the stack again and again.
pub(super) struct One<'c, D, W> {
    pub(super) inbox: &'c Inbox,
    pub(super) pool: &'c PgPool,
    pub(super) settings: &'c Settings<D>,
    pub(super) gate: &'c Gate,
    pub(super) failures: &'c Failures,
    pub(super) work: W,
    /// How many transactions there may be: a batch that falls apart is many deliveries at once.
    pub(super) transactions: Semaphore,
}

/// What is said to the broker.
#[derive(Debug)]
pub(super) enum Settlement {
    Ack,
    RetryLater(Duration),
    Reject(Rejection),
    Leave,
}

impl<D: Delivery, W: Work<D>> One<'_, D, W> {
    pub(super) async fn handle(&self, delivery: D) {
        match self.readable(&delivery) {
            Err(rejection) => self.settle(delivery, Settlement::Reject(rejection)).await,
            Ok(message) => self.handle_message(delivery, message).await,
        }
    }

    pub(super) async fn handle_message(&self, delivery: D, message: Message) {
        let span = tracing::info_span!(
            "delivery", inbox = %self.inbox.table(), message_id = %message.id(), topic = message.topic(),
            attempt = delivery.attempt()
        );
        let deciding = self.decide(&delivery, &message).instrument(span);
        let settlement = keeping_the_broker_patient(&[&delivery], deciding).await;
        self.settle(delivery, settlement).await;
    }

    /// The message of a delivery. Functions of the consumer's may run in there.
    pub(super) fn readable(&self, delivery: &D) -> Result<Message, Rejection> {
        catch_unwind(AssertUnwindSafe(|| self.message(delivery)))
            .unwrap_or_else(|panic| Err(rejection(delivery, "unreadable", what_it_said(&*panic))))
    }

    fn message(&self, delivery: &D) -> Result<Message, Rejection> {
        let id = id_of(delivery, &self.settings.id, &self.settings.missing_id)?;
        let refused = |error: crate::claim::MessageError| rejection(delivery, "invalid_message", error.to_string());
        let mut message = Message::new(id, delivery.topic().into_owned()).map_err(refused)?;
        if let Some(created_at) = self.settings.created_at.as_ref().and_then(|find| find(delivery)) {
            message = message.created_at(created_at);
        }
        if let Some(name) = &self.settings.consumer_name {
            message = message.consumer(name.clone()).map_err(refused)?;
        }
        Ok(message)
    }

    /// Attempts it until it is known what to tell the broker.
    async fn decide(&self, delivery: &D, message: &Message) -> Settlement {
        let began = Instant::now();
        let mut probe: Option<Probe<'_>> = None;
        let mut holds = 0;
        loop {
            if probe.is_none() && !self.gate.wait_open().await {
                return Settlement::Leave;
            }
            let attempt = self.attempt(delivery, message).await;
            let state = match self.judgement(&attempt).await {
                Judgement::Away => State::DatabaseAway,
                Judgement::Paused => State::Paused,
                Judgement::InFlight if began.elapsed() < self.settings.in_flight_patience => State::Running,
                judgement => {
                    // The database has answered, and messages can be claimed: the others need not wait for what follows.
                    drop(probe);
                    return self.settlement(delivery, message, &attempt, judgement).await;
                }
            };
            if state == State::Running {
                probe = None;
            } else {
                match &probe {
                    Some(probe) => probe.enter(state),
                    None => probe = self.gate.close(state),
                }
                self.log_hold(state, &attempt, holds);
            }
            if !self.gate.pause(self.pause(holds)).await {
                return Settlement::Leave;
            }
            holds = holds.saturating_add(1);
        }
    }

    /// Ends at once what is judged without doubt, and asks the database otherwise.
    async fn judgement(&self, attempt: &Attempt) -> Judgement {
        match judge(attempt) {
            Judgement::FailedOrAway if self.is_database_there().await => Judgement::Failed,
            Judgement::FailedOrAway => Judgement::Away,
            judgement => judgement,
        }
    }

    /// What the broker is told of an attempt that nothing holds up.
    pub(super) async fn settlement(
        &self,
        delivery: &D,
        message: &Message,
        attempt: &Attempt,
        judgement: Judgement,
    ) -> Settlement {
        let settlement = match judgement {
            Judgement::Ack => Settlement::Ack,
            Judgement::Leave => Settlement::Leave,
            Judgement::Unclaimable => self.unclaimable(delivery, attempt),
            Judgement::Failed => self.failed(delivery, message, attempt).await,
            _ => self.retry(delivery, attempt, 0).await,
        };
        if let Settlement::Ack | Settlement::Reject(_) = settlement {
            self.failures.forget(message.id());
        }
        settlement
    }

    async fn attempt(&self, delivery: &D, message: &Message) -> Attempt {
        // Never closed.
        let _transaction = self.transactions.acquire().await;
        let is_worked_on = AtomicBool::new(true);
        let processing = self.inbox.process(self.pool, message, async |tx| {
            is_worked_on.store(true, Ordering::SeqCst);
            let result = self.work.on_one(tx, delivery).await;
            is_worked_on.store(result.is_err(), Ordering::SeqCst);
            result
        });
        // What the handler has left half-way is rolled back, and nothing else of ours is touched by it.
        let caught = AssertUnwindSafe(Box::pin(processing)).catch_unwind();
        match within(self.settings.deadline, caught).await {
            Some(Ok(result)) => Attempt::Ended(result),
            Some(Err(panic)) => Attempt::Panicked(what_it_said(&*panic)),
            None if is_worked_on.into_inner() => Attempt::TimedOut(self.settings.deadline),
            // The commit may have been on its way.
            None => Attempt::Ended(Ok(Outcome::Unknown)),
        }
    }

    async fn is_database_there(&self) -> bool {
        let asked = within(PROBE_LIMIT, sqlx::raw_sql("select 1").execute(self.pool)).await;
        matches!(asked, Some(Ok(_)))
    }

    fn unclaimable(&self, delivery: &D, attempt: &Attempt) -> Settlement {
        let (reason, detail) = (attempt.label(), attempt.detail());
        match self.settings.unclaimable {
            Unclaimable::Reject => Settlement::Reject(rejection(delivery, reason, detail)),
            Unclaimable::Discard => {
                tracing::warn!(
                    reason,
                    detail,
                    "a message that cannot be claimed is acked without work, as configured"
                );
                Settlement::Ack
            }
        }
    }

    async fn failed(&self, delivery: &D, message: &Message, attempt: &Attempt) -> Settlement {
        let failures = self.failures.count(message.id());
        let count = delivery.attempt().unwrap_or(1).max(failures);
        if count >= self.settings.attempts {
            let rejection = rejection(delivery, attempt.label(), attempt.detail());
            return Settlement::Reject(Rejection {
                attempt: count,
                ..rejection
            });
        }
        self.retry(delivery, attempt, failures).await
    }

    async fn retry(&self, delivery: &D, attempt: &Attempt, failures: u32) -> Settlement {
        let pause = self.pause(delivery.attempt().unwrap_or(1).max(failures).saturating_sub(1));
        tracing::warn!(
            outcome = attempt.label(),
            detail = attempt.detail(),
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "a message is to be delivered again after a pause"
        );
        if !D::BROKER_DELAYS {
            // A shutdown cuts it short; the broker is told all the same.
            let _ = self.gate.pause(pause).await;
        }
        Settlement::RetryLater(pause)
    }

    fn pause(&self, attempt: u32) -> Duration {
        backoff(self.settings.first_pause, self.settings.longest_pause, attempt)
    }

    /// Once for each hold, at the level that says whether somebody must act.
    fn log_hold(&self, state: State, attempt: &Attempt, holds: u32) {
        let detail = attempt.detail();
        match (state, holds) {
            (State::Paused, 0) => tracing::error!(
                outcome = attempt.label(),
                detail,
                "no message can be claimed until somebody acts: the consumer is paused"
            ),
            (_, 0) => tracing::warn!(
                detail,
                "the database is away: nothing is taken or acked until it is back"
            ),
            _ => tracing::debug!(detail, holds, "still held"),
        }
    }

    /// Tells the broker, within the deadline. A settlement that fails is counted; the redelivery is a duplicate, or is worked
    /// on then.
    pub(super) async fn settle(&self, delivery: D, settlement: Settlement) {
        if let Settlement::Reject(rejection) = &settlement {
            tracing::error!(
                inbox = %self.inbox.table(), topic = %delivery.topic(), reason = rejection.reason,
                detail = rejection.detail, attempt = rejection.attempt, "a message is rejected"
            );
        }
        let action = settlement.label();
        let telling = Box::pin(async {
            match settlement {
                Settlement::Ack => delivery.ack().await,
                Settlement::RetryLater(pause) => delivery.retry_later(pause).await,
                Settlement::Reject(rejection) => delivery.reject(&rejection).await,
                Settlement::Leave => delivery.leave().await,
            }
        });
        let error = match within(self.settings.settle_deadline, telling).await {
            Some(Ok(())) => return self.inbox.count_delivery(action),
            Some(Err(error)) => error,
            None => format!("no answer within {} ms", self.settings.settle_deadline.as_millis()).into(),
        };
        self.inbox.count_unsettled(action);
        tracing::warn!(
            inbox = %self.inbox.table(), action, error = %error,
            "the broker did not confirm what it was told; it will deliver the message again"
        );
    }
}

impl Settlement {
    fn label(&self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::RetryLater(_) => "retry",
            Self::Reject(_) => "reject",
            Self::Leave => "leave",
        }
    }
}

/// Tells the broker at its intervals that work on these goes on.
pub(super) async fn keeping_the_broker_patient<D: Delivery, F: Future>(deliveries: &[&D], work: F) -> F::Output {
    let Some(interval) = deliveries
        .iter()
        .filter_map(|delivery| delivery.progress_interval())
        .min()
    else {
        return work.await;
    };
    let signals = async {
        loop {
            sleep(interval).await;
            for delivery in deliveries {
                delivery.in_progress().await;
            }
        }
    };
    match select(pin!(work), pin!(signals)).await {
        Either::Left((output, _)) => output,
        // A loop without an end.
        Either::Right((never, _)) => never,
    }
}

pub(super) fn what_it_said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "it said nothing".to_owned())
}
