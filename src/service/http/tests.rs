//! The description of the API: complete, and true of what can be told without a server.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn document() -> Value {
    let (_, document) = routes().merge(guarded()).split_for_parts();
    serde_json::to_value(document).unwrap()
}

/// Each operation with its path and method.
fn operations(document: &Value) -> Vec<(String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().iter();
            methods.map(move |(method, operation)| (format!("{method} {path}"), operation.clone()))
        })
        .collect()
}

#[test]
fn every_endpoint_file_is_routed_and_described() {
    let described: BTreeSet<String> = operations(&document()).into_iter().map(|(name, _)| name).collect();
    let mut sources = String::new();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/service/http")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            sources.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
    let mut written = BTreeSet::new();
    for operation in sources.split("#[utoipa::path(").skip(1) {
        let (method, rest) = operation.trim_start().split_once(',').unwrap();
        let path = rest.split('"').nth(1).unwrap();
        written.insert(format!("{} {path}", method.trim()));
    }
    assert_eq!(described, written);
    assert!(described.len() >= 13, "{described:?}");
    // And routed by nothing else: a bare route would be served without a description.
    assert_eq!(sources.matches(".route(").count(), 0);
}

#[test]
fn every_operation_tells_its_problems_and_every_problem_is_told_of() {
    let document = document();
    let types: Vec<&str> = document["components"]["schemas"]["ProblemType"]["enum"]
        .as_array()
        .unwrap()
        .iter()
        .map(|value| value.as_str().unwrap())
        .collect();
    let text = operations(&document)
        .iter()
        .map(|(_, operation)| operation.to_string())
        .collect::<String>();
    for urn in types {
        assert!(urn.starts_with("urn:inboxd:problem:"), "{urn}");
        // These two are of no operation: the path or the method is none of ours.
        let is_of_none = urn.ends_with(":not-found") || urn.ends_with(":method-not-allowed");
        assert_eq!(text.contains(&format!("`{urn}`")), !is_of_none, "{urn}");
    }
    for (name, operation) in operations(&document) {
        let responses = operation["responses"].as_object().unwrap();
        for status in ["421", "500", "503"] {
            let content = &responses[status]["content"]["application/problem+json"];
            assert_eq!(
                content["schema"]["$ref"], "#/components/schemas/Problem",
                "{name} {status}"
            );
        }
        let is_open = ["get /livez", "get /readyz", "get /openapi.json"].contains(&name.as_str());
        assert_eq!(responses.contains_key("401"), !is_open, "{name}");
        assert!(operation["summary"].is_string(), "{name}");
    }
}

#[test]
fn no_two_types_share_a_name_in_the_description() {
    // utoipa keeps one of two that do; then a field of the other is missing somewhere.
    let document = document();
    let schemas = &document["components"]["schemas"];
    for (schema, field) in [
        ("NewRun", "dry_run"),
        ("NewRunAnswer", "databases"),
        ("Run", "steps_skipped"),
        ("Replica", "heartbeat_at"),
        ("Step", "locks"),
        ("RunStep", "error_kind"),
        ("StepAnswer", "skipped_because"),
    ] {
        assert!(schemas[schema]["properties"][field].is_object(), "{schema}.{field}");
    }
    let text = document.to_string();
    let referred = text
        .split("#/components/schemas/")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap());
    for name in referred {
        assert!(schemas[name].is_object(), "{name} is referred to and missing");
    }
}

#[test]
fn the_page_on_http_lists_every_endpoint() {
    let page = include_str!("../../../docs/http.md");
    let (_, section) = page.split_once("\n## Endpoints").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    for (name, _) in operations(&document()) {
        let path = name.split(' ').next_back().unwrap();
        let last = path
            .strip_prefix("/v1/inboxes/{inbox}/")
            .map(|last| format!("…/{last}`"));
        assert!(
            section.contains(&format!("{path}`")) || last.is_some_and(|last| section.contains(&last)),
            "{name}"
        );
    }
}

/// A context of which nothing is asked.
fn context() -> Context {
    Context {
        webhook: None,
        config: Arc::new(Config::load(None, std::collections::HashMap::new()).unwrap()),
        clock: Clock::system(),
        heart: Heart::new(),
        members: Arc::new([]),
        requested: Requested::default(),
    }
}

#[tokio::test]
async fn a_handler_that_panics_answers_500_and_the_next_request_is_served() {
    async fn broken() -> &'static str {
        panic!("secret text")
    }
    let router = Router::new()
        .route("/broken", axum::routing::get(broken))
        .route("/well", axum::routing::get(async || "ok"));
    let router = layers::layered(router, &context());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let answer = reqwest::get(format!("http://{address}/broken")).await.unwrap();
    assert_eq!(answer.status(), 500);
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    assert!(answer.headers().contains_key("x-request-id"));
    let text = answer.text().await.unwrap();
    assert!(
        text.contains("urn:inboxd:problem:internal") && !text.contains("secret"),
        "{text}"
    );
    let well = reqwest::get(format!("http://{address}/well")).await.unwrap();
    assert_eq!(well.status(), 200);
    serving.abort();
}
