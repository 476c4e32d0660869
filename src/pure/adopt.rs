//! Adoption: what turns a table that is in use into an inbox, as a list of steps. A pure function of what was found.

mod partitioned;

use chrono::{DateTime, TimeDelta, Utc};

pub use self::partitioned::PartitionedTable;
pub(crate) use self::partitioned::{FoundChild, FoundPartitioned, partitioned};
use super::{Consumers, Day, Grant, Ident, Lock, ReplicaIdentity, Routing, TableName, show_duration};

/// Before the deadline: within it the swap is refused, for it may have to be tried again and again.
const LAST_HOUR: TimeDelta = TimeDelta::hours(1);
/// How many days the table holds after today when it is adopted: the third midnight from now is at least 48 hours away.
const DAYS_AHEAD: i64 = 3;
/// What a scan is taken to read in a second, for an estimate that is rather too long than too short.
const BYTES_A_SECOND: i64 = 100_000_000;

/// A table that may become an inbox, as the catalog shows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundTable {
    /// Which it is, whatever its name.
    pub(crate) oid: u32,
    /// What `pg_class` calls its kind: `r` is a table, `p` a partitioned one.
    pub(crate) kind: String,
    /// Its owner.
    pub(crate) owner: Ident,
    /// Its columns: name, type, whether nulls are ruled out, whether a default or an expression fills it.
    pub(crate) columns: Vec<FoundColumn>,
    /// Whether a valid, immediate, non-partial unique index on exactly the key stands on it.
    pub(crate) has_key: bool,
    /// Other unique indexes and exclusion constraints, by name.
    pub(crate) other_unique: Vec<String>,
    /// Other indexes, by name.
    pub(crate) other_indexes: Vec<String>,
    /// What keeps it from being exchanged, each with its remedy; found by questions to the catalog that need no judgement.
    pub(crate) in_the_way: Vec<Problem>,
    /// Its check constraints: name, whether it was validated, and its expression.
    pub(crate) checks: Vec<FoundCheck>,
    /// Privileges of other roles.
    pub(crate) grants: std::collections::BTreeSet<Grant>,
    /// What logical replication sees of an old row.
    pub(crate) replica_identity: ReplicaIdentity,
    /// Its tablespace; none for the database's own.
    pub(crate) tablespace: Option<String>,
    /// Its comment.
    pub(crate) comment: Option<String>,
    /// Its size, by the catalog.
    pub(crate) bytes: i64,
    /// Its rows, by the catalog; negative before the first analyze.
    pub(crate) rows: i64,
    /// Whether the claim functions are there as configured.
    pub(crate) has_functions: bool,
    /// The database's clock.
    pub(crate) now: DateTime<Utc>,
}

impl FoundTable {
    /// Whether a later look found the same table, of the same make: all but what the time and its consumers change.
    pub(crate) fn is_still(&self, later: &Self) -> bool {
        let unchanged = Self {
            now: self.now,
            bytes: self.bytes,
            rows: self.rows,
            has_functions: self.has_functions,
            ..later.clone()
        };
        *self == unchanged
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundColumn {
    /// Its name.
    pub(crate) name: String,
    /// Its type as PostgreSQL writes it.
    pub(crate) kind: String,
    /// Whether nulls are ruled out.
    pub(crate) is_not_null: bool,
    /// Whether something fills it that is not given.
    pub(crate) has_default: bool,
    /// Whether it is an identity column.
    pub(crate) is_identity: bool,
}

/// A check constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundCheck {
    /// Its name.
    pub(crate) name: String,
    /// Whether every row is known to fulfil it.
    pub(crate) is_validated: bool,
    /// What it says, as PostgreSQL writes it.
    pub(crate) says: String,
}

/// What keeps a table from being adopted, with what to do.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Problem {
    /// What is so.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

/// What a step of an adoption does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AdoptAction {
    /// Look through the table for rows that could not stay.
    Scan,
    /// Make the claim functions under their final names.
    MakeFunctions,
    /// Keep new rows below the deadline, and nulls out.
    AddChecks,
    /// Make sure that the old rows are so too.
    Validate,
    /// Rename the table, make the parent, attach the table and the days after it.
    Swap,
    /// Take the check constraints away again.
    DropChecks,
}

