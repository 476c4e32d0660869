//! Numbers for people: at a glance in the text, exactly in what shows when one points at it.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

/// A number as people read it, and as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exact {
    /// Short.
    pub(super) text: String,
    /// With every digit and its unit.
    pub(super) title: String,
}

/// An instant as people read it, and as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct When {
    /// From now: `in 5 min`, `3 h ago`.
    pub(super) text: String,
    /// RFC 3339, UTC.
    pub(super) title: String,
}

/// A size.
pub(super) fn bytes(bytes: i64) -> Exact {
    let mut value = bytes as f64;
    let mut text = format!("{bytes} B");
    for unit in ["kB", "MB", "GB", "TB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        text = three_digits(value, unit);
    }
    let title = format!("{} bytes", grouped(bytes));
    Exact { text, title }
}

/// A count of things that the database only estimates.
pub(super) fn about(count: i64, noun: &str) -> Exact {
    let mut value = count as f64;
    let mut text = count.to_string();
    for unit in ["k", "million", "billion"] {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        text = three_digits(value, unit);
    }
    Exact {
        text: format!("{text} {noun}"),
        title: format!("about {} {noun}", grouped(count)),
    }
}

fn three_digits(value: f64, unit: &str) -> String {
    if value < 9.95 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// `1,234,567`.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

/// A length of time in its two largest units; never negative.
pub(super) fn length(length: TimeDelta) -> String {
    let seconds = length.num_seconds().max(0);
    let units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let Some(first) = units.iter().position(|(_, unit)| seconds >= *unit) else {
        return "0 s".to_owned();
    };
    let (name, unit) = units[first];
    let mut text = format!("{} {name}", seconds / unit);
    // From ten days on nobody plans by hours.
    if let Some((name, smaller)) = units.get(first + 1).filter(|_| seconds < 10 * 86_400) {
        let count = seconds % unit / smaller;
        if count > 0 {
            text.push_str(&format!(" {count} {name}"));
        }
    }
    text
}

/// A length that was measured in milliseconds.
pub(super) fn milliseconds(length: i64) -> String {
    match length {
        ..1_000 => format!("{length} ms"),
        1_000..10_000 => format!("{:.1} s", length as f64 / 1000.0),
        _ => self::length(TimeDelta::milliseconds(length)),
    }
}

/// A length of time in its largest unit: the smaller ones are of no use to the eye.
pub(super) fn rough(length: TimeDelta) -> String {
    let text = self::length(length);
    let mut parts = text.split(' ');
    match (parts.next(), parts.next()) {
        (Some(count), Some(unit)) => format!("{count} {unit}"),
        _ => text,
    }
}

/// An instant, seen from another.
pub(super) fn when(at: DateTime<Utc>, now: DateTime<Utc>) -> When {
    let text = if at > now + TimeDelta::seconds(1) {
        format!("in {}", rough(at - now))
    } else if at < now - TimeDelta::seconds(1) {
        format!("{} ago", rough(now - at))
    } else {
        "now".to_owned()
    };
    When { text, title: exact(at) }
}

/// RFC 3339, UTC, to the second.
pub(super) fn exact(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// `12:03:05 UTC`.
pub(super) fn clock(at: DateTime<Utc>) -> String {
    at.format("%H:%M:%S UTC").to_string()
}

/// Seconds until the first claim would fail for want of a partition.
pub(super) fn runway(seconds: Option<i64>) -> Exact {
    match seconds {
        None => Exact {
            text: "without end".to_owned(),
            title: "the partitions never end".to_owned(),
        },
        Some(0) => Exact {
            text: "none: claims fail".to_owned(),
            title: "0 seconds".to_owned(),
        },
        Some(seconds) => Exact {
            text: length(TimeDelta::seconds(seconds)),
            title: format!("{} seconds until the first claim would fail", grouped(seconds)),
        },
    }
}

/// `1 step`, `2 steps`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    counted_in(count, noun, &format!("{noun}s"))
}

/// The same for a noun with a plural of its own.
pub(super) fn counted_in(count: usize, one: &str, many: &str) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{count} {noun}")
}

/// A sentence of what is a part of one elsewhere.
pub(super) fn sentence(part: &str) -> String {
    let mut rest = part.chars();
    let first = rest.next().into_iter().flat_map(char::to_uppercase);
    let mut sentence: String = first.chain(rest).collect();
    if !sentence.ends_with(['.', '!', '?']) {
        sentence.push('.');
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_are_short_in_the_text_and_exact_beside_it() {
        for (number, text, title) in [
            (0, "0 B", "0 bytes"),
            (1023, "1023 B", "1,023 bytes"),
            (16_384, "16 kB", "16,384 bytes"),
            (1_310_720, "1.2 MB", "1,310,720 bytes"),
            (52_428_800_000, "49 GB", "52,428,800,000 bytes"),
            (i64::MAX, "8388608 TB", "9,223,372,036,854,775,807 bytes"),
        ] {
            assert_eq!(
                (bytes(number).text, bytes(number).title),
                (text.to_owned(), title.to_owned())
            );
        }
        for (number, text) in [
            (0, "0 rows"),
            (999, "999 rows"),
            (1_250_000, "1.2 million rows"),
            (12_345, "12 k rows"),
        ] {
            assert_eq!(about(number, "rows").text, text);
        }
        assert_eq!(about(1_250_000, "rows").title, "about 1,250,000 rows");
        assert_eq!(grouped(-1234), "-1,234");
    }

    #[test]
    fn lengths_have_two_units_and_only_days_when_they_are_many() {
        for (seconds, text) in [
            (-5, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3_661, "1 h 1 min"),
            (7 * 86_400 + 5 * 3_600 + 59, "7 d 5 h"),
            (11 * 86_400 + 5 * 3_600, "11 d"),
        ] {
            assert_eq!(length(TimeDelta::seconds(seconds)), text);
        }
        assert_eq!(
            (milliseconds(7), milliseconds(1_250), milliseconds(61_000)),
            ("7 ms".into(), "1.2 s".into(), "1 min 1 s".into())
        );
        assert_eq!(runway(Some(0)).text, "none: claims fail");
        assert_eq!(runway(None).text, "without end");
    }

    #[test]
    fn instants_are_told_from_now_and_exactly_beside_it() {
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let now = at("2026-12-01T12:00:00Z");
        for (instant, text) in [
            ("2026-12-01T12:00:00Z", "now"),
            ("2026-12-01T12:05:10Z", "in 5 min"),
            ("2026-12-01T08:59:00Z", "3 h ago"),
        ] {
            let when = when(at(instant), now);
            assert_eq!((when.text.as_str(), when.title.as_str()), (text, instant));
        }
    }
}
