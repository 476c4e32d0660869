//! A Redis server of the test's own, and as much of its protocol as the test speaks.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
};

use super::folder::Folder;
use super::process::{self, Watchdog};

/// Ended when dropped, or after the test process's own end. It writes each command down before it answers, so that nothing that
/// is lost is its own fault.
#[derive(Debug)]
pub(crate) struct RedisServer {
    child: Child,
    _watchdog: Watchdog,
    folder: Folder,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        let folder = Folder::new();
        let mut child = Command::new("redis-server")
            .args([
                "--port",
                "0",
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--unixsocket",
            ])
            .arg(folder.path().join("socket"))
            .arg("--dir")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is needed for this test: tests/redis-server installs it");
        let watchdog = Watchdog::over(&child);
        let socket = folder.path().join("socket");
        let listens = || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "redis-server ended: {ended:?}");
            std::os::unix::net::UnixStream::connect(&socket).ok()
        };
        process::poll(Duration::from_secs(30), listens).expect("redis-server listens");
        Self {
            child,
            _watchdog: watchdog,
            folder,
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Sends a command whose arguments hold no spaces; its answer is one line.
    pub(crate) async fn ask(&self, command: &str) -> String {
        let mut stream = BufReader::new(UnixStream::connect(self.socket()).await.unwrap());
        stream.write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).await.unwrap();
        answer.trim_end().to_owned()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
