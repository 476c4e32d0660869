//! The places a cluster owns on disk, all beside its data folder, and how they come to be.
//!
//! `<data>` the cluster itself, `<data>.lock` held while it is in use, `<data>.log` the server's log, and
//! `<data>.initializing` where a new cluster is made before it is moved to its place whole.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::libc::O_NOFOLLOW;

use super::binaries::{Binaries, leading_number};
use super::error::EmbeddedError;
use super::identity::Identity;

/// The longest path of a unix socket that PostgreSQL takes: Linux has 108 bytes with the closing zero.
pub(super) const SOCKET_PATH_LIMIT_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// A log this large is moved aside at the next start. A quiet server writes about 100 kB a day.
const LOG_ROTATE_BYTES: u64 = 16 * 1024 * 1024;

/// Enough of the log to see a failure, not so much that the message drowns in it.
const LOG_TAIL_LINES: usize = 12;

/// As much of PG_VERSION as goes into a message, should something else stand in it.
const VERSION_CHARS: usize = 12;

/// `<path><suffix>`, beside the path.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// The name of the socket file, which carries the port number also where no port is listened on.
pub(super) fn socket_file(socket_dir: &Path, port: u16) -> PathBuf {
    socket_dir.join(format!(".s.PGSQL.{port}"))
}

/// `socket` beside the data folder, or a folder below the temporary one if that path is too long for a socket.
pub(super) fn default_socket_dir(data_dir: &Path, port: u16) -> PathBuf {
    let data_dir = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_path_buf());
    let near = data_dir.with_file_name("socket");
    if socket_file(&near, port).as_os_str().len() <= SOCKET_PATH_LIMIT_BYTES && !has_comma(&near) {
        near
    } else {
        std::env::temp_dir().join(format!("inboxd-{:016x}", fnv1a(data_dir.as_os_str())))
    }
}

fn has_comma(path: &Path) -> bool {
    path.as_os_str().as_bytes().contains(&b',')
}

/// Refuses paths that cannot be handed on, before anything is made.
pub(super) fn check_paths(data_dir: &Path, socket_dir: &Path, port: u16) -> Result<(), EmbeddedError> {
    let unusable = |path: &Path, problem| {
        Err(EmbeddedError::UnusablePath {
            path: path.to_path_buf(),
            problem,
        })
    };
    for path in [data_dir, socket_dir] {
        if path.to_str().is_none_or(|path| path.contains('\n')) {
            return unusable(path, "it is not one line of UTF-8");
        }
    }
    if has_comma(socket_dir) {
        return unusable(
            socket_dir,
            "psql and everything else on libpq read a comma as the end of a host's name",
        );
    }
    let file = socket_file(socket_dir, port);
    let length = file.as_os_str().len();
    if length > SOCKET_PATH_LIMIT_BYTES {
        return Err(EmbeddedError::SocketPathTooLong { path: file, length });
    }
    Ok(())
}

/// The same folder has to come out in every build, which std's hashers do not promise.
fn fnv1a(text: &OsStr) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    text.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Takes the lock on a data folder. The system releases it when the process ends, however it ends.
pub(super) fn lock(data_dir: &Path) -> Result<File, EmbeddedError> {
    make_parent(data_dir)?;
    let path = beside(data_dir, ".lock");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(O_NOFOLLOW)
        .open(&path)
        .map_err(EmbeddedError::io("open", &path))?;
    match file.try_lock() {
        Ok(()) => {
            // Only for the message of whoever comes second.
            let _ = file
                .set_len(0)
                .and_then(|()| write!(file, "pid {}", std::process::id()));
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let holder = if holder.is_empty() {
                "of unknown pid".into()
            } else {
                holder
            };
            Err(EmbeddedError::Locked {
                path: data_dir.to_path_buf(),
                holder,
            })
        }
        Err(TryLockError::Error(source)) => Err(EmbeddedError::Io {
            action: "lock",
            path,
            source,
        }),
    }
}

/// The folder above, open for the account of the server to pass if we are the one to make it.
fn make_parent(data_dir: &Path) -> Result<(), EmbeddedError> {
    let Some(parent) = data_dir.parent().filter(|parent| !parent.exists()) else {
        return Ok(());
    };
    fs::create_dir_all(parent)
        .and_then(|()| fs::set_permissions(parent, fs::Permissions::from_mode(0o755)))
        .map_err(EmbeddedError::io("create", parent))
}

