//! `/openapi.json` and the service say the same.

use serde_json::Value;

use super::sample::{JSON, Sample};
use super::schema::mismatches;
use super::*;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/http/openapi.json");

/// Every operation: method, path, and what is described of it.
pub(super) fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let each = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (method.clone(), path.clone(), operation.clone()))
    });
    each.collect()
}

#[tokio::test]
async fn every_described_endpoint_answers_as_described() {
    let (mut api, database) = Api::ready(&[]).await;
    let sample = Sample::of(&database).await;
    let document = api.get_json("/openapi.json").await;
    let operations = operations(&document);
    assert!(operations.len() >= 25, "{}", operations.len());
    for (method, path, operation) in operations {
        let (body, status) = sample.body(&method, &path);
        let headers = if body.is_some() { vec![JSON] } else { vec![] };
        let answer = api
            .send(&method, &sample.path(&method, &path), &headers, body.as_deref())
            .await;
        assert_eq!(answer.status(), status, "{method} {path}");
        let headers = answer.headers();
        assert!(headers.contains_key("x-request-id"), "{path}");
        for (name, value) in [("cache-control", "no-store"), ("x-content-type-options", "nosniff")] {
            assert_eq!(headers[name], value, "{path}");
        }
        let described = operation["responses"][status.to_string()]["content"]
            .as_object()
            .unwrap();
        let (content_type, content) = described.iter().next().unwrap();
        assert!(
            headers["content-type"].to_str().unwrap().starts_with(content_type),
            "{path}: {headers:?}"
        );
        if content_type.ends_with("json") {
            let body: Value = answer.json().await.unwrap();
            let found = mismatches(&document, &content["schema"], &body, "");
            assert!(found.is_empty(), "{method} {path}: {found:#?}");
        }
    }
    api.service.must_end();
}

/// Shapes are a promise. What is said in words about them may change.
#[tokio::test]
async fn the_shapes_are_those_on_record() {
    let (api, _database) = Api::ready(&[]).await;
    let mut document = api.get_json("/openapi.json").await;
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    strip(&mut document);
    let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
    if std::env::var_os("INBOXD_TEST_RECORD").is_some() {
        std::fs::write(RECORDED, &text).unwrap();
    }
    let recorded = std::fs::read_to_string(RECORDED).unwrap();
    let changed = recorded
        .lines()
        .zip(text.lines())
        .enumerate()
        .find(|(_, (old, new))| old != new);
    assert!(
        recorded == text,
        "a shape has changed, first at {changed:?}; if it is meant, record it with INBOXD_TEST_RECORD=1 and tell CHANGELOG"
    );
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for words in ["description", "summary", "version"] {
                if fields.get(words).is_some_and(Value::is_string) {
                    fields.remove(words);
                }
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

#[tokio::test]
async fn the_page_of_the_description_needs_nobody_else() {
    let (api, _database) = Api::ready(&[]).await;
    let page = api.get("/docs/").await;
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("script-src 'self'"),
        "{policy}"
    );
    let text = page.text().await.unwrap();
    assert!(!text.contains("https://") && !text.contains("src=\"//"), "{text}");
    // No script stands in the page itself: the policy would not let it run.
    assert!(!text.contains("<script>"), "{text}");
    let scripts: Vec<&str> = text
        .split("src=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(!scripts.is_empty(), "{text}");
    for script in scripts {
        let answer = api.get(&format!("/docs/{}", script.trim_start_matches("./"))).await;
        assert_eq!(answer.status(), 200, "{script}");
    }
}
