//! The end of a seed: everything that stands is ended, and after as many quiet days as anything is remembered all must be as
//! if nothing had ever gone wrong.

use std::{collections::BTreeSet, time::Duration};

use inboxd::maintain::{
    StepOutcome,
    operate::{Actor, Operator, confirm_clock},
};
use sqlx::PgConnection;

use crate::{
    faults::Kind,
    run::Seed,
    support::inbox::Deployment,
    world::{RETENTION_DAYS, World},
};

/// After them whatever was there before has expired, and its grace is over.
const QUIET_DAYS: u32 = RETENTION_DAYS as u32 + 5;
/// A run takes four at most, of each inbox.
const MOST_RUNS: usize = 30;

impl Seed {
    pub(crate) async fn settle(&mut self, days: u32) {
        // Last what others may keep from being ended.
        self.standing.sort_by_key(|standing| match standing.kind {
            Kind::Session(_) | Kind::Handler { .. } | Kind::Revoked(_) => 0,
            Kind::Default { .. } | Kind::FarDays { .. } => 2,
            _ => 1,
        });
        for standing in std::mem::take(&mut self.standing) {
            self.end(days, standing).await;
        }
        assert!(self.standing.is_empty(), "it does not end: {:?}", self.standing);
        self.confirm_clock().await;
        let undisturbed = self.world.clock_database().await;
        for quiet in 0..QUIET_DAYS {
            // A little later each day, so that a grace of a day is over on the next.
            let time = Duration::from_secs(12 * 3_600 + 600 * u64::from(quiet));
            self.world.set_day(days + quiet, time);
            let begun = std::time::Instant::now();
            let runs = self.until_nothing_is_left().await;
            let settled_after = begun.elapsed();
            until_nothing_is_left_of(&undisturbed).await;
            let peer_after = begun.elapsed();
            self.claim_in_peace(u64::from(quiet)).await;
            let claimed_after = begun.elapsed();
            self.look().await;
            self.tell(days + quiet, || {
                format!(
                    "{runs} runs until {settled_after:?}, the undisturbed until {peer_after:?}, claims until {claimed_after:?}, looks until {:?}",
                    begun.elapsed()
                )
            });
        }
        let fresh = |message: &&crate::claims::Message| {
            !self.broker.pending.is_empty() && self.broker.pending.contains(message)
        };
        let unprocessed: Vec<_> = self.broker.pending.iter().filter(fresh).collect();
        assert!(unprocessed.len() < 20, "messages are never processed: {unprocessed:?}");
        let has_digest = self.world.has_digest(&mut *self.world.looker().await).await;
        assert_eq!(has_digest, self.world.shape.digest, "claims have no digest in the end");
        let ours = state(&mut *self.world.looker().await).await;
        let theirs = state(&mut undisturbed.database.connect().await).await;
        let (more, less): (Vec<_>, Vec<_>) = (ours.difference(&theirs).collect(), theirs.difference(&ours).collect());
        assert!(
            more.is_empty() && less.is_empty(),
            "the state is not that of an undisturbed run; only here: {more:#?}, only there: {less:#?}; {:#?}",
            self.world.deployment.plan().await,
        );
    }

    pub(crate) async fn confirm_clock(&self) {
        let (deployment, actor) = (&self.world.deployment, Actor::new("operator").unwrap());
        let operator = operator(deployment, &actor);
        confirm_clock(&mut deployment.maintenance().await, operator, &deployment.specs)
            .await
            .unwrap();
    }

    /// Runs until a plan has no step any more.
    /// How many it took.
    async fn until_nothing_is_left(&mut self) -> usize {
        for nth in 1..=MOST_RUNS {
            self.world.run(false).await;
            let planned = self.world.deployment.plan().await;
            if planned.iter().all(|planned| planned.plan.steps.is_empty()) {
                let findings: Vec<_> = planned.iter().flat_map(|planned| &planned.plan.findings).collect();
                let bad: Vec<_> = findings
                    .iter()
                    .filter(|finding| finding.severity == inboxd::Severity::Fail)
                    .collect();
                assert!(bad.is_empty(), "{bad:#?}");
                return nth;
            }
        }
        panic!(
            "there is always something left to do: {:#?}",
            self.world.deployment.plan().await
        );
    }
}

pub(crate) fn operator<'a>(deployment: &'a Deployment, actor: &'a Actor) -> Operator<'a> {
    Operator {
        deployment: &deployment.name,
        actor,
        clock: &deployment.clock,
        retries: deployment.retries,
    }
}

impl World {
    /// Another database on the same server, where nothing ever goes wrong.
    async fn clock_database(&self) -> Deployment {
        let database = self.clock.database().await;
        crate::support::inbox::sql(
            &mut self.admin().await,
            format!("grant create on database {} to {}", database.name, crate::world::KEEPER),
        )
        .await;
        crate::support::inbox::sql(
            &mut database.connect().await,
            format!("grant create, usage on schema public to {}", crate::world::KEEPER),
        )
        .await;
        Self::deployment(&self.clock, &database, self.specs()).await
    }
}

async fn until_nothing_is_left_of(deployment: &Deployment) {
    for _ in 0..MOST_RUNS {
        let report = deployment.pass().await;
        assert!(
            report.steps().all(|step| step.outcome == StepOutcome::Done),
            "{report:?}"
        );
        if report.steps().count() == 0 {
            return;
        }
    }
    panic!("there is always something left to do in an undisturbed database");
}

/// All tables with whatever the service gives them, a line each; what the tests themselves add stands aside.
async fn state(connection: &mut PgConnection) -> BTreeSet<String> {
    let lines: Vec<String> = sqlx::query_scalar(
        "select concat_ws(' | ', relname, relkind, relispartition, pg_get_expr(relpartbound, oid), pg_get_userbyid(relowner),
           relacl::text, reloptions::text, relreplident,
           (select string_agg(concat_ws(' ', conname, convalidated, pg_get_constraintdef(own.oid)), ', ' order by conname)
              from pg_constraint as own where conrelid = pg_class.oid),
           (select string_agg(concat_ws(' ', indexrelid::regclass, indisvalid, indisunique, indisprimary), ', ' order by indexrelid::regclass::text)
              from pg_index where indrelid = pg_class.oid),
           (select inhdetachpending from pg_inherits where inhrelid = pg_class.oid),
           obj_description(oid, 'pg_class') is not null)
         from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and relname <> 'work'",
    )
    .fetch_all(connection)
    .await
    .unwrap();
    lines.into_iter().collect()
}
