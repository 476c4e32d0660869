//! A day's life: claims without pause over several days with retention in force.

use std::time::{Duration, Instant};

use chrono::TimeDelta;

use crate::{
    load::Latencies,
    measure::{self, Spread, Vacuums, bytes, milliseconds, number},
    peer::{Kind, Peer, RETENTION_DAYS, available, start_of_day},
    pgbench::{Claim, Pgbench},
    plot::{self, Line},
    report::{Report, Table},
    support::{clock::ClockServer, inbox::sql},
};

const KINDS: [Kind; 4] = [Kind::DeleteAtOnce, Kind::Partman, Kind::ByTime, Kind::ById];
const CONNECTIONS: u32 = 4;
/// A day's throughput and disk are told so many times.
const POINTS_A_DAY: usize = 10;
/// The day's maintenance begins so long after its claims.
const LEAD: Duration = Duration::from_millis(300);

#[derive(Debug, Clone, Copy)]
struct Size {
    days: u32,
    claims_a_day: u32,
}

/// What the days of one of them came to.
struct Outcome {
    kind: Kind,
    /// By days, and parts of them.
    throughput: Vec<(f64, f64)>,
    disk: Vec<(f64, f64)>,
    latencies: Latencies,
    dead_rows: f64,
    /// Bytes and processor seconds of all.
    wal: f64,
    cpu: f64,
    /// How long all days took, in seconds.
    time: f64,
    vacuums: Vacuums,
}

pub(crate) async fn run(quick: bool) -> Report {
    let size = match quick {
        true => Size {
            days: 3,
            claims_a_day: 6_000,
        },
        false => Size {
            days: 6,
            claims_a_day: 100_000,
        },
    };
    let server = ClockServer::start(&[
        ("max_connections", "100"),
        ("shared_buffers", "512MB"),
        ("max_wal_size", "4GB"),
        // A day passes within seconds: what a minute is to a day is less than this to it.
        ("autovacuum_naptime", "1s"),
        ("log_autovacuum_min_duration", "0"),
    ])
    .await;
    server.set_to("2027-03-01T10:00:00Z".parse().unwrap());
    let mut outcomes = Vec::new();
    for kind in available(&server, &KINDS).await {
        outcomes.push(one(&server, kind, size).await);
    }
    // Else the words of the log are not those that are looked for.
    let swept = |outcome: &Outcome| outcome.kind == Kind::DeleteAtOnce && outcome.vacuums.runs > 0.0;
    assert!(
        quick || outcomes.iter().any(swept),
        "no automatic vacuum of a table whose days are deleted"
    );
    report(size, &outcomes)
}

async fn one(server: &ClockServer, kind: Kind, size: Size) -> Outcome {
    let peer = Peer::new(server, kind).await;
    // Days go by until one expires each day.
    for nth in 0..=RETENTION_DAYS {
        if nth > 0 {
            server.step(TimeDelta::days(1));
            peer.maintain(server.now()).await;
        }
        peer.fill_v7(start_of_day(server.now()), size.claims_a_day.into()).await;
    }
    let mut admin = peer.admin().await;
    sql(&mut admin, "vacuum (analyze)").await;
    sql(&mut admin, "checkpoint").await;
    let postmaster = server.server.cluster.pid();
    let (wal, cpu) = (measure::wal(&mut admin).await, measure::cpu_of_server(postmaster));
    let (mut throughput, mut disk, mut millis) = (Vec::new(), Vec::new(), Vec::new());
    let (mut dead_rows, mut time) = (0.0_f64, 0.0);
    for day in 0..size.days {
        server.step(TimeDelta::days(1));
        let now = server.now();
        let maintenance = async {
            tokio::time::sleep(LEAD).await;
            peer.get_rid(now).await;
        };
        let (seen, ()) = tokio::join!(one_day(server, &peer, size), maintenance);
        let begin = f64::from(day);
        throughput.extend(rates(begin, &seen.claims));
        disk.extend(seen.disk.iter().map(|(at, bytes)| (begin + at, *bytes)));
        millis.extend(seen.claims.iter().map(|claim| claim.millis));
        dead_rows = dead_rows.max(seen.dead_rows);
        time += seen.claims[seen.claims.len() - 1].end - seen.claims[0].end;
    }
    let outcome = Outcome {
        kind,
        throughput,
        disk,
        latencies: Latencies::of(millis),
        dead_rows,
        wal: measure::wal(&mut admin).await - wal,
        cpu: measure::cpu_of_server(postmaster) - cpu,
        time,
        vacuums: Vacuums::read(server.server.cluster.log_file(), &peer.database.name),
    };
    drop(admin);
    // Else its automatic vacuum would run beside the next one.
    let text = format!("drop database {} with (force)", peer.database.name);
    sql(&mut server.database().await.connect().await, text).await;
    outcome
}

/// What was seen of one day.
struct Day {
    claims: Vec<Claim>,
    /// By the day's parts.
    disk: Vec<(f64, f64)>,
    dead_rows: f64,
}

