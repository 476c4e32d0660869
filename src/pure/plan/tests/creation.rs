//! Points 2, 3 and 4: what is finalized, and what is created.

use super::model::*;
use crate::pure::{Ahead, Attachment, FindingCode, Ident, RelationKind, Retention, Routing, Severity, plan};

const NOON: &str = "2026-12-10T12:00:00Z";

#[test]
fn a_healthy_inbox_needs_nothing() {
    let now = at(NOON);
    for policy in [policy(), by_message_id()] {
        let plan = plan(now, &policy, &healthy(now, &policy));
        assert_eq!((plan.steps, plan.findings), (vec![], vec![]));
        assert_eq!(plan.runway_seconds, Some(7 * 86_400 + 12 * 3_600));
    }
}

#[test]
fn an_empty_inbox_gets_today_first_and_then_each_day_ahead() {
    let now = at(NOON);
    let plan = plan(now, &policy(), &empty(now));
    assert_eq!(shown(&plan), each("create", "2026-12-10", "2026-12-17"));
    assert_eq!(plan.steps[0].relation.as_str(), "inbox_2026_12_10");
    assert_eq!(plan.runway_seconds, Some(0));
    assert_eq!(only(&plan, FindingCode::Runway).severity, Severity::Fail);
}

#[test]
fn s5_ten_seconds_before_midnight_an_empty_inbox_gets_today_and_all_days_ahead() {
    let now = at("2026-12-10T23:59:50Z");
    let (found, plan) = run(empty(now), &policy(), now);
    assert_eq!(shown(&plan), each("create", "2026-12-10", "2026-12-17"));
    // Midnight passes at once: the claims of the new day have their partition, and one day more is made.
    let (_, plan) = run(found, &policy(), at("2026-12-11T00:00:05Z"));
    assert_eq!(plan.runway_seconds, Some(7 * 86_400 - 5));
    assert_eq!(with_code(&plan, FindingCode::Runway).len(), 0);
    assert_eq!(shown(&plan), each("create", "2026-12-18", "2026-12-18"));
}

#[test]
fn the_day_changes_at_midnight_exactly() {
    for (now, today) in [
        ("2026-12-10T00:00:00Z", "create 2026-12-10"),
        ("2026-12-10T23:59:59.999Z", "create 2026-12-10"),
        ("2026-12-10T23:59:59.999999Z", "create 2026-12-10"),
        ("2026-12-11T00:00:00Z", "create 2026-12-11"),
    ] {
        assert_eq!(shown(&plan(at(now), &policy(), &empty(at(now))))[0], today, "{now}");
    }
}

#[test]
fn s6_after_forty_days_down_today_comes_first_and_no_expired_day_is_made() {
    let before = at("2026-11-01T12:00:00Z");
    let now = at("2026-12-11T12:00:00Z");
    let mut found = healthy(before, &policy());
    found.clocks = trusted(now);
    let plan = plan(now, &policy(), &found);
    let steps = shown(&plan);
    assert_eq!(steps[..8], each("create", "2026-12-11", "2026-12-18"));
    assert!(steps[8..].iter().all(|step| step.starts_with("detach")), "{steps:?}");
    let gap = only(&plan, FindingCode::Gap);
    assert_eq!(gap.severity, Severity::Info);
    // From the horizon's day to yesterday, in one sentence.
    assert!(gap.message.starts_with("2026-12-04 to 2026-12-10:"), "{}", gap.message);
}

#[test]
fn s6_by_message_id_the_remembered_days_of_an_outage_are_made_after_those_ahead_newest_first() {
    let before = at("2026-11-01T12:00:00Z");
    let now = at("2026-12-11T12:00:00Z");
    let policy = by_message_id();
    let mut found = healthy(before, &policy);
    found.clocks = trusted(now);
    let steps = shown(&plan(now, &policy, &found));
    assert_eq!(steps[..8], each("create", "2026-12-11", "2026-12-18"));
    assert_eq!(steps[8..15], each("create", "2026-12-10", "2026-12-04"));
    assert!(steps[15..].iter().all(|step| step.starts_with("detach")), "{steps:?}");
}

#[test]
fn s7_an_idle_inbox_is_kept_ahead_of_now_whatever_its_rows() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    for relation in &mut found.relations {
        relation.estimated_rows = None;
    }
    for offset in 1..=30 {
        let now = now + chrono::TimeDelta::days(offset);
        let (next, plan) = run(found, &policy(), now);
        let created = format!("create {}", crate::pure::Day::containing(now).plus(7));
        assert_eq!(shown(&plan)[0], created);
        found = next;
    }
}

