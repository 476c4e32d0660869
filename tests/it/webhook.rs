//! The webhook: each change of health is posted, signed, tried again, and never in the way.

use std::collections::HashMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::IntoResponse;
use inboxd::clock::Clock;
use inboxd::service::{self, config::Config};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::support::claims::eventually;
use crate::support::folder::Folder;
use crate::support::program::{A_WHILE, Answer, Service, ask, config_file, inboxd};
use crate::support::server;

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples");

#[derive(Debug, Clone)]
struct Post {
    path: String,
    headers: HashMap<String, String>,
    body: String,
}

/// Takes what is posted, and answers with these statuses, the last for ever; with none at all it never answers.
#[derive(Debug, Clone)]
struct Receiver {
    url: String,
    posts: Arc<Mutex<Vec<Post>>>,
}

impl Receiver {
    async fn start(statuses: &'static [u16]) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hooks/s3cr3t-path", listener.local_addr().unwrap());
        let posts = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&posts);
        let take = move |uri: Uri, headers: HeaderMap, body: Bytes| {
            let taken = Arc::clone(&taken);
            async move {
                let number = {
                    let mut taken = taken.lock().unwrap();
                    let text = |value: &header::HeaderValue| value.to_str().unwrap().to_owned();
                    taken.push(Post {
                        path: uri.path().to_owned(),
                        headers: headers
                            .iter()
                            .map(|(name, value)| (name.to_string(), text(value)))
                            .collect(),
                        body: String::from_utf8(body.to_vec()).unwrap(),
                    });
                    taken.len() - 1
                };
                let Some(status) = statuses.get(number).or(statuses.last()) else {
                    return std::future::pending().await;
                };
                (
                    StatusCode::from_u16(*status).unwrap(),
                    [(header::LOCATION, "/elsewhere")],
                )
                    .into_response()
            }
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(take)).await });
        Self { url, posts }
    }

    fn posts(&self) -> Vec<Post> {
        self.posts.lock().unwrap().clone()
    }

    async fn wait_for(&self, count: usize) -> Vec<Post> {
        let begin = Instant::now();
        while self.posts().len() < count {
            assert!(begin.elapsed() < A_WHILE, "{:#?}", self.posts());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.posts()
    }
}

/// A service on a database whose schedule is paused: after the first pass that is told, in the database's state first.
async fn paused(receiver: &Receiver) -> (Service, Folder) {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    ask(&database.url, &["run"]).must(0, &[]);
    ask(&database.url, &["pause", "--reason", "a test"]).must(0, &[]);
    serving(receiver, &database.url)
}

/// A service that tells a receiver.
fn serving(receiver: &Receiver, url: &str) -> (Service, Folder) {
    let folder = Folder::new();
    let file = config_file(
        folder.path(),
        &format!("[webhook]\nurl = '{}'\nsecret_variable = 'HOOK_SECRET'\n", receiver.url),
    );
    let mut command = inboxd(&["serve"]);
    command
        .env("DATABASE_URL", url)
        .env("INBOXD_SCHEDULE__CRON", "0 0 1 1 *")
        .env("HOOK_SECRET", SECRET)
        .arg("--config")
        .arg(file);
    (Service::spawn(command), folder)
}

fn body(post: &Post) -> Value {
    serde_json::from_str(&post.body).unwrap()
}

