//! Whose a partition is: what bounds, name, place and marker must say before anything is removed.

use super::model::*;
use crate::pure::{Bounds, FindingCode, RelationKind, Severity, Span, plan};

const NOON: &str = "2026-12-10T12:00:00Z";

#[test]
fn s17_partitions_that_are_not_one_day_are_never_removed_and_always_reported() {
    let now = at(NOON);
    for (from, to) in [
        ("2026-11-01T00:00:00Z", "2026-11-03T00:00:00Z"),
        ("2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("2026-10-31T23:00:00Z", "2026-11-01T23:00:00Z"),
        ("2026-11-01T00:00:00Z", "2026-11-02T00:00:00.000001Z"),
        ("2026-11-01T00:00:00.000001Z", "2026-11-02T00:00:00Z"),
        ("", "2026-11-02T00:00:00Z"),
    ] {
        let mut found = healthy(now, &policy());
        attach_span(&mut found, "inbox_2026_11_01", from, to);
        let plan = plan(now, &policy(), &found);
        assert_eq!(shown(&plan), [""; 0], "{from} {to}");
        assert_eq!(only(&plan, FindingCode::WrongBounds).severity, Severity::Warn);
    }
    for bounds in [
        Bounds::OffGrid(Span::of(day("2026-11-01"))),
        Bounds::Unreadable("FOR VALUES IN ('x')".to_owned()),
    ] {
        let mut found = healthy(now, &policy());
        attach(&mut found, day("2026-11-01")).bounds = Some(bounds);
        let plan = plan(now, &policy(), &found);
        assert_eq!(shown(&plan), [""; 0]);
        assert_eq!(only(&plan, FindingCode::WrongBounds).severity, Severity::Warn);
    }
}

#[test]
fn s18_where_name_and_bounds_disagree_the_bounds_decide_and_nothing_is_removed() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    // Named like yesterday, holding last month: expired by its bounds, but not removed.
    let gone = found.table.partition(day("2026-12-09"));
    found.relations.retain(|relation| relation.name != gone);
    attach(&mut found, day("2026-11-09")).name = gone;
    // Named like last month, holding yesterday: by its bounds not even expired.
    attach(&mut found, day("2026-12-09")).name = ident("inbox_2026_11_10");
    let plan = plan(now, &policy(), &found);
    assert_eq!(shown(&plan), [""; 0]);
    let mismatches: Vec<_> = with_code(&plan, FindingCode::WrongName)
        .iter()
        .map(|finding| (finding.severity, finding.day.unwrap().to_string()))
        .collect();
    assert_eq!(
        mismatches,
        ["2026-11-09", "2026-12-09"].map(|day| (Severity::Warn, day.to_owned()))
    );
}

#[test]
fn a_partition_whose_marker_contradicts_is_never_removed_and_one_without_a_marker_is() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    attach(&mut found, day("2026-11-01")).marker.as_mut().unwrap().inbox = OTHER_INBOX;
    attach(&mut found, day("2026-11-02")).marker.as_mut().unwrap().day = day("2026-11-01");
    attach(&mut found, day("2026-11-03")).marker = None;
    let plan = plan(now, &policy(), &found);
    assert_eq!(shown(&plan), ["detach 2026-11-03"]);
    assert_eq!(with_code(&plan, FindingCode::WrongMarker).len(), 2);
}

#[test]
fn a_child_that_is_no_plain_table_is_never_removed() {
    let now = at(NOON);
    for kind in [
        RelationKind::PartitionedTable,
        RelationKind::ForeignTable,
        RelationKind::Other,
    ] {
        let mut found = healthy(now, &policy());
        attach(&mut found, day("2026-11-01")).kind = kind;
        loose(&mut found, day("2026-11-02"), Some(at("2026-11-12T00:00:00Z"))).kind = kind;
        let plan = plan(now, &policy(), &found);
        assert_eq!(shown(&plan), [""; 0], "{kind:?}");
        assert_eq!(only(&plan, FindingCode::ForeignChild).severity, Severity::Warn);
    }
}

#[test]
fn a_loose_table_is_ours_by_its_marker_and_never_by_its_name_alone() {
    let now = at(NOON);
    let long_ago = Some(at("2026-11-12T00:00:00Z"));
    let mut found = healthy(now, &policy());
    loose(&mut found, day("2026-11-01"), long_ago).marker = None;
    loose(&mut found, day("2026-11-02"), long_ago)
        .marker
        .as_mut()
        .unwrap()
        .inbox = OTHER_INBOX;
    loose(&mut found, day("2026-11-03"), None).marker = None;
    assert_eq!(shown(&plan(now, &policy(), &found)), [""; 0]);
}

#[test]
fn s18_a_loose_table_that_is_not_named_as_its_marker_says_is_kept_and_reported() {
    let now = at(NOON);
    // Renamed to be kept; or given the comment of another day by a slip, its rows of last week.
    for name in ["evidence_for_the_audit", "inbox_2026_12_02", "inbox_2026_11_02"] {
        for detached_at in [None, Some(at("2026-11-12T00:00:00Z"))] {
            let mut found = healthy(now, &policy());
            loose(&mut found, day("2026-11-01"), detached_at).name = ident(name);
            let plan = plan(now, &policy(), &found);
            assert_eq!(shown(&plan), [""; 0], "{name}");
            assert_eq!(only(&plan, FindingCode::WrongName).severity, Severity::Warn);
        }
    }
}

#[test]
fn s10_a_partition_in_another_schema_is_kept_and_reported() {
    // Moved aside to be kept, or a copy from a dump: it has our marker and even the name, but not the place.
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    loose(&mut found, day("2026-11-01"), Some(at("2026-11-12T00:00:00Z"))).schema = ident("archive");
    loose(&mut found, day("2026-11-02"), None).schema = ident("archive");
    attach(&mut found, day("2026-11-03")).schema = ident("archive");
    let plan = plan(now, &policy(), &found);
    assert_eq!(shown(&plan), [""; 0]);
    let findings = with_code(&plan, FindingCode::WrongName);
    assert_eq!(findings.len(), 3);
    assert!(
        findings
            .iter()
            .all(|finding| finding.message.contains(r#"not named "public"."inbox_2026_11_0"#))
    );
}
