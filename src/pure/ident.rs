//! SQL identifiers: what a table may be called, and every name that is made from it.
//!
//! Owns the 63-byte limit. PostgreSQL cuts a longer name in silence; here it is refused, and nothing is ever cut.

use std::{fmt, str::FromStr};

use super::Day;

/// PostgreSQL's `NAMEDATALEN - 1`: the longest identifier, in bytes.
pub const MAX_IDENT_BYTES: usize = 63;

/// The longest table name that leaves room for every derived name (`_YYYY_MM_DD_pkey` is 16 bytes).
pub const MAX_TABLE_BYTES: usize = 47;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentError {
    /// Nothing between the dots or quotes.
    #[error("{text:?} has an empty name in it; write schema.table, for example public.inbox")]
    Empty {
        /// What was given.
        text: String,
    },
    /// Longer than PostgreSQL, or the names derived from it, can bear.
    #[error("{name:?} has {bytes} bytes; {what} may have at most {limit} (PostgreSQL would cut names in silence)")]
    TooLong {
        /// The name that is too long.
        name: String,
        /// What kind of name it is.
        what: &'static str,
        /// Its length in bytes.
        bytes: usize,
        /// The longest allowed, in bytes.
        limit: usize,
    },
    /// A byte that no PostgreSQL name can hold.
    #[error("{text:?} holds a NUL byte, which no PostgreSQL name can")]
    Nul {
        /// What was given.
        text: String,
    },
    /// An unquoted name with a character that would need quotes.
    #[error(
        "{text:?} is not a plain name at {found:?}; put double quotes round the name, as in SQL: \"my-schema\".\"Inbox\""
    )]
    NeedsQuotes {
        /// What was given.
        text: String,
        /// The character in the way.
        found: char,
    },
    /// Quotes that do not pair, or text after them.
    #[error("{text:?} is not schema.table: the quotes or dots do not pair")]
    Malformed {
        /// What was given.
        text: String,
    },
    /// A schema that belongs to PostgreSQL or to inboxd itself.
    #[error("schema {schema:?} is reserved; an inbox lives in a schema of its application")]
    ReservedSchema {
        /// The schema asked for.
        schema: String,
    },
}

/// One PostgreSQL identifier: 1 to 63 bytes, no NUL, exactly as the catalog stores it (no quotes).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ident(String);

impl Ident {
    /// Takes a name exactly as the catalog stores it.
    ///
    /// # Errors
    /// When it is empty, holds a NUL byte or has more than 63 bytes.
    pub fn new(name: impl Into<String>) -> Result<Self, IdentError> {
        let name = name.into();
        if name.is_empty() {
            return Err(IdentError::Empty { text: name });
        }
        if name.contains('\0') {
            return Err(IdentError::Nul { text: name });
        }
        if name.len() > MAX_IDENT_BYTES {
            return Err(IdentError::TooLong {
                bytes: name.len(),
                name,
                what: "a name",
                limit: MAX_IDENT_BYTES,
            });
        }
        Ok(Self(name))
    }

    /// The name as the catalog stores it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name in double quotes, ready for SQL text.
    #[must_use]
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.0.replace('"', "\"\""))
    }
}

impl fmt::Display for Ident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl serde::Serialize for Ident {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// A name that inboxd makes from a table's name. See [`TableName::derive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Derived {
    /// The partition of a day: `<table>_YYYY_MM_DD`.
    Partition(Day),
    /// The primary key of a day's partition.
    PartitionKey(Day),
    /// The check constraint that spares the attach of a day's partition its scan.
    PartitionCheck(Day),
    /// The unique index that stands in for a day's lost primary key.
    RepairedKey(Day),
    /// The table that a default partition's rows are copied to, while it is drained.
    DrainCopies,
    /// What becomes a day's partition, while a default partition is drained.
    DrainCopy(Day),
    /// Its primary key.
    DrainCopyKey(Day),
    /// The primary key of the inbox itself (`message_id` routing).
    InboxKey,
    /// A table that was adopted: the inbox's first partition, which holds many days.
    Adopted,
    /// What becomes the inbox, before it has the table's name.
    AdoptParent,
    /// The check constraint that keeps a table that is to be adopted below the beginning of a day.
    AdoptUntil(Day),
    /// The check constraint that shows that a table to be adopted holds no nulls.
    AdoptFilled,
    /// The partition without an upper bound that a release leaves.
    Rest,
    /// The key of that.
    RestKey,
    /// A slot of the digest: 0 to 2.
    DigestSlot(usize),
    /// A function of the inbox.
    Function(Function),
}

