//! One `[[inbox]]`, from text to checked values.

use std::time::Duration;

use chrono::TimeDelta;

use super::{
    Database,
    problems::{Problems, is_url_safe},
    raw::RawInbox,
};
use crate::pure::{
    Ahead, BeforeDrop, ClaimSpec, Consumers, Ident, InboxSpec, OnExpiry, Policy, Retention, Routing, TableName,
};

/// Most brokers redeliver within hours; a week covers a long weekend's outage and a replay after it.
const DEFAULT_RETENTION: &str = "7d";

/// In `message_id` routing each remembered day has a partition, also those before the inbox was made.
const LONGEST_BY_MESSAGE_ID: TimeDelta = TimeDelta::days(366);

/// The limits of clocks, the same for every inbox.
#[derive(Clone, Copy)]
pub(super) struct Clocks {
    pub(super) max_skew: TimeDelta,
    pub(super) max_leap: TimeDelta,
}

/// Checks one `[[inbox]]` and gives it to its database.
pub(super) fn inbox(problems: &mut Problems, index: usize, raw: RawInbox, databases: &mut [Database], clocks: Clocks) {
    let names = databases
        .iter()
        .map(|database| database.name.clone())
        .collect::<Vec<_>>()
        .join(", ");
    let home = match (&raw.database, &mut *databases) {
        (None, [only]) => Some(only),
        (Some(name), all) => all.iter_mut().find(|database| database.name == *name),
        (None, _) => None,
    };
    let Some(home) = home else {
        let named = raw.database.as_deref().unwrap_or("(none)");
        problems.add(
            format!("inbox.{index}.database"),
            named,
            format!("the name of a database: {names}"),
        );
        return;
    };
    let Some(spec) = spec(problems, index, raw, &home.name, clocks) else {
        return;
    };
    if let Some(twin) = home.inboxes.iter().find(|other| other.table == spec.table) {
        problems.add(
            format!("inbox.{index}.table"),
            &spec.table,
            format!("each table once; {} has it already", twin.name),
        );
    }
    home.inboxes.push(spec);
    let (name, all) = (
        home.inboxes[home.inboxes.len() - 1].name.clone(),
        databases.iter().flat_map(|database| &database.inboxes),
    );
    if all.filter(|other| other.name == name).count() > 1 {
        problems.add(format!("inbox.{index}.name"), name, "each name once");
    }
}

fn spec(problems: &mut Problems, index: usize, raw: RawInbox, database: &str, clocks: Clocks) -> Option<InboxSpec> {
    let key = |key: &str| format!("inbox.{index}.{key}");
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
        let accepted = "a name of the characters A-Z a-z 0-9 . _ ~ -, for it stands in URLs; give one where the table's own does not fit";
        problems.add(key("name"), &name, accepted);
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
    let retention = retention(
        problems,
        index,
        raw.retention.as_deref(),
        raw.redelivery_horizon.as_deref(),
        routing,
    );
    let on_expiry = on_expiry(problems, index, raw.on_expiry.as_deref(), raw.archive_schema);
    let before_drop = before_drop(
        problems,
        index,
        raw.before_drop,
        raw.before_drop_timeout.as_deref(),
        &on_expiry,
    );
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
    let drain_default = problems.choice(
        &key("drain_default"),
        raw.drain_default.as_deref(),
        &[("false", false), ("true", true)],
    );
    let seal_days = problems.choice(
        &key("seal_days"),
        raw.seal_days.as_deref(),
        &[("false", false), ("true", true)],
    );
    let digest = problems.choice(
        &key("digest"),
        raw.digest.as_deref(),
        &[("false", false), ("true", true)],
    );
    if digest == Some(true) && seal_days == Some(false) {
        let why = "nothing unless days are sealed, of which alone it can be made: set seal_days = true as well";
        problems.add(key("digest"), "true", why);
    }
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
            on_expiry,
            drop_grace,
            max_drops_per_run: u32::try_from(max_drops).unwrap_or(1),
            max_clock_skew: clocks.max_skew,
            max_clock_leap: clocks.max_leap,
            drain_default: drain_default?,
            seal_days: seal_days?,
            digest: digest?,
        },
        claim,
        before_drop,
        owner,
        consumer_roles,
        admin_roles,
    })
}

/// How long a claim is remembered: never shorter than what the broker may deliver again, where that is declared.
fn retention(
    problems: &mut Problems,
    index: usize,
    text: Option<&str>,
    redelivery_horizon: Option<&str>,
    routing: Option<Routing>,
) -> Option<Retention> {
    let key = format!("inbox.{index}.retention");
    let horizon = problems.duration(
        &format!("inbox.{index}.redelivery_horizon"),
        redelivery_horizon,
        Duration::ZERO,
        ("1s", "36500d"),
    );
    let retention: Retention = problems.parse(&key, text, DEFAULT_RETENTION)?;
    let Retention::For(length) = retention else {
        return Some(retention);
    };
    if routing == Some(Routing::MessageId) && length > LONGEST_BY_MESSAGE_ID {
        let accepted = "at most \"366d\" in message_id routing, where each day back to the retention has a partition; or \"forever\"";
        problems.add(&key, retention, accepted);
    }
    if length < horizon {
        let accepted = format!(
            "at least \"{}\", the inbox's redelivery_horizon: what is delivered again later would be processed twice",
            Retention::For(horizon)
        );
        problems.add(&key, retention, accepted);
    }
    Some(retention)
}

fn on_expiry(problems: &mut Problems, index: usize, text: Option<&str>, archive_schema: Option<String>) -> OnExpiry {
    let key = |key: &str| format!("inbox.{index}.{key}");
    let keeps = problems
        .choice(&key("on_expiry"), text, &[("drop", false), ("keep", true)])
        .unwrap_or(false);
    let archive_schema = archive_schema.and_then(|schema| match Ident::new(schema) {
        Ok(schema) if keeps => Some(schema),
        Ok(schema) => {
            problems.add(key("archive_schema"), schema, "only with on_expiry = \"keep\"");
            None
        }
        Err(error) => {
            problems.add(key("archive_schema"), error, "the name of a schema");
            None
        }
    });
    if keeps {
        OnExpiry::Keep { archive_schema }
    } else {
        OnExpiry::Drop
    }
}

fn before_drop(
    problems: &mut Problems,
    index: usize,
    command: Option<Vec<String>>,
    timeout: Option<&str>,
    on_expiry: &OnExpiry,
) -> Option<BeforeDrop> {
    let key = |key: &str| format!("inbox.{index}.{key}");
    let timeout = problems.std_duration(
        &key("before_drop_timeout"),
        timeout,
        BeforeDrop::DEFAULT_TIMEOUT,
        ("1s", "24h"),
    );
    let command = command?;
    if command.first().is_none_or(String::is_empty) {
        problems.add(
            key("before_drop"),
            format!("{command:?}"),
            "a program and its arguments, for example [\"/usr/local/bin/export-day\"]",
        );
    }
    if *on_expiry != OnExpiry::Drop {
        problems.add(
            key("before_drop"),
            format!("{command:?}"),
            "only with on_expiry = \"drop\": nothing else drops",
        );
    }
    Some(BeforeDrop { command, timeout })
}
