//! The longest claim while a business transaction is open during maintenance.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use sqlx::Connection;

use crate::{
    load::{Latencies, Load},
    measure::{Spread, milliseconds},
    peer::{Kind, Peer, available},
    plot::{self, Bar},
    report::{Report, Table},
    support::clock::ClockServer,
};

const CONNECTIONS: u32 = 8;
const CLAIMS_A_SECOND: u32 = 400;
/// Before the transaction, between it and the maintenance, and after both.
const LEAD: Duration = Duration::from_millis(300);

/// Whoever is maintained, and the two that are not, which the others are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    kind: Kind,
    maintained: bool,
}

impl Case {
    fn name(self) -> String {
        match self.maintained {
            true => self.kind.name().to_owned(),
            false => format!("{}, no maintenance", self.kind.name()),
        }
    }
}

/// What a case came to with a transaction of one length: the longest claim of each round, and all claims.
struct Outcome {
    case: Case,
    open_for: Duration,
    longest: Spread,
    p99: Spread,
}

pub(crate) async fn run(quick: bool) -> Report {
    let (lengths, rounds): (&[u64], u32) = if quick {
        (&[300, 1_000], 1)
    } else {
        (&[1_000, 3_000, 10_000], 3)
    };
    let server = Arc::new(ClockServer::start(&[("max_connections", "100"), ("shared_buffers", "256MB")]).await);
    server.set_to("2027-03-01T10:00:00Z".parse().unwrap());
    let kinds = available(&server, &[Kind::Partman, Kind::Bare, Kind::ByTime, Kind::ById]).await;
    let mut peers = Vec::new();
    for kind in kinds {
        peers.push(Arc::new(Peer::new(&server, kind).await));
    }
    grow_old(&server, &peers).await;
    let cases = cases(&peers);
    let mut seen: Vec<(usize, u64, Latencies)> = Vec::new();
    for _ in 0..rounds {
        for &length in lengths {
            // One day passes for all, so that each has one to make and one to remove.
            server.step(TimeDelta::days(1));
            for (nth, case) in cases.iter().enumerate() {
                let peer = peers.iter().find(|peer| peer.kind == case.kind).unwrap();
                let latencies = one(&server, peer, case.maintained, Duration::from_millis(length)).await;
                seen.push((nth, length, latencies));
            }
            // What could not be finished beside the transaction.
            for peer in peers
                .iter()
                .filter(|peer| matches!(peer.kind, Kind::ByTime | Kind::ById))
            {
                peer.maintain(server.now()).await;
            }
        }
    }
    let mut outcomes = Vec::new();
    for &length in lengths {
        for (nth, &case) in cases.iter().enumerate() {
            let of = |what: fn(&Latencies) -> f64| {
                let these = seen.iter().filter(|one| one.0 == nth && one.1 == length);
                Spread::of(these.map(|one| what(&one.2)).collect())
            };
            outcomes.push(Outcome {
                case,
                open_for: Duration::from_millis(length),
                longest: of(Latencies::longest),
                p99: of(|all| all.at(0.99)),
            });
        }
    }
    report(&cases, lengths, &outcomes)
}

/// The cases without maintenance come first: of a day whose maintenance is due.
fn cases(peers: &[Arc<Peer>]) -> Vec<Case> {
    let of = |maintained| {
        move |peer: &Arc<Peer>| Case {
            kind: peer.kind,
            maintained,
        }
    };
    let ours = peers
        .iter()
        .filter(|peer| matches!(peer.kind, Kind::ByTime | Kind::ById));
    ours.map(of(false)).chain(peers.iter().map(of(true))).collect()
}

/// Days go by until one expires each day.
async fn grow_old(server: &ClockServer, peers: &[Arc<Peer>]) {
    for nth in 0..4 {
        if nth > 0 {
            server.step(TimeDelta::days(1));
        }
        for peer in peers {
            peer.fill_today(server.now()).await;
            if nth > 0 {
                peer.maintain(server.now()).await;
            }
        }
    }
}

/// A business transaction that claims and stays open, and maintenance beside it.
async fn one(server: &ClockServer, peer: &Arc<Peer>, maintained: bool, open_for: Duration) -> Latencies {
    let clock = server.clock();
    let load = Load::start(peer, &clock, CONNECTIONS, CLAIMS_A_SECOND).await;
    tokio::time::sleep(LEAD).await;
    let mut business = peer.admin().await;
    let mut open = business.begin().await.unwrap();
    sqlx::query(peer.claim())
        .bind(Peer::new_id(server.now()))
        .execute(&mut *open)
        .await
        .unwrap();
    let maintenance = maintained.then(|| {
        let (peer, now) = (peer.clone(), server.now());
        tokio::spawn(async move { peer.maintain(now).await })
    });
    tokio::time::sleep(open_for).await;
    open.commit().await.unwrap();
    if let Some(maintenance) = maintenance {
        let steps = maintenance.await.unwrap();
        // Else it would be no wonder that nobody waits.
        let was_due = steps.contains(&"create") && steps.contains(&"detach");
        assert!(was_due || !matches!(peer.kind, Kind::ByTime | Kind::ById), "{steps:?}");
    }
    tokio::time::sleep(LEAD).await;
    load.stop().await
}

fn report(cases: &[Case], lengths: &[u64], outcomes: &[Outcome]) -> Report {
    let mut report = Report::new("stall");
    let mut columns = vec!["a transaction stays open for".to_owned()];
    columns.extend(
        lengths
            .iter()
            .map(|length| crate::measure::seconds(Duration::from_millis(*length))),
    );
    for (says, of) in [
        (
            "The longest claim of a round: the middle of the rounds, with the smallest and the largest.",
            0,
        ),
        ("The 99th percentile of the claims of a round, likewise.", 1),
    ] {
        let mut table = Table::new(&columns);
        for &case in cases {
            let mut row = vec![case.name()];
            let these = outcomes.iter().filter(|outcome| outcome.case == case);
            row.extend(these.map(|outcome| [outcome.longest, outcome.p99][of].told(milliseconds)));
            table.row(&row);
        }
        report.table(says, table);
    }
    let bars: Vec<Bar> = outcomes
        .iter()
        .map(|outcome| Bar {
            label: format!(
                "{} s: {}",
                outcome.open_for.as_secs_f64(),
                outcome.case.name().replace('`', "")
            ),
            value: outcome.longest.middle,
            told: milliseconds(outcome.longest.middle),
            colour: cases.iter().position(|case| *case == outcome.case).unwrap_or_default(),
        })
        .collect();
    let title = "Longest claim while a business transaction stays open during maintenance (logarithmic)";
    report.plot("stall", title, plot::bars(title, 1.0, &bars));
    let middle_length = Duration::from_millis(lengths[lengths.len() / 2]);
    let told = |kind| {
        let found = outcomes
            .iter()
            .find(|outcome| outcome.case == Case { kind, maintained: true } && outcome.open_for == middle_length);
        found.map_or_else(
            || "not measured".to_owned(),
            |outcome| outcome.longest.told(milliseconds),
        )
    };
    let what = format!(
        "longest claim during maintenance beside a transaction of {} s",
        middle_length.as_secs()
    );
    report.essential(
        &what,
        ["–".to_owned(), "–".to_owned(), told(Kind::Partman), told(Kind::ByTime)],
    );
    report
}