#[test]
fn s11_a_day_that_is_there_but_not_attached_is_attached_again_when_it_fits_and_never_made_again() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    let tomorrow = relation_of(&mut found, "2026-12-11");
    (tomorrow.attachment, tomorrow.bounds) = (Attachment::Loose, None);
    let (mended, first) = run(found.clone(), &policy(), now);
    assert_eq!(shown(&first), ["attach 2026-12-11"]);
    assert_eq!(
        first.severity(),
        Severity::Fail,
        "until it is attached the runway ends there"
    );
    let (_, second) = run(mended, &policy(), now);
    assert_eq!((shown(&second), second.findings), (vec![], vec![]));

    // Without its key it does not fit.
    relation_of(&mut found, "2026-12-11").has_key = false;
    let plan = plan(now, &policy(), &found);
    assert_eq!(shown(&plan), [""; 0]);
    let finding = only(&plan, FindingCode::NotAttached);
    assert_eq!(
        (finding.severity, finding.day),
        (Severity::Fail, Some(day("2026-12-11")))
    );
    assert!(
        finding
            .remedy
            .contains(r#"attach partition "public"."inbox_2026_12_11""#)
    );
    assert_eq!(only(&plan, FindingCode::Runway).severity, Severity::Fail);
}

#[test]
fn a_name_that_is_taken_is_reported_and_the_other_days_go_on() {
    let now = at(NOON);
    let mut found = empty(now);
    let taken = loose(&mut found, day("2026-12-11"), None);
    (taken.kind, taken.marker) = (RelationKind::Other, None);
    let foreign = loose(&mut found, day("2026-12-12"), None);
    foreign.marker.as_mut().unwrap().inbox = OTHER_INBOX;
    let of_another_day = loose(&mut found, day("2026-12-13"), None);
    of_another_day.marker.as_mut().unwrap().day = day("2026-12-14");
    attach_span(
        &mut found,
        "inbox_2026_12_14",
        "2027-03-01T00:00:00Z",
        "2027-03-02T00:00:00Z",
    );
    let plan = plan(now, &policy(), &found);
    let expected = [
        each("create", "2026-12-10", "2026-12-10"),
        each("create", "2026-12-15", "2026-12-17"),
    ];
    assert_eq!(shown(&plan), expected.concat());
    let taken = with_code(&plan, FindingCode::NameTaken);
    assert_eq!(taken.len(), 4);
    assert!(taken.iter().all(|finding| finding.severity == Severity::Fail));
}

#[test]
fn s10_the_name_in_another_schema_is_not_taken() {
    let now = at(NOON);
    let mut found = empty(now);
    loose(&mut found, day("2026-12-11"), None).schema = Ident::new("elsewhere").unwrap();
    found.relations[0].marker = None;
    assert_eq!(
        shown(&plan(now, &policy(), &found)),
        each("create", "2026-12-10", "2026-12-17")
    );
}

#[test]
fn s14_year_ends_and_leap_days_are_made_like_any_other() {
    for (now, last, names) in [
        ("2027-12-28T03:00:00Z", "2028-01-04", ["2027_12_31", "2028_01_01"]),
        ("2028-02-26T03:00:00Z", "2028-03-04", ["2028_02_29", "2028_03_01"]),
        ("2027-02-26T03:00:00Z", "2027-03-05", ["2027_02_28", "2027_03_01"]),
    ] {
        let now = at(now);
        let plan = plan(now, &policy(), &empty(now));
        assert_eq!(shown(&plan), each("create", &now.date_naive().to_string(), last));
        let made: Vec<_> = plan.steps.iter().map(|step| step.relation.to_string()).collect();
        for name in names {
            assert!(made.contains(&format!("inbox_{name}")), "{made:?}");
        }
    }
}

#[test]
fn by_message_id_the_days_back_to_the_horizon_are_made_and_not_one_more() {
    let policy = by_message_id();
    for (now, oldest) in [
        ("2026-12-10T00:00:00Z", "2026-12-03"),
        ("2026-12-10T00:00:00.000001Z", "2026-12-03"),
        ("2026-12-10T23:59:59.999999Z", "2026-12-03"),
        ("2026-12-11T00:00:00Z", "2026-12-04"),
    ] {
        let now = at(now);
        let steps = shown(&plan(now, &policy, &empty(now)));
        assert_eq!(*steps.last().unwrap(), format!("create {oldest}"), "{now}");
    }
}

