//! The broker: delivers each message three times, and again what was not acked, while the clock is stepped.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use tokio::sync::{Mutex, Notify};

use super::{
    shape::{Delivery, Fate},
    world::Message,
};

const COPIES: usize = 3;

/// A delivery that fails more often than this has something wrong with it that is no accident.
const ATTEMPTS: u32 = 40;

/// What a consumer gets.
#[derive(Debug)]
pub(super) enum Next {
    Deliveries(Vec<Delivery>),
    /// This stretch is delivered: the clock is to be stepped to the next, by whoever gets this.
    Stretch(usize),
    /// All is acked.
    End,
}

/// The deliveries of a run: stretches between the steps of the clock, and redeliveries, which come in the next stretch.
#[derive(Debug)]
pub(super) struct Feed {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    now: VecDeque<Delivery>,
    stretches: VecDeque<Vec<Delivery>>,
    again: Vec<Delivery>,
    begun: usize,
    busy: usize,
    stepping: bool,
    popped: usize,
}

impl Feed {
    /// Spreads three copies of each message over the stretches: the second not before the first, the third in a later one.
    pub(super) fn new(messages: &[Message], stretches: usize, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut spread: Vec<Vec<Delivery>> = vec![Vec::new(); stretches];
        for message in messages {
            let first = random.random_range(0..stretches - 1);
            let third = random.random_range(first + 1..stretches);
            let second = random.random_range(first..=third);
            let copies: [usize; COPIES] = [first, second, third];
            for stretch in copies {
                spread[stretch].push(Delivery {
                    message: *message,
                    fate: fate(&mut random, stretch + 1 < stretches),
                    attempt: 0,
                });
            }
        }
        for stretch in &mut spread {
            stretch.shuffle(&mut random);
            // Copies one after the other meet; shuffled copies mostly do not.
            let half = stretch.len() / 2;
            stretch[half..].sort_by_key(|delivery| delivery.message);
        }
        let mut stretches: VecDeque<_> = spread.into();
        let now = stretches.pop_front().unwrap_or_default().into();
        Self {
            inner: Mutex::new(Inner {
                now,
                stretches,
                again: Vec::new(),
                begun: 0,
                busy: 0,
                stepping: false,
                popped: 0,
            }),
            changed: Notify::new(),
        }
    }

    pub(super) async fn next(&self, at_most: usize) -> Next {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            if let Some(next) = self.inner.lock().await.next(at_most) {
                return next;
            }
            changed.await;
        }
    }

    /// The clock has been stepped.
    pub(super) async fn stepped(&self) {
        self.inner.lock().await.begin();
        self.changed.notify_waiters();
    }

    /// A consumer is done with its deliveries, of which some are to be delivered again.
    pub(super) async fn done(&self, again: Vec<Delivery>) {
        let mut inner = self.inner.lock().await;
        inner.busy -= 1;
        for mut delivery in again {
            delivery.attempt += 1;
            assert!(delivery.attempt <= ATTEMPTS, "delivered in vain: {delivery:?}");
            // Whatever went wrong goes wrong twice at most; and a handler spans a midnight once.
            if delivery.attempt > 1 || delivery.fate == Fate::SpansAStep {
                delivery.fate = Fate::Commits;
            }
            inner.again.push(delivery);
        }
        drop(inner);
        self.changed.notify_waiters();
    }

    /// How many deliveries were made so far.
    pub(super) async fn popped(&self) -> usize {
        self.inner.lock().await.popped
    }
}

impl Inner {
    fn next(&mut self, at_most: usize) -> Option<Next> {
        if self.stepping {
            return None;
        }
        if !self.now.is_empty() {
            let first = self.now[0];
            // A batch is claimed for one consumer.
            let of_one = |delivery: &&Delivery| delivery.message.consumer == first.message.consumer;
            let count = self.now.iter().take(at_most).take_while(of_one).count();
            self.busy += 1;
            self.popped += count;
            return Some(Next::Deliveries(self.now.drain(..count).collect()));
        }
        if !self.stretches.is_empty() {
            self.stepping = true;
            return Some(Next::Stretch(self.begun + 1));
        }
        // Not while somebody holds a message: to deliver it again at once would be a hot loop.
        if !self.again.is_empty() && self.busy == 0 {
            self.now = std::mem::take(&mut self.again).into();
            return self.next(at_most);
        }
        (self.busy == 0).then_some(Next::End)
    }

    fn begin(&mut self) {
        let mut stretch = self.stretches.pop_front().unwrap_or_default();
        stretch.splice(0..0, std::mem::take(&mut self.again));
        self.now = stretch.into();
        self.begun += 1;
        self.stepping = false;
    }
}

/// One in four deliveries ends badly or late.
fn fate(random: &mut StdRng, another_step_comes: bool) -> Fate {
    match random.random_range(0..100) {
        0..8 => Fate::RollsBack,
        8..13 => Fate::Fails,
        13..16 => Fate::Killed,
        16..19 => Fate::Panics,
        19..22 => Fate::IsCancelled,
        22..26 if another_step_comes => Fate::SpansAStep,
        _ => Fate::Commits,
    }
}
