//! Getting rid of a day: time, writes, disk given back, and the longest wait of a claim meanwhile.

use std::time::{Duration, Instant};

use chrono::{Days, TimeDelta};

use crate::{
    load::{Latencies, Load},
    measure::{self, bytes, milliseconds, number},
    peer::{Kind, Peer, RETENTION_DAYS, available, start_of_day},
    plot::{self, Bar},
    report::{Report, Table},
    support::{clock::ClockServer, inbox::sql},
};

const KINDS: [Kind; 4] = [Kind::DeleteAtOnce, Kind::DeleteInBatches, Kind::Partman, Kind::ByTime];
const CONNECTIONS: u32 = 4;
const CLAIMS_A_SECOND: u32 = 200;
/// The live day, as a share of the expired one.
const LIVE_SHARE: u64 = 10;

/// What it took one of them.
struct Outcome {
    kind: Kind,
    removal: Duration,
    vacuum: Option<Duration>,
    wal: f64,
    /// Given back, and what the expired day took.
    given_back: f64,
    took: f64,
    beside: Latencies,
    alone: Latencies,
}

pub(crate) async fn run(quick: bool) -> Report {
    let rows = if quick { 100_000 } else { 10_000_000 };
    let server = ClockServer::start(&[
        ("max_connections", "100"),
        ("shared_buffers", "512MB"),
        ("max_wal_size", "4GB"),
        ("full_page_writes", "on"),
        // Its own vacuum is part of the measurement.
        ("autovacuum", "off"),
    ])
    .await;
    server.set_to("2027-03-01T10:00:00Z".parse().unwrap());
    let mut outcomes = Vec::new();
    for kind in available(&server, &KINDS).await {
        outcomes.push(one(&server, kind, rows).await);
    }
    report(rows, &outcomes)
}

async fn one(server: &ClockServer, kind: Kind, rows: u64) -> Outcome {
    let peer = Peer::new(server, kind).await;
    peer.fill(start_of_day(server.now()), rows).await;
    let mut admin = peer.admin().await;
    let took = measure::disk(&mut admin).await;
    for _ in 0..RETENTION_DAYS {
        server.step(TimeDelta::days(1));
        // Today and the days ahead, of which one is made each day; nothing has expired.
        peer.maintain(server.now()).await;
    }
    peer.fill(start_of_day(server.now()), rows / LIVE_SHARE).await;
    server.step(TimeDelta::days(1));
    sql(&mut admin, "vacuum (analyze)").await;
    sql(&mut admin, "checkpoint").await;
    let alone = beside(server, &peer, Duration::from_secs(3)).await;
    let disk_before = measure::disk(&mut admin).await;
    sql(&mut admin, "checkpoint").await;
    let load = Load::start(&peer, &server.clock(), CONNECTIONS, CLAIMS_A_SECOND).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (wal, begin) = (measure::wal(&mut admin).await, Instant::now());
    peer.get_rid(server.now()).await;
    let removal = begin.elapsed();
    let sweeps = matches!(kind, Kind::DeleteAtOnce | Kind::DeleteInBatches);
    let vacuum = match sweeps {
        true => {
            let begin = Instant::now();
            sql(&mut admin, "vacuum inbox").await;
            Some(begin.elapsed())
        }
        false => None,
    };
    let whole = begin.elapsed();
    let wal = measure::wal(&mut admin).await - wal;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let beside = load.stop().await;
    let disk_after = measure::disk(&mut admin).await;
    let expired: i64 = sqlx::query_scalar("select count(*) from inbox where processed_at < $1")
        .bind(start_of_day(server.now()) - Days::new(RETENTION_DAYS))
        .fetch_one(&mut admin)
        .await
        .unwrap();
    assert_eq!(expired, 0, "{kind:?} got rid of the day");
    let outcome = Outcome {
        kind,
        removal,
        vacuum,
        wal: wal - wal_of_claims(&alone, whole),
        given_back: disk_before - disk_after,
        took,
        beside,
        alone: alone.latencies,
    };
    drop(admin);
    sql(
        &mut server.database().await.connect().await,
        format!("drop database {} with (force)", peer.database.name),
    )
    .await;
    outcome
}

/// Claims with nothing beside them.
struct Alone {
    latencies: Latencies,
    wal_a_second: f64,
}

async fn beside(server: &ClockServer, peer: &Peer, time: Duration) -> Alone {
    let mut admin = peer.admin().await;
    let load = Load::start(peer, &server.clock(), CONNECTIONS, CLAIMS_A_SECOND).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = measure::wal(&mut admin).await;
    tokio::time::sleep(time).await;
    let after = measure::wal(&mut admin).await;
    Alone {
        latencies: load.stop().await,
        wal_a_second: (after - before) / time.as_secs_f64(),
    }
}

