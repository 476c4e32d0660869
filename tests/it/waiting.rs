//! Maintenance never makes a claim wait: seen by sampling who blocks whom.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::TimeDelta;
use inboxd::{InboxSpec, Retention, maintain::StepOutcome};
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::task::JoinHandle;

use crate::support::{
    clock::ClockServer,
    inbox::{Deployment, claim, random_id, spec, sql, steps, try_claim, v7_at, v7_spec},
    server::TestDatabase,
};

/// Who blocked a claim, by application name; sampled every 5 ms.
pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    samples: Arc<AtomicU64>,
    task: JoinHandle<Vec<String>>,
}

impl Sampler {
    pub(crate) async fn start(database: &TestDatabase) -> Self {
        let mut connection = database
            .options
            .clone()
            .application_name("sampler")
            .connect()
            .await
            .unwrap();
        let (stop, samples) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (stop.clone(), samples.clone());
        let task = tokio::spawn(async move {
            let mut seen = Vec::new();
            let mut tick = tokio::time::interval(Duration::from_millis(5));
            while !stopped.load(Ordering::SeqCst) {
                tick.tick().await;
                let blockers: Vec<String> = sqlx::query_scalar(
                    "select blocker.application_name || ': ' || blocker.query
                     from pg_stat_activity as waiting
                     cross join unnest(pg_blocking_pids(waiting.pid)) as blocking (pid)
                     join pg_stat_activity as blocker on blocker.pid = blocking.pid
                     where waiting.application_name = 'claims' and blocker.application_name like 'inboxd%'",
                )
                .fetch_all(&mut connection)
                .await
                .unwrap();
                seen.extend(blockers);
                counted.fetch_add(1, Ordering::SeqCst);
            }
            seen
        });
        Self { stop, samples, task }
    }

    pub(crate) async fn stop(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::SeqCst);
        let seen = self.task.await.unwrap();
        (self.samples.load(Ordering::SeqCst), seen)
    }
}

pub(crate) async fn consumer(database: &TestDatabase) -> PgConnection {
    database
        .options
        .clone()
        .application_name("claims")
        .connect()
        .await
        .unwrap()
}

/// Claims without a pause until it is stopped; the number of claims.
pub(crate) fn steady_claims(
    server: &Arc<ClockServer>,
    database: &TestDatabase,
    table: &'static str,
    stop: &Arc<AtomicBool>,
) -> JoinHandle<u64> {
    let (server, database, stop) = (server.clone(), database.clone(), stop.clone());
    tokio::spawn(async move {
        let mut connection = consumer(&database).await;
        let mut claims = 0;
        while !stop.load(Ordering::SeqCst) {
            let mut transaction = connection.begin().await.unwrap();
            let id = if table == "by_id" {
                v7_at(server.now())
            } else {
                random_id()
            };
            assert!(claim(&mut transaction, table, id).await.unwrap());
            transaction.commit().await.unwrap();
            claims += 1;
        }
        claims
    })
}