async fn one_day(server: &ClockServer, peer: &Peer, size: Size) -> Day {
    let mut admin = peer.admin().await;
    let mut load = Pgbench::start(server, peer, CONNECTIONS, size.claims_a_day);
    let (begin, mut disk, mut dead_rows) = (Instant::now(), Vec::new(), 0.0_f64);
    let claims = loop {
        disk.push((begin.elapsed().as_secs_f64(), measure::disk(&mut admin).await));
        dead_rows = dead_rows.max(measure::dead_rows(&mut admin).await);
        if let Some(claims) = load.ended() {
            break claims;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let whole = begin.elapsed().as_secs_f64();
    disk.iter_mut().for_each(|(at, _)| *at /= whole);
    Day {
        claims,
        disk,
        dead_rows,
    }
}

/// Claims a second in each part of a day, a part being as many claims as another.
fn rates(begin: f64, claims: &[Claim]) -> Vec<(f64, f64)> {
    let ends: Vec<f64> = claims.iter().map(|claim| claim.end).collect();
    let length = ends.len() / POINTS_A_DAY;
    let parts = ends.windows(length + 1).step_by(length).enumerate();
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    parts
        .map(|(nth, part)| {
            let middle = (nth as f64 + 0.5) / POINTS_A_DAY as f64;
            (begin + middle, length as f64 / (part[length] - part[0]))
        })
        .collect()
}

fn report(size: Size, outcomes: &[Outcome]) -> Report {
    let mut report = Report::new("life");
    let claims = f64::from(size.days * size.claims_a_day);
    let rate = |outcome: &Outcome| claims / outcome.time;
    let mut table = Table::new(&[
        "",
        "claims a second",
        "in each tenth of a day",
        "50 % of claims",
        "99 %",
        "longest",
        "WAL a claim",
        "server's processor time a claim",
    ]);
    for outcome in outcomes {
        let parts = Spread::of(outcome.throughput.iter().map(|point| point.1).collect());
        table.row(&[
            outcome.kind.name().to_owned(),
            number(rate(outcome)),
            parts.told(number),
            milliseconds(outcome.latencies.at(0.5)),
            milliseconds(outcome.latencies.at(0.99)),
            milliseconds(outcome.latencies.longest()),
            bytes(outcome.wal / claims),
            format!("{} µs", number(outcome.cpu * 1e6 / claims)),
        ]);
    }
    let says = format!(
        "{} days of {} claims each (UUIDv7), as fast as {CONNECTIONS} connections make them; {RETENTION_DAYS} days are kept, and one is removed each day.",
        size.days, size.claims_a_day
    );
    report.table(&says, table);
    let mut table = Table::new(&[
        "",
        "tables and indexes on disk",
        "at the end",
        "dead rows at most",
        "automatic vacuums",
        "their pages",
        "their time",
    ]);
    let end = |outcome: &Outcome| outcome.disk[outcome.disk.len() - 1].1;
    for outcome in outcomes {
        let disk = Spread::of(outcome.disk.iter().map(|point| point.1).collect());
        table.row(&[
            outcome.kind.name().to_owned(),
            disk.told(bytes),
            bytes(end(outcome)),
            format!("{:.0}", outcome.dead_rows),
            format!("{:.0}", outcome.vacuums.runs),
            number(outcome.vacuums.pages),
            milliseconds(outcome.vacuums.seconds * 1000.0),
        ]);
    }
    report.table("What it leaves, in the same days.", table);
    let lines = |of: fn(&Outcome) -> &Vec<(f64, f64)>| -> Vec<Line> {
        outcomes
            .iter()
            .map(|outcome| (outcome.kind.plain(), of(outcome).clone()))
            .collect()
    };
    let title = "Claims a second, day by day";
    let throughput = lines(|outcome| &outcome.throughput);
    report.plot(
        "life-throughput",
        title,
        plot::lines(title, "days", number, &throughput),
    );
    let title = "Tables and indexes on disk, day by day";
    let disk = lines(|outcome| &outcome.disk);
    report.plot("life-disk", title, plot::lines(title, "days", bytes, &disk));
    let cell = |kind: Kind, of: &dyn Fn(&Outcome) -> String| {
        let found = outcomes.iter().find(|outcome| outcome.kind == kind);
        found.map_or_else(|| "not measured".to_owned(), of)
    };
    let mut essential = |what: &str, of: &dyn Fn(&Outcome) -> String| {
        let both = format!("{} (`message_id`: {})", cell(Kind::ByTime, of), cell(Kind::ById, of));
        let (sweep, partman) = (cell(Kind::DeleteAtOnce, of), cell(Kind::Partman, of));
        report.essential(what, [sweep, "–".to_owned(), partman, both]);
    };
    essential("claims a second while days come and go", &|outcome| {
        number(rate(outcome))
    });
    essential("WAL a claim, with that of maintenance", &|outcome| {
        bytes(outcome.wal / claims)
    });
    essential("disk after it", &|outcome| bytes(end(outcome)));
    report
}
