//! Changes of health: what was told of each check, and what is to be told now. Reads nothing and knows no clock.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};

use super::health::{Health, HealthCheck, HealthStatus};

/// How long a check must have been better before that is told. Two judgements at least, so that what comes and goes is
/// told once.
pub(super) const BETTER_FOR: Duration = Duration::from_secs(10);

/// One check of one inbox or database that has changed.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(super) struct HealthChange {
    /// When it was told, by the host's clock. Whoever posts it says so outside of it.
    #[serde(skip)]
    pub(super) at: DateTime<Utc>,
    pub(super) deployment: String,
    pub(super) check: &'static str,
    /// The inbox or the database.
    pub(super) component_id: String,
    /// `inbox` or `datastore`.
    pub(super) component_type: &'static str,
    pub(super) database: String,
    /// What was told last; none at the first judgement of this process.
    pub(super) from: Option<HealthStatus>,
    pub(super) to: HealthStatus,
    pub(super) output: Option<String>,
    pub(super) remedy: Option<String>,
}

/// What is known of each check.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeMap<(&'static str, &'static str, String), Known>);

#[derive(Debug)]
struct Known {
    told: HealthStatus,
    /// What it has been since, where that is better than what was told.
    better: Option<(HealthStatus, Instant)>,
}

impl Told {
    /// What is to be told now:
    ///
    /// 1. What is worse than it was told to be, at once.
    /// 2. What is better, once it has been the same for [`BETTER_FOR`].
    /// 3. At the first judgement of a check, what is not well.
    /// 4. Of a check that is not there, because its database cannot be read, nothing: it still counts as it was told.
    pub(super) fn judge(&mut self, health: &Health, at: DateTime<Utc>, now: Instant) -> Vec<HealthChange> {
        let mut changes = Vec::new();
        for (name, entries) in &health.checks {
            for entry in entries {
                if let Some(from) = self.change(name, entry, now) {
                    changes.push(HealthChange {
                        at,
                        deployment: health.service_id.clone(),
                        check: name,
                        component_id: entry.component_id.clone(),
                        component_type: entry.component_type,
                        database: entry.database.clone(),
                        from,
                        to: entry.status,
                        output: entry.output.clone(),
                        remedy: entry.remedy.clone(),
                    });
                }
            }
        }
        changes
    }

    /// Some when it is to be told, with what was told last.
    fn change(&mut self, name: &'static str, check: &HealthCheck, now: Instant) -> Option<Option<HealthStatus>> {
        let key = (name, check.component_type, check.component_id.clone());
        let Some(known) = self.0.get_mut(&key) else {
            let known = Known {
                told: check.status,
                better: None,
            };
            self.0.insert(key, known);
            return (check.status > HealthStatus::Pass).then_some(None);
        };
        if check.status == known.told {
            known.better = None;
            return None;
        }
        if check.status < known.told {
            let since = match known.better {
                Some((status, since)) if status == check.status => since,
                _ => now,
            };
            if now.duration_since(since) < BETTER_FOR {
                known.better = Some((check.status, since));
                return None;
            }
        }
        let from = known.told;
        *known = Known {
            told: check.status,
            better: None,
        };
        Some(Some(from))
    }
}

