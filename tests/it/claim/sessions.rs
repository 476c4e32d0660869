//! What a caller's session looks like has no influence on a claim, and a claim none on the session.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{TABLES, both_routings, new_id, now};
use crate::support::{
    claims::{Claim, batch},
    inbox::{claim, random_id, spec, sql, sqlstate, v7_at},
};

/// Every setting of the session; those of plpgsql only exist once it is loaded.
async fn settings_of(connection: &mut PgConnection) -> BTreeMap<String, String> {
    let settings: Vec<(String, String)> = sqlx::query_as("select name, setting from pg_settings")
        .fetch_all(connection)
        .await
        .unwrap();
    settings.into_iter().collect()
}

#[tokio::test]
async fn c5_c32_settings_are_unchanged_and_the_transaction_usable_after_every_outcome() {
    let deployment = both_routings().await;
    let (mut connection, mut holder) = (deployment.database.connect().await, deployment.database.connect().await);
    let connection = &mut connection;
    let held = new_id();
    let mut holding = holder.begin().await.unwrap();
    for table in TABLES {
        assert!(claim(&mut holding, table, held).await.unwrap());
    }
    sql(connection, "load 'plpgsql'").await;
    for (session, local, milliseconds) in [("0", None, "0"), ("7s", None, "7000"), ("7s", Some("3s"), "3000")] {
        sql(connection, format!("set lock_timeout = '{session}'")).await;
        for table in TABLES {
            let (again, dead) = (new_id(), v7_at(now() - TimeDelta::days(30)));
            sql(connection, "begin").await;
            if let Some(local) = local {
                sql(connection, format!("set local lock_timeout = '{local}'")).await;
            }
            let before = settings_of(connection).await;
            assert_eq!(before["lock_timeout"], milliseconds);
            let mut outcomes = Vec::new();
            for id in [again, again, held, dead, uuid::Uuid::nil()] {
                for wait in [Some("20 milliseconds"), Some("0")] {
                    let claim = Claim {
                        wait,
                        ..Claim::of(table, id)
                    };
                    outcomes.push(claim.outcome(connection).await);
                    assert!(settings_of(connection).await == before, "{outcomes:?}");
                }
                outcomes.push(
                    batch(connection, table, &[Some(id)], Some("20 milliseconds"))
                        .await
                        .unwrap()
                        .remove(0),
                );
                assert!(settings_of(connection).await == before, "{outcomes:?}");
            }
            for expected in ["fresh", "repeated", "in_flight", "invalid"] {
                assert!(
                    outcomes.iter().any(|outcome| outcome == expected),
                    "{expected} of {outcomes:?}"
                );
            }
            // An error inside, caught by the caller.
            sql(connection, "savepoint a").await;
            let refused = format!("select {table}_try_claim('{}', null, null, null, '1 second')", new_id());
            let error = sqlx::query(AssertSqlSafe(refused))
                .execute(&mut *connection)
                .await
                .unwrap_err();
            assert_eq!(sqlstate(&error), "23502");
            sql(connection, "rollback to savepoint a").await;
            assert!(settings_of(connection).await == before);
            sql(connection, "commit").await;
            assert_eq!(Claim::of(table, again).outcome(connection).await, "duplicate");
            let after: String = sqlx::query_scalar("show lock_timeout")
                .fetch_one(&mut *connection)
                .await
                .unwrap();
            assert_eq!(after, session);
        }
    }
}

#[tokio::test]
async fn a_callers_settings_have_no_influence() {
    let deployment = both_routings().await;
    for setting in [
        "set timezone = 'Asia/Kolkata'",
        "set timezone = 'Pacific/Kiritimati'",
        "set datestyle = 'German, DMY'",
        "set intervalstyle = 'sql_standard'",
        "set standard_conforming_strings = off",
        "set bytea_output = 'escape'",
        "set transform_null_equals = on",
        "set array_nulls = off",
        "set plan_cache_mode = force_generic_plan",
        "set enable_partition_pruning = off",
        "set plpgsql.extra_errors = 'all'",
        "set plpgsql.variable_conflict = 'use_variable'",
        "set plpgsql.variable_conflict = 'use_column'",
        "set quote_all_identifiers = on",
        "set row_security = off",
        "set default_transaction_deferrable = on",
        "set check_function_bodies = off",
        "create temp table by_time (id int); create temp table by_id (id int); set search_path = pg_temp, public",
    ] {
        let mut connection = deployment.database.connect().await;
        sql(&mut connection, setting).await;
        for table in TABLES {
            let id = new_id();
            // Often enough that a cached plan comes up.
            for round in 0..8 {
                let message = Claim::of(table, if round == 0 { id } else { new_id() });
                assert_eq!(message.outcome(&mut connection).await, "fresh", "{setting}");
            }
            for round in 0..8 {
                let wait = (round % 2 == 0).then_some("1 second");
                let message = Claim {
                    wait,
                    ..Claim::of(table, id)
                };
                assert_eq!(message.outcome(&mut connection).await, "duplicate", "{setting}");
            }
            let ids = [Some(new_id()), Some(id), None];
            let outcomes = batch(&mut connection, table, &ids, None).await.unwrap();
            assert_eq!(outcomes, ["fresh", "duplicate", "invalid"], "{setting}");
        }
    }
}

#[tokio::test]
async fn s12_a_callers_search_path_has_no_influence() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    sql(
        &mut connection,
        "create schema evil;
         create function evil.fail() returns void language plpgsql as $$ begin raise exception 'evil ran'; end $$;
         create function evil.now() returns timestamptz language sql as $$ select '2001-01-01'::timestamptz + (evil.fail() is null)::int * interval '1 day' $$;
         create function evil.clock_timestamp() returns timestamptz language sql as $$ select evil.now() $$;
         create function evil.uuid_hash_extended(uuid, bigint) returns bigint language sql as $$ select 1::bigint + (evil.fail() is null)::int $$;
         create function evil.pg_advisory_xact_lock(bigint) returns void language sql as $$ select evil.fail() $$;
         create function evil.date_trunc(text, timestamptz, text) returns timestamptz language sql as $$ select evil.now() $$;
         create function evil.equal(uuid, uuid) returns boolean language sql as $$ select false and evil.fail() is null $$;
         create operator evil.= (leftarg = uuid, rightarg = uuid, function = evil.equal);
         create table evil.pg_index (); create table evil.pg_attribute ();
         create domain evil.uuid as text; create domain evil.timestamptz as text;",
    )
    .await;
    sql(
        &mut connection,
        "create temp table pg_index (); create temp table pg_attribute ()",
    )
    .await;
    sql(&mut connection, "set search_path = evil, pg_temp, public, pg_catalog").await;
    for table in TABLES {
        let id = new_id();
        for (wait, expected) in [(None, "fresh"), (Some("1 second"), "duplicate"), (None, "duplicate")] {
            let outcome: String = sqlx::query_scalar(AssertSqlSafe(format!(
                "select outcome from public.{table}_try_claim('{id}', 'orders', null, null, $1::text::interval)"
            )))
            .bind(wait)
            .fetch_one(&mut connection)
            .await
            .unwrap();
            assert_eq!(outcome, expected, "{table}");
        }
    }
}

#[tokio::test]
async fn a_claim_in_a_read_only_transaction_fails_loudly() {
    let deployment = crate::support::inbox::Deployment::running(vec![spec("public.inbox")]).await;
    let mut connection = deployment.database.connect().await;
    sql(&mut connection, "begin read only").await;
    assert_eq!(
        sqlstate(&claim(&mut connection, "inbox", random_id()).await.unwrap_err()),
        "25006"
    );
}
