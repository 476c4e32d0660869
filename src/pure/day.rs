//! UTC calendar days, their names and their instants.
//!
//! Knows no clock: every instant comes from outside.

use std::{fmt, str::FromStr};

use chrono::{DateTime, Days, NaiveDate, NaiveTime, TimeDelta, Utc};
use uuid::Uuid;

/// A UTC calendar day from 1970-01-01 to 9999-12-31: the days that have a `_YYYY_MM_DD` name and a UUIDv7 floor.
///
/// # Examples
/// ```
/// use inboxd::Day;
///
/// let day: Day = "2028-02-28".parse()?;
/// assert_eq!(day.next().to_string(), "2028-02-29");
/// assert_eq!(day.start().to_rfc3339(), "2028-02-28T00:00:00+00:00");
/// # Ok::<(), inboxd::DayError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(NaiveDate);

/// A text that is no day, or a day outside 1970 to 9999.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a day; write YYYY-MM-DD, from 1970-01-01 to 9999-12-31")]
pub struct DayError {
    text: String,
}

#[expect(clippy::expect_used, reason = "both are dates of the calendar")]
const fn limit(year: i32, month: u32, day: u32) -> Day {
    Day(NaiveDate::from_ymd_opt(year, month, day).expect("a date of the calendar"))
}

impl Day {
    /// 1970-01-01, the first day that a UUIDv7 can carry.
    pub const FIRST: Self = limit(1970, 1, 1);
    /// 9999-12-31, the last day with a four-digit year.
    pub const LAST: Self = limit(9999, 12, 31);

    /// The day that holds an instant; instants before 1970 or after 9999 count as the first or last day.
    #[must_use]
    pub fn containing(instant: DateTime<Utc>) -> Self {
        Self(instant.date_naive()).clamped()
    }

    fn clamped(self) -> Self {
        self.clamp(Self::FIRST, Self::LAST)
    }

    /// This day moved by a number of days, stopping at the first and last one.
    #[must_use]
    pub fn plus(self, days: i64) -> Self {
        let by = Days::new(days.unsigned_abs());
        if days < 0 {
            self.0
                .checked_sub_days(by)
                .map_or(Self::FIRST, |date| Self(date).clamped())
        } else {
            self.0
                .checked_add_days(by)
                .map_or(Self::LAST, |date| Self(date).clamped())
        }
    }

    /// The day after.
    #[must_use]
    pub fn next(self) -> Self {
        self.plus(1)
    }

    /// How many days `later` lies after this day; negative when it lies before.
    #[must_use]
    pub fn days_until(self, later: Self) -> i64 {
        later.0.signed_duration_since(self.0).num_days()
    }

    /// 00:00:00 UTC of this day, the inclusive lower bound of its partition.
    #[must_use]
    pub fn start(self) -> DateTime<Utc> {
        self.0.and_time(NaiveTime::MIN).and_utc()
    }

    /// 00:00:00 UTC of the next day, the exclusive upper bound of its partition.
    #[must_use]
    pub fn end(self) -> DateTime<Utc> {
        self.start() + TimeDelta::days(1)
    }

    /// The lowest UUID whose UUIDv7 time lies on this day: the day's first millisecond, then zeros.
    ///
    /// Layout of UUIDv7: RFC 9562, section 5.7 (48 bits of Unix time in milliseconds come first).
    #[must_use]
    pub fn uuid_floor(self) -> Uuid {
        uuid_floor(self.start())
    }

    /// Which of the digest's tables is this day's: by the number of days since 2000-01-01, as the claim functions count them.
    pub(crate) fn digest_slot(self) -> usize {
        let slots = i64::try_from(super::DIGEST_SLOTS).unwrap_or(1);
        let millennium = Self::containing(DateTime::from_timestamp(946_684_800, 0).unwrap_or_default());
        usize::try_from(millennium.days_until(self).rem_euclid(slots)).unwrap_or(0)
    }

    /// `YYYY_MM_DD`, as partitions are named.
    #[must_use]
    pub fn underscored(self) -> String {
        self.0.format("%Y_%m_%d").to_string()
    }

    /// Reads `YYYY_MM_DD` back, and nothing looser.
    #[must_use]
    pub fn from_underscored(text: &str) -> Option<Self> {
        let day = Self(NaiveDate::parse_from_str(text, "%Y_%m_%d").ok()?);
        (day.clamped() == day && day.underscored() == text).then_some(day)
    }
}

