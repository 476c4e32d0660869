//! Who makes a claim wait, and for how long: asked of the server, every few milliseconds.

use sqlx::ConnectOptions;

use super::*;

/// A sample in which a claim waited for one of our sessions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wait {
    /// The first line of our statement: what it is doing, or did last in its transaction.
    pub(super) statement: String,
    /// How long the claim had waited by then.
    pub(super) waited: Duration,
}

/// Samples until it is stopped.
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    task: JoinHandle<(u64, Vec<Wait>)>,
}

impl Watch {
    pub(super) async fn start(database: &TestDatabase) -> Self {
        let mut connection = database
            .options
            .clone()
            .application_name("watch")
            .connect()
            .await
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let (mut samples, mut seen) = (0, Vec::new());
            let mut tick = tokio::time::interval(Duration::from_millis(3));
            while !stopped.load(Ordering::SeqCst) {
                tick.tick().await;
                let found: Vec<(String, f64)> = sqlx::query_as(
                    "select split_part(blocker.query, e'\\n', 1),
                       coalesce(extract(epoch from clock_timestamp() - wanted.waitstart), 0)::float8
                     from pg_stat_activity as waiting
                     join pg_locks as wanted on wanted.pid = waiting.pid and not wanted.granted
                     cross join unnest(pg_blocking_pids(waiting.pid)) as blocking (pid)
                     join pg_stat_activity as blocker on blocker.pid = blocking.pid
                     where waiting.application_name = 'claims' and blocker.application_name like 'inboxd%'",
                )
                .fetch_all(&mut connection)
                .await
                .unwrap();
                samples += 1;
                seen.extend(found.into_iter().map(|(statement, seconds)| Wait {
                    statement,
                    waited: Duration::from_secs_f64(seconds.max(0.0)),
                }));
            }
            (samples, seen)
        });
        Self { stop, task }
    }

    /// What was seen since the start.
    pub(super) async fn stop(self) -> Seen {
        self.stop.store(true, Ordering::SeqCst);
        let (samples, waits) = self.task.await.unwrap();
        Seen { samples, waits }
    }
}

/// What a watch saw.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) samples: u64,
    pub(super) waits: Vec<Wait>,
}

impl Seen {
    pub(super) fn longest(&self) -> Duration {
        self.waits.iter().map(|wait| wait.waited).max().unwrap_or_default()
    }

    /// Whoever waited, waited for one of these statements: all that stand in a transaction between its lock and its commit.
    #[track_caller]
    pub(super) fn must_only_be(&self, statements: &[&str]) {
        for wait in &self.waits {
            assert!(
                statements.iter().any(|statement| wait.statement == *statement),
                "a claim waited for what is not under the swap's lock: {wait:?}"
            );
        }
    }
}

/// The lock itself, for which claims queue, and the end of its transaction. The driver sends the last two itself.
const LOCKING: &[&str] = &["-- inboxd: adopt, lock the table", "COMMIT", "ROLLBACK"];

/// What the transaction of the preparation does under its lock.
pub(super) fn of_the_checks() -> Vec<&'static str> {
    [LOCKING, &["-- inboxd: adopt, add a check that holds for new rows"]].concat()
}

/// What the swap does under its lock.
pub(super) fn of_the_swap() -> Vec<&'static str> {
    let under_it = [
        "-- inboxd: observe a table that may be adopted",
        "-- inboxd: adopt, rename the table to the partition that it becomes, or the parent to its name",
        "-- inboxd: comment on a table",
        "-- inboxd: create partition, attach",
        "-- inboxd: adopt, drop a check, of a table that nobody sees yet or that the transaction has locked",
    ];
    [LOCKING, &under_it].concat()
}
