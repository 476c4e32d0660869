//! The comment on a partition that says whose it is. It survives dump and restore, which OIDs do not.

use std::{fmt, str::FromStr};

use chrono::{DateTime, SecondsFormat, Utc};
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
            .map(str::parse)
            .transpose()
            .map_err(|_| NotAMarker)?;
        Ok(Self {
            inbox,
            day,
            detached_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
