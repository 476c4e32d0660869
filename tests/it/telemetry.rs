//! What the log says about where it was written, and what is exported of it.

use crate::support::folder::Folder;
use crate::support::program::{Service, ask, config_file, inboxd};
use crate::support::server;

const SECRETS: [&str; 4] = [
    "reader-0123456789abcdef",
    "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    "s3cr3t-path",
    "--password=s3cr3t-argument",
];

#[tokio::test]
async fn the_first_line_has_version_and_configuration_and_no_secret() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let folder = Folder::new();
    let file = config_file(
        folder.path(),
        &format!(
            "[http]\nread_tokens = [{{ name = 'grafana', variable = 'READER' }}]
            [webhook]\nurl = 'https://hooks.example.com/{}'\nsecret_variable = 'HOOK'\n
            [[inbox]]\ntable = 'public.inbox'\nbefore_drop = ['/usr/bin/export-day', '{}']\n",
            SECRETS[2], SECRETS[3]
        ),
    );
    let mut command = inboxd(&["serve"]);
    let separator = if database.url.contains('?') { '&' } else { '?' };
    command
        .env(
            "DATABASE_URL",
            format!("{}{separator}password=s3cr3t-password", database.url),
        )
        .envs([("READER", SECRETS[0]), ("HOOK", SECRETS[1])])
        .arg("--config")
        .arg(file);
    let mut service = Service::spawn(command);
    service.wait_until_ready().await;
    let lines = service.log();
    let first = &lines[0]["fields"];
    assert_eq!(first["message"], "inboxd starts", "{first}");
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
    let config = first["config"].as_str().unwrap();
    for part in [
        "max_drops_per_run: 4",
        "hooks.example.com",
        "grafana",
        "statement: 30s",
        "*/10 * * * *",
        "export-day",
        "arguments: 1",
    ] {
        assert!(config.contains(part), "{part}: {config}");
    }
    assert!(config.len() < 3_000, "{} bytes: {config}", config.len());
    service.must_end();
    let log = format!("{:?}", service.log());
    for secret in SECRETS.into_iter().chain(["s3cr3t-password"]) {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

#[tokio::test]
async fn a_line_of_a_step_says_in_which_run_and_step_it_was_written() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut service = Service::start(&database.url, &[]);
    service.wait_until_ready().await;
    let made = service.wait_for_log(": done");
    let run: uuid::Uuid = sqlx::query_scalar("select id from inboxd.runs order by ordinal limit 1")
        .fetch_one(&mut database.connect().await)
        .await
        .unwrap();
    let (outer, inner) = (&made["spans"][0], &made["spans"][1]);
    assert_eq!(
        (&outer["name"], &outer["id"], &outer["database"], &outer["trigger"]),
        (&"run".into(), &run.to_string().into(), &"main".into(), &"start".into()),
        "{made}"
    );
    assert_eq!(
        (&inner["name"], &inner["inbox"], &inner["action"]),
        (&"step".into(), &"main.public.inbox".into(), &"create".into()),
        "{made}"
    );
    assert_eq!(inner["relation"], made["fields"]["relation"], "{made}");
    service.must_end();
}

#[cfg(feature = "otlp")]
#[tokio::test(flavor = "multi_thread")]
async fn the_spans_of_a_run_arrive_over_otlp() {
    use std::sync::{Arc, Mutex};

    use axum::{Router, body::Bytes, http::HeaderMap, http::Uri};

    let (posts, listener) = (
        Arc::new(Mutex::new(Vec::new())),
        tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(),
    );
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let taken = Arc::clone(&posts);
    let take = move |uri: Uri, headers: HeaderMap, body: Bytes| {
        taken.lock().unwrap().push((uri.path().to_owned(), headers, body));
        std::future::ready("")
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(take)).await });

    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=orders"),
    ];
    let mut service = Service::start(&database.url, &environment);
    service.wait_until_ready().await;
    // What waits is sent at the end.
    service.must_end();
    let posts = posts.lock().unwrap();
    let mut all = Vec::new();
    for (path, headers, body) in posts.iter() {
        assert_eq!(path, "/v1/traces");
        assert_eq!(headers["content-type"], "application/x-protobuf");
        assert_eq!(headers["x-tenant"], "orders");
        all.extend_from_slice(body);
    }
    // Texts stand in protobuf as they are.
    let all = String::from_utf8_lossy(&all);
    for part in [
        "inboxd", "run", "step", "trigger", "start", "relation", "inbox_20", "create",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    let problems = service.logged_at("WARN");
    assert!(problems.is_empty(), "{problems:?}");
}
