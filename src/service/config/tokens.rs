//! Access tokens: read once from a file or a variable, kept as digests, compared in constant time, never shown.

use std::{collections::HashMap, fmt};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{
    ENV_PREFIX,
    problems::{Problems, is_url_safe},
    raw::{RawHttp, RawToken},
};

/// 16 random characters of the alphabet are some 95 bits, which nobody guesses over a network.
const SHORTEST_TOKEN: usize = 16;
/// The body limit's sister: no header needs more.
const LONGEST_TOKEN: usize = 512;

/// What a request with a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Look.
    Read,
    /// Look and change.
    Admin,
}

/// The tokens of HTTP. With none at all everything is allowed, and only loopback is served.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

#[derive(Clone, PartialEq, Eq)]
struct Token {
    name: String,
    access: Access,
    digest: [u8; 32],
}

impl Tokens {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of a token and what it may do; none for one that is not known.
    ///
    /// All are compared, each in constant time: neither the answer's time nor its order tells how much of a guess fits.
    #[must_use]
    pub fn recognize(&self, presented: &[u8]) -> Option<(&str, Access)> {
        let digest: [u8; 32] = Sha256::digest(presented).into();
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.digest.ct_eq(&digest)) {
                found = Some((token.name.as_str(), token.access));
            }
        }
        found
    }
}

/// Names and rights only.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.0.iter().map(|token| (&token.name, token.access)))
            .finish()
    }
}

/// Reads the tokens that are configured.
pub(super) fn tokens(problems: &mut Problems, http: &RawHttp, environment: &HashMap<String, String>) -> Tokens {
    let lists = [
        ("http.read_tokens", &http.read_tokens, Access::Read),
        ("http.admin_tokens", &http.admin_tokens, Access::Admin),
    ];
    let mut tokens = Tokens::default();
    for (list, raw_tokens, access) in lists {
        for (index, raw) in raw_tokens.iter().enumerate() {
            let key = format!("{list}.{index}");
            if raw.name.is_empty() || raw.name.len() > 100 || !is_url_safe(&raw.name) {
                let accepted = "1 to 100 of the characters A-Z a-z 0-9 . _ ~ -, for it stands in the log";
                problems.add(format!("{key}.name"), &raw.name, accepted);
            }
            let Some(text) = text(problems, &key, raw, environment) else {
                continue;
            };
            let digest = Sha256::digest(text.as_bytes()).into();
            if let Some(twin) = tokens
                .0
                .iter()
                .find(|token| token.name == raw.name || token.digest == digest)
            {
                problems.add(
                    &key,
                    &raw.name,
                    format!("each name and each token once; {} has it already", twin.name),
                );
            }
            tokens.0.push(Token {
                name: raw.name.clone(),
                access,
                digest,
            });
        }
    }
    tokens
}

/// The token itself, which no message shows.
fn text(problems: &mut Problems, key: &str, raw: &RawToken, environment: &HashMap<String, String>) -> Option<String> {
    let accepted = "either file, or variable (of the environment, beginning otherwise than INBOXD_)";
    let text = match (&raw.file, &raw.variable) {
        (Some(file), None) => match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => {
                problems.add(
                    format!("{key}.file"),
                    format!("{file:?}"),
                    format!("a file that holds the token ({error})"),
                );
                return None;
            }
        },
        (None, Some(variable)) if !variable.starts_with(ENV_PREFIX) => match environment.get(variable) {
            Some(text) => text.clone(),
            None => {
                problems.add(format!("{key}.variable"), variable, "a variable that is set");
                return None;
            }
        },
        _ => {
            problems.add(key, &raw.name, accepted);
            return None;
        }
    };
    let token = text.trim();
    let fits = (SHORTEST_TOKEN..=LONGEST_TOKEN).contains(&token.len())
        && token
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte));
    if !fits {
        problems.add(
            key,
            "(hidden)",
            format!("{SHORTEST_TOKEN} to {LONGEST_TOKEN} of the characters A-Z a-z 0-9 - . _ ~ + / =, such as `openssl rand -hex 32` prints"),
        );
        return None;
    }
    Some(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_all_of_it_only_and_never_shown() {
        let token = |name: &str, access, text: &str| Token {
            name: name.to_owned(),
            access,
            digest: Sha256::digest(text).into(),
        };
        let tokens = Tokens(vec![
            token("grafana", Access::Read, "0123456789abcdef"),
            token("ops", Access::Admin, "fedcba9876543210"),
        ]);
        assert_eq!(tokens.recognize(b"0123456789abcdef"), Some(("grafana", Access::Read)));
        assert_eq!(tokens.recognize(b"fedcba9876543210"), Some(("ops", Access::Admin)));
        for wrong in ["", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeF"] {
            assert_eq!(tokens.recognize(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(format!("{tokens:?}"), r#"{"grafana": Read, "ops": Admin}"#);
    }
}
