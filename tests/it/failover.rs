//! A primary that dies under a run, and its streaming standby that takes over at the same address.

use std::{
    collections::BTreeSet,
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use inboxd::{Day, postgres::embedded::Cluster};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sqlx::{Acquire, ConnectOptions, PgConnection, postgres::PgConnectOptions};
use uuid::Uuid;

use crate::support::{
    claims::eventually,
    folder::Folder,
    inbox::{claim, random_id, sql},
    program::{A_WHILE, Service, ask},
    proxy::Proxy,
    server::{OwnServer, options_in},
};

/// A primary and a standby that streams from it.
struct Pair {
    primary: OwnServer,
    standby: OwnServer,
}

impl Pair {
    async fn start() -> Self {
        let (folder, other) = (Folder::new(), Folder::new());
        let primary = Cluster::start(options_in(folder.path())).await.unwrap();
        let socket = primary.socket_dir().to_owned();
        // A copy of the server at rest, which needs no program that only some packages bring.
        primary.stop().await.unwrap();
        copy(&folder.path().join("data"), &other.path().join("data"));
        let primary = OwnServer::start_again(folder).await;
        std::fs::write(other.path().join("data/standby.signal"), "").unwrap();
        let line = format!("primary_conninfo = 'host={} user=postgres'\n", socket.display());
        let file = other.path().join("data/postgresql.auto.conf");
        let settings = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, settings + &line).unwrap();
        let standby = OwnServer::start_again(other).await;
        let pair = Self { primary, standby };
        eventually("the standby streams", async || pair.is_streaming().await).await;
        pair
    }

    async fn is_streaming(&self) -> bool {
        sqlx::query_scalar("select exists (select from pg_stat_replication where state = 'streaming')")
            .fetch_one(
                &mut self
                    .primary
                    .cluster
                    .connect_options("postgres")
                    .connect()
                    .await
                    .unwrap(),
            )
            .await
            .unwrap()
    }

    /// Returns once the standby shows all that the primary has.
    async fn catch_up(&self) {
        let mut primary = self
            .primary
            .cluster
            .connect_options("postgres")
            .connect()
            .await
            .unwrap();
        let position: String = sqlx::query_scalar("select pg_current_wal_flush_lsn()::text")
            .fetch_one(&mut primary)
            .await
            .unwrap();
        eventually("the standby has caught up", async || {
            let reached = "select pg_last_wal_replay_lsn() >= $1::pg_lsn";
            sqlx::query_scalar(reached)
                .bind(&position)
                .fetch_one(
                    &mut self
                        .standby
                        .cluster
                        .connect_options("postgres")
                        .connect()
                        .await
                        .unwrap(),
                )
                .await
                .unwrap()
        })
        .await;
    }

    /// Kills the primary outright and promotes the standby.
    async fn fail_over(&self) {
        kill(
            Pid::from_raw(self.primary.cluster.pid().try_into().unwrap()),
            Signal::SIGKILL,
        )
        .unwrap();
        let mut standby = self
            .standby
            .cluster
            .connect_options("postgres")
            .connect()
            .await
            .unwrap();
        sql(&mut standby, "select pg_promote()").await;
    }
}

