//! Who may do what: a consumer claims, and nothing else.

use inboxd::Ident;
use sqlx::{AssertSqlSafe, PgConnection};

use super::{TABLES, new_id};
use crate::support::{
    claims::{Claim, batch},
    inbox::{Deployment, spec, sql, sqlstate, v7_spec},
};

/// Roles are the server's, and the server is shared: each database has roles of its own.
struct Roles {
    deployment: Deployment,
    owner: String,
    consumer: String,
    admin: String,
    stranger: String,
}

async fn with_roles() -> Roles {
    let database = crate::support::server::database().await;
    let mut admin = database.connect().await;
    let [owner, consumer, operator, stranger] =
        ["owner", "consumer", "operator", "stranger"].map(|role| format!("{}_{role}", database.name));
    for role in [&owner, &consumer, &operator, &stranger] {
        sql(&mut admin, format!("create role {role}")).await;
    }
    let specs = [spec("public.by_time"), v7_spec("public.by_id")].map(|mut spec| {
        spec.owner = Some(Ident::new(owner.as_str()).unwrap());
        spec.consumer_roles = vec![Ident::new(consumer.as_str()).unwrap()];
        spec.admin_roles = vec![Ident::new(operator.as_str()).unwrap()];
        spec
    });
    sql(&mut admin, format!("grant create on schema public to {owner}")).await;
    let deployment = Deployment::new(database, inboxd::clock::Clock::system(), specs.to_vec());
    deployment.init().await.unwrap();
    deployment.done().await;
    Roles {
        deployment,
        owner,
        consumer,
        admin: operator,
        stranger,
    }
}

async fn refused(connection: &mut PgConnection, statement: &str) {
    let error = sqlx::query(AssertSqlSafe(statement.to_owned()))
        .execute(connection)
        .await
        .err()
        .unwrap_or_else(|| panic!("{statement} is allowed"));
    assert_eq!(sqlstate(&error), "42501", "{statement}: {error}");
}

const CLAIMS: [&str; 3] = [
    "select {t}_claim('{id}', 'orders')",
    "select {t}_try_claim('{id}', 'orders', null, null, '1 second')",
    "select {t}_claim_batch(array['{id}'::uuid], array['orders'], null, null, '1 second')",
];

#[tokio::test]
async fn c33_a_consumer_claims_and_does_nothing_else() {
    let roles = with_roles().await;
    let mut connection = roles.deployment.database.connect().await;
    sql(&mut connection, format!("set role {}", roles.consumer)).await;
    for table in TABLES {
        let id = new_id();
        assert_eq!(Claim::of(table, id).outcome(&mut connection).await, "fresh", "{table}");
        assert_eq!(
            Claim::of(table, id).waiting("1 second").outcome(&mut connection).await,
            "duplicate"
        );
        assert!(!Claim::of(table, id).fresh(&mut connection).await.unwrap());
        for wait in [None, Some("1 second")] {
            let outcomes = batch(&mut connection, table, &[Some(new_id()), Some(id)], wait)
                .await
                .unwrap();
            assert_eq!(outcomes, ["fresh", "duplicate"], "{table}");
        }
        let leaf = &roles.deployment.partitions(table).await[0];
        for relation in [table, leaf] {
            refused(&mut connection, &format!("select * from {relation}")).await;
            refused(
                &mut connection,
                &format!("insert into {relation} values ('{id}', 'orders')"),
            )
            .await;
            refused(&mut connection, &format!("update {relation} set topic = ''")).await;
            refused(&mut connection, &format!("delete from {relation}")).await;
            refused(&mut connection, &format!("truncate {relation}")).await;
            refused(&mut connection, &format!("alter table {relation} add check (true)")).await;
        }
        for statement in [
            format!("select {table}_forget('{id}')"),
            format!("select {table}_claim_inner('{id}', 'orders', null, null)"),
            format!("select {table}_batch_inner(array['{id}'::uuid], array['orders'], null, null)"),
            format!("select {table}_claim_wait('{id}', 'orders', null, null, '1 second')"),
            format!(
                "select {table}_batch_wait(array['{id}'::uuid], array['orders'], array[null]::timestamptz[], null, '1 second')"
            ),
        ] {
            refused(&mut connection, &statement).await;
        }
    }
    refused(&mut connection, "select * from inboxd.inboxes").await;
}

#[tokio::test]
async fn c33_a_stranger_may_call_none_of_the_functions() {
    let roles = with_roles().await;
    let mut connection = roles.deployment.database.connect().await;
    let of_everybody: Vec<String> = sqlx::query_scalar(
        "select proc.oid::regprocedure::text from pg_proc as proc
         where proc.pronamespace = 'public'::regnamespace and has_function_privilege($1, proc.oid, 'execute')",
    )
    .bind(&roles.stranger)
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(of_everybody, Vec::<String>::new());
    sql(&mut connection, format!("set role {}", roles.stranger)).await;
    for table in TABLES {
        for call in CLAIMS {
            let call = call.replace("{t}", table).replace("{id}", &new_id().to_string());
            refused(&mut connection, &call).await;
        }
    }
}