#[test]
fn by_message_id_for_ever_begins_as_many_days_back_as_it_looks_ahead() {
    let now = at(NOON);
    let policy = crate::pure::Policy {
        retention: Retention::Forever,
        ..by_message_id()
    };
    let expected = [
        each("create", "2026-12-10", "2026-12-17"),
        each("create", "2026-12-09", "2026-12-03"),
    ];
    assert_eq!(shown(&plan(now, &policy, &empty(now))), expected.concat());
}

#[test]
fn by_message_id_for_ever_an_old_day_that_is_attached_again_brings_those_after_it_in_the_same_run() {
    let now = at(NOON);
    let policy = crate::pure::Policy {
        retention: Retention::Forever,
        ..by_message_id()
    };
    let mut found = empty(now);
    loose(&mut found, day("2026-11-20"), None);
    let (found, first) = run(found, &policy, now);
    let expected = [
        each("create", "2026-12-10", "2026-12-17"),
        each("create", "2026-12-09", "2026-11-21"),
        vec!["attach 2026-11-20".to_owned()],
    ];
    assert_eq!(shown(&first), expected.concat());
    let (_, second) = run(found, &policy, now);
    assert_eq!(shown(&second), [""; 0]);
}

#[test]
fn by_message_id_a_past_day_that_was_once_made_is_never_made_again() {
    let now = at(NOON);
    let mut found = healthy(now, &by_message_id());
    let gone = found.table.partition(day("2026-12-08"));
    found.relations.retain(|relation| relation.name != gone);
    let plan = plan(now, &by_message_id(), &found);
    assert_eq!(shown(&plan), [""; 0]);
    let gap = only(&plan, FindingCode::Gap);
    assert_eq!((gap.severity, gap.day), (Severity::Warn, Some(day("2026-12-08"))));
}

#[test]
fn in_processed_at_routing_no_past_day_is_ever_made() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    let [gone, never] = ["2026-12-08", "2026-12-07"].map(|text| found.table.partition(day(text)));
    found
        .relations
        .retain(|relation| relation.name != gone && relation.name != never);
    found.made.remove(&day("2026-12-07"));
    let plan = plan(now, &policy(), &found);
    assert_eq!(shown(&plan), [""; 0]);
    let gaps: Vec<_> = with_code(&plan, FindingCode::Gap)
        .iter()
        .map(|gap| (gap.day.unwrap().to_string(), gap.severity))
        .collect();
    assert_eq!(
        gaps,
        [
            ("2026-12-08".to_owned(), Severity::Warn),
            ("2026-12-07".to_owned(), Severity::Info)
        ]
    );
}

#[test]
fn s17_a_partition_over_many_days_holds_them_all() {
    let now = at(NOON);
    for policy in [policy(), by_message_id()] {
        for (from, to) in [
            ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("", "2027-01-01T00:00:00Z"),
            ("2026-01-01T00:00:00Z", ""),
            ("", ""),
        ] {
            let mut found = empty(now);
            attach_span(&mut found, "inbox_year", from, to);
            let plan = plan(now, &policy, &found);
            assert_eq!(shown(&plan), [""; 0], "{from} {to}");
            assert_eq!(only(&plan, FindingCode::WrongBounds).severity, Severity::Warn);
            assert_eq!(plan.runway_seconds.is_none(), to.is_empty());
        }
    }
}

#[test]
fn s17_a_day_that_is_held_in_part_is_reported_and_the_other_days_go_on() {
    let now = at(NOON);
    let mut found = empty(now);
    attach_span(&mut found, "odd", "2026-12-11T12:00:00Z", "2026-12-13T00:00:00.000001Z");
    let plan = plan(now, &policy(), &found);
    let expected = [
        each("create", "2026-12-10", "2026-12-10"),
        each("create", "2026-12-14", "2026-12-17"),
    ];
    assert_eq!(shown(&plan), expected.concat());
    let severities: Vec<_> = with_code(&plan, FindingCode::WrongBounds)
        .iter()
        .map(|finding| finding.severity)
        .collect();
    assert_eq!(severities, [Severity::Warn, Severity::Fail, Severity::Fail]);
}

#[test]
fn lowering_ahead_removes_nothing() {
    let now = at(NOON);
    for routing in [Routing::ProcessedAt, Routing::MessageId] {
        let mut policy = policy();
        policy.routing = routing;
        policy.ahead = Ahead::new(30).unwrap();
        let found = healthy(now, &policy);
        policy.ahead = Ahead::new(1).unwrap();
        assert_eq!(shown(&plan(now, &policy, &found)), [""; 0]);
    }
}

