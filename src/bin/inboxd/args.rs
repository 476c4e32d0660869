//! The command line.

use std::path::PathBuf;

use chrono::{DateTime, TimeDelta, Utc};
use clap::{Args, Parser, Subcommand, builder::FalseyValueParser};
use inboxd::{Day, Span, parse_duration};
use uuid::Uuid;

/// Keeps PostgreSQL transactional inboxes alive: makes daily partitions ahead of time and drops the expired ones whole.
#[derive(Debug, Parser)]
#[command(
    version = env!("INBOXD_VERSION_LINE"),
    after_help = "A first try, with a private PostgreSQL of its own:\n  inboxd serve --embedded\n\n\
        With your database:\n  export DATABASE_URL=postgres://user:password@host/database\n  \
        inboxd init     make the inbox table and its claim functions\n  \
        inboxd plan     see what a run would do\n  \
        inboxd serve    keep it alive\n\n\
        Exit codes: 0 all is well; 1 it could not be done (`check`: a warning); 2 wrong arguments (`check`: claims fail or \
        soon will, or it cannot be told) or not agreed to (`--yes` is missing); 3 (`run`) some steps failed; 4 (`run`, `restore`) \
        another run is going; 130, 143 (`run`) it was asked to end a second time, by SIGINT or SIGTERM."
)]
pub(crate) struct Arguments {
    /// The configuration file (TOML). Without one, defaults and the environment hold.
    #[arg(long, short, global = true, env = "INBOXD_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print one JSON value instead of text.
    // A variable says no with 0, false, no, off or nothing, and yes with anything else.
    #[arg(long, global = true, env = "INBOXD_JSON", value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the service: a pass at start and on the schedule, with HTTP status.
    ///
    /// It ends on SIGTERM or Ctrl-C, after the step in hand.
    Serve(Serve),
    /// Make the control schema, the inbox tables, their claim functions and grants. Running it again is harmless.
    Init,
    /// Show what a run would do now, why, and which locks it would take. Changes nothing.
    Plan,
    /// Run one pass: make what is missing, take out what has expired.
    Run(Run),
    /// Show the inboxes, their partitions and the last run.
    Status,
    /// Play the planner forward from the catalog as it is: every create and drop to come. Changes nothing.
    Simulate(Simulate),
    /// Become the manager of inboxes that belong to another deployment, or whose database is a restored or cloned copy.
    ///
    /// Until then a copy creates partitions and removes none. It is put on the audit.
    Takeover,
    /// Turn a table that is in use into a managed inbox, without rewriting it and without stalling consumers.
    ///
    /// Three moves: `--prepare` makes the claim functions on the table as it is and a check constraint; then move every consumer
    /// to the claim functions; then `adopt` swaps: one short transaction makes the table the first partition of its inbox.
    /// From the moment it is prepared there is a deadline, at least 48 hours away, shown by `status`, `check` and here: unless
    /// the swap comes before, every insert fails from then on. `--abort` takes the preparation back, at any time. Each move can
    /// be interrupted anywhere and run again.
    Adopt(Adopt),
    /// Give an inbox back: it works without inboxd from then on.
    ///
    /// Its partitions and claim functions stay, and one more partition takes all days to come, so no claim ever fails for want
    /// of one. Nothing makes or drops days any more. No claim waits for it.
    Release(Release),
    /// Put a day on hold, so that its partition stays whatever has expired; release it; or list what is on hold.
    Hold(Hold),
    /// Attach a day's detached partition again, as long as its table is there, and put the day on hold.
    ///
    /// No claim waits for it, and the next run does not take it out again: release the hold when it may.
    Restore(Restore),
    /// Confirm what is not done unasked: to trust a clock that has leapt, or to remove more at once than the cap allows.
    #[command(subcommand)]
    Confirm(Confirm),
    /// Pause the schedule of this deployment, for every replica and over restarts. `inboxd run` still does its work.
    ///
    /// Nothing is created meanwhile either: the runway falls, and its alarms go on.
    Pause(Pause),
    /// Let the schedule go on.
    Resume,
    /// Take one message out of the journal, so that its next delivery is processed again.
    Forget(Forget),
    /// Tell whether and when a message was processed, and in which partition. Changes nothing.
    Message(Message),
    /// Print completions for a shell: bash, zsh, fish, elvish or powershell.
    ///
    /// For bash: inboxd completions bash > ~/.local/share/bash-completion/completions/inboxd
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder: inboxd(1), one for each command, and inboxd.toml(5).
    Man {
        /// The folder; it is made if it is not there.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Check for probes: exits 0 when all is well, 1 on a warning, 2 when claims fail or soon will.
    Check,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Start a private PostgreSQL and use it instead of a configured database. It is never started unasked.
    #[arg(long)]
    pub(crate) embedded: bool,

    /// Where the private PostgreSQL keeps its data [default: /var/lib/inboxd for root, else ~/.local/state/inboxd]
    /// [env: INBOXD_STATE_DIR].
    // The variable is read where it is used: set for a whole machine, it must not demand --embedded of every `serve`.
    #[arg(long, value_name = "DIR", requires = "embedded")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Let the private PostgreSQL listen on this port of 127.0.0.1 too, not only on its socket.
    #[arg(long, value_name = "PORT", requires = "embedded", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) postgres_port: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Say that the database's clock is right although it has leapt: removal goes on after an outage of many days.
    #[arg(long)]
    pub(crate) confirm_clock: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Hold {
    /// The inbox, by the name that `inboxd status` shows.
    #[arg(required_unless_present = "list")]
    pub(crate) inbox: Option<String>,

    /// The day, in UTC.
    #[arg(value_name = "YYYY-MM-DD", required_unless_present = "list")]
    pub(crate) day: Option<Day>,

    /// Why. It is put on the audit and shown with the hold.
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["list", "release"])]
    pub(crate) reason: Option<String>,

