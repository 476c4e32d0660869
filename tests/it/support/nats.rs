//! A NATS server with JetStream of the test's own.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::folder::Folder;
use super::process::{self, Watchdog};

/// Ended when dropped, or after the test process's own end; what it stores stays over a restart.
#[derive(Debug)]
pub(crate) struct NatsServer {
    running: Option<(Child, Watchdog)>,
    folder: Folder,
    port: u16,
}

impl NatsServer {
    pub(crate) fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self {
            running: None,
            folder: Folder::new(),
            port,
        };
        server.start_again();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Kills it outright.
    pub(crate) fn kill(&mut self) {
        if let Some((mut child, _watchdog)) = self.running.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn start_again(&mut self) {
        let mut child = Command::new(program())
            .args(["-a", "127.0.0.1", "-p", &self.port.to_string(), "-js", "-sd"])
            .arg(self.folder.path().join("nats"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server is needed for the tests of the middleware: tests/nats-server installs it");
        let watchdog = Watchdog::over(&child);
        let listens = || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "nats-server ended: {ended:?}");
            TcpStream::connect(("127.0.0.1", self.port)).ok()
        };
        process::poll(Duration::from_secs(30), listens).expect("nats-server listens");
        self.running = Some((child, watchdog));
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn program() -> PathBuf {
    let folder = std::env::var_os("INBOXD_NATS_DIR").unwrap_or_else(|| "/var/tmp/inboxd-nats".into());
    PathBuf::from(folder).join("bin/nats-server")
}
