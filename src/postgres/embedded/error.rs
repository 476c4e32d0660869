//! What can go wrong with a private cluster, each with the thing it happened to and the remedy.

use std::io;
use std::path::PathBuf;

/// Why a private cluster could not be made, started or stopped.
///
/// Every message names the folder, program or port it is about, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// Neither `initdb` nor `postgres` was found anywhere.
    #[error(
        "no PostgreSQL server programs (initdb, postgres) found; looked in {looked}. Install PostgreSQL (for example \
         `apt-get install postgresql`) or set PG_BINDIR to the folder that holds them"
    )]
    NoBinaries {
        /// The places that were searched, in order.
        looked: String,
    },

    /// A server program is there, but does not run or does not say its version.
    #[error("{program} cannot be used: {problem}. Set PG_BINDIR to the bin folder of a working PostgreSQL", program = program.display())]
    UnusableBinary {
        /// The program that was tried.
        program: PathBuf,
        /// What happened when it ran.
        problem: String,
    },

    /// The process is root, PostgreSQL refuses root, and there is no account to hand it to.
    #[error(
        "PostgreSQL refuses to run as root, and neither a user `postgres` nor a user `nobody` exists. Create one (for \
         example `useradd --system postgres`) or run inboxd as an ordinary user"
    )]
    NoServerUser,

    /// The account the server would run under has no line in the user database.
    #[error(
        "uid {uid} has no entry in the user database (/etc/passwd), and PostgreSQL refuses to run without one. Add an \
         entry for it or run under another user"
    )]
    UnknownUser {
        /// The numeric user id.
        uid: u32,
    },

    /// A folder on the way is closed to the account the server runs under.
    #[error(
        "{path} cannot be reached by user {user}, under which PostgreSQL runs: {blocker} is closed to it. Open it \
         (`chmod a+x {blocker}`) or choose another place", path = path.display(), blocker = blocker.display()
    )]
    Unreachable {
        /// What has to be reached.
        path: PathBuf,
        /// The first folder that is in the way.
        blocker: PathBuf,
        /// The account the server runs under.
        user: String,
    },

    /// A file or folder could not be made, read or changed.
    #[error("cannot {action} {path}: {source}. Check its owner, its mode and the space on the disk", path = path.display())]
    Io {
        /// The attempt, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },

    /// A folder that must be private belongs to somebody else or is a link.
    #[error(
        "{path} exists, but is not a folder of user {user} alone. Remove it or choose another folder for the socket",
        path = path.display()
    )]
    NotPrivate {
        /// The folder.
        path: PathBuf,
        /// The account that should own it.
        user: String,
    },

    /// The data folder holds files, but no cluster.
    #[error(
        "{path} is not empty and is not a PostgreSQL data folder; it was left untouched. Choose an empty or a new folder",
        path = path.display()
    )]
    NotACluster {
        /// The folder.
        path: PathBuf,
    },

    /// The data folder was made by another major version than that of the server programs.
    #[error(
        "{path} belongs to PostgreSQL {found}, but the server programs in {bin_dir} are of version {binaries}. Install \
         PostgreSQL {found} and set PG_BINDIR to its bin folder, or move the data with pg_upgrade or pg_dump",
        path = path.display(), bin_dir = bin_dir.display()
    )]
    OtherMajor {
        /// The data folder.
        path: PathBuf,
        /// The version it was made by, as its PG_VERSION file says.
        found: String,
        /// Where the server programs are.
        bin_dir: PathBuf,
        /// Their major version.
        binaries: u32,
    },

    /// Another process has this data folder in use.
    #[error(
        "the data folder {path} is in use by another inboxd ({holder}). Stop that one first, or give this one a folder \
         of its own", path = path.display()
    )]
    Locked {
        /// The data folder.
        path: PathBuf,
        /// The other process, as far as it is known.
        holder: String,
    },

    /// Something listens on the requested port already.
    #[error(
        "port {port} on 127.0.0.1 cannot be used: {source}. Choose another port, or none to use the unix socket alone"
    )]
    PortTaken {
        /// The port.
        port: u16,
        /// The operating system's answer.
        source: io::Error,
    },

    /// A path that PostgreSQL or its clients cannot take.
    #[error("{path} cannot be used: {problem}. Choose another folder", path = path.display())]
    UnusablePath {
        /// The data or socket folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },

    /// A unix socket's path is limited by the operating system.
    #[error(
        "the unix socket {path} is {length} bytes long, and the system takes at most {limit}. Choose a shorter socket \
         folder", path = path.display(), limit = super::folders::SOCKET_PATH_LIMIT_BYTES
    )]
    SocketPathTooLong {
        /// The socket's full path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },

    /// `initdb` failed.
    #[error("initdb could not make a cluster in {path}: {output}", path = path.display())]
    InitFailed {
        /// The data folder.
        path: PathBuf,
        /// What it said last.
        output: String,
    },

    /// The server ended, or did not answer in time.
    #[error(
        "PostgreSQL on {path} did not start: {problem}. The last lines of its log {log_file}:\n{log_tail}",
        path = path.display(), log_file = log_file.display()
    )]
    StartFailed {
        /// The data folder.
        path: PathBuf,
        /// What was seen from outside.
        problem: String,
        /// The server's log.
        log_file: PathBuf,
        /// Its last lines.
        log_tail: String,
    },

    /// The server outlived every request to stop.
    #[error(
        "PostgreSQL on {path} (pid {pid}) did not stop within {waited_seconds} s of an immediate shutdown. Look at it \
         with `ps -p {pid}` before anything else uses the folder", path = path.display()
    )]
    StopFailed {
        /// The data folder.
        path: PathBuf,
        /// The server's process id.
        pid: u32,
        /// How long the last request was given.
        waited_seconds: u64,
    },
}

impl EmbeddedError {
    /// Makes a mapper from an I/O error, for use in `map_err`.
    pub(super) fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }
}
