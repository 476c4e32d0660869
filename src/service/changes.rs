//! Changes of health: what was told of each check, and what is to be told now. Reads nothing and knows no clock.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};

use super::health::{Health, HealthCheck, HealthStatus};

/// What is worse is told once it is seen again, this long after it was seen first: by then it is another reading that says
/// so, however slow the first was. One that is slow is no outage.
pub(super) const SEEN_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// And no later than this, whatever was seen in between: what comes and goes is told, what happened twice in a day is not.
const SEEN_AGAIN_WITHIN: Duration = Duration::from_secs(60);
/// How long a check must have been better before that is told. Two judgements at least, so that what comes and goes is
/// told once.
const BETTER_FOR: Duration = Duration::from_secs(10);

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
    /// What was told last; none where this process has told nothing of it yet, and has not seen it well.
    pub(super) from: Option<HealthStatus>,
    pub(super) to: HealthStatus,
    pub(super) output: Option<String>,
    pub(super) remedy: Option<String>,
}

/// What is not well in a database, whole. Whoever keeps what it was told by an earlier process learns from it what has become
/// well meanwhile.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(super) struct HealthState {
    /// When it was told, by the host's clock. Whoever posts it says so outside of it.
    #[serde(skip)]
    pub(super) at: DateTime<Utc>,
    pub(super) deployment: String,
    pub(super) database: String,
    /// All that was told and still stands.
    pub(super) not_well: Vec<NotWell>,
}

/// One check that is not well.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(super) struct NotWell {
    pub(super) check: &'static str,
    /// The inbox or the database.
    pub(super) component_id: String,
    /// `inbox` or `datastore`.
    pub(super) component_type: &'static str,
    /// As it was told.
    pub(super) status: HealthStatus,
    pub(super) output: Option<String>,
    pub(super) remedy: Option<String>,
}

/// What a judgement came to.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) changes: Vec<HealthChange>,
    /// Of databases that were seen whole for the first time.
    pub(super) states: Vec<HealthState>,
    /// Whether something looks worse than it was told to be, so that another look is worth while.
    pub(super) is_unsettled: bool,
}

type Key = (&'static str, &'static str, String);

/// What is known of each check.
#[derive(Debug, Default)]
pub(super) struct Told {
    known: BTreeMap<Key, Known>,
    /// The databases whose state has been told.
    stated: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Known {
    /// None before the first time; that counts as well.
    told: Option<HealthStatus>,
    /// The least that it has been where it was worse than told, and since when.
    worse: Option<(HealthStatus, Instant)>,
    /// What it has been since, where that is better than what was told.
    better: Option<(HealthStatus, Instant)>,
}

impl Told {
    /// What is to be told now:
    ///
    /// 1. What is worse than it was told to be, once it is seen again: [`SEEN_AGAIN_AFTER`], within [`SEEN_AGAIN_WITHIN`].
    /// 2. What is better, once it has been the same for [`BETTER_FOR`].
    /// 3. Of a check that is new, nothing where it is well; where it is not, the same as of any other.
    /// 4. Of a check that is not there, because its database cannot be read, nothing: it still counts as it was told.
    /// 5. The state of a database, once in the life of this process: when it can be read and all that is not well is told.
    pub(super) fn judge(&mut self, health: &Health, at: DateTime<Utc>, now: Instant) -> Judged {
        let mut judged = Judged::default();
        let mut unsettled = BTreeSet::new();
        for (name, entries) in &health.checks {
            for entry in entries {
                let known = self.known.entry(key(name, entry)).or_default();
                let from = known.told;
                if let Some(to) = known.change(entry.status, now) {
                    judged.changes.push(HealthChange {
                        at,
                        deployment: health.service_id.clone(),
                        check: name,
                        component_id: entry.component_id.clone(),
                        component_type: entry.component_type,
                        database: entry.database.clone(),
                        from,
                        to,
                        output: entry.output.clone(),
                        remedy: entry.remedy.clone(),
                    });
                }
                if entry.status > known.counts_as() {
                    unsettled.insert(entry.database.as_str());
                }
            }
        }
        for database in readable(health) {
            if !unsettled.contains(database) && self.stated.insert(database.to_owned()) {
                judged.states.push(self.state(database, health, at));
            }
        }
        judged.is_unsettled = !unsettled.is_empty();
        judged
    }

