//! The real planner, run forward from what was found.

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    Found, Policy, Severity, Span, Step,
    plan::{ROUNDS, distrust, plan},
};

/// What is to happen to clock and service while the planner runs forward.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scenario {
    /// Times without a run.
    pub outages: Vec<Span>,
    /// Steps of the database's clock, each at a time of the undisturbed clock. The host's clock stays right.
    pub jumps: Vec<(DateTime<Utc>, TimeDelta)>,
}

/// Something that would happen.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Event {
    /// When, by a clock that is right.
    pub at: DateTime<Utc>,
    /// When, by the database's clock.
    pub database_time: DateTime<Utc>,
    /// What.
    #[serde(flatten)]
    pub what: Happening,
}

/// What would happen.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Happening {
    /// A step of a run.
    Step(Step),
    /// Claims would fail from here on, for want of a partition.
    ClaimsFail,
    /// Claims would go on again.
    ClaimsGoOn,
    /// The worst of the findings has changed.
    Severity {
        /// To what.
        severity: Severity,
        /// The first finding that is so bad.
        because: Option<String>,
    },
}

/// Runs the planner at each of `runs`, instants of a clock that is right in ascending order, and tells what happens.
#[must_use]
pub fn simulate(
    policy: &Policy,
    found: Found,
    runs: impl IntoIterator<Item = DateTime<Utc>>,
    scenario: &Scenario,
) -> Vec<Event> {
    let mut world = World {
        policy,
        found,
        scenario,
        events: Vec::new(),
        failing: false,
        severity: Severity::Info,
    };
    for at in runs {
        world.run(at);
    }
    world.events
}

struct World<'a> {
    policy: &'a Policy,
    found: Found,
    scenario: &'a Scenario,
    events: Vec<Event>,
    failing: bool,
    severity: Severity,
}

