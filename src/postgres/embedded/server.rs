//! The server process: started, taken over, waited for, stopped.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions, Connection};

use super::error::EmbeddedError;
use super::{Cluster, Server, check_port, folders, pidfile};

/// The first answer comes after about half a second.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that says it is still recovering after a crash is given longer: it replays up to `max_wal_size`.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(600);

/// How long the backends of a killed server are given to notice. They do within a second unless they are busy.
const ORPHANS_TIMEOUT: Duration = Duration::from_secs(15);

const START_POLL: Duration = Duration::from_millis(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A fast shutdown ends with a checkpoint, which can take long on a slow disk.
const FAST_STOP_TIMEOUT: Duration = Duration::from_secs(30);
const IMMEDIATE_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// SQLSTATE `cannot_connect_now`: starting up, recovering or shutting down.
const CANNOT_CONNECT_NOW: &str = "57P03";

/// How one attempt to reach the server went.
enum Answer {
    /// It serves our data folder.
    Ready,
    /// It lives and asks for patience.
    NotYet,
    /// No answer, or a stranger's; with what was seen.
    None(String),
}

impl Server {
    /// Whether the process lives; a child that has ended is reaped by asking.
    pub(super) fn is_running(&mut self, data_dir: &Path) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => pidfile::serves(self.pid, data_dir),
        }
    }
}

