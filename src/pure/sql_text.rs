//! SQL text made from a template in `sql/` and fragments that are quoted by construction.
//!
//! Knows no database. Only what is made here is ever put into a statement's text.

use super::Ident;
#[cfg(any(test, feature = "maintain"))]
use super::TableName;

/// A piece of SQL text that is safe to put into a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sql(String);

impl Sql {
    pub(crate) fn in_schema(schema: &Ident, relation: &Ident) -> Self {
        Self(format!("{}.{}", schema.quoted(), relation.quoted()))
    }

    /// Foreign text as a literal of ASCII letters only. It reads the same whatever `standard_conforming_strings` and
    /// `client_encoding` say: in some encodings a quote or a backslash can be the second half of a letter.
    pub(crate) fn text(text: &str) -> Self {
        use std::fmt::Write as _;
        let mut quoted = String::with_capacity(text.len() + 3);
        quoted.push_str("E'");
        for letter in text.chars() {
            match letter {
                '\'' => quoted.push_str("''"),
                '\\' => quoted.push_str("\\\\"),
                ' '..='~' => quoted.push(letter),
                _ => {
                    // Writing to a string cannot fail.
                    let _ = write!(quoted, "\\U{:08X}", u32::from(letter));
                }
            }
        }
        quoted.push('\'');
        Self(quoted)
    }

    pub(crate) fn null() -> Self {
        Self::fixed("null")
    }

    /// `array[…]` of literals; its type is the caller's to say.
    pub(crate) fn array(items: impl Iterator<Item = Self>) -> Self {
        let items: Vec<String> = items.map(|item| item.0).collect();
        Self(format!("array[{}]", items.join(", ")))
    }

    /// Text that stands in our own source.
    pub(crate) fn fixed(text: &'static str) -> Self {
        Self(text.to_owned())
    }

    /// One fragment made of others.
    pub(crate) fn of(template: &'static str, values: &[(&str, Sql)]) -> Self {
        Self(render(template, values))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// What only DDL is made of.
#[cfg_attr(not(feature = "maintain"), expect(dead_code, reason = "the tests use some of it"))]
#[cfg(any(test, feature = "maintain"))]
impl Sql {
    pub(crate) fn ident(name: &Ident) -> Self {
        Self(name.quoted())
    }

    pub(crate) fn table(name: &TableName) -> Self {
        Self(name.quoted())
    }

    /// A string literal that reads the same whatever `standard_conforming_strings` says.
    pub(crate) fn literal(text: &str) -> Self {
        let quoted = text.replace('\'', "''");
        Self(if text.contains('\\') {
            format!("E'{}'", quoted.replace('\\', "\\\\"))
        } else {
            format!("'{quoted}'")
        })
    }

    pub(crate) fn number(value: i64) -> Self {
        Self(value.to_string())
    }

    /// An interval literal.
    pub(crate) fn seconds(value: i64) -> Self {
        Self(format!("'{value} seconds'"))
    }

    /// Texts that stand in our own source, with commas between them.
    pub(crate) fn list(texts: &[&'static str]) -> Self {
        Self(texts.join(", "))
    }

    /// Fragments with something of our own between them.
    pub(crate) fn joined(items: &[Self], between: &'static str) -> Self {
        let items: Vec<&str> = items.iter().map(Self::as_str).collect();
        Self(items.join(between))
    }

    /// A dollar quote from its tag, which holds letters and underscores only.
    pub(crate) fn dollar_quote(tag: &str) -> Self {
        Self(format!("${tag}$"))
    }
}

/// Puts fragments into a template's `{{names}}`, in one pass: a fragment's own text is never read as a template. A name
/// without a fragment stays as it is, and the server refuses it; a test renders every template.
pub(crate) fn render(template: &str, values: &[(&str, Sql)]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once("{{") {
        text.push_str(before);
        let found = behind.split_once("}}").and_then(|(name, after)| {
            let (_, value) = values.iter().find(|(known, _)| *known == name)?;
            Some((value, after))
        });
        match found {
            Some((value, after)) => {
                text.push_str(value.as_str());
                rest = after;
            }
            None => {
                text.push_str("{{");
                rest = behind;
            }
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_template_in_a_name_stays_a_name() {
        let evil = Ident::new("{{b}}\"; drop").unwrap();
        let text = render(
            "select {{a}}, {{b}}",
            &[("a", Sql::ident(&evil)), ("b", Sql::number(1))],
        );
        assert_eq!(text, "select \"{{b}}\"\"; drop\", 1");
    }

    #[test]
    fn foreign_text_becomes_ascii() {
        assert_eq!(Sql::text("it's").as_str(), "E'it''s'");
        assert_eq!(Sql::text("a\\'b").as_str(), "E'a\\\\''b'");
        assert_eq!(Sql::text("ü\n😀").as_str(), "E'\\U000000FC\\U0000000A\\U0001F600'");
    }

    #[test]
    fn literals_are_quoted_for_either_setting() {
        assert_eq!(Sql::literal("it's").as_str(), "'it''s'");
        assert_eq!(Sql::literal("a\\'b").as_str(), "E'a\\\\''b'");
    }
}
