//! A PostgreSQL whose wall clock can be stepped, forth and back, while it runs.
//!
//! Step it between statements: a timeout that is running is computed from the same clock.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::clock::Clock;

use super::folder::Folder;
use super::process;
use super::server::{OwnServer, TestDatabase, options_in};

/// An own server under its own clock.
#[derive(Debug)]
pub(crate) struct ClockServer {
    pub(crate) server: OwnServer,
    offset_file: File,
    offset_nanos: Arc<AtomicI64>,
    host_offset_file: File,
    skew_nanos: AtomicI64,
    environment: Vec<(OsString, OsString)>,
}

impl ClockServer {
    /// Starts a server whose clock is right until it is stepped.
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let folder = Folder::new();
        let (offset_file, server_environment) = clock_in(&folder, "clock-offset");
        let (host_offset_file, environment) = clock_in(&folder, "host-clock-offset");
        let mut options = options_in(folder.path());
        options.environment = server_environment;
        options.settings = settings
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        let server = OwnServer::start(folder, options).await;
        Self {
            server,
            offset_file,
            offset_nanos: Arc::default(),
            host_offset_file,
            skew_nanos: AtomicI64::new(0),
            environment,
        }
    }

    pub(crate) async fn database(&self) -> TestDatabase {
        self.server.database().await
    }

    /// Sets the clock ahead of the host's (or behind it, if negative). At most 292 years.
    pub(crate) fn set_offset(&self, offset: TimeDelta) {
        self.write(offset.num_nanoseconds().expect("an offset below 292 years"));
    }

    /// Steps the clock from where it is.
    pub(crate) fn step(&self, by: TimeDelta) {
        let by = by.num_nanoseconds().expect("a step below 292 years");
        self.write(self.offset_nanos.load(Ordering::SeqCst) + by);
    }

    /// Sets the clock to an instant, from which it runs on.
    pub(crate) fn set_to(&self, instant: DateTime<Utc>) {
        self.set_offset(instant - host_now());
    }

    /// What the server's clock shows.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        host_now() + TimeDelta::nanoseconds(self.offset_nanos.load(Ordering::SeqCst))
    }

    /// The same clock, as a host in step with the server has it.
    pub(crate) fn clock(&self) -> Clock {
        let offset = self.offset_nanos.clone();
        Clock::from_fn(move || host_now() + TimeDelta::nanoseconds(offset.load(Ordering::SeqCst)))
    }

    /// Sets the hosts' clock, under which other processes live, ahead of the server's by this from now on.
    pub(crate) fn set_skew(&self, skew: TimeDelta) {
        let nanos = skew.num_nanoseconds().expect("a skew below 292 years");
        self.skew_nanos.store(nanos, Ordering::SeqCst);
        self.write(self.offset_nanos.load(Ordering::SeqCst));
    }

    /// Environment variables that put another process under the hosts' clock: the server's, unless a skew is set.
    pub(crate) fn shim_environment(&self) -> Vec<(OsString, OsString)> {
        self.environment.clone()
    }

    fn write(&self, nanos: i64) {
        let host = nanos + self.skew_nanos.load(Ordering::SeqCst);
        self.offset_file.write_all_at(&nanos.to_ne_bytes(), 0).unwrap();
        self.host_offset_file.write_all_at(&host.to_ne_bytes(), 0).unwrap();
        self.offset_nanos.store(nanos, Ordering::SeqCst);
    }
}

/// The file that a clock is read from, and the environment of a process that reads it.
fn clock_in(folder: &Folder, name: &str) -> (File, Vec<(OsString, OsString)>) {
    let path = folder.path().join(name);
    std::fs::write(&path, 0_i64.to_ne_bytes()).unwrap();
    process::open_to_all(&path);
    let file = File::options().write(true).open(&path).unwrap();
    let environment = vec![
        ("LD_PRELOAD".into(), shim().as_os_str().to_owned()),
        ("CLOCKSHIM_OFFSET_FILE".into(), path.into_os_string()),
    ];
    (file, environment)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the stepped clock is told in terms of the host's"
)]
fn host_now() -> DateTime<Utc> {
    SystemTime::now().into()
}

