//! From text to checked values. Every problem is found, not only the first.

use std::{collections::BTreeMap, fmt, net::SocketAddr, str::FromStr, time::Duration};

use chrono::TimeDelta;
use sqlx::postgres::PgConnectOptions;

use super::{
    Config, Database, Log,
    raw::{Raw, RawDatabase, RawInbox},
};
use crate::{
    maintain::Retries,
    postgres::Timeouts,
    pure::{
        Ahead, ClaimSpec, Consumers, Ident, InboxSpec, OnExpiry, Policy, Retention, Routing, TableName, parse_duration,
    },
    service::cron::Schedule,
};

/// Most brokers redeliver within hours; a week covers a long weekend's outage and a replay after it.
const DEFAULT_RETENTION: &str = "7d";
const DEFAULT_LISTEN: &str = "127.0.0.1:8087";
/// The scheduler tells of its own inner life at info.
const DEFAULT_FILTER: &str = "info,tokio_cron_scheduler=warn";
/// The name of the database in `[database]`.
const ONLY_DATABASE: &str = "main";

pub(super) fn check(raw: Raw, database_url: Option<String>) -> Result<Config, Vec<String>> {
    let mut problems = Problems::default();
    let databases = databases(&mut problems, raw.database, raw.databases, database_url);
    let raw_inboxes = if raw.inbox.is_empty() {
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
    let names: Vec<&str> = databases.iter().map(|(name, _)| name.as_str()).collect();
    let inboxes: Vec<InboxSpec> = raw_inboxes
        .into_iter()
        .enumerate()
        .filter_map(|(index, raw)| inbox(&mut problems, index, raw, &names, clocks))
        .collect();
    for (index, spec) in inboxes.iter().enumerate() {
        if let Some(twin) = inboxes[..index].iter().find(|other| other.table == spec.table) {
            problems.add(
                format!("inbox.{index}.table"),
                &spec.table,
                format!("each table once; {} has it already", twin.name),
            );
        }
        if inboxes[..index].iter().any(|other| other.name == spec.name) {
            problems.add(format!("inbox.{index}.name"), &spec.name, "each name once");
        }
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
    let listen: Option<SocketAddr> = problems.parse("http.listen", raw.http.listen.as_deref(), DEFAULT_LISTEN);
    if let Some(listen) = listen.filter(|listen| !listen.ip().is_loopback()) {
        problems.add(
            "http.listen",
            listen,
            "a loopback address such as 127.0.0.1:8087; there are no access tokens yet, so nothing else is served",
        );
    }
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
    match (schedule, listen) {
        (Some(schedule), Some(listen)) if problems.0.is_empty() => Ok(Config {
            deployment,
            database: databases
                .into_iter()
                .next()
                .map(|(name, options)| Database { name, options }),
            inboxes,
            schedule,
            timeouts,
            retries: Retries {
                attempts: i32::try_from(attempts).unwrap_or(1),
                ..Retries::default()
            },
            listen,
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
) -> Vec<(String, PgConnectOptions)> {
    if one.is_some() && !many.is_empty() {
        problems.add(
            "databases",
            many.keys().cloned().collect::<Vec<_>>().join(", "),
            "either [database], or a [databases.NAME] for each, not both",
        );
        return Vec::new();
    }
    if many.len() > 1 {
        problems.add(
            "databases",
            many.keys().cloned().collect::<Vec<_>>().join(", "),
            "one database; several in one process are not served yet, run a process for each",
        );
    }
    let urls: Vec<(String, String, Option<String>)> = if many.is_empty() {
        // The environment outranks the file, as everywhere.
        let url = from_environment.or_else(|| one.and_then(|database| database.url));
        url.map(|url| (ONLY_DATABASE.to_owned(), "database.url".to_owned(), Some(url)))
            .into_iter()
            .collect()
    } else {
        many.into_iter()
            .map(|(name, database)| (name.clone(), format!("databases.{name}.url"), database.url))
            .collect()
    };
    let mut databases = Vec::new();
    for (name, key, url) in urls {
        if !is_url_safe(&name) {
            problems.add(&key, &name, "a name of the characters A-Z a-z 0-9 . _ ~ -");
        }
        // The value is never shown: it may hold a password.
        match url.as_deref().map(parse_url) {
            Some(Ok(options)) => databases.push((name, options)),
            Some(Err(why)) => problems.add(
                &key,
                "(hidden)",
                format!("a URL such as postgres://user:password@host:5432/database; {why}"),
            ),
            None => problems.add(
                &key,
                "(none)",
                "a URL such as postgres://user:password@host:5432/database",
            ),
        }
    }
    databases
}

fn parse_url(url: &str) -> Result<PgConnectOptions, &'static str> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err("it begins otherwise");
    }
    PgConnectOptions::from_str(url)
        .map_err(|_| "it cannot be read; a special character in the password must be percent-encoded")
}

#[derive(Clone, Copy)]
struct Clocks {
    max_skew: TimeDelta,
    max_leap: TimeDelta,
}

fn inbox(
    problems: &mut Problems,
    index: usize,
    raw: RawInbox,
    databases: &[&str],
    clocks: Clocks,
) -> Option<InboxSpec> {
    let key = |key: &str| format!("inbox.{index}.{key}");
    let database = raw
        .database
        .as_deref()
        .unwrap_or_else(|| databases.first().copied().unwrap_or(ONLY_DATABASE));
    if raw.database.is_some() && !databases.contains(&database) {
        problems.add(
            key("database"),
            database,
            format!("the name of a database: {}", databases.join(", ")),
        );
    }
    let table: Option<TableName> = problems.parse(&key("table"), Some(&raw.table), "");
    let name = raw
        .name
        .or_else(|| {
            table
                .as_ref()
                .map(|table| format!("{database}.{}.{}", table.schema(), table.table()))
        })
        .unwrap_or_default();
    if table.is_some() && (name.is_empty() || !is_url_safe(&name)) {
        problems.add(key("name"), &name, "a name of the characters A-Z a-z 0-9 . _ ~ -, for it stands in URLs; give one where the table's own does not fit");
    }
    let routing = problems.choice(
        &key("routing"),
        raw.routing.as_deref(),
        &[
            ("processed_at", Routing::ProcessedAt),
            ("message_id", Routing::MessageId),
        ],
    );
    let consumers = problems.choice(
        &key("consumers"),
        raw.consumers.as_deref(),
        &[("one", Consumers::One), ("many", Consumers::Many)],
    );
    let ahead = match raw.ahead.as_deref() {
        None => Some(Ahead::DEFAULT),
        Some(text) => {
            let ahead = text
                .parse()
                .map_err(|_| ())
                .and_then(|days| Ahead::new(days).map_err(|_| ()));
            if ahead.is_err() {
                problems.add(key("ahead"), text, "a whole number of days from 1 to 366; a plan that is not pruned locks every partition, so more only costs");
            }
            ahead.ok()
        }
    };
    let retention: Option<Retention> = problems.parse(&key("retention"), raw.retention.as_deref(), DEFAULT_RETENTION);
    let drop_grace = problems.duration(
        &key("drop_grace"),
        raw.drop_grace.as_deref(),
        Policy::DEFAULT_DROP_GRACE,
        ("0s", "3650d"),
    );
    let max_drops = problems.number(
        &key("max_drops_per_run"),
        raw.max_drops_per_run.as_deref(),
        i64::from(Policy::DEFAULT_MAX_DROPS_PER_RUN),
        (1, 10_000),
    );
    let defaults = ClaimSpec::default();
    let std = |delta: TimeDelta| delta.to_std().unwrap_or_default();
    let claim = ClaimSpec {
        producer_clock_tolerance: problems.duration(
            &key("producer_clock_tolerance"),
            raw.producer_clock_tolerance.as_deref(),
            std(defaults.producer_clock_tolerance),
            ("0s", "30d"),
        ),
        clock_step_tolerance: problems.duration(
            &key("clock_step_tolerance"),
            raw.clock_step_tolerance.as_deref(),
            std(defaults.clock_step_tolerance),
            ("0s", "24h"),
        ),
        max_batch: u32::try_from(problems.number(
            &key("max_batch"),
            raw.max_batch.as_deref(),
            i64::from(defaults.max_batch),
            (1, 5_000),
        ))
        .unwrap_or(1),
    };
    let owner = raw.owner.and_then(|role| problems.role(&key("owner"), role));
    let consumer_roles = raw
        .consumer_roles
        .into_iter()
        .filter_map(|role| problems.role(&key("consumer_roles"), role))
        .collect();
    let admin_roles = raw
        .admin_roles
        .into_iter()
        .filter_map(|role| problems.role(&key("admin_roles"), role))
        .collect();
    Some(InboxSpec {
        name,
        table: table?,
        policy: Policy {
            routing: routing?,
            consumers: consumers?,
            ahead: ahead?,
            retention: retention?,
            on_expiry: OnExpiry::Drop,
            drop_grace,
            max_drops_per_run: u32::try_from(max_drops).unwrap_or(1),
            max_clock_skew: clocks.max_skew,
            max_clock_leap: clocks.max_leap,
        },
        claim,
        before_drop: None,
        owner,
        consumer_roles,
        admin_roles,
    })
}

fn is_url_safe(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte))
}

/// What is wrong, a sentence each: key, value, accepted.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, key: impl fmt::Display, value: impl fmt::Display, accepted: impl fmt::Display) {
        self.0.push(format!("{key} = {value} is not accepted: {accepted}"));
    }

    /// The types' own errors name the value and what is accepted.
    fn parse<T: FromStr<Err: fmt::Display>>(&mut self, key: &str, text: Option<&str>, default: &str) -> Option<T> {
        let text = text.unwrap_or(default);
        text.parse()
            .map_err(|error: T::Err| self.0.push(format!("{key} = {text:?}: {error}")))
            .ok()
    }

    fn choice<T: Copy>(&mut self, key: &str, text: Option<&str>, choices: &[(&str, T)]) -> Option<T> {
        let (default, _) = choices.first()?;
        let text = text.unwrap_or(default);
        let found = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        if found.is_none() {
            let names: Vec<String> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
            self.add(key, format!("{text:?}"), names.join(" or "));
        }
        found
    }

    fn duration(&mut self, key: &str, text: Option<&str>, default: Duration, (least, most): (&str, &str)) -> TimeDelta {
        let default = TimeDelta::from_std(default).unwrap_or_default();
        let Some(text) = text else { return default };
        let range = parse_duration(least).unwrap_or_default()..=parse_duration(most).unwrap_or(TimeDelta::MAX);
        match parse_duration(text).filter(|value| range.contains(value)) {
            Some(value) => value,
            None => {
                self.add(
                    key,
                    format!("{text:?}"),
                    format!("a duration with its unit from {least:?} to {most:?}"),
                );
                default
            }
        }
    }

    fn std_duration(&mut self, key: &str, text: Option<&str>, default: Duration, range: (&str, &str)) -> Duration {
        self.duration(key, text, default, range).to_std().unwrap_or(default)
    }

    fn number(&mut self, key: &str, text: Option<&str>, default: i64, (least, most): (i64, i64)) -> i64 {
        let Some(text) = text else { return default };
        match text.parse().ok().filter(|value| (least..=most).contains(value)) {
            Some(value) => value,
            None => {
                self.add(
                    key,
                    format!("{text:?}"),
                    format!("a whole number from {least} to {most}"),
                );
                default
            }
        }
    }

    fn role(&mut self, key: &str, role: String) -> Option<Ident> {
        Ident::new(role)
            .map_err(|error| self.0.push(format!("{key}: {error}")))
            .ok()
    }
}
