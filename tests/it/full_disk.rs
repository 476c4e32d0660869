//! A disk that is full, for real: the database lies on a small file system of its own, which needs root.

use std::{
    io::{ErrorKind as IoErrorKind, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use chrono::TimeDelta;
use inboxd::{
    Action, Retention,
    maintain::{StepOutcome, StepReport},
    postgres::ErrorKind,
};
use sqlx::PgConnection;

use crate::support::{
    clock::ClockServer,
    inbox::{Deployment, claim, only, random_id, spec, sql, sqlstate},
    server::TestDatabase,
};

const FILLER: &str = "filler";

/// A file system in memory below the server's folder, whose watchdog unmounts it should the test be killed.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn below(folder: &Path) -> Self {
        let (path, owner) = (folder.join("disk"), std::fs::metadata(folder.join("data")).unwrap());
        std::fs::create_dir(&path).unwrap();
        let options = format!("size=40m,mode=0700,uid={},gid={}", owner.uid(), owner.gid());
        as_root(&["mount", "-t", "tmpfs", "-o", &options, "tmpfs"], &path);
        Self(path)
    }

    /// Until not a byte more fits.
    fn fill(&self) {
        let mut filler = std::fs::File::create(self.0.join(FILLER)).unwrap();
        for _ in 0..40 * 1024 {
            if let Err(error) = filler.write_all(&[1; 1024]) {
                assert_eq!(error.kind(), IoErrorKind::StorageFull, "{error}");
                return;
            }
        }
        panic!("{} does not become full", self.0.display());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The server may still have files of it open.
        as_root(&["umount", "--lazy"], &self.0);
    }
}

fn as_root(command: &[&str], path: &Path) {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let sudo: &[&str] = if is_root { &[] } else { &["sudo", "--non-interactive"] };
    let words: Vec<&str> = sudo.iter().chain(command).copied().collect();
    let output = Command::new(words[0]).args(&words[1..]).arg(path).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{words:?} {}, which takes root: {err}",
        path.display()
    );
}

/// Makes versions of a small row until not even one fits, for a while: what others have left is used up, too. Somebody must
/// hold a snapshot, or the old ones make room for the new.
async fn until_full(connection: &mut PgConnection, update: &'static str) {
    let mut failures = 0;
    for _ in 0..5_000 {
        match sqlx::query(update).execute(&mut *connection).await {
            Ok(done) => {
                assert_eq!(done.rows_affected(), 1);
                failures = 0;
            }
            Err(error) => {
                assert_eq!(sqlstate(&error), "53100", "{error}");
                failures += 1;
            }
        }
        if failures == 20 {
            return;
        }
    }
    panic!("there is always room: {update}");
}

fn of(steps: &[StepReport], action: Action) -> Vec<&StepReport> {
    steps.iter().filter(|step| step.step.action == action).collect()
}

async fn recorded_runs(deployment: &Deployment) -> i64 {
    sqlx::query_scalar("select count(*) from inboxd.runs where deployment = $1")
        .bind(&deployment.name)
        .fetch_one(&mut deployment.database.connect().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn on_a_full_disk_nothing_is_made_and_what_is_due_is_dropped_which_gives_room_for_the_rest() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let disk = SmallDisk::below(server.server.folder.path());
    let mut admin = server.database().await.connect().await;
    let location = disk.0.display();
    sql(&mut admin, format!("create tablespace small location '{location}'")).await;
    sql(&mut admin, "create database small template template0 tablespace small").await;
    let database = TestDatabase {
        name: "small".to_owned(),
        options: server.server.cluster.connect_options("small"),
        url: server.server.cluster.url("small"),
    };
    let mut spec = spec("public.inbox");
    spec.policy.retention = Retention::For(TimeDelta::days(1));
    spec.policy.drop_grace = TimeDelta::hours(1);
    let deployment = Deployment::new(database, server.clock(), vec![spec]);
    deployment.init().await.unwrap();
    deployment.done().await;

    // A day of some size, which is detached two days later, and due to be dropped when the next day has begun.
    let mut consumer = deployment.database.connect().await;
    sql(
        &mut consumer,
        "insert into inbox select gen_random_uuid(), 'orders', clock_timestamp() from generate_series(1, 50000)",
    )
    .await;
    for _ in 0..2 {
        server.step(TimeDelta::days(1));
        deployment.done().await;
    }
    server.step(TimeDelta::days(1));
    let runs = recorded_runs(&deployment).await;
    // Smaller than any of ours.
    sql(
        &mut consumer,
        "insert into inboxd.runs (id, deployment, trigger, version, started_at) select gen_random_uuid(), 'a', 'b', 'c', now();
         insert into inboxd.partitions (inbox_id, day) select id, '1900-01-01' from inboxd.inboxes",
    )
    .await;
    disk.fill();
    let mut reader = deployment.database.connect().await;
    sql(&mut reader, "begin isolation level repeatable read; select 1").await;
    until_full(
        &mut consumer,
        "update inboxd.runs set error = null where deployment = 'a'",
    )
    .await;
    until_full(
        &mut consumer,
        "update inboxd.partitions set created_at = null where day = '1900-01-01'",
    )
    .await;

    // The first claim of a day needs a page of its own.
    let id = random_id();
    assert_eq!(sqlstate(&claim(&mut consumer, "inbox", id).await.unwrap_err()), "53100");

    let report = deployment.pass().await;
    let steps = &only(&report).steps;
    let made = of(steps, Action::Create);
    assert!(!made.is_empty());
    for step in made {
        let StepOutcome::Failed { kind, error } = &step.outcome else {
            panic!("{step:?}");
        };
        assert_eq!(*kind, ErrorKind::DiskFull, "{error}");
    }
    let dropped = of(steps, Action::Drop);
    assert_eq!(dropped.len(), 1, "{steps:?}");
    assert_eq!(dropped[0].outcome, StepOutcome::Done);
    assert_eq!(report.outcome.as_str(), "partial");

    let is_on_record: bool =
        sqlx::query_scalar("select dropped_at is not null from inboxd.partitions where day = '2026-12-01'")
            .fetch_one(&mut consumer)
            .await
            .unwrap();
    assert!(!is_on_record, "there was room for the record of the drop");

    // What it dropped gives room, also for the record of the run, though nobody has made any.
    sql(&mut reader, "rollback").await;
    assert_eq!(recorded_runs(&deployment).await, runs + 1);
    deployment.done().await;
    assert_eq!(recorded_runs(&deployment).await, runs + 2);
    assert!(only(&deployment.pass().await).steps.is_empty());
    assert!(claim(&mut consumer, "inbox", id).await.unwrap());
    assert!(!claim(&mut consumer, "inbox", id).await.unwrap());
}
