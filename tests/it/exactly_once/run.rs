//! A run: consumers that claim and process at once, while the clock is stepped over midnights and back, maintenance makes
//! and removes days, and sessions are killed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::{Connection, PgConnection};
use tokio::sync::{RwLock, watch};

use super::{
    feed::{Feed, Next},
    shape::{Delivery, Patience, Shape, Surroundings, Verdict},
    world::{Message, World},
};

const CONSUMERS: usize = 8;

/// Where the clock goes between the stretches of a run: over three midnights, and back over one of them.
#[derive(Debug, Clone, Copy)]
enum Step {
    Evening(i64),
    Morning(i64),
}

const STEPS: [Step; 7] = [
    Step::Morning(0),
    // A failover to a server whose clock is a minute behind.
    Step::Evening(0),
    Step::Morning(0),
    Step::Evening(1),
    Step::Morning(1),
    Step::Evening(2),
    Step::Morning(2),
];

/// Delivers each message three times, until all is acked; with what it took, to be shown.
pub(super) async fn run<S: Shape>(world: World, shape: S, messages: &[Message], seed: u64) -> (World, String) {
    let begin = Instant::now();
    let around = Arc::new(Surroundings {
        world,
        steps: watch::Sender::new(0),
        all_steps: STEPS.len(),
        timers: RwLock::new(()),
    });
    let feed = Arc::new(Feed::new(messages, STEPS.len() + 1, seed));
    let consumers: Vec<_> = (0..CONSUMERS)
        .map(|nth| {
            let (shape, around, feed) = (shape.clone(), around.clone(), feed.clone());
            tokio::spawn(consume(shape, around, feed, nth, seed))
        })
        .collect();
    let maintenance = tokio::spawn(maintain(around.clone()));
    for consumer in consumers {
        let ended = tokio::time::timeout(Duration::from_secs(600), consumer).await;
        ended.expect("the run ends").unwrap();
    }
    around.steps.send_replace(usize::MAX);
    let (passes, removed) = maintenance.await.unwrap();
    let course = format!(
        "{} messages in {:.1?}: {} deliveries, {passes} passes, which removed {removed} days",
        messages.len(),
        begin.elapsed(),
        feed.popped().await,
    );
    let around = Arc::into_inner(around).expect("all tasks have ended");
    (around.world, course)
}

/// One consumer. Half of them wait for a twin without bound and may have handlers that span a step of the clock; the other
/// half never does either, and so delivers what is left of a stretch.
async fn consume<S: Shape>(shape: S, around: Arc<Surroundings>, feed: Arc<Feed>, nth: usize, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed + nth as u64);
    let mut link = shape.connect(&around).await;
    let is_patient = nth.is_multiple_of(2);
    loop {
        let mut deliveries = match feed.next(random.random_range(1..=S::AT_A_TIME)).await {
            Next::End => return,
            Next::Stretch(stretch) => {
                step(&around, stretch).await;
                feed.stepped().await;
                continue;
            }
            Next::Deliveries(deliveries) => deliveries,
        };
        let patience = match random.random_range(0..2) {
            _ if is_patient => Patience::Unbounded,
            0 => Patience::Bounded("0"),
            _ => Patience::Bounded("20 milliseconds"),
        };
        if !is_patient {
            for delivery in &mut deliveries {
                delivery.fate = delivery.fate.of_the_impatient();
            }
        }
        let again: Vec<Delivery> = match shape.deliver(&mut link, &around, &deliveries, patience).await {
            Some(verdicts) => {
                assert_eq!(verdicts.len(), deliveries.len());
                let verdicts = deliveries.into_iter().zip(verdicts);
                verdicts
                    .filter(|(_, verdict)| *verdict == Verdict::Again)
                    .map(|(delivery, _)| delivery)
                    .collect()
            }
            None => {
                link = shape.connect(&around).await;
                deliveries
            }
        };
        feed.done(again).await;
    }
}

async fn step(around: &Surroundings, stretch: usize) {
    {
        let _no_timer = around.timers.write().await;
        match STEPS[stretch - 1] {
            Step::Evening(nth) => around.world.evening(nth),
            Step::Morning(nth) => around.world.morning(nth),
        }
    }
    around.steps.send_replace(stretch);
}

/// A pass after each step of the clock, and one of the consumers' sessions killed in whatever it does just then; how many
/// passes ran, and how many days they removed.
async fn maintain(around: Arc<Surroundings>) -> (usize, usize) {
    let mut steps = around.steps.subscribe();
    let (mut passes, mut removed) = (0, 0);
    let mut killer = around.world.connect().await;
    loop {
        steps.changed().await.unwrap();
        kill_one(&mut killer).await;
        let report = around.world.deployment.pass().await;
        passes += 1;
        let done = report
            .steps()
            .filter(|step| step.outcome == inboxd::maintain::StepOutcome::Done);
        removed += done.filter(|step| step.step.action == inboxd::Action::Detach).count();
        if *steps.borrow_and_update() == usize::MAX {
            killer.close().await.unwrap();
            return (passes, removed);
        }
    }
}

/// Kills a session that is in a transaction: in its claim, its handler or its commit.
async fn kill_one(killer: &mut PgConnection) {
    sqlx::query(
        "select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid() and application_name = ''
           and backend_xid is not null order by xact_start limit 1",
    )
    .execute(killer)
    .await
    .unwrap();
}
