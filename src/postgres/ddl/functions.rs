//! The claim functions of an inbox: made, upgraded and granted.

use sqlx::{Acquire, PgConnection};

use super::{Sql, derive, digest, execute, looks, refused, render};
use crate::{
    claim::ClaimConstants,
    postgres::{
        catalog,
        error::{DbError, Doing, ErrorKind},
    },
    pure::{Consumers, DIGEST_SLOTS, Derived, Function, Ident, InboxSpec, Retention, Routing},
};

/// In the order of creation: a body may only call what stands before it.
const FUNCTIONS: [Function; 9] = [
    Function::Sealed,
    Function::Inner,
    Function::BatchInner,
    Function::Wait,
    Function::BatchWait,
    Function::Claim,
    Function::TryClaim,
    Function::ClaimBatch,
    Function::Forget,
];

/// The argument types, as grants and comments name a function.
fn arguments(function: Function) -> &'static str {
    match function {
        Function::Inner | Function::Claim => "uuid, text, timestamptz, text",
        Function::Wait | Function::TryClaim => "uuid, text, timestamptz, text, interval",
        Function::BatchInner => "uuid[], text[], timestamptz[], text",
        Function::BatchWait | Function::ClaimBatch => "uuid[], text[], timestamptz[], text, interval",
        Function::Forget => "uuid, text, text",
        Function::Sealed => "",
    }
}

fn template(function: Function, routing: Routing) -> &'static str {
    match (function, routing) {
        (Function::Inner, Routing::ProcessedAt) => include_str!("../../../sql/claim/inner_processed_at.sql"),
        (Function::Inner, Routing::MessageId) => include_str!("../../../sql/claim/inner_message_id.sql"),
        (Function::BatchInner, Routing::ProcessedAt) => include_str!("../../../sql/claim/batch_processed_at.sql"),
        (Function::BatchInner, Routing::MessageId) => include_str!("../../../sql/claim/batch_message_id.sql"),
        (Function::Sealed, _) => include_str!("../../../sql/claim/sealed.sql"),
        (Function::Wait, _) => include_str!("../../../sql/claim/wait.sql"),
        (Function::BatchWait, _) => include_str!("../../../sql/claim/batch_wait.sql"),
        (Function::Claim, _) => include_str!("../../../sql/claim/claim.sql"),
        (Function::TryClaim, _) => include_str!("../../../sql/claim/try_claim.sql"),
        (Function::ClaimBatch, _) => include_str!("../../../sql/claim/claim_batch.sql"),
        (Function::Forget, _) => include_str!("../../../sql/claim/forget.sql"),
    }
}

/// `"schema"."name"(types)`.
pub(super) fn signature(spec: &InboxSpec, function: Function) -> Result<Sql, DbError> {
    let values = [
        ("name", qualified(spec, function)?),
        ("arguments", Sql::fixed(arguments(function))),
    ];
    Ok(Sql::of("{{name}}({{arguments}})", &values))
}

/// The functions that an inbox has: no day of one with `message_id` routing is ever sealed.
fn functions_of(routing: Routing) -> impl Iterator<Item = Function> {
    FUNCTIONS
        .into_iter()
        .filter(move |function| routing == Routing::ProcessedAt || *function != Function::Sealed)
}

pub(super) fn qualified(spec: &InboxSpec, function: Function) -> Result<Sql, DbError> {
    Ok(Sql::in_schema(
        spec.table.schema(),
        &derive(&spec.table, Derived::Function(function))?,
    ))
}

/// Makes or replaces an inbox's claim functions, in the transaction that the caller holds open: they are executable by
/// everybody when made, so the revoke belongs in the same transaction.
///
/// # Errors
/// When a statement fails; the caller rolls back.
pub async fn install_functions(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    owner: &Ident,
    constants: &ClaimConstants,
) -> Result<(), DbError> {
    if constants.digest {
        digest::create_slots(connection, constants, spec, owner).await?;
    }
    let values = values(spec, constants)?;
    for function in functions_of(spec.policy.routing) {
        let signature = signature(spec, function)?;
        let was_ours = catalog::function(connection, signature.as_str())
            .await?
            .is_some_and(|(found, _)| found == owner.as_str());
        let mut values = values.clone();
        values.push(("function", qualified(spec, function)?));
        let heirs = make(connection, template(function, spec.policy.routing), &values, &signature).await?;
        let on_it = |role| [("function", signature.clone()), ("role", role)];
        execute(
            connection,
            include_str!("../../../sql/ddl/own_function.sql"),
            &on_it(Sql::ident(owner)),
        )
        .await?;
        let mut strangers = vec![Sql::fixed("public")];
        if !was_ours || heirs.is_some() {
            strangers.extend(strangers_of(connection, &signature).await?);
        }
        for role in strangers {
            let revoke = include_str!("../../../sql/ddl/revoke_execute.sql");
            execute(connection, revoke, &on_it(role)).await?;
        }
        for role in heirs.into_iter().flatten().filter(|_| was_ours) {
            let grant = include_str!("../../../sql/ddl/grant_execute.sql");
            execute(connection, grant, &on_it(role)).await?;
        }
    }
    let comment = constants.to_comment().map_err(unexpected)?;
    let values = [
        ("function", signature(spec, Function::Claim)?),
        ("text", Sql::literal(&comment)),
    ];
    execute(
        connection,
        include_str!("../../../sql/ddl/comment_function.sql"),
        &values,
    )
    .await
}

