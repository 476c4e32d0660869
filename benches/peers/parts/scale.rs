//! Scale of maintenance: a run over many inboxes, and over many partitions of one.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use chrono::TimeDelta;
use sqlx::PgConnection;

use crate::{
    measure::{self, Spread, bytes, milliseconds, number},
    report::{Report, Table},
    support::{
        clock::ClockServer,
        folder::Folder,
        inbox::sql,
        program::{config_file, inboxd},
        server::TestDatabase,
    },
};

/// What a run came to.
struct Run {
    millis: f64,
    /// Statements that the server was sent.
    queries: f64,
    /// The most memory that the program had, and the session of its pass.
    memory: f64,
}

pub(crate) async fn run(quick: bool) -> Report {
    let (inboxes, partitions, rounds): (&[u32], &[u32], usize) = match quick {
        true => (&[1, 20], &[10, 40], 1),
        false => (&[1, 10, 100, 500, 2000], &[10, 100, 367, 1000], 3),
    };
    let server = ClockServer::start(&[
        ("max_connections", "50"),
        ("shared_buffers", "512MB"),
        ("shared_preload_libraries", "pg_stat_statements"),
        ("pg_stat_statements.track", "top"),
        ("max_locks_per_transaction", "256"),
    ])
    .await;
    server.set_to("2027-03-01T10:00:00Z".parse().unwrap());
    let mut report = Report::new("scale");
    let columns = [
        "",
        "nothing to do",
        "queries",
        "memory",
        "one step each",
        "queries",
        "a step",
        "memory",
    ];
    let mut table = Table::new(&columns);
    let mut world = World::new(&server).await;
    for &count in inboxes {
        world.configure(count, 14);
        world.ask("init", "init").await;
        world.ask("run", "run").await;
        // Many are a measurement each.
        let rounds = if count < 500 { rounds } else { 1 };
        let row = world
            .measure(&format!("{count} inboxes of 15 partitions"), count, rounds)
            .await;
        table.row(&row);
    }
    world.end().await;
    report.table(
        "Whole commands `inboxd run`, with its start and connection. A step is a day's partition that is made.",
        table,
    );
    let mut table = Table::new(&columns);
    let mut world = World::new(&server).await;
    for &count in partitions {
        world.grow_to(count).await;
        let row = world
            .measure(&format!("1 inbox of {count} partitions"), 1, rounds)
            .await;
        table.row(&row);
    }
    world.end().await;
    report.table("The same with one inbox of many partitions.", table);
    report
}

/// A database with a configuration that grows.
struct World<'s> {
    server: &'s ClockServer,
    database: TestDatabase,
    folder: Folder,
    config: PathBuf,
    admin: PgConnection,
}

impl<'s> World<'s> {
    async fn new(server: &'s ClockServer) -> Self {
        let database = server.database().await;
        let mut admin = database.connect().await;
        sql(&mut admin, "create extension pg_stat_statements").await;
        let folder = Folder::new();
        Self {
            server,
            database,
            config: folder.path().join("inboxd.toml"),
            folder,
            admin,
        }
    }

    /// So many files are not left to the watchdog of the server's folder, which has its time.
    async fn end(self) {
        drop(self.admin);
        let text = format!("drop database {} with (force)", self.database.name);
        sql(&mut self.server.database().await.connect().await, text).await;
    }

    fn configure(&mut self, inboxes: u32, ahead: u32) {
        let mut text = "[maintenance]\nmax_clock_leap = \"3650d\"\n".to_owned();
        for nth in 1..=inboxes {
            text += &format!("[[inbox]]\ntable = \"public.inbox_{nth}\"\nahead = {ahead}\nretention = \"forever\"\n");
        }
        self.config = config_file(self.folder.path(), &text);
    }

    /// One inbox with so many partitions; more than a year ahead comes with years that pass.
    async fn grow_to(&mut self, partitions: u32) {
        self.configure(1, partitions.min(367) - 1);
        self.ask("init", "init").await;
        for _ in 0..partitions {
            self.ask("run", "run").await;
            let there: i64 = sqlx::query_scalar("select count(*) from pg_inherits")
                .fetch_one(&mut self.admin)
                .await
                .unwrap();
            let missing = i64::from(partitions) - there;
            if missing <= 0 {
                return;
            }
            self.server.step(TimeDelta::days(missing.min(366)));
        }
    }

    /// A row of the table: runs with nothing to do, then as many with one step for each inbox.
    async fn measure(&mut self, what: &str, inboxes: u32, rounds: usize) -> [String; 8] {
        let (mut idle, mut steps) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            idle.push(self.ask("run", "run").await);
        }
        for _ in 0..rounds {
            self.server.step(TimeDelta::days(1));
            steps.push(self.ask("run", "run").await);
        }
        let spread = |runs: &[Run], of: fn(&Run) -> f64| Spread::of(runs.iter().map(of).collect());
        let (time, time_of_steps) = (spread(&idle, |run| run.millis), spread(&steps, |run| run.millis));
        [
            what.to_owned(),
            time.told(milliseconds),
            number(spread(&idle, |run| run.queries).middle),
            bytes(spread(&idle, |run| run.memory).high),
            time_of_steps.told(milliseconds),
            number(spread(&steps, |run| run.queries).middle),
            milliseconds((time_of_steps.middle - time.middle) / f64::from(inboxes)),
            bytes(spread(&steps, |run| run.memory).high),
        ]
    }

    /// A command to its end, with what it took.
    async fn ask(&mut self, command: &str, what: &str) -> Run {
        sql(&mut self.admin, "select pg_stat_statements_reset()").await;
        let begin = Instant::now();
        let mut child = inboxd(&["--config", text(&self.config), command]);
        child
            .env("DATABASE_URL", &self.database.url)
            .envs(self.server.shim_environment());
        let log = self.folder.path().join("log");
        let file = || std::fs::File::create(&log).unwrap();
        let mut child = child.stdout(Stdio::null()).stderr(file()).spawn().unwrap();
        let mut memory: f64 = 0.0;
        let ended = loop {
            memory = measure::memory_of(child.id(), "VmHWM").unwrap_or(0.0).max(memory);
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < Duration::from_secs(1800), "{what} does not end");
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        let millis = begin.elapsed().as_secs_f64() * 1000.0;
        assert!(ended.success(), "{what}: {}", std::fs::read_to_string(&log).unwrap());
        let queries: f64 = sqlx::query_scalar(
            "select coalesce(sum(calls), 0)::float8 from pg_stat_statements where dbid = (select oid from pg_database where datname = current_database())",
        )
        .fetch_one(&mut self.admin)
        .await
        .unwrap();
        Run {
            millis,
            queries,
            memory,
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
