//! The pages for people: each link leads somewhere, and each command is one that there is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::support::{
    program::{Answer, ask, inboxd},
    server,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page in the root and below `docs`, with its text.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut pages = BTreeMap::new();
    for folder in [root().to_owned(), root().join("docs")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                pages.insert(path, text);
            }
        }
    }
    assert!(pages.len() > 10, "{:?}", pages.keys());
    pages
}

/// The text without its blocks of code.
fn prose(text: &str) -> String {
    let mut inside = false;
    text.lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            inside ^= fence;
            !inside && !fence
        })
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Where the links of a text lead: `[text](target)`.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let mut found = Vec::new();
    // Marks around code may hold anything.
    for (index, part) in prose.split("](").enumerate() {
        if index > 0 {
            found.push(part.split(')').next().unwrap().to_owned());
        }
    }
    found
}

/// The anchors of a page's headings, as the usual renderers make them.
fn anchors(text: &str) -> BTreeSet<String> {
    prose(text)
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim();
            let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            heading
                .to_lowercase()
                .chars()
                .filter(kept)
                .collect::<String>()
                .replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let pages = pages();
    let mut checked = 0;
    let mut dead = Vec::new();
    for (page, text) in &pages {
        for target in targets(text) {
            if target.starts_with("https://") || target.starts_with("http://") {
                continue;
            }
            checked += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(file)
            };
            let there = path.canonicalize().ok();
            let lives = there.as_ref().is_some_and(|path| {
                anchor.is_empty() || pages.get(path).is_some_and(|text| anchors(text).contains(anchor))
            });
            if !lives {
                dead.push(format!("{}: {target}", page.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
    assert!(checked > 50, "{checked}");
}

#[test]
fn every_page_of_docs_is_reached_from_the_readme() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let linked: BTreeSet<String> = targets(&readme).into_iter().collect();
    for page in pages().keys() {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        if name.starts_with("docs/") {
            assert!(linked.contains(&name), "{name} is not linked");
        }
    }
}

/// The lines of a page's `sh` blocks, without their comments.
fn commands(text: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside {
            let command = line.split(" #").next().unwrap().trim();
            if !command.is_empty() && !command.starts_with('#') {
                found.push(command.to_owned());
            }
        }
    }
    found
}

/// Words as a shell splits them; double quotes hold one together.
fn words(command: &str) -> Vec<&str> {
    let in_part = |(index, part): (usize, _)| -> Vec<&str> {
        let part: &str = part;
        if index % 2 == 1 {
            vec![part]
        } else {
            part.split_whitespace().collect()
        }
    };
    command.split('"').enumerate().flat_map(in_part).collect()
}

/// Commands that are no `inboxd …`, each with the place that runs them. What none runs is not to stand on a page.
const RUN_ELSEWHERE: &[(&str, &str)] = &[
    ("deploy/quickstart", "tests/first-steps"),
    (
        "psql -h … -d postgres -c \"select public.inbox_claim(",
        "tests/first-steps",
    ),
    ("cargo install --path . --locked", "tests/first-steps"),
    ("printf 'order-1 orders", "tests/first-steps"),
    ("tests/all", ".ci/run"),
    ("benches/run", "tests/all"),
    ("cargo test --test it setnx::", "tests/all"),
    ("export DATABASE_URL=", "tests/it/support/program.rs"),
];

#[tokio::test]
async fn every_command_of_the_readme_and_the_docs_is_one_that_works() {
    let database = server::database().await;
    let url = &database.url;
    ask(url, &["init"]).must(0, &[]);
    ask(url, &["run"]).must(0, &[]);
    let mut seen = BTreeSet::new();
    let folder = crate::support::folder::Folder::new();
    for (page, text) in pages() {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        // The runbook's are run in deploy.rs, those of who changes this by CI.
        if !(name == "README.md" || name.starts_with("docs/")) || name == "docs/runbook.md" {
            continue;
        }
        for command in commands(&text) {
            let Some(arguments) = command.strip_prefix("inboxd ") else {
                let runs = RUN_ELSEWHERE.iter().find(|(begin, _)| command.starts_with(begin));
                let (_, place) = runs.unwrap_or_else(|| panic!("{name}: nothing runs {command}"));
                assert!(root().join(place).is_file(), "{place}");
                continue;
            };
            let (arguments, into) = arguments.split_once(" > ").unwrap_or((arguments, ""));
            let arguments = words(arguments);
            // The service has tests of its own, and does not end.
            if arguments[0] == "serve" || !seen.insert(command.clone()) {
                continue;
            }
            let mut program = inboxd(&arguments);
            let answer = Answer::of(program.env("DATABASE_URL", url).current_dir(folder.path()));
            assert!(!answer.err.contains("Usage:"), "{name}: {command}: {answer:?}");
            assert!(!answer.err.contains("needs --yes"), "{name}: {command}: {answer:?}");
            assert!(!answer.err.contains("no inbox"), "{name}: {command}: {answer:?}");
            assert!(matches!(answer.code, Some(0..=2)), "{name}: {command}: {answer:?}");
            assert!(into.is_empty() || !answer.out.is_empty(), "{name}: {command}");
        }
    }
    assert!(seen.len() > 5, "{seen:?}");
}
