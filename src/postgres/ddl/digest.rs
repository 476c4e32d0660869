//! The digest of the sealed days: what is not in it need not be looked for.
//!
//! The invariant: a row holds the fingerprint of *every* id of the days that it says it covers whose hash under its mask is its
//! own. So it is made under the days' locks, of days that are sealed then, in one transaction that nobody sees
//! before its end. A row too many costs a look; one too few would be a message that is processed twice.

use chrono::{DateTime, Utc};
use sqlx::{Acquire, AssertSqlSafe, PgConnection, Row, postgres::types::Oid};

use super::{LONGEST_BUILD, Sql, Work, derive, execute, functions::lock_key_of};
use crate::{
    claim::ClaimConstants,
    postgres::{
        catalog,
        error::{DbError, Doing, ErrorKind},
    },
    pure::{DIGEST_SLOTS, Day, Derived, DigestScope, Ident, InboxSpec, render},
};

/// The most ids that a row holds on average: with four bytes each some 1 kB, of which eight fit a page.
const IDS_OF_A_ROW: i64 = 256;
/// Of more rows than these with 128 ids each on average hardly one is empty.
const MOST_FILLED: i64 = 1 << 12;

/// Makes the tables of an inbox's digest where they are missing.
///
/// # Errors
/// When a statement fails, or something else has the name; the caller rolls back.
pub(super) async fn create_slots(
    connection: &mut PgConnection,
    constants: &ClaimConstants,
    spec: &InboxSpec,
    owner: &Ident,
) -> Result<(), DbError> {
    let there = catalog::digest_slots(connection, spec, constants.inbox).await?;
    for slot in 0..DIGEST_SLOTS {
        let name = derive(&spec.table, Derived::DigestSlot(slot))?;
        if there.iter().any(|slot| slot.name == name) {
            continue;
        }
        let relation = Sql::in_schema(spec.table.schema(), &name);
        let on_it = [("slot", relation.clone())];
        execute(
            connection,
            include_str!("../../../sql/ddl/create_digest_slot.sql"),
            &on_it,
        )
        .await?;
        execute(
            connection,
            include_str!("../../../sql/ddl/store_fingerprints_plain.sql"),
            &on_it,
        )
        .await?;
        let owned = [("relation", relation.clone()), ("role", Sql::ident(owner))];
        execute(connection, include_str!("../../../sql/ddl/set_owner.sql"), &owned).await?;
        let marked = [
            ("relation", relation),
            ("text", Sql::literal(&catalog::digest_marker(constants.inbox))),
        ];
        execute(connection, include_str!("../../../sql/ddl/comment.sql"), &marked).await?;
    }
    Ok(())
}

/// Drops them. The claim functions must not ask them any more.
///
/// # Errors
/// When a statement fails; claims that began before are waited for.
pub async fn drop_slots(connection: &mut PgConnection, spec: &InboxSpec, inbox: uuid::Uuid) -> Result<(), DbError> {
    for slot in catalog::digest_slots(connection, spec, inbox).await? {
        let values = [("relation", Sql::in_schema(spec.table.schema(), &slot.name))];
        execute(connection, include_str!("../../../sql/ddl/drop_table.sql"), &values).await?;
    }
    Ok(())
}

/// Empties the table of the step, which no claim asks before tomorrow.
///
/// # Errors
/// When somebody has a lock on it, or the day in which claims ask it begins in less than a minute or has begun: none of them
/// waits for this.
pub(super) async fn clear(connection: &mut PgConnection, work: Work<'_>) -> Result<(), DbError> {
    let values = [("slot", work.relation())];
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    let on = &mut *transaction;
    execute(on, include_str!("../../../sql/ddl/lock_digest_slot.sql"), &values).await?;
    let soon: DateTime<Utc> = sqlx::query_scalar(include_str!("../../../sql/observe/soon.sql"))
        .fetch_one(&mut *on)
        .await
        .doing(|| "look at the server's clock".to_owned())?;
    let of_tomorrow = Derived::DigestSlot(Day::containing(soon).next().digest_slot());
    if derive(&work.spec.table, of_tomorrow)? != work.step.relation {
        return Err(DbError::noticed(
            ErrorKind::WrongState,
            format!("{} is not left alone until tomorrow: claims ask it", work.step.relation),
        ));
    }
    execute(on, include_str!("../../../sql/ddl/clear_digest.sql"), &values).await?;
    transaction.commit().await.doing(|| "commit the empty table".to_owned())
}

