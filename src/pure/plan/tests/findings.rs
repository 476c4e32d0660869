//! Every finding's code, with its severity and a remedy.

use chrono::TimeDelta;

use super::model::*;
use crate::pure::{
    Action, Bounds, FindingCode, Found, FoundInbox, Ownership, Policy, RelationKind, ReplicaIdentity, Severity, plan,
};

const NOON: &str = "2026-12-10T12:00:00Z";

/// Every code there is. A new one does not compile until it has its place here.
fn place(code: FindingCode) -> usize {
    match code {
        FindingCode::InboxMissing => 0,
        FindingCode::InboxUnfit => 1,
        FindingCode::OtherDeployment => 2,
        FindingCode::OtherServer => 3,
        FindingCode::Runway => 4,
        FindingCode::Gap => 5,
        FindingCode::NameTaken => 6,
        FindingCode::NotAttached => 7,
        FindingCode::ForeignChild => 8,
        FindingCode::WrongBounds => 9,
        FindingCode::WrongName => 10,
        FindingCode::WrongMarker => 11,
        FindingCode::DefaultPartition => 12,
        FindingCode::MissingKey => 13,
        FindingCode::OwnerDrift => 14,
        FindingCode::TablespaceDrift => 15,
        FindingCode::ReplicaIdentityDrift => 16,
        FindingCode::ClaimDrift => 17,
        FindingCode::PlainInsert => 18,
        FindingCode::BlockedByCap => 19,
        FindingCode::BlockedByHold => 20,
        FindingCode::BlockedByClock => 21,
        FindingCode::BlockedByDefault => 22,
        FindingCode::OldTransactions => 23,
        FindingCode::MissingPrivilege => 24,
        FindingCode::ReplicasDisagree => 25,
        FindingCode::Publication => 27,
        FindingCode::Adoption => 26,
        FindingCode::NoDigest => 28,
    }
}

type Spoil = fn(&mut Found);

