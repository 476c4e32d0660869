//! PostgreSQL for the tests: one server a test process, started by the first test that asks, and a fresh database
//! for each test on it; or a server of the test's own.
//!
//! `INBOXD_TEST_PG_BINDIR` chooses the server programs.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use inboxd::postgres::embedded::{Cluster, ClusterOptions};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use super::folder::Folder;

/// Tests run in parallel, each with a few connections.
const MAX_CONNECTIONS: &str = "200";

/// A server with the folder it lives in.
#[derive(Debug)]
pub(crate) struct OwnServer {
    // Dropped in this order: the cluster is asked to stop, then the folder waits for that and removes all.
    pub(crate) cluster: Cluster,
    pub(crate) folder: Folder,
}

/// A database of one test.
#[derive(Debug, Clone)]
pub(crate) struct TestDatabase {
    pub(crate) name: String,
    pub(crate) options: PgConnectOptions,
    pub(crate) url: String,
}

/// Options for a cluster in `folder` as tests want them: fast, on the programs under test.
pub(crate) fn options_in(folder: &Path) -> ClusterOptions {
    let mut options = ClusterOptions::new(folder.join("data"));
    options.bin_dir = std::env::var_os("INBOXD_TEST_PG_BINDIR").map(Into::into);
    options.durable = false;
    options
}

/// A server of the test's own, with settings of its own; gone when dropped.
pub(crate) async fn own(settings: &[(&str, &str)]) -> OwnServer {
    let folder = Folder::new();
    let mut options = options_in(folder.path());
    options.settings = settings
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    OwnServer::start(folder, options).await
}

/// The server that the tests of this process share.
///
/// It is never dropped, as nothing static is; the folder's watchdog ends it after this process.
pub(crate) fn shared() -> &'static OwnServer {
    static SHARED: OnceLock<OwnServer> = OnceLock::new();
    SHARED.get_or_init(|| {
        // A thread of its own, because the caller's may be driving a runtime already.
        let start = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(own(&[("max_connections", MAX_CONNECTIONS)]))
        };
        std::thread::spawn(start)
            .join()
            .expect("the shared PostgreSQL did not start; see above")
    })
}

/// A fresh database on the shared server.
pub(crate) async fn database() -> TestDatabase {
    shared().database().await
}

impl OwnServer {
    pub(crate) async fn start(folder: Folder, options: ClusterOptions) -> Self {
        let cluster = Cluster::start(options).await.unwrap_or_else(|error| panic!("{error}"));
        Self { cluster, folder }
    }

    /// The server whose data lies in the folder already.
    pub(crate) async fn start_again(folder: Folder) -> Self {
        let options = options_in(folder.path());
        Self::start(folder, options).await
    }

    /// A fresh, empty database with a name that no other test has.
    pub(crate) async fn database(&self) -> TestDatabase {
        self.database_like("template0").await
    }

    /// A database that holds what another does, to which nobody may be connected.
    pub(crate) async fn copy_of(&self, database: &TestDatabase) -> TestDatabase {
        self.database_like(&database.name).await
    }

    async fn database_like(&self, template: &str) -> TestDatabase {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut admin = self.cluster.connect_options("postgres").connect().await.unwrap();
        let statement = format!("create database {name} template {template}");
        sqlx::query(AssertSqlSafe(statement)).execute(&mut admin).await.unwrap();
        admin.close().await.unwrap();
        let (options, url) = (self.cluster.connect_options(&name), self.cluster.url(&name));
        TestDatabase { name, options, url }
    }
}

impl TestDatabase {
    pub(crate) async fn connect(&self) -> PgConnection {
        self.options.connect().await.unwrap()
    }
}

mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::support::process::{self, OtherProcess};

    const SHARER: &str = "support::server::tests::process_with_a_shared_server";

    #[tokio::test]
    async fn every_test_gets_an_empty_database_of_its_own() {
        let (one, other) = (database().await, database().await);
        assert_ne!(one.name, other.name);
        let mut connection = one.connect().await;
        let (name, tables): (String, i64) =
            sqlx::query_as("select current_database()::text, count(*) from pg_tables where schemaname = 'public'")
                .fetch_one(&mut connection)
                .await
                .unwrap();
        assert_eq!((name, tables), (one.name, 0));
    }

    #[tokio::test]
    async fn a_server_of_its_own_has_its_settings_and_is_gone_once_dropped() {
        let server = own(&[("work_mem", "7MB")]).await;
        let mut connection = server.database().await.connect().await;
        let work_mem: String = sqlx::query_scalar("show work_mem")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(work_mem, "7MB");
        let (pid, path) = (server.cluster.pid(), server.folder.path().to_path_buf());
        drop(server);
        assert!(!process::lives(pid) && !path.exists());
    }

    #[test]
    fn the_shared_server_ends_with_a_test_process_that_finishes() {
        ends_with_its_process(OtherProcess::finish);
    }

    #[test]
    fn the_shared_server_ends_with_a_test_process_that_is_killed() {
        ends_with_its_process(OtherProcess::kill);
    }

    fn ends_with_its_process(end: fn(OtherProcess)) {
        let folder = Folder::new();
        let mut sharer = OtherProcess::run(SHARER, folder.path());
        let report = sharer.report();
        let (pid, path) = report.split_once(' ').unwrap();
        let (pid, path): (u32, PathBuf) = (pid.parse().unwrap(), path.into());
        assert!(process::lives(pid) && path.exists());
        end(sharer);
        let gone = || (!process::lives(pid) && !path.exists()).then_some(());
        process::poll(Duration::from_secs(30), gone).expect("server and folder are gone");
    }

    #[tokio::test]
    #[ignore = "run by other tests as a process of its own"]
    async fn process_with_a_shared_server() {
        if process::report_file().is_none() {
            return;
        }
        let server = shared();
        // An open connection must not keep the server up.
        let _connection = server.database().await.connect().await;
        process::report_and_wait(&format!("{} {}", server.cluster.pid(), server.folder.path().display()));
    }
}