    fn state(&self, database: &str, health: &Health, at: DateTime<Utc>) -> HealthState {
        let entries = health
            .checks
            .iter()
            .flat_map(|(name, entries)| entries.iter().map(move |entry| (*name, entry)));
        let not_well = entries
            .filter(|(_, entry)| entry.database == database)
            .filter_map(|(check, entry)| {
                let status = self.known.get(&key(check, entry))?.counts_as();
                (status > HealthStatus::Pass).then(|| NotWell {
                    check,
                    component_id: entry.component_id.clone(),
                    component_type: entry.component_type,
                    status,
                    output: entry.output.clone(),
                    remedy: entry.remedy.clone(),
                })
            });
        HealthState {
            at,
            deployment: health.service_id.clone(),
            database: database.to_owned(),
            not_well: not_well.collect(),
        }
    }
}

fn key(name: &'static str, check: &HealthCheck) -> Key {
    (name, check.component_type, check.component_id.clone())
}

/// The databases of which all checks are there.
fn readable(health: &Health) -> impl Iterator<Item = &str> {
    let of = |name| health.checks.get(name).into_iter().flatten();
    let is_unreadable = move |database: &str| {
        ["database", "schema_version"]
            .into_iter()
            .flat_map(of)
            .any(|check| check.database == database && check.status == HealthStatus::Fail)
    };
    let databases: BTreeSet<&str> = health.checks.values().flatten().map(|check| &*check.database).collect();
    databases.into_iter().filter(move |database| !is_unreadable(database))
}

impl Known {
    fn counts_as(&self) -> HealthStatus {
        self.told.unwrap_or(HealthStatus::Pass)
    }

    /// Some when it is to be told, with what.
    fn change(&mut self, status: HealthStatus, now: Instant) -> Option<HealthStatus> {
        match status.cmp(&self.counts_as()) {
            Ordering::Greater => {
                self.better = None;
                let seen = self.worse.map(|(least, since)| (least.min(status), since));
                let seen_for = seen.map(|(_, since)| now.duration_since(since));
                self.worse = seen
                    .filter(|_| seen_for <= Some(SEEN_AGAIN_WITHIN))
                    .or(Some((status, now)));
                let (least, since) = self.worse?;
                (now.duration_since(since) >= SEEN_AGAIN_AFTER).then(|| self.tell(least))
            }
            Ordering::Equal => {
                // From now on it is known to be well, if nothing was told.
                self.told = Some(status);
                self.better = None;
                None
            }
            Ordering::Less => {
                let seen = self.better.filter(|(better, _)| *better == status);
                let (_, since) = *self.better.insert(seen.unwrap_or((status, now)));
                (now.duration_since(since) >= BETTER_FOR).then(|| self.tell(status))
            }
        }
    }

    fn tell(&mut self, status: HealthStatus) -> HealthStatus {
        *self = Self {
            told: Some(status),
            ..Self::default()
        };
        status
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
            for change in told.judge(&health(&checks), DateTime::UNIX_EPOCH, now).changes {
                let from = change.from.map_or(UNKNOWN, HealthStatus::as_str);
                changes.push((*second, from, change.to.as_str()));
            }
        }
        changes
    }

    #[test]
    fn what_is_worse_is_told_once_it_is_seen_again_and_only_once() {
        use HealthStatus::{Fail, Pass, Warn};
        assert_eq!(
            told(&[
                (0, Some(Pass)),
                (1, Some(Warn)),
                (5, Some(Warn)),
                (6, Some(Warn)),
                (7, Some(Warn)),
                (8, Some(Fail)),
                (13, Some(Fail)),
                (99, Some(Fail))
            ]),
            [(6, "pass", "warn"), (13, "warn", "fail")]
        );
        // It has been bad all the while, but so bad only just now.
        assert_eq!(
            told(&[
                (0, Some(Pass)),
                (1, Some(Warn)),
                (6, Some(Fail)),
                (11, Some(Fail)),
                (16, Some(Fail))
            ]),
            [(6, "pass", "warn"), (16, "warn", "fail")]
        );
    }

