//! Arbitrary catalogs, policies and clocks: what a database may hold after years of other people's hands.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::model::*;
use crate::pure::{
    Ahead, Attachment, Bounds, Consumers, Day, Found, FoundRelation, Marker, OnExpiry, Ownership, Policy, RelationKind,
    Retention, Routing, Span,
};

/// A catalog, a policy and a clock.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) now: DateTime<Utc>,
    pub(super) policy: Policy,
    pub(super) found: Found,
}

/// How a bound lies to its day.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Exact,
    TwoDays,
    Half,
    LateByATick,
    LongByATick,
    LocalDay,
    NoLower,
    NoUpper,
    All,
    Default,
    OffGrid,
    Unreadable,
}

/// One relation, relative to today.
#[derive(Debug, Clone)]
struct Sketch {
    offset: i64,
    attachment: Attachment,
    shape: Shape,
    name_offset: Option<i64>,
    elsewhere: bool,
    marker: Option<(bool, i64)>,
    kind: RelationKind,
    /// How long it has been detached, before the grace is added.
    detached: Option<TimeDelta>,
    fit: bool,
}

fn any_sketch() -> impl Strategy<Value = Sketch> {
    let attachment = prop_oneof![
        6 => Just(Attachment::Attached),
        1 => Just(Attachment::PendingDetach),
        4 => Just(Attachment::Loose),
    ];
    let shape = prop_oneof![
        12 => Just(Shape::Exact),
        6 => select(vec![Shape::TwoDays, Shape::Half, Shape::LateByATick, Shape::LongByATick, Shape::LocalDay]),
        1 => select(vec![Shape::NoLower, Shape::NoUpper, Shape::All, Shape::Default]),
        1 => select(vec![Shape::OffGrid, Shape::Unreadable]),
    ];
    let marker = prop_oneof![
        8 => Just(Some((true, 0))),
        2 => Just(None),
        1 => Just(Some((false, 0))),
        1 => (-40i64..40).prop_map(|by| Some((true, by))),
    ];
    let kind = prop_oneof![
        12 => Just(RelationKind::Table),
        1 => select(vec![RelationKind::PartitionedTable, RelationKind::ForeignTable, RelationKind::Other]),
    ];
    // Round the grace to the microsecond, and anywhere.
    let detached = option::weighted(
        0.7,
        prop_oneof![
            (-2i64..=2).prop_map(TimeDelta::microseconds),
            (-600_000i64..600_000).prop_map(TimeDelta::seconds),
        ],
    );
    (
        (prop_oneof![8 => -60i64..15, 1 => -500i64..500], attachment, shape),
        prop_oneof![10 => Just(Some(0i64)), 1 => (-30i64..30).prop_map(Some), 1 => Just(None)],
        (
            prop::bool::weighted(0.05),
            marker,
            kind,
            detached,
            prop::bool::weighted(0.8),
        ),
    )
        .prop_map(
            |((offset, attachment, shape), name_offset, (elsewhere, marker, kind, detached, fit))| Sketch {
                offset,
                attachment,
                shape,
                name_offset,
                elsewhere,
                marker,
                kind,
                detached,
                fit,
            },
        )
}

fn bounds(shape: Shape, day: Day) -> Bounds {
    let tick = TimeDelta::microseconds(1);
    let (from, to) = (day.start(), day.end());
    let range = |from, to| Bounds::Range(Span { from, to });
    match shape {
        Shape::Exact => range(Some(from), Some(to)),
        Shape::TwoDays => range(Some(from), Some(to + TimeDelta::days(1))),
        Shape::Half => range(Some(from), Some(from + TimeDelta::hours(12))),
        Shape::LateByATick => range(Some(from + tick), Some(to)),
        Shape::LongByATick => range(Some(from), Some(to + tick)),
        Shape::LocalDay => range(Some(from - TimeDelta::hours(1)), Some(to - TimeDelta::hours(1))),
        Shape::NoLower => range(None, Some(to)),
        Shape::NoUpper => range(Some(from), None),
        Shape::All => range(None, None),
        Shape::Default => Bounds::Default,
        Shape::OffGrid => Bounds::OffGrid(Span::of(day)),
        Shape::Unreadable => Bounds::Unreadable("FOR VALUES WITH (modulus 2, remainder 0)".to_owned()),
    }
}

fn drawn(sketch: Sketch, oid: u32, now: DateTime<Utc>, policy: &Policy, found: &Found) -> FoundRelation {
    let day = Day::containing(now).plus(sketch.offset);
    let mut relation = attach(&mut empty(now), day).clone();
    relation.oid = oid;
    relation.kind = sketch.kind;
    relation.attachment = sketch.attachment;
    relation.bounds = (sketch.attachment != Attachment::Loose).then(|| bounds(sketch.shape, day));
    relation.name = match sketch.name_offset {
        Some(by) => found.table.partition(day.plus(by)),
        None => ident(&format!("kept_{oid}")),
    };
    if sketch.elsewhere {
        relation.schema = ident("elsewhere");
    }
    relation.detached_at = sketch
        .detached
        .filter(|_| sketch.attachment == Attachment::Loose)
        .map(|ago| now.checked_sub_signed(policy.drop_grace).unwrap_or(now) - ago);
    relation.marker = sketch.marker.map(|(ours, by)| Marker {
        inbox: if ours { INBOX } else { OTHER_INBOX },
        day: day.plus(by),
        detached_at: relation.detached_at,
    });
    if !sketch.fit {
        relation.has_key = false;
        relation.storage.clear();
        relation.owner = "postgres".to_owned();
    }
    relation
}