/// The functions that stand beside an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Function {
    /// `<t>_claim`: true when fresh, waits for a twin without bound.
    Claim,
    /// `<t>_try_claim`: the outcome as a value, with a bounded wait.
    TryClaim,
    /// `<t>_claim_batch`: many claims at once.
    ClaimBatch,
    /// `<t>_forget`: takes one id out of the journal.
    Forget,
    /// `<t>_claim_inner`: the one implementation under the others.
    Inner,
    /// `<t>_claim_wait`: the inner claim under a lock timeout.
    Wait,
    /// `<t>_batch_inner`: many claims in one statement each of locks, looks and inserts.
    BatchInner,
    /// `<t>_batch_wait`: a batch under a lock timeout.
    BatchWait,
    /// `<t>_sealed`: the trigger of a day that takes no row any more.
    Sealed,
}

impl Derived {
    fn suffix(self) -> String {
        match self {
            Self::Partition(day) => format!("_{}", day.underscored()),
            Self::PartitionKey(day) => format!("_{}_pkey", day.underscored()),
            Self::PartitionCheck(day) => format!("_{}_day", day.underscored()),
            Self::RepairedKey(day) => format!("_{}_uniq", day.underscored()),
            Self::DrainCopies => "_drain".to_owned(),
            Self::DrainCopy(day) => format!("_{}_copy", day.underscored()),
            Self::DrainCopyKey(day) => format!("_{}_ckey", day.underscored()),
            Self::InboxKey => "_pkey".to_owned(),
            Self::Adopted => "_adopted".to_owned(),
            Self::AdoptParent => "_adopt_parent".to_owned(),
            Self::AdoptUntil(day) => format!("_to_{}", day.underscored()),
            Self::AdoptFilled => "_adopt_filled".to_owned(),
            Self::Rest => "_rest".to_owned(),
            Self::RestKey => "_rest_pkey".to_owned(),
            Self::DigestSlot(slot) => format!("_digest_{slot}"),
            Self::Function(function) => match function {
                Function::Claim => "_claim",
                Function::TryClaim => "_try_claim",
                Function::ClaimBatch => "_claim_batch",
                Function::Forget => "_forget",
                Function::Inner => "_claim_inner",
                Function::Wait => "_claim_wait",
                Function::BatchInner => "_batch_inner",
                Function::BatchWait => "_batch_wait",
                Function::Sealed => "_sealed",
            }
            .to_owned(),
        }
    }
}

/// The schema-qualified name of an inbox table: at most 47 bytes for the table, so that every derived name fits.
///
/// Written as in SQL: unquoted names fold to lower case, quoted ones stay as they are, and a missing schema means `public`.
///
/// # Examples
/// ```
/// use inboxd::TableName;
///
/// let name: TableName = r#"Sales."Order Inbox""#.parse()?;
/// assert_eq!((name.schema().as_str(), name.table().as_str()), ("sales", "Order Inbox"));
/// assert!("x".repeat(48).parse::<TableName>().is_err());
/// # Ok::<(), inboxd::IdentError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    schema: Ident,
    table: Ident,
}

impl TableName {
    /// Takes both names exactly as the catalog stores them.
    ///
    /// # Errors
    /// When a name is empty, holds NUL or is too long, or the schema is PostgreSQL's or inboxd's own.
    pub fn new(schema: impl Into<String>, table: impl Into<String>) -> Result<Self, IdentError> {
        let (schema, table) = (Ident::new(schema)?, table.into());
        if schema.as_str().starts_with("pg_") || ["information_schema", "inboxd"].contains(&schema.as_str()) {
            return Err(IdentError::ReservedSchema { schema: schema.0 });
        }
        if table.len() > MAX_TABLE_BYTES {
            return Err(IdentError::TooLong {
                bytes: table.len(),
                name: table,
                what: "the name of an inbox table",
                limit: MAX_TABLE_BYTES,
            });
        }
        Ok(Self {
            schema,
            table: Ident::new(table)?,
        })
    }