/// The claims that were made meanwhile write too.
fn wal_of_claims(alone: &Alone, time: Duration) -> f64 {
    alone.wal_a_second * time.as_secs_f64()
}

fn report(rows: u64, outcomes: &[Outcome]) -> Report {
    let mut report = Report::new("removal");
    let mut table = Table::new(&[
        "",
        "time",
        "and its vacuum",
        "WAL",
        "disk given back",
        "longest claim meanwhile",
        "99 % of claims",
        "longest claim before",
    ]);
    for outcome in outcomes {
        table.row(&[
            outcome.kind.name().to_owned(),
            measure::seconds(outcome.removal),
            outcome.vacuum.map_or_else(|| "–".to_owned(), measure::seconds),
            bytes(outcome.wal.max(0.0)),
            format!("{} of {}", bytes(outcome.given_back.max(0.0)), bytes(outcome.took)),
            milliseconds(outcome.beside.longest()),
            milliseconds(outcome.beside.at(0.99)),
            milliseconds(outcome.alone.longest()),
        ]);
    }
    report.table(&format!("A day of {rows} rows leaves a table that holds a tenth as many live ones, while {CLAIMS_A_SECOND} claims a second are made."), table);
    ratios(&mut report, outcomes);
    let bars = |of: fn(&Outcome) -> f64, tell: fn(f64) -> String| -> Vec<Bar> {
        let bar = |(colour, outcome): (usize, &Outcome)| Bar {
            label: outcome.kind.plain(),
            value: of(outcome),
            told: tell(of(outcome)),
            colour,
        };
        outcomes.iter().enumerate().map(bar).collect()
    };
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    let title = format!("Getting rid of a day of {rows} rows: time with its vacuum (logarithmic)");
    let time = bars(
        |outcome| {
            outcome.removal.as_secs_f64() * 1000.0 + outcome.vacuum.map_or(0.0, |time| time.as_secs_f64() * 1000.0)
        },
        milliseconds,
    );
    report.plot("removal-time", &title, plot::bars(&title, 10.0, &time));
    let title = format!("Getting rid of a day of {rows} rows: WAL (logarithmic)");
    report.plot(
        "removal-wal",
        &title,
        plot::bars(&title, 10_000.0, &bars(|outcome| outcome.wal, bytes)),
    );
    let cell = |kind: Kind, of: &dyn Fn(&Outcome) -> String| {
        outcomes
            .iter()
            .find(|outcome| outcome.kind == kind)
            .map_or_else(|| "not measured".to_owned(), of)
    };
    let mut essential = |what: &str, of: &dyn Fn(&Outcome) -> String| {
        report.essential(what, KINDS.map(|kind| cell(kind, of)));
    };
    let with_vacuum = |outcome: &Outcome| match outcome.vacuum {
        Some(vacuum) => format!(
            "{} + {} of vacuum",
            measure::seconds(outcome.removal),
            measure::seconds(vacuum)
        ),
        None => milliseconds(millis(outcome.removal)),
    };
    essential(&format!("getting rid of a day of {rows} rows"), &with_vacuum);
    essential("WAL of it", &|outcome| bytes(outcome.wal.max(0.0)));
    essential("disk given back", &|outcome| {
        format!(
            "{} %",
            number(100.0 * (outcome.given_back / outcome.took).clamp(0.0, 1.0))
        )
    });
    essential("longest claim meanwhile", &|outcome| {
        milliseconds(outcome.beside.longest())
    });
    report
}

/// Against the first, which is what most have.
fn ratios(report: &mut Report, outcomes: &[Outcome]) {
    let first = &outcomes[0];
    let mut table = Table::new(&[
        "as a share of `DELETE` at once",
        "time without vacuum",
        "time with it",
        "WAL",
    ]);
    let whole = |outcome: &Outcome| (outcome.removal + outcome.vacuum.unwrap_or_default()).as_secs_f64();
    let share = |part: f64, all: f64| match all / part.max(1e-9) {
        times if times >= 2.0 => format!("1/{}", number(times)),
        times => number(1.0 / times),
    };
    for outcome in &outcomes[1..] {
        table.row(&[
            outcome.kind.name().to_owned(),
            share(outcome.removal.as_secs_f64(), first.removal.as_secs_f64()),
            share(whole(outcome), whole(first)),
            share(outcome.wal.max(1.0), first.wal),
        ]);
    }
    report.table("The same in proportion.", table);
}
