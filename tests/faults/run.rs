//! Seeds, one after the other: each its days, then its settling.

use std::{
    fs::OpenOptions,
    io::Write,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use chrono::TimeDelta;
use futures_util::StreamExt;
use sqlx::PgConnection;

use crate::{
    anchor,
    arguments::Arguments,
    claims::{self, Broker, End, Message, Tally},
    consumers::Consumer,
    course::{Course, DayPlan, Fault, INBOXES},
    defaults::default_stands,
    faults::Standing,
    memory::Memory,
    watch::{Leaves, Sampler},
    world::{RETENTION_DAYS, Shape, World},
};

/// Whatever hangs: a day takes a second or two, and a dozen where a statement has outlived its limit; machines are busy.
const LONGEST_DAY: Duration = Duration::from_secs(300);
const LONGEST_START_AND_END: Duration = Duration::from_secs(180);

/// Seeds that have failed once, with the days that they ran. What they found: a bounded wait that a clock stepping back made
/// long, claims behind the lock of a digest's table, a hold on a day whose detach had begun, a handler open over midnights.
const KEPT: [(u64, u32); 5] = [(2, 60), (5, 60), (8, 60), (9, 60), (12, 60)];

/// One seed's life.
pub(crate) struct Seed {
    pub(crate) world: World,
    pub(crate) broker: Broker,
    consumers: Vec<Consumer>,
    sampling: Option<PgConnection>,
    pub(crate) memory: Memory,
    pub(crate) leaves: Leaves,
    pub(crate) standing: Vec<Standing>,
    pub(crate) verbose: bool,
    begun: Instant,
    pub(crate) sums: Sums,
}

/// What a seed came to, in numbers.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    faults: usize,
    pub(crate) acked: usize,
    pub(crate) too_old: usize,
    pub(crate) again: usize,
    pub(crate) samples: u64,
    /// Days at whose end claims had a digest.
    digests: usize,
}

pub(crate) fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args()) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    if arguments.anchor {
        runtime.block_on(anchor::run(arguments.days, arguments.verbose));
        return ExitCode::SUCCESS;
    }
    let failed = runtime.block_on(all(&arguments));
    if failed.is_empty() {
        println!("all {} seeds kept every promise", runs(&arguments).len());
        return ExitCode::SUCCESS;
    }
    for (seed, days) in failed {
        println!("a seed failed; run it again with --from {seed} --seeds 1 --days {days}");
    }
    ExitCode::FAILURE
}

/// The seeds and their days.
fn runs(arguments: &Arguments) -> Vec<(u64, u32)> {
    let kept = KEPT.into_iter().filter(|_| arguments.kept);
    let seeds = arguments.from..arguments.from.saturating_add(arguments.seeds);
    // The long ones first, so that two at a time end together.
    kept.chain(seeds.map(|seed| (seed, arguments.days))).collect()
}

/// Those that failed.
async fn all(arguments: &Arguments) -> Vec<(u64, u32)> {
    let before = std::fs::read_to_string(arguments.log.as_deref().unwrap_or(Path::new(""))).unwrap_or_default();
    let open = runs(arguments).into_iter().filter(|run| !has_passed(&before, *run));
    let ran = futures_util::stream::iter(open)
        .map(|run| one(run, arguments))
        .buffer_unordered(arguments.jobs);
    ran.filter_map(|(run, passed)| std::future::ready((!passed).then_some(run)))
        .collect()
        .await
}

/// One seed, and a line about it.
async fn one((seed, days): (u64, u32), arguments: &Arguments) -> ((u64, u32), bool) {
    let (begin, verbose) = (Instant::now(), arguments.verbose);
    let day = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let told = day.clone();
    // A task of its own: a broken invariant is a panic, and ends nothing but this seed.
    let task = tokio::spawn(async move { live(seed, days, verbose, &told).await });
    let ended = task.await;
    let seconds = begin.elapsed().as_secs_f32();
    let (passed, line) = match ended {
        Ok(sums) => (
            true,
            format!("seed {seed} days {days} passed in {seconds:.1} s: {sums:?}"),
        ),
        Err(error) => {
            let why = panic_text(error).replace('\n', " ");
            let day = day.load(std::sync::atomic::Ordering::SeqCst);
            (
                false,
                format!("seed {seed} days {days} FAILED on day {day} after {seconds:.1} s: {why}"),
            )
        }
    };
    println!("{line}");
    if let Some(log) = &arguments.log {
        let mut file = OpenOptions::new().create(true).append(true).open(log).unwrap();
        writeln!(file, "{line}").unwrap();
    }
    ((seed, days), passed)
}