impl World<'_> {
    fn run(&mut self, at: DateTime<Utc>) {
        let jumped = self
            .scenario
            .jumps
            .iter()
            .filter(|(when, _)| *when <= at)
            .try_fold(TimeDelta::zero(), |sum, (_, by)| sum.checked_add(by));
        // A clock beyond the end of the calendar shows no time at all.
        let Some(now) = jumped.and_then(|jumped| at.checked_add_signed(jumped)) else {
            return;
        };
        self.found.clocks.host = at;
        let mut planned = plan(now, self.policy, &self.found);
        self.see_claims(at, now, planned.runway_seconds);
        if self.scenario.outages.iter().any(|outage| outage.contains(at)) {
            return;
        }
        for _ in 0..ROUNDS {
            let steps = std::mem::take(&mut planned.steps);
            let looks_again = steps.iter().any(|step| step.action.asks_for_another_look());
            for step in steps {
                self.found.apply(&step, self.policy, now);
                self.tell(at, now, Happening::Step(step));
            }
            planned = plan(now, self.policy, &self.found);
            if !looks_again {
                break;
            }
        }
        if distrust(now, self.policy, self.found.clocks).is_none() {
            self.found.clocks.trusted = self.found.clocks.trusted.max(Some(now));
        }
        self.see_claims(at, now, planned.runway_seconds);
        let severity = planned.severity();
        if severity != self.severity {
            self.severity = severity;
            let because = planned.findings.iter().find(|finding| finding.severity == severity);
            let because = because.map(|finding| finding.message.clone());
            self.tell(at, now, Happening::Severity { severity, because });
        }
    }

    fn see_claims(&mut self, at: DateTime<Utc>, now: DateTime<Utc>, runway_seconds: Option<i64>) {
        let failing = runway_seconds == Some(0);
        if failing != self.failing {
            self.failing = failing;
            self.tell(
                at,
                now,
                if failing {
                    Happening::ClaimsFail
                } else {
                    Happening::ClaimsGoOn
                },
            );
        }
    }

    fn tell(&mut self, at: DateTime<Utc>, database_time: DateTime<Utc>, what: Happening) {
        self.events.push(Event {
            at,
            database_time,
            what,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::Action;
    use crate::pure::{Retention, plan::tests::model::*};

    /// A run every six hours for some days.
    fn runs(start: &str, days: i64) -> Vec<DateTime<Utc>> {
        (0..days * 4).map(|run| at(start) + TimeDelta::hours(6 * run)).collect()
    }

    fn told(events: &[Event]) -> Vec<String> {
        let day = |at: DateTime<Utc>| at.format("%m-%d").to_string();
        events
            .iter()
            .map(|event| match &event.what {
                Happening::Step(step) => {
                    format!(
                        "{} {} {}",
                        day(event.at),
                        step.action.as_str(),
                        step.day.map_or_else(String::new, |day| day.to_string())
                    )
                }
                Happening::ClaimsFail => format!("{} claims fail", day(event.at)),
                Happening::ClaimsGoOn => format!("{} claims go on", day(event.at)),
                Happening::Severity { severity, .. } => format!("{} {severity:?}", day(event.at)),
            })
            .collect()
    }

    #[test]
    fn a_year_makes_and_drops_a_partition_a_day_and_claims_never_fail() {
        let start = "2026-12-01T12:00:00Z";
        let events = simulate(
            &policy(),
            healthy(at(start), &policy()),
            runs(start, 365),
            &Scenario::default(),
        );
        let count = |action| {
            events
                .iter()
                .filter(|event| matches!(&event.what, Happening::Step(step) if step.action == action))
                .count()
        };
        assert_eq!(
            (count(Action::Create), count(Action::Detach), count(Action::Drop)),
            (365, 365, 364)
        );
        assert!(
            events.iter().all(|event| matches!(event.what, Happening::Step(_))),
            "{:?}",
            told(&events)
        );
    }

    #[test]
    fn an_outage_longer_than_what_is_ahead_shows_when_claims_fail_and_when_they_go_on() {
        let start = "2026-12-01T12:00:00Z";
        let outage = Span {
            from: Some(at("2026-12-02T00:00:00Z")),
            to: Some(at("2026-12-12T00:00:00Z")),
        };
        let scenario = Scenario {
            outages: vec![outage],
            jumps: Vec::new(),
        };
        let events = told(&simulate(
            &policy(),
            healthy(at(start), &policy()),
            runs(start, 14),
            &scenario,
        ));
        let position = |text: &str| {
            events
                .iter()
                .position(|event| event.starts_with(text))
                .unwrap_or_else(|| panic!("{text}: {events:?}"))
        };
        assert!(
            position("12-09 claims fail") < position("12-12 create 2026-12-12"),
            "{events:?}"
        );
        assert!(
            position("12-12 create 2026-12-12") < position("12-12 claims go on"),
            "{events:?}"
        );
        // An outage of ten days is beyond what the clock is believed: what expired in it waits for a person.
        assert!(
            !events.iter().any(|event| event.contains("detach 2026-12-02")),
            "{events:?}"
        );
    }

    #[test]
    fn a_run_takes_out_no_more_than_its_cap_and_the_next_run_goes_on() {
        let start = "2026-12-01T12:00:00Z";
        let found = healthy(at(start), &policy());
        let mut shorter = policy();
        shorter.retention = Retention::For(TimeDelta::days(1));
        let events = simulate(&shorter, found, runs(start, 1), &Scenario::default());
        let detaches = |run: DateTime<Utc>| {
            let is_detach = |event: &&Event| {
                matches!(&event.what, Happening::Step(step) if step.action == Action::Detach) && event.at == run
            };
            events.iter().filter(is_detach).count()
        };
        let counts: Vec<usize> = runs(start, 1).into_iter().map(detaches).collect();
        // Six of them are expired at once; 30 November is at the next midnight.
        assert_eq!(counts, [4, 2, 1, 0], "{:?}", told(&events));
    }

    #[test]
    fn jumps_beyond_the_end_of_the_calendar_happen_to_nobody() {
        let start = "2026-12-01T12:00:00Z";
        for by in [TimeDelta::MAX, TimeDelta::MIN] {
            let scenario = Scenario {
                outages: Vec::new(),
                jumps: vec![(at(start), by), (at(start), by)],
            };
            let found = healthy(at(start), &policy());
            assert_eq!(simulate(&policy(), found, runs(start, 1), &scenario), vec![]);
        }
    }

    #[test]
    fn a_clock_that_jumps_a_year_ahead_and_back_creates_and_removes_nothing() {
        let start = "2026-12-01T12:00:00Z";
        let jumps = vec![
            (at("2026-12-03T12:00:00Z"), TimeDelta::days(365)),
            (at("2026-12-04T12:00:00Z"), TimeDelta::days(-365)),
        ];
        let scenario = Scenario {
            outages: Vec::new(),
            jumps,
        };
        let found = healthy(at(start), &policy());
        let events = simulate(&policy(), found, runs(start, 5), &scenario);
        let while_ahead: Vec<_> = events.iter().filter(|event| event.database_time > event.at).collect();
        assert!(
            while_ahead
                .iter()
                .any(|event| matches!(&event.what, Happening::Step(step) if step.action == Action::Create))
        );
        let removes =
            |event: &&Event| matches!(&event.what, Happening::Step(step) if !matches!(step.action, Action::Create));
        assert_eq!(
            while_ahead.iter().filter(|event| removes(event)).count(),
            0,
            "{:?}",
            told(&events)
        );
    }
}
