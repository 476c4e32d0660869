//! `[webhook]`, from text to checked values. Neither the URL, which may be a secret itself, nor the secret is ever shown.

use std::{collections::HashMap, fmt, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use hyper::Uri;

use super::{ENV_PREFIX, problems::Problems, raw::RawWebhook};
use crate::pure::Severity;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// As the specification of standard webhooks asks.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Where changes of health are posted.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Where.
    pub url: Uri,
    /// With what they are signed.
    pub secret: Secret,
    /// How long one post may take.
    pub timeout: Duration,
    /// A change is posted when what it was or what it has become is at least this bad.
    pub severity: Severity,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("host", &self.host())
            .field("timeout", &self.timeout)
            .field("severity", &self.severity)
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// The host that is posted to: as much of the URL as may be shown.
    #[must_use]
    pub fn host(&self) -> &str {
        self.url.host().unwrap_or_default()
    }
}

/// The bytes of a secret, never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.trim().strip_prefix("whsec_")?).ok()?;
        SECRET_BYTES.contains(&bytes.len()).then_some(Self(bytes))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// The webhook, if one is configured.
pub(super) fn webhook(
    problems: &mut Problems,
    raw: RawWebhook,
    environment: &HashMap<String, String>,
) -> Option<Webhook> {
    let timeout = problems.std_duration(
        "webhook.timeout",
        raw.timeout.as_deref(),
        DEFAULT_TIMEOUT,
        ("100ms", "1m"),
    );
    let severities = [("warn", Severity::Warn), ("fail", Severity::Fail)];
    let severity = problems.choice("webhook.severity", raw.severity.as_deref(), &severities);
    let Some(text) = &raw.url else {
        if raw.secret_file.is_some() || raw.secret_variable.is_some() {
            problems.add("webhook.url", "(none)", "a URL, for there is a secret");
        }
        return None;
    };
    let url = parse_url(text);
    if url.is_none() {
        let accepted = "a URL such as https://example.com/hooks/inboxd, without user and password";
        problems.add("webhook.url", "(hidden)", accepted);
    }
    let secret = secret(problems, &raw, environment);
    Some(Webhook {
        url: url?,
        secret: secret?,
        timeout,
        severity: severity?,
    })
}

fn parse_url(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let authority = url.authority()?;
    let fits = matches!(url.scheme_str(), Some("http" | "https"))
        && !authority.host().is_empty()
        && !authority.as_str().contains('@')
        && !text.contains('#');
    fits.then_some(url)
}

fn secret(problems: &mut Problems, raw: &RawWebhook, environment: &HashMap<String, String>) -> Option<Secret> {
    let (key, text) = match (&raw.secret_file, &raw.secret_variable) {
        (Some(file), None) => match std::fs::read_to_string(file) {
            Ok(text) => ("webhook.secret_file", text),
            Err(error) => {
                let accepted = format!("a file that holds the secret ({error})");
                problems.add("webhook.secret_file", format!("{file:?}"), accepted);
                return None;
            }
        },
        (None, Some(variable)) if !variable.starts_with(ENV_PREFIX) => match environment.get(variable) {
            Some(text) => ("webhook.secret_variable", text.clone()),
            None => {
                problems.add("webhook.secret_variable", variable, "a variable that is set");
                return None;
            }
        },
        _ => {
            let accepted = "either webhook.secret_file, or webhook.secret_variable (beginning otherwise than INBOXD_)";
            problems.add("webhook", "(no secret)", accepted);
            return None;
        }
    };
    let secret = Secret::parse(&text);
    if secret.is_none() {
        let accepted = "whsec_ and 24 to 64 bytes in base64, such as `echo whsec_$(openssl rand -base64 32)` prints";
        problems.add(key, "(hidden)", accepted);
    }
    secret
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_http_with_a_host_and_without_a_password() {
        for good in ["https://example.com/a?b=c", "http://127.0.0.1:8080", "https://[::1]/x"] {
            assert!(parse_url(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "/path",
            "example.com",
            "ftp://example.com",
            "https://",
            "https://u:p@example.com/",
            "https://example.com/#a",
            "https://exa mple.com",
        ] {
            assert!(parse_url(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_secret_has_its_prefix_and_its_length() {
        let of = |length: usize| format!("whsec_{}\n", STANDARD.encode(vec![7; length]));
        assert!(Secret::parse(&of(24)).is_some() && Secret::parse(&of(64)).is_some());
        for bad in [of(23), of(65), of(32).replace("whsec_", ""), "whsec_?".to_owned()] {
            assert!(Secret::parse(&bad).is_none(), "{bad}");
        }
        assert_eq!(format!("{:?}", Secret(vec![1, 2, 3])), "(hidden)");
    }
}