impl AdoptAction {
    /// The action as one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scan => "scan",
            Self::MakeFunctions => "make_functions",
            Self::AddChecks => "add_checks",
            Self::Validate => "validate",
            Self::Swap => "swap",
            Self::DropChecks => "drop_checks",
        }
    }
}

/// One step of an adoption.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AdoptStep {
    /// What it does.
    pub action: AdoptAction,
    /// Why.
    pub reason: String,
    /// The locks that it takes, in order.
    pub locks: Vec<Lock>,
    /// How long it lasts, roughly.
    pub estimate: String,
}

/// How far an adoption has come, and what is still to be done.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Adoption {
    /// The table.
    pub table: TableName,
    /// Its rows, roughly; none before the first analyze.
    pub rows: Option<i64>,
    /// The day at whose beginning every insert fails unless the swap has been done; none while nothing keeps rows out.
    pub until: Option<Day>,
    /// The database's clock.
    pub now: DateTime<Utc>,
    /// What keeps it from being adopted.
    pub problems: Vec<Problem>,
    /// What `--prepare` does.
    pub prepare: Vec<AdoptStep>,
    /// What the swap does, and what keeps it from being done now.
    pub swap: AdoptStep,
    /// Why the swap cannot be done yet or any more; none when only the consumers are to be asked after.
    pub swap_is_refused: Option<Problem>,
    /// What `--abort` does.
    pub abort: Vec<AdoptStep>,
    /// Roles whose right to insert directly does not come along.
    pub inserters: Vec<String>,
    /// What is worth knowing and keeps nobody.
    pub notes: Vec<String>,
    /// The columns of ours that may still hold nulls, as far as the catalog knows.
    #[serde(skip)]
    pub nullable: Vec<&'static str>,
    /// Whether the check that fills them is there.
    #[serde(skip)]
    pub has_filled_check: bool,
}

impl Adoption {
    /// Seconds until every insert fails; none while nothing keeps rows out, negative when it is so already.
    #[must_use]
    pub fn seconds_left(&self) -> Option<i64> {
        Some((self.until?.start() - self.now).num_seconds())
    }
}

/// The day at whose beginning an adoption that is prepared now must have ended: at least 48 hours away.
#[must_use]
pub fn adopt_until(now: DateTime<Utc>) -> Day {
    Day::containing(now).plus(DAYS_AHEAD)
}

/// Decides what is to be done to a table before it is an inbox. This list *is* the policy:
///
/// 1. Only `processed_at` routing: each partition then has its own key, and the table keeps the one that it has.
/// 2. A table that would lose or change anything by being renamed is refused, each reason with its remedy: other columns that
///    a claim cannot fill, identity columns, types that differ, a missing key, further unique indexes, and what the catalog
///    shows to hang on the table (views, foreign keys, triggers, rules, publications, policies, inheritance, column rights).
/// 3. Preparation is read from the catalog, never remembered: a step whose result is there is left out. So it can be stopped
///    anywhere, and run again or taken back.
/// 4. The check constraint holds rows below the third midnight from when it is made, at least 48 hours later. From that hour
///    on every insert fails, so the swap must come before; in the last hour it is refused.
/// 5. The swap needs functions, the constraint and its validation. Nulls are ruled out in the swap itself, by what was
///    validated: it holds the lock anyway.
#[must_use]
pub(crate) fn adoption(table: &TableName, routing: Routing, consumers: Consumers, found: &FoundTable) -> Adoption {
    let until = found
        .checks
        .iter()
        .filter_map(|check| table.adopted_until(&check.name))
        .min();
    let nullable = nullable(consumers, found);
    let filled = table
        .derive(super::Derived::AdoptFilled)
        .ok()
        .and_then(|name| found.checks.iter().find(|check| check.name == name.as_str()));
    let problems = problems(routing, consumers, found);
    let is_validated = found
        .checks
        .iter()
        .filter(|check| table.adopted_until(&check.name).is_some())
        .chain(filled)
        .all(|check| check.is_validated);
    let lacks_check = until.is_none() || (!nullable.is_empty() && filled.is_none());
    let prepare = prepare(table, found, until, lacks_check, is_validated);
    let swap_is_refused = refused(table, found, until, !prepare.is_empty());
    let abort = if until.is_some() || filled.is_some() {
        vec![drop_checks(table)]
    } else {
        Vec::new()
    };
    let mut notes = Vec::new();
    if !found.other_indexes.is_empty() {
        notes.push(format!(
            "its further indexes ({}) stay on the rows that are there and are not made on new days: one index a partition",
            found.other_indexes.join(", ")
        ));
    }
    Adoption {
        table: table.clone(),
        rows: (found.rows >= 0).then_some(found.rows),
        until,
        now: found.now,
        problems,
        prepare,
        swap: swap(table),
        swap_is_refused,
        abort,
        inserters: inserters(found),
        notes,
        nullable,
        has_filled_check: filled.is_some(),
    }
}

