//! Temporary folders that go away with everything that runs in them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::process;

/// A temporary folder that the server's account can pass, with a watchdog.
///
/// The watchdog is a process of its own that reads from a pipe of this one. When the folder is dropped, or this
/// process ends in whatever way, the pipe closes; the watchdog then ends the PostgreSQL servers whose data folders
/// lie directly in the folder, and removes it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    watchdog: Child,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let path = tempfile::Builder::new().prefix("inboxd-it-").tempdir().unwrap().keep();
        let path = path.canonicalize().unwrap();
        let mut watchdog = Command::new("sh");
        watchdog
            .args(["-c", include_str!("watchdog.sh"), "inboxd-test-watchdog"])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let watchdog = process::in_own_group(&mut watchdog)
            .spawn()
            .expect("sh is needed to clean up after the tests");
        process::open_to_all(&path);
        Self { path, watchdog }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        // It bounds itself; this is for the case that it is wrong about that.
        let ended = process::poll(Duration::from_secs(40), || self.watchdog.try_wait().unwrap());
        if !std::thread::panicking() {
            assert!(ended.is_some(), "the watchdog of {} did not end", self.path.display());
        }
    }
}
