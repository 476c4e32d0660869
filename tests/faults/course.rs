//! What goes wrong when: a pure function of the seed.

use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

/// The inboxes, by the routing that each has.
pub(crate) const INBOXES: [&str; 2] = ["by_time", "by_id"];

/// One thing that goes wrong, or that an operator does. Days are counted from the day on which it begins; one of no days
/// ends within its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A replica is killed outright; it is started again at the day's end.
    KillService { replica: usize },
}

/// One day.
#[derive(Debug, Clone)]
pub(crate) struct DayPlan {
    /// The time of day that the clock is set to, after midnight.
    pub(crate) time: Duration,
    /// What goes wrong, each with the pause before it.
    pub(crate) faults: Vec<(Duration, Fault)>,
    /// Whether the schedule is waited for, instead of asking for a run.
    pub(crate) by_schedule: bool,
    /// For what else is random that day.
    pub(crate) seed: u64,
}

/// The course of a seed.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) replicas: usize,
    pub(crate) days: Vec<DayPlan>,
}

impl Course {
    pub(crate) fn of(seed: u64, days: u32) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let replicas = random.random_range(1..=3);
        let days = (0..days).map(|_| day(&mut random, replicas)).collect();
        Self { replicas, days }
    }
}

fn day(random: &mut StdRng, replicas: usize) -> DayPlan {
    let time = Duration::from_secs(random.random_range(3_600..82_800));
    let count = [0, 1, 1, 2, 2, 3][random.random_range(0..6)];
    let faults = (0..count)
        .map(|_| {
            (
                Duration::from_millis(random.random_range(0..120)),
                fault(random, replicas),
            )
        })
        .collect();
    DayPlan {
        time,
        faults,
        by_schedule: random.random_bool(0.1),
        seed: random.next_u64(),
    }
}

fn fault(random: &mut StdRng, replicas: usize) -> Fault {
    Fault::KillService {
        replica: random.random_range(0..replicas),
    }
}
