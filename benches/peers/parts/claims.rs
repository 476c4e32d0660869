//! What a claim costs beside the seed's insert: `benches/claims` at the points of a grid, one thing varied at a time.

use std::{collections::HashMap, process::Command};

use crate::{
    measure::number,
    report::{ESSENTIAL, Report, Table, root},
    support::server,
};

/// What is claimed one by one: the shape of `benches/claims`, its baseline, and what the table calls it.
const SINGLE: [Shape; 5] = [
    ("by_id_claim", "seed_v7", "`message_id`, UUIDv7"),
    ("by_time_claim", "seed_v7", "`processed_at`, UUIDv7"),
    ("by_time_claim_random", "seed_random", "`processed_at`, random"),
    (
        "by_time_claim_random_created",
        "seed_random",
        "`processed_at`, random, creation told",
    ),
    ("digest_claim_random", "seed_random", "`processed_at`, random, digest"),
];
/// And in batches.
const BATCH: [Shape; 4] = [
    ("by_id_batch", "seed_v7_batch", "`message_id`, UUIDv7"),
    ("by_time_batch", "seed_v7_batch", "`processed_at`, UUIDv7"),
    ("by_time_batch_random", "seed_random_batch", "`processed_at`, random"),
    (
        "digest_batch_random",
        "seed_random_batch",
        "`processed_at`, random, digest",
    ),
];
const CLIENTS: u32 = 4;
const PAST_DAYS: u32 = 7;

