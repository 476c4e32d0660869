//! The list of keys, its page and the example file say what the code does.

use std::collections::{BTreeMap, BTreeSet};

use super::load;
use crate::service::config::{Accepts, KEYS, reference};

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
fn the_list_has_every_key_and_no_other() {
    let listed: BTreeSet<String> = KEYS.iter().map(|key| key.name.to_owned()).collect();
    assert_eq!(listed.len(), KEYS.len(), "one of them twice");
    assert_eq!(listed, known());
}

/// A file with these keys.
fn file<'a>(keys: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut sections: BTreeMap<&str, String> = BTreeMap::new();
    for (key, value) in keys {
        let (section, key) = key.rsplit_once('.').unwrap_or(("", key));
        let line = format!("{key} = '{value}'\n");
        sections.entry(section).or_default().push_str(&line);
    }
    let mut text = sections.remove("").unwrap_or_default();
    for (section, keys) in sections {
        let head = if section == "inbox" {
            "[[inbox]]".to_owned()
        } else {
            format!("[{section}]")
        };
        text.push_str(&format!("{head}\n{keys}"));
    }
    text
}

/// The default name of the database is only known once there is one.
const DATABASE: [(&str, &str); 1] = [("DATABASE_URL", "postgres://h/d")];

#[test]
fn the_defaults_of_the_list_are_those_of_the_code() {
    let text = file(KEYS.iter().filter_map(|key| Some((key.name, key.default?))));
    let spelled_out = load(&text, &DATABASE).unwrap_or_else(|error| panic!("{text}\n{error}"));
    assert_eq!(
        format!("{spelled_out:#?}"),
        format!("{:#?}", load("", &DATABASE).unwrap())
    );
}

/// What else must be set so that the ends of a range stand.
const BESIDE: [(&str, &str, &str); 4] = [
    ("maintenance.lock_timeout", "maintenance.statement_timeout", "1h"),
    ("maintenance.statement_timeout", "maintenance.lock_timeout", "10ms"),
    ("inbox.redelivery_horizon", "inbox.retention", "forever"),
    ("inbox.digest", "inbox.seal_days", "true"),
];

#[test]
fn what_the_list_says_is_accepted_is_and_what_lies_beyond_is_not() {
    let refused = |name: &str, value: &str| {
        let mut keys = vec![(name, value)];
        keys.extend(
            BESIDE
                .iter()
                .filter(|(of, _, _)| *of == name)
                .map(|(_, key, value)| (*key, *value)),
        );
        if name.starts_with("inbox.") {
            keys.push(("inbox.table", "t"));
        }
        load(&file(keys), &DATABASE).err().map(|error| error.to_string())
    };
    let mut ranges = 0;
    for key in KEYS {
        let (good, bad): (Vec<String>, Vec<String>) = match key.accepts {
            Accepts::Choice(words) => (
                words.iter().map(|word| (*word).to_owned()).collect(),
                vec!["no_such_word".to_owned()],
            ),
            Accepts::Whole(least, most) => (
                vec![least.to_string(), most.to_string()],
                vec![(least - 1).to_string(), (most + 1).to_string(), "x".to_owned()],
            ),
            Accepts::Duration(least, most, _) => {
                let below = match least.strip_suffix("ms") {
                    Some(ms) => vec![format!("{}ms", ms.parse::<u32>().unwrap() - 1)],
                    None if least == "0s" => vec![],
                    None => vec![format!("{}ms", duration_ms(least) - 1)],
                };
                let beyond = format!("{most} 1s");
                (
                    vec![least.to_owned(), most.to_owned()],
                    [below, vec![beyond, "7".to_owned()]].concat(),
                )
            }
            Accepts::Text(_) => continue,
        };
        ranges += 1;
        for value in good {
            let error = refused(key.name, &value);
            assert_eq!(error, None, "{} = {value}", key.name);
        }
        for value in bad {
            let error = refused(key.name, &value).unwrap_or_else(|| panic!("{} = {value} is accepted", key.name));
            let last = key.name.rsplit('.').next().unwrap();
            assert!(
                error.contains(last) && error.contains(&value),
                "{} = {value}: {error}",
                key.name
            );
        }
    }
    assert!(ranges > 20, "{ranges}");
}

fn duration_ms(text: &str) -> i64 {
    crate::pure::parse_duration(text).unwrap().num_milliseconds()
}

#[test]
fn the_page_is_what_the_list_makes() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let made = reference();
    if std::env::var_os("INBOXD_TEST_RECORD").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        there == made,
        "docs/configuration.md is not what the code says; INBOXD_TEST_RECORD=1 writes it"
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
