//! The admin API of the real program, on a real database.

mod access;
mod acts;
mod away;
mod bad_input;
mod connections;
mod described;
mod drops;
mod flood;
mod fuzzed;
mod messages;
mod metrics;
mod pause;
mod reading;
mod refused;
mod restore;
mod runs;
mod sample;
mod schema;

use std::time::Duration;

use reqwest::{Client, Method, Response};
use serde_json::Value;

use crate::support::folder::Folder;
use crate::support::program::{A_WHILE, Service, ask, config_file, inboxd};
use crate::support::server::{self, TestDatabase};

/// Fires on New Year's Day only: what else runs was asked for by the test.
const ONCE_A_YEAR: (&str, &str) = ("INBOXD_SCHEDULE__CRON", "0 0 1 1 *");
const READER: &str = "reader-0123456789abcdef";
const ADMIN: &str = "admin-0123456789abcdef";
const TOKENS: &str = "[http]
hosts = ['inboxd.example.com']
read_tokens = [{ name = 'grafana', variable = 'READER' }]
admin_tokens = [{ name = 'ops', variable = 'ADMIN' }]
";

/// The service on a database, and a client of it.
struct Api {
    service: Service,
    base: String,
    client: Client,
    _folder: Folder,
}

impl Api {
    /// The service on a database that `init` has prepared, once it is ready.
    async fn ready(environment: &[(&str, &str)]) -> (Self, TestDatabase) {
        let database = initialized().await;
        let api = Self::on(&database.url, "", environment).await;
        (api, database)
    }

    /// The same where tokens are configured.
    async fn with_tokens(more: &str) -> (Self, TestDatabase) {
        let database = initialized().await;
        let api = Self::on(&database.url, &format!("{TOKENS}{more}"), &[]).await;
        (api, database)
    }

    async fn on(url: &str, config: &str, environment: &[(&str, &str)]) -> Self {
        let mut api = Self::spawn(url, config, environment);
        api.service.wait_until_ready().await;
        api
    }

    /// As soon as HTTP is served.
    fn spawn(url: &str, config: &str, environment: &[(&str, &str)]) -> Self {
        let folder = Folder::new();
        let file = config_file(folder.path(), config);
        let mut command = inboxd(&["serve"]);
        command.arg("--config").arg(file);
        if !url.is_empty() {
            command.env("DATABASE_URL", url);
        }
        command
            .env(ONCE_A_YEAR.0, ONCE_A_YEAR.1)
            .env("READER", READER)
            .env("ADMIN", ADMIN)
            .envs(environment.iter().copied());
        let mut service = Service::spawn(command);
        let base = service.url("");
        Self {
            service,
            base,
            client: Client::builder().timeout(A_WHILE).build().unwrap(),
            _folder: folder,
        }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Response {
        let method: Method = method.to_uppercase().parse().unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.body(body.to_owned());
        }
        request.send().await.unwrap()
    }

    async fn get(&self, path: &str) -> Response {
        self.send("get", path, &[], None).await
    }

    async fn get_json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        let status = answer.status();
        let body: Value = answer.json().await.unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        let headers = [("content-type", "application/json")];
        self.send("post", path, &headers, Some(&body.to_string())).await
    }

    /// The same, which must be answered like this.
    async fn post_json(&self, path: &str, body: &Value, status: u16) -> Value {
        let answer = self.post(path, body).await;
        let found = answer.status();
        let said: Value = answer.json().await.unwrap();
        assert_eq!(found, status, "{path} {body}: {said}");
        said
    }

    /// Asks for a run.
    async fn post_run(&self, body: &Value) -> Response {
        self.post("/v1/runs", body).await
    }

    /// Asks until the answer is as wanted.
    async fn wait_for(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = std::time::Instant::now();
        loop {
            let body: Value = self.get(path).await.json().await.unwrap();
            if wanted(&body) {
                return body;
            }
            assert!(begin.elapsed() < A_WHILE, "{path}: {body}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn initialized() -> TestDatabase {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    database
}

/// The answer must be this problem, and hold nothing else that a problem may not.
#[track_caller]
fn must_be_problem(what: &str, (status, headers, body): &(u16, reqwest::header::HeaderMap, Value), kind: &str) {
    assert_eq!(body["type"], format!("urn:inboxd:problem:{kind}"), "{what}: {body}");
    assert_eq!(body["status"], *status, "{what}: {body}");
    assert_eq!(headers["content-type"], "application/problem+json", "{what}");
    for key in ["title", "detail"] {
        assert!(
            body[key].as_str().is_some_and(|text| !text.is_empty()),
            "{what}: {body}"
        );
    }
}

/// The parts of an answer of JSON.
async fn taken_apart(answer: Response) -> (u16, reqwest::header::HeaderMap, Value) {
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let text = answer.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {status} {text:?}"));
    (status, headers, body)
}
