//! Maintenance that is killed inside a step, or between two, and what the next run makes of it.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use chrono::TimeDelta;
use inboxd::Retention;
use sqlx::{Connection, PgConnection};

use crate::support::{
    clock::ClockServer,
    folder::Folder,
    inbox::{Deployment, spec, sql, steps},
};

/// The kinds of step, each with what holds it up.
#[derive(Debug, Clone, Copy)]
enum Inside {
    /// The create transaction, at its attach.
    Create,
    /// A detach, before it is pending.
    DetachFirstPhase,
    /// A detach, when it is pending.
    DetachSecondPhase,
    /// A finalize.
    Finalize,
    /// A drop.
    Drop,
}

const ALL: [Inside; 5] = [
    Inside::Create,
    Inside::DetachFirstPhase,
    Inside::DetachSecondPhase,
    Inside::Finalize,
    Inside::Drop,
];

impl Inside {
    /// The step that is killed.
    fn step(self) -> &'static str {
        match self {
            Self::Create => "create inbox_2026_12_09",
            Self::DetachFirstPhase | Self::DetachSecondPhase => "detach inbox_2026_12_01",
            Self::Finalize => "finalize inbox_2026_12_01",
            Self::Drop => "drop inbox_2026_12_01",
        }
    }

    /// What holds it up until it commits.
    fn held_up_by(self) -> &'static str {
        match self {
            Self::Create | Self::DetachFirstPhase => "begin; lock table inbox in share update exclusive mode",
            Self::DetachSecondPhase => "begin; select count(*) from inbox",
            Self::Finalize | Self::Drop => "begin; select count(*) from inbox_2026_12_01",
        }
    }

    /// Brings an inbox to where this step is the next one.
    async fn approach(self, server: &ClockServer, deployment: &Deployment) {
        let mut admin = deployment.database.connect().await;
        server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
        deployment.init().await.unwrap();
        deployment.done().await;
        // With the old day on hold the pass makes what is missing and leaves only the removal.
        let hold =
            "insert into inboxd.holds (inbox_id, day, reason) select id, '2026-12-01', 'test' from inboxd.inboxes";
        sql(&mut admin, hold).await;
        server.set_to("2026-12-03T12:00:00Z".parse().unwrap());
        if !matches!(self, Self::Create) {
            deployment.done().await;
            sql(&mut admin, "delete from inboxd.holds").await;
        }
        match self {
            Self::Finalize => {
                let mut reader = deployment.database.connect().await;
                sql(&mut reader, "begin; select count(*) from inbox").await;
                sql(&mut admin, "set lock_timeout = '50ms'").await;
                let cut = sqlx::raw_sql("alter table inbox detach partition inbox_2026_12_01 concurrently")
                    .execute(&mut admin)
                    .await;
                cut.unwrap_err();
                sql(&mut reader, "commit").await;
            }
            Self::Drop => {
                assert_eq!(deployment.done().await, ["detach inbox_2026_12_01"]);
                server.step(TimeDelta::minutes(61));
            }
            Self::Create | Self::DetachFirstPhase | Self::DetachSecondPhase => {}
        }
        let planned = deployment.plan().await;
        let next = &planned[0].plan.steps[0];
        assert_eq!(format!("{} {}", next.action.as_str(), next.relation), self.step());
    }
}

fn deployment(server: &ClockServer, database: crate::support::server::TestDatabase) -> Deployment {
    let mut spec = spec("public.inbox");
    spec.policy.retention = Retention::For(TimeDelta::days(1));
    spec.policy.drop_grace = TimeDelta::hours(1);
    let mut deployment = Deployment::new(database, server.clock(), vec![spec]);
    deployment.timeouts.lock = Duration::from_secs(30);
    deployment
}

/// Runs until nothing is left to do, over the grace of what was detached, and returns what the catalog then holds.
async fn settled(server: &ClockServer, deployment: &Deployment) -> Vec<(String, bool, Option<String>)> {
    let mut admin = deployment.database.connect().await;
    sql(&mut admin, "delete from inboxd.holds").await;
    for _ in 0..2 {
        for round in 0.. {
            assert!(round < 5, "it does not come to rest");
            if deployment.done().await.is_empty() {
                break;
            }
        }
        server.step(TimeDelta::minutes(61));
    }
    sqlx::query_as(
        "select relation.relname::text, relation.relispartition,
           (select string_agg(conname || ' ' || pg_get_constraintdef(c.oid), ', ') from pg_constraint as c where c.conrelid = relation.oid)
         from pg_class as relation
         where relation.relnamespace = 'public'::regnamespace and relation.relkind in ('r', 'p')
         order by 1",
    )
    .fetch_all(&mut admin)
    .await
    .unwrap()
}

