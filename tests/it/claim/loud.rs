//! What must not pass in silence: a missing partition, a lost key.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{both_routings, new_id, now};
use crate::support::{
    claims::{Claim, batch, rows_of},
    inbox::{Deployment, claim, random_id, spec, sql, sqlstate},
};

async fn leaf_of_today(connection: &mut PgConnection, table: &str) -> String {
    let name = format!("{table}_{}", now().format("%Y_%m_%d"));
    let found: Option<String> = sqlx::query_scalar("select to_regclass($1)::text")
        .bind(&name)
        .fetch_one(connection)
        .await
        .unwrap();
    found.unwrap_or_else(|| panic!("{name} is missing"))
}

/// Every form, as one that fails; in a savepoint, so that the transaction shows whether it is usable.
async fn every_form_fails(connection: &mut PgConnection, table: &'static str, state: &str) {
    let message = Claim::of(table, new_id());
    let errors = [
        message.fresh(connection).await.map(drop).unwrap_err(),
        message.on(connection).await.map(drop).unwrap_err(),
        message
            .clone()
            .waiting("1 second")
            .on(connection)
            .await
            .map(drop)
            .unwrap_err(),
        batch(connection, table, &[message.id], None)
            .await
            .map(drop)
            .unwrap_err(),
        batch(connection, table, &[message.id], Some("1 second"))
            .await
            .map(drop)
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(sqlstate(&error), state, "{table}: {error}");
    }
}

#[tokio::test]
async fn c25_a_missing_partition_fails_with_its_own_sqlstate() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    for table in super::TABLES {
        let leaf = leaf_of_today(&mut connection, table).await;
        sql(&mut connection, format!("alter table {table} detach partition {leaf}")).await;
        // The table is still there under its name; it must not be written to, for nobody looks into it any more.
        every_form_fails(&mut connection, table, "23514").await;
        assert_eq!(rows_of(&mut connection, &leaf, new_id()).await, 0);
        sql(&mut connection, format!("drop table {leaf}")).await;
        every_form_fails(&mut connection, table, "23514").await;
        deployment.done().await;
        assert!(
            claim(&mut connection, table, new_id()).await.unwrap(),
            "{table}: made again"
        );
    }
}

#[tokio::test]
async fn c31_a_partition_that_lost_its_key_fails_loudly() {
    let deployment = Deployment::running(vec![spec("public.by_time")]).await;
    let mut connection = deployment.database.connect().await;
    let leaf = leaf_of_today(&mut connection, "by_time").await;
    let before = random_id();
    assert!(claim(&mut connection, "by_time", before).await.unwrap());
    sql(
        &mut connection,
        format!("alter table {leaf} drop constraint {leaf}_pkey"),
    )
    .await;
    every_form_fails(&mut connection, "by_time", "42P10").await;
    let again = Claim::of("by_time", before).on(&mut connection).await.unwrap_err();
    assert_eq!(sqlstate(&again), "42P10", "also where the id is there already");

    // What does not guard the key does not count as one.
    for index in [
        format!("create index by_hand on {leaf} (message_id)"),
        format!("create unique index by_hand on {leaf} (message_id) where topic <> ''"),
        format!("create unique index by_hand on {leaf} (message_id, topic)"),
        format!("alter table {leaf} add constraint by_hand unique (message_id) deferrable"),
        format!(
            "create unique index by_hand on {leaf} (message_id); update pg_index set indisvalid = false where indexrelid = 'by_hand'::regclass"
        ),
    ] {
        sql(&mut connection, index.clone()).await;
        let error = claim(&mut connection, "by_time", random_id()).await.unwrap_err();
        // A deferrable one is refused in words of its own.
        assert!(
            ["42P10", "55000"].contains(&sqlstate(&error).as_str()),
            "{index}: {error}"
        );
        let drop = if index.contains("constraint") {
            format!("alter table {leaf} drop constraint by_hand")
        } else {
            "drop index by_hand".to_owned()
        };
        sql(&mut connection, drop).await;
    }
    // A replica identity is no key because it is one; and a key is one beside any replica identity.
    sql(
        &mut connection,
        format!(
            "alter table {leaf} alter column message_id set not null;
             create unique index by_hand on {leaf} (message_id, topic);
             alter table {leaf} replica identity using index by_hand"
        ),
    )
    .await;
    every_form_fails(&mut connection, "by_time", "42P10").await;
    sql(&mut connection, "alter index by_hand rename to identity").await;
    sql(
        &mut connection,
        format!("create unique index concurrently by_hand on {leaf} (message_id)"),
    )
    .await;
    assert!(!claim(&mut connection, "by_time", before).await.unwrap(), "repaired");
    assert!(claim(&mut connection, "by_time", random_id()).await.unwrap());
    // That key is remembered of no index but the primary key.
    sql(&mut connection, "drop index by_hand").await;
    every_form_fails(&mut connection, "by_time", "42P10").await;
}

