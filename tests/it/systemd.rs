//! The service under systemd, which is a socket here that listens to what it is told.

use std::{
    os::unix::net::UnixDatagram,
    time::{Duration, Instant},
};

use crate::support::{
    folder::Folder,
    program::{A_WHILE, Service, ask, inboxd},
    server,
};

/// A manager that listens.
struct Manager {
    socket: UnixDatagram,
    folder: Folder,
    /// All that was told so far, in lines.
    told: Vec<String>,
}

impl Manager {
    fn new() -> Self {
        let folder = Folder::new();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self {
            socket,
            folder,
            told: Vec::new(),
        }
    }

    /// Starts the service as systemd would, with a watchdog of a second and a half.
    fn start(&self, url: &str) -> Service {
        let mut command = inboxd(&["serve"]);
        command
            .env("DATABASE_URL", url)
            .env("NOTIFY_SOCKET", self.folder.path().join("notify"))
            .env("WATCHDOG_USEC", "1500000");
        Service::spawn(command)
    }

    /// One datagram, if one comes.
    fn hear(&mut self) {
        let mut room = [0; 4096];
        if let Ok(length) = self.socket.recv(&mut room) {
            let text = std::str::from_utf8(&room[..length]).unwrap();
            self.told.extend(text.lines().map(str::to_owned));
        }
    }

    /// Listens until so many lines that begin like this have come; the last of them.
    fn wait_for(&mut self, beginning: &str, count: usize) -> String {
        let begun = Instant::now();
        loop {
            let found: Vec<&String> = self.told.iter().filter(|line| line.starts_with(beginning)).collect();
            if found.len() >= count {
                return found[count - 1].clone();
            }
            assert!(begun.elapsed() < A_WHILE, "{beginning} is not among {:?}", self.told);
            self.hear();
        }
    }

    fn count(&self, line: &str) -> usize {
        self.told.iter().filter(|told| *told == line).count()
    }
}

#[tokio::test]
async fn systemd_is_told_that_the_service_is_up_that_all_is_well_that_it_lives_and_that_it_ends() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut manager = Manager::new();
    let mut service = manager.start(&database.url);
    manager.wait_for("READY=1", 1);
    assert_eq!(manager.told[..2], ["READY=1", "STATUS=the first run has not ended yet"]);
    manager.wait_for("STATUS=all is well", 1);
    let fed = manager.count("WATCHDOG=1");
    manager.wait_for("WATCHDOG=1", fed + 4);
    service.must_end();
    manager.wait_for("STOPPING=1", 1);
    assert_eq!(manager.count("READY=1"), 1);
    assert!(service.mishaps().is_empty(), "{:?}", service.mishaps());
}

#[tokio::test]
async fn with_the_database_away_at_boot_the_unit_is_up_and_its_status_says_what_is_wrong() {
    let mut manager = Manager::new();
    let mut service = manager.start("postgres://127.0.0.1:1/app");
    manager.wait_for("READY=1", 1);
    let said = manager.wait_for("STATUS=fail: database of main: ", 1);
    assert!(said.contains("cannot be reached"), "{said}");
    // To start it anew would not bring the database back.
    let fed = manager.count("WATCHDOG=1");
    manager.wait_for("WATCHDOG=1", fed + 4);
    service.must_end();
    manager.wait_for("STOPPING=1", 1);
}

#[tokio::test]
async fn a_service_that_is_stopped_dead_feeds_no_watchdog() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut manager = Manager::new();
    let service = manager.start(&database.url);
    manager.wait_for("WATCHDOG=1", 2);
    let pid = nix::unistd::Pid::from_raw(service.pid().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    // What was sent before it stopped.
    while manager.socket.recv(&mut [0; 4096]).is_ok() {}
    let before = manager.told.len();
    for _ in 0..20 {
        manager.hear();
    }
    assert_eq!(manager.told.len(), before, "two seconds, longer than the watchdog's");
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    manager.wait_for("WATCHDOG=1", 4);
}
