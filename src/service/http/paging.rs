//! A page of what stands on record in several databases, the newest first, each record on one page.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::{
    Context, Member, acts,
    inboxes::Unreadable,
    problem::{Problem, ProblemType},
};
use crate::{
    postgres::{DbError, ErrorKind},
    service::reading::ReadError,
};

const DEFAULT_LIMIT: i64 = 50;
const LARGEST_LIMIT: i64 = 500;

/// A record with its place in the order of its database; times may step with the server's clock.
pub(super) trait Placed {
    fn at(&self) -> DateTime<Utc>;
    fn place(&self) -> i64;
}

/// A page that was asked for.
pub(super) struct Asked<'c> {
    pub(super) members: Vec<&'c Member>,
    limit: i64,
    /// The last record that was told of each database.
    places: BTreeMap<String, i64>,
}

/// A page.
pub(super) struct Page<R> {
    /// Each with its database.
    pub(super) records: Vec<(String, R)>,
    /// Asks for the next page; none on the last.
    pub(super) next_cursor: Option<String>,
    pub(super) unreadable: Vec<Unreadable>,
}

impl<'c> Asked<'c> {
    /// # Errors
    /// `DatabaseNotFound`; `BadRequest` for a limit that is too small or too large, or a cursor that is none.
    pub(super) fn of(
        context: &'c Context,
        database: Option<&str>,
        limit: Option<i64>,
        cursor: Option<&str>,
    ) -> Result<Self, Problem> {
        let bad = |detail: String| Problem::new(ProblemType::BadRequest, detail);
        let limit = limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=LARGEST_LIMIT).contains(&limit) {
            return Err(bad(format!("limit must be from 1 to {LARGEST_LIMIT}")));
        }
        let members = acts::databases(context, database)?;
        let places = match cursor {
            None => BTreeMap::new(),
            Some(text) => read_cursor(text).ok_or_else(|| bad("the cursor is none that this API gave".to_owned()))?,
        };
        Ok(Self { members, limit, places })
    }

    /// The place before which a database's records are asked for.
    pub(super) fn before(&self, member: &Member) -> Option<i64> {
        self.places.get(member.database.name.as_str()).copied()
    }

    /// How many records are asked of each: one more than fits tells whether there is a next page.
    pub(super) fn fetched(&self) -> i64 {
        self.limit + 1
    }

    /// Puts together what was found in each database, in the order of `members`.
    ///
    /// # Errors
    /// When no database can be read.
    pub(super) fn page<R: Placed>(mut self, looks: Vec<Result<Vec<R>, ReadError>>) -> Result<Page<R>, Problem> {
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for (member, look) in self.members.iter().zip(looks) {
            let database = member.database.name.clone();
            match look {
                Ok(records) => found.push((database, records.into_iter().peekable())),
                Err(error) => unreadable.push(Unreadable {
                    database,
                    error: error.message,
                }),
            }
        }
        if let (true, Some(first)) = (found.is_empty(), unreadable.first()) {
            return Err(Problem::unavailable(first.error.clone()));
        }
        let mut records = Vec::new();
        let has_more = loop {
            let newest = found
                .iter_mut()
                .filter_map(|(database, records)| Some((records.peek()?.at(), database.clone())))
                .max();
            let Some((_, newest)) = newest else { break false };
            if i64::try_from(records.len()).is_ok_and(|count| count == self.limit) {
                break true;
            }
            for (database, others) in found.iter_mut().filter(|(database, _)| *database == newest) {
                if let Some(record) = others.next() {
                    self.places.insert(database.clone(), record.place());
                    records.push((database.clone(), record));
                }
            }
        };
        Ok(Page {
            records,
            next_cursor: has_more.then(|| write_cursor(&self.places)),
            unreadable,
        })
    }
}

/// One of the connections that only read.
pub(in crate::service) async fn acquire(
    member: &Member,
) -> Result<sqlx::pool::PoolConnection<sqlx::Postgres>, DbError> {
    let pool = member
        .reader
        .pool()
        .ok_or_else(|| DbError::noticed(ErrorKind::Refused, "no database is configured"))?;
    pool.acquire().await.map_err(|error| DbError::new("connect", error))
}

pub(super) fn told(member: &Member, error: &DbError) -> ReadError {
    tracing::warn!(database = member.database.name, %error, "cannot read what is on record");
    ReadError::of(error)
}

/// Neither a name nor a number holds a comma or a colon.
fn write_cursor(places: &BTreeMap<String, i64>) -> String {
    let places: Vec<String> = places
        .iter()
        .map(|(database, place)| format!("{database}:{place}"))
        .collect();
    places.join(",")
}

fn read_cursor(text: &str) -> Option<BTreeMap<String, i64>> {
    text.split(',')
        .map(|place| {
            let (database, place) = place.split_once(':')?;
            Some((database.to_owned(), place.parse().ok()?))
        })
        .collect()
}
