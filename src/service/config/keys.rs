//! Every key of the configuration, as people read of it: `docs/configuration.md` and the manual page are made of this list,
//! and tests hold each line of it against what the configuration takes.

use std::fmt;

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its full name; the keys of `inbox` stand in an `[[inbox]]`.
    pub name: &'static str,
    /// What it is, in a few words.
    pub meaning: &'static str,
    /// What holds where it is left out; none where that is no value.
    pub default: Option<&'static str>,
    /// What it means to leave it out, where that is no value.
    pub without: &'static str,
    /// What may stand there.
    pub accepts: Accepts,
    /// What goes wrong when it is too small or too large, or what else must be known; often nothing.
    pub note: &'static str,
}

/// What may stand there.
#[derive(Debug, Clone, Copy)]
pub enum Accepts {
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A duration with its unit, from the one to the other, and what else.
    Duration(&'static str, &'static str, &'static str),
    /// A whole number, from the one to the other.
    Whole(i64, i64),
    /// Text, as described.
    Text(&'static str),
}

impl fmt::Display for Accepts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Choice(words) => write!(f, "`{}`", words.join("`, `")),
            Self::Duration(least, most, more) => write!(f, "`{least}` to `{most}`{more}"),
            Self::Whole(least, most) => write!(f, "{least} to {most}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Key {
    const fn new(name: &'static str, meaning: &'static str, default: &'static str, accepts: Accepts) -> Self {
        Self {
            name,
            meaning,
            default: Some(default),
            without: "",
            accepts,
            note: "",
        }
    }

    const fn without(name: &'static str, meaning: &'static str, without: &'static str, accepts: Accepts) -> Self {
        Self {
            default: None,
            without,
            ..Self::new(name, meaning, "", accepts)
        }
    }

    const fn noting(self, note: &'static str) -> Self {
        Self { note, ..self }
    }
}

use Accepts::{Choice, Duration, Text, Whole};

const ROLES: Accepts = Text("a list of roles");
const TOKENS: Accepts = Text("a list of `{ name, file }` or `{ name, variable }`, each token of 16 to 512 characters");
const FLAG: Accepts = Choice(&["false", "true"]);

/// Every key, in the order in which it is told.
pub const KEYS: &[Key] = &[
    Key::new(
        "deployment",
        "the name under which a set of replicas manages its inboxes",
        "default",
        Text("1 to 100 of `A-Z a-z 0-9 . _ ~ -`"),
    )
    .noting("Each inbox records it and refuses another until `inboxd takeover`: two services never remove from one table."),
    Key::without(
        "database.url",
        "the database, over a direct connection",
        "none; a command then says so",
        Text("`postgres://user:password@host:5432/database`"),
    )
    .noting("Better set as `DATABASE_URL`, which outranks the file. Not through a transaction pooler: see [pgbouncer](pgbouncer.md)."),
    Key::without(
        "databases.NAME.url",
        "the same for any number of databases, in place of `database`",
        "none",
        Text("as above"),
    ),
    Key::new(
        "inbox.table",
        "the table, as in SQL",
        "public.inbox",
        Text("at most 47 bytes for the table, each table once"),
    )
    .noting("Its partitions' keys are named `TABLE_YYYY_MM_DD_pkey`, and a name has 63 bytes. Without any `[[inbox]]`, `public.inbox` is managed with the defaults."),
    Key::new(
        "inbox.name",
        "its name in URLs, logs and status",
        "main.public.inbox",
        Text("`A-Z a-z 0-9 . _ ~ -`, each name once"),
    )
    .noting("The default is made of database, schema and table."),
    Key::new(
        "inbox.database",
        "the name of its database; needed where there are several",
        "main",
        Text("the name of a configured database"),
    ),
    Key::new(
        "inbox.routing",
        "what chooses a claim's day",
        "processed_at",
        Choice(&["processed_at", "message_id"]),
    )
    .noting("`processed_at` takes any UUID, `message_id` takes UUIDv7 only and is the faster. It cannot be changed later. [How it works](how-it-works.md) compares them."),
    Key::new("inbox.consumers", "who shares the inbox", "one", Choice(&["one", "many"]))
        .noting("`many` where several consumers of one database receive the same messages: each claim then names its consumer. It cannot be changed later."),
    Key::new("inbox.ahead", "days after today that must have a partition", "7", Whole(1, 366))
        .noting("So long claims go on when the service is gone. Too large: each day is a table, and a plan that is not pruned locks all of them."),
    Key::new(
        "inbox.retention",
        "how long a claim is remembered, at least",
        "7d",
        Duration("1h", "36500d", " (`366d` in `message_id` routing), or `forever`"),
    )
    .noting("Too small: a late redelivery is processed twice, or is `too_old` in `message_id` routing. Too large: disk, and in `processed_at` routing each further day that a claim must look into costs it about 5 %."),
    Key::without(
        "inbox.redelivery_horizon",
        "how long after its first delivery the broker may deliver a message again; a shorter retention is refused",
        "not declared",
        Duration("1s", "36500d", ""),
    )
    .noting("Replays from a log or a dead-letter queue count as well."),
    Key::new(
        "inbox.on_expiry",
        "what becomes of a partition that has expired",
        "drop",
        Choice(&["drop", "keep"]),
    )
    .noting("`drop` drops it after `drop_grace`; `keep` leaves the table, detached."),
    Key::without(
        "inbox.archive_schema",
        "with `keep`: the schema that it is moved to after its grace",
        "it stays where it is",
        Text("a schema"),
    ),
    Key::without(
        "inbox.before_drop",
        "a program and its arguments that must succeed before a drop",
        "none",
        Text("a list; no shell reads it"),
    )
    .noting("It finds `INBOXD_INBOX`, `INBOXD_SCHEMA`, `INBOXD_TABLE`, `INBOXD_DAY`, `INBOXD_FROM` and `INBOXD_TO` in its environment. If it fails the partition stays, and the next run tries again."),
    Key::new(
        "inbox.before_drop_timeout",
        "how long it may take",
        "10m",
        Duration("1s", "24h", ""),
    ),
    Key::new(
        "inbox.drop_grace",
        "how long a detached partition waits for its drop",
        "24h",
        Duration("0s", "3650d", ""),
    )
    .noting("So long `inboxd restore` attaches it again. It protects the data only: a detached day catches no duplicates."),
    Key::new(
        "inbox.max_drops_per_run",
        "the most partitions that one run detaches, and drops",
        "4",
        Whole(1, 10_000),
    )
    .noting("What is beyond it waits for the next run, and is shown: a retention that was cut by a slip does not take everything at once."),
    Key::new(
        "inbox.drain_default",
        "whether a default partition is drained; else it is only reported",
        "false",
        FLAG,
    )
    .noting("Claims wait for that once, for a second at most: see the [runbook](runbook.md#a-default-partition)."),
    Key::new(
        "inbox.seal_days",
        "whether days that are over take no row any more; `processed_at` routing only",
        "false",
        FLAG,
    )
    .noting("A server clock that steps back over midnight, however far, then hides no claim from them: [exactness](exactness.md)."),
    Key::new(
        "inbox.digest",
        "whether claims ask a digest of the sealed days before they look into each; with `seal_days` only",
        "false",
        FLAG,
    )
    .noting("A claim of an id whose creation time is not known then costs the same at any retention. It takes some 4.5 bytes an id, twice: [exactness](exactness.md)."),
    Key::new(
        "inbox.producer_clock_tolerance",
        "how far a producer's clock may be off",
        "24h",
        Duration("0s", "30d", ""),
    )
    .noting("For creation times, which narrow the look-back. Too small: a producer whose clock is further ahead hides a claim. Too large: more days are looked into."),
    Key::new(
        "inbox.clock_step_tolerance",
        "how far the server's clock may step back over midnight",
        "1h",
        Duration("0s", "24h", ""),
    )
    .noting("For so long before midnight tomorrow is looked into as well: after a failover to a server whose clock is behind, claims that were made on the later day still count."),
    Key::new("inbox.max_batch", "the most ids in one `claim_batch`", "1000", Whole(1, 5_000))
        .noting("Each takes a lock of the server's lock table, which everybody shares."),
    Key::without(
        "inbox.owner",
        "who owns table, partitions and functions",
        "who runs `init`, or the table's owner",
        Text("a role"),
    ),
    Key::without("inbox.consumer_roles", "who may claim", "nobody but the owner", ROLES),
    Key::without("inbox.admin_roles", "who may forget a message", "nobody but the owner", ROLES),
    Key::new(
        "schedule.cron",
        "when a pass runs, in UTC",
        "*/10 * * * *",
        Text("5 fields, or 6 with seconds first"),
    )
    .noting("A pass that finds nothing to do costs a dozen small queries."),
    Key::new(
        "maintenance.lock_timeout",
        "the longest wait for one lock",
        "2s",
        Duration("10ms", "1m", ""),
    ),
    Key::new(
        "maintenance.statement_timeout",
        "the longest that a statement runs",
        "30s",
        Duration("100ms", "1h", ", at least the lock timeout"),
    ),
    Key::new("maintenance.attempts", "how often a step is tried in one run", "3", Whole(1, 20)),
    Key::new(
        "maintenance.max_clock_skew",
        "between host and database; above it nothing is removed",
        "5m",
        Duration("1s", "1h", ""),
    ),
    Key::new(
        "maintenance.max_clock_leap",
        "since the last trusted run; above it nothing is removed until `confirm clock`",
        "7d",
        Duration("1h", "3650d", ""),
    ),
    Key::new(
        "http.listen",
        "where HTTP is served",
        "127.0.0.1:8087",
        Text("an address and port; without access tokens, of loopback"),
    )
    .noting("inboxd speaks no TLS: put a proxy in front of it."),
    Key::without(
        "http.hosts",
        "names by which it may be asked, beside `localhost` and its address",
        "none",
        Text("a list of host names"),
    )
    .noting("A request to another name is refused: somebody's DNS could lead a browser here."),
    Key::without("http.read_tokens", "tokens that may read", "none", TOKENS)
        .noting("The name stands in the log and on the audit. Several at once, to rotate them."),
    Key::without("http.admin_tokens", "tokens that may read and change", "none", TOKENS),
    Key::new(
        "http.open_metrics",
        "whether metrics are shown without a token",
        "false",
        FLAG,
    ),
    Key::without(
        "webhook.url",
        "where changes of health are posted",
        "nothing is posted",
        Text("`http://…` or `https://…`, without user and password"),
    )
    .noting("[The webhook](webhook.md) says what is posted, and how it is signed."),
    Key::without(
        "webhook.secret_file",
        "a file with the secret that signs them",
        "none",
        Text("`whsec_` and 24 to 64 bytes in base64"),
    ),
    Key::without(
        "webhook.secret_variable",
        "the same in a variable",
        "none",
        Text("a variable that begins otherwise than `INBOXD_`"),
    ),
    Key::new(
        "webhook.severity",
        "how bad a change must be, before or after it",
        "warn",
        Choice(&["warn", "fail"]),
    ),
    Key::new(
        "webhook.timeout",
        "how long one post may take",
        "10s",
        Duration("100ms", "1m", ""),
    ),
    Key::new("log.format", "how a log line looks", "pretty", Choice(&["pretty", "json"])),
    Key::new(
        "log.filter",
        "what is logged",
        "info,tokio_cron_scheduler=warn",
        Text("tracing directives"),
    ),
];

/// What `docs/configuration.md` says before its tables.
const HEAD: &str = "\
# Configuration

<!-- Made from src/service/config/keys.rs; `INBOXD_TEST_RECORD=1 cargo test --lib config::` writes it anew. -->

One TOML file, which `--config FILE` or `INBOXD_CONFIG` names, with the environment on top: `INBOXD_SCHEDULE__CRON` sets
`schedule.cron` (two underscores stand for the dot), and `DATABASE_URL` sets `database.url`. The inboxes can only be set in the
file. An unknown key is an error, and every value is checked before the first connection. A duration has its unit: `90s`,
`1h 30m`, `7d`.

[deploy/inboxd.minimal.toml](../deploy/inboxd.minimal.toml) is the least that goes with
[deploy/roles.sql](../deploy/roles.sql); [deploy/inboxd.example.toml](../deploy/inboxd.example.toml) has every key.
`inboxd man DIR` writes this page as inboxd.toml(5).
";

/// The text of `docs/configuration.md`.
#[must_use]
pub fn reference() -> String {
    let section_of = |key: &Key| key.name.split_once('.').map_or("", |(section, _)| section);
    let mut text = HEAD.to_owned();
    for group in
        KEYS.chunk_by(|one, other| section_of(one).trim_end_matches('s') == section_of(other).trim_end_matches('s'))
    {
        let title = match group.first().map(section_of) {
            Some("") | None => "The deployment".to_owned(),
            Some("inbox") => "`[[inbox]]`".to_owned(),
            Some(section) => format!("`[{section}]`"),
        };
        text.push_str(&format!(
            "\n## {title}\n\n| key | meaning | default | accepted |\n| --- | --- | --- | --- |\n"
        ));
        for key in group {
            let default = key
                .default
                .map_or_else(|| format!("({})", key.without), |default| format!("`{default}`"));
            text.push_str(&format!(
                "| `{}` | {} | {default} | {} |\n",
                key.name, key.meaning, key.accepts
            ));
        }
        let notes: Vec<String> = group
            .iter()
            .filter(|key| !key.note.is_empty())
            .map(|key| format!("- `{}`: {}\n", key.name, key.note))
            .collect();
        if !notes.is_empty() {
            text.push('\n');
            text.push_str(&notes.concat());
        }
    }
    text
}
