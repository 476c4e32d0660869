//! The page of the real program, in a real browser: what a person sees and does there. `tests/browser-tools` brings the
//! browser. `INBOXD_TEST_SHOTS=/folder` leaves pictures of what was seen.

mod answers;
mod looking;
mod operating;
mod telling;

use std::process::Stdio;

use inboxd::Day;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use crate::support::folder::Folder;
use crate::support::inbox::sql;
use crate::support::program::{Answer, Service, config_file, inboxd};
use crate::support::server::{self, TestDatabase};

const INBOX: &str = "main.public.inbox";
const READER: &str = "reader-0123456789abcdef";
const ADMIN: &str = "admin-0123456789abcdef";
const TOKENS: &str = "[http]
read_tokens = [{ name = 'grafana', variable = 'READER' }]
admin_tokens = [{ name = 'ops', variable = 'ADMIN' }]
";
/// Chromium starts slowly on a loaded machine; only what hangs waits for it.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(240);

/// The service with the page, on a database of its own.
struct Site {
    service: Service,
    base: String,
    database: TestDatabase,
    _folder: Folder,
}

impl Site {
    /// Ready, with a first run behind it; the schedule sets off no other.
    async fn ready(config: &str) -> Self {
        let database = server::database().await;
        let folder = Folder::new();
        let file = config_file(folder.path(), config);
        let file = file.to_str().unwrap();
        let mut init = inboxd(&["init", "--config", file]);
        init.env("DATABASE_URL", &database.url)
            .env("READER", READER)
            .env("ADMIN", ADMIN);
        Answer::of(&mut init).must(0, &[]);
        let mut site = Self::start(database, folder, file);
        site.service.wait_until_ready().await;
        site
    }

    fn start(database: TestDatabase, folder: Folder, file: &str) -> Self {
        let mut command = inboxd(&["serve", "--config", file]);
        command
            .env("DATABASE_URL", &database.url)
            .env("READER", READER)
            .env("ADMIN", ADMIN)
            .env("INBOXD_SCHEDULE__CRON", "0 0 1 1 *");
        let mut service = Service::spawn(command);
        let base = service.url("");
        Self {
            service,
            base,
            database,
            _folder: folder,
        }
    }

    /// A partition with a few rows for each of these days before today.
    async fn with_days(&self, days: impl IntoIterator<Item = i64>) {
        let mut connection = self.database.connect().await;
        for ago in days {
            let day = self.day(-ago).await;
            let (name, end) = (format!("inbox_{}", day.underscored()), day.next());
            let statements = format!(
                "create table public.{name} partition of public.inbox for values from ('{day} 00:00+00') to ('{end} 00:00+00');
                 alter table public.{name} add primary key (message_id);
                 insert into public.{name}
                   select gen_random_uuid(), 'x', '{day} 12:00+00' from generate_series(1, {});",
                ago * 1000
            );
            sql(&mut connection, statements).await;
        }
    }

    /// A day by the server's clock.
    async fn day(&self, offset: i64) -> Day {
        let now: chrono::DateTime<chrono::Utc> = sqlx::query_scalar("select pg_catalog.now()")
            .fetch_one(&mut self.database.connect().await)
            .await
            .unwrap();
        Day::containing(now).plus(offset)
    }

    /// Takes the tables of today and ahead away.
    async fn without_partitions(&self) {
        let mut connection = self.database.connect().await;
        let tables: Vec<String> = sqlx::query_scalar(
            "select inhrelid::regclass::text from pg_inherits where inhparent = 'public.inbox'::regclass",
        )
        .fetch_all(&mut connection)
        .await
        .unwrap();
        for table in tables {
            sql(&mut connection, format!("drop table {table}")).await;
        }
    }

    /// Waits until the service sees the inbox like this: what was read before is shown for a moment.
    async fn seen_as(&self, status: &str) {
        let begin = std::time::Instant::now();
        loop {
            let answer = reqwest::get(format!("{}/v1/health", self.base)).await.unwrap();
            let health: serde_json::Value = answer.json().await.unwrap();
            if health["status"] == status {
                return;
            }
            assert!(begin.elapsed() < LONGEST, "{health}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Plays a scenario.
    async fn play(&self, scenario: &str, environment: &[(&str, &str)]) {
        self.begin(scenario, environment).end().await;
    }

    fn begin(&self, scenario: &str, environment: &[(&str, &str)]) -> Playing {
        play(&self.base, scenario, environment)
    }
}

/// A scenario that is being played.
struct Playing {
    scenario: String,
    child: tokio::process::Child,
    said: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

fn play(base: &str, scenario: &str, environment: &[(&str, &str)]) -> Playing {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/page/browser.mjs");
    let mut child = Command::new("node")
        .args([script, scenario])
        .envs([("BASE", base), ("INBOX", INBOX), ("READER", READER), ("ADMIN", ADMIN)])
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("node is needed: run tests/browser-tools");
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    Playing {
        scenario: scenario.to_owned(),
        child,
        said,
    }
}

impl Playing {
    /// Waits until it says a word.
    async fn wait_for(&mut self, word: &str) {
        let line = tokio::time::timeout(LONGEST, self.said.next_line()).await;
        let line = line.expect("it says nothing").unwrap();
        if line.as_deref() != Some(word) {
            let errors = self.errors().await;
            panic!("{}: {line:?} instead of {word}; {errors}", self.scenario);
        }
    }

    async fn errors(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors.read_to_string(&mut text).await.unwrap();
        }
        text
    }

    /// It must end well.
    async fn end(mut self) {
        let ended = tokio::time::timeout(LONGEST, async {
            let errors = self.errors().await;
            (self.child.wait().await.unwrap(), errors)
        });
        let (status, errors) = ended.await.expect("the scenario hangs");
        assert!(status.success(), "{}: {errors}", self.scenario);
    }
}
