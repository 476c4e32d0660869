//! The comment on a partition that says whose it is. It survives dump and restore, which OIDs do not.

use std::{fmt, str::FromStr};

use chrono::{DateTime, SecondsFormat, SubsecRound, Utc};
use uuid::Uuid;

use super::Day;

/// Whose partition a table is, which day it holds, and since when it is detached.
///
/// Its text form, as it stands in the catalog: `inboxd inbox=<uuid> day=YYYY-MM-DD`, with ` detached=<RFC 3339>` behind
/// it once the partition has been taken out of the inbox.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Marker {
    /// The inbox's own identity, made by `init`.
    pub inbox: Uuid,
    /// The day that the partition holds.
    pub day: Day,
    /// When it was detached, by the database's clock.
    pub detached_at: Option<DateTime<Utc>>,
}

/// What every marker begins with.
const PREFIX: &str = "inboxd inbox=";

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{} day={}", self.inbox, self.day)?;
        if let Some(at) = self.detached_at {
            write!(f, " detached={}", at.to_rfc3339_opts(SecondsFormat::Micros, true))?;
        }
        Ok(())
    }
}

/// A comment that is no marker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an inboxd marker")]
pub struct NotAMarker;

impl FromStr for Marker {
    type Err = NotAMarker;

    fn from_str(text: &str) -> Result<Self, NotAMarker> {
        let mut words = text.strip_prefix(PREFIX).ok_or(NotAMarker)?.split(' ');
        let inbox = words
            .next()
            .and_then(|word| Uuid::try_parse(word).ok())
            .ok_or(NotAMarker)?;
        let day = words
            .next()
            .and_then(|word| word.strip_prefix("day=")?.parse().ok())
            .ok_or(NotAMarker)?;
        // A later version may say more: unknown words are passed over, a broken time is not.
        let detached_at = words
            .find_map(|word| word.strip_prefix("detached="))
            .map(read_time)
            .transpose()?;
        Ok(Self {
            inbox,
            day,
            detached_at,
        })
    }
}

/// A time as precise as a marker shows it, which is as the database's clock is. Somebody's hand may have written more.
fn read_time(text: &str) -> Result<DateTime<Utc>, NotAMarker> {
    let time: DateTime<Utc> = text.parse().map_err(|_| NotAMarker)?;
    Ok(time.trunc_subsecs(6))
}

/// What a drain leaves, as the comment on it says: `inboxd inbox=<uuid> copies_of=<oid> pages=<n> since=<xid>` on the
/// table that it copies to, `inboxd inbox=<uuid> drained=<RFC 3339>` on what was the default partition.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum LeftByDrain {
    /// Copies of rows for which the default partition still answers.
    Copies {
        /// The inbox's identity.
        inbox: Uuid,
        /// The object identifier of the default partition.
        of: u32,
        /// How many of its pages are copied.
        pages: u32,
        /// Rows of transactions from this one on may have been missed.
        since: u32,
    },
    /// The default partition itself, when its rows are in partitions of their days.
    Drained {
        /// The inbox's identity.
        inbox: Uuid,
        /// When, by the database's clock.
        at: DateTime<Utc>,
    },
}

impl LeftByDrain {
    /// The identity of the inbox that was drained.
    #[must_use]
    pub fn inbox(&self) -> Uuid {
        match self {
            Self::Copies { inbox, .. } | Self::Drained { inbox, .. } => *inbox,
        }
    }
}

impl fmt::Display for LeftByDrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{} ", self.inbox())?;
        match self {
            Self::Copies { of, pages, since, .. } => write!(f, "copies_of={of} pages={pages} since={since}"),
            Self::Drained { at, .. } => write!(f, "drained={}", at.to_rfc3339_opts(SecondsFormat::Micros, true)),
        }
    }
}

impl FromStr for LeftByDrain {
    type Err = NotAMarker;

    fn from_str(text: &str) -> Result<Self, NotAMarker> {
        let words: Vec<&str> = text.strip_prefix(PREFIX).ok_or(NotAMarker)?.split(' ').collect();
        let inbox = |word: &str| Uuid::try_parse(word).map_err(|_| NotAMarker);
        let number = |word: &str, name| {
            let number = word.strip_prefix(name).and_then(|number| number.parse().ok());
            number.ok_or(NotAMarker)
        };
        match words[..] {
            [id, of, pages, since] => Ok(Self::Copies {
                inbox: inbox(id)?,
                of: number(of, "copies_of=")?,
                pages: number(pages, "pages=")?,
                since: number(since, "since=")?,
            }),
            [id, drained] => {
                let at = drained.strip_prefix("drained=").ok_or(NotAMarker)?;
                Ok(Self::Drained {
                    inbox: inbox(id)?,
                    at: read_time(at)?,
                })
            }
            _ => Err(NotAMarker),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_drain_leaves_reads_back_and_is_no_marker_of_a_day() {
        let inbox = Uuid::from_u128(7);
        let at = "2026-12-09T00:10:00.123456Z".parse().unwrap();
        let copies = LeftByDrain::Copies {
            inbox,
            of: 16_384,
            pages: 128,
            since: 740,
        };
        for left in [copies, LeftByDrain::Drained { inbox, at }] {
            let text = left.to_string();
            assert_eq!(text.parse(), Ok(left));
            assert_eq!(text.parse::<Marker>(), Err(NotAMarker));
        }
        let day = format!("inboxd inbox={inbox} day=2026-12-01");
        assert_eq!(day.parse::<LeftByDrain>(), Err(NotAMarker));
        assert_eq!(
            "inboxd inbox=x drained=2026-12-09T00:10:00Z".parse::<LeftByDrain>(),
            Err(NotAMarker)
        );
    }

    #[test]
    fn a_marker_reads_back_and_nothing_else_is_one() {
        let mut marker = Marker {
            inbox: Uuid::from_u128(7),
            day: "2026-12-01".parse().unwrap(),
            detached_at: None,
        };
        assert_eq!(marker.to_string().parse(), Ok(marker.clone()));
        marker.detached_at = Some("2026-12-09T00:10:00.123456Z".parse().unwrap());
        assert_eq!(marker.to_string().parse(), Ok(marker.clone()));
        assert_eq!(format!("{marker} later=word").parse(), Ok(marker));
        let finer: Marker =
            "inboxd inbox=00000000-0000-0000-0000-000000000007 day=2026-12-01 detached=2026-12-09T00:10:00.1234996Z"
                .parse()
                .unwrap();
        assert_eq!(finer.to_string().parse(), Ok(finer));
        for text in [
            "",
            "my table",
            "inboxd inbox=x day=2026-12-01",
            "inboxd inbox=00000000-0000-0000-0000-000000000007",
        ] {
            assert_eq!(text.parse::<Marker>(), Err(NotAMarker), "{text}");
        }
    }
}