/// The lowest UUID whose UUIDv7 time is `instant`, to the millisecond.
pub(super) fn uuid_floor(instant: DateTime<Utc>) -> Uuid {
    // Day 1970 to 9999 is positive and below 2^48 ms; what lies outside has no UUIDv7 and stops at the ends.
    let ms = u128::try_from(instant.timestamp_millis())
        .unwrap_or(0)
        .min((1 << 48) - 1);
    Uuid::from_u128(ms << 80)
}

/// The millisecond in a UUID's first 48 bits, and whether the remaining bits are all zero.
pub(super) fn uuid_instant(uuid: Uuid) -> Option<(DateTime<Utc>, bool)> {
    let bits = uuid.as_u128();
    let instant = DateTime::from_timestamp_millis(i64::try_from(bits >> 80).ok()?)?;
    Some((instant, bits & ((1 << 80) - 1) == 0))
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.format("%Y-%m-%d"))
    }
}

impl FromStr for Day {
    type Err = DayError;

    fn from_str(text: &str) -> Result<Self, DayError> {
        NaiveDate::parse_from_str(text, "%Y-%m-%d")
            .ok()
            .map(Self)
            .filter(|day| day.clamped() == *day && day.to_string() == text)
            .ok_or_else(|| DayError { text: text.to_owned() })
    }
}

impl serde::Serialize for Day {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Day {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl From<Day> for NaiveDate {
    fn from(day: Day) -> Self {
        day.0
    }
}

impl From<NaiveDate> for Day {
    /// A date outside 1970 to 9999 becomes the first or last day.
    fn from(date: NaiveDate) -> Self {
        Self(date).clamped()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn a_day_holds_its_first_instant_and_not_the_next_days() {
        for (instant, day) in [
            ("2026-12-01T00:00:00Z", "2026-12-01"),
            ("2026-12-01T23:59:59.999999Z", "2026-12-01"),
            ("2026-12-02T00:00:00Z", "2026-12-02"),
            ("2026-12-02T00:30:00+05:30", "2026-12-01"),
            ("1969-12-31T23:59:59Z", "1970-01-01"),
        ] {
            assert_eq!(Day::containing(at(instant)).to_string(), day, "{instant}");
        }
    }

    #[test]
    fn s14_year_ends_and_leap_days_have_exact_names_and_bounds() {
        for (day, next) in [
            ("2026-12-31", "2027-01-01"),
            ("2027-02-28", "2027-03-01"),
            ("2028-02-28", "2028-02-29"),
            ("2028-02-29", "2028-03-01"),
            ("2100-02-28", "2100-03-01"),
        ] {
            let day: Day = day.parse().unwrap();
            assert_eq!(day.next().to_string(), next);
            assert_eq!(day.end(), day.next().start());
        }
        let mut day: Day = "2026-12-25".parse().unwrap();
        let mut names = Vec::new();
        while day.to_string() != "2027-01-06" {
            assert_eq!(day.end() - day.start(), TimeDelta::hours(24));
            names.push(day.underscored());
            day = day.next();
        }
        assert_eq!(
            (names.len(), names[6].as_str(), names[7].as_str()),
            (12, "2026_12_31", "2027_01_01")
        );
    }

    #[test]
    fn only_the_exact_form_is_a_day() {
        for text in [
            "2026-1-01",
            "2026-02-29",
            "26-01-01",
            "2026-01-01 ",
            "10000-01-01",
            "1969-12-31",
            "+2026-01-01",
        ] {
            assert!(text.parse::<Day>().is_err(), "{text}");
            assert!(Day::from_underscored(&text.replace('-', "_")).is_none(), "{text}");
        }
    }

    #[test]
    fn a_uuid_floor_is_the_first_millisecond_of_the_day() {
        let day: Day = "2026-12-01".parse().unwrap();
        let floor = day.uuid_floor();
        assert_eq!(floor.to_string(), "01a22ee6-b000-0000-0000-000000000000");
        assert_eq!(uuid_instant(floor), Some((day.start(), true)));
        let last = Uuid::from_u128(day.next().uuid_floor().as_u128() - 1);
        assert_eq!(uuid_instant(last).map(|(t, _)| Day::containing(t)), Some(day));
    }

    proptest! {
        #[test]
        fn names_and_bounds_round_trip(days in 0i64..2_932_896, micros in 0i64..86_400_000_000) {
            let day = Day::FIRST.plus(days);
            prop_assert_eq!(Day::from_underscored(&day.underscored()), Some(day));
            prop_assert_eq!(day.to_string().parse::<Day>().unwrap(), day);
            let instant = day.start() + TimeDelta::microseconds(micros);
            prop_assert_eq!(Day::containing(instant), day);
            prop_assert!(instant < day.end());
            prop_assert_eq!(Day::FIRST.days_until(day), days);
        }
    }
}