type Shape = (&'static str, &'static str, &'static str);

/// A place in the grid.
#[derive(Debug, Clone, Copy)]
struct Point {
    clients: u32,
    past_days: u32,
    batch: u32,
}

/// What a shape came to at a place.
#[derive(Debug, Clone)]
struct Measured {
    a_second: f64,
    /// Rate and processor time beside the baseline; empty of a baseline itself.
    rate: String,
    cpu: String,
}

pub(crate) fn run(quick: bool) -> Report {
    let base = Point {
        clients: CLIENTS,
        past_days: PAST_DAYS,
        batch: 1,
    };
    let (clients, past_days, batches): (&[u32], &[u32], &[(u32, u32)]) = match quick {
        true => (&[16], &[], &[(100, PAST_DAYS)]),
        false => {
            let batches = &[
                (1, PAST_DAYS),
                (10, PAST_DAYS),
                (200, PAST_DAYS),
                (1000, PAST_DAYS),
                (200, 60),
            ];
            (&[1, 16, 64], &[0, 1, 30, 60], batches)
        }
    };
    let mut singles = vec![base];
    singles.extend(clients.iter().map(|&clients| Point { clients, ..base }));
    singles.extend(past_days.iter().map(|&past_days| Point { past_days, ..base }));
    let batches = batches.iter().map(|&(batch, past_days)| Point {
        batch,
        past_days,
        ..base
    });

    let mut report = Report::new("claims");
    let (mut rates, mut cpu) = (table(&SINGLE), table(&SINGLE));
    for (nth, point) in singles.into_iter().enumerate() {
        let label = format!("{} connections, {} days of look-back", point.clients, point.past_days);
        let found = measure(point, &SINGLE, quick);
        rates.row(&row(&label, &found, &SINGLE, 1, |one| &one.rate));
        cpu.row(&row(&label, &found, &SINGLE, 1, |one| &one.cpu));
        if nth == 0 {
            let mut cells = ["–"; ESSENTIAL.len()].map(str::to_owned);
            "1".clone_into(&mut cells[0]);
            cells[ESSENTIAL.len() - 1] = format!("{} … {}", low(&found, SINGLE[2].0), low(&found, SINGLE[0].0));
            let what = "claims a second as a share of the plain insert's: random ids in `processed_at` … UUIDv7 in `message_id` routing";
            report.essential(what, cells);
        }
    }
    report.table(
        "One claim a transaction: claims a second, as a share of the plain insert's with the same kind of ids.",
        rates,
    );
    report.table(
        "The same by processor time of server and client: the insert's as a share of the claim's.",
        cpu,
    );
    let (mut rates, mut cpu) = (table(&BATCH), table(&BATCH));
    for point in batches {
        let label = format!("batches of {}, {} days of look-back", point.batch, point.past_days);
        let found = measure(point, &BATCH, quick);
        rates.row(&row(&label, &found, &BATCH, point.batch, |one| &one.rate));
        cpu.row(&row(&label, &found, &BATCH, point.batch, |one| &one.cpu));
    }
    report.table(
        &format!("Batches, {CLIENTS} connections; beside an insert of as many."),
        rates,
    );
    report.table("The same by processor time.", cpu);
    report
}

fn table(shapes: &[Shape]) -> Table {
    let mut columns = vec![
        String::new(),
        "plain insert, messages a second (UUIDv7)".to_owned(),
        "(random)".to_owned(),
    ];
    columns.extend(shapes.iter().map(|shape| shape.2.to_owned()));
    Table::new(&columns)
}

fn row(
    label: &str,
    found: &HashMap<String, Measured>,
    shapes: &[Shape],
    batch: u32,
    of: fn(&Measured) -> &String,
) -> Vec<String> {
    let baseline = |shape: &Shape| number(found[shape.1].a_second * f64::from(batch));
    let mut row = vec![label.to_owned(), baseline(&shapes[0]), baseline(&shapes[2])];
    row.extend(shapes.iter().map(|shape| of(&found[shape.0]).clone()));
    row
}

/// A ratio without its spread.
fn low(found: &HashMap<String, Measured>, shape: &str) -> String {
    found[shape].rate.split(' ').next().unwrap_or_default().to_owned()
}

/// `benches/claims` at one place: what it says of each shape.
fn measure(point: Point, shapes: &[Shape], quick: bool) -> HashMap<String, Measured> {
    eprintln!("   {point:?}");
    let names: Vec<&str> = shapes.iter().map(|shape| shape.0).collect();
    let (rounds, rows, messages) = if quick {
        (1, 1_000, 10_000)
    } else {
        (3, 20_000, 100_000)
    };
    let settings = [
        ("ROUNDS", rounds),
        ("SECONDS_A_ROUND", 1),
        ("CLIENTS", point.clients),
        ("PAST_DAYS", point.past_days),
        ("ROWS_A_DAY", rows),
        ("BATCH", point.batch),
        ("BATCHES_A_ROUND", (messages / point.batch).clamp(point.clients, 20_000)),
    ];
    let mut command = Command::new(root().join("benches/claims"));
    // What would configure the program, such as what cargo leaves of its build.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("INBOXD_") || name == "DATABASE_URL" {
            command.env_remove(name);
        }
    }
    let output = command
        .envs(settings.map(|(name, value)| (name, value.to_string())))
        .env("ONLY", format!("^({})$", names.join("|")))
        .env("INBOXD", env!("CARGO_BIN_EXE_inboxd"))
        .env("PG_BINDIR", server::shared().cluster.bin_dir())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let found: HashMap<_, _> = text.lines().filter_map(read).collect();
    for (name, baseline, _) in shapes {
        let whole = found.get(*name).is_some_and(|one| !one.rate.is_empty()) && found.contains_key(*baseline);
        assert!(whole, "{name} is missing in {text}");
    }
    found
}

/// A line of its table: `shape`, `compared with`, `median/s`, `ratio`, `min..max`, `cpu`, `min..max`; of a baseline the first and
/// third only.
fn read(line: &str) -> Option<(String, Measured)> {
    let cells: Vec<&str> = line.split_whitespace().collect();
    let told = |at: usize| {
        let (middle, spread) = (*cells.get(at)?, *cells.get(at + 1)?);
        if spread == format!("{middle}..{middle}") {
            return Some(middle.to_owned());
        }
        Some(format!("{middle} ({})", spread.replace("..", " … ")))
    };
    let a_second = cells.get(if cells.len() == 2 { 1 } else { 2 })?.parse().ok()?;
    let measured = Measured {
        a_second,
        rate: told(3).unwrap_or_default(),
        cpu: told(5).unwrap_or_default(),
    };
    Some((cells[0].to_owned(), measured))
}
