//! Random interleavings of claims, ends of transactions, days, passes and forgets, against a model in memory.
//!
//! Sessions are driven one step at a time, so that what each claim answers can be told in advance: the model says it
//! exactly, or, where DESIGN leaves it open (after the retention, before the day is gone), which answers are right.
//!
//! The cases are the same each time, so that a change that breaks none of them breaks none on the next machine either.
//! `PROPTEST_CASES` asks for as many others, new ones each time unless `PROPTEST_RNG_SEED` fixes them.

mod ask;
mod driver;
mod state;

use std::cell::RefCell;

use chrono::TimeDelta;
use inboxd::{Consumers, Day, Retention, Routing};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed, TestError, TestRunner},
};

use self::driver::{Driver, SESSIONS, Tally};
use crate::support::{
    clock::ClockServer,
    inbox::{Deployment, spec},
};

const TABLE: &str = "inbox";

/// Some 50 steps each, half a second on an idle machine, most of it in passes. All that [`agree`] wants to see comes up.
const CASES: u32 = 20;

/// What is done next. A step that makes no sense where it stands, such as a commit of nothing, is left out.
#[derive(Debug, Clone)]
enum Op {
    Begin(usize),
    Commit(usize),
    Rollback(usize),
    Savepoint(usize),
    RollbackToSavepoint(usize),
    Claim {
        session: usize,
        key: usize,
        form: Form,
    },
    Batch {
        session: usize,
        keys: Vec<usize>,
        waits: bool,
    },
    /// A claim of a message that another session holds, whose transaction ends while the claim waits.
    WaitBehind {
        session: usize,
        held: usize,
        commits: bool,
        over_midnight: bool,
    },
    Forget {
        session: usize,
        key: usize,
    },
    Clock(Move),
    Pass,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    NoWait,
    Waits,
    Boolean,
}

#[derive(Debug, Clone, Copy)]
enum Move {
    /// From the evening to the morning after, from the morning to the evening.
    PastMidnight,
    BackOverMidnight,
    Days(i64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let session = || 0..SESSIONS;
    // Most of it happens to two messages, so that sessions meet.
    let key = || prop_oneof![6 => 0..2_usize, 3 => 2..5_usize, 1 => 5..7_usize];
    let form = prop_oneof![3 => Just(Form::NoWait), 2 => Just(Form::Waits), 1 => Just(Form::Boolean)];
    let by = prop_oneof![
        4 => Just(Move::PastMidnight),
        2 => Just(Move::BackOverMidnight),
        1 => (1..3_i64).prop_map(Move::Days),
    ];
    let op = prop_oneof![
        6 => session().prop_map(Op::Begin),
        2 => session().prop_map(Op::Commit),
        1 => session().prop_map(Op::Rollback),
        1 => session().prop_map(Op::Savepoint),
        1 => session().prop_map(Op::RollbackToSavepoint),
        10 => (session(), key(), form).prop_map(|(session, key, form)| Op::Claim { session, key, form }),
        3 => (session(), prop::collection::vec(key(), 1..6), any::<bool>())
            .prop_map(|(session, keys, waits)| Op::Batch { session, keys, waits }),
        3 => (session(), 0..4_usize, any::<bool>(), any::<bool>()).prop_map(
            |(session, held, commits, over_midnight)| Op::WaitBehind { session, held, commits, over_midnight }
        ),
        2 => (session(), key()).prop_map(|(session, key)| Op::Forget { session, key }),
        4 => by.prop_map(Op::Clock),
        1 => Just(Op::Pass),
    ];
    prop::collection::vec(op, 20..80)
}

/// An inbox in the middle of its life, on a server whose clock only the test steps.
struct Inbox {
    server: ClockServer,
    deployment: Deployment,
    routing: Routing,
    consumers: Consumers,
}

impl Inbox {
    async fn start(routing: Routing, consumers: Consumers) -> Self {
        // A vacuum that truncates a table would make a claim wait that is told not to.
        let server = ClockServer::start(&[("autovacuum", "off")]).await;
        server.set_to("2027-12-20T12:00:00Z".parse().unwrap());
        let mut spec = spec(&format!("public.{TABLE}"));
        spec.policy.routing = routing;
        spec.policy.consumers = consumers;
        spec.policy.retention = Retention::For(state::RETENTION);
        spec.policy.ahead = inboxd::Ahead::new(state::AHEAD).unwrap();
        spec.policy.drop_grace = TimeDelta::hours(6);
        spec.policy.max_drops_per_run = 100;
        spec.policy.max_clock_leap = TimeDelta::days(3_650);
        let mut deployment = Deployment::new(server.database().await, server.clock(), vec![spec]);
        // An open claim of an expired day holds its detach up: that is part of the game, and need not take long.
        deployment.timeouts.lock = std::time::Duration::from_millis(30);
        deployment.retries.attempts = 1;
        deployment.init().await.unwrap();
        Self {
            server,
            deployment,
            routing,
            consumers,
        }
    }

