//! The loop: take, process, settle; stop taking when told, and finish what is in hand.

use std::{
    future::Future,
    pin::{Pin, pin},
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};

use super::{Consumer, Delivery, Source, State, collected::Collected, gate::backoff, settings::Batch};
use crate::claim::unit::{sleep, within};

impl<D: Delivery> Consumer<D> {
    /// Runs what is made of each batch, so many at once, until `shutdown` or the end of the source.
    pub(super) async fn drive<S, F>(
        &self,
        source: S,
        shutdown: impl Future<Output = ()>,
        batch: Batch,
        handle: impl Fn(Vec<D>) -> F,
    ) where
        S: Source<Delivery = D>,
        F: Future<Output = ()>,
    {
        // With how many deliveries it was.
        let handle = |deliveries: Vec<D>| {
            let count = deliveries.len();
            handle(deliveries).map(move |()| count)
        };
        let mut shutdown = pin!(shutdown);
        let (mut in_hand, mut deliveries_in_hand) = (FuturesUnordered::new(), 0);
        let mut collected = Collected::new(batch);
        let mut state = self.gate.subscribe();
        let closed = source.closed();
        // It owns the source, and is never dropped half-way before the end: what it was about to deliver would be lost to us.
        let mut taking = Some(Box::pin(self.take(source)));
        self.gate.reset(State::Running);
        loop {
            // What is being collected has a place already.
            let has_room = self.gate.is_open() && in_hand.len() < self.settings.concurrency;
            self.inbox.show_consumer(deliveries_in_hand, self.state());
            let full = tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(count) = in_hand.next(), if !in_hand.is_empty() => {
                    deliveries_in_hand -= count;
                    None
                }
                () = collected.due() => collected.take(),
                taken = next(&mut taking), if has_room && taking.is_some() => match taken {
                    Some((source, delivery)) => {
                        deliveries_in_hand += 1;
                        taking = Some(Box::pin(self.take(source)));
                        collected.add(delivery)
                    }
                    None => {
                        taking = None;
                        collected.take()
                    }
                },
                // The gate opens without a delivery having ended.
                _ = state.changed() => None,
                else => break,
            };
            in_hand.extend(full.map(&handle));
            if taking.is_none() && in_hand.is_empty() {
                break;
            }
        }
        self.gate.reset(State::Draining);
        // Not begun, so they are left.
        in_hand.extend(collected.take().map(&handle));
        self.drain(in_hand, deliveries_in_hand).await;
        // Only now: the deliveries of some brokers are settled over what the source holds.
        drop(taking);
        if within(self.settings.settle_deadline, closed).await.is_none() {
            tracing::warn!(inbox = %self.inbox.table(), "the broker did not take back in time what was not delivered");
        }
        self.gate.reset(State::Idle);
        self.inbox.show_consumer(0, State::Idle);
    }

    /// The next delivery of a source, however long its broker is away; none at its end.
    async fn take<S: Source<Delivery = D>>(&self, mut source: S) -> Option<(S, D)> {
        let mut failures = 0;
        loop {
            let connected = source.connect().await;
            if let Ok(true) = connected {
                self.broker_is_back(&mut failures);
            }
            let taken = match connected {
                Ok(_) => source.next().await,
                Err(error) => Err(error),
            };
            match taken {
                Ok(delivery) => {
                    self.broker_is_back(&mut failures);
                    return delivery.map(|delivery| (source, delivery));
                }
                Err(error) => {
                    let pause = backoff(self.settings.first_pause, self.settings.longest_pause, failures);
                    tracing::warn!(
                        inbox = %self.inbox.table(), error = %error, failures,
                        pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                        "the broker gives no deliveries; it is asked again after a pause"
                    );
                    self.gate.set_broker_away(true);
                    failures = failures.saturating_add(1);
                    sleep(pause).await;
                }
            }
        }
    }

    fn broker_is_back(&self, failures: &mut u32) {
        if *failures > 0 {
            tracing::info!(inbox = %self.inbox.table(), failures, "the broker is back");
            self.gate.set_broker_away(false);
            *failures = 0;
        }
    }

    async fn drain<F: Future<Output = usize>>(&self, mut in_hand: FuturesUnordered<F>, mut deliveries: usize) {
        self.inbox.show_consumer(deliveries, State::Draining);
        tracing::info!(inbox = %self.inbox.table(), in_hand = deliveries, "no more deliveries are taken");
        let mut too_late = pin!(sleep(self.settings.drain_deadline));
        loop {
            tokio::select! {
                biased;
                ended = in_hand.next() => match ended {
                    Some(count) => deliveries -= count,
                    None => return,
                },
                () = &mut too_late => break,
            }
        }
        for _ in 0..deliveries {
            self.inbox.count_delivery("abandon");
        }
        tracing::warn!(
            inbox = %self.inbox.table(), in_hand = deliveries,
            "deliveries were not finished within the drain deadline; they are rolled back and stay with the broker"
        );
    }
}

/// What is being taken; pending while nothing is.
async fn next<T>(taking: &mut Option<Pin<Box<impl Future<Output = T>>>>) -> T {
    match taking {
        Some(taking) => taking.await,
        None => std::future::pending().await,
    }
}
