//! One pass of a worker on a connection of its own.

use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    super::{
        config::{Config, Database},
        counters::Counters,
    },
    ask::Ended,
    guard::Session,
};
use crate::{
    clock::Clock,
    maintain::{PassOutcome, PassRequest, Replica, RunOutcome, RunReport, Trigger, plan_all, run_pass_as},
    postgres::{self, DbError, ErrorKind, catalog, history, lock::LockHolder, schema},
    pure::{Action, InboxSpec, Plan, Severity},
};

/// What became of a pass, and what it says about the inboxes.
pub(super) struct Passed {
    pub(super) ended: Ended,
    /// Whether nothing is left to retry.
    pub(super) whole: bool,
    pub(super) not_ready: Vec<String>,
}

impl Passed {
    pub(super) fn failed(kind: ErrorKind, why: String) -> Self {
        Self {
            ended: Ended::Failed { kind, why },
            whole: false,
            not_ready: Vec::new(),
        }
    }

    /// Whether consumers may be claiming, so that it is worth to see how they fare: also beside a pass of another replica,
    /// while the schedule is paused, and after a pass that failed. A standby takes no claim, and a database that cannot be
    /// reached says so itself.
    pub(super) fn lets_canaries_fly(&self) -> bool {
        match &self.ended {
            Ended::Ran(_) | Ended::Busy { .. } | Ended::Paused(_) => true,
            Ended::Standby => false,
            Ended::Failed { kind, .. } => {
                !matches!(kind, ErrorKind::Unreachable | ErrorKind::Refused | ErrorKind::Missing)
            }
        }
    }

    pub(super) fn outcome(&self) -> &'static str {
        match &self.ended {
            Ended::Ran(report) => report.outcome.as_str(),
            Ended::Busy { .. } => "busy",
            Ended::Paused(_) => "paused",
            Ended::Standby => "standby",
            Ended::Failed { .. } => "failed",
        }
    }
}

/// What a pass needs.
pub(super) struct Work<'a> {
    pub(super) config: &'a Config,
    pub(super) database: &'a Database,
    pub(super) replica: &'a Replica,
    pub(super) clock: &'a Clock,
    pub(super) shutdown: &'a CancellationToken,
    pub(super) counters: &'a Counters,
    /// Where its guard finds who serves our session, and whoever asks that it makes progress.
    pub(super) session: &'a Session,
}

impl Work<'_> {
    /// One pass on a connection of its own: after a failover or an outage there is none to mend.
    pub(super) async fn pass(&self, id: Uuid, trigger: Trigger, inbox: Option<&str>) -> Result<Passed, DbError> {
        let Self { config, database, .. } = *self;
        // A server that does not answer would keep the shutdown waiting; nothing has begun that could be cut in two.
        let options = database
            .connect_options()
            .map_err(|error| DbError::noticed(ErrorKind::Refused, error.to_string()))?;
        let mut connection = tokio::select! {
            connected = postgres::connect(options, "inboxd maintenance", config.timeouts) => connected?,
            () = self.shutdown.cancelled() => {
                return Ok(Passed {
                    whole: true,
                    ..Passed::failed(ErrorKind::Other, "the service is shutting down".to_owned())
                });
            }
        };
        let one: Vec<InboxSpec>;
        self.session.find_backend(&mut connection).await?;
        let specs = match inbox {
            None => &database.inboxes,
            Some(name) => {
                one = database
                    .inboxes
                    .iter()
                    .filter(|spec| spec.name == name)
                    .cloned()
                    .collect();
                &one
            }
        };
        // Only before a drop can be told how much it gives back. Where that fails, the pass itself says what is wrong.
        let sizes = catalog::leaving_sizes(&mut connection).await.unwrap_or_default();
        // Asked between steps, and while a command runs: each time is a sign of life.
        let stop = || {
            self.session.is_awake();
            self.shutdown.is_cancelled()
        };
        let request = PassRequest {
            deployment: &config.deployment,
            specs,
            // A heartbeat tells the configuration of all inboxes, so a pass over one inbox has none.
            replica: inbox.is_none().then_some(self.replica),
            trigger,
            confirm_clock: false,
            retries: config.retries,
            clock: self.clock,
            stop: &stop,
        };
        let passed = match run_pass_as(&mut connection, request, id).await? {
            PassOutcome::Ran(report) => {
                self.counters.steps(&report, |oid| sizes.get(&oid).copied());
                self.ran(report)
            }
            PassOutcome::Busy { holder } => self.busy(&mut connection, holder).await?,
            PassOutcome::Paused(pause) => Passed {
                whole: true,
                not_ready: self.look(&mut connection).await?,
                ended: Ended::Paused(pause),
            },
            PassOutcome::Standby => Passed {
                ended: Ended::Standby,
                whole: true,
                not_ready: Vec::new(),
            },
        };
        // The pass is over; whether the goodbye arrives does not matter.
        let _ = sqlx::Connection::close(connection).await;
        Ok(passed)
    }

    fn ran(&self, report: RunReport) -> Passed {
        let (database, steps, outcome) = (&self.database.name, report.steps().count(), report.outcome.as_str());
        let trigger = report.trigger.as_str();
        if steps > 0 {
            tracing::info!(database, run = %report.id, outcome, trigger, steps, "the run has ended");
        } else {
            tracing::debug!(database, run = %report.id, outcome, trigger, "the run found nothing to do");
        }
        let plans = report.inboxes.iter().map(|inbox| (inbox.inbox.as_str(), &inbox.after));
        Passed {
            whole: report.outcome == RunOutcome::Done,
            not_ready: not_ready(plans),
            ended: Ended::Ran(report),
        }
    }

    async fn busy(&self, connection: &mut PgConnection, holder: Option<LockHolder>) -> Result<Passed, DbError> {
        let Self { config, database, .. } = *self;
        let pid = holder.as_ref().map(|holder| holder.pid);
        tracing::debug!(database = database.name, pid, "another replica is running the pass");
        schema::check(connection).await?;
        let run = history::run_going(connection, &config.deployment).await?;
        let not_ready = self.look(connection).await?;
        Ok(Passed {
            // The other may still be at it, or fail: look again soon, not at the next tick.
            whole: not_ready.is_empty(),
            not_ready,
            ended: Ended::Busy { holder, run },
        })
    }

    /// What makes the service not ready, without a pass of our own.
    async fn look(&self, connection: &mut PgConnection) -> Result<Vec<String>, DbError> {
        let Self { config, database, .. } = *self;
        let (_, planned) = plan_all(connection, &database.inboxes, &config.deployment, self.clock).await?;
        let plans = planned.iter().map(|planned| (planned.inbox.as_str(), &planned.plan));
        Ok(not_ready(plans))
    }
}

/// What makes the service not ready: what fails or soon will, and days that do not exist after a pass.
fn not_ready<'a>(plans: impl Iterator<Item = (&'a str, &'a Plan)>) -> Vec<String> {
    let mut why = Vec::new();
    for (inbox, plan) in plans {
        for finding in plan
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Fail)
        {
            let on = finding
                .relation
                .as_deref()
                .map(|relation| format!("{relation}: "))
                .unwrap_or_default();
            why.push(format!("{inbox}: {on}{}; {}", finding.message, finding.remedy));
        }
        let missing = plan.steps.iter().filter(|step| step.action == Action::Create).count();
        if missing > 0 {
            why.push(format!("{inbox}: {missing} days have no partition yet"));
        }
    }
    why
}
