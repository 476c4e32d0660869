//! What an operator decides about an inbox, as checked values.

use std::{fmt, str::FromStr, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};

use super::Ident;

/// What chooses the partition of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// The time of the claim, by the server's clock. Takes any UUID; a claim looks back into the older days.
    ProcessedAt,
    /// The creation time inside the id. Takes UUIDv7 only; one insert is the whole claim.
    MessageId,
}

impl Routing {
    /// The column that the inbox is partitioned by.
    #[must_use]
    pub fn column(self) -> &'static str {
        match self {
            Self::ProcessedAt => "processed_at",
            Self::MessageId => "message_id",
        }
    }
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.column())
    }
}

/// How many consumers share an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Consumers {
    /// One consumer group; the key is the message id.
    One,
    /// Several; the key is the message id and the consumer's name, and each claim names its consumer.
    Many,
}

impl fmt::Display for Consumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "one",
            Self::Many => "many",
        })
    }
}

/// A value outside its accepted range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not accepted: {accepted}")]
pub struct PolicyError {
    /// What was given.
    pub value: String,
    /// What is accepted, and why.
    pub accepted: &'static str,
}

impl PolicyError {
    fn new(value: impl fmt::Display, accepted: &'static str) -> Self {
        Self {
            value: value.to_string(),
            accepted,
        }
    }
}

/// How many days after today must already have a partition: 1 to 366.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Ahead(u16);

impl Ahead {
    /// A week: a weekend and a bank holiday pass before a broken service hurts a claim.
    pub const DEFAULT: Self = Self(7);

    const ACCEPTED: &str = "a whole number of days from 1 to 366 (with none ahead, midnight would find no partition; \
                            a plan that is not pruned locks every partition, so more only cost)";

    /// Checks a number of days.
    ///
    /// # Errors
    /// When it is not between 1 and 366.
    pub fn new(days: i64) -> Result<Self, PolicyError> {
        u16::try_from(days)
            .ok()
            .filter(|n| (1..=366).contains(n))
            .map(Self)
            .ok_or_else(|| PolicyError::new(days, Self::ACCEPTED))
    }

    /// The number of days.
    #[must_use]
    pub fn days(self) -> i64 {
        i64::from(self.0)
    }
}

/// How long a claim is remembered, at least.
///
/// # Examples
/// ```
/// use inboxd::Retention;
///
/// assert!("7d".parse::<Retention>().is_ok());
/// assert_eq!("forever".parse(), Ok(Retention::Forever));
/// assert!("90".parse::<Retention>().is_err(), "a unit is required");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// For this long: an hour to 36,500 days.
    For(TimeDelta),
    /// For ever: nothing expires.
    Forever,
}

impl Retention {
    const ACCEPTED: &str = "a duration with its unit from \"1h\" to \"36500d\", for example \"7d\", or \"forever\"";

    /// The instant before which nothing is remembered; none when nothing is ever forgotten, or when no clock reaches
    /// back that far.
    #[must_use]
    pub fn horizon(self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::For(length) => now.checked_sub_signed(length),
            Self::Forever => None,
        }
    }

    /// The longer of the two.
    #[must_use]
    pub fn longer(self, other: Self) -> Self {
        match (self, other) {
            (Self::For(a), Self::For(b)) => Self::For(a.max(b)),
            _ => Self::Forever,
        }
    }

    /// The length in whole seconds; none for ever.
    #[must_use]
    pub fn seconds(self) -> Option<i64> {
        match self {
            Self::For(length) => Some(length.num_seconds()),
            Self::Forever => None,
        }
    }

    /// A length in seconds, as [`Retention::seconds`] gives it.
    ///
    /// # Errors
    /// When it is not between an hour and 36,500 days.
    pub fn from_seconds(seconds: Option<i64>) -> Result<Self, PolicyError> {
        let Some(seconds) = seconds else {
            return Ok(Self::Forever);
        };
        TimeDelta::try_seconds(seconds)
            .filter(|length| (TimeDelta::hours(1)..=TimeDelta::days(36_500)).contains(length))
            .map(Self::For)
            .ok_or_else(|| PolicyError::new(format!("{seconds}s"), Self::ACCEPTED))
    }
}

impl FromStr for Retention {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        if text == "forever" {
            return Ok(Self::Forever);
        }
        let refused = || PolicyError::new(text, Self::ACCEPTED);
        let length = parse_duration(text).ok_or_else(refused)?;
        Self::from_seconds(Some(length.num_seconds())).map_err(|_| refused())
    }
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(length) => f.write_str(&show_duration(*length)),
            Self::Forever => f.write_str("forever"),
        }
    }
}

