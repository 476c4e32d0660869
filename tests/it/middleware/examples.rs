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

pub(super) async fn the_example_makes_what_it_needs_on_an_empty_broker<B: Broker>() {
    let place = Place::<B>::new().await;
    let (name, mut environment) = place.broker.example();
    // But for the broker's address everything has a name that nothing has yet.
    for (_, value) in &mut environment[1..] {
        value.push_str("-new");
    }
    let example = |more: Option<(&str, &str)>| {
        let mut command = Command::new(program(name));
        command
            .envs(environment.iter().cloned())
            .envs(more)
            .env("DATABASE_URL", &place.deployment.database.url);
        Example::start(&mut command)
    };
    for (count, succeeds) in [("many", false), ("2", true), ("1", true)] {
        let ended = example(Some(("PUBLISH", count))).ended();
        assert_eq!(ended.success(), succeeds, "{count}");
    }
    let mut consumer = example(None);
    consumer.has_claimed(&place, 3).await;
    assert!(consumer.interrupt().success());
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
    example.has_claimed(place, ids.len()).await;
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

    async fn has_claimed<B: Broker>(&self, place: &Place<B>, count: usize) {
        let working = until(async || {
            let claimed: i64 = sqlx::query_scalar("select count(*) from public.inbox")
                .fetch_one(&place.pool)
                .await
                .unwrap();
            assert!(process::lives(self.child.id()), "the example has ended");
            claimed == i64::try_from(count).unwrap()
        });
        tokio::time::timeout(PATIENCE, working).await.expect("all are claimed");
    }

    /// As Ctrl-C does.
    fn interrupt(&mut self) -> ExitStatus {
        signal::kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
        self.ended()
    }

    fn ended(&mut self) -> ExitStatus {
        process::poll(PATIENCE, || self.child.try_wait().unwrap()).expect("it ends")
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