fn any_length() -> impl Strategy<Value = TimeDelta> {
    prop_oneof![
        4 => (0i64..20).prop_map(TimeDelta::days),
        3 => (0i64..2_000_000).prop_map(TimeDelta::seconds),
        1 => select(vec![TimeDelta::MAX, TimeDelta::days(36_500), TimeDelta::days(100_000_000)]),
    ]
}

fn any_retention() -> impl Strategy<Value = Retention> {
    prop_oneof![
        6 => (1i64..60).prop_map(days),
        4 => (3_600i64..5_000_000).prop_map(|seconds| Retention::For(TimeDelta::seconds(seconds))),
        1 => Just(Retention::Forever),
    ]
}

pub(super) fn any_policy() -> impl Strategy<Value = Policy> {
    (
        prop::bool::ANY,
        prop_oneof![9 => 1i64..20, 1 => Just(366)],
        any_retention(),
        any_length(),
        prop_oneof![6 => 1u32..6, 1 => Just(0), 1 => Just(u32::MAX)],
        any_length(),
        any_length(),
        any::<bool>(),
        any::<(bool, bool)>(),
    )
        .prop_map(
            |(by_id, ahead, retention, drop_grace, cap, skew, leap, drain_default, (seal_days, digest))| Policy {
                routing: if by_id {
                    Routing::MessageId
                } else {
                    Routing::ProcessedAt
                },
                consumers: Consumers::One,
                ahead: Ahead::new(ahead).unwrap(),
                retention,
                on_expiry: OnExpiry::Drop,
                drop_grace,
                max_drops_per_run: cap,
                max_clock_skew: skew,
                max_clock_leap: leap,
                drain_default,
                seal_days,
                digest,
            },
        )
}

/// Any instant, those beside midnight often.
pub(super) fn any_now() -> impl Strategy<Value = DateTime<Utc>> {
    let tick = prop_oneof![
        2 => select(vec![0, 1, 999, 86_399_999_000, 86_399_999_999]),
        3 => 0i64..86_400_000_000,
    ];
    let day = prop_oneof![8 => 20_000i64..22_000, 1 => 0i64..2_932_896, 1 => 2_932_860i64..2_932_896];
    (day, tick).prop_map(|(day, micros)| Day::FIRST.plus(day).start() + TimeDelta::microseconds(micros))
}

pub(super) fn any_world() -> impl Strategy<Value = World> {
    let ownership = prop_oneof![
        8 => Just(Ownership::Ours),
        1 => Just(Ownership::OtherServer),
        1 => Just(Ownership::OtherDeployment("blue".to_owned())),
    ];
    let clock = prop_oneof![
        6 => Just(TimeDelta::zero()),
        1 => (-2_000_000i64..2_000_000).prop_map(TimeDelta::seconds),
        1 => (-400i64..400).prop_map(TimeDelta::days),
    ];
    (
        (any_now(), any_policy(), vec(any_sketch(), 0..40)),
        (vec(-70i64..5, 0..6), vec(-70i64..20, 0..30), vec(-70i64..5, 0..20)),
        (
            ownership,
            clock.clone(),
            option::weighted(0.8, clock),
            option::of(any_retention()),
        ),
    )
        .prop_map(
            |((now, policy, sketches), (held, made, confirmed), (ownership, host, trusted, made_with))| {
                let today = Day::containing(now);
                let mut found = empty(now);
                let mut names = BTreeSet::new();
                for (oid, sketch) in (1..).zip(sketches) {
                    let relation = drawn(sketch, oid, now, &policy, &found);
                    // The catalog has one relation of a name in a schema, and no more.
                    if names.insert((relation.schema.clone(), relation.name.clone())) {
                        found.relations.push(relation);
                    }
                }
                found.held = held.into_iter().map(|by| (today.plus(by), now)).collect();
                found.made = made.into_iter().map(|by| today.plus(by)).collect();
                for (index, by) in confirmed.into_iter().enumerate() {
                    let days = if index % 2 == 0 {
                        &mut found.confirmed.detach
                    } else {
                        &mut found.confirmed.drop
                    };
                    days.insert(today.plus(by));
                }
                found.ownership = ownership;
                found.clocks.host = now + host;
                found.clocks.trusted = trusted.map(|by| now + by);
                found.claim_retention = made_with;
                World { now, policy, found }
            },
        )
}

impl World {
    /// The same under a clock that everyone agrees on, on our own server.
    pub(super) fn in_order(mut self) -> Self {
        self.found.clocks = trusted(self.now);
        self.found.ownership = Ownership::Ours;
        self
    }

    /// The longer of the two retentions, from the configuration and the claim functions.
    pub(super) fn retention(&self) -> Option<TimeDelta> {
        match (self.policy.retention, self.found.claim_retention) {
            (Retention::For(a), None) => Some(a),
            (Retention::For(a), Some(Retention::For(b))) => Some(a.max(b)),
            _ => None,
        }
    }
}
