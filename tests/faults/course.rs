//! What goes wrong when: a pure function of the seed.

use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

use crate::world::{AHEAD, Shape};

/// The inboxes, by the routing that each has.
pub(crate) const INBOXES: [&str; 2] = ["by_time", "by_id"];

/// One thing that goes wrong, or that an operator does. `days` is how long it stands; of none it ends with its own day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A replica is killed outright; it is started again at the day's end.
    KillService { replica: usize },
    /// A replica is told to end, in the middle of a run where it has one, and with the database away where that is cut off.
    StopService { replica: usize, database_away: bool },
    /// The server is killed outright, and started again.
    KillServer,
    /// The server is shut down, and started again.
    RestartServer,
    /// Every connection of the services is cut, a moment after a run was asked for.
    CutServices { after: Duration },
    /// A service's connection is cut round a statement that begins with this word.
    CutServicesAt { word: &'static str, before: bool },
    /// Every connection of consumers is cut.
    CutConsumers,
    /// A consumer's connection is cut round its commit.
    CutConsumersAt { before: bool },
    /// A reader holds its snapshot, and a lock on every partition of an inbox.
    LongTransaction { inbox: &'static str, days: u32 },
    /// Somebody locks an inbox against everybody.
    LockInbox { inbox: &'static str, hold: Duration },
    /// Somebody locks one day against everybody.
    LockDay {
        inbox: &'static str,
        offset: i64,
        hold: Duration,
    },
    /// Somebody locks what has been detached and not dropped yet.
    LockDetached { inbox: &'static str, days: u32 },
    /// A handler is open across midnight, and commits after the claims of a later day; its message is delivered again at once.
    /// `id` is what its message's is made of.
    OpenHandler { inbox: &'static str, id: u64, days: u32 },
    /// Every lock that the server has room for is taken.
    FillLocks { hold: Duration },
    /// The hosts' clock is out of step with the server's.
    Skew { minutes: i64, days: u32 },
    /// Somebody makes a default partition, and moves a day's rows into it: 0 is today. Where it is drained, runs take it
    /// away again; else somebody does after as many days.
    DefaultPartition {
        inbox: &'static str,
        offset: i64,
        days: u32,
    },
    /// The clock of server and hosts steps back.
    StepBack { minutes: i64 },
    /// The clock leaps ahead, runs there, and comes back.
    Leap { days: i64 },
    /// The service loses a privilege.
    Revoke { privilege: Privilege, days: u32 },
    /// A table that is nobody's has the name that a day to come will need.
    ForeignTable {
        inbox: &'static str,
        offset: i64,
        days: u32,
    },
    /// A day is dropped by hand: 0 is today.
    DropByHand { inbox: &'static str, offset: i64 },
    /// A day is detached by hand.
    DetachByHand { inbox: &'static str, offset: i64 },
    /// The operator puts a day on hold.
    Hold {
        inbox: &'static str,
        offset: i64,
        days: u32,
    },
    /// The operator takes an expiry back; the day is on hold for as long.
    Restore { inbox: &'static str, days: u32 },
    /// The operator pauses the schedule.
    Pause { days: u32 },
    /// The operator confirms that the clock is right.
    ConfirmClock,
    /// The operator lets the next run go beyond its cap.
    ConfirmDrops { inbox: &'static str },
    /// All services are down.
    Outage { days: u32 },
}

/// What the service cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Privilege {
    CreateTables,
    ControlSchema,
    Login,
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
    pub(crate) shape: Shape,
    pub(crate) days: Vec<DayPlan>,
}

impl Course {
    pub(crate) fn of(seed: u64, days: u32) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let replicas = random.random_range(1..=3);
        // Of another stream, so that what is drawn from the first stays what it was.
        let mut other = StdRng::seed_from_u64(!seed);
        let drains = [other.random_bool(0.5), other.random_bool(0.5)];
        let mut third = StdRng::seed_from_u64(seed.rotate_left(32));
        let mut fourth = StdRng::seed_from_u64(!seed.rotate_left(32));
        let digest = fourth.random_bool(0.5);
        let day = |_| {
            let mut day = day(&mut random, replicas);
            day.faults.extend(further(&mut other));
            day.faults.extend(leaving(&mut third));
            day.faults.extend(staying(&mut fourth));
            day
        };
        Self {
            replicas,
            shape: Shape {
                ahead: AHEAD,
                drains,
                digest,
            },
            days: (0..days).map(day).collect(),
        }
    }
}

/// A hold on a day that is about to leave, or has left already: only there does it keep anything.
fn leaving(random: &mut StdRng) -> Option<(Duration, Fault)> {
    random.random_bool(0.15).then(|| {
        let hold = Fault::Hold {
            inbox: INBOXES[random.random_range(0..INBOXES.len())],
            offset: random.random_range(-5..=-4),
            days: random.random_range(2..=5),
        };
        (Duration::from_millis(random.random_range(0..60)), hold)
    })
}

/// A handler that stays open while its day ends: until it has ended, the day must be looked into.
fn staying(random: &mut StdRng) -> Option<(Duration, Fault)> {
    random.random_bool(0.3).then(|| {
        let inbox = INBOXES[random.random_range(0..INBOXES.len())];
        (
            Duration::from_millis(random.random_range(0..60)),
            Fault::OpenHandler {
                inbox,
                id: random.next_u64(),
                days: random.random_range(1..=2),
            },
        )
    })
}

/// What comes on top of a day's faults.
fn further(random: &mut StdRng) -> Vec<(Duration, Fault)> {
    let pause = Duration::from_millis(random.random_range(0..60));
    let days = random.random_range(0..=3);
    let fault = match random.random_range(0..12) {
        0 => Fault::Skew {
            minutes: [2, 60, 40 * 24 * 60][random.random_range(0..3)] * [1, -1][random.random_range(0..2)],
            days: days + 1,
        },
        1 => Fault::DefaultPartition {
            inbox: INBOXES[random.random_range(0..INBOXES.len())],
            offset: random.random_range(-3..=1),
            days,
        },
        _ => return Vec::new(),
    };
    vec![(pause, fault)]
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
    let inbox = INBOXES[random.random_range(0..INBOXES.len())];
    let replica = random.random_range(0..replicas);
    let days = random.random_range(0..=3);
    let hold = Duration::from_millis(random.random_range(20..400));
    let before = random.random_bool(0.5);
    match random.random_range(0..30) {
        0 | 1 => Fault::KillService { replica },
        2 => Fault::StopService {
            replica,
            database_away: before,
        },
        3 | 4 => Fault::KillServer,
        5 => Fault::RestartServer,
        6 | 7 => Fault::CutServices {
            after: Duration::from_millis(random.random_range(0..60)),
        },
        8 => Fault::CutServicesAt {
            word: ["alter", "create", "drop", "commit", "comment", "begin"][random.random_range(0..6)],
            before,
        },
        9 => Fault::CutConsumers,
        10 => Fault::CutConsumersAt { before },
        11 | 12 => Fault::LongTransaction { inbox, days },
        13 => Fault::LockInbox { inbox, hold },
        14 => Fault::LockDay {
            inbox,
            offset: random.random_range(-5..=3),
            hold,
        },
        15 => Fault::LockDetached { inbox, days },
        16 => Fault::FillLocks { hold },
        17 => Fault::StepBack {
            minutes: random.random_range(1..=45),
        },
        18 => Fault::Leap {
            days: [20, 400][random.random_range(0..2)],
        },
        19 => Fault::Revoke {
            privilege: [Privilege::CreateTables, Privilege::ControlSchema, Privilege::Login][random.random_range(0..3)],
            days: random.random_range(0..=5),
        },
        20 => Fault::ForeignTable {
            inbox,
            offset: random.random_range(4..=5),
            days: random.random_range(1..=6),
        },
        21 | 22 => Fault::DropByHand {
            inbox,
            offset: random.random_range(-5..=3),
        },
        23 | 24 => Fault::DetachByHand {
            inbox,
            offset: random.random_range(-5..=3),
        },
        25 => Fault::Hold {
            inbox,
            offset: random.random_range(-4..=0),
            days: random.random_range(1..=8),
        },
        26 => Fault::Restore { inbox, days },
        27 => Fault::Pause {
            days: random.random_range(0..=4),
        },
        28 if before => Fault::ConfirmDrops { inbox },
        28 => Fault::ConfirmClock,
        _ => Fault::Outage {
            days: random.random_range(0..=6),
        },
    }
}