    #[test]
    fn one_slow_reading_is_not_told() {
        use HealthStatus::{Fail, Pass};
        let hours: Vec<_> = (0..1_000)
            .map(|look| (look * 10, Some(if look % 100 == 0 { Fail } else { Pass })))
            .collect();
        assert_eq!(told(&hours), []);
    }

    #[test]
    fn what_is_better_is_told_once_it_has_lasted() {
        use HealthStatus::{Fail, Pass, Warn};
        assert_eq!(
            told(&[
                (0, Some(Pass)),
                (1, Some(Fail)),
                (6, Some(Fail)),
                (7, Some(Pass)),
                (16, Some(Pass)),
                (17, Some(Pass)),
                (18, Some(Pass))
            ]),
            [(6, "pass", "fail"), (17, "fail", "pass")]
        );
        // Of two ways to be better, each has to last.
        assert_eq!(
            told(&[
                (0, Some(Fail)),
                (5, Some(Fail)),
                (6, Some(Pass)),
                (15, Some(Warn)),
                (17, Some(Warn)),
                (25, Some(Warn))
            ]),
            [(5, UNKNOWN, "fail"), (25, "fail", "warn")]
        );
    }

    #[test]
    fn what_comes_and_goes_is_told_once() {
        use HealthStatus::{Pass, Warn};
        let flapping: Vec<_> = (0..100)
            .map(|second| (second, Some(if second % 5 == 1 { Warn } else { Pass })))
            .collect();
        assert_eq!(told(&flapping), [(6, "pass", "warn")]);
    }

    #[test]
    fn what_is_not_well_at_first_is_told_and_what_is_well_is_not() {
        use HealthStatus::{Fail, Pass};
        assert_eq!(told(&[(0, Some(Fail)), (5, Some(Fail))]), [(5, UNKNOWN, "fail")]);
        assert_eq!(told(&[(0, Some(Fail)), (5, Some(Pass)), (70, Some(Pass))]), []);
        assert_eq!(told(&[(0, Some(Pass)), (5, Some(Pass))]), []);
    }

    #[test]
    fn a_check_of_a_database_that_cannot_be_read_counts_as_it_was_told() {
        use HealthStatus::{Fail, Pass};
        assert_eq!(told(&[(0, Some(Pass)), (1, None), (50, None), (99, Some(Pass))]), []);
        assert_eq!(
            told(&[
                (0, Some(Fail)),
                (5, Some(Fail)),
                (6, None),
                (50, Some(Fail)),
                (99, Some(Fail))
            ]),
            [(5, UNKNOWN, "fail")]
        );
    }

    /// What a database's state lists, and when it is told.
    fn stated(judgements: &[(u64, &[(&'static str, HealthStatus)])]) -> Vec<(u64, Vec<(&'static str, HealthStatus)>)> {
        let (mut told, begin) = (Told::default(), Instant::now());
        let mut states = Vec::new();
        for (second, checks) in judgements {
            let now = begin + Duration::from_secs(*second);
            for state in told.judge(&health(checks), DateTime::UNIX_EPOCH, now).states {
                assert_eq!((&*state.deployment, &*state.database), ("test", "main"));
                let listed = state.not_well.iter().map(|entry| (entry.check, entry.status));
                states.push((*second, listed.collect()));
            }
        }
        states
    }

    #[test]
    fn the_state_of_a_database_is_told_once_and_lists_what_was_told() {
        use HealthStatus::{Fail, Pass, Warn};
        let well = [("database", Pass), ("canary", Pass), ("schedule", Pass)];
        assert_eq!(stated(&[(0, &well), (5, &well)]), [(0, vec![])]);
        let bad = [("database", Pass), ("canary", Warn), ("schedule", Pass)];
        assert_eq!(
            stated(&[(0, &bad), (4, &bad), (5, &bad), (99, &bad)]),
            [(5, vec![("canary", Warn)])]
        );
        assert_eq!(stated(&[(0, &bad), (4, &well)]), [(4, vec![])], "it was never told");
        // Before it can be read, it is not known what has become well.
        for away in [
            vec![("database", Fail)],
            vec![("database", Pass), ("schema_version", Fail)],
        ] {
            assert_eq!(
                stated(&[(0, &away), (5, &away), (6, &bad), (11, &bad)])
                    .iter()
                    .map(|(second, _)| *second)
                    .collect::<Vec<_>>(),
                [11]
            );
        }
    }
}
