//! The anchor run: a year of daily rotations under load, with what a year brings. One page tells what came of it.
//!
//! `cargo test --test faults -- --anchor --days 365`. Unlike the seeds it is told beforehand what happens when: a dump each
//! night, a reader each third day that stays until the next, a service or a server that is killed about each week, three
//! weeks without any service, and a clock that leaps a month ahead and back.

use std::time::{Duration, Instant};

use sqlx::PgConnection;

use crate::{
    course::{DayPlan, Fault, INBOXES},
    run::Seed,
    support::inbox::sql,
    world::Shape,
};

/// More than the three weeks that the service is down for: no claim is to fail.
const AHEAD: i64 = 30;
const OUTAGE_DAYS: u32 = 21;
const LEAP_DAYS: i64 = 30;
const NOON: Duration = Duration::from_secs(12 * 3_600);
const TWO_AT_NIGHT: Duration = Duration::from_secs(2 * 3_600);
const FIVE_AT_NIGHT: Duration = Duration::from_secs(5 * 3_600);

/// Something that went wrong, from its first day on.
struct Trouble {
    what: String,
    from: u32,
    /// What health must speak of, or it means something else.
    word: &'static str,
    /// How many days later health told it, and how.
    told: Option<(u32, i32, String)>,
    /// When it would have hurt.
    hurts: String,
}

impl Trouble {
    fn new(what: impl Into<String>, from: u32, word: &'static str, hurts: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            from,
            word,
            told: None,
            hurts: hurts.into(),
        }
    }

    fn hear(&mut self, day: u32, (code, said): &(i32, String)) {
        let line = said.lines().find(|line| line.contains(self.word));
        if let (None, Some(line), true) = (&self.told, line, *code != 0) {
            self.told = Some((day - self.from, *code, line.trim().chars().take(140).collect()));
        }
    }
}

#[derive(Default)]
struct Page {
    service_kills: u32,
    server_kills: u32,
    readers: u32,
    dumps: u32,
    bad_days: u32,
    troubles: Vec<Trouble>,
}

/// Runs it, and prints the page. Whatever must never happen is a panic.
pub(crate) async fn run(days: u32, verbose: bool) {
    let begun = Instant::now();
    let mut life = Seed::start(
        1,
        Shape {
            ahead: AHEAD,
            drains: [false; INBOXES.len()],
            digest: true,
        },
        verbose,
    )
    .await;
    let mut page = Page::default();
    // In the second and the last third of the year.
    let outage = days / 3;
    let leap = (days * 2 / 3).max(outage + OUTAGE_DAYS + 4);
    assert!(leap < days, "40 days at least");
    let mut confirmed = true;
    for nth in 0..days {
        let is_out = (outage..outage + OUTAGE_DAYS).contains(&nth);
        if !is_out {
            night(&mut life, nth, &mut page).await;
        }
        let plan = plan(nth, outage, is_out);
        page.note(&plan);
        if nth == outage {
            let hurts = format!("{AHEAD} days, when the runway has ended");
            let what = "no service for three weeks";
            page.troubles.push(Trouble::new(what, nth, "no run has begun", hurts));
        }
        let kills_server = plan.faults.iter().any(|(_, fault)| *fault == Fault::KillServer);
        let tally = life.day(nth, &plan).await;
        let bad: Vec<&String> = tally.errors.keys().filter(|why| *why != "in_flight").collect();
        // A server that was killed answers nobody; those messages come again.
        assert!(bad.is_empty() || kills_server, "claims fail on day {nth}: {bad:?}");
        let checked = life.world.check();
        page.bad_days += u32::from(checked.0 != 0);
        if let Some(trouble) = page
            .troubles
            .last_mut()
            .filter(|trouble| nth < trouble.from + OUTAGE_DAYS + 2)
        {
            trouble.hear(nth, &checked);
        }
        if nth == outage + OUTAGE_DAYS {
            // Back again: nothing is removed until a person says that it was an outage, and no clock gone wrong.
            let (_, said) = life.world.check();
            assert!(said.contains("clock"), "removal waits for a person: {said}");
            confirmed = false;
        } else if !confirmed {
            life.confirm_clock().await;
            confirmed = true;
        }
        if nth == leap {
            page.troubles.push(leap_and_back(&mut life, nth).await);
        }
    }
    page.print(&life, days, begun.elapsed());
}

