//! Cron text: five or six fields, UTC.

use std::{fmt, str::FromStr};

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use croner::{
    Cron,
    parser::{CronParser, Seconds},
};

/// How far the longest pause is looked for: twelve years have each date, 29 February too.
const DAYS_LOOKED_AT: i64 = 12 * 366;

/// A schedule that fires, read the way the scheduler itself reads it.
#[derive(Clone)]
pub struct Schedule {
    cron: Cron,
    text: String,
}

/// A text that is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// It cannot be read.
    #[error(
        "{text:?} is not a cron pattern ({why}); write 5 fields, or 6 with seconds first, in UTC, for example \"*/10 * * * *\""
    )]
    Malformed {
        /// What was given.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// It can be read, but no date matches it.
    #[error("{text:?} never fires: no date matches it")]
    NeverFires {
        /// What was given.
        text: String,
    },
}

impl Schedule {
    /// Every ten minutes: a failed run is repeated before anybody would notice, and an idle one costs three queries.
    pub const DEFAULT: &str = "*/10 * * * *";

    /// The pattern with six fields, as the scheduler takes it.
    #[must_use]
    pub fn six_fields(&self) -> &str {
        &self.text
    }

    /// The next `count` times after an instant.
    #[must_use]
    pub fn next(&self, after: DateTime<Utc>, count: usize) -> Vec<DateTime<Utc>> {
        // The parser would carry fractions of a second into every answer.
        self.cron.iter_after(after.trunc_subsecs(0)).take(count).collect()
    }

    /// The times after an instant and not after another.
    pub fn between(&self, after: DateTime<Utc>, until: DateTime<Utc>) -> impl Iterator<Item = DateTime<Utc>> {
        self.cron
            .iter_after(after.trunc_subsecs(0))
            .take_while(move |at| *at <= until)
    }

    /// The longest pause between two of its times in a row: how long a heartbeat must be good for. The night of a schedule
    /// that rests at night counts, and so does the rest of the year of one that fires in May.
    #[must_use]
    pub fn period(&self) -> TimeDelta {
        let after = |at: DateTime<Utc>, or_at: bool| self.cron.find_next_occurrence(&at, or_at);
        let Ok(first) = after(DateTime::UNIX_EPOCH, true) else {
            return TimeDelta::days(DAYS_LOOKED_AT);
        };
        let (mut last, mut longest) = (first, TimeDelta::zero());
        // All days that have times have the same ones: those of one day are looked at, then the pauses between days.
        while let Ok(next) = after(last, false)
            && next.date_naive() == first.date_naive()
        {
            longest = longest.max(next - last);
            last = next;
        }
        let length = last - first;
        while last - first < TimeDelta::days(DAYS_LOOKED_AT) {
            let Some(next) = self.cron.iter_after(last).next() else {
                break;
            };
            longest = longest.max(next - last);
            last = next + length;
        }
        longest
    }
}

impl FromStr for Schedule {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        let fields = text.split_whitespace().count();
        let malformed = |why: String| CronError::Malformed {
            text: text.to_owned(),
            why,
        };
        let six = match fields {
            5 => format!("0 {}", text.trim()),
            6 => text.trim().to_owned(),
            other => return Err(malformed(format!("{other} fields"))),
        };
        let parser = CronParser::builder()
            .seconds(Seconds::Required)
            .dom_and_dow(true)
            .build();
        let cron = parser.parse(&six).map_err(|error| malformed(error.to_string()))?;
        // A pattern without a date is searched for up to the end of the parser's calendar.
        let somewhen = DateTime::<Utc>::UNIX_EPOCH;
        cron.find_next_occurrence(&somewhen, false)
            .map_err(|_| CronError::NeverFires { text: text.to_owned() })?;
        Ok(Self { cron, text: six })
    }
}

impl fmt::Debug for Schedule {
    /// The parser's own form has a bit for each year there is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schedule").field(&self.text).finish()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn next(text: &str, after: &str) -> Vec<String> {
        let schedule: Schedule = text.parse().unwrap();
        schedule
            .next(after.parse().unwrap(), 3)
            .iter()
            .map(|at| at.format("%m-%d %H:%M:%S").to_string())
            .collect()
    }

    #[test]
    fn five_and_six_fields_fire_in_utc() {
        assert_eq!(
            next("*/10 * * * *", "2026-12-31T23:45:00Z"),
            ["12-31 23:50:00", "01-01 00:00:00", "01-01 00:10:00"]
        );
        assert_eq!(
            next("30 0 3 * * *", "2026-12-01T03:00:30Z"),
            ["12-02 03:00:30", "12-03 03:00:30", "12-04 03:00:30"]
        );
        // Both day fields must match: Friday the 13th.
        assert_eq!(
            next("0 0 13 * FRI", "2026-01-01T00:00:00Z"),
            ["02-13 00:00:00", "03-13 00:00:00", "11-13 00:00:00"]
        );
    }

    #[test]
    fn the_period_is_the_longest_pause_nights_weekends_and_seasons_included() {
        for (text, period) in [
            ("*/10 * * * *", TimeDelta::minutes(10)),
            ("* * * * * *", TimeDelta::seconds(1)),
            ("0 3 * * *", TimeDelta::days(1)),
            ("*/10 9-17 * * *", TimeDelta::minutes(15 * 60 + 10)),
            ("0,30 8 * * MON-FRI", TimeDelta::minutes(3 * 24 * 60 - 30)),
            ("0 0 1 * *", TimeDelta::days(31)),
            // From the 7th to the 1st, in a leap year.
            ("0 0 1-7 5 *", TimeDelta::days(360)),
            ("0 0 29 2 *", TimeDelta::days(4 * 365 + 1)),
        ] {
            let schedule: Schedule = text.parse().unwrap();
            assert_eq!(schedule.period(), period, "{text}");
        }
    }

    #[test]
    fn what_never_fires_or_cannot_be_read_is_refused() {
        for text in ["0 0 30 2 *", "0 0 0 31 4 *"] {
            assert_eq!(
                text.parse::<Schedule>().unwrap_err(),
                CronError::NeverFires { text: text.to_owned() }
            );
        }
        for text in ["", "* * * *", "* * * * * * *", "61 * * * *", "every day", "@daily"] {
            assert!(
                matches!(text.parse::<Schedule>(), Err(CronError::Malformed { .. })),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,60}") {
            let _ = text.parse::<Schedule>();
        }

        #[test]
        fn what_is_taken_fires_later_and_later_and_reads_back(text in "[0-9*/,L#W?-]{1,5}( [0-9*/,L#W?-]{1,5}){4,5}") {
            let Ok(schedule) = text.parse::<Schedule>() else { return Ok(()) };
            let after = DateTime::UNIX_EPOCH + TimeDelta::days(20_000);
            let next = schedule.next(after, 3);
            prop_assert!(next.first().is_none_or(|first| *first > after));
            prop_assert!(next.is_sorted_by(|one, other| one < other), "{next:?}");
            let again: Schedule = schedule.to_string().parse().unwrap();
            prop_assert_eq!(again.next(after, 3), next);
        }
    }
}
