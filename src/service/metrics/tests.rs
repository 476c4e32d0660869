//! How many series there are, and what they are called by.

use super::*;
use crate::{
    pure::Severity,
    service::health::tests::{database, inbox, partition},
};

fn page(inboxes: usize, partitions: usize) -> String {
    let inboxes = (0..inboxes).map(|number| InboxStatus {
        inbox: format!("inbox-{number}"),
        partitions: vec![partition(PartitionState::Live, "2026-12-05T00:00:00Z"); partitions],
        ..inbox()
    });
    let status = Status {
        version: "1.2.3",
        deployment: "test".to_owned(),
        severity: Severity::Info,
        databases: vec![database(inboxes.collect())],
        next_runs: Vec::new(),
    };
    render(&Source {
        status: &status,
        counts: &[],
        webhook: None,
    })
}

fn series(page: &str) -> usize {
    page.lines().filter(|line| !line.starts_with('#')).count()
}

#[test]
fn series_grow_with_the_inboxes_and_not_with_their_partitions() {
    let (none, one) = (series(&page(0, 0)), series(&page(1, 15)));
    let an_inbox = one - none;
    assert!((20..60).contains(&an_inbox), "{an_inbox}");
    let text = page(200, 15);
    assert_eq!(series(&text), none + 200 * an_inbox);
    assert_eq!(series(&text), series(&page(200, 1_000)));
    assert!(!text.contains("inbox_2026"), "a partition's name is no label");
}

#[test]
fn every_family_has_its_help_and_each_series_stands_once() {
    let text = page(3, 2);
    let mut seen = std::collections::BTreeSet::new();
    let mut families = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, said) = help.split_once(' ').unwrap();
            assert!(said.ends_with('.') && families.insert(name.to_owned()), "{line}");
        } else if !line.starts_with('#') {
            let (key, value) = line.rsplit_once(' ').unwrap();
            let name = key.split('{').next().unwrap();
            assert!(families.contains(name), "{line}");
            assert!(value.parse::<f64>().is_ok() && seen.insert(key.to_owned()), "{line}");
        }
    }
}
