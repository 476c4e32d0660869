//! From text to checked values. Every problem is found, not only the first.

use std::{
    collections::{BTreeMap, HashMap},
    str::FromStr,
};

use sqlx::postgres::PgConnectOptions;

use super::{
    Config, Database, Log,
    http::http,
    inbox::{Clocks, inbox},
    problems::{Problems, is_url_safe},
    raw::{Raw, RawDatabase, RawInbox},
    webhook::webhook,
};
use crate::{maintain::Retries, postgres::Timeouts, pure::Policy, service::cron::Schedule};

/// The scheduler tells of its own inner life at info.
const DEFAULT_FILTER: &str = "info,tokio_cron_scheduler=warn";
/// The name of the database in `[database]`.
const ONLY_DATABASE: &str = "main";

pub(super) fn check(
    raw: Raw,
    database_url: Option<String>,
    environment: &HashMap<String, String>,
) -> Result<Config, Vec<String>> {
    let mut problems = Problems::default();
    let mut databases = databases(&mut problems, raw.database, raw.databases, database_url);
    let only_one = databases.len() == 1;
    let raw_inboxes = if raw.inbox.is_empty() && only_one {
        vec![RawInbox::default_inbox()]
    } else {
        raw.inbox
    };
    let clocks = Clocks {
        max_skew: problems.duration(
            "maintenance.max_clock_skew",
            raw.maintenance.max_clock_skew.as_deref(),
            Policy::DEFAULT_MAX_CLOCK_SKEW,
            ("1s", "1h"),
        ),
        max_leap: problems.duration(
            "maintenance.max_clock_leap",
            raw.maintenance.max_clock_leap.as_deref(),
            Policy::DEFAULT_MAX_CLOCK_LEAP,
            ("1h", "3650d"),
        ),
    };
    for (index, raw) in raw_inboxes.into_iter().enumerate() {
        inbox(&mut problems, index, raw, &mut databases, clocks);
    }
    for database in databases
        .iter()
        .filter(|database| database.inboxes.is_empty() && !only_one)
    {
        problems.add(
            "inbox",
            "(none)",
            format!("an [[inbox]] with database = {:?}, or no such database", database.name),
        );
    }
    let timeouts = Timeouts {
        lock: problems.std_duration(
            "maintenance.lock_timeout",
            raw.maintenance.lock_timeout.as_deref(),
            Timeouts::DEFAULT_LOCK,
            ("10ms", "1m"),
        ),
        statement: problems.std_duration(
            "maintenance.statement_timeout",
            raw.maintenance.statement_timeout.as_deref(),
            Timeouts::DEFAULT_STATEMENT,
            ("100ms", "1h"),
        ),
    };
    if timeouts.statement < timeouts.lock {
        problems.add(
            "maintenance.statement_timeout",
            format!("{:?}", timeouts.statement),
            "at least the lock_timeout, which would never fire otherwise",
        );
    }
    let attempts = problems.number(
        "maintenance.attempts",
        raw.maintenance.attempts.as_deref(),
        i64::from(Retries::default().attempts),
        (1, 20),
    );
    let deployment = raw.deployment.unwrap_or_else(|| "default".to_owned());
    if deployment.is_empty() || deployment.len() > 100 || !is_url_safe(&deployment) {
        problems.add(
            "deployment",
            &deployment,
            "1 to 100 of the characters A-Z a-z 0-9 . _ ~ -",
        );
    }
    let schedule = problems.parse("schedule.cron", raw.schedule.cron.as_deref(), Schedule::DEFAULT);
    let http = http(&mut problems, raw.http, environment);
    let webhook = webhook(&mut problems, raw.webhook, environment);
    let json = match raw.log.format.as_deref() {
        None | Some("pretty") => false,
        Some("json") => true,
        Some(other) => {
            problems.add("log.format", other, "\"pretty\" or \"json\"");
            false
        }
    };
    let filter = raw.log.filter.unwrap_or_else(|| DEFAULT_FILTER.to_owned());
    if let Err(error) = tracing_subscriber::EnvFilter::try_new(&filter) {
        problems.add(
            "log.filter",
            &filter,
            format!("tracing directives such as \"info\" or \"inboxd=debug\" ({error})"),
        );
    }
    match (schedule, http) {
        (Some(schedule), Some(http)) if problems.0.is_empty() => Ok(Config {
            deployment,
            databases,
            schedule,
            timeouts,
            retries: Retries {
                attempts: i32::try_from(attempts).unwrap_or(1),
                ..Retries::default()
            },
            http,
            webhook,
            log: Log { json, filter },
        }),
        _ => Err(problems.0),
    }
}

fn databases(
    problems: &mut Problems,
    one: Option<RawDatabase>,
    many: BTreeMap<String, RawDatabase>,
    from_environment: Option<String>,
) -> Vec<Database> {
    if one.is_some() && !many.is_empty() {
        let names = many.keys().cloned().collect::<Vec<_>>().join(", ");
        problems.add(
            "databases",
            names,
            "either [database], or a [databases.NAME] for each, not both",
        );
    }
    if many.is_empty() {
        // The environment outranks the file, as everywhere.
        let url = from_environment.or_else(|| one.and_then(|database| database.url));
        let options = url.and_then(|url| connect_options(problems, "database.url", Some(&url)));
        return vec![Database {
            name: ONLY_DATABASE.to_owned(),
            options,
            inboxes: Vec::new(),
        }];
    }
    let mut databases = Vec::new();
    for (name, database) in many {
        let key = format!("databases.{name}.url");
        if !is_url_safe(&name) {
            problems.add(&key, &name, "a name of the characters A-Z a-z 0-9 . _ ~ -");
        }
        let options = connect_options(problems, &key, database.url.as_deref());
        databases.push(Database {
            name,
            options,
            inboxes: Vec::new(),
        });
    }
    databases
}

/// The value is never shown: it may hold a password.
fn connect_options(problems: &mut Problems, key: &str, url: Option<&str>) -> Option<PgConnectOptions> {
    let accepted = "a URL such as postgres://user:password@host:5432/database";
    match url.map(parse_url) {
        Some(Ok(options)) => return Some(options),
        Some(Err(why)) => problems.add(key, "(hidden)", format!("{accepted}; {why}")),
        None => problems.add(key, "(none)", accepted),
    }
    None
}

fn parse_url(url: &str) -> Result<PgConnectOptions, &'static str> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err("it begins otherwise");
    }
    let authority = url
        .split_once("://")
        .and_then(|(_, rest)| rest.split(['/', '?']).next());
    if authority.is_some_and(|authority| authority.rsplit('@').next().is_some_and(|hosts| hosts.contains(','))) {
        return Err("it names one host: an address that follows the primary, such as a virtual IP or a proxy's");
    }
    PgConnectOptions::from_str(url)
        .map_err(|_| "it cannot be read; a special character in the password must be percent-encoded")
}
