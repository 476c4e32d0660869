//! The README's table and the example file say what the code does.

use std::collections::{BTreeMap, BTreeSet};

use super::load;

const README: &str = include_str!("../../../../README.md");
const EXAMPLE: &str = include_str!("../../../../deploy/inboxd.example.toml");

/// Sections of the file; the name of a database is the operator's.
const SECTIONS: [&str; 8] = [
    "database",
    "databases.NAME",
    "inbox",
    "schedule",
    "maintenance",
    "http",
    "webhook",
    "log",
];

/// The keys of the README's table, with their defaults; none where the table has no value in code marks.
fn documented() -> BTreeMap<&'static str, Option<&'static str>> {
    let (_, configuration) = README.split_once("## Configuration").unwrap();
    let (configuration, _) = configuration.split_once("\n## ").unwrap();
    let unmarked = |cell: &'static str| cell.trim().strip_prefix('`')?.strip_suffix('`');
    configuration
        .lines()
        .filter_map(|line| {
            let cells: Vec<&'static str> = line.split('|').collect();
            let key = unmarked(cells.get(1)?)?;
            Some((key, unmarked(cells[3])))
        })
        .collect()
}

/// The keys that the code knows: an unknown one is answered with the list.
fn known() -> BTreeSet<String> {
    let list = |text: &str| {
        let error = load(text, &[]).unwrap_err().to_string();
        let (_, expected) = error.split_once("expected").unwrap_or_else(|| panic!("{error}"));
        let (expected, _) = expected.split_once("for key").unwrap_or((expected, ""));
        expected
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut known = BTreeSet::new();
    let mut containers = BTreeSet::new();
    for section in SECTIONS {
        let (head, _) = section.split_once('.').unwrap_or((section, ""));
        containers.insert(head.to_owned());
        let text = if section == "inbox" {
            "[[inbox]]\ntable = 'a'\nno_such_key = 1".to_owned()
        } else {
            format!("[{section}]\nno_such_key = 1")
        };
        known.extend(list(&text).iter().map(|key| format!("{section}.{key}")));
    }
    let top = list("no_such_key = 1");
    assert!(containers.iter().all(|container| top.contains(container)), "{top:?}");
    known.extend(top.into_iter().filter(|key| !containers.contains(key)));
    known
}

#[test]
fn the_readme_lists_every_key_and_no_other() {
    let documented: BTreeSet<String> = documented().into_keys().map(str::to_owned).collect();
    assert_eq!(documented, known());
}

#[test]
fn the_defaults_of_the_readme_are_those_of_the_code() {
    let mut sections: BTreeMap<&str, String> = BTreeMap::new();
    for (key, default) in documented() {
        let (section, key) = key.rsplit_once('.').unwrap_or(("", key));
        if let Some(default) = default {
            sections
                .entry(section)
                .or_default()
                .push_str(&format!("{key} = '{default}'\n"));
        }
    }
    let mut text = sections.remove("").unwrap();
    for (section, keys) in sections {
        let head = if section == "inbox" {
            "[[inbox]]".to_owned()
        } else {
            format!("[{section}]")
        };
        text.push_str(&format!("{head}\n{keys}"));
    }
    // The default name of the database is only known once there is one.
    let database = [("DATABASE_URL", "postgres://h/d")];
    let spelled_out = load(&text, &database).unwrap_or_else(|error| panic!("{text}\n{error}"));
    assert_eq!(
        format!("{spelled_out:#?}"),
        format!("{:#?}", load("", &database).unwrap())
    );
}

#[test]
fn the_example_has_every_key_and_the_defaults() {
    let example = load(EXAMPLE, &[]).unwrap();
    let plain = load("", &[("DATABASE_URL", "postgres://inboxd@localhost:5432/app")]).unwrap();
    assert_eq!(format!("{example:#?}"), format!("{plain:#?}"));

    // Those that stand in comments load as well; what is kept is not dropped, so two of them exclude each other.
    for left_out in ["archive_schema", "before_drop"] {
        let inbox = &uncommented_but(left_out).databases[0].inboxes[0];
        assert_eq!(inbox.owner.as_ref().unwrap().as_str(), "app_owner");
        assert_eq!(inbox.before_drop.is_some(), left_out == "archive_schema");
    }

    for key in known() {
        let key = key.rsplit('.').next().unwrap();
        // The one inbox of the example needs no choice among databases.
        let there = EXAMPLE
            .lines()
            .any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} = ")));
        assert!(there || key == "database", "{key} is not in the example");
    }
}

/// The example with every key that stands in a comment, but for one.
fn uncommented_but(left_out: &str) -> super::Config {
    let text: String = EXAMPLE
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            // A URL and a token are to be found nowhere here.
            Some(rest)
                if rest.contains(" = ")
                    && !rest.starts_with("url")
                    && !rest.starts_with("secret_")
                    && !rest.contains("_tokens")
                    && !rest.starts_with(left_out) =>
            {
                format!("{rest}\n")
            }
            _ if left_out == "before_drop" && line.starts_with("on_expiry") => "on_expiry = \"keep\"\n".to_owned(),
            _ => format!("{line}\n"),
        })
        .collect();
    load(&text, &[]).unwrap_or_else(|error| panic!("{text}\n{error}"))
}
