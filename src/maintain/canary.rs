//! The canary: a claim of a random id that is rolled back. It tells what a consumer would see now.
//!
//! It calls the claim function as a consumer does, so it needs no right on the table: the function has its owner's. Its
//! invariants: the id is new, so no claim ever waits for it; whatever comes of it is rolled back, at the latest by the
//! server when the connection ends; and each inbox costs three round trips in a transaction of its own, so that the locks
//! of two inboxes are never held together.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, postgres::PgConnectOptions};

use crate::{
    claim::ClaimErrorKind,
    postgres::{self, DbError, ErrorKind, Timeouts},
    pure::{Consumers, Derived, Function, InboxSpec, Severity, Sql, render},
};

/// A claim of an id that nobody else has waits for nothing but a lock on the table, and then every claim does.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// The lock timeout concerns what is locked before the function's own begins; the other bounds a server that is stuck.
const TIMEOUTS: Timeouts = Timeouts {
    lock: Duration::from_secs(1),
    statement: Duration::from_secs(2),
};
/// A good length for one round over the inboxes of a database: with 200 of them locked it would be minutes otherwise.
pub const LONGEST_CANARY_ROUND: Duration = Duration::from_secs(10);
/// Beyond the round's length, for the opening of the connection and for the claim in hand. What does not end by then is
/// connected to a server that says nothing any more, which no limit of the server's ends.
const LATEST_END: Duration = Duration::from_secs(15);
/// As which it claims where many consumers share an inbox, and the topic of its claims.
const CONSUMER: &str = "inboxd.canary";

/// What the canary of one inbox met.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Canary {
    /// The inbox.
    pub inbox: String,
    /// How its claim came out: `fresh` when all is well, another outcome of a claim, or a kind of error. Stable words.
    pub outcome: String,
    /// How bad that is.
    pub severity: Severity,
    /// What a consumer would see, in our words; none when its claim comes out fresh.
    pub message: Option<String>,
    /// What to do; none when there is nothing to do.
    pub remedy: Option<String>,
    /// How long the claim took, as a consumer would measure it, in seconds.
    pub duration_seconds: f64,
    /// What the database said, for the log.
    #[serde(skip)]
    pub error: Option<String>,
}

/// Claims a random id in each of these inboxes, in their order, and rolls back. Once the time for a round is over, the rest
/// is left out.
///
/// The future may be dropped at any time: the server rolls back then.
///
/// # Errors
/// When the database cannot be reached or cut us off; `told` has had those that were asked before.
pub async fn canaries<'a>(
    options: &PgConnectOptions,
    specs: impl Iterator<Item = &'a InboxSpec>,
    longest_round: Duration,
    told: impl FnMut(Canary),
) -> Result<(), DbError> {
    let round = fly(options, specs, longest_round, told);
    match tokio::time::timeout(longest_round + LATEST_END, round).await {
        Ok(flown) => flown,
        Err(_) => Err(DbError::noticed(
            ErrorKind::Unreachable,
            "the database did not answer in time",
        )),
    }
}

async fn fly<'a>(
    options: &PgConnectOptions,
    specs: impl Iterator<Item = &'a InboxSpec>,
    longest_round: Duration,
    mut told: impl FnMut(Canary),
) -> Result<(), DbError> {
    let begun = Instant::now();
    let mut connection = postgres::connect(options, "inboxd canary", TIMEOUTS).await?;
    for spec in specs {
        if begun.elapsed() > longest_round {
            break;
        }
        told(canary(&mut connection, spec).await?);
    }
    // Whether the goodbye arrives does not matter.
    let _ = connection.close().await;
    Ok(())
}

async fn canary(connection: &mut PgConnection, spec: &InboxSpec) -> Result<Canary, DbError> {
    let failed = |error| DbError::new(format!("the canary of inbox {}", spec.name), error);
    let query = query(spec)?;
    let mut transaction = connection.begin().await.map_err(failed)?;
    let begun = Instant::now();
    let answer = sqlx::raw_sql(AssertSqlSafe(query)).fetch_one(&mut *transaction).await;
    let seconds = begun.elapsed().as_secs_f64();
    let answer = answer.and_then(|row| row.try_get::<String, _>("outcome"));
    if let Err(error) = answer {
        let kind = ClaimErrorKind::of(&error);
        if kind == ClaimErrorKind::Connection {
            return Err(failed(error));
        }
        let error = failed(error);
        transaction.rollback().await.map_err(failed)?;
        return Ok(of_error(spec, kind, seconds, error.to_string()));
    }
    transaction.rollback().await.map_err(failed)?;
    Ok(of_outcome(spec, answer.unwrap_or_default(), seconds))
}