    /// Release the day: the next run does with it what is due.
    #[arg(long, conflicts_with = "reason")]
    pub(crate) release: bool,

    /// List the days on hold, of all inboxes or of the one that is named.
    #[arg(long, conflicts_with_all = ["day", "reason", "release"])]
    pub(crate) list: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The inbox, by the name that `inboxd status` shows.
    pub(crate) inbox: String,

    /// The day, in UTC.
    #[arg(value_name = "YYYY-MM-DD")]
    pub(crate) day: Day,

    /// Why. It is put on the audit and shown with the hold.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Confirm {
    /// Say that the database's clock is right although it has leapt: removal goes on.
    Clock {
        #[command(flatten)]
        consent: Consent,
    },
    /// Let the next run remove all that is due now in an inbox, once, however much it is.
    Drops {
        /// The inbox, by the name that `inboxd status` shows; may be left out where there is one only.
        inbox: Option<String>,

        #[command(flatten)]
        consent: Consent,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Adopt {
    /// The inbox, by its name in the configuration; may be left out where there is one only.
    pub(crate) inbox: Option<String>,

    /// Show what is in the way, every step with its locks and how long it takes, and how far the adoption has come. Changes
    /// nothing. Exits 1 while something is in the way.
    #[arg(long, alias = "dry-run", conflicts_with_all = ["prepare", "abort", "confirm_consumers_moved"])]
    pub(crate) check: bool,

    /// Make the claim functions on the table as it is, and what spares the swap its scan.
    #[arg(long, conflicts_with_all = ["abort", "confirm_consumers_moved"])]
    pub(crate) prepare: bool,

    /// Take back what the preparation did; the claim functions stay, and work on the table as it is.
    #[arg(long, conflicts_with = "confirm_consumers_moved")]
    pub(crate) abort: bool,

    /// Say that no consumer inserts directly any more: `on conflict (message_id)` fails with 42P10 after the swap. Without this
    /// the sessions are looked at for five seconds, and one that was seen to insert directly keeps it from being done.
    #[arg(long)]
    pub(crate) confirm_consumers_moved: bool,

    /// How long claims may wait behind the adoption before that has its lock.
    #[arg(long, value_name = "DURATION", default_value = "250ms", value_parser = lock_timeout)]
    pub(crate) lock_timeout: std::time::Duration,

    /// How often it tries to get the lock.
    #[arg(long, value_name = "N", default_value_t = inboxd::maintain::DEFAULT_ADOPT_ATTEMPTS, value_parser = clap::value_parser!(i32).range(1..=1000))]
    pub(crate) attempts: i32,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    /// The inbox, by the name that `inboxd status` shows.
    pub(crate) inbox: String,

    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Debug, Args)]
pub(crate) struct Pause {
    /// Why. It is put on the audit and shown until the schedule goes on.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct Forget {
    #[command(flatten)]
    pub(crate) which: Message,

    /// Why. It is put on the audit.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,

    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Debug, Args)]
pub(crate) struct Message {
    /// The inbox, by the name that `inboxd status` shows.
    pub(crate) inbox: String,

    /// The message's id.
    #[arg(value_name = "UUID")]
    pub(crate) id: Uuid,

    /// The consumer, in an inbox with `consumers = "many"`.
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Consent {
    /// Do not ask back. Needed where no terminal is there to answer.
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// How many days to play forward: 1 to 3660.
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=3660))]
    pub(crate) days: u16,

    /// A time without any run, for example 2026-12-24..2027-01-02 (days, or RFC 3339 times). May be repeated.
    #[arg(long, value_name = "FROM..TO", value_parser = outage)]
    pub(crate) outage: Vec<Span>,

    /// A step of the database's clock, for example 2026-12-24=+400d or 2026-12-24T12:00:00Z=-2h. May be repeated.
    #[arg(long, value_name = "AT=STEP", value_parser = jump, allow_hyphen_values = true)]
    pub(crate) jump: Vec<(DateTime<Utc>, TimeDelta)>,
}

/// Between a moment and what anybody would call a stall.
fn lock_timeout(text: &str) -> Result<std::time::Duration, String> {
    parse_duration(text)
        .filter(|length| (TimeDelta::milliseconds(10)..=TimeDelta::seconds(10)).contains(length))
        .and_then(|length| length.to_std().ok())
        .ok_or_else(|| "a duration with its unit, from 10ms to 10s".to_owned())
}

fn outage(text: &str) -> Result<Span, String> {
    let (from, to) = text.split_once("..").ok_or("write FROM..TO")?;
    let span = Span {
        from: Some(instant(from)?),
        to: Some(instant(to)?),
    };
    if span.from < span.to {
        Ok(span)
    } else {
        Err("it must end after it begins".to_owned())
    }
}

fn jump(text: &str) -> Result<(DateTime<Utc>, TimeDelta), String> {
    let (at, step) = text.split_once('=').ok_or("write AT=STEP")?;
    let (back, length) = match step.strip_prefix('-') {
        Some(length) => (true, length),
        None => (false, step.strip_prefix('+').unwrap_or(step)),
    };
    let length = parse_duration(length).ok_or("the step is a duration with its unit, for example +400d or -2h")?;
    Ok((instant(at)?, if back { -length } else { length }))
}

/// A day's beginning, or an RFC 3339 time.
fn instant(text: &str) -> Result<DateTime<Utc>, String> {
    let day = text.parse::<Day>().map(Day::start);
    day.or_else(|_| text.parse())
        .map_err(|_| format!("{text:?} is no day (YYYY-MM-DD) and no RFC 3339 time"))
}