fn wanted(consumers: Consumers) -> impl Iterator<Item = (&'static str, &'static str)> {
    let consumer = (consumers == Consumers::Many).then_some(("consumer", "text"));
    [
        ("message_id", "uuid"),
        ("topic", "character varying(255)"),
        ("processed_at", "timestamp with time zone"),
    ]
    .into_iter()
    .chain(consumer)
}

fn nullable(consumers: Consumers, found: &FoundTable) -> Vec<&'static str> {
    wanted(consumers)
        .map(|(name, _)| name)
        .filter(|name| {
            found
                .columns
                .iter()
                .any(|column| column.name == *name && !column.is_not_null)
        })
        .collect()
}

fn inserters(found: &FoundTable) -> Vec<String> {
    let direct = found.grants.iter().filter(|grant| grant.privilege == "INSERT");
    direct
        .map(|grant| match grant.grantee.as_str() {
            "" => "public".to_owned(),
            role => role.to_owned(),
        })
        .collect()
}

/// Points 1 and 2.
fn problems(routing: Routing, consumers: Consumers, found: &FoundTable) -> Vec<Problem> {
    let problem = |what: String, remedy: &str| Problem {
        what,
        remedy: remedy.to_owned(),
    };
    let mut problems = Vec::new();
    if routing == Routing::MessageId {
        problems.push(problem(
            "it is configured with routing = \"message_id\", which needs a table partitioned by the id".to_owned(),
            "adopt it with routing = \"processed_at\"; or let init make a new inbox, and move consumers when the old rows have expired",
        ));
    }
    if found.kind != "r" {
        problems.push(problem(
            "it is no ordinary table".to_owned(),
            "configure the table itself; a partitioned one is taken over by `inboxd init`, see docs/adopting.md",
        ));
        return problems;
    }
    for (name, kind) in wanted(consumers) {
        match found.columns.iter().find(|column| column.name == name) {
            None => problems.push(problem(
                format!("it has no column {name} of type {kind}"),
                "add it, filled, or rename the column that holds it",
            )),
            Some(column) if column.kind != kind => problems.push(problem(
                format!("column {name} is of type {}, not {kind}", column.kind),
                "change its type in a quiet moment; from a shorter varchar to varchar(255) nothing is rewritten",
            )),
            Some(_) => {}
        }
    }
    let ours: Vec<&str> = wanted(consumers).map(|(name, _)| name).collect();
    for column in &found.columns {
        if column.is_identity {
            problems.push(problem(
                format!(
                    "column {} is an identity column, which partitions cannot have before PostgreSQL 17",
                    column.name
                ),
                "drop the identity (alter table … alter column … drop identity); a default with nextval may stay",
            ));
        } else if !ours.contains(&column.name.as_str()) && column.is_not_null && !column.has_default {
            problems.push(problem(
                format!(
                    "column {} rules out nulls and has no default, so no claim could insert",
                    column.name
                ),
                "give it a default, or let it be null",
            ));
        }
    }
    if !found.has_key {
        let key = match consumers {
            Consumers::One => "message_id",
            Consumers::Many => "(message_id, consumer)",
        };
        problems.push(problem(
            format!(
                "it has no valid, immediate, complete unique index on exactly {key}: duplicates would not be found"
            ),
            "look for duplicates, then create the unique index concurrently",
        ));
    }
    for name in &found.other_unique {
        problems.push(problem(
            format!("{name} is a further unique or exclusion constraint, which would not hold across days"),
            "drop it",
        ));
    }
    if found.replica_identity == ReplicaIdentity::Index {
        problems.push(problem(
            "its replica identity is an index, which new partitions would not have".to_owned(),
            "alter table … replica identity default (or full)",
        ));
    }
    problems.extend(found.in_the_way.iter().cloned());
    problems
}