    /// One case, on messages of its own, from the evening of a day on; the day that it came to.
    async fn run(&self, day: Day, ops: &[Op], seen: &RefCell<Tally>) -> (Day, Result<(), String>) {
        let mut driver = match Driver::start(self, day).await {
            Ok(driver) => driver,
            Err(error) => return (day, Err(error)),
        };
        let mut result = Ok(());
        for (n, op) in ops.iter().enumerate() {
            if let Err(error) = driver.step(op).await {
                result = Err(format!("step {n}, {op:?}: {error}"));
                break;
            }
        }
        let (day, tally) = driver.end().await;
        for (what, times) in tally {
            *seen.borrow_mut().entry(what).or_default() += times;
        }
        (day, result)
    }
}

/// Runs the cases, and fails unless all that an inbox of this routing can answer came up among them.
fn agree(routing: Routing, consumers: Consumers) {
    let asked: Option<u32> = std::env::var("PROPTEST_CASES").ok().map(|cases| cases.parse().unwrap());
    let config = Config {
        cases: asked.unwrap_or(CASES),
        rng_seed: asked.map_or(RngSeed::Fixed(42), |_| Config::default().rng_seed),
        failure_persistence: None,
        max_shrink_iters: 400,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let inbox = runtime.block_on(Inbox::start(routing, consumers));
    let (seen, day) = (
        RefCell::new(Tally::new()),
        RefCell::new(Day::containing(inbox.server.now())),
    );
    let result = TestRunner::new(config).run(&ops(), |ops| {
        let begins = day.borrow().plus(1);
        let (came_to, result) = runtime.block_on(inbox.run(begins, &ops, &seen));
        // Stepping back over midnight does not make the next case begin earlier than this one.
        *day.borrow_mut() = came_to.max(begins);
        result.map_err(TestCaseError::fail)
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, ops)) => panic!("{reason}\nafter {ops:#?}"),
        Err(other) => panic!("{other}"),
    }
    let seen = seen.into_inner();
    println!("{routing}, {consumers}: {seen:?}");
    let mut wanted = vec![
        "fresh",
        "duplicate",
        "duplicate of another day",
        "repeated",
        "not fresh",
        "in flight",
        "invalid",
        "missing",
        "waited for a commit",
        "waited for a rollback",
        "forget Some(true)",
        "forget Some(false)",
        "forget None",
        "batch",
        "create",
        "detach",
        "finalize",
        "drop",
    ];
    match routing {
        Routing::ProcessedAt => wanted.push("fresh after retention"),
        Routing::MessageId => wanted.extend(["too old", "too new"]),
    }
    let lacking: Vec<&str> = wanted.into_iter().filter(|what| !seen.contains_key(*what)).collect();
    assert!(asked.is_some() || lacking.is_empty(), "never came up: {lacking:?}");
}

#[test]
fn the_model_and_an_inbox_by_time_for_one_consumer_agree() {
    agree(Routing::ProcessedAt, Consumers::One);
}

#[test]
fn the_model_and_an_inbox_by_time_for_many_consumers_agree() {
    agree(Routing::ProcessedAt, Consumers::Many);
}

#[test]
fn the_model_and_an_inbox_by_id_for_one_consumer_agree() {
    agree(Routing::MessageId, Consumers::One);
}

#[test]
fn the_model_and_an_inbox_by_id_for_many_consumers_agree() {
    agree(Routing::MessageId, Consumers::Many);
}