/// The preload library, compiled by the first who asks.
fn shim() -> &'static Path {
    static SHIM: OnceLock<(Folder, PathBuf)> = OnceLock::new();
    let (_, library) = SHIM.get_or_init(|| {
        let folder = Folder::new();
        let source = folder.path().join("clockshim.c");
        let library = folder.path().join("clockshim.so");
        std::fs::write(&source, include_str!("clockshim.c")).unwrap();
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&library, &source])
            .output()
            .expect("a C compiler is needed to step the clock: install one as `cc`");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        process::open_to_all(&library);
        (folder, library)
    });
    library
}

mod tests {
    use std::time::{Duration, Instant};

    use chrono::TimeZone;
    use sqlx::{Connection, PgConnection};

    use super::*;

    async fn server_now(connection: &mut PgConnection) -> DateTime<Utc> {
        sqlx::query_scalar("select clock_timestamp()")
            .fetch_one(connection)
            .await
            .unwrap()
    }

    fn assert_close(one: DateTime<Utc>, other: DateTime<Utc>) {
        assert!((one - other).abs() < TimeDelta::seconds(5), "{one} is not {other}");
    }

    #[tokio::test]
    async fn a_lock_timeout_fires_in_time_under_a_clock_that_is_far_off() {
        let clock = ClockServer::start(&[]).await;
        let database = clock.database().await;
        let (mut holder, mut waiter) = (database.connect().await, database.connect().await);
        sqlx::query("create table held ()").execute(&mut holder).await.unwrap();
        sqlx::query("set lock_timeout = '300ms'")
            .execute(&mut waiter)
            .await
            .unwrap();
        for days in [365, -30] {
            clock.set_offset(TimeDelta::days(days));
            let mut holding = holder.begin().await.unwrap();
            sqlx::query("lock table held").execute(&mut *holding).await.unwrap();
            let begin = Instant::now();
            let error = sqlx::query("table held").execute(&mut waiter).await.unwrap_err();
            let waited = begin.elapsed();
            assert_eq!(
                error.as_database_error().and_then(|error| error.code()).as_deref(),
                Some("55P03")
            );
            let expected = Duration::from_millis(250)..Duration::from_millis(1_000);
            assert!(expected.contains(&waited), "{waited:?} at {days} days");
            holding.rollback().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_live_server_follows_every_step_of_its_clock_forth_and_back() {
        let clock = ClockServer::start(&[]).await;
        let database = clock.database().await;
        let mut open = database.connect().await;
        assert_close(server_now(&mut open).await, host_now());
        for hours in [24, 24 * 365, -24 * 400, 1, -1] {
            let before = clock.now();
            clock.step(TimeDelta::hours(hours));
            assert_close(clock.now(), before + TimeDelta::hours(hours));
            assert_close(server_now(&mut open).await, clock.now());
            assert_close(server_now(&mut database.connect().await).await, clock.now());
        }
        let midnight = Utc.with_ymd_and_hms(2031, 1, 1, 0, 0, 0).unwrap();
        clock.set_to(midnight);
        let shown = server_now(&mut open).await;
        assert_close(shown, midnight);
        assert!(shown >= midnight, "it stands at the instant, then runs on");
        clock.set_offset(TimeDelta::zero());
        assert_close(server_now(&mut open).await, host_now());
    }

    #[tokio::test]
    async fn another_process_can_live_under_the_same_clock() {
        let clock = ClockServer::start(&[]).await;
        clock.set_to(Utc.with_ymd_and_hms(2040, 2, 29, 12, 0, 0).unwrap());
        let output = Command::new("date")
            .args(["-u", "+%Y-%m-%d"])
            .envs(clock.shim_environment())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "2040-02-29");
    }

    #[tokio::test]
    async fn a_host_can_be_out_of_step_with_the_server_and_keeps_its_distance_at_each_step() {
        let clock = ClockServer::start(&[]).await;
        let mut open = clock.database().await.connect().await;
        clock.set_skew(TimeDelta::days(-2));
        clock.set_to(Utc.with_ymd_and_hms(2040, 2, 29, 12, 0, 0).unwrap());
        let host = || {
            let mut date = Command::new("date");
            let output = date
                .args(["-u", "+%Y-%m-%d"])
                .envs(clock.shim_environment())
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        assert_eq!(host(), "2040-02-27");
        assert_close(server_now(&mut open).await, clock.now());
        clock.set_skew(TimeDelta::zero());
        assert_eq!(host(), "2040-02-29");
    }
}