/// The major version that made the data folder, as it spells it; nothing for a folder that is new or empty.
pub(super) fn version_of(data_dir: &Path) -> Result<Option<String>, EmbeddedError> {
    let file = data_dir.join("PG_VERSION");
    match fs::read_to_string(&file) {
        Ok(version) => return Ok(Some(version.trim().chars().take(VERSION_CHARS).collect())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
        Err(error) => return Err(EmbeddedError::io("read", &file)(error)),
    }
    match fs::read_dir(data_dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(None),
        Ok(false) => Err(EmbeddedError::NotACluster {
            path: data_dir.to_path_buf(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(EmbeddedError::io("read", data_dir)(error)),
    }
}

/// Refuses a data folder that the server programs cannot read.
pub(super) fn check_version(data_dir: &Path, version: &str, binaries: &Binaries) -> Result<(), EmbeddedError> {
    // Before 10 a major version had two numbers ("9.6"), so compare the text as well.
    if leading_number(version) == Some(binaries.major) && version == binaries.major.to_string() {
        return Ok(());
    }
    let (path, bin_dir) = (data_dir.to_path_buf(), binaries.dir.clone());
    Err(EmbeddedError::OtherMajor {
        path,
        found: version.to_owned(),
        bin_dir,
        binaries: binaries.major,
    })
}

/// Makes the socket's folder, or checks the one that is there.
///
/// Whoever reaches the socket is superuser, hence a folder that only the server's account and root can enter. One
/// that exists is left as it is, except that below the shared temporary folder a stranger may have been first.
pub(super) fn prepare_socket_dir(socket_dir: &Path, port: u16, identity: &Identity) -> Result<(), EmbeddedError> {
    make_parent(socket_dir)?;
    match DirBuilder::new().mode(0o700).create(socket_dir) {
        Ok(()) => identity
            .give(socket_dir)
            .map_err(EmbeddedError::io("hand over", socket_dir))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(EmbeddedError::io("create", socket_dir)(error)),
    }
    identity.check_reach(&socket_file(socket_dir, port))?;
    let found = socket_dir
        .symlink_metadata()
        .map_err(EmbeddedError::io("read", socket_dir))?;
    if socket_dir.parent() == Some(&std::env::temp_dir()) && (!found.is_dir() || found.uid() != identity.uid) {
        return Err(EmbeddedError::NotPrivate {
            path: socket_dir.to_path_buf(),
            user: identity.name.clone(),
        });
    }
    let found = socket_dir.metadata().map_err(EmbeddedError::io("read", socket_dir))?;
    if !identity.has(&found, 0o3) {
        let source = io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("user {} may not write there", identity.name),
        );
        return Err(EmbeddedError::Io {
            action: "put a socket into",
            path: socket_dir.to_path_buf(),
            source,
        });
    }
    Ok(())
}

/// A server program with nothing of our own surroundings that could change what it does.
pub(super) fn server_command(program: &Path, identity: &Identity, environment: &[(OsString, OsString)]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        // PGDATA and PGPORT would reach the server; with NOTIFY_SOCKET it would tell systemd that *we* are ready.
        if name.as_bytes().starts_with(b"PG") || name == "NOTIFY_SOCKET" {
            command.env_remove(name);
        }
    }
    // The current folder may be closed to the server's account.
    command
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .current_dir("/")
        .stdin(Stdio::null());
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    identity.apply(&mut command);
    command
}

/// Opens the server's log for appending; one that has grown large is moved aside first.
pub(super) fn open_log(path: &Path) -> Result<File, EmbeddedError> {
    if path.metadata().is_ok_and(|found| found.len() > LOG_ROTATE_BYTES) {
        let old = beside(path, ".old");
        fs::rename(path, &old).map_err(EmbeddedError::io("rename", path))?;
    }
    File::options()
        .create(true)
        .append(true)
        .custom_flags(O_NOFOLLOW)
        .open(path)
        .map_err(EmbeddedError::io("write", path))
}

/// The end of the log, from `start` on.
pub(super) fn log_tail(path: &Path, start: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(start.max(end.saturating_sub(64 * 1024))))?;
        file.read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => last_lines(&String::from_utf8_lossy(&bytes)),
        Err(error) => format!("(it cannot be read: {error})"),
    }
}

pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_data_path_has_its_socket_beside_it() {
        assert_eq!(
            default_socket_dir(Path::new("/var/lib/inboxd/pg"), 5432),
            Path::new("/var/lib/inboxd/socket")
        );
    }

    #[test]
    fn a_long_data_path_has_its_socket_below_the_temporary_folder() {
        let long = Path::new("/srv").join("x".repeat(120)).join("pg");
        let chosen = default_socket_dir(&long, 5432);
        assert_eq!(chosen.parent(), Some(&*std::env::temp_dir()));
        assert!(
            chosen != default_socket_dir(&long.with_file_name("other"), 5432),
            "one folder a cluster"
        );
    }

    #[test]
    fn the_folder_hash_is_the_published_fnv1a() {
        assert_eq!(fnv1a(OsStr::new("")), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(OsStr::new("a")), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn only_the_last_lines_of_a_log_are_told() {
        let text: String = (0..100).map(|line| format!("line {line}\n\n")).collect();
        let tail = last_lines(&text);
        assert!(tail.starts_with("line 88") && tail.ends_with("line 99"), "{tail}");
    }
}