/// What happens on a day.
fn plan(nth: u32, outage: u32, is_out: bool) -> DayPlan {
    let soon = |fault| (Duration::from_millis(30), fault);
    let mut faults = Vec::new();
    if nth == outage {
        // Until the last of its days has ended.
        faults.push(soon(Fault::Outage { days: OUTAGE_DAYS - 1 }));
    } else if !is_out {
        if nth % 9 == 4 {
            faults.push(soon(Fault::KillService { replica: 0 }));
        }
        if nth % 13 == 6 {
            faults.push(soon(Fault::KillServer));
        }
        if nth % 3 == 1 {
            let inbox = INBOXES[(nth / 3) as usize % INBOXES.len()];
            faults.push(soon(Fault::LongTransaction { inbox, days: 1 }));
        }
    }
    DayPlan {
        time: NOON,
        faults,
        by_schedule: nth.is_multiple_of(4),
        seed: nth.into(),
    }
}

/// A dump from two to five, with a run in its middle.
async fn night(life: &mut Seed, nth: u32, page: &mut Page) {
    if !life.can_run() {
        return;
    }
    life.world.set_day(nth, TWO_AT_NIGHT);
    let mut dump: PgConnection = life.world.admin().await;
    // One snapshot, and a lock on each table, as pg_dump takes them.
    sql(
        &mut dump,
        "set application_name = 'pg_dump'; begin isolation level repeatable read, read only;
         do $$ declare name text; begin
           -- By their names of the snapshot: those of today show a number for one that a run drops meanwhile, which is left out.
           for name in select quote_ident(relname) from pg_class where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace loop
             begin execute 'lock table ' || name || ' in access share mode'; exception when undefined_table then null; end;
           end loop; end $$",
    )
    .await;
    life.world.run(false).await;
    life.world.set_day(nth, FIVE_AT_NIGHT);
    for inbox in INBOXES {
        sql(&mut dump, format!("select count(*) from {inbox}")).await;
    }
    sql(&mut dump, "commit").await;
    life.look().await;
    page.dumps += 1;
}

/// The clock of all leaps a month ahead; what must not happen there is looked for, and after it has come back.
async fn leap_and_back(life: &mut Seed, nth: u32) -> Trouble {
    let hurts = "the first run, by whose clock every day has expired";
    let what = format!("a clock that leaps {LEAP_DAYS} days and comes back");
    let mut trouble = Trouble::new(what, nth, "clock", hurts);
    life.world.clock.step(chrono::TimeDelta::days(LEAP_DAYS));
    life.world.run(false).await;
    trouble.hear(nth, &life.world.check());
    life.world.clock.step(-chrono::TimeDelta::days(LEAP_DAYS));
    life.world.run(false).await;
    // By the clock that is right nothing may have left but what has expired.
    life.look().await;
    trouble
}

impl Page {
    fn note(&mut self, plan: &DayPlan) {
        for (_, fault) in &plan.faults {
            match fault {
                Fault::KillService { .. } => self.service_kills += 1,
                Fault::KillServer => self.server_kills += 1,
                Fault::LongTransaction { .. } => self.readers += 1,
                _ => {}
            }
        }
    }

    fn print(&self, life: &Seed, days: u32, took: Duration) {
        let sums = &life.sums;
        println!("The anchor run: {days} days in {:.0} s", took.as_secs_f32());
        println!();
        println!("deliveries acked                      {:>8}", sums.acked);
        println!("  of a day that is no longer kept     {:>8}", sums.too_old);
        println!("  delivered again (a killed server)   {:>8}", sums.again);
        println!("samples of who waits for whom         {:>8}", sums.samples);
        println!("dumps, a run in the middle of each    {:>8}", self.dumps);
        println!("readers that stayed for a day         {:>8}", self.readers);
        println!("services killed                       {:>8}", self.service_kills);
        println!("servers killed                        {:>8}", self.server_kills);
        println!("days on which `inboxd check` warned   {:>8}", self.bad_days);
        println!();
        println!(
            "The first claim that fails otherwise or waits for maintenance, and the first day that leaves before its time, end"
        );
        println!("the run at once, without this page.");
        println!();
        for trouble in &self.troubles {
            println!("{} (from day {})", trouble.what, trouble.from);
            match &trouble.told {
                Some((after, code, said)) => {
                    println!("  told when {after} days old at most, with exit code {code}: {said}")
                }
                None => println!("  NOT TOLD"),
            }
            println!("  would have hurt after {}", trouble.hurts);
        }
        assert!(
            self.troubles.iter().all(|trouble| trouble.told.is_some()),
            "health did not tell"
        );
    }
}