impl HealthChange {
    /// A line of the log. Error level asks for a person: claims fail or soon will, or it cannot be told.
    pub(super) fn log(&self) {
        let Self {
            check,
            component_id: component,
            database,
            ..
        } = self;
        let from = self.from.map_or("unknown", HealthStatus::as_str);
        let to = self.to.as_str();
        let output = self.output.as_deref();
        let remedy = self.remedy.as_deref();
        match self.to {
            HealthStatus::Pass => tracing::info!(
                check,
                component,
                database,
                from,
                to,
                "health: {check} of {component} is well"
            ),
            HealthStatus::Warn => {
                tracing::warn!(
                    check,
                    component,
                    database,
                    from,
                    to,
                    output,
                    remedy,
                    "health: {check} of {component} warns"
                );
            }
            HealthStatus::Fail => {
                tracing::error!(
                    check,
                    component,
                    database,
                    from,
                    to,
                    output,
                    remedy,
                    "health: {check} of {component} fails"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: &str = "unknown";

    fn health(checks: &[(&'static str, HealthStatus)]) -> Health {
        let check = |status| HealthCheck {
            component_id: "main".to_owned(),
            component_type: "datastore",
            database: "main".to_owned(),
            observed_value: None,
            observed_unit: None,
            status,
            time: None,
            output: None,
            remedy: None,
        };
        Health {
            status: HealthStatus::Pass,
            version: "1",
            release_id: "0",
            service_id: "test".to_owned(),
            description: "",
            checks: checks
                .iter()
                .map(|(name, status)| (*name, vec![check(*status)]))
                .collect(),
        }
    }

    /// Judges states of one check, each some seconds after the first judgement; none while its database cannot be read.
    fn told(states: &[(u64, Option<HealthStatus>)]) -> Vec<(u64, &'static str, &'static str)> {
        let (mut told, begin) = (Told::default(), Instant::now());
        let mut changes = Vec::new();
        for (second, status) in states {
            let checks: Vec<_> = status.iter().map(|status| ("canary", *status)).collect();
            let now = begin + Duration::from_secs(*second);
            for change in told.judge(&health(&checks), DateTime::UNIX_EPOCH, now) {
                let from = change.from.map_or(UNKNOWN, HealthStatus::as_str);
                changes.push((*second, from, change.to.as_str()));
            }
        }
        changes
    }

    #[test]
    fn what_is_worse_is_told_at_once_and_only_once() {
        use HealthStatus::{Fail, Pass, Warn};
        assert_eq!(
            told(&[
                (0, Some(Pass)),
                (1, Some(Warn)),
                (2, Some(Warn)),
                (3, Some(Fail)),
                (99, Some(Fail))
            ]),
            [(1, "pass", "warn"), (3, "warn", "fail")]
        );
    }

    #[test]
    fn what_is_better_is_told_once_it_has_lasted() {
        use HealthStatus::{Fail, Pass, Warn};
        assert_eq!(
            told(&[
                (0, Some(Pass)),
                (1, Some(Fail)),
                (2, Some(Pass)),
                (11, Some(Pass)),
                (12, Some(Pass)),
                (13, Some(Pass))
            ]),
            [(1, "pass", "fail"), (12, "fail", "pass")]
        );
        // Of two ways to be better, each has to last.
        assert_eq!(
            told(&[
                (0, Some(Fail)),
                (1, Some(Pass)),
                (10, Some(Warn)),
                (12, Some(Warn)),
                (20, Some(Warn))
            ]),
            [(0, UNKNOWN, "fail"), (20, "fail", "warn")]
        );
    }

    #[test]
    fn what_comes_and_goes_is_told_once() {
        use HealthStatus::{Pass, Warn};
        let flapping: Vec<_> = (0..100)
            .map(|second| (second, Some(if second % 5 == 1 { Warn } else { Pass })))
            .collect();
        assert_eq!(told(&flapping), [(1, "pass", "warn")]);
    }

    #[test]
    fn what_is_not_well_at_first_is_told_and_what_is_well_is_not() {
        use HealthStatus::{Fail, Pass};
        assert_eq!(told(&[(0, Some(Fail))]), [(0, UNKNOWN, "fail")]);
        assert_eq!(told(&[(0, Some(Pass))]), []);
    }

    #[test]
    fn a_check_of_a_database_that_cannot_be_read_counts_as_it_was_told() {
        use HealthStatus::{Fail, Pass};
        assert_eq!(told(&[(0, Some(Pass)), (1, None), (50, None), (99, Some(Pass))]), []);
        assert_eq!(
            told(&[(0, Some(Fail)), (1, None), (50, Some(Fail))]),
            [(0, UNKNOWN, "fail")]
        );
    }
}