impl serde::Serialize for Retention {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads a duration with its unit (`90s`, `1h 30m`, `7d`). A bare number has no unit and is refused.
#[must_use]
pub fn parse_duration(text: &str) -> Option<TimeDelta> {
    // humantime alone would read "0" without a unit.
    if !text.ends_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    TimeDelta::from_std(humantime::parse_duration(text).ok()?).ok()
}

/// Shows a duration in the largest units that fit, to the second: `6d 23h`, `90s` as `1m 30s`. Never negative.
#[must_use]
pub fn show_duration(length: TimeDelta) -> String {
    let mut left = length.num_seconds().max(0);
    let mut text = String::new();
    // Days are the largest unit: humantime's months and years are averages that no partition knows.
    for (unit, seconds) in [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)] {
        let count = left / seconds;
        left %= seconds;
        if count > 0 {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(&format!("{count}{unit}"));
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// What becomes of a partition that has expired.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum OnExpiry {
    /// It is detached, and dropped after its grace.
    Drop,
    /// It is detached and kept.
    Keep {
        /// The schema that it is moved to after its grace; none to leave it where it is.
        archive_schema: Option<Ident>,
    },
}

/// What the planner must know to decide about one inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// What chooses a claim's partition.
    pub routing: Routing,
    /// Whether the key holds the consumer's name.
    pub consumers: Consumers,
    /// Days that must exist after today.
    pub ahead: Ahead,
    /// How long a claim is remembered.
    pub retention: Retention,
    /// What becomes of a partition that has expired.
    pub on_expiry: OnExpiry,
    /// How long a detached partition waits before it is dropped. It protects data, not dedup.
    pub drop_grace: TimeDelta,
    /// The most partitions that one run detaches, and the most that it drops, in one inbox.
    pub max_drops_per_run: u32,
    /// The largest difference between the host's and the database's clock under which anything is removed.
    pub max_clock_skew: TimeDelta,
    /// The longest way past the highest trusted time that the database's clock may have come since, before removal waits
    /// for a confirmation.
    pub max_clock_leap: TimeDelta,
    /// Whether a default partition is drained; else it is only reported.
    pub drain_default: bool,
    /// Whether days that are over are sealed, so that they take no row any more. Only with `processed_at` routing.
    pub seal_days: bool,
    /// Whether a digest of the sealed days is kept, so that claims need not look into each. Only where days are sealed.
    pub digest: bool,
}

impl Policy {
    /// Whether claims ask a digest. Where only one day is looked back into, it would cost as much as that look; and where
    /// nothing is ever forgotten, no digest goes back as far as claims do.
    #[must_use]
    pub fn keeps_digest(&self) -> bool {
        let pays = matches!(self.retention, Retention::For(length) if length > TimeDelta::days(1));
        self.digest && self.seal_days && self.routing == Routing::ProcessedAt && pays
    }

    /// A day: time enough for the person who notices at breakfast.
    pub const DEFAULT_DROP_GRACE: Duration = Duration::from_secs(24 * 3600);
    /// A normal day removes one; four let a long weekend catch up in one run.
    pub const DEFAULT_MAX_DROPS_PER_RUN: u32 = 4;
    /// Machines under NTP differ by milliseconds; five minutes are a broken clock.
    pub const DEFAULT_MAX_CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);
    /// A longer outage is rare enough to ask a person whether the clock is right.
    pub const DEFAULT_MAX_CLOCK_LEAP: Duration = Duration::from_secs(7 * 24 * 3600);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s16_a_retention_needs_a_unit_and_a_sane_length() {
        for text in [
            "90",
            "0",
            "0d",
            "-1d",
            "",
            "d",
            "seven days",
            "59m",
            "36501d",
            "for ever",
            "1e3d",
            "99999999999999d",
        ] {
            let error = text.parse::<Retention>().unwrap_err().to_string();
            assert!(
                error.contains("\"forever\"") && error.contains("unit"),
                "{text}: {error}"
            );
        }
        for (text, seconds) in [
            ("1h", 3600),
            ("7d", 604_800),
            ("36500d", 3_153_600_000),
            ("1d 12h", 129_600),
        ] {
            let retention: Retention = text.parse().unwrap();
            assert_eq!(retention.seconds(), Some(seconds));
            assert_eq!(retention.to_string(), text);
        }
    }

    #[test]
    fn s38_ahead_is_bounded_with_the_reason() {
        assert!(Ahead::new(1).is_ok() && Ahead::new(366).is_ok());
        for days in [0, -1, 367, 400, i64::MAX] {
            assert!(
                Ahead::new(days)
                    .unwrap_err()
                    .to_string()
                    .contains("locks every partition")
            );
        }
    }

    #[test]
    fn for_ever_is_the_longest() {
        let week = Retention::For(TimeDelta::days(7));
        assert_eq!(week.longer(Retention::Forever), Retention::Forever);
        assert_eq!(week.longer(Retention::For(TimeDelta::days(3))), week);
    }

    #[test]
    fn durations_are_shown_in_units_that_read_back() {
        for (seconds, text) in [
            (0, "0s"),
            (90, "1m 30s"),
            (604_799, "6d 23h 59m 59s"),
            (-5, "0s"),
            (31_536_000, "365d"),
        ] {
            assert_eq!(show_duration(TimeDelta::seconds(seconds)), text);
            assert_eq!(parse_duration(text), Some(TimeDelta::seconds(seconds.max(0))));
        }
    }
}
