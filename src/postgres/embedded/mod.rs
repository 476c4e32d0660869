//! A private PostgreSQL: one cluster in a folder of ours, run as a child process.
//!
//! It serves whoever tries inboxd without a database of their own, and the tests. The module knows nothing of
//! inboxes. Its invariant: at most one server works on a data folder, and nobody else's folder, process or port is
//! ever touched.
//!
//! Connections need no password (`trust`); what keeps strangers out is the socket's folder, which only the server's
//! account and root may enter. A port opens the cluster to every account of this machine.

mod binaries;
mod connect;
mod error;
mod folders;
mod identity;
mod initdb;
mod pidfile;
mod server;

use std::ffi::OsString;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use nix::sys::signal::Signal;

use binaries::{Binaries, Search};
use identity::Identity;

pub use error::EmbeddedError;

/// The number in the name of the socket file where no port is listened on.
const SOCKET_ONLY_PORT: u16 = 5432;

/// How often a process is asked whether it still lives. A fast shutdown of an idle server takes about 50 ms.
const EXIT_POLL: Duration = Duration::from_millis(25);

/// How a private cluster is to be run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClusterOptions {
    /// The cluster's data folder. Files named `<data_dir>.lock` and `<data_dir>.log` come to stand beside it.
    pub data_dir: PathBuf,
    /// The folder of the unix socket. Two clusters that run at the same time need two.
    pub socket_dir: PathBuf,
    /// A port to listen on at 127.0.0.1 as well. Every account of the machine can then connect as superuser.
    pub port: Option<u16>,
    /// The folder of the server programs; found in the usual places where it is not given.
    pub bin_dir: Option<PathBuf>,
    /// Server settings, by name. Address, port and socket folder are not overridden by them.
    pub settings: Vec<(String, String)>,
    /// Environment variables of the server processes, beside those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether a commit survives a power cut. Without, the server starts faster and may lose everything: tests only.
    pub durable: bool,
}

impl ClusterOptions {
    /// A durable cluster in `data_dir`, reachable by a unix socket in the folder `socket` beside it.
    ///
    /// Where that path is too long for a socket, the folder lies below the temporary one under a name of its own.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        let data_dir = data_dir.into();
        Self {
            socket_dir: folders::default_socket_dir(&data_dir, SOCKET_ONLY_PORT),
            data_dir,
            port: None,
            bin_dir: None,
            settings: Vec::new(),
            environment: Vec::new(),
            durable: true,
        }
    }
}

/// A running private PostgreSQL.
///
/// Dropping it asks the server for a fast shutdown and does not wait for the end; [`stop`](Self::stop) does both.
#[derive(Debug)]
pub struct Cluster {
    options: ClusterOptions,
    binaries: Binaries,
    identity: Identity,
    log_file: PathBuf,
    server: Server,
    /// Held as long as a server may be running on the folder.
    lock: Option<File>,
}

/// The server process. One that an earlier process left behind has no handle, only its number.
#[derive(Debug)]
struct Server {
    pid: u32,
    child: Option<Child>,
}

impl Cluster {
    /// Makes the cluster where the data folder is new, starts its server and waits until it answers.
    ///
    /// A server that an earlier, killed process left running on this folder is taken over, with its connections, if
    /// it was started with the same arguments; otherwise it is stopped first. An `initdb` that was cut short is done
    /// again.
    ///
    /// A root process runs the server as the owner of the data folder, else as `postgres` or `nobody`.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError`] names what is in the way and the remedy. A folder that is no cluster, or one of another
    /// major version, is left untouched.
    pub async fn start(options: ClusterOptions) -> Result<Self, EmbeddedError> {
        let options = absolute(options)?;
        let data_dir = &options.data_dir;
        let identity = Identity::choose(data_dir)?;
        // The cheap refusals come before the first file is made.
        folders::check_paths(data_dir, &options.socket_dir, options.port.unwrap_or(SOCKET_ONLY_PORT))?;
        let version = folders::version_of(data_dir)?;
        let wanted = version.as_deref().and_then(binaries::leading_number);
        let binaries = Search::from_environment(options.bin_dir.clone()).find(wanted, &identity)?;
        if let Some(version) = &version {
            folders::check_version(data_dir, version, &binaries)?;
        }

        identity.check_reach(data_dir)?;

        let lock = folders::lock(data_dir)?;
        // Looked at again: until we held the lock, another process may have been making it.
        match folders::version_of(data_dir)? {
            Some(version) => folders::check_version(data_dir, &version, &binaries)?,
            None => {
                initdb::initialize(data_dir, &binaries, &identity, &options.environment, options.durable).await?;
            }
        }

        let log_file = folders::beside(data_dir, ".log");
        let server = Server { pid: 0, child: None };
        let mut cluster = Self {
            options,
            binaries,
            identity,
            log_file,
            server,
            lock: Some(lock),
        };
        cluster.launch().await?;
        Ok(cluster)
    }