#[tokio::test]
async fn an_admin_forgets_and_does_not_claim() {
    let roles = with_roles().await;
    let mut connection = roles.deployment.database.connect().await;
    for table in TABLES {
        let id = new_id();
        assert!(Claim::of(table, id).fresh(&mut connection).await.unwrap());
        sql(&mut connection, format!("set role {}", roles.admin)).await;
        let forgotten: bool = sqlx::query_scalar(AssertSqlSafe(format!("select {table}_forget('{id}')")))
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert!(forgotten, "{table}");
        for call in CLAIMS {
            refused(
                &mut connection,
                &call.replace("{t}", table).replace("{id}", &id.to_string()),
            )
            .await;
        }
        refused(&mut connection, "select * from inboxd.audit").await;
        sql(&mut connection, "reset role").await;
    }
}

#[tokio::test]
async fn s12_a_table_in_the_place_of_a_partition_is_not_written_to() {
    let roles = with_roles().await;
    let mut connection = roles.deployment.database.connect().await;
    // Somebody who may create tables waits where the next partition would be, with a trigger that runs as its writer.
    let today = crate::support::inbox::v7_at(super::now());
    assert!(Claim::of("by_time", today).fresh(&mut connection).await.unwrap());
    let leaf: String = sqlx::query_scalar("select tableoid::regclass::text from by_time")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    sql(
        &mut connection,
        format!(
            "grant create on schema public to {stranger};
             alter table by_time detach partition {leaf};
             alter table {leaf} rename to aside;
             set role {stranger};
             create function public.steal() returns trigger language plpgsql as $$
               begin raise exception 'ran as %', current_user; end $$;
             create table {leaf} (message_id uuid primary key, topic varchar(255), processed_at timestamptz);
             create trigger steal before insert on {leaf} for each row execute function public.steal();
             reset role",
            stranger = roles.stranger
        ),
    )
    .await;
    let error = Claim::of("by_time", new_id()).on(&mut connection).await.unwrap_err();
    assert_eq!(
        sqlstate(&error),
        "23514",
        "a missing partition, not the stranger's table: {error}"
    );
}

