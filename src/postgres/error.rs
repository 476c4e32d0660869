//! Database errors by kind. SQLSTATE decides, in one place; message text never does, for it comes in many languages.

use std::fmt;

/// What a database error means for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[cfg_attr(feature = "service", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// A lock could not be had in time.
    LockTimeout,
    /// A statement took longer than its limit, or was cancelled.
    StatementTimeout,
    /// We were chosen to give way in a deadlock.
    Deadlock,
    /// The server has no room for another lock.
    TooManyLocks,
    /// A name is taken, or a range overlaps another partition's.
    Taken,
    /// An object that should be there is not.
    Missing,
    /// An object is in another state than the statement needs.
    WrongState,
    /// A privilege is missing.
    Privilege,
    /// The server, or this role's setting, lets nobody write.
    ReadOnly,
    /// User or password were refused, or the database does not exist.
    Refused,
    /// The disk is full.
    DiskFull,
    /// The server cannot be reached, is starting or stopping, or cut the connection.
    Unreachable,
    /// Anything else.
    Other,
}

impl ErrorKind {
    /// Sorts a SQLSTATE.
    #[must_use]
    pub fn of_sqlstate(code: &str) -> Self {
        match code {
            "55P03" => Self::LockTimeout,
            "57014" => Self::StatementTimeout,
            "40P01" | "40001" => Self::Deadlock,
            "53200" => Self::TooManyLocks,
            // 23505: a name that another transaction had taken, but not yet committed, collides in the catalog's own index.
            "42P07" | "23505" | "42P06" | "42710" | "42P17" | "42723" => Self::Taken,
            "42P01" | "42704" | "3F000" | "42883" => Self::Missing,
            "55000" | "55006" | "42809" => Self::WrongState,
            "42501" => Self::Privilege,
            "25006" => Self::ReadOnly,
            "53100" => Self::DiskFull,
            "53300" | "57P01" | "57P02" | "57P03" | "57P05" => Self::Unreachable,
            "3D000" => Self::Refused,
            _ if code.starts_with("28") => Self::Refused,
            _ if code.starts_with("08") => Self::Unreachable,
            _ => Self::Other,
        }
    }

    /// Sorts an error of the driver.
    #[must_use]
    pub fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(database) => database.code().map_or(Self::Other, |code| Self::of_sqlstate(&code)),
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Unreachable,
            _ => Self::Other,
        }
    }

    /// Whether the same statement may succeed a moment later.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::LockTimeout | Self::StatementTimeout | Self::Deadlock | Self::TooManyLocks
        )
    }

    /// Whether the connection is of no more use.
    #[must_use]
    pub fn is_unreachable(self) -> bool {
        self == Self::Unreachable
    }

    /// The kind as a clause.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::LockTimeout => "a lock could not be had in time",
            Self::StatementTimeout => "a statement took too long",
            Self::Deadlock => "it gave way in a deadlock",
            Self::TooManyLocks => "the server has no room for another lock",
            Self::Taken => "a name or a range is taken",
            Self::Missing => "something that should be there is not",
            Self::WrongState => "something is in another state than it must be",
            Self::Privilege => "a privilege is missing",
            Self::ReadOnly => "the database lets nobody write",
            Self::Refused => "the database refused user, password or database",
            Self::DiskFull => "the disk is full",
            Self::Unreachable => "the database cannot be reached",
            Self::Other => "it failed",
        }
    }

    /// The kind as one word, as it is recorded.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LockTimeout => "lock_timeout",
            Self::StatementTimeout => "statement_timeout",
            Self::Deadlock => "deadlock",
            Self::TooManyLocks => "too_many_locks",
            Self::Taken => "taken",
            Self::Missing => "missing",
            Self::WrongState => "wrong_state",
            Self::Privilege => "privilege",
            Self::ReadOnly => "read_only",
            Self::Refused => "refused",
            Self::DiskFull => "disk_full",
            Self::Unreachable => "unreachable",
            Self::Other => "other",
        }
    }
}

/// A database error, with what was being done.
#[derive(Debug)]
pub struct DbError {
    kind: ErrorKind,
    doing: String,
    source: Option<sqlx::Error>,
    /// What to do about it, for outside too.
    remedy: Option<&'static str>,
}

impl DbError {
    /// Wraps an error of the driver.
    pub fn new(doing: impl Into<String>, source: sqlx::Error) -> Self {
        Self {
            kind: ErrorKind::of(&source),
            doing: doing.into(),
            source: Some(source),
            remedy: None,
        }
    }

    /// The same, where we know better than the SQLSTATE what it means and what is to be done.
    pub(crate) fn meaning(self, kind: ErrorKind, remedy: &'static str) -> Self {
        Self {
            kind,
            remedy: Some(remedy),
            ..self
        }
    }

    /// An error that we noticed ourselves.
    pub fn noticed(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            doing: what.into(),
            source: None,
            remedy: None,
        }
    }

    /// The SQLSTATE, where the server gave one.
    pub(crate) fn sqlstate(&self) -> Option<String> {
        let code = self.source.as_ref()?.as_database_error()?.code()?;
        Some(code.into_owned())
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The error without what the database or the driver said: for those who may not see that.
    #[must_use]
    pub fn in_our_words(&self) -> String {
        if self.source.is_none() {
            self.doing.clone()
        } else {
            let what = self.remedy.unwrap_or(self.kind.describe());
            format!("{what}; the log says why")
        }
    }
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.doing)?;
        match &self.source {
            // The database's own sentence, without the driver's frame round it.
            Some(sqlx::Error::Database(database)) => {
                write!(f, ": {}", database.message())?;
                database.code().map_or(Ok(()), |code| write!(f, " (SQLSTATE {code})"))
            }
            Some(other) => write!(f, ": {other}"),
            None => Ok(()),
        }?;
        self.remedy.map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl std::error::Error for DbError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// Names what was being done when the driver failed.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, DbError>;
}

impl<T> Doing<T> for Result<T, sqlx::Error> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, DbError> {
        self.map_err(|error| DbError::new(what(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sqlstate_decides_what_is_retried() {
        for (code, kind, retryable) in [
            ("55P03", ErrorKind::LockTimeout, true),
            ("57014", ErrorKind::StatementTimeout, true),
            ("40P01", ErrorKind::Deadlock, true),
            ("42P07", ErrorKind::Taken, false),
            ("42501", ErrorKind::Privilege, false),
            ("28P01", ErrorKind::Refused, false),
            ("08006", ErrorKind::Unreachable, false),
            ("57P01", ErrorKind::Unreachable, false),
            ("XX000", ErrorKind::Other, false),
        ] {
            assert_eq!(ErrorKind::of_sqlstate(code), kind, "{code}");
            assert_eq!(kind.is_retryable(), retryable, "{code}");
        }
    }
}