/// Makes or replaces one function. Where one of these types is there with other names, another result or fewer defaults,
/// `create or replace` refuses: that one is dropped and made again. Then the roles come back that could execute it.
async fn make(
    connection: &mut PgConnection,
    template: &'static str,
    values: &[(&'static str, Sql)],
    signature: &Sql,
) -> Result<Option<Vec<Sql>>, DbError> {
    const INVALID_FUNCTION_DEFINITION: &str = "42P13";
    let doing = || format!("replace {}", signature.as_str());
    let mut savepoint = connection.begin().await.doing(doing)?;
    match execute(&mut savepoint, template, values).await {
        Ok(()) => {
            savepoint.commit().await.doing(doing)?;
            return Ok(None);
        }
        Err(error) if error.sqlstate().as_deref() == Some(INVALID_FUNCTION_DEFINITION) => {
            savepoint.rollback().await.doing(doing)?;
        }
        Err(error) => return Err(error),
    }
    let heirs = strangers_of(connection, signature).await?;
    let drop = include_str!("../../../sql/ddl/drop_function.sql");
    execute(connection, drop, &[("function", signature.clone())]).await?;
    execute(connection, template, values).await?;
    Ok(Some(heirs))
}

/// Whether all functions of an inbox are there and belong to its owner, and the tables of the digest that they ask.
///
/// # Errors
/// When the database fails.
pub async fn has_functions(
    connection: &mut PgConnection,
    spec: &InboxSpec,
    owner: &Ident,
    constants: &ClaimConstants,
) -> Result<bool, DbError> {
    for function in functions_of(spec.policy.routing) {
        let found = catalog::function(connection, signature(spec, function)?.as_str()).await?;
        if found.is_none_or(|(found, _)| found != owner.as_str()) {
            return Ok(false);
        }
    }
    let slots = catalog::digest_slots(connection, spec, constants.inbox).await?;
    Ok(!constants.digest || slots.len() == DIGEST_SLOTS)
}

/// Who else may execute a function that has just become ours: by default privileges, or because somebody had made one of
/// that name before and a replaced function keeps its grants. Later grants are the operator's, and stay.
async fn strangers_of(connection: &mut PgConnection, signature: &Sql) -> Result<Vec<Sql>, DbError> {
    let found = catalog::function(connection, signature.as_str()).await?;
    let (_, grantees) = found.unwrap_or_default();
    grantees
        .into_iter()
        .map(|name| Ident::new(name).map(|name| Sql::ident(&name)).map_err(refused))
        .collect()
}

/// Everything that the templates name, but for the function itself.
fn values(spec: &InboxSpec, constants: &ClaimConstants) -> Result<Vec<(&'static str, Sql)>, DbError> {
    let table = &spec.table;
    let many = constants.consumers == Consumers::Many;
    let if_many = |text: &'static str| Sql::fixed(if many { text } else { "" });
    let inbox = Sql::table(table);
    let inbox_literal = Sql::literal(inbox.as_str());

    let dynamic = |template: &'static str| {
        Sql::literal(&render(
            template,
            &[
                ("inbox", inbox.clone()),
                ("and_consumer", if_many(" and consumer = $2")),
                ("and_consumer_4", if_many(" and consumer = $4")),
                ("and_consumer_6", if_many(" and seen.consumer = $6")),
            ],
        ))
    };

    let oldest = match constants.retention().map_err(unexpected)? {
        Retention::For(length) => Sql::of(
            "date_trunc('day', clock - interval {{length}}, 'UTC')",
            &[("length", Sql::seconds(length.num_seconds()))],
        ),
        Retention::Forever => Sql::fixed("timestamptz '-infinity'"),
    };
    let lock_key_of = |id, consumer| lock_key_of(constants, id, consumer);
    let given_key = match constants.routing {
        Routing::MessageId => Sql::fixed("given.id"),
        Routing::ProcessedAt => lock_key_of("given.id", "msg_consumer"),
    };
    let forgotten_again = |which| {
        Sql::of(
            include_str!("../../../sql/claim/parts/forgotten_again.sql"),
            &[("which", Sql::fixed(which))],
        )
    };
    let reads_committed = Sql::of(
        include_str!("../../../sql/claim/parts/reads_committed.sql"),
        &[("inbox_literal", inbox_literal.clone())],
    );
    let consumer_check = Sql::of(
        if many {
            include_str!("../../../sql/claim/parts/consumer_needed.sql")
        } else {
            include_str!("../../../sql/claim/parts/consumer_refused.sql")
        },
        &[("inbox_literal", inbox_literal.clone())],
    );
    let key_setting = [("key_setting", setting_of(constants, "key"))];
    let is_keyed = Sql::of(include_str!("../../../sql/claim/parts/is_keyed.sql"), &key_setting);
    let remember_key = Sql::of(include_str!("../../../sql/claim/parts/remember_key.sql"), &key_setting);
    let mut values = vec![
        ("inner", qualified(spec, Function::Inner)?),
        ("batch_inner", qualified(spec, Function::BatchInner)?),
        ("bounded", qualified(spec, Function::Wait)?),
        ("bounded_batch", qualified(spec, Function::BatchWait)?),
        (
            "longest_refused",
            Sql::fixed(include_str!("../../../sql/claim/parts/longest_refused.sql")),
        ),
        ("inbox_id", Sql::literal(&constants.inbox.to_string())),
        ("consumer_check", consumer_check),
        ("consumer_column", if_many(", consumer")),
        ("consumer_argument", if_many(", msg_consumer")),
        ("consumer_equals", if_many(" and held.consumer = msg_consumer")),
        (
            "look",
            dynamic(
                "select processed_at, xmin::text from {{inbox}} where message_id = $1 and processed_at >= $2 and processed_at < $3{{and_consumer_4}} limit 1",
            ),
        ),
        ("consumer_of_call", if_many(", $4")),
        (
            "consumer_named",
            Sql::fixed(if many { "$4 <> ''" } else { "$4 is null" }),
        ),
        ("lock_key_of_call", lock_key_of("$1", "$4")),
        (
            "batch_match",
            dynamic(
                "select message_id, processed_at, xmin::text as writer from {{inbox}} where message_id = any ($1){{and_consumer}} order by message_id",
            ),
        ),
        (
            "batch_look",
            dynamic(include_str!("../../../sql/claim/parts/batch_look.sql")),
        ),
        ("forgotten_again_of_id", forgotten_again("id")),
        ("forgotten_again_of_place", forgotten_again("ids[n]")),
        ("forgotten_again_of_rest", forgotten_again("rest[1]")),
        ("reads_committed", reads_committed),
        (
            "consumer_is_named",
            Sql::fixed(if many {
                "msg_consumer <> ''"
            } else {
                "msg_consumer is null"
            }),
        ),
        ("key_check", key_check(&inbox_literal, many, Sql::fixed(""))),
        ("key_check_once", key_check(&inbox_literal, many, remember_key)),
        ("is_keyed", is_keyed),
        ("mask_setting", setting_of(constants, "mask")),
        (
            "match",
            dynamic("select processed_at, xmin::text from {{inbox}} where message_id = $1{{and_consumer}} limit 1"),
        ),
        ("inbox_literal", inbox_literal),
        ("inbox", inbox),
        ("oldest", oldest),
        ("lock_key", lock_key_of("id", "msg_consumer")),
        ("given_key", given_key),
        ("horizon", Sql::seconds((constants.ahead_days + 1) * 86_400)),
        (
            "producer_clock_tolerance",
            Sql::seconds(constants.producer_clock_tolerance_seconds),
        ),
        (
            "clock_step_tolerance",
            Sql::seconds(constants.clock_step_tolerance_seconds),
        ),
        ("max_batch", Sql::number(i64::from(constants.max_batch))),
        (
            "outcome_of_row",
            Sql::fixed(include_str!("../../../sql/claim/parts/outcome_of_row.sql")),
        ),
        (
            "invalid_hint",
            Sql::fixed(match constants.routing {
                Routing::MessageId => "'An inbox with message_id routing takes UUIDv7 ids only.'",
                Routing::ProcessedAt => "'NULL and the nil UUID would make unrelated messages one.'",
            }),
        ),
    ];
    let in_flight_check = Sql::of(
        match constants.routing {
            Routing::ProcessedAt => include_str!("../../../sql/claim/parts/in_flight_processed_at.sql"),
            Routing::MessageId => include_str!("../../../sql/claim/parts/in_flight_message_id.sql"),
        },
        &values,
    );
    let open_since = Sql::of(include_str!("../../../sql/claim/parts/open_since.sql"), &values);
    let publication_check = Sql::of(include_str!("../../../sql/claim/parts/publication_check.sql"), &values);
    values.extend([
        ("in_flight_check", in_flight_check),
        ("publication_check", publication_check),
        ("open_since", Sql::literal(open_since.as_str())),
        ("consumer_of_row", if_many("msg_consumer text := new.consumer;")),
    ]);
    values.extend(looks::values(spec, constants, &values)?);
    let fast_look_back = Sql::of(include_str!("../../../sql/claim/parts/fast_look_back.sql"), &values);
    values.push(("fast_look_back", fast_look_back.clone()));
    let fast_ways = if constants.digest {
        Sql::of(include_str!("../../../sql/claim/parts/fast_digest.sql"), &values)
    } else {
        fast_look_back
    };
    values.push(("fast_ways", fast_ways));
    let held_outcome = Sql::of(include_str!("../../../sql/claim/parts/when_held_outcome.sql"), &values);
    for (name, when_fresh, when_held) in [
        // It is true where this stands, and plpgsql returns a variable without an expression.
        ("fast_true", "return found;", Sql::fixed("return false;")),
        (
            "fast_outcome",
            include_str!("../../../sql/claim/parts/when_fresh_outcome.sql"),
            held_outcome,
        ),
    ] {
        let template = match constants.routing {
            Routing::ProcessedAt => include_str!("../../../sql/claim/parts/fast_processed_at.sql"),
            Routing::MessageId => include_str!("../../../sql/claim/parts/fast_message_id.sql"),
        };
        let called = [("when_fresh", Sql::fixed(when_fresh)), ("when_held", when_held)];
        let fast = Sql::of(template, &[&values[..], &called].concat());
        values.push((name, fast));
    }
    let quote = dollar_quote(&values);
    values.push(("quote", quote));
    Ok(values)
}

/// The key of the advisory lock of an id, which the digest knows it by as well.
pub(super) fn lock_key_of(constants: &ClaimConstants, id: &'static str, consumer: &'static str) -> Sql {
    let values = [
        ("id", Sql::fixed(id)),
        ("consumer", Sql::fixed(consumer)),
        ("seed", Sql::number(constants.lock_key)),
    ];
    // The "C" collation: another one could hash equal names apart.
    Sql::of(
        match constants.consumers {
            Consumers::Many => "uuid_hash_extended({{id}}, hashtextextended({{consumer}} collate \"C\", {{seed}}))",
            Consumers::One => "uuid_hash_extended({{id}}, {{seed}})",
        },
        &values,
    )
}

/// A setting of a session, in which the claims of one inbox remember what they need not look at twice.
fn setting_of(constants: &ClaimConstants, what: &'static str) -> Sql {
    // The name of a setting may hold no minus.
    let inbox = constants.lock_key.cast_unsigned();
    Sql::literal(&format!("inboxd.{what}_{inbox}"))
}

fn key_check(inbox_literal: &Sql, many: bool, remember: Sql) -> Sql {
    let (is_identity, is_key) = if many {
        (
            include_str!("../../../sql/claim/parts/is_identity_of_many.sql"),
            include_str!("../../../sql/claim/parts/is_key_of_many.sql"),
        )
    } else {
        (
            include_str!("../../../sql/claim/parts/is_identity.sql"),
            include_str!("../../../sql/claim/parts/is_key.sql"),
        )
    };
    let values = [
        ("inbox_literal", inbox_literal.clone()),
        ("is_identity", Sql::fixed(is_identity)),
        ("is_key", Sql::fixed(is_key)),
        ("remember", remember),
    ];
    Sql::of(include_str!("../../../sql/claim/parts/key_check.sql"), &values)
}

/// What cannot be with constants that a configuration was accepted for.
pub(super) fn unexpected(error: impl std::fmt::Display) -> DbError {
    DbError::noticed(ErrorKind::Other, error.to_string())
}

/// A dollar quote that no fragment can end: a table may be named anything.
fn dollar_quote(values: &[(&'static str, Sql)]) -> Sql {
    let mut tag = "inboxd".to_owned();
    while values
        .iter()
        .any(|(_, value)| value.as_str().contains(&format!("${tag}$")))
    {
        tag.push('_');
    }
    Sql::dollar_quote(&tag)
}