#[tokio::test]
async fn the_functions_belong_to_the_inboxs_owner_and_pin_their_search_path() {
    let roles = with_roles().await;
    let mut connection = roles.deployment.database.connect().await;
    let functions: Vec<(String, String, bool, Option<Vec<String>>)> = sqlx::query_as(
        "select proname::text, proowner::regrole::text, prosecdef, proconfig from pg_proc
         where pronamespace = 'public'::regnamespace order by 1",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert!(functions.len() >= 17);
    for (name, owner, definer, settings) in functions {
        assert_eq!(owner, roles.owner, "{name}");
        let inner = name.ends_with("_inner") || name.ends_with("_wait");
        // A trigger needs no right of its owner's.
        assert_eq!(definer, !inner && !name.ends_with("_sealed"), "{name}");
        let pinned = settings
            .unwrap_or_default()
            .contains(&"search_path=pg_catalog, pg_temp".to_owned());
        assert_eq!(pinned, !inner, "{name}");
    }
}

#[tokio::test]
async fn row_security_that_would_hide_claims_fails_loudly_and_any_other_has_no_influence() {
    let roles = with_roles().await;
    let mut connection = roles.deployment.database.connect().await;
    for table in TABLES {
        let message = Claim::of(table, new_id());
        assert_eq!(message.outcome(&mut connection).await, "fresh");
        sql(
            &mut connection,
            format!("alter table {table} enable row level security"),
        )
        .await;
        assert_eq!(
            message.outcome(&mut connection).await,
            "duplicate",
            "{table}: the owner is exempt"
        );
        assert!(Claim::of(table, new_id()).fresh(&mut connection).await.unwrap());
        sql(
            &mut connection,
            format!(
                "alter table {table} force row level security;
                 create policy hides on {table} using (false) with check (true)"
            ),
        )
        .await;
        for wait in [None, Some("1 second")] {
            let claim = Claim {
                wait,
                ..message.clone()
            };
            let error = claim.on(&mut connection).await.unwrap_err();
            assert_eq!(sqlstate(&error), "42501", "{table}: {error}");
        }
    }
}

#[tokio::test]
async fn c33_neither_default_privileges_nor_a_function_made_before_give_a_stranger_rights() {
    let database = crate::support::server::database().await;
    let mut admin = database.connect().await;
    let [owner, squatter, stranger] = ["owner", "squatter", "stranger"].map(|role| format!("{}_{role}", database.name));
    for role in [&owner, &squatter, &stranger] {
        sql(&mut admin, format!("create role {role}")).await;
    }
    sql(
        &mut admin,
        format!(
            "grant create on schema public to {owner}, {squatter};
             alter default privileges in schema public grant execute on functions to {stranger};
             set role {squatter};
             create function public.inbox_forget(message_id uuid, consumer text default null, reason text default null)
               returns boolean language sql as 'select true';
             grant execute on function public.inbox_forget to {stranger} with grant option;
             reset role"
        ),
    )
    .await;
    let mut inbox = spec("public.inbox");
    inbox.owner = Some(Ident::new(owner.as_str()).unwrap());
    let deployment = Deployment::new(database, inboxd::clock::Clock::system(), vec![inbox]);
    deployment.init().await.unwrap();
    let executable = "select proc.proname::text from pg_proc as proc
         where proc.pronamespace = 'public'::regnamespace and has_function_privilege($1, proc.oid, 'execute')";
    for role in [&squatter, &stranger] {
        let by_it: Vec<String> = sqlx::query_scalar(executable)
            .bind(role)
            .fetch_all(&mut admin)
            .await
            .unwrap();
        assert_eq!(by_it, Vec::<String>::new(), "{role}");
    }
    // What an operator grants later survives an upgrade.
    sql(
        &mut admin,
        format!("grant execute on function public.inbox_claim to {stranger}"),
    )
    .await;
    let mut upgraded = deployment.clone();
    upgraded.specs[0].claim.max_batch = 10;
    assert!(upgraded.init().await.unwrap().inboxes[0].functions_made);
    let by_it: Vec<String> = sqlx::query_scalar(executable)
        .bind(&stranger)
        .fetch_all(&mut admin)
        .await
        .unwrap();
    assert_eq!(by_it, ["inbox_claim"]);
}

/// The functions of a first version, with other argument names, defaults and results than this version's.
const OLDER: &str = "
    drop function {t}_claim(uuid, text, timestamptz, text);
    drop function {t}_try_claim(uuid, text, timestamptz, text, interval);
    drop function {t}_forget(uuid, text, text);
    create function {t}_claim(id uuid, topic text default 'none', created timestamptz default null, consumer text default null)
      returns int language sql as 'select 1';
    create function {t}_try_claim(uuid, text, timestamptz, text, interval)
      returns table (result text) language sql as $$ select 'fresh' $$;
    create function {t}_forget(message_id uuid, consumer text default null, reason text default null)
      returns void language sql as 'select null::void';
    alter function {t}_claim owner to {owner};
    alter function {t}_try_claim owner to {owner};
    alter function {t}_forget owner to {owner};
    revoke all on function {t}_try_claim from public;
    grant execute on function {t}_claim to {stranger};
    comment on function {t}_claim is '{\"inboxd\": {}}'";

#[tokio::test]
async fn c33_a_function_with_another_signature_is_made_again_and_keeps_its_grants_but_not_everybodys() {
    let roles = with_roles().await;
    let mut connection = roles.deployment.database.connect().await;
    for table in TABLES {
        let older = OLDER
            .replace("{t}", table)
            .replace("{owner}", &roles.owner)
            .replace("{stranger}", &roles.stranger);
        sql(&mut connection, older).await;
    }
    // What default privileges would give to a function made anew is nobody's right.
    sql(
        &mut connection,
        format!(
            "create role {0}_other; alter default privileges in schema public grant execute on functions to {0}_other",
            roles.deployment.database.name
        ),
    )
    .await;
    let report = roles.deployment.init().await.unwrap();
    assert!(report.inboxes.iter().all(|inbox| inbox.functions_made));
    for table in TABLES {
        let message = Claim::of(table, new_id());
        assert!(message.fresh(&mut connection).await.unwrap(), "{table}");
        assert_eq!(message.outcome(&mut connection).await, "duplicate");
        let by: Vec<(String, String)> = sqlx::query_as(
            "select proc.proname::text, role.rolname::text
             from pg_proc as proc cross join pg_roles as role
             where proc.pronamespace = 'public'::regnamespace and proc.proname like $1 || '%' and not role.rolsuper
               and role.rolname like $2 || '%' and role.oid <> proc.proowner and has_function_privilege(role.oid, proc.oid, 'execute')
             order by 1, 2",
        )
        .bind(table)
        .bind(format!("{}_", roles.deployment.database.name))
        .fetch_all(&mut connection)
        .await
        .unwrap();
        let expected = [
            ("claim", &roles.consumer),
            ("claim", &roles.stranger),
            ("claim_batch", &roles.consumer),
            ("forget", &roles.admin),
            ("try_claim", &roles.consumer),
        ]
        .map(|(function, role)| (format!("{table}_{function}"), role.clone()));
        assert_eq!(by, expected, "{table}");
    }
    assert!(!roles.deployment.init().await.unwrap().inboxes[0].functions_made);
}