/// What is done to a healthy inbox, and what the plan then says at worst about it.
const SPOILT: &[(FindingCode, Severity, Spoil)] = &[
    (FindingCode::InboxMissing, Severity::Fail, |found| {
        found.inbox = FoundInbox::Missing;
    }),
    (FindingCode::InboxUnfit, Severity::Fail, |found| {
        found.inbox = FoundInbox::Unfit("it is not partitioned".to_owned());
    }),
    (FindingCode::Adoption, Severity::Warn, |found| {
        found.inbox = FoundInbox::BeingAdopted { until: None };
    }),
    (FindingCode::Adoption, Severity::Fail, |found| {
        let until = Some("2026-12-10T23:00:00Z".parse().unwrap());
        found.inbox = FoundInbox::BeingAdopted { until };
    }),
    (FindingCode::OtherDeployment, Severity::Fail, |found| {
        found.ownership = Ownership::OtherDeployment("blue".to_owned());
    }),
    (FindingCode::OtherServer, Severity::Warn, |found| {
        found.ownership = Ownership::OtherServer;
    }),
    (FindingCode::Runway, Severity::Fail, |found| found.relations.clear()),
    (FindingCode::Gap, Severity::Warn, |found| {
        found
            .relations
            .retain(|relation| relation.day() != Some(day("2026-12-08")));
    }),
    (FindingCode::NameTaken, Severity::Fail, |found| {
        found.relations.pop();
        loose(found, day("2026-12-17"), None).marker = None;
    }),
    (FindingCode::NotAttached, Severity::Fail, |found| {
        found.relations.pop();
        loose(found, day("2026-12-17"), None).has_key = false;
    }),
    (FindingCode::NotAttached, Severity::Warn, |found| {
        found.relations.remove(3);
        loose(found, day("2026-12-06"), None).has_key = false;
    }),
    (FindingCode::ForeignChild, Severity::Warn, |found| {
        relation_of(found, "2026-12-08").kind = RelationKind::ForeignTable;
    }),
    (FindingCode::WrongBounds, Severity::Warn, |found| {
        attach_span(found, "last_year", "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
    }),
    (FindingCode::WrongName, Severity::Warn, |found| {
        relation_of(found, "2026-12-08").name = ident("Yesterday");
    }),
    (FindingCode::WrongMarker, Severity::Warn, |found| {
        relation_of(found, "2026-12-08").marker.as_mut().unwrap().inbox = OTHER_INBOX;
    }),
    (FindingCode::WrongMarker, Severity::Warn, |found| {
        relation_of(found, "2026-12-08").marker.as_mut().unwrap().day = day("2026-12-09");
    }),
    (FindingCode::DefaultPartition, Severity::Fail, |found| {
        let default = attach(found, day("2000-01-01"));
        (default.name, default.bounds) = (ident("inbox_default"), Some(Bounds::Default));
        found.made.remove(&day("2000-01-01"));
    }),
    (FindingCode::MissingKey, Severity::Fail, |found| {
        relation_of(found, "2026-12-08").has_key = false;
    }),
    (FindingCode::MissingKey, Severity::Fail, |found| {
        attach_span(found, "last_year", "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z").has_key = false;
    }),
    (FindingCode::OwnerDrift, Severity::Warn, |found| {
        relation_of(found, "2026-12-08").owner = "postgres".to_owned();
    }),
    (FindingCode::ReplicaIdentityDrift, Severity::Warn, |found| {
        relation_of(found, "2026-12-10").replica_identity = ReplicaIdentity::Full;
    }),
    (FindingCode::TablespaceDrift, Severity::Info, |found| {
        relation_of(found, "2026-12-08").tablespace = Some("fast".to_owned());
    }),
    (FindingCode::OldTransactions, Severity::Warn, |found| {
        relation_of(found, "2026-12-08").xid_age = Some(1_000_000_001);
    }),
    (FindingCode::ReplicasDisagree, Severity::Info, |found| {
        found.replicas = vec![other_replica(days(30), 7)];
    }),
    (FindingCode::MissingPrivilege, Severity::Fail, |found| {
        found.lacking = vec!["grant journal to inboxd".to_owned()];
    }),
    (FindingCode::ClaimDrift, Severity::Fail, |found| {
        found.claim_retention = None
    }),
    (FindingCode::ClaimDrift, Severity::Fail, |found| {
        found.has_functions = false
    }),
    (FindingCode::ClaimDrift, Severity::Warn, |found| {
        found.claim_drift = vec!["retention: 7d, made with 3d".to_owned()];
    }),
    (FindingCode::PlainInsert, Severity::Fail, |found| {
        found.plain_inserters = vec!["app".to_owned()];
    }),
    (FindingCode::Publication, Severity::Fail, |found| {
        found.unfit_publications = vec!["everything".to_owned()];
    }),
    (FindingCode::BlockedByCap, Severity::Warn, |found| {
        attach_days(found, day("2026-11-01"), day("2026-11-05"));
    }),
    (FindingCode::BlockedByHold, Severity::Info, |found| {
        attach(found, day("2026-11-01"));
        found.held = [(day("2026-11-01"), at("2026-11-05T00:00:00Z"))].into();
    }),
    (FindingCode::BlockedByClock, Severity::Warn, |found| {
        found.clocks.host -= TimeDelta::minutes(6);
    }),
    (FindingCode::BlockedByClock, Severity::Warn, |found| {
        found.clocks.trusted = Some(at("2026-12-01T00:00:00Z"));
    }),
    (FindingCode::BlockedByDefault, Severity::Warn, |found| {
        attach(found, day("2026-11-01"));
        let default = attach(found, day("2000-01-01"));
        (default.name, default.bounds) = (ident("inbox_default"), Some(Bounds::Default));
    }),
];

#[test]
fn every_finding_has_its_severity_a_message_and_a_remedy() {
    let now = at(NOON);
    let mut seen = [false; 28];
    for (code, severity, spoil) in SPOILT {
        let mut found = healthy(now, &policy());
        spoil(&mut found);
        let plan = plan(now, &policy(), &found);
        let findings = with_code(&plan, *code);
        let worst = findings.iter().map(|finding| finding.severity).max();
        assert_eq!(worst, Some(*severity), "{code:?}: {:#?}", plan.findings);
        assert!(plan.severity() >= *severity);
        for finding in &plan.findings {
            assert!(finding.message.len() > 10 && finding.remedy.len() > 10, "{finding:?}");
        }
        seen[place(*code)] = true;
    }
    assert_eq!(seen, [true; 28]);
}

#[test]
fn a_finding_about_a_relation_names_it_and_its_day() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    relation_of(&mut found, "2026-12-08").has_key = false;
    let plan = plan(now, &policy(), &found);
    let finding = only(&plan, FindingCode::MissingKey);
    assert_eq!(finding.relation.as_deref(), Some("inbox_2026_12_08"));
    assert_eq!(finding.day, Some(day("2026-12-08")));
}

