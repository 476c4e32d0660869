//! Every form in which a statement can call a claim stays exact beside a twin.

use sqlx::{AssertSqlSafe, Connection};

use super::{TABLES, both_routings, new_id};
use crate::support::{
    claims::{pid_of, rows_of, wait_until_blocked},
    inbox::{claim, sql},
};

/// Statements that claim `$1` and return whether it was fresh; `{t}` is the inbox.
const FORMS: [&str; 13] = [
    "select {t}_claim($1, 'orders')",
    "with done as (insert into work select $1 where {t}_claim($1, 'orders') returning 1) select exists (select from done)",
    "with claimed as (select {t}_claim($1, 'orders') as fresh) select fresh from claimed",
    "with claimed as materialized (select outcome from {t}_try_claim($1, 'orders', null, null, null))
     select outcome = 'fresh' from claimed",
    "select claimed.outcome = 'fresh' from unnest(array[$1]) as message (id)
     cross join lateral {t}_try_claim(message.id, 'orders', null, null, '20 seconds') as claimed",
    "select (select {t}_claim(message.id, 'orders')) from (values ($1)) as message (id)",
    "select outcome = 'fresh' from {t}_claim_batch(array[$1], array['orders'], null, null, null)",
    "select outcome = 'fresh' from {t}_claim_batch(array[$1], array['orders'], null, null, '20 seconds')",
    "select by_function('{t}', $1)",
    "select by_stable_function_{t}($1)",
    "select by_stable_sql_{t}($1)",
    "select by_cursor_{t}($1)",
    "select by_trigger_{t}($1)",
];

const WRAPPERS: &str = "
    create function by_function(inbox text, id uuid) returns boolean language plpgsql as $$
      declare fresh boolean;
      begin
        execute 'select ' || inbox || '_claim($1, ''orders'')' into fresh using id;
        return fresh;
      exception when division_by_zero then
        return null;
      end $$;";

const WRAPPERS_OF_A_TABLE: &str = "
    create function by_stable_function_{t}(id uuid) returns boolean language plpgsql stable as $$
      begin return {t}_claim(id, 'orders'); end $$;
    create function by_stable_sql_{t}(id uuid) returns boolean language sql stable as $$
      select {t}_claim(id, 'orders') $$;
    create function by_cursor_{t}(id uuid) returns boolean language plpgsql as $$
      declare
        claims cursor for select {t}_claim(id, 'orders');
        fresh boolean;
      begin
        open claims; fetch claims into fresh; close claims;
        return fresh;
      end $$;
    create table handled_{t} (id uuid);
    create function only_fresh_{t}() returns trigger language plpgsql as $$
      begin if {t}_claim(new.id, 'orders') then return new; end if; return null; end $$;
    create trigger only_fresh before insert on handled_{t} for each row execute function only_fresh_{t}();
    create function by_trigger_{t}(message uuid) returns boolean language plpgsql as $$
      begin
        insert into handled_{t} values (message);
        return found;
      end $$;";

#[tokio::test]
async fn c7_every_calling_form_is_exact_beside_a_twin() {
    let deployment = both_routings().await;
    let (mut connection, mut other) = (deployment.database.connect().await, deployment.database.connect().await);
    sql(&mut connection, "create table work (message_id uuid)").await;
    sql(&mut connection, WRAPPERS).await;
    let pid = pid_of(&mut other).await;
    for table in TABLES {
        sql(&mut connection, WRAPPERS_OF_A_TABLE.replace("{t}", table)).await;
        for form in FORMS {
            let form = form.replace("{t}", table);
            for commits in [true, false] {
                let id = new_id();
                let mut work = connection.begin().await.unwrap();
                assert!(claim(&mut work, table, id).await.unwrap());
                let twin = sqlx::query_scalar::<_, bool>(AssertSqlSafe(form.clone()))
                    .bind(id)
                    .fetch_one(&mut other);
                let (fresh, ()) = tokio::join!(twin, async {
                    wait_until_blocked(&deployment.database, pid).await;
                    if commits {
                        work.commit().await.unwrap();
                    } else {
                        work.rollback().await.unwrap();
                    }
                });
                assert_eq!(fresh.unwrap(), !commits, "{form}");
                assert_eq!(rows_of(&mut connection, table, id).await, 1, "{form}");
            }
        }
    }
}

#[tokio::test]
async fn c7_a_cursor_opened_before_its_twin_committed_fetches_a_duplicate() {
    let deployment = both_routings().await;
    let (mut connection, mut other) = (deployment.database.connect().await, deployment.database.connect().await);
    for table in TABLES {
        let id = new_id();
        sql(&mut other, "begin").await;
        // The cursor's own snapshot is taken here.
        sql(
            &mut other,
            format!("declare claims cursor for select {table}_claim(id, 'orders') from (values ('{id}'::uuid)) as message (id)"),
        )
        .await;
        assert!(claim(&mut connection, table, id).await.unwrap());
        let fresh: bool = sqlx::query_scalar("fetch claims").fetch_one(&mut other).await.unwrap();
        assert!(!fresh, "{table}");
        sql(&mut other, "commit").await;
    }
}

#[tokio::test]
async fn a_statement_that_claims_many_rows_sees_what_committed_while_it_ran() {
    let deployment = both_routings().await;
    let (mut connection, mut other) = (deployment.database.connect().await, deployment.database.connect().await);
    let pid = pid_of(&mut other).await;
    for table in TABLES {
        let ids = [new_id(), new_id(), new_id()];
        let mut work = connection.begin().await.unwrap();
        for id in [ids[0], ids[2]] {
            assert!(claim(&mut work, table, id).await.unwrap());
        }
        let claims = sqlx::query_scalar::<_, bool>(AssertSqlSafe(format!(
            "select {table}_claim(message.id, 'orders') from unnest($1::uuid[]) as message (id)"
        )))
        .bind(&ids[..])
        .fetch_all(&mut other);
        let (fresh, ()) = tokio::join!(claims, async {
            wait_until_blocked(&deployment.database, pid).await;
            work.commit().await.unwrap();
        });
        assert_eq!(fresh.unwrap(), [false, true, false], "{table}");
    }
}
