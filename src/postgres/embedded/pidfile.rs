//! `postmaster.pid`: who, if anybody, serves a data folder.
//!
//! The file outlives a killed server, and its number may by then belong to a stranger. So a pid counts only if its
//! process works in the data folder, where a postmaster always is.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc::O_NOFOLLOW;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

/// The file's place.
pub(super) fn path_in(data_dir: &Path) -> PathBuf {
    data_dir.join("postmaster.pid")
}

/// The server's process id as the file gives it, or nothing where there is no file that makes sense.
pub(super) fn read(data_dir: &Path) -> Option<u32> {
    parse(&fs::read_to_string(path_in(data_dir)).ok()?)
}

fn parse(text: &str) -> Option<u32> {
    // A standalone backend writes its number negated.
    let pid = text.lines().next()?.trim().parse::<i32>().ok()?.unsigned_abs();
    (pid > 1).then_some(pid)
}

/// Makes a lock file of a dead server name this process, so that a server started by it takes the file for stale.
///
/// PostgreSQL refuses to start while the named pid is alive, even as a zombie, and it does not ask whose it is; only
/// its own parent it knows to be no server. Removing the file instead would also remove the shared memory key in
/// it, by which PostgreSQL notices orphaned backends of the dead server that still write.
pub(super) fn disown(lock_file: &Path) -> io::Result<()> {
    // In place, so that owner and mode stay the server's. The folder is the server's too, and root follows no link
    // that it laid.
    let mut file = File::options()
        .read(true)
        .write(true)
        .custom_flags(O_NOFOLLOW)
        .open(lock_file)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
    let text = format!("{}\n{rest}", std::process::id());
    // Never empty in between: PostgreSQL does not start over an empty one.
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

/// Whether the lock file beside a socket was left by a server of this data folder, which its second line names.
pub(super) fn is_socket_lock_of(lock_file: &Path, data_dir: &Path) -> bool {
    fs::read_to_string(lock_file).is_ok_and(|text| text.lines().nth(1) == data_dir.to_str())
}

/// Whether a process lives that is the server of this data folder.
pub(super) fn serves(pid: u32, data_dir: &Path) -> bool {
    let Some(pid) = as_pid(pid) else { return false };
    // EPERM is an answer from a living process.
    if signal::kill(pid, None) == Err(nix::errno::Errno::ESRCH) {
        return false;
    }
    if Path::new("/proc/self/cwd").exists() {
        serves_by_proc(pid, data_dir)
    } else {
        serves_by_ps(pid, data_dir)
    }
}

/// A zombie has no working folder any more, so it does not count as alive.
fn serves_by_proc(pid: Pid, data_dir: &Path) -> bool {
    let entry = PathBuf::from(format!("/proc/{pid}"));
    let is_server = fs::read_link(entry.join("exe")).ok().and_then(|exe| {
        exe.file_name()
            .map(|name| name.to_string_lossy().starts_with("postgres"))
    });
    // "postgres (deleted)" after an upgrade of the package.
    is_server == Some(true)
        && match (fs::read_link(entry.join("cwd")), data_dir.canonicalize()) {
            (Ok(cwd), Ok(data_dir)) => cwd == data_dir,
            _ => false,
        }
}

/// Without /proc (macOS, the BSDs) the command line has to do.
fn serves_by_ps(pid: Pid, data_dir: &Path) -> bool {
    let output = std::process::Command::new("ps")
        .args(["-o", "command=", "-p", &pid.to_string()])
        .output();
    output.is_ok_and(|output| {
        let line = String::from_utf8_lossy(&output.stdout);
        line.contains("postgres") && line.contains(&*data_dir.to_string_lossy())
    })
}

/// Sends a signal to a server; that it is gone already is as good.
pub(super) fn send(pid: u32, signal: Signal) {
    if let Some(pid) = as_pid(pid) {
        let _ = signal::kill(pid, signal);
    }
}

/// Never 0 or 1, nor anything that would address a group.
fn as_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().filter(|pid| *pid > 1).map(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_gives_the_pid_also_of_a_file_cut_short() {
        for text in [
            "4711",
            "4711\n/srv/pg\n",
            "4711\n/srv/pg\n1764600000\n5432\n/run/inboxd\n\n  1   89\nready   \n",
        ] {
            assert_eq!(parse(text), Some(4711), "{text:?}");
        }
    }

    #[test]
    fn numbers_that_address_init_or_a_group_are_no_server() {
        for text in ["", "\n", "0\n", "1\n", "-1\n", "nobody\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert!(!serves(0, Path::new("/")) && !serves(1, Path::new("/")) && !serves(u32::MAX, Path::new("/")));
    }

    #[test]
    fn a_process_that_is_no_server_does_not_count() {
        assert!(!serves(std::process::id(), &std::env::current_dir().unwrap()));
    }

    #[test]
    fn disowning_changes_the_first_line_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(path_in(folder.path()), "4711\n/srv/pg\n1764600000\n5432\n").unwrap();
        disown(&path_in(folder.path())).unwrap();
        let text = fs::read_to_string(path_in(folder.path())).unwrap();
        assert_eq!(text, format!("{}\n/srv/pg\n1764600000\n5432\n", std::process::id()));
    }

    #[test]
    fn disowning_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        fs::write(&precious, "first line\nsecond line\n").unwrap();
        std::os::unix::fs::symlink(&precious, path_in(folder.path())).unwrap();
        disown(&path_in(folder.path())).unwrap_err();
        assert_eq!(fs::read_to_string(precious).unwrap(), "first line\nsecond line\n");
    }
}