#[test]
fn a_stranger_among_the_days_to_come_fails_where_claims_would_and_only_what_is_ours_is_mended() {
    let now = at(NOON);
    for (name, kind, severity) in [
        ("2026-12-11", RelationKind::ForeignTable, Severity::Fail),
        ("2026-12-05", RelationKind::ForeignTable, Severity::Warn),
        ("2026-12-11", RelationKind::Table, Severity::Fail),
    ] {
        let mut found = healthy(now, &policy());
        let relation = relation_of(&mut found, name);
        (relation.kind, relation.has_key) = (kind, false);
        let plan = plan(now, &policy(), &found);
        assert_eq!(plan.severity(), severity, "{name} {kind:?}: {:#?}", plan.findings);
        let mended = plan.steps.iter().any(|step| step.action == Action::RepairKey);
        for finding in with_code(&plan, FindingCode::MissingKey) {
            assert_eq!(finding.remedy.contains("the next run"), mended, "{finding:?}");
        }
    }
}

#[test]
fn plain_inserts_matter_only_where_the_claim_does_more_than_insert() {
    let now = at(NOON);
    let mut found = healthy(now, &by_message_id());
    found.plain_inserters = vec!["app".to_owned()];
    assert_eq!(plan(now, &by_message_id(), &found).findings, []);
}

#[test]
fn s1_the_runway_falls_from_a_warning_to_a_failure_as_days_are_not_made() {
    // From 7 days ahead: six hours of failed creation warn, less than two days fail.
    for (ahead, now, worst) in [
        (7, "2026-12-10T00:00:00Z", None),
        (7, "2026-12-11T05:59:59Z", None),
        (7, "2026-12-11T06:00:00Z", None),
        (7, "2026-12-11T06:00:01Z", Some(Severity::Warn)),
        (7, "2026-12-16T00:00:00Z", Some(Severity::Warn)),
        (7, "2026-12-16T00:00:01Z", Some(Severity::Fail)),
        (7, "2026-12-18T00:00:00Z", Some(Severity::Fail)),
        (1, "2026-12-11T06:00:00Z", None),
        (1, "2026-12-11T06:00:01Z", Some(Severity::Warn)),
        (1, "2026-12-11T12:00:01Z", Some(Severity::Fail)),
    ] {
        let policy = Policy {
            ahead: crate::pure::Ahead::new(ahead).unwrap(),
            ..policy()
        };
        let mut found = healthy(at("2026-12-10T00:00:00Z"), &policy);
        let now = at(now);
        found.clocks = trusted(now);
        let plan = plan(now, &policy, &found);
        let severity = with_code(&plan, FindingCode::Runway)
            .first()
            .map(|finding| finding.severity);
        assert_eq!(severity, worst, "{ahead} {now}");
    }
}

#[test]
fn the_runway_ends_at_the_first_instant_that_no_partition_holds() {
    let now = at(NOON);
    for (spoil, runway) in [
        ((|_| {}) as Spoil, Some(7 * 86_400 + 43_200)),
        (
            |found| {
                found
                    .relations
                    .retain(|relation| relation.day() != Some(day("2026-12-12")))
            },
            Some(86_400 + 43_200),
        ),
        (
            |found| {
                found
                    .relations
                    .retain(|relation| relation.day() != Some(day("2026-12-10")))
            },
            Some(0),
        ),
        (
            |found| relation_of(found, "2026-12-11").attachment = crate::pure::Attachment::PendingDetach,
            Some(43_200),
        ),
        (
            |found| {
                attach_span(found, "rest", "2026-12-18T00:00:00Z", "");
            },
            None,
        ),
        (
            |found| {
                attach_span(found, "far", "2026-12-19T00:00:00Z", "");
            },
            Some(7 * 86_400 + 43_200),
        ),
        (
            |found| {
                attach_span(found, "bit", "2026-12-18T00:00:00Z", "2026-12-18T01:00:00Z");
            },
            Some(7 * 86_400 + 46_800),
        ),
    ] {
        let mut found = healthy(now, &policy());
        spoil(&mut found);
        assert_eq!(plan(now, &policy(), &found).runway_seconds, runway);
    }
}