/// Makes a digest in the table of the step.
///
/// # Errors
/// When a statement fails, or a day is not what was planned for. The table is then as it was.
pub(crate) async fn build(
    connection: &mut PgConnection,
    work: Work<'_>,
    constants: &ClaimConstants,
    scope: &DigestScope,
) -> Result<(), DbError> {
    let mut transaction = connection.begin().await.doing(|| "begin".to_owned())?;
    let on = &mut *transaction;
    let limit = Sql::literal(&format!("{}ms", LONGEST_BUILD.as_millis()));
    execute(
        on,
        include_str!("../../../sql/ddl/build_digest_settings.sql"),
        &[("limit", limit)],
    )
    .await?;
    let relations: Vec<Sql> = scope
        .leaves
        .iter()
        .map(|leaf| Sql::in_schema(&leaf.schema, &leaf.name))
        .collect();
    let all = [
        ("relation", Sql::joined(&relations, ", ")),
        ("mode", Sql::fixed("access share")),
    ];
    execute(on, include_str!("../../../sql/ddl/lock_table.sql"), &all).await?;
    must_be_sealed(on, work, scope).await?;

    let each = |template: &'static str| {
        let parts: Vec<Sql> = relations
            .iter()
            .map(|leaf| {
                let key = lock_key_of(constants, "leaf.message_id", "leaf.consumer");
                Sql::of(template, &[("key", key), ("leaf", leaf.clone())])
            })
            .collect();
        Sql::joined(&parts, " union all ")
    };
    let counts = [("counts", each("select count(*) from only {{leaf}}"))];
    let count = render(include_str!("../../../sql/ddl/build_digest_count.sql"), &counts);
    let ids: i64 = sqlx::query_scalar(AssertSqlSafe(count))
        .fetch_one(&mut *on)
        .await
        .doing(|| "count what the digest is made of".to_owned())?;
    let shift = shift(ids);
    let (first, last) = filled(shift);
    let values = [
        ("slot", work.relation()),
        ("shift", Sql::number(shift)),
        ("first", Sql::number(first)),
        ("last", Sql::number(last)),
        ("lock_key", Sql::number(constants.lock_key)),
        ("from", instant(scope.covers.from)),
        ("to", instant(scope.covers.to)),
        ("ids", each("select {{key}} from only {{leaf}} as leaf")),
    ];
    execute(on, include_str!("../../../sql/ddl/build_digest_empty.sql"), &values).await?;
    execute(on, include_str!("../../../sql/ddl/build_digest.sql"), &values).await?;
    execute(on, include_str!("../../../sql/ddl/build_digest_fill.sql"), &values).await?;
    transaction.commit().await.doing(|| "commit the digest".to_owned())
}

/// Under the locks of the days, so that they still are when this commits: no trigger goes and no partition leaves meanwhile.
async fn must_be_sealed(connection: &mut PgConnection, work: Work<'_>, scope: &DigestScope) -> Result<(), DbError> {
    let names = |of: fn(&crate::pure::Leaf) -> &Ident| -> Vec<String> {
        scope.leaves.iter().map(|leaf| of(leaf).to_string()).collect()
    };
    let oids: Vec<Oid> = scope.leaves.iter().map(|leaf| Oid(leaf.oid)).collect();
    let sealed: i64 = sqlx::query(include_str!("../../../sql/observe/digest_leaves.sql"))
        .bind(work.spec.table.quoted())
        .bind(oids)
        .bind(names(|leaf| &leaf.schema))
        .bind(names(|leaf| &leaf.name))
        .fetch_one(connection)
        .await
        .and_then(|row| row.try_get(0))
        .doing(|| "look at the days of the digest".to_owned())?;
    if usize::try_from(sealed) != Ok(scope.leaves.len()) {
        return Err(DbError::noticed(
            ErrorKind::WrongState,
            "a day that the digest was planned for is not a sealed partition any more",
        ));
    }
    Ok(())
}

/// By how many bits a hash is shifted to give the number of its row: so many rows, a power of two and at least two, that each
/// holds 256 ids at most on average.
fn shift(ids: i64) -> i64 {
    let rows = ids.div_euclid(IDS_OF_A_ROW) + 1;
    let bits = i64::from(i64::BITS - (rows - 1).leading_zeros());
    64 - bits.max(1)
}

/// The rows, by number, that are made also where no id has such a hash. The one for the lowest hashes always: it tells what all of
/// them have in common. Where there are many, next to none is empty, and an id that has no row is looked for.
fn filled(shift: i64) -> (i64, i64) {
    let half = 1 << (63 - shift);
    if half > MOST_FILLED / 2 {
        (half, half)
    } else {
        (0, 2 * half - 1)
    }
}

fn instant(at: DateTime<Utc>) -> Sql {
    Sql::of("timestamptz {{at}}", &[("at", Sql::literal(&at.to_rfc3339()))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_a_page_s_eighth_at_most_and_there_are_two_at_least() {
        for (ids, rows_log) in [
            (0, 1),
            (1, 1),
            (511, 1),
            (512, 2),
            (1_023, 2),
            (1_024, 3),
            (140_000_000, 20),
            (i64::MAX / 2, 54),
        ] {
            assert_eq!(64 - shift(ids), rows_log, "{ids}");
        }
    }

    #[test]
    fn few_rows_are_all_made_and_of_many_that_of_the_lowest_hashes() {
        for (rows_log, numbers) in [(1, (0, 1)), (2, (0, 3)), (12, (0, 4_095)), (13, (4_096, 4_096))] {
            let shift = 64 - rows_log;
            let (first, last) = filled(shift);
            assert_eq!((first, last), numbers, "{rows_log}");
            let lowest = (first..=last).any(|number| number << shift == i64::MIN);
            assert!(lowest, "{rows_log}");
        }
    }
}
