//! A steady load of claims, with the time that each took.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use inboxd::clock::Clock;
use sqlx::Connection;
use tokio::task::JoinSet;

use crate::{measure::quantile, peer::Peer};

/// Claims that are made at a fixed rate until it is stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Vec<f64>>,
}

/// How long claims took, in milliseconds, sorted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latencies(Vec<f64>);

impl Latencies {
    pub(crate) fn of(mut millis: Vec<f64>) -> Self {
        millis.sort_by(f64::total_cmp);
        Self(millis)
    }

    pub(crate) fn at(&self, q: f64) -> f64 {
        quantile(&self.0, q)
    }

    pub(crate) fn longest(&self) -> f64 {
        self.at(1.0)
    }
}

impl Load {
    /// As many connections, each with a claim when its turn comes, in a transaction of its own.
    ///
    /// A claim's time begins when its turn comes, also where the one before it was late: a wait is told by all whom it kept.
    pub(crate) async fn start(peer: &Peer, clock: &Clock, connections: u32, claims_a_second: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let every = Duration::from_secs(1) * connections / claims_a_second;
        for nth in 0..connections {
            let mut connection = peer.database.connect().await;
            let (stop, clock, claim) = (stop.clone(), clock.clone(), peer.claim());
            tasks.spawn(async move {
                let mut millis = Vec::new();
                let mut due = Instant::now() + every * nth / connections;
                while !stop.load(Ordering::SeqCst) {
                    tokio::time::sleep_until(due.into()).await;
                    let id = Peer::new_id(clock.now());
                    let fresh: Option<bool> = sqlx::query_scalar(claim)
                        .bind(id)
                        .fetch_optional(&mut connection)
                        .await
                        .unwrap();
                    assert_eq!(fresh, Some(true), "each id is new");
                    millis.push(due.elapsed().as_secs_f64() * 1000.0);
                    due += every;
                }
                connection.close().await.unwrap();
                millis
            });
        }
        Self { stop, tasks }
    }

    pub(crate) async fn stop(mut self) -> Latencies {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        while let Some(one) = self.tasks.join_next().await {
            all.extend(one.unwrap());
        }
        Latencies::of(all)
    }
}
