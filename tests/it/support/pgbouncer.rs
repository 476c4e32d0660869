//! A pgbouncer in transaction mode, as many a server has in front of it.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;

use super::folder::Folder;
use super::process::{self, Watchdog};

/// A pgbouncer of the test's own; ended when dropped, or after the test process's own end.
#[derive(Debug)]
pub(crate) struct Bouncer {
    child: Child,
    _watchdog: Watchdog,
    _folder: Folder,
    port: u16,
}

impl Bouncer {
    /// Starts one in front of the server that listens in this folder.
    pub(crate) fn start(socket_dir: &Path) -> Self {
        Self::ignoring(socket_dir, "extra_float_digits")
    }

    /// The same, with a list of start-up parameters that it drops in silence; others than its own few it refuses, and
    /// sqlx sends `extra_float_digits`.
    pub(crate) fn ignoring(socket_dir: &Path, parameters: &str) -> Self {
        Self::configured(socket_dir, parameters, "")
    }

    /// One whose clients share so many sessions of the server.
    pub(crate) fn sharing(socket_dir: &Path, sessions: usize) -> Self {
        Self::configured(
            socket_dir,
            "extra_float_digits",
            &format!("default_pool_size = {sessions}\n"),
        )
    }

    fn configured(socket_dir: &Path, ignored: &str, more: &str) -> Self {
        let folder = Folder::new();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let file = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host={} port=5432 user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\nignore_startup_parameters = {ignored}\n{more}",
            socket_dir.display()
        );
        std::fs::write(&file, text).unwrap();
        process::open_to_all(&file);
        let mut command = Command::new("pgbouncer");
        command
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // It refuses to run as root.
        let mut child = process::as_owner_of(socket_dir, &mut command)
            .spawn()
            .expect("pgbouncer is needed to stand in front of a server: apt-get install pgbouncer");
        let watchdog = Watchdog::over(&child);
        let listens = || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "pgbouncer ended: {ended:?}");
            TcpStream::connect(("127.0.0.1", port)).ok()
        };
        process::poll(Duration::from_secs(20), listens).expect("pgbouncer listens");
        Self {
            child,
            _watchdog: watchdog,
            _folder: folder,
            port,
        }
    }

    /// A URL for a connection to a database as superuser.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// The same for sqlx. What it prepares fails sooner or later, unless it is `persistent(false)` within a transaction.
    pub(crate) fn options(&self, database: &str) -> PgConnectOptions {
        self.url(database).parse().unwrap()
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