#[test]
fn s22_an_interrupted_detach_is_finalized_first_and_its_grace_begins_when_it_is_on_record() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    pending(&mut found, day("2026-12-01"));
    attach(&mut found, day("2026-12-02"));
    let (found, first) = run(found, &policy(), now);
    assert_eq!(shown(&first), ["finalize 2026-12-01", "detach 2026-12-02"]);
    let (found, second) = run(found, &policy(), now);
    assert_eq!(shown(&second), ["mark_detached 2026-12-01"]);
    let (_, third) = run(found, &policy(), now + policy().drop_grace);
    let steps = shown(&third);
    assert_eq!(steps[steps.len() - 2..], ["drop 2026-12-01", "drop 2026-12-02"]);
}

#[test]
fn s23_a_pending_detach_of_whatever_kind_is_finalized_and_nothing_else_happens_to_it() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    let odd = pending(&mut found, day("2026-11-01"));
    (odd.marker, odd.name) = (None, ident("odd"));
    let (found, plan) = run(found, &policy(), now);
    assert_eq!(shown(&plan), ["finalize 2026-11-01"]);
    let (_, plan) = run(found, &policy(), now);
    assert_eq!(shown(&plan), [""; 0], "without a marker it is not ours");
}

#[test]
fn s13_days_that_partitions_of_another_grid_hold_together_are_held() {
    // As a tool that cuts at Berlin's midnights leaves them: each UTC day lies in two of them, the last one in part.
    let now = at(NOON);
    for policy in [policy(), by_message_id()] {
        let mut found = empty(now);
        let mut start = at("2026-11-30T23:00:00Z");
        while start < at("2026-12-15T23:00:00Z") {
            let end = start + chrono::TimeDelta::days(1);
            let name = format!("inbox_p{}", end.format("%Y%m%d"));
            attach_span(&mut found, &name, &start.to_rfc3339(), &end.to_rfc3339());
            start = end;
        }
        let plan = plan(now, &policy, &found);
        assert_eq!(shown(&plan), each("create", "2026-12-16", "2026-12-17"));
        let failures: Vec<_> = with_code(&plan, FindingCode::WrongBounds)
            .into_iter()
            .filter(|finding| finding.severity == Severity::Fail)
            .collect();
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(failures[0].message.contains("part of 2026-12-15"), "{failures:?}");
    }
}

#[test]
fn s22_a_day_whose_detach_was_interrupted_is_reported_as_not_attached_until_it_is() {
    let now = at(NOON);
    for text in ["2026-12-10", "2026-12-13"] {
        let mut found = healthy(now, &policy());
        relation_of(&mut found, text).attachment = Attachment::PendingDetach;
        let (found, first) = run(found, &policy(), now);
        let (_, second) = run(found, &policy(), now);
        assert_eq!(
            (shown(&first), shown(&second)),
            (vec![format!("finalize {text}")], vec![format!("attach {text}")])
        );
        let finding = only(&first, FindingCode::NotAttached);
        assert_eq!((finding.severity, finding.day), (Severity::Fail, Some(day(text))));
        assert_eq!(with_code(&first, FindingCode::NameTaken).len(), 0);
    }
    // Off its name and its grid, it stands in the way until then; the next run makes the day.
    let mut found = healthy(now, &policy());
    found.relations.pop();
    attach_span(&mut found, "rest", "2026-12-17T00:00:00Z", "2027-01-01T00:00:00Z").attachment =
        Attachment::PendingDetach;
    let (found, first) = run(found, &policy(), now);
    assert_eq!(shown(&first), ["finalize rest"]);
    assert_eq!(only(&first, FindingCode::NotAttached).severity, Severity::Fail);
    let (_, second) = run(found, &policy(), now);
    assert_eq!(shown(&second), ["create 2026-12-17"]);
}

#[test]
fn s11_a_day_that_was_detached_and_renamed_is_reported_although_it_is_made_anew() {
    let now = at(NOON);
    for text in ["2026-12-10", "2026-12-11"] {
        let mut found = healthy(now, &policy());
        let aside = relation_of(&mut found, text);
        (aside.attachment, aside.bounds, aside.name) = (Attachment::Loose, None, ident("aside"));
        let (found, first) = run(found, &policy(), now);
        let (_, second) = run(found, &policy(), now);
        assert_eq!(
            (shown(&first), shown(&second)),
            (vec![format!("create {text}")], vec![])
        );
        for plan in [first, second] {
            let finding = only(&plan, FindingCode::NotAttached);
            assert_eq!((finding.severity, finding.day), (Severity::Warn, Some(day(text))));
        }
    }
}
