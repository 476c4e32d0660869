//! The examples, as they stand, against a local broker. `cargo test` builds them.

use std::{
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{
    broker::Broker,
    place::{Place, until},
};
use crate::support::process::{self, Watchdog};

/// It begins, works and ends.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn the_example_works_through_its_queue_and_ends_in_peace<B: Broker>() {
    let place = Place::<B>::new().await;
    works_as_it_stands(&place, &place.broker.example(), &[]).await;
}

/// Runs an example until it has claimed and acked what is published.
pub(super) async fn works_as_it_stands<B: Broker>(
    place: &Place<B>,
    (name, environment): &(&str, Vec<(&str, String)>),
    more: &[(&str, String)],
) {
    let ids = place.published(5).await;
    let mut example = Example::start(
        Command::new(program(name))
            .envs(environment.iter().chain(more).cloned())
            .env("DATABASE_URL", &place.deployment.database.url),
    );
    let pid = example.child.id();
    let working = until(async || {
        let claimed: i64 = sqlx::query_scalar("select count(*) from public.inbox")
            .fetch_one(&place.pool)
            .await
            .unwrap();
        assert!(process::lives(pid), "{name} has ended");
        claimed == i64::try_from(ids.len()).unwrap()
    });
    tokio::time::timeout(PATIENCE, working).await.expect("all are claimed");
    let quiet = tokio::time::timeout(PATIENCE, place.broker.quiet());
    quiet.await.expect("all are acked");
    assert!(example.interrupt().success());
    assert_eq!(place.broker.left().await, 0);
    assert!(place.broker.dead().await.is_empty());
}

fn program(name: &str) -> PathBuf {
    // Beside the folder of the tests.
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(
        program.exists(),
        "{name} is not built: cargo build --examples does that"
    );
    program
}

struct Example {
    child: Child,
    _watchdog: Watchdog,
}

impl Example {
    fn start(command: &mut Command) -> Self {
        let child = command
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            _watchdog: Watchdog::over(&child),
            child,
        }
    }

    /// As Ctrl-C does.
    fn interrupt(&mut self) -> ExitStatus {
        signal::kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
        process::poll(PATIENCE, || self.child.try_wait().unwrap()).expect("it ends")
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
