//! Everything at once.

use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use uuid::Uuid;

use super::{
    broker::Broker,
    crashes::{self, Order},
    place::{Place, work},
};
use crate::support::{claims::eventually, folder::Folder, inbox::random_id, process::OtherProcess};

/// The long form: this many messages.
const MESSAGES: &str = "INBOXD_TEST_MESSAGES";

/// How often a consumer process is killed at least.
const KILLS: usize = 5;

pub(super) async fn everything_three_times_out_of_order_to_consumers_that_are_killed_is_worked_on_once<B: Broker>() {
    let count = std::env::var(MESSAGES).map_or(150, |count| count.parse().unwrap());
    let seed = rand::random();
    println!("{count} messages, seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let place = Place::<B>::new().await;
    let ids: Vec<Uuid> = (0..count).map(|_| random_id()).collect();
    let mut deliveries = ids.repeat(3);
    deliveries.shuffle(&mut random);

    let (first, rest) = deliveries.split_at(deliveries.len() / 2);
    for id in first {
        place.broker.publish(Some(*id)).await;
    }
    let mut consumers = [Killable::start(&place), Killable::start(&place)];
    let publishing = async {
        for id in rest {
            place.broker.publish(Some(*id)).await;
        }
    };
    // Beyond it something is lost, which is found below.
    let limit = Duration::from_secs(60) + Duration::from_millis(30) * u32::try_from(count).unwrap();
    // Where there is much to do they live longer, or they do little but begin.
    let longest_life = 800 + u64::try_from(count).unwrap() / 10;
    let killing = async {
        let (mut kills, began) = (0, Instant::now());
        while (kills < KILLS || place.done().await.len() < count) && began.elapsed() < limit {
            let pause = Duration::from_millis(random.random_range(50..longest_life));
            tokio::time::sleep(pause).await;
            consumers[random.random_range(0..2)].start_again(&place).await;
            kills += 1;
        }
        println!("{kills} kills");
    };
    tokio::join!(publishing, killing);
    drop(consumers);

    let consumer = place.consumer().await;
    place.run_dry(&consumer, work).await;
    place.assert_done_once(&ids).await;
}

/// A consumer process that is killed and started again, each time once it is there.
struct Killable {
    process: Option<OtherProcess>,
    folder: Folder,
}

impl Killable {
    fn start<B: Broker>(place: &Place<B>) -> Self {
        let folder = Folder::new();
        Self {
            process: Some(crashes::start(place, Order::Work, &folder)),
            folder,
        }
    }

    async fn start_again<B: Broker>(&mut self, place: &Place<B>) {
        if let Some(mut process) = self.process.take() {
            let is_there = async || self.folder.path().join("consumer_process.report").exists();
            eventually("the consumer process is there", is_there).await;
            process.report();
            process.kill();
        }
        self.folder = Folder::new();
        self.process = Some(crashes::start(place, Order::Work, &self.folder));
    }
}