/// Points 3 and 4.
fn prepare(
    table: &TableName,
    found: &FoundTable,
    until: Option<Day>,
    lacks_check: bool,
    is_validated: bool,
) -> Vec<AdoptStep> {
    let lock = |mode, effect| Lock {
        mode,
        on: table.to_string(),
        effect,
    };
    let scan = || {
        let seconds = found.bytes / BYTES_A_SECOND + 1;
        format!(
            "a scan of {} MB: {}",
            found.bytes / 1_000_000,
            show_duration(TimeDelta::seconds(seconds))
        )
    };
    let mut steps = Vec::new();
    if lacks_check {
        steps.push(AdoptStep {
            action: AdoptAction::Scan,
            reason: "rows of the future, and nulls, must be known before anything is changed".to_owned(),
            locks: vec![lock("ACCESS SHARE", "nobody waits")],
            estimate: scan(),
        });
    }
    if !found.has_functions {
        steps.push(AdoptStep {
            action: AdoptAction::MakeFunctions,
            reason: "consumers move to the claim functions first; on the table as it is they work too".to_owned(),
            locks: vec![lock("no lock", "they are new or replaced")],
            estimate: "milliseconds".to_owned(),
        });
    }
    if lacks_check {
        let day = until.unwrap_or_else(|| adopt_until(found.now));
        steps.push(AdoptStep {
            action: AdoptAction::AddChecks,
            reason: format!(
                "new rows stay below {day} 00:00 UTC, where the adopted table will end: every insert fails from then on, \
                 so the swap must come before"
            ),
            locks: vec![lock("ACCESS EXCLUSIVE", "claims wait for it up to the lock timeout, then a millisecond")],
            estimate: "milliseconds, once it has the lock".to_owned(),
        });
    }
    if lacks_check || !is_validated {
        steps.push(AdoptStep {
            action: AdoptAction::Validate,
            reason: "what is known of all rows spares the swap its scan".to_owned(),
            locks: vec![lock("SHARE UPDATE EXCLUSIVE", "no claim waits")],
            estimate: scan(),
        });
    }
    steps
}

fn swap(table: &TableName) -> AdoptStep {
    let exclusive = |on: String, effect| Lock {
        mode: "ACCESS EXCLUSIVE",
        on,
        effect,
    };
    AdoptStep {
        action: AdoptAction::Swap,
        reason: format!("{table} becomes the first partition of a table of its name, with the days after it beside it"),
        locks: vec![exclusive(
            table.to_string(),
            "a claim waits for it up to the lock timeout, and for the commit",
        )],
        estimate:
            "milliseconds, once it has the lock; what would take longer than the lock timeout is undone and tried again"
                .to_owned(),
    }
}

fn drop_checks(table: &TableName) -> AdoptStep {
    AdoptStep {
        action: AdoptAction::DropChecks,
        reason: "the deadline goes; the table is as it was, and the claim functions go on working on it".to_owned(),
        locks: vec![Lock {
            mode: "ACCESS EXCLUSIVE",
            on: table.to_string(),
            effect: "claims wait for it up to the lock timeout, then a millisecond",
        }],
        estimate: "milliseconds, once it has the lock".to_owned(),
    }
}

/// Points 4 and 5.
fn refused(table: &TableName, found: &FoundTable, until: Option<Day>, is_unprepared: bool) -> Option<Problem> {
    if let Some(until) = until
        && until.start() - found.now < LAST_HOUR
    {
        return Some(Problem {
            what: format!("the deadline of {until} 00:00 UTC is less than an hour away, or past"),
            remedy: "take it back with `inboxd adopt … --abort`, then begin again with `--prepare`".to_owned(),
        });
    }
    is_unprepared.then(|| Problem {
        what: format!("{table} is not prepared"),
        remedy: "run `inboxd adopt … --prepare` first, move the consumers to the claim functions, then adopt"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests;
