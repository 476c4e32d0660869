//! The SQL files themselves: each is accepted by the server, names itself, and does nothing that is ruled out.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

use crate::support::inbox::{Deployment, spec};

fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty());
    found
}

#[tokio::test]
async fn every_query_is_accepted_by_a_migrated_database() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut connection = deployment.maintenance().await;
    let mut prepared = 0;
    for folder in ["sql/observe", "sql/journal", "sql/lock"] {
        for file in files(folder, "sql") {
            let text = fs::read_to_string(&file).unwrap();
            let statement = AssertSqlSafe(text.clone()).into_sql_str();
            if text.contains("\nlock table") {
                continue; // A utility statement; init runs it.
            }
            connection
                .prepare(statement)
                .await
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            prepared += 1;
        }
    }
    assert!(prepared > 15, "{prepared}");
}

#[test]
fn every_statement_begins_with_its_name() {
    for file in files("sql", "sql").into_iter().chain(files("migrations", "sql")) {
        let text = fs::read_to_string(&file).unwrap();
        let named = text.starts_with("-- inboxd: ");
        // Parts are put into other templates; their first line says why instead.
        let is_part = file.parent().unwrap().ends_with("claim/parts");
        assert_eq!(named, !is_part, "{}", file.display());
        assert!(text.starts_with("-- "), "{}", file.display());
    }
}

#[test]
fn what_makes_claims_wait_or_hides_a_failure_is_used_nowhere() {
    let mut texts = Vec::new();
    for file in files("sql", "sql")
        .into_iter()
        .chain(files("migrations", "sql"))
        .chain(files("src", "rs"))
    {
        // Comments may name what is ruled out.
        let code: String = fs::read_to_string(&file)
            .unwrap()
            .lines()
            .map(|line| line.split_once("--").map_or(line, |(code, _)| code))
            .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
            .flat_map(|line| [line, " "])
            .collect();
        texts.push((
            file,
            code.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" "),
        ));
    }
    for (file, text) in &texts {
        for ruled_out in ["if not exists", "if exists", "cascade"] {
            assert!(!text.contains(ruled_out), "{}: {ruled_out}", file.display());
        }
        // In Rust these two words are prose: no statement stands there.
        if file.extension().is_some_and(|extension| extension == "sql") {
            assert!(!text.contains("partition of"), "{}", file.display());
        } else {
            assert!(
                !text.contains("create table") && !text.contains("drop table"),
                "{}: DDL outside sql/",
                file.display()
            );
        }
        for (at, _) in text.match_indices("detach partition") {
            let behind = &text[at..text.len().min(at + 80)];
            // Those say in their own file why they may.
            let is_drain = file.parent().unwrap().ends_with("ddl/drain");
            assert!(
                is_drain || behind.contains("concurrently") || behind.contains("finalize"),
                "{}: {behind}",
                file.display()
            );
        }
    }
    let drops: Vec<&Path> = texts
        .iter()
        .filter(|(_, text)| text.contains("drop table"))
        .map(|(file, _)| file.as_path())
        .collect();
    assert_eq!(
        drops,
        [Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/ddl/drop_table.sql")],
        "one place drops, after it has checked"
    );
}