fn panic_text(error: tokio::task::JoinError) -> String {
    let panic = match error.try_into_panic() {
        Ok(panic) => panic,
        Err(error) => return error.to_string(),
    };
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without words".to_owned())
}

/// Whether a log has a seed as passed with as many days.
fn has_passed(log: &str, (seed, days): (u64, u32)) -> bool {
    let mark = format!("seed {seed} days {days} passed ");
    log.lines().any(|line| line.starts_with(&mark))
}

async fn live(seed: u64, days: u32, verbose: bool, told: &std::sync::atomic::AtomicU32) -> Sums {
    let course = Course::of(seed, days);
    let started = tokio::time::timeout(
        LONGEST_START_AND_END,
        Seed::start(course.replicas, course.shape, verbose),
    )
    .await;
    let mut life = started.expect("it starts");
    for (nth, plan) in course.days.iter().enumerate() {
        let nth = u32::try_from(nth).unwrap();
        told.store(nth, std::sync::atomic::Ordering::SeqCst);
        let day = tokio::time::timeout(LONGEST_DAY, life.day(nth, plan)).await;
        assert!(day.is_ok(), "day {nth} hangs: {plan:?}, {:?}", life.standing);
    }
    told.store(days, std::sync::atomic::Ordering::SeqCst);
    let settled = tokio::time::timeout(LONGEST_START_AND_END, life.settle(days)).await;
    assert!(settled.is_ok(), "it does not settle");
    life.sums
}

impl Seed {
    pub(crate) async fn start(replicas: usize, shape: Shape, verbose: bool) -> Self {
        let mut world = World::new(replicas, shape).await;
        world.run(false).await;
        Self {
            consumers: claims::consumers(&world.to_consumers.options()),
            sampling: None,
            world,
            broker: Broker::default(),
            memory: Memory::default(),
            leaves: Leaves::default(),
            standing: Vec::new(),
            verbose,
            begun: Instant::now(),
            sums: Sums::default(),
        }
    }

    /// A day: a step of the clock, claims with whatever goes wrong meanwhile, a run, and the look at what there is.
    pub(crate) async fn day(&mut self, nth: u32, plan: &DayPlan) -> Tally {
        let begun = Instant::now();
        self.world.set_day(nth, plan.time);
        let was_calm = self.standing.is_empty() && plan.faults.is_empty();
        let was_barred = self.removal_is_barred();
        let may_exchange = self.has_default(plan).await;
        let sampler = Sampler::start(&self.world.database.options, self.sampling.take());
        let deliveries = self.broker.deliveries(self.world.clock.now(), plan.seed);
        let mut consumers = std::mem::take(&mut self.consumers);
        let claims = tokio::spawn(async move {
            let ends = claims::deliver(&mut consumers, deliveries).await;
            (consumers, ends)
        });
        for (pause, fault) in &plan.faults {
            tokio::time::sleep(*pause).await;
            self.tell(nth, || format!("{fault:?}"));
            self.begin(nth, fault).await;
        }
        self.sums.faults += plan.faults.len();
        let ends;
        (self.consumers, ends) = claims.await.unwrap();
        // They may have ended before it could be cut.
        self.world.to_consumers.disarm();
        let claimed_after = begun.elapsed();
        self.end_sampling(sampler, may_exchange).await;
        let (due, standing) = std::mem::take(&mut self.standing)
            .into_iter()
            .partition(|one| one.until <= nth);
        self.standing = standing;
        for standing in due {
            self.tell(nth, || format!("ends {:?}", standing.kind));
            self.end(nth, standing).await;
        }
        for (_, fault) in &plan.faults {
            self.after_claims(nth, fault).await;
        }
        let can_run = self.can_run();
        if can_run {
            self.world.run(plan.by_schedule).await;
            let mut admin = self.world.looker().await;
            self.world.must_have_today_and_tomorrow(&mut admin).await;
        }
        let ran_after = begun.elapsed();
        self.see_what_is_back(can_run).await;
        let tally = self.note(ends).await;
        self.tell(nth, || format!("{tally:?}"));
        if was_calm {
            let bad = self.unexplained(&tally);
            assert!(bad.is_empty(), "claims fail on a calm day: {bad:?}");
            if can_run && may_exchange {
                self.must_be_drained().await;
            }
        }
        self.leaves.barred = was_barred && self.removal_is_barred();
        self.look().await;
        self.leaves.barred = false;
        self.tell(nth, || {
            format!(
                "claims until {claimed_after:?}, run until {ran_after:?}, looks until {:?}",
                begun.elapsed()
            )
        });
        tally
    }

