//! What is wrong with a configuration, a sentence each: key, value, accepted.

use std::{fmt, str::FromStr, time::Duration};

use chrono::TimeDelta;

use crate::pure::{Ident, parse_duration};

pub(super) fn is_url_safe(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte))
}

/// What is wrong, a sentence each: key, value, accepted.
#[derive(Default)]
pub(super) struct Problems(pub(super) Vec<String>);

impl Problems {
    pub(super) fn add(&mut self, key: impl fmt::Display, value: impl fmt::Display, accepted: impl fmt::Display) {
        self.0.push(format!("{key} = {value} is not accepted: {accepted}"));
    }

    /// The types' own errors name the value and what is accepted.
    pub(super) fn parse<T: FromStr<Err: fmt::Display>>(
        &mut self,
        key: &str,
        text: Option<&str>,
        default: &str,
    ) -> Option<T> {
        let text = text.unwrap_or(default);
        text.parse()
            .map_err(|error: T::Err| self.0.push(format!("{key} = {text:?}: {error}")))
            .ok()
    }

    pub(super) fn choice<T: Copy>(&mut self, key: &str, text: Option<&str>, choices: &[(&str, T)]) -> Option<T> {
        let (default, _) = choices.first()?;
        let text = text.unwrap_or(default);
        let found = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        if found.is_none() {
            let names: Vec<String> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
            self.add(key, format!("{text:?}"), names.join(" or "));
        }
        found
    }

    pub(super) fn duration(
        &mut self,
        key: &str,
        text: Option<&str>,
        default: Duration,
        (least, most): (&str, &str),
    ) -> TimeDelta {
        let default = TimeDelta::from_std(default).unwrap_or_default();
        let Some(text) = text else { return default };
        let range = parse_duration(least).unwrap_or_default()..=parse_duration(most).unwrap_or(TimeDelta::MAX);
        match parse_duration(text).filter(|value| range.contains(value)) {
            Some(value) => value,
            None => {
                self.add(
                    key,
                    format!("{text:?}"),
                    format!("a duration with its unit from {least:?} to {most:?}"),
                );
                default
            }
        }
    }

    pub(super) fn std_duration(
        &mut self,
        key: &str,
        text: Option<&str>,
        default: Duration,
        range: (&str, &str),
    ) -> Duration {
        self.duration(key, text, default, range).to_std().unwrap_or(default)
    }

    pub(super) fn number(&mut self, key: &str, text: Option<&str>, default: i64, (least, most): (i64, i64)) -> i64 {
        let Some(text) = text else { return default };
        match text.parse().ok().filter(|value| (least..=most).contains(value)) {
            Some(value) => value,
            None => {
                self.add(
                    key,
                    format!("{text:?}"),
                    format!("a whole number from {least} to {most}"),
                );
                default
            }
        }
    }

    pub(super) fn role(&mut self, key: &str, role: String) -> Option<Ident> {
        match Ident::new(role.clone()) {
            Ok(role) => Some(role),
            Err(_) => {
                self.add(key, format!("{role:?}"), "the name of a role, of 1 to 63 bytes");
                None
            }
        }
    }
}
