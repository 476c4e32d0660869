//! The configuration as it is written, before anything is checked. Unknown keys are errors.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) deployment: Option<String>,
    pub(super) database: Option<RawDatabase>,
    #[serde(default)]
    pub(super) databases: BTreeMap<String, RawDatabase>,
    #[serde(default)]
    pub(super) inbox: Vec<RawInbox>,
    #[serde(default)]
    pub(super) schedule: RawSchedule,
    #[serde(default)]
    pub(super) maintenance: RawMaintenance,
    #[serde(default)]
    pub(super) http: RawHttp,
    #[serde(default)]
    pub(super) webhook: RawWebhook,
    #[serde(default)]
    pub(super) log: RawLog,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDatabase {
    pub(super) url: Option<String>,
}

impl std::fmt::Debug for RawDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RawDatabase { url: (hidden) }")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawInbox {
    pub(super) table: String,
    pub(super) name: Option<String>,
    pub(super) database: Option<String>,
    pub(super) routing: Option<String>,
    pub(super) consumers: Option<String>,
    pub(super) ahead: Option<String>,
    pub(super) retention: Option<String>,
    pub(super) redelivery_horizon: Option<String>,
    pub(super) on_expiry: Option<String>,
    pub(super) archive_schema: Option<String>,
    pub(super) before_drop: Option<Vec<String>>,
    pub(super) before_drop_timeout: Option<String>,
    pub(super) drop_grace: Option<String>,
    pub(super) max_drops_per_run: Option<String>,
    pub(super) drain_default: Option<String>,
    pub(super) seal_days: Option<String>,
    pub(super) digest: Option<String>,
    pub(super) producer_clock_tolerance: Option<String>,
    pub(super) clock_step_tolerance: Option<String>,
    pub(super) max_batch: Option<String>,
    pub(super) owner: Option<String>,
    #[serde(default)]
    pub(super) consumer_roles: Vec<String>,
    #[serde(default)]
    pub(super) admin_roles: Vec<String>,
}

impl RawInbox {
    /// What a deployment without any `[[inbox]]` manages.
    pub(super) fn default_inbox() -> Self {
        Self {
            table: "public.inbox".to_owned(),
            ..Self::default()
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSchedule {
    pub(super) cron: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMaintenance {
    pub(super) lock_timeout: Option<String>,
    pub(super) statement_timeout: Option<String>,
    pub(super) attempts: Option<String>,
    pub(super) max_clock_skew: Option<String>,
    pub(super) max_clock_leap: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHttp {
    pub(super) listen: Option<String>,
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    #[serde(default)]
    pub(super) read_tokens: Vec<RawToken>,
    #[serde(default)]
    pub(super) admin_tokens: Vec<RawToken>,
    pub(super) open_metrics: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWebhook {
    pub(super) url: Option<String>,
    pub(super) secret_file: Option<std::path::PathBuf>,
    pub(super) secret_variable: Option<String>,
    pub(super) severity: Option<String>,
    pub(super) timeout: Option<String>,
}

impl std::fmt::Debug for RawWebhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RawWebhook { (hidden) }")
    }
}

/// Where a token is to be found; the token itself never stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawToken {
    pub(super) name: String,
    pub(super) file: Option<std::path::PathBuf>,
    pub(super) variable: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLog {
    pub(super) format: Option<String>,
    pub(super) filter: Option<String>,
}