async fn wait_for_a_lock(deployment: &Deployment) -> i32 {
    let mut connection = deployment.database.connect().await;
    for _ in 0..4_000 {
        let pid: Option<i32> = sqlx::query_scalar(
            "select pid from pg_stat_activity
             where application_name like 'inboxd%' and datname = current_database() and wait_event_type = 'Lock'",
        )
        .fetch_optional(&mut connection)
        .await
        .unwrap();
        if let Some(pid) = pid {
            return pid;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("maintenance does not wait for a lock");
}

async fn undisturbed(inside: Inside, server: &ClockServer) -> Vec<(String, bool, Option<String>)> {
    let deployment = deployment(server, server.database().await);
    inside.approach(server, &deployment).await;
    settled(server, &deployment).await
}

#[tokio::test]
async fn a_backend_that_is_terminated_inside_a_step_leaves_what_the_next_run_finishes() {
    let server = ClockServer::start(&[]).await;
    for inside in ALL {
        let expected = undisturbed(inside, &server).await;
        let deployment = deployment(&server, server.database().await);
        inside.approach(&server, &deployment).await;
        let mut blocker = deployment.database.connect().await;
        sql(&mut blocker, inside.held_up_by()).await;
        let passing = tokio::spawn({
            let deployment = deployment.clone();
            async move { deployment.outcome(false).await }
        });
        let pid = wait_for_a_lock(&deployment).await;
        terminate(&mut deployment.database.connect().await, pid).await;
        passing.await.unwrap().unwrap_err();
        sql(&mut blocker, "commit").await;
        assert_eq!(settled(&server, &deployment).await, expected, "{inside:?}");
    }
}

async fn terminate(connection: &mut PgConnection, pid: i32) {
    let ended: bool = sqlx::query_scalar("select pg_terminate_backend($1, 10000)")
        .bind(pid)
        .fetch_one(connection)
        .await
        .unwrap();
    assert!(ended, "backend {pid} has not ended");
}

#[tokio::test]
async fn a_process_that_is_killed_inside_a_step_leaves_what_the_next_run_finishes() {
    let server = ClockServer::start(&[]).await;
    let folder = Folder::new();
    for inside in ALL {
        let expected = undisturbed(inside, &server).await;
        let deployment = deployment(&server, server.database().await);
        inside.approach(&server, &deployment).await;
        let mut blocker = deployment.database.connect().await;
        sql(&mut blocker, inside.held_up_by()).await;
        let mut run = run_program(&server, &deployment, &folder);
        let pid = wait_for_a_lock(&deployment).await;
        run.kill().unwrap();
        run.wait().unwrap();
        sql(&mut blocker, "commit").await;
        // The server notices a dead client only when it next speaks to it; the run lock goes with the session.
        wait_for_the_end_of(&mut deployment.database.connect().await, pid).await;
        assert_eq!(settled(&server, &deployment).await, expected, "{inside:?}");
    }
}

/// `inboxd run` as a process of its own, under the server's clock.
fn run_program(server: &ClockServer, deployment: &Deployment, folder: &Folder) -> Child {
    let config = folder.path().join(format!("{}.toml", deployment.database.name));
    let text = "deployment = \"test\"\n[maintenance]\nlock_timeout = \"30s\"\nstatement_timeout = \"1m\"\n\
                [[inbox]]\ntable = \"public.inbox\"\nretention = \"1d\"\ndrop_grace = \"1h\"\n";
    std::fs::write(&config, text).unwrap();
    Command::new(env!("CARGO_BIN_EXE_inboxd"))
        .arg("run")
        .env_clear()
        .env("INBOXD_CONFIG", config)
        .env("DATABASE_URL", &deployment.database.url)
        .envs(server.shim_environment())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

async fn wait_for_the_end_of(connection: &mut PgConnection, pid: i32) {
    for _ in 0..4_000 {
        let lives: bool = sqlx::query_scalar("select exists (select from pg_stat_activity where pid = $1)")
            .bind(pid)
            .fetch_one(&mut *connection)
            .await
            .unwrap();
        if !lives {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("backend {pid} lives on");
}

#[tokio::test]
async fn a_backend_that_is_terminated_between_two_steps_leaves_what_the_next_run_finishes() {
    let server = ClockServer::start(&[]).await;
    let expected = undisturbed(Inside::Create, &server).await;
    for after in 0..4 {
        let deployment = deployment(&server, server.database().await);
        Inside::Create.approach(&server, &deployment).await;
        sql(&mut deployment.database.connect().await, "delete from inboxd.holds").await;
        let mut connection = deployment.maintenance().await;
        let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        let asked = std::sync::atomic::AtomicU32::new(0);
        // Asked between the steps, it kills from outside, as an operator or the kernel would.
        let stop = || {
            if asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == after {
                Command::new("kill").arg(pid.to_string()).status().unwrap();
            }
            false
        };
        let request = inboxd::maintain::PassRequest {
            deployment: &deployment.name,
            specs: &deployment.specs,
            replica: None,
            trigger: inboxd::maintain::Trigger::Manual,
            confirm_clock: false,
            retries: deployment.retries,
            clock: &deployment.clock,
            stop: &stop,
        };
        let outcome = inboxd::maintain::run_pass(&mut connection, request).await;
        if after < 3 {
            outcome.unwrap_err();
        } else {
            assert_eq!(
                asked.load(std::sync::atomic::Ordering::SeqCst),
                3,
                "two days are made and one is taken out"
            );
        }
        let _ = connection.close().await;
        assert_eq!(settled(&server, &deployment).await, expected, "after {after} steps");
    }
    assert!(!steps_of_a_quiet_run(&server).await.is_empty());
}

/// The negative of the above: the steps that were to be cut do exist.
async fn steps_of_a_quiet_run(server: &ClockServer) -> Vec<String> {
    let deployment = deployment(server, server.database().await);
    Inside::Create.approach(server, &deployment).await;
    steps(&deployment.pass().await)
}
