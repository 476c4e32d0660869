//! The real program: run to its end, or as a service that is asked over HTTP.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::Value;

use super::folder::Folder;
use super::process::{self, Watchdog};

/// Bounds what should take a moment, on a machine that is busy with other tests.
pub(crate) const A_WHILE: Duration = Duration::from_secs(60);

/// The program under an environment without anything that would configure it.
pub(crate) fn inboxd(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inboxd"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("INBOXD_") || text.starts_with("PG") || text == "DATABASE_URL" {
            command.env_remove(&name);
        }
    }
    if let Some(folder) = std::env::var_os("INBOXD_TEST_PG_BINDIR") {
        command.env("PG_BINDIR", folder);
    }
    command.args(arguments).current_dir("/").stdin(Stdio::null());
    command
}

/// What a command said, and its exit code.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    pub(crate) fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The exit code must be this, and the output hold all these parts.
    #[track_caller]
    pub(crate) fn must(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        for part in parts {
            assert!(self.out.contains(part), "{part:?} is not in {self:?}");
        }
        self
    }

    /// The command must have failed with one clear sentence on standard error, which holds all these parts.
    #[track_caller]
    pub(crate) fn must_fail(self, parts: &[&str]) -> Self {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert!(self.out.is_empty(), "{self:?}");
        assert!(
            self.err.starts_with("inboxd: ") && self.err.lines().count() == 1,
            "one sentence: {self:?}"
        );
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not in {self:?}");
        }
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// `inboxd ARGUMENTS` on a database, to its end.
pub(crate) fn ask(url: &str, arguments: &[&str]) -> Answer {
    Answer::of(inboxd(arguments).env("DATABASE_URL", url))
}

/// `inboxd serve`, as a process with its log in a file; killed when dropped, or after the test process's own end.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    _watchdog: Watchdog,
    folder: Folder,
    address: Option<String>,
}

impl Service {
    /// Starts the service on a free port.
    pub(crate) fn start(url: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = inboxd(&["serve"]);
        command.env("DATABASE_URL", url).envs(environment.iter().copied());
        Self::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let folder = Folder::new();
        let file = |name: &str| File::create(folder.path().join(name)).unwrap();
        let child = command
            .env("INBOXD_HTTP__LISTEN", "127.0.0.1:0")
            .env("INBOXD_LOG__FORMAT", "json")
            .stdout(file("out"))
            .stderr(file("log"))
            .spawn()
            .unwrap();
        let watchdog = Watchdog::over(&child);
        Self {
            child,
            _watchdog: watchdog,
            folder,
            address: None,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether its process lives.
    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What it printed so far.
    pub(crate) fn out(&self) -> String {
        std::fs::read_to_string(self.file("out")).unwrap()
    }

    /// The whole lines of its log so far.
    pub(crate) fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.file("log")).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }

    /// The messages logged at a level.
    pub(crate) fn logged_at(&self, level: &str) -> Vec<String> {
        let at = |line: &Value| (line["level"] == level).then(|| line["fields"]["message"].to_string());
        self.log().iter().filter_map(at).collect()
    }

    /// What went wrong in the service itself: the errors that are no news of health.
    pub(crate) fn mishaps(&self) -> Vec<String> {
        let mut errors = self.logged_at("ERROR");
        errors.retain(|line| !line.starts_with("\"health: "));
        errors
    }

    /// Waits for a line of the log whose message holds a text.
    pub(crate) fn wait_for_log(&self, message: &str) -> Value {
        let find = || {
            let holds = |line: &Value| {
                line["fields"]["message"]
                    .as_str()
                    .is_some_and(|text| text.contains(message))
            };
            self.log().into_iter().find(holds)
        };
        process::poll(A_WHILE, find).unwrap_or_else(|| panic!("{message:?} is not logged: {:#?}", self.log()))
    }

    /// Its URL for a path; waits until HTTP is served.
    pub(crate) fn url(&mut self, path: &str) -> String {
        if self.address.is_none() {
            let line = self.wait_for_log("HTTP is served");
            self.address = Some(line["fields"]["address"].as_str().unwrap().to_owned());
        }
        format!("http://{}{path}", self.address.as_deref().unwrap())
    }

    pub(crate) async fn get(&mut self, path: &str) -> reqwest::Response {
        reqwest::get(self.url(path)).await.unwrap()
    }

    /// Asks `/readyz` until it answers with this status; returns what it said then.
    pub(crate) async fn wait_until(&mut self, path: &str, status: u16) -> Value {
        let begin = Instant::now();
        loop {
            let answer = self.get(path).await;
            let found = answer.status();
            let body: Value = answer.json().await.unwrap();
            if found == status {
                return body;
            }
            assert!(
                begin.elapsed() < A_WHILE,
                "{path} answers {found} with {body}; {:#?}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn wait_until_ready(&mut self) {
        self.wait_until("/readyz", 200).await;
    }

    pub(crate) fn terminate(&self) {
        signal::kill(Pid::from_raw(self.pid().try_into().unwrap()), Signal::SIGTERM).unwrap();
    }

    /// Waits for the end, bounded.
    #[track_caller]
    pub(crate) fn ended_within(&mut self, limit: Duration) -> ExitStatus {
        process::poll(limit, || self.child.try_wait().unwrap())
            .unwrap_or_else(|| panic!("it has not ended within {limit:?}: {:#?}", self.log()))
    }

    /// SIGTERM, and an end with exit code 0 within five seconds.
    #[track_caller]
    pub(crate) fn must_end(&mut self) {
        self.terminate();
        let status = self.ended_within(Duration::from_secs(5));
        assert_eq!(status.code(), Some(0), "{:#?}", self.log());
    }

    /// Kills it outright.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a configuration file into a folder.
pub(crate) fn config_file(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("inboxd.toml");
    std::fs::write(&file, text).unwrap();
    file
}
