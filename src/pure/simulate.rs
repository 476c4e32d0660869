//! The real planner, run forward from what was found.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Found, Policy, Severity, Span, Step, plan};

/// The most plans at one instant: after a finalize, and for as long as a cap holds steps back, the next run goes on.
const ROUNDS: usize = 2;

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
            .fold(TimeDelta::zero(), |sum, (_, by)| sum + *by);
        let Some(now) = at.checked_add_signed(jumped) else {
            return;
        };
        self.found.clocks.host = at;
        let mut planned = plan(now, self.policy, &self.found);
        self.see_claims(at, now, planned.runway_seconds);
        if self.scenario.outages.iter().any(|outage| outage.contains(at)) {
            return;
        }
        for _ in 0..ROUNDS {
            for step in std::mem::take(&mut planned.steps) {
                self.found.apply(&step, self.policy, now);
                self.tell(at, now, Happening::Step(step));
            }
            planned = plan(now, self.policy, &self.found);
        }
        if !planned
            .findings
            .iter()
            .any(|finding| finding.code == super::FindingCode::BlockedByClock)
        {
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
