//! Processes: asked, waited for with a bound, and this test binary run again as another process.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

/// Names the file to which an [`OtherProcess`] writes what it has to say; set only in such a process.
const REPORT_FILE: &str = "INBOXD_TEST_REPORT_FILE";

/// Asks until there is an answer or the time is up.
pub(crate) fn poll<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let answer = ask();
        if answer.is_some() || begin.elapsed() > limit {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process lives; one that has ended and was not reaped yet does not.
pub(crate) fn lives(pid: u32) -> bool {
    let output = Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output()
        .unwrap();
    let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

/// Kills one of our own processes outright.
pub(crate) fn kill(pid: u32) {
    assert!(pid > 1);
    signal::kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL).unwrap();
}

/// Kills a process that leads a group of its own, with all of the group.
pub(crate) fn kill_group(leader: u32) {
    assert!(leader > 1);
    // Gone already, if it cannot be.
    let _ = signal::killpg(Pid::from_raw(leader.try_into().unwrap()), Signal::SIGKILL);
}

/// Keeps the terminal's signals from a command.
pub(crate) fn in_own_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// Lets every account read a file, or pass and read a folder, whatever the umask.
pub(crate) fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes a command run under the account that owns a file.
pub(crate) fn as_owner_of<'a>(file: &Path, command: &'a mut Command) -> &'a mut Command {
    let found = file.metadata().unwrap();
    if nix::unistd::geteuid().is_root() {
        command.uid(found.uid()).gid(found.gid())
    } else {
        command
    }
}

/// A process that kills another one when this one ends in whatever way; let go when dropped.
///
/// The pid of the other is ours until it is reaped, so whoever owns it reaps it first and drops the watchdog then.
#[derive(Debug)]
pub(crate) struct Watchdog(Child);

impl Watchdog {
    pub(crate) fn over(child: &Child) -> Self {
        Self::over_target(&child.id().to_string())
    }

    /// Kills the group that the other one leads.
    pub(crate) fn over_group(leader: &Child) -> Self {
        Self::over_target(&format!("-{}", leader.id()))
    }

    fn over_target(target: &str) -> Self {
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                "read -r word; [ \"$word\" = done ] || kill -s KILL -- \"$1\"",
                "watchdog",
            ])
            .arg(target)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(
            in_own_group(&mut command)
                .spawn()
                .expect("sh is needed to clean up after the tests"),
        )
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(stdin) = &mut self.0.stdin {
            let _ = stdin.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}

/// One test of this binary, run as a process of its own: for what cannot be done to oneself.
#[derive(Debug)]
pub(crate) struct OtherProcess {
    child: Child,
    report_file: PathBuf,
}

impl OtherProcess {
    /// Runs the ignored test with this full name; `folder` is where it may work.
    pub(crate) fn run(test: &str, folder: &Path) -> Self {
        let report_file = folder.join(format!("{}.report", test.rsplit("::").next().unwrap()));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(REPORT_FILE, &report_file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, report_file }
    }

    /// Waits for what the process has to say.
    pub(crate) fn report(&mut self) -> String {
        let report = poll(Duration::from_secs(60), || {
            let ended = self.child.try_wait().unwrap();
            let report = std::fs::read_to_string(&self.report_file).ok();
            assert!(
                report.is_some() || ended.is_none(),
                "the other process ended early: {ended:?}"
            );
            report
        });
        report.expect("the other process said nothing")
    }

    /// Kills it outright.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it end by itself, as a test that passes.
    pub(crate) fn finish(mut self) {
        drop(self.child.stdin.take());
        let status = poll(Duration::from_secs(60), || self.child.try_wait().unwrap());
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Within an [`OtherProcess`]: where its report goes. Nothing if the test was started by hand.
pub(crate) fn report_file() -> Option<PathBuf> {
    std::env::var_os(REPORT_FILE).map(PathBuf::from)
}

/// Within an [`OtherProcess`]: says something, then waits to be killed or let go.
pub(crate) fn report_and_wait(text: &str) {
    let file = report_file().unwrap();
    let draft = file.with_extension("draft");
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(&draft, &file).unwrap();
    let _ = std::io::read_to_string(std::io::stdin());
}