    /// The schema.
    #[must_use]
    pub fn schema(&self) -> &Ident {
        &self.schema
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &Ident {
        &self.table
    }

    /// The one place where a name is made from the table's name.
    ///
    /// # Errors
    /// When the result has more than 63 bytes. It is refused, never cut.
    pub fn derive(&self, derived: Derived) -> Result<Ident, IdentError> {
        Ident::new(format!("{}{}", self.table.as_str(), derived.suffix()))
    }

    /// The name of a day's partition.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "a table has at most 47 bytes and the suffix is always 11"
    )]
    pub fn partition(&self, day: Day) -> Ident {
        self.derive(Derived::Partition(day)).expect("47 + 11 bytes fit in 63")
    }

    /// The day that a relation of this name would be the partition of, if it is named like one.
    #[must_use]
    pub fn day_of(&self, relation: &str) -> Option<Day> {
        let underscored = relation.strip_prefix(self.table.as_str())?.strip_prefix('_')?;
        let day = Day::from_underscored(underscored)?;
        (self.partition(day).as_str() == relation).then_some(day)
    }

    /// The name of the first partition of an inbox that was adopted: the table as it was, which holds many days.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a table has at most 47 bytes and the suffix is 8")]
    pub fn adopted(&self) -> Ident {
        self.derive(Derived::Adopted).expect("47 + 8 bytes fit in 63")
    }

    /// The day that a check constraint keeps this table below, if its name is that of such a constraint.
    #[must_use]
    pub fn adopted_until(&self, constraint: &str) -> Option<Day> {
        let underscored = constraint.strip_prefix(self.table.as_str())?.strip_prefix("_to_")?;
        Day::from_underscored(underscored)
    }

    /// `"schema"."table"`, ready for SQL text.
    #[must_use]
    pub fn quoted(&self) -> String {
        self.quoted_sibling(&self.table)
    }

    /// `"schema"."relation"`: another object in the inbox's schema, ready for SQL text.
    #[must_use]
    pub fn quoted_sibling(&self, relation: &Ident) -> String {
        format!("{}.{}", self.schema.quoted(), relation.quoted())
    }
}

impl fmt::Display for TableName {
    /// As one would write it in SQL: quoted only where it must be. Parses back to the same name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, dot) in [(&self.schema, "."), (&self.table, "")] {
            let plain = name
                .0
                .chars()
                .enumerate()
                .all(|(i, c)| is_plain(c, i == 0) && !c.is_ascii_uppercase());
            let text = if plain { name.0.clone() } else { name.quoted() };
            write!(f, "{text}{dot}")?;
        }
        Ok(())
    }
}

impl serde::Serialize for TableName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for TableName {
    type Err = IdentError;

    fn from_str(text: &str) -> Result<Self, IdentError> {
        let (first, rest) = take_name(text, text)?;
        match rest {
            None => Self::new("public", first),
            Some(rest) => {
                let (second, rest) = take_name(rest, text)?;
                match rest {
                    None => Self::new(first, second),
                    Some(_) => Err(IdentError::Malformed { text: text.to_owned() }),
                }
            }
        }
    }
}

fn is_plain(c: char, first: bool) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii() || (!first && (c.is_ascii_digit() || c == '$'))
}

