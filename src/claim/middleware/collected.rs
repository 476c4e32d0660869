//! Deliveries on their way into a batch.

use futures_timer::Delay;

use super::settings::Batch;

/// What has been taken and waits until the batch is full, or its first has waited long enough.
pub(super) struct Collected<D> {
    full: Batch,
    deliveries: Vec<D>,
    due: Option<Delay>,
}

impl<D> Collected<D> {
    pub(super) fn new(full: Batch) -> Self {
        Self {
            full,
            deliveries: Vec::new(),
            due: None,
        }
    }

    /// Adds one; the batch, once it is full.
    pub(super) fn add(&mut self, delivery: D) -> Option<Vec<D>> {
        self.deliveries.push(delivery);
        if self.deliveries.len() >= self.full.size {
            return self.take();
        }
        self.due.get_or_insert_with(|| Delay::new(self.full.wait));
        None
    }

    /// Returns once the first one has waited long enough; never while there is none. Dropped half-way, it goes on the next time.
    pub(super) async fn due(&mut self) {
        match &mut self.due {
            Some(due) => due.await,
            None => std::future::pending().await,
        }
    }

    /// What there is, if there is any.
    pub(super) fn take(&mut self) -> Option<Vec<D>> {
        self.due = None;
        let deliveries = std::mem::take(&mut self.deliveries);
        (!deliveries.is_empty()).then_some(deliveries)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_batch_is_given_out_when_it_is_full_and_then_begins_anew() {
        let mut collected = Collected::new(Batch {
            size: 2,
            wait: Duration::from_secs(3600),
        });
        assert_eq!((collected.add(1), collected.add(2)), (None, Some(vec![1, 2])));
        assert_eq!(collected.take(), None);
        assert_eq!((collected.add(3), collected.take()), (None, Some(vec![3])));
        assert_eq!(Collected::new(Batch::OF_ONE).add(1), Some(vec![1]));
    }

    #[tokio::test]
    async fn the_first_one_waits_no_longer_for_those_behind_it() {
        let wait = Duration::from_millis(50);
        let mut collected = Collected::new(Batch { size: 10, wait });
        assert!(collected.due().now_or_never().is_none(), "there is none yet");
        let began = Instant::now();
        collected.add(1);
        assert!(collected.due().now_or_never().is_none());
        collected.add(2);
        collected.due().await;
        assert!(began.elapsed() >= wait);
        assert_eq!(collected.take(), Some(vec![1, 2]));
    }
}