    /// Whether nothing that stands keeps a run from making today and tomorrow.
    pub(crate) fn can_run(&self) -> bool {
        let today = self.world.today();
        self.standing.iter().all(|one| one.lets_create(today))
    }

    /// Whether anything stands under which nothing may be removed.
    fn removal_is_barred(&self) -> bool {
        self.standing.iter().any(Standing::bars_removal)
    }

    /// Whether an inbox has a default partition on this day: while it is exchanged, or a day is attached beside it, claims
    /// wait for a moment.
    async fn has_default(&self, plan: &DayPlan) -> bool {
        let mut admin = self.world.looker().await;
        let mut has = plan
            .faults
            .iter()
            .any(|(_, fault)| matches!(fault, Fault::DefaultPartition { .. }));
        for inbox in INBOXES {
            has |= default_stands(&mut admin, inbox).await;
        }
        has
    }

    /// Fails if anything was forgotten, doubled, or removed that should not have been.
    pub(crate) async fn look(&mut self) {
        let mut admin = self.world.looker().await;
        let now = self.world.clock.now();
        self.sums.digests += usize::from(self.world.has_digest(&mut admin).await);
        self.memory.check(&mut admin, now).await;
        self.leaves.look(&mut admin, now).await;
    }

    pub(crate) async fn note(&mut self, ends: Vec<(Message, End)>) -> Tally {
        let (acked, tally) = self.broker.note(ends);
        self.sums.acked += tally.acked;
        self.sums.too_old += tally.too_old;
        self.sums.again += tally.errors.values().sum::<usize>();
        let mut admin = self.world.looker().await;
        let (inboxes, ids): (Vec<&str>, Vec<_>) = acked.iter().map(|message| (message.inbox, message.id)).unzip();
        let lost: Vec<uuid::Uuid> = sqlx::query_scalar(
            "select id from unnest($1::text[], $2::uuid[]) as acked (inbox, id) where not exists (
               select from work where work.inbox = acked.inbox and work.message_id = acked.id)",
        )
        .bind(inboxes)
        .bind(ids)
        .fetch_all(&mut *admin)
        .await
        .unwrap();
        assert!(lost.is_empty(), "acked without their work: {lost:?}");
        tally
    }

    async fn end_sampling(&mut self, sampler: Sampler, may_exchange: bool) {
        let (samples, session) = sampler.stop(may_exchange).await;
        self.sums.samples += samples;
        self.sampling = session;
    }

    /// Messages that could not be processed are, once nothing goes wrong any more.
    pub(crate) async fn claim_in_peace(&mut self, seed: u64) {
        let sampler = Sampler::start(&self.world.database.options, self.sampling.take());
        let deliveries = self.broker.deliveries(self.world.clock.now(), seed);
        let ends = claims::deliver(&mut self.consumers, deliveries).await;
        self.end_sampling(sampler, false).await;
        let tally = self.note(ends).await;
        let bad = self.unexplained(&tally);
        assert!(bad.is_empty(), "claims fail although all is well: {bad:?}");
    }

    /// Failures of claims that nothing explains where nothing is wrong. A message of a day that was dropped by hand has no
    /// partition until its day has expired, and fails the batch that it is in: an empty one would let what was processed
    /// be processed again.
    fn unexplained<'t>(&self, tally: &'t Tally) -> Vec<&'t String> {
        let since = self.world.clock.now() - TimeDelta::days(RETENTION_DAYS + 2);
        let is_lost = self.memory.lost("by_id").any(|day| day.end() > since);
        let is_explained = |why: &str| {
            let lacks_a_day = why.contains("23514") || why.contains("no partition of relation \"by_id\"");
            why == "in_flight" || (is_lost && lacks_a_day)
        };
        tally.errors.keys().filter(|why| !is_explained(why)).collect()
    }

    pub(crate) fn tell(&self, day: u32, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("  day {day} at {:.1} s: {}", self.begun.elapsed().as_secs_f32(), what());
        }
    }
}
