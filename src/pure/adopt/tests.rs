use std::collections::BTreeSet;

use super::*;

fn table() -> TableName {
    "public.inbox".parse().unwrap()
}

fn column(name: &str, kind: &str) -> FoundColumn {
    FoundColumn {
        name: name.to_owned(),
        kind: kind.to_owned(),
        is_not_null: true,
        has_default: false,
        is_identity: false,
    }
}

fn found() -> FoundTable {
    FoundTable {
        oid: 16_384,
        kind: "r".to_owned(),
        owner: Ident::new("app").unwrap(),
        columns: vec![
            column("message_id", "uuid"),
            column("topic", "character varying(255)"),
            column("processed_at", "timestamp with time zone"),
        ],
        has_key: true,
        other_unique: Vec::new(),
        other_indexes: Vec::new(),
        in_the_way: Vec::new(),
        checks: Vec::new(),
        grants: BTreeSet::new(),
        replica_identity: ReplicaIdentity::Default,
        tablespace: None,
        comment: None,
        bytes: 500_000_000,
        rows: 5_000_000,
        has_functions: false,
        now: "2026-12-02T15:00:00Z".parse().unwrap(),
    }
}

fn check(name: &str, is_validated: bool) -> FoundCheck {
    FoundCheck {
        name: name.to_owned(),
        is_validated,
        says: String::new(),
    }
}

fn adopt(found: &FoundTable) -> Adoption {
    adoption(&table(), Routing::ProcessedAt, Consumers::One, found)
}

fn actions(adoption: &Adoption) -> Vec<&'static str> {
    adoption.prepare.iter().map(|step| step.action.as_str()).collect()
}

#[test]
fn the_deadline_is_at_least_48_hours_away_and_less_than_72() {
    for now in [
        "2026-12-02T00:00:00Z",
        "2026-12-02T12:00:00Z",
        "2026-12-02T23:59:59.999999Z",
    ] {
        let now: DateTime<Utc> = now.parse().unwrap();
        let left = adopt_until(now).start() - now;
        assert!(
            left >= TimeDelta::hours(48) && left <= TimeDelta::hours(72),
            "{now}: {left}"
        );
    }
}

#[test]
fn what_is_there_already_is_not_done_again() {
    let mut found = found();
    assert_eq!(
        actions(&adopt(&found)),
        ["scan", "make_functions", "add_checks", "validate"]
    );
    found.has_functions = true;
    assert_eq!(actions(&adopt(&found)), ["scan", "add_checks", "validate"]);
    found.checks = vec![check("inbox_to_2026_12_05", false)];
    assert_eq!(actions(&adopt(&found)), ["validate"]);
    assert!(adopt(&found).swap_is_refused.is_some());
    found.checks = vec![check("inbox_to_2026_12_05", true)];
    let ready = adopt(&found);
    assert!(ready.prepare.is_empty() && ready.swap_is_refused.is_none(), "{ready:?}");
    assert_eq!(ready.until.unwrap().to_string(), "2026-12-05");
}

#[test]
fn nulls_ask_for_a_check_of_their_own() {
    let mut found = found();
    found.has_functions = true;
    found.columns[1].is_not_null = false;
    found.checks = vec![check("inbox_to_2026_12_05", true)];
    let adoption = adopt(&found);
    assert_eq!(adoption.nullable, ["topic"]);
    assert_eq!(actions(&adoption), ["scan", "add_checks", "validate"]);
    found.checks.push(check("inbox_adopt_filled", true));
    assert!(adopt(&found).swap_is_refused.is_none());
}

#[test]
fn in_the_last_hour_the_swap_is_refused() {
    let mut found = found();
    found.has_functions = true;
    found.checks = vec![check("inbox_to_2026_12_05", true)];
    for (now, is_refused) in [
        ("2026-12-04T22:59:59Z", false),
        ("2026-12-04T23:00:00Z", false),
        ("2026-12-04T23:00:01Z", true),
        ("2026-12-05T00:00:01Z", true),
    ] {
        found.now = now.parse().unwrap();
        let adoption = adopt(&found);
        assert_eq!(adoption.swap_is_refused.is_some(), is_refused, "{now}");
        assert_eq!(adoption.abort.len(), 1, "it can always be taken back");
    }
}

#[test]
fn each_unfit_table_is_refused_with_a_remedy() {
    type Spoil = fn(&mut FoundTable);
    let spoils: [(Spoil, &str); 9] = [
        (|found| found.kind = "v".to_owned(), "no ordinary table"),
        (|found| found.has_key = false, "unique index"),
        (
            |found| found.columns[1].kind = "text".to_owned(),
            "column topic is of type text",
        ),
        (|found| drop(found.columns.pop()), "no column processed_at"),
        (
            |found| found.columns.push(column("payload", "jsonb")),
            "column payload rules out nulls",
        ),
        (
            |found| {
                let mut number = column("number", "bigint");
                number.is_identity = true;
                found.columns.push(number);
            },
            "identity",
        ),
        (
            |found| found.other_unique.push("inbox_topic_key".to_owned()),
            "inbox_topic_key",
        ),
        (
            |found| found.replica_identity = ReplicaIdentity::Index,
            "replica identity",
        ),
        (
            |found| {
                found.in_the_way.push(Problem {
                    what: "a view".to_owned(),
                    remedy: "drop it".to_owned(),
                });
            },
            "a view",
        ),
    ];
    for (spoil, needle) in spoils {
        let mut found = found();
        spoil(&mut found);
        let problems = adopt(&found).problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].what.contains(needle) && !problems[0].remedy.is_empty(),
            "{problems:?}"
        );
    }
    assert!(adopt(&found()).problems.is_empty());
    let by_id = adoption(&table(), Routing::MessageId, Consumers::One, &found());
    assert!(by_id.problems[0].what.contains("message_id"));
}
