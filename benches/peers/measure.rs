//! What is read off a server and its processes, and how numbers are told.

use std::{fs, path::Path, time::Duration};

use sqlx::PgConnection;

/// The smallest, middle and largest of a few numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) middle: f64,
    pub(crate) high: f64,
}

impl Spread {
    pub(crate) fn of(mut numbers: Vec<f64>) -> Self {
        assert!(!numbers.is_empty());
        numbers.sort_by(f64::total_cmp);
        Self {
            low: numbers[0],
            middle: quantile(&numbers, 0.5),
            high: numbers[numbers.len() - 1],
        }
    }

    /// `middle (low … high)`, each told by a function.
    pub(crate) fn told(self, tell: impl Fn(f64) -> String) -> String {
        let Self { low, middle, high } = self;
        match (tell(low), tell(middle), tell(high)) {
            (low, middle, high) if low == high => middle,
            (low, middle, high) => format!("{middle} ({low} … {high})"),
        }
    }
}

/// A quantile of sorted numbers.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place in a list"
    )]
    let place = (q * last as f64).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

pub(crate) fn bytes(bytes: f64) -> String {
    let (mut value, mut unit) = (bytes, "B");
    for larger in ["kB", "MB", "GB"] {
        if value.abs() < 1000.0 {
            break;
        }
        (value, unit) = (value / 1000.0, larger);
    }
    format!("{} {unit}", number(value))
}

pub(crate) fn milliseconds(millis: f64) -> String {
    match millis {
        millis if millis >= 1000.0 => format!("{} s", number(millis / 1000.0)),
        millis => format!("{} ms", number(millis)),
    }
}

pub(crate) fn seconds(time: Duration) -> String {
    milliseconds(time.as_secs_f64() * 1000.0)
}

/// Three digits, or all before the point.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        large if large >= 99.95 => format!("{value:.0}"),
        middle if middle >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// How far the log of writes has come, in bytes.
pub(crate) async fn wal(connection: &mut PgConnection) -> f64 {
    sqlx::query_scalar("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8")
        .fetch_one(connection)
        .await
        .unwrap()
}

/// What the tables of schema public and their indexes take on disk, in bytes.
pub(crate) async fn disk(connection: &mut PgConnection) -> f64 {
    let text = "select coalesce(sum(pg_total_relation_size(oid)), 0)::float8
                from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'";
    sqlx::query_scalar(text).fetch_one(connection).await.unwrap()
}

/// How many dead rows the statistics have in the tables of schema public.
pub(crate) async fn dead_rows(connection: &mut PgConnection) -> f64 {
    let text = "select coalesce(sum(pg_stat_get_dead_tuples(oid)), 0)::float8
                from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'";
    sqlx::query_scalar(text).fetch_one(connection).await.unwrap()
}

/// Processor time of one process, in seconds.
pub(crate) fn cpu_of(pid: u32) -> f64 {
    ticks_of(pid, false).unwrap_or(f64::NAN) / ticks_a_second()
}

/// Processor time of a server's processes, those that have ended as well, in seconds.
pub(crate) fn cpu_of_server(postmaster: u32) -> f64 {
    let mut ticks = ticks_of(postmaster, true).unwrap_or(f64::NAN);
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let parent = |pid| stat(pid)?.get(1)?.parse::<u32>().ok();
        if let Some(pid) = pid.filter(|&pid| parent(pid) == Some(postmaster)) {
            ticks += ticks_of(pid, false).unwrap_or(0.0);
        }
    }
    ticks / ticks_a_second()
}

fn ticks_a_second() -> f64 {
    // Linux tells in hundredths on every architecture that it is served on here.
    100.0
}

/// The fields of `/proc/PID/stat` behind the name, of which the first is the state.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

fn ticks_of(pid: u32, with_children: bool) -> Option<f64> {
    let range = if with_children { 11..15 } else { 11..13 };
    Some(
        stat(pid)?
            .get(range)?
            .iter()
            .filter_map(|text| text.parse::<f64>().ok())
            .sum(),
    )
}

/// A value of `/proc/PID/status` in bytes, such as `VmHWM`, the most memory that it ever had.
pub(crate) fn memory_of(pid: u32, name: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024.0)
}

/// What automatic vacuums did in a database, by its server's log (`log_autovacuum_min_duration = 0`).
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Vacuums {
    pub(crate) runs: f64,
    /// Pages of tables and indexes that were looked at, as often as they were.
    pub(crate) pages: f64,
    pub(crate) seconds: f64,
}

impl Vacuums {
    /// Read for people only: nothing is decided by the words of a log.
    pub(crate) fn read(log: &Path, database: &str) -> Self {
        let text = fs::read_to_string(log).unwrap();
        let mark = format!(" of table \"{database}.public.");
        let (mut all, mut ours) = (Self::default(), false);
        for line in text.lines() {
            if line.contains(" automatic ") {
                ours = line.contains(&mark) && !line.contains("automatic analyze");
                all.runs += f64::from(u8::from(ours));
            }
            let (name, rest) = line.trim_start().split_once(": ").unwrap_or_default();
            match name {
                // `12 hits, 3 misses, 4 dirtied`; version 18 says reads for misses.
                "buffer usage" if ours => all.pages += rest.split(", ").take(2).map(first_number).sum::<f64>(),
                "system usage" if ours => {
                    all.seconds += rest.split_once("elapsed: ").map_or(0.0, |(_, tail)| first_number(tail));
                }
                _ => {}
            }
        }
        all
    }
}

fn first_number(text: &str) -> f64 {
    text.split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or_default()
}
