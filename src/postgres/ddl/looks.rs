//! The looks into past days that stand in the claim functions, as statements with the days as constants.

use super::{
    Sql, derive,
    functions::{lock_key_of, unexpected},
};
use crate::{
    claim::ClaimConstants,
    postgres::error::DbError,
    pure::{Consumers, DIGEST_SLOTS, Derived, InboxSpec, Retention},
};

const DAY_SECONDS: i64 = 86_400;

/// The fragments that look back, for the bounds that nearly every claim has: a message that was made today, one that was
/// made yesterday and waited over midnight, and one that nothing is known of. Any other is planned for itself.
///
/// `others` are the fragments that the statements themselves name.
pub(super) fn values(
    spec: &InboxSpec,
    constants: &ClaimConstants,
    others: &[(&'static str, Sql)],
) -> Result<Vec<(&'static str, Sql)>, DbError> {
    let many = constants.consumers == Consumers::Many;
    let up = |seconds: i64| seconds / DAY_SECONDS + i64::from(seconds % DAY_SECONDS > 0);
    let length = |count: i64| Sql::seconds(count * DAY_SECONDS);
    let tolerance = up(constants.producer_clock_tolerance_seconds).max(1);
    let (whole, oldest) = match constants.retention().map_err(unexpected)? {
        Retention::For(retention) => {
            let count = up(retention.num_seconds());
            let since = Sql::of("day_start - interval {{length}}", &[("length", length(count))]);
            (since, day(-count))
        }
        Retention::Forever => (Sql::fixed("timestamptz 'epoch'"), Sql::fixed("timestamptz '-infinity'")),
    };
    let look_by = |statement: &'static str, from: Sql, to: Sql| {
        let and_consumer = if many { " and seen.consumer = msg_consumer" } else { "" };
        let mut values = vec![
            ("inbox", Sql::table(&spec.table)),
            ("and_consumer", Sql::fixed(and_consumer)),
            ("from", from),
            ("to", to),
        ];
        let statement = Sql::of(statement, &values);
        values.push(("statement", statement));
        Sql::of(include_str!("../../../sql/claim/parts/look.sql"), &values)
    };
    let look = |from, to| look_by(include_str!("../../../sql/claim/parts/look_statement.sql"), from, to);
    let batch_look = |from| {
        look_by(
            include_str!("../../../sql/claim/parts/batch_look_statement.sql"),
            from,
            day(0),
        )
    };
    let insert = |from: Sql| {
        let and_consumer = if many { " and seen.consumer = $4" } else { "" };
        let mut values = [
            others,
            &[
                ("and_consumer", Sql::fixed(and_consumer)),
                ("from", from),
                ("to", day(0)),
            ],
        ]
        .concat();
        let statement = Sql::of(
            include_str!("../../../sql/claim/parts/fast_insert_statement.sql"),
            &values,
        );
        values.push(("statement", statement));
        Sql::of(include_str!("../../../sql/claim/parts/fast_insert.sql"), &values)
    };
    let mut made = vec![
        ("tolerance", length(tolerance)),
        ("tolerance_and_day", length(tolerance + 1)),
        ("whole", whole),
        ("look_tolerance", look(day(-tolerance), day(0))),
        ("look_tolerance_and_day", look(day(-tolerance - 1), day(0))),
        ("look_whole", look(oldest.clone(), day(0))),
        ("look_ahead", look(day(1), day(2))),
        ("batch_look_tolerance", batch_look(day(-tolerance))),
        ("batch_look_tolerance_and_day", batch_look(day(-tolerance - 1))),
        ("batch_look_whole", batch_look(oldest.clone())),
        ("fast_insert_tolerance", insert(day(-tolerance))),
        ("fast_insert_whole", insert(oldest)),
    ];
    let look_back = Sql::of(include_str!("../../../sql/claim/parts/look_back.sql"), &made);
    let batch_look_back = Sql::of(include_str!("../../../sql/claim/parts/batch_look_back.sql"), &made);
    made.extend([("look_back", look_back), ("batch_look_back", batch_look_back)]);
    let fast_since = Sql::of(include_str!("../../../sql/claim/parts/fast_since.sql"), others);
    made.push(("fast_since", fast_since));
    let all = [others, &made].concat();
    made.extend(if constants.digest {
        digest(spec, constants, &all)?
    } else {
        let fast_rest = Sql::of(include_str!("../../../sql/claim/parts/fast_rest.sql"), &all);
        vec![
            ("digest_since", Sql::fixed("")),
            ("batch_digest_since", Sql::fixed("")),
            ("batch_ruled_out", Sql::fixed("")),
            ("fast_rest", fast_rest),
        ]
    });
    Ok(made)
}

/// The fragments that ask the digest before they look back.
fn digest(
    spec: &InboxSpec,
    constants: &ClaimConstants,
    others: &[(&'static str, Sql)],
) -> Result<Vec<(&'static str, Sql)>, DbError> {
    const LOOKS: [&str; DIGEST_SLOTS] = ["digest_0", "digest_1", "digest_2"];
    const INSERTS: [&str; DIGEST_SLOTS] = ["fast_digest_0", "fast_digest_1", "fast_digest_2"];
    let remember = include_str!("../../../sql/claim/parts/digest_remember.sql");
    let mut looks = vec![("digest_remember", Sql::of(remember, others))];
    let mut batch_looks = vec![("digest_remember", Sql::fixed(""))];
    // The days begin at midnight, so a bound needs no rounding.
    let oldest = match constants.retention().map_err(unexpected)? {
        Retention::For(retention) => Sql::of(
            "clock - interval {{length}}",
            &[("length", Sql::seconds(retention.num_seconds()))],
        ),
        Retention::Forever => Sql::fixed("timestamptz '-infinity'"),
    };
    let mut inserts = Vec::new();
    let mut batch_ruled_out = Vec::new();
    for slot in 0..DIGEST_SLOTS {
        let name = derive(&spec.table, Derived::DigestSlot(slot))?;
        let part = |template, key: Sql, since| {
            let mut values = vec![
                ("slot", Sql::in_schema(spec.table.schema(), &name)),
                ("seed", Sql::number(constants.lock_key)),
                ("key", key),
                ("since", since),
            ];
            values.extend([
                (
                    "row",
                    Sql::of(include_str!("../../../sql/claim/parts/digest_row.sql"), &values),
                ),
                (
                    "rules_out",
                    Sql::of(include_str!("../../../sql/claim/parts/digest_rules_out.sql"), &values),
                ),
            ]);
            Sql::of(template, &[others, &values].concat())
        };
        let (key, given) = (lock_key_of(constants, "id", "msg_consumer"), || Sql::fixed("given.key"));
        let look = include_str!("../../../sql/claim/parts/digest_look.sql");
        looks.push((LOOKS[slot], part(look, key, Sql::fixed("since"))));
        let batch_look = include_str!("../../../sql/claim/parts/digest_batch_look.sql");
        batch_looks.push((LOOKS[slot], part(batch_look, given(), Sql::fixed("given.since"))));
        let ruled_out = include_str!("../../../sql/claim/parts/digest_batch_rules_out.sql");
        batch_ruled_out.push((LOOKS[slot], part(ruled_out, given(), Sql::fixed("oldest"))));
        let insert = include_str!("../../../sql/claim/parts/fast_digest_statement.sql");
        let key = lock_key_of(constants, "$1", "$4");
        inserts.push((INSERTS[slot], part(insert, key, oldest.clone())));
    }
    let since = include_str!("../../../sql/claim/parts/digest_since.sql");
    let ruled_out = include_str!("../../../sql/claim/parts/batch_ruled_out.sql");
    let mut made = vec![
        ("digest_since", Sql::of(since, &looks)),
        ("batch_digest_since", Sql::of(since, &batch_looks)),
        ("batch_ruled_out", Sql::of(ruled_out, &batch_ruled_out)),
        ("fast_rest", Sql::fixed("")),
    ];
    made.extend(inserts);
    Ok(made)
}

/// Midnight of the day that lies some days from today, as a constant of the statement that it stands in.
fn day(from_today: i64) -> Sql {
    Sql::of(
        "(((timestamptz 'now' at time zone 'UTC')::date + ({{days}}))::timestamp at time zone 'UTC')",
        &[("days", Sql::number(from_today))],
    )
}