impl Cluster {
    /// Brings a server up: takes over one that lives, else starts one.
    pub(super) async fn launch(&mut self) -> Result<(), EmbeddedError> {
        folders::prepare_socket_dir(self.socket_dir(), self.port(), &self.identity)?;
        if self.take_over().await? {
            return Ok(());
        }
        if let Some(port) = self.options.port {
            check_port(port)?;
        }
        let deadline = Instant::now() + ORPHANS_TIMEOUT;
        loop {
            self.clear_stale_pid_files()?;
            match self.spawn_and_wait().await {
                // It ended and left the pid file of another in place: that one had not written it yet when we
                // looked, or is dead while its backends still live.
                Err(_) if pidfile::read(self.data_dir()).is_some() && Instant::now() < deadline => {
                    if self.take_over().await? {
                        return Ok(());
                    }
                    tokio::time::sleep(START_POLL * 10).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Takes over the server that works on our folder, if one does.
    async fn take_over(&mut self) -> Result<bool, EmbeddedError> {
        let Some(pid) = pidfile::read(self.data_dir()) else {
            return Ok(false);
        };
        if !pidfile::serves(pid, self.data_dir()) {
            return Ok(false);
        }
        self.server = Server { pid, child: None };
        if !self.runs_as_asked() {
            tracing::info!(
                pid,
                "PostgreSQL left by an earlier process has other settings; restarting it"
            );
            self.shut_down().await?;
            return Ok(false);
        }
        let log_start = self.log_file.metadata().map_or(0, |found| found.len());
        match self.wait_ready(log_start).await {
            Ok(()) => {
                tracing::info!(pid, "took over PostgreSQL left running by an earlier process");
                Ok(true)
            }
            // It was on its way down.
            Err(_) if !self.is_running() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the living server was started with the arguments that we would give it.
    fn runs_as_asked(&self) -> bool {
        let Ok(line) = std::fs::read_to_string(self.data_dir().join("postmaster.opts")) else {
            return false;
        };
        let asked: String = self
            .arguments()
            .iter()
            .map(|argument| format!(" \"{argument}\""))
            .collect();
        line.trim_end().ends_with(&asked)
    }

    /// Makes the files that a killed server left not to be in the way. Called once no server works on our folder.
    fn clear_stale_pid_files(&self) -> Result<(), EmbeddedError> {
        let pid_file = pidfile::path_in(self.data_dir());
        let socket_lock = folders::beside(&folders::socket_file(self.socket_dir(), self.port()), ".lock");
        let unclean = pidfile::read(self.data_dir()).is_some();
        // The socket's lock may as well be that of another cluster, alive.
        let ours = pidfile::is_socket_lock_of(&socket_lock, self.data_dir());
        for (file, is_stale) in [(pid_file, unclean), (socket_lock, ours)] {
            if is_stale {
                pidfile::disown(&file).map_err(EmbeddedError::io("rewrite", &file))?;
            }
        }
        Ok(())
    }

    async fn spawn_and_wait(&mut self) -> Result<(), EmbeddedError> {
        let log = folders::open_log(&self.log_file)?;
        let log_start = log.metadata().map_or(0, |found| found.len());
        let program = self.binaries.postgres();
        let log_again = log.try_clone().map_err(EmbeddedError::io("write", &self.log_file))?;
        let mut command: Command = folders::server_command(&program, &self.identity, &self.options.environment);
        command
            .args(self.arguments())
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(log_again));
        // A Ctrl-C at the terminal is for us: we stop the server in order.
        command.process_group(0);
        let child = command.spawn().map_err(EmbeddedError::io("run", &program))?;
        self.server = Server {
            pid: child.id(),
            child: Some(child),
        };
        tracing::debug!(pid = self.server.pid, data_dir = %self.data_dir().display(), "started PostgreSQL");
        let outcome = self.wait_ready(log_start).await;
        if outcome.is_err() {
            // Whatever hinders it, no server is left behind by a start that failed.
            let _ = self.shut_down().await;
        }
        outcome
    }

    /// The server's command line. Settings given last win.
    fn arguments(&self) -> Vec<String> {
        let mut settings: Vec<(&str, String)> = Vec::new();
        if !self.options.durable {
            settings.extend([("fsync", "off".to_owned()), ("full_page_writes", "off".to_owned())]);
        }
        settings.extend(
            self.options
                .settings
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone())),
        );
        // The value is a list, in which a quoted element may hold commas and blanks.
        let socket_dir = format!("\"{}\"", self.socket_dir().to_string_lossy().replace('"', "\"\""));
        settings.extend([
            (
                "listen_addresses",
                if self.options.port.is_some() {
                    "127.0.0.1".to_owned()
                } else {
                    String::new()
                },
            ),
            ("port", self.port().to_string()),
            ("unix_socket_directories", socket_dir),
        ]);
        let mut arguments = vec!["-D".to_owned(), self.data_dir().to_string_lossy().into_owned()];
        for (name, value) in settings {
            arguments.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
        arguments
    }

    /// Waits, bounded, until the server answers; ends early if the process does. What the log has before
    /// `log_start` is not told again.
    async fn wait_ready(&mut self, log_start: u64) -> Result<(), EmbeddedError> {
        let begin = Instant::now();
        loop {
            let seen = match self.ask().await {
                Answer::Ready => return Ok(()),
                Answer::NotYet if begin.elapsed() < RECOVERY_TIMEOUT => None,
                Answer::NotYet => Some("it was still starting up".to_owned()),
                Answer::None(_) if begin.elapsed() < START_TIMEOUT => None,
                Answer::None(seen) => Some(seen),
            };
            let problem = if !self.is_running() {
                let status = self
                    .server
                    .child
                    .as_mut()
                    .and_then(|child| child.try_wait().ok().flatten());
                Some(status.map_or("it ended".to_owned(), |status| format!("it ended ({status})")))
            } else {
                seen.map(|seen| format!("no answer within {} s: {seen}", begin.elapsed().as_secs()))
            };
            if let Some(problem) = problem {
                let log_tail = folders::log_tail(&self.log_file, log_start);
                let (path, log_file) = (self.data_dir().to_path_buf(), self.log_file.clone());
                return Err(EmbeddedError::StartFailed {
                    path,
                    problem,
                    log_file,
                    log_tail,
                });
            }
            tokio::time::sleep(START_POLL).await;
        }
    }

    /// Connects once and makes sure that it is our server which answers on that socket.
    async fn ask(&self) -> Answer {
        let attempt = async {
            let mut connection: PgConnection = self
                .connect_options("postgres")
                .disable_statement_logging()
                .connect()
                .await?;
            let data_dir: String = sqlx::query_scalar("/* inboxd embedded: who serves */ show data_directory")
                .persistent(false)
                .fetch_one(&mut connection)
                .await?;
            connection.close().await?;
            Ok::<_, sqlx::Error>(data_dir)
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, attempt).await {
            Ok(Ok(data_dir)) if same_folder(Path::new(&data_dir), self.data_dir()) => Answer::Ready,
            Ok(Ok(data_dir)) => Answer::None(format!("the socket is served by the cluster in {data_dir}")),
            Ok(Err(sqlx::Error::Database(error))) if error.code().as_deref() == Some(CANNOT_CONNECT_NOW) => {
                Answer::NotYet
            }
            Ok(Err(error)) => Answer::None(error.to_string()),
            Err(_) => Answer::None("the connection attempt hung".to_owned()),
        }
    }

    /// Ends the server, if it runs: fast, then immediately.
    pub(super) async fn shut_down(&mut self) -> Result<(), EmbeddedError> {
        for (signal, patience) in [
            (Signal::SIGINT, FAST_STOP_TIMEOUT),
            (Signal::SIGQUIT, IMMEDIATE_STOP_TIMEOUT),
        ] {
            if !self.is_running() {
                return Ok(());
            }
            pidfile::send(self.server.pid, signal);
            if tokio::time::timeout(patience, self.wait_exit()).await.is_ok() {
                return Ok(());
            }
            tracing::warn!(pid = self.server.pid, %signal, patience_seconds = patience.as_secs(), "PostgreSQL does not stop");
        }
        let waited_seconds = IMMEDIATE_STOP_TIMEOUT.as_secs();
        Err(EmbeddedError::StopFailed {
            path: self.data_dir().to_path_buf(),
            pid: self.server.pid,
            waited_seconds,
        })
    }
}

fn same_folder(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
