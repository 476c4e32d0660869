//! A partition's bounds: what the catalog prints, as instants, for both routings.

use chrono::{DateTime, NaiveDateTime, Utc};
use uuid::Uuid;

use super::{
    Day, Routing,
    day::{uuid_floor, uuid_instant},
};

/// A half-open range of time `[from, to)`. `None` is unbounded on that side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
pub struct Span {
    /// The inclusive lower end.
    pub from: Option<DateTime<Utc>>,
    /// The exclusive upper end.
    pub to: Option<DateTime<Utc>>,
}

impl Span {
    /// The range of one day.
    #[must_use]
    pub fn of(day: Day) -> Self {
        Self {
            from: Some(day.start()),
            to: Some(day.end()),
        }
    }

    /// Whether it holds the instant.
    #[must_use]
    pub fn contains(&self, instant: DateTime<Utc>) -> bool {
        self.from.is_none_or(|from| from <= instant) && self.to.is_none_or(|to| instant < to)
    }

    /// Whether the two have an instant in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let before = |to: Option<DateTime<Utc>>, from: Option<DateTime<Utc>>| matches!((to, from), (Some(to), Some(from)) if to <= from);
        !before(self.to, other.from) && !before(other.to, self.from)
    }

    /// Whether it holds every instant of the day.
    #[must_use]
    pub fn covers(&self, day: Day) -> bool {
        self.from.is_none_or(|from| from <= day.start()) && self.to.is_none_or(|to| day.end() <= to)
    }
}

/// The bounds of a partition as the catalog has them.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "value")]
pub enum Bounds {
    /// A range whose ends are instants, to the unit of the routing's key.
    Range(Span),
    /// A `message_id` range with an end inside a millisecond; the span is the whole milliseconds within it.
    OffGrid(Span),
    /// The default partition.
    Default,
    /// A bound that this version cannot read; it is reported and the partition is left alone.
    Unreadable(String),
}

impl Bounds {
    /// Reads what `pg_get_expr(relpartbound, 0)` prints under `TimeZone = UTC` and `DateStyle = ISO`.
    #[must_use]
    pub fn parse(text: &str, routing: Routing) -> Self {
        if text == "DEFAULT" {
            return Self::Default;
        }
        parse_range(text, routing).unwrap_or_else(|| Self::Unreadable(text.to_owned()))
    }

    /// The two ends of a day's partition as text that both PostgreSQL and [`Bounds::parse`] read: inclusive, then exclusive.
    #[must_use]
    pub fn ends(day: Day, routing: Routing) -> [String; 2] {
        [day.start(), day.end()].map(|instant| match routing {
            Routing::ProcessedAt => format!("{}+00", instant.format("%Y-%m-%d %H:%M:%S")),
            Routing::MessageId => uuid_floor(instant).to_string(),
        })
    }

    /// The instants that the partition holds; none for a default partition or unreadable bounds.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        match self {
            Self::Range(span) | Self::OffGrid(span) => Some(*span),
            Self::Default | Self::Unreadable(_) => None,
        }
    }

    /// The day, when the bounds are exactly that of one UTC day.
    #[must_use]
    pub fn day(&self) -> Option<Day> {
        let Self::Range(span) = self else { return None };
        let day = Day::containing(span.from?);
        (*span == Span::of(day)).then_some(day)
    }
}

fn parse_range(text: &str, routing: Routing) -> Option<Bounds> {
    let inner = text.strip_prefix("FOR VALUES FROM (")?.strip_suffix(')')?;
    let (from, to) = inner.split_once(") TO (")?;
    let (from, from_exact) = parse_end(from, routing, false)?;
    let (to, to_exact) = parse_end(to, routing, true)?;
    let span = Span { from, to };
    Some(if from_exact && to_exact {
        Bounds::Range(span)
    } else {
        Bounds::OffGrid(span)
    })
}