/// What the example of the documentation says of a post.
fn is_genuine(secret: &str, post: &Post) -> bool {
    let folder = Folder::new();
    let file = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let script = "import json, sys; sys.path.insert(0, sys.argv[1]); import verify_webhook as v
print(v.is_genuine(sys.argv[2], json.load(open(sys.argv[3])), open(sys.argv[4], 'rb').read()))";
    let output = Command::new("python3")
        .args(["-c", script, EXAMPLES, secret])
        .arg(file("headers", &serde_json::to_string(&post.headers).unwrap()))
        .arg(file("body", &post.body))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 is needed");
    assert!(output.status.success(), "{output:?}");
    output.stdout == b"True\n"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_posted_until_it_is_taken_signed_and_without_following_a_redirect() {
    let receiver = Receiver::start(&[500, 302, 204]).await;
    let (mut service, _folder) = paused(&receiver).await;
    let posts = receiver.wait_for(4).await;
    for post in &posts {
        assert_eq!(post.path, "/hooks/s3cr3t-path");
        assert_eq!(post.headers["content-type"], "application/json");
    }
    for post in &posts[..3] {
        assert_eq!(post.headers["webhook-id"], posts[0].headers["webhook-id"]);
        let body = body(post);
        assert_eq!(body["type"], "inboxd.health.stated", "{body}");
        let not_well = &body["data"]["not_well"][0];
        assert_eq!(
            (&not_well["check"], &not_well["status"]),
            (&"schedule".into(), &"warn".into()),
            "{body}"
        );
    }
    let last = &posts[3];
    assert_ne!(last.headers["webhook-id"], posts[0].headers["webhook-id"]);
    let body = body(last);
    assert_eq!(body["type"], "inboxd.health.changed", "{body}");
    let data = &body["data"];
    assert_eq!(
        (&data["check"], &data["to"]),
        (&"schedule".into(), &"warn".into()),
        "{body}"
    );
    assert!(
        data["from"].is_null() && data["remedy"].as_str().unwrap().contains("inboxd resume"),
        "{body}"
    );
    assert!(is_genuine(SECRET, last));
    let mut changed = last.clone();
    changed.body = changed.body.replace("warn", "pass");
    assert!(!is_genuine(SECRET, &changed));
    let mut old = last.clone();
    old.headers
        .insert("webhook-timestamp".to_owned(), "1700000000".to_owned());
    assert!(!is_genuine(SECRET, &old));
    assert!(!is_genuine(&SECRET.replace("MDEy", "MDEx"), last));

    let begin = Instant::now();
    let metrics = loop {
        let text = service.get("/metrics").await.text().await.unwrap();
        if text.contains("inboxd_webhook_changes_total{outcome=\"sent\"} 2\n") {
            break text;
        }
        assert!(begin.elapsed() < A_WHILE, "{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(metrics.contains("inboxd_webhook_retries_total 2\n"), "{metrics}");
    assert!(metrics.contains("inboxd_webhook_waiting 0\n"), "{metrics}");
    service.must_end();
    assert_eq!(
        receiver.posts().len(),
        4,
        "a change is posted once it was taken, and no more"
    );
    let log = format!("{:?}", service.log());
    assert!(!log.contains(SECRET) && !log.contains("s3cr3t-path"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_answers_keeps_neither_passes_nor_the_end_waiting() {
    let receiver = Receiver::start(&[]).await;
    let (mut service, _folder) = paused(&receiver).await;
    receiver.wait_for(1).await;
    service.wait_until_ready().await;
    let answer = service.get("/v1/health").await;
    assert_eq!(answer.status(), 200);
    service.must_end();
    let given_up = service.wait_for_log("changes of health were not posted before the end");
    assert_eq!(given_up["fields"]["left"], 2, "the one in hand counts: {given_up}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_panics_in_all_that_it_does_the_service_goes_on_and_tells_what_changes() {
    let receiver = Receiver::start(&[204]).await;
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let folder = Folder::new();
    let file = config_file(
        folder.path(),
        &format!("[webhook]\nurl = '{}'\nsecret_variable = 'HOOK_SECRET'\n", receiver.url),
    );
    let environment = [
        ("DATABASE_URL", database.url.as_str()),
        ("HOOK_SECRET", SECRET),
        ("INBOXD_HTTP__LISTEN", "127.0.0.1:0"),
        ("INBOXD_SCHEDULE__CRON", "* * * * * *"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = Config::load(Some(&file), environment.into()).unwrap();
    // Everybody asks the host's clock: the timetable, passes and who keeps them, canaries, readings, the watch over health.
    let (is_broken, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let clock = Clock::from_fn({
        let (is_broken, asked, system) = (is_broken.clone(), asked.clone(), Clock::system());
        move || {
            if is_broken.load(Ordering::SeqCst) {
                asked.fetch_add(1, Ordering::SeqCst);
                panic!("this clock is broken");
            }
            system.now()
        }
    });
    let shutdown = CancellationToken::new();
    let serving = service::serve(config, clock, shutdown.clone()).await.unwrap();
    let runs = async || -> i64 {
        sqlx::query_scalar("select count(*) from inboxd.runs where outcome = 'done'")
            .fetch_one(&mut database.connect().await)
            .await
            .unwrap()
    };
    eventually("a run", async || runs().await > 0).await;
    is_broken.store(true, Ordering::SeqCst);
    eventually("everybody has asked", async || asked.load(Ordering::SeqCst) > 12).await;
    is_broken.store(false, Ordering::SeqCst);
    let before = runs().await;
    eventually("the next run", async || runs().await > before).await;
    ask(&database.url, &["pause", "--reason", "a test"]).must(0, &[]);
    eventually("the pause is told", async || {
        let told = |post: &Post| post.body.contains("the schedule is paused");
        receiver.posts().iter().any(told)
    })
    .await;
    shutdown.cancel();
    serving.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_gone_for_good_is_told_so_by_410_and_not_asked_again() {
    let receiver = Receiver::start(&[410]).await;
    let (mut service, _folder) = paused(&receiver).await;
    let posts = receiver.wait_for(2).await;
    service.wait_for_log("a change of health could not be posted");
    service.must_end();
    assert_ne!(posts[0].headers["webhook-id"], posts[1].headers["webhook-id"]);
    assert_eq!(receiver.posts().len(), 2, "the state and the change, each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_became_well_while_no_service_was_there_is_known_from_the_state_that_the_next_one_tells() {
    let receiver = Receiver::start(&[204]).await;
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    ask(&database.url, &["run"]).must(0, &[]);
    ask(&database.url, &["pause", "--reason", "a test"]).must(0, &[]);
    let (mut service, _folder) = serving(&receiver, &database.url);
    let posts = receiver.wait_for(2).await;
    assert_eq!(body(&posts[1])["data"]["to"], "warn", "{posts:#?}");
    service.must_end();
    ask(&database.url, &["resume"]).must(0, &[]);
    let (mut service, _folder) = serving(&receiver, &database.url);
    let state = body(&receiver.wait_for(3).await[2]);
    assert_eq!(state["type"], "inboxd.health.stated", "{state}");
    assert_eq!(
        state["data"],
        serde_json::json!({"deployment": "default", "database": "main", "not_well": []})
    );
    service.must_end();
}

#[test]
fn what_is_wrong_with_its_configuration_is_told_before_the_first_connection_and_nothing_of_it_is_shown() {
    let folder = Folder::new();
    for (text, said) in [
        (
            "url = 'https://u:s3cr3t@example.com/'\nsecret_variable = 'GOOD'",
            "webhook.url",
        ),
        ("url = 'example.com/s3cr3t'\nsecret_variable = 'GOOD'", "webhook.url"),
        ("url = ['s3cr3t']\nsecret_variable = 'GOOD'", "webhook"),
        ("url = 'https://example.com/s3cr3t'", "secret_file"),
        (
            "url = 'https://example.com/s3cr3t'\nsecret_variable = 'SHORT'",
            "whsec_",
        ),
        (
            "url = 'https://example.com/s3cr3t'\nsecret_variable = 'NOT_SET'",
            "NOT_SET",
        ),
        (
            "url = 'https://example.com/s3cr3t'\nsecret_file = '/no/such/file'",
            "/no/such/file",
        ),
        ("secret_variable = 'GOOD'", "webhook.url"),
        ("severity = 'info'", "\"warn\" or \"fail\""),
        ("timeout = '2m'", "100ms"),
    ] {
        let file = config_file(folder.path(), &format!("[webhook]\n{text}\n"));
        let mut command = inboxd(&["serve"]);
        command
            .env("DATABASE_URL", "postgres://127.0.0.1:1/d")
            .env("GOOD", SECRET)
            .env("SHORT", "whsec_s3cr3tAA")
            .arg("--config")
            .arg(file);
        let answer = Answer::of(&mut command);
        assert_eq!(answer.code, Some(1), "{text}: {answer:?}");
        assert!(answer.err.contains(said), "{text}: {answer:?}");
        assert!(
            !answer.err.contains("s3cr3t") && !answer.err.contains(SECRET),
            "{text}: {answer:?}"
        );
    }
}