/// Takes one name off the front; returns it and what stands behind the dot, if there is a dot.
fn take_name<'a>(input: &'a str, whole: &str) -> Result<(String, Option<&'a str>), IdentError> {
    let malformed = || IdentError::Malformed { text: whole.to_owned() };
    let (name, rest) = if let Some(quoted) = input.strip_prefix('"') {
        let mut name = String::new();
        let mut chars = quoted.char_indices().peekable();
        loop {
            match chars.next() {
                None => return Err(malformed()),
                Some((_, '"')) if chars.peek().is_some_and(|(_, c)| *c == '"') => {
                    chars.next();
                    name.push('"');
                }
                Some((at, '"')) => break (name, &quoted[at + 1..]),
                Some((_, c)) => name.push(c),
            }
        }
    } else {
        let end = input.find('.').unwrap_or(input.len());
        let name = &input[..end];
        if let Some((_, found)) = name.chars().enumerate().find(|(i, c)| !is_plain(*c, *i == 0)) {
            return Err(IdentError::NeedsQuotes {
                text: whole.to_owned(),
                found,
            });
        }
        (name.to_ascii_lowercase(), &input[end..])
    };
    if name.is_empty() {
        return Err(IdentError::Empty { text: whole.to_owned() });
    }
    match rest.strip_prefix('.') {
        Some(behind) => Ok((name, Some(behind))),
        None if rest.is_empty() => Ok((name, None)),
        None => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> (String, String) {
        let name: TableName = text.parse().unwrap();
        (name.schema.0, name.table.0)
    }

    #[test]
    fn names_are_read_as_sql_reads_them() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(name("inbox"), pair("public", "inbox"));
        assert_eq!(name("Sales.Inbox"), pair("sales", "inbox"));
        assert_eq!(name(r#""Sales"."In.Box""#), pair("Sales", "In.Box"));
        assert_eq!(name(r#"public."in""box; drop""#), pair("public", r#"in"box; drop"#));
        assert_eq!(name("public.größe"), pair("public", "größe"));
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_reason() {
        for (text, needle) in [
            ("", "empty"),
            ("public.", "empty"),
            (r#""""#, "empty"),
            ("a.b.c", "pair"),
            (r#"public."inbox"#, "pair"),
            (r#"public."inbox"x"#, "pair"),
            ("my-inbox", "double quotes"),
            ("1inbox", "double quotes"),
            ("\"a\0b\"", "NUL"),
            ("pg_catalog.inbox", "reserved"),
            ("inboxd.inbox", "reserved"),
        ] {
            let error = text.parse::<TableName>().unwrap_err().to_string();
            assert!(error.contains(needle), "{text:?}: {error}");
        }
    }

    #[test]
    fn s9_a_table_name_over_47_bytes_is_refused_with_the_longest_allowed() {
        assert!("x".repeat(47).parse::<TableName>().is_ok());
        for name in ["x".repeat(48), "ж".repeat(27)] {
            let error = name.parse::<TableName>().unwrap_err().to_string();
            assert!(error.contains("at most 47"), "{error}");
        }
    }

    #[test]
    fn every_derived_name_of_the_longest_table_fits() {
        let longest = TableName::new("public", "x".repeat(MAX_TABLE_BYTES)).unwrap();
        let day: Day = "2026-12-01".parse().unwrap();
        for derived in [
            Derived::Partition(day),
            Derived::PartitionKey(day),
            Derived::PartitionCheck(day),
            Derived::DrainCopies,
            Derived::DrainCopy(day),
            Derived::DrainCopyKey(day),
            Derived::InboxKey,
            Derived::Adopted,
            Derived::AdoptParent,
            Derived::AdoptUntil(day),
            Derived::AdoptFilled,
            Derived::Rest,
            Derived::RestKey,
            Derived::Function(Function::ClaimBatch),
            Derived::Function(Function::Inner),
            Derived::Function(Function::BatchInner),
        ] {
            assert!(longest.derive(derived).is_ok(), "{derived:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic_and_what_it_takes_reads_back(text in prop_oneof![".{0,60}", "[a-z.\" é]{0,60}"]) {
            let Ok(table) = text.parse::<TableName>() else { return Ok(()) };
            prop_assert_eq!(&table.to_string().parse::<TableName>().unwrap(), &table);
            let day: Day = "2026-12-01".parse().unwrap();
            prop_assert_eq!(table.day_of(table.partition(day).as_str()), Some(day));
        }

        #[test]
        fn what_is_shown_reads_back_as_the_same_name(schema in "[a-zA-Zé\"._ -]{1,20}", table in "[a-zA-Zé\"._ 0-9-]{1,20}") {
            prop_assume!(!schema.starts_with("pg_"));
            let name = TableName::new(schema, table).unwrap();
            prop_assert_eq!(name.to_string().parse::<TableName>().unwrap(), name);
        }

        #[test]
        fn a_partition_name_gives_back_its_day(days in 0i64..2_932_896, table in "[a-z\"é_]{1,20}") {
            let name = TableName::new("public", table).unwrap();
            let day = Day::FIRST.plus(days);
            let partition = name.partition(day);
            prop_assert_eq!(name.day_of(partition.as_str()), Some(day));
        }
    }
}
