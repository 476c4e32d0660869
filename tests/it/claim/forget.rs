//! `<t>_forget`: takes one id out of the journal, and leaves a trace.

use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use super::{TABLES, both_routings, for_many, new_id};
use crate::support::{
    claims::{Claim, pid_of, rows_of, wait_until_blocked},
    inbox::{Deployment, claim, random_id, spec, sql, sqlstate, try_claim, v7_at},
};

async fn forget(connection: &mut PgConnection, table: &str, id: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(AssertSqlSafe(format!("select {table}_forget($1, null, 'replayed')")))
        .bind(id)
        .fetch_one(connection)
        .await
}

#[tokio::test]
async fn c29_a_forgotten_message_is_fresh_again_and_the_forget_is_audited() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    for table in TABLES {
        let id = new_id();
        assert!(
            !forget(&mut connection, table, id).await.unwrap(),
            "{table}: it never was there"
        );
        assert!(claim(&mut connection, table, id).await.unwrap());
        assert!(forget(&mut connection, table, id).await.unwrap(), "{table}");
        assert_eq!(rows_of(&mut connection, table, id).await, 0);
        assert!(claim(&mut connection, table, id).await.unwrap(), "{table}");
        let trace: Vec<(String, String, i64, String, bool)> = sqlx::query_as(
            "select audit.actor, audit.action, (audit.detail ->> 'rows')::bigint, audit.detail ->> 'reason',
               inbox.table_name = $2 from inboxd.audit as audit join inboxd.inboxes as inbox on inbox.id = audit.inbox_id
             where audit.detail ->> 'message_id' = $1::text order by audit.id",
        )
        .bind(id)
        .bind(table)
        .fetch_all(&mut connection)
        .await
        .unwrap();
        let line = |rows| {
            (
                "postgres".to_owned(),
                "forget".to_owned(),
                rows,
                "replayed".to_owned(),
                true,
            )
        };
        assert_eq!(trace, [line(0), line(1)], "{table}");
    }
}

#[tokio::test]
async fn c29_a_message_in_flight_is_not_forgotten() {
    let deployment = both_routings().await;
    let (mut connection, mut other) = (deployment.database.connect().await, deployment.database.connect().await);
    for table in TABLES {
        for end in ["commit", "rollback"] {
            let id = new_id();
            sql(&mut connection, "begin").await;
            assert!(claim(&mut connection, table, id).await.unwrap());
            let error = forget(&mut other, table, id).await.unwrap_err();
            assert_eq!(sqlstate(&error), "IX005", "{table}: {error}");
            sql(&mut connection, end).await;
            assert_eq!(forget(&mut other, table, id).await.unwrap(), end == "commit", "{table}");
            // Whatever was tried to find that out, no row of it stays.
            assert_eq!(rows_of(&mut other, table, id).await, 0, "{table}: {end}");
            assert!(claim(&mut other, table, id).await.unwrap(), "{table}: {end}");
        }
    }
}

#[tokio::test]
async fn c32_a_forget_leaves_the_callers_lock_timeout_as_it_was() {
    let deployment = both_routings().await;
    let (mut connection, mut other) = (deployment.database.connect().await, deployment.database.connect().await);
    for table in TABLES {
        let (done, held) = (new_id(), new_id());
        assert!(claim(&mut connection, table, done).await.unwrap());
        sql(&mut connection, "begin").await;
        assert!(claim(&mut connection, table, held).await.unwrap());
        sql(&mut other, "begin; set local lock_timeout = '1234ms'; savepoint a").await;
        for (id, forgotten) in [
            (done, Some(true)),
            (done, Some(false)),
            (new_id(), Some(false)),
            (held, None),
        ] {
            assert_eq!(forget(&mut other, table, id).await.ok(), forgotten, "{table}");
            if forgotten.is_none() {
                sql(&mut other, "rollback to a").await;
            }
            let shown: String = sqlx::query_scalar("show lock_timeout")
                .fetch_one(&mut other)
                .await
                .unwrap();
            assert_eq!(shown, "1234ms", "{table}");
        }
        sql(&mut other, "rollback").await;
        sql(&mut connection, "rollback").await;
    }
}

#[tokio::test]
async fn an_id_that_no_partition_takes_is_not_there_to_be_forgotten() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    let long_ago = v7_at("2001-01-01T00:00:00Z".parse().unwrap());
    for id in [long_ago, random_id(), Uuid::nil()] {
        assert!(!forget(&mut connection, "by_id", id).await.unwrap(), "{id}");
    }
    let forgotten: bool = sqlx::query_scalar("select by_id_forget(null)")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(!forgotten);
}