/// One end: the instant (none: unbounded), and whether it is exact.
fn parse_end(text: &str, routing: Routing, upper: bool) -> Option<(Option<DateTime<Utc>>, bool)> {
    // A bound at infinity leaves out only instants that no row of a journal can have.
    if text == if upper { "MAXVALUE" } else { "MINVALUE" } || text == if upper { "'infinity'" } else { "'-infinity'" } {
        return Some((None, true));
    }
    let value = text.strip_prefix('\'')?.strip_suffix('\'')?;
    match routing {
        Routing::ProcessedAt => {
            let naive = NaiveDateTime::parse_from_str(value.strip_suffix("+00")?, "%Y-%m-%d %H:%M:%S%.f").ok()?;
            Some((Some(naive.and_utc()), true))
        }
        Routing::MessageId => {
            let (instant, exact) = uuid_instant(Uuid::try_parse(value).ok()?)?;
            // Only whole milliseconds count as held: a lower end inside one gives it up.
            let whole = if exact || upper {
                instant
            } else {
                instant + chrono::TimeDelta::milliseconds(1)
            };
            Some((Some(whole), exact))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn day(text: &str) -> Day {
        text.parse().unwrap()
    }

    /// What PostgreSQL would print for the bounds of a day.
    fn printed(day: Day, routing: Routing) -> String {
        let [from, to] = Bounds::ends(day, routing);
        format!("FOR VALUES FROM ('{from}') TO ('{to}')")
    }

    #[test]
    fn a_day_partition_is_recognised() {
        let text = "FOR VALUES FROM ('2026-12-01 00:00:00+00') TO ('2026-12-02 00:00:00+00')";
        assert_eq!(Bounds::parse(text, Routing::ProcessedAt).day(), Some(day("2026-12-01")));
        assert_eq!(printed(day("2026-12-01"), Routing::ProcessedAt), text);
    }

    #[test]
    fn s17_what_is_not_exactly_one_day_is_no_day_but_keeps_its_span() {
        for text in [
            "FOR VALUES FROM ('2026-12-01 00:00:00+00') TO ('2026-12-03 00:00:00+00')",
            "FOR VALUES FROM ('2026-12-01 00:00:00+00') TO ('2027-12-01 00:00:00+00')",
            "FOR VALUES FROM ('2026-12-01 00:00:00.000001+00') TO ('2026-12-02 00:00:00+00')",
            "FOR VALUES FROM ('2026-11-30 23:00:00+00') TO ('2026-12-01 23:00:00+00')",
            "FOR VALUES FROM (MINVALUE) TO ('2026-12-02 00:00:00+00')",
            "FOR VALUES FROM ('2026-12-01 00:00:00+00') TO (MAXVALUE)",
        ] {
            let bounds = Bounds::parse(text, Routing::ProcessedAt);
            assert_eq!(bounds.day(), None, "{text}");
            assert!(bounds.span().is_some(), "{text}");
        }
    }

    #[test]
    fn a_uuid_bound_inside_a_millisecond_is_off_grid() {
        let d = day("2026-12-01");
        let inside = Uuid::from_u128(d.uuid_floor().as_u128() + 1);
        let text = format!("FOR VALUES FROM ('{inside}') TO ('{}')", d.next().uuid_floor());
        let bounds = Bounds::parse(&text, Routing::MessageId);
        assert_eq!(bounds.day(), None);
        assert!(!bounds.span().unwrap().contains(d.start()));
    }

    #[test]
    fn what_cannot_be_read_is_kept_as_text() {
        for text in [
            "",
            "FOR VALUES IN ('x')",
            "FOR VALUES FROM ('yesterday') TO ('today')",
            "FOR VALUES FROM ('2026-12-01 00:00:00+01') TO (MAXVALUE)",
            "FOR VALUES FROM (MAXVALUE) TO (MINVALUE)",
        ] {
            assert_eq!(
                Bounds::parse(text, Routing::ProcessedAt),
                Bounds::Unreadable(text.to_owned())
            );
        }
        assert_eq!(Bounds::parse("DEFAULT", Routing::MessageId), Bounds::Default);
    }

    proptest! {
        #[test]
        fn bounds_round_trip_in_both_routings(days in 0i64..2_932_895) {
            let day = Day::FIRST.plus(days);
            for routing in [Routing::ProcessedAt, Routing::MessageId] {
                prop_assert_eq!(Bounds::parse(&printed(day, routing), routing).day(), Some(day));
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,80}") {
            let _ = Bounds::parse(&text, Routing::ProcessedAt);
            let _ = Bounds::parse(&text, Routing::MessageId);
        }
    }
}