#[tokio::test]
async fn c31_a_key_that_a_session_has_found_is_missed_once_it_is_another() {
    let deployment = Deployment::running(vec![spec("public.by_time")]).await;
    let mut connection = deployment.database.connect().await;
    let leaf = leaf_of_today(&mut connection, "by_time").await;
    for _ in 0..3 {
        assert!(claim(&mut connection, "by_time", random_id()).await.unwrap());
    }
    let mut other = deployment.database.connect().await;
    let other_key = |columns| {
        format!(
            "alter table {leaf} drop constraint {leaf}_pkey;
             alter table {leaf} add constraint {leaf}_pkey primary key ({columns})"
        )
    };
    sql(&mut other, other_key("message_id, processed_at")).await;
    every_form_fails(&mut connection, "by_time", "42P10").await;
    sql(&mut other, other_key("message_id")).await;
    let id = random_id();
    assert!(claim(&mut connection, "by_time", id).await.unwrap());
    assert!(!claim(&mut connection, "by_time", id).await.unwrap());

    // What it has found is found again after a rollback.
    sql(&mut connection, "reset all; begin").await;
    assert!(claim(&mut connection, "by_time", random_id()).await.unwrap());
    sql(&mut connection, "rollback").await;
    assert!(claim(&mut connection, "by_time", random_id()).await.unwrap());
    sql(&mut other, format!("alter table {leaf} drop constraint {leaf}_pkey")).await;
    every_form_fails(&mut connection, "by_time", "42P10").await;
}

#[tokio::test]
async fn c31_a_day_in_a_partition_of_another_name_is_claimed_exactly_or_fails_loudly() {
    for spec in [spec("public.by_time"), super::for_many(spec("public.by_time"))] {
        let consumer = (spec.policy.consumers == inboxd::Consumers::Many).then_some("mailer");
        let reversed = if consumer.is_some() {
            "consumer, message_id"
        } else {
            "message_id"
        };
        let deployment = Deployment::running(vec![spec]).await;
        let mut connection = deployment.database.connect().await;
        let leaf = leaf_of_today(&mut connection, "by_time").await;
        let before = Claim {
            consumer,
            ..Claim::of("by_time", random_id())
        };
        let message = Claim {
            consumer,
            ..Claim::of("by_time", random_id())
        };
        assert_eq!(before.outcome(&mut connection).await, "fresh");
        sql(&mut connection, format!("alter table {leaf} rename to of_another_name")).await;
        for wait in [None, Some("1 second")] {
            assert_eq!(
                Claim { wait, ..before.clone() }.outcome(&mut connection).await,
                "duplicate"
            );
        }
        assert_eq!(message.outcome(&mut connection).await, "fresh");
        assert_eq!(message.outcome(&mut connection).await, "duplicate");
        let twin_of = Claim {
            consumer,
            ..Claim::of("by_time", random_id())
        };
        sql(&mut connection, "begin").await;
        assert_eq!(twin_of.outcome(&mut connection).await, "fresh");
        assert_eq!(twin_of.outcome(&mut connection).await, "repeated");
        let twin = twin_of.behind_its_twin(&deployment.database).await;
        sql(&mut connection, "commit").await;
        assert_eq!(twin.end().await.unwrap().0, "duplicate");

        sql(
            &mut connection,
            format!("alter table of_another_name drop constraint {leaf}_pkey"),
        )
        .await;
        let lost = Claim {
            consumer,
            ..Claim::of("by_time", random_id())
        };
        let error = lost.on(&mut connection).await.unwrap_err();
        assert_eq!(sqlstate(&error), "42P10", "{error}");
        assert_eq!(rows_of(&mut connection, "by_time", lost.id.unwrap()).await, 0);
        // In another order of columns it is the same key.
        sql(
            &mut connection,
            format!("create unique index by_hand on of_another_name ({reversed})"),
        )
        .await;
        assert_eq!(lost.outcome(&mut connection).await, "fresh");
        assert_eq!(lost.outcome(&mut connection).await, "duplicate");
    }
}

#[tokio::test]
async fn s18_where_names_and_bounds_of_partitions_disagree_the_bounds_decide() {
    let deployment = Deployment::running(vec![spec("public.by_time")]).await;
    let mut connection = deployment.database.connect().await;
    let leaf = leaf_of_today(&mut connection, "by_time").await;
    let before = Claim::of("by_time", new_id());
    assert_eq!(before.outcome(&mut connection).await, "fresh");
    let tomorrow = deployment
        .partitions("by_time")
        .await
        .into_iter()
        .find(|name| *name > leaf)
        .unwrap();
    sql(
        &mut connection,
        format!("alter table {leaf} rename to aside; alter table {tomorrow} rename to {leaf}"),
    )
    .await;
    let after = Claim::of("by_time", new_id());
    assert_eq!(after.outcome(&mut connection).await, "fresh");
    for message in [before, after] {
        assert_eq!(message.outcome(&mut connection).await, "duplicate");
        assert!(!message.fresh(&mut connection).await.unwrap());
        assert_eq!(
            batch(&mut connection, "by_time", &[message.id], None).await.unwrap(),
            ["duplicate"]
        );
        assert_eq!(rows_of(&mut connection, "aside", message.id.unwrap()).await, 1);
        assert_eq!(rows_of(&mut connection, &leaf, message.id.unwrap()).await, 0);
    }
}

#[tokio::test]
async fn c27_what_the_boolean_form_cannot_say_has_a_sqlstate() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    let day = chrono::TimeDelta::days(1);
    for (table, id, state) in [
        ("by_time", "null".to_owned(), "IX003"),
        ("by_id", "null".to_owned(), "IX003"),
        ("by_id", format!("'{}'", random_id()), "IX003"),
        (
            "by_id",
            format!("'{}'", crate::support::inbox::v7_at(now() - day * 9)),
            "IX001",
        ),
        (
            "by_id",
            format!("'{}'", crate::support::inbox::v7_at(now() + day * 9)),
            "IX002",
        ),
    ] {
        let error = sqlx::query(AssertSqlSafe(format!("select {table}_claim({id}, 'orders')")))
            .execute(&mut connection)
            .await
            .unwrap_err();
        assert_eq!(sqlstate(&error), state, "{table}: {error}");
    }
}