pub(crate) fn short_lived(mut spec: InboxSpec) -> InboxSpec {
    spec.policy.retention = Retention::For(TimeDelta::days(2));
    spec.policy.drop_grace = TimeDelta::hours(1);
    spec.policy.ahead = inboxd::Ahead::new(2).unwrap();
    spec
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_claim_ever_has_maintenance_among_its_blockers() {
    let server = Arc::new(ClockServer::start(&[]).await);
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let specs = vec![
        short_lived(spec("public.by_time")),
        short_lived(v7_spec("public.by_id")),
    ];
    let mut deployment = Deployment::new(server.database().await, server.clock(), specs);
    deployment.timeouts.lock = Duration::from_millis(300);
    deployment.retries.attempts = 2;
    deployment.init().await.unwrap();
    deployment.done().await;
    let of_the_first_day = [("by_time", random_id()), ("by_id", v7_at(server.now()))];
    let mut redelivered = consumer(&deployment.database).await;
    for (table, id) in of_the_first_day {
        assert!(claim(&mut redelivered, table, id).await.unwrap());
    }
    for _ in 0..2 {
        server.step(TimeDelta::days(1));
        deployment.done().await;
    }

    let stop = Arc::new(AtomicBool::new(false));
    let claimers: Vec<_> = ["by_time", "by_time", "by_id"]
        .into_iter()
        .map(|table| steady_claims(&server, &deployment.database, table, &stop))
        .collect();
    let sampler = Sampler::start(&deployment.database).await;

    for (table, id) in of_the_first_day {
        assert_eq!(
            try_claim(&mut redelivered, table, id, None).await.unwrap(),
            "duplicate",
            "{table}"
        );
    }

    // A business transaction that has looked back into every live day stays open over midnight, while the oldest day
    // expires: the new day is made, and the detach gets no further than its second phase.
    let mut business = consumer(&deployment.database).await;
    sql(&mut business, "begin").await;
    for table in ["by_time", "by_id"] {
        let id = if table == "by_id" {
            v7_at(server.now() - TimeDelta::days(2))
        } else {
            random_id()
        };
        assert!(claim(&mut business, table, id).await.unwrap());
    }
    server.step(TimeDelta::days(1));
    let report = deployment.pass().await;
    assert_eq!(
        steps(&report),
        [
            "create by_time_2026_12_06",
            "detach by_time_2026_12_01",
            "create by_id_2026_12_06",
            "detach by_id_2026_12_01",
            "drop by_id_2026_11_30",
        ]
    );
    let outcomes: Vec<bool> = report.steps().map(|step| step.outcome == StepOutcome::Done).collect();
    assert_eq!(
        outcomes[..3],
        [true, false, true],
        "creation goes on; the detach waits for the business transaction: {report:?}"
    );
    let pending: Vec<String> =
        sqlx::query_scalar("select inhrelid::regclass::text from pg_inherits where inhdetachpending order by 1")
            .fetch_all(&mut deployment.database.connect().await)
            .await
            .unwrap();
    assert!(pending.contains(&"by_time_2026_12_01".to_owned()), "{pending:?}");

    // Another business transaction begins before the first ends: finalize and drop happen beside it.
    let mut another = consumer(&deployment.database).await;
    sql(&mut another, "begin").await;
    assert!(claim(&mut another, "by_time", random_id()).await.unwrap());
    assert!(claim(&mut another, "by_id", v7_at(server.now())).await.unwrap());
    sql(&mut business, "commit").await;
    let mut done = Vec::new();
    for _ in 0..4 {
        done.extend(steps(&deployment.pass().await));
    }
    assert!(done.contains(&"finalize by_time_2026_12_01".to_owned()), "{done:?}");
    server.step(TimeDelta::minutes(61));
    let mut dropped = Vec::new();
    for _ in 0..2 {
        dropped.extend(steps(&deployment.pass().await));
    }
    for name in ["by_time_2026_12_01", "by_id_2026_12_01"] {
        assert!(dropped.contains(&format!("drop {name}")), "{dropped:?}");
    }
    sql(&mut another, "commit").await;
    // C26: of the day that is gone, a redelivery is told for what it is, while the other claims go on.
    for ((table, id), expected) in of_the_first_day.into_iter().zip(["fresh", "too_old"]) {
        assert_eq!(
            try_claim(&mut redelivered, table, id, None).await.unwrap(),
            expected,
            "{table}"
        );
    }

    stop.store(true, Ordering::SeqCst);
    for claimer in claimers {
        let claims = claimer.await.unwrap();
        assert!(claims > 100, "only {claims} claims were made: that proves nothing");
    }
    let (samples, seen) = sampler.stop().await;
    assert!(samples > 50, "only {samples} samples");
    assert_eq!(seen, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sampler_sees_maintenance_that_does_make_a_claim_wait() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let sampler = Sampler::start(&deployment.database).await;
    let mut business = consumer(&deployment.database).await;
    sql(&mut business, "begin").await;
    assert!(claim(&mut business, "inbox", random_id()).await.unwrap());

    // What inboxd never does: a lock on the inbox itself, queued behind the business transaction.
    let mut careless = deployment
        .database
        .options
        .clone()
        .application_name("inboxd careless")
        .connect()
        .await
        .unwrap();
    let locking = tokio::spawn(async move {
        sql(
            &mut careless,
            "begin; lock table inbox in access exclusive mode; commit",
        )
        .await
    });
    let database = deployment.database.clone();
    wait_for(&database, "inboxd careless").await;
    let mut waiting = consumer(&deployment.database).await;
    // A random id of the same inbox looks back through the parent.
    sql(&mut waiting, "set statement_timeout = '20s'").await;
    let claiming = tokio::spawn(async move {
        sql(&mut waiting, "select count(*) from inbox").await;
    });
    wait_for(&database, "claims").await;
    let before = sampler.samples.load(Ordering::SeqCst);
    let counter = sampler.samples.clone();
    for _ in 0..2_000 {
        if counter.load(Ordering::SeqCst) > before + 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    sql(&mut business, "commit").await;
    locking.await.unwrap();
    claiming.await.unwrap();
    let (_, seen) = sampler.stop().await;
    assert!(
        seen.iter().any(|blocker| blocker.starts_with("inboxd careless")),
        "{seen:?}"
    );
}

/// Waits until a session of that application waits for a lock.
async fn wait_for(database: &TestDatabase, application: &str) {
    let mut connection = database.connect().await;
    for _ in 0..2_000 {
        let waits: bool = sqlx::query_scalar(
            "select exists (select from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock')",
        )
        .bind(application)
        .fetch_one(&mut connection)
        .await
        .unwrap();
        if waits {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no session of {application} waits for a lock");
}