fn query(spec: &InboxSpec) -> Result<String, DbError> {
    let name = spec.table.derive(Derived::Function(Function::TryClaim));
    let name = name.map_err(|error| DbError::noticed(ErrorKind::Other, error.to_string()))?;
    let consumer = match spec.policy.consumers {
        Consumers::One => Sql::null(),
        Consumers::Many => Sql::literal(CONSUMER),
    };
    Ok(render(
        include_str!("../../sql/canary/claim.sql"),
        &[
            ("try_claim", Sql::in_schema(spec.table.schema(), &name)),
            ("consumer", consumer),
            (
                "wait",
                Sql::literal(&format!("{} milliseconds", LONGEST_WAIT.as_millis())),
            ),
        ],
    ))
}

fn of_outcome(spec: &InboxSpec, outcome: String, seconds: f64) -> Canary {
    let told = match outcome.as_str() {
        "fresh" => None,
        "in_flight" => Some((
            Severity::Warn,
            format!(
                "claims wait for a lock on the table for more than {} ms",
                LONGEST_WAIT.as_millis()
            ),
            "see which session holds a lock on it: pg_locks, pg_stat_activity",
        )),
        // A new id of the database's own clock can be nothing else.
        _ => Some((
            Severity::Fail,
            "a claim of a new id does not come out fresh".to_owned(),
            "see whether the claim functions are inboxd's own; run `inboxd init`",
        )),
    };
    let (severity, message, remedy) = match told {
        None => (Severity::Info, None, None),
        Some((severity, message, remedy)) => (severity, Some(message), Some(remedy.to_owned())),
    };
    Canary {
        inbox: spec.name.clone(),
        outcome,
        severity,
        message,
        remedy,
        duration_seconds: seconds,
        error: None,
    }
}

fn of_error(spec: &InboxSpec, kind: ClaimErrorKind, seconds: f64, error: String) -> Canary {
    use ClaimErrorKind as Kind;
    let init = "run `inboxd init`";
    let (outcome, message, remedy) = match kind {
        Kind::MissingPartition => (
            "missing_partition",
            "claims fail: today has no partition",
            "run `inboxd run`",
        ),
        Kind::KeyLost => (
            "key_lost",
            "claims fail: today's partition has lost its key",
            "run `inboxd run`",
        ),
        Kind::Privilege => (
            "privilege",
            "claims fail, or may not be tried by this role: a privilege is missing",
            "run `inboxd init`, and connect as the role that ran it or a member of it",
        ),
        Kind::NotInstalled => (
            "not_installed",
            "claims fail: the claim functions, or what they need, are not there",
            init,
        ),
        Kind::InvalidArgument => (
            "invalid_argument",
            "the claim functions are made for another configuration",
            init,
        ),
        Kind::ReadOnly => (
            "read_only",
            "claims fail: the database lets nobody write",
            "see default_transaction_read_only, and whether the server is a standby",
        ),
        Kind::TooManyLocks => (
            "too_many_locks",
            "claims fail: the server has no room for another lock",
            "raise max_locks_per_transaction, or claim in smaller batches",
        ),
        Kind::Timeout => (
            "timeout",
            "a claim takes more than two seconds",
            "see what the server is busy with, and which session holds a lock on the table",
        ),
        Kind::Conflict => (
            "conflict",
            "a claim gave way in a deadlock",
            "see which sessions lock the table",
        ),
        _ => ("error", "claims fail; the log says why", "see the log"),
    };
    let severity = match kind {
        Kind::Timeout | Kind::Conflict => Severity::Warn,
        _ => Severity::Fail,
    };
    Canary {
        inbox: spec.name.clone(),
        outcome: outcome.to_owned(),
        severity,
        message: Some(message.to_owned()),
        remedy: Some(remedy.to_owned()),
        duration_seconds: seconds,
        error: Some(error),
    }
}