fn copy(from: &Path, to: &Path) {
    // With its owner and modes: the server refuses a folder of anybody else's.
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// Claims and works over and over, and delivers again what failed, as a broker does; what was acked.
async fn consume(options: PgConnectOptions, stop: Arc<AtomicBool>, acked: Arc<Mutex<BTreeSet<Uuid>>>) {
    let mut connection: Option<PgConnection> = None;
    let mut message = random_id();
    while !stop.load(Ordering::SeqCst) {
        let worked = match &mut connection {
            Some(connection) => work(connection, message).await,
            None => match options.connect().await {
                Ok(connected) => {
                    connection = Some(connected);
                    continue;
                }
                Err(error) => Err(error),
            },
        };
        match worked {
            Ok(()) => {
                acked.lock().unwrap().insert(message);
                message = random_id();
            }
            Err(_) => {
                connection = None;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

async fn work(connection: &mut PgConnection, message: Uuid) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    if claim(&mut transaction, "inbox", message).await? {
        sqlx::query("insert into work (message_id) values ($1)")
            .bind(message)
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await
}

async fn rows(connection: &mut PgConnection, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(connection).await.unwrap()
}

/// A statement of the test's own that waits for ever would keep it.
async fn in_time(test: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(120), test)
        .await
        .expect("it takes a few seconds");
}

async fn a_standby_takes_over(is_synchronous: bool) {
    let mut pair = Pair::start().await;
    let database = pair.primary.database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut proxy = Proxy::in_front_of(&database).await;
    let mut service = Service::start(&proxy.url(), &[("INBOXD_SCHEDULE__CRON", "* * * * * *")]);
    service.wait_until_ready().await;
    let mut admin = database.connect().await;
    // No key: what is done twice shows.
    sql(&mut admin, "create table work (message_id uuid not null)").await;
    if is_synchronous {
        let mut primary = pair
            .primary
            .cluster
            .connect_options("postgres")
            .connect()
            .await
            .unwrap();
        sql(&mut primary, "alter system set synchronous_standby_names = '*'").await;
        sql(&mut primary, "select pg_reload_conf()").await;
        eventually("it replicates synchronously", async || {
            sqlx::query_scalar("select exists (select from pg_stat_replication where sync_state = 'sync')")
                .fetch_one(&mut database.connect().await)
                .await
                .unwrap()
        })
        .await;
    }
    pair.catch_up().await;
    let (stop, acked) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(BTreeSet::new())));
    let consumers: Vec<_> = (0..3)
        .map(|_| tokio::spawn(consume(proxy.options(), stop.clone(), acked.clone())))
        .collect();
    eventually("claims are made", async || acked.lock().unwrap().len() > 100).await;

    // A run that makes a day again waits for a lock when its primary dies.
    let today: chrono::DateTime<chrono::Utc> = sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(&mut admin)
        .await
        .unwrap();
    let last = format!("inbox_{}", Day::containing(today).plus(5).underscored());
    ask(&database.url, &["pause", "--reason", "a failover"]).must(0, &[]);
    service.wait_for_log("the schedule is paused");
    sql(&mut admin, format!("drop table {last}")).await;
    let mut locker = database.connect().await;
    sql(&mut locker, "begin; lock table inbox in share update exclusive mode").await;
    ask(&database.url, &["resume"]).must(0, &[]);
    pair.catch_up().await;
    let is_waiting = "select count(*) from pg_stat_activity where application_name = 'inboxd maintenance' and wait_event_type = 'Lock'";
    eventually("a run waits", async || {
        rows(&mut database.connect().await, is_waiting).await > 0
    })
    .await;
    pair.fail_over().await;
    let before = acked.lock().unwrap().clone();
    let promoted = pair.standby.cluster.connect_options(&database.name);
    proxy.move_to(&promoted).await;

    // Consumers go on at once, the service by itself.
    eventually("claims go on", async || {
        acked.lock().unwrap().len() > before.len() + 100
    })
    .await;
    let mut admin = promoted.connect().await.unwrap();
    let begun = std::time::Instant::now();
    let is_there = format!("select count(*) from pg_inherits where inhrelid = to_regclass('public.{last}')");
    loop {
        let found: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(is_there.clone()))
            .fetch_one(&mut admin)
            .await
            .unwrap();
        if found == 1 {
            break;
        }
        assert!(begun.elapsed() < A_WHILE, "{:#?}", service.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    service.wait_until_ready().await;
    stop.store(true, Ordering::SeqCst);
    for consumer in consumers {
        consumer.await.unwrap();
    }
    let torn = "select count(*) from work full join inbox using (message_id)
                where work.message_id is null or inbox.message_id is null";
    assert_eq!(rows(&mut admin, torn).await, 0, "work and journal go together");
    let there: Vec<Uuid> = sqlx::query_scalar("select message_id from work")
        .fetch_all(&mut admin)
        .await
        .unwrap();
    let there: BTreeSet<Uuid> = there.into_iter().collect();
    let acked = acked.lock().unwrap().clone();
    let lost: Vec<&Uuid> = acked.difference(&there).collect();
    // What the new primary has confirmed is there. What only the old one had is lost where it was asynchronous.
    assert!(lost.iter().all(|id| before.contains(id)), "{lost:?}");
    if is_synchronous {
        assert!(lost.is_empty(), "{lost:?}");
    }
    // All that was ever acked is delivered again: the journal of the new primary knows what its work knows.
    for message in &acked {
        work(&mut admin, *message).await.unwrap();
    }
    let doubled = "select count(*) from (select from work group by message_id having count(*) > 1) as doubled";
    assert_eq!(rows(&mut admin, doubled).await, 0);
    let all = i64::try_from(there.union(&acked).count()).unwrap();
    assert_eq!(rows(&mut admin, "select count(*) from work").await, all);
    assert!(service.mishaps().is_empty(), "{:?}", service.mishaps());
    service.must_end();
    let _ = pair.primary.cluster.is_running();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s33_when_the_primary_dies_under_a_run_its_standby_takes_over_and_nothing_is_doubled() {
    in_time(a_standby_takes_over(false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s33_from_a_synchronous_standby_nothing_is_lost_either() {
    in_time(a_standby_takes_over(true)).await;
}