/// Seen on 15: such a delete names no column of the root, and the apply failed with 23514 (no partition for the row), again
/// at each restart, every 5 s.
#[tokio::test]
async fn c37_a_forget_that_a_publication_would_carry_to_a_subscriber_in_vain_is_refused() {
    let server = crate::support::server::own(&[("wal_level", "logical")]).await;
    let specs = vec![spec("public.by_time"), crate::support::inbox::v7_spec("public.by_id")];
    let deployment = Deployment::new(server.database().await, inboxd::clock::Clock::system(), specs);
    deployment.init().await.unwrap();
    deployment.done().await;
    let mut connection = deployment.database.connect().await;
    for (publication, broken) in [
        ("for table by_time, by_id", false),
        ("for table by_time, by_id with (publish_via_partition_root)", true),
        ("for all tables with (publish_via_partition_root)", true),
        ("for table by_id with (publish_via_partition_root)", false),
        (
            "for table by_time, by_id with (publish_via_partition_root, publish = 'insert, update')",
            false,
        ),
    ] {
        sql(
            &mut connection,
            format!("create publication \"Every\"\"thing\" {publication}"),
        )
        .await;
        let id = new_id();
        for table in TABLES {
            assert!(claim(&mut connection, table, id).await.unwrap());
        }
        let refused = forget(&mut connection, "by_time", id).await;
        if broken {
            let error = refused.unwrap_err();
            assert_eq!(sqlstate(&error), "IX006", "{publication}: {error}");
            let hint = error
                .as_database_error()
                .and_then(|error| error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>())
                .and_then(sqlx::postgres::PgDatabaseError::hint)
                .unwrap();
            let remedy = "alter publication \"Every\"\"thing\" set (publish = 'insert')";
            assert!(hint.contains(remedy), "{hint}");
            assert_eq!(rows_of(&mut connection, "by_time", id).await, 1);
            sql(&mut connection, remedy).await;
            assert!(forget(&mut connection, "by_time", id).await.unwrap(), "{publication}");
        } else {
            assert!(refused.unwrap(), "{publication}");
        }
        // The root has a key of its own here.
        assert!(forget(&mut connection, "by_id", id).await.unwrap(), "{publication}");
        sql(&mut connection, "drop publication \"Every\"\"thing\"").await;
    }
    sql(
        &mut connection,
        "alter table by_time replica identity full;
         create publication everything for table by_time with (publish_via_partition_root)",
    )
    .await;
    let id = new_id();
    assert!(claim(&mut connection, "by_time", id).await.unwrap());
    assert!(forget(&mut connection, "by_time", id).await.unwrap());
}

#[tokio::test]
async fn a_claim_waits_for_a_forget_and_its_end_decides() {
    let deployment = both_routings().await;
    let (mut connection, mut other) = (deployment.database.connect().await, deployment.database.connect().await);
    let pid = pid_of(&mut other).await;
    for table in TABLES {
        for (end, expected) in [("commit", "fresh"), ("rollback", "duplicate")] {
            let message = Claim::of(table, new_id());
            assert_eq!(message.outcome(&mut connection).await, "fresh");
            sql(&mut connection, "begin").await;
            assert!(forget(&mut connection, table, message.id.unwrap()).await.unwrap());
            assert_eq!(
                message.clone().waiting("20 milliseconds").outcome(&mut other).await,
                "in_flight",
                "{table}"
            );
            let (answer, ()) = tokio::join!(message.on(&mut other), async {
                wait_until_blocked(&deployment.database, pid).await;
                sql(&mut connection, end).await;
            });
            assert_eq!(answer.unwrap().0, expected, "{table}: {end}");
        }
    }
}

#[tokio::test]
async fn a_claim_forgotten_in_its_own_transaction_is_fresh_in_it() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    for table in TABLES {
        let id = new_id();
        sql(&mut connection, "begin").await;
        assert!(claim(&mut connection, table, id).await.unwrap());
        assert!(forget(&mut connection, table, id).await.unwrap());
        assert_eq!(
            try_claim(&mut connection, table, id, None).await.unwrap(),
            "fresh",
            "{table}"
        );
        assert_eq!(
            try_claim(&mut connection, table, id, None).await.unwrap(),
            "repeated",
            "{table}"
        );
        sql(&mut connection, "commit").await;
        assert_eq!(rows_of(&mut connection, table, id).await, 1);
    }
}

#[tokio::test]
async fn a_forget_names_its_consumer_where_there_are_many() {
    let deployment = Deployment::running(vec![for_many(spec("public.inbox"))]).await;
    let mut connection = deployment.database.connect().await;
    let message = Claim::of("inbox", new_id());
    for consumer in ["mailer", "biller"] {
        assert_eq!(message.clone().by(consumer).outcome(&mut connection).await, "fresh");
    }
    let unnamed = forget(&mut connection, "inbox", message.id.unwrap()).await.unwrap_err();
    assert_eq!(sqlstate(&unnamed), "22023");
    let forgotten: bool = sqlx::query_scalar("select inbox_forget($1, 'mailer')")
        .bind(message.id)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(forgotten);
    assert_eq!(message.clone().by("biller").outcome(&mut connection).await, "duplicate");
    assert_eq!(message.clone().by("mailer").outcome(&mut connection).await, "fresh");
}