    /// Stops the server if it runs, and starts it again.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start) and [`stop`](Self::stop).
    pub async fn restart(&mut self) -> Result<(), EmbeddedError> {
        self.shut_down().await?;
        self.launch().await
    }

    /// Stops the server: a fast shutdown, which rolls open transactions back; after half a minute an immediate one.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError::StopFailed`] if the server outlives even that.
    pub async fn stop(mut self) -> Result<(), EmbeddedError> {
        self.shut_down().await
    }

    /// Whether the server process lives.
    pub fn is_running(&mut self) -> bool {
        self.server.is_running(&self.options.data_dir)
    }

    /// Waits until the server process is gone, and says how it ended where that is known.
    ///
    /// The end of a server that was taken over from an earlier process is seen, its exit status is not. Cancel safe.
    pub async fn wait_exit(&mut self) -> Option<ExitStatus> {
        while self.is_running() {
            tokio::time::sleep(EXIT_POLL).await;
        }
        self.server
            .child
            .as_mut()
            .and_then(|child| child.try_wait().ok().flatten())
    }

    /// The process id of the server, also when it has ended since.
    pub fn pid(&self) -> u32 {
        self.server.pid
    }

    /// The data folder, as an absolute path.
    pub fn data_dir(&self) -> &Path {
        &self.options.data_dir
    }

    /// The folder of the unix socket, as an absolute path.
    pub fn socket_dir(&self) -> &Path {
        &self.options.socket_dir
    }

    /// The folder of the server programs.
    pub fn bin_dir(&self) -> &Path {
        &self.binaries.dir
    }

    /// The server's log.
    pub fn log_file(&self) -> &Path {
        &self.log_file
    }

    /// The major version of PostgreSQL.
    pub fn major_version(&self) -> u32 {
        self.binaries.major
    }

    /// The port on 127.0.0.1, or the number in the name of the socket where none is listened on.
    fn port(&self) -> u16 {
        self.options.port.unwrap_or(SOCKET_ONLY_PORT)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.is_running() {
            return;
        }
        pidfile::send(self.server.pid, Signal::SIGINT);
        // The lock is let go of only after the server's end, and a child is reaped. Should the thread not start, both
        // happen with the end of this process.
        let (lock, child) = (self.lock.take(), self.server.child.take());
        let (mut server, data_dir) = (
            Server {
                pid: self.server.pid,
                child,
            },
            self.options.data_dir.clone(),
        );
        let reaper = std::thread::Builder::new().name("inboxd-reap-postgres".into());
        let _ = reaper.spawn(move || {
            while server.is_running(&data_dir) {
                std::thread::sleep(EXIT_POLL);
            }
            drop(lock);
        });
    }
}

/// Makes the paths independent of the current folder, which the server does not share.
fn absolute(mut options: ClusterOptions) -> Result<ClusterOptions, EmbeddedError> {
    for path in [&mut options.data_dir, &mut options.socket_dir] {
        *path = std::path::absolute(&*path).map_err(EmbeddedError::io("resolve", path))?;
    }
    Ok(options)
}

/// Whether the port can be listened on, asked before the server does, for the sake of a clear answer.
fn check_port(port: u16) -> Result<(), EmbeddedError> {
    TcpListener::bind(("127.0.0.1", port))
        .map(drop)
        .map_err(|source| EmbeddedError::PortTaken { port, source })
}
