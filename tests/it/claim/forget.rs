//! `<t>_forget`: takes one id out of the journal, and leaves a trace.

use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use super::{TABLES, both_routings, for_many, new_id};
use crate::support::{
    claims::{Claim, pid_of, rows_of, wait_until_blocked},
    inbox::{Deployment, claim, spec, sql, sqlstate, try_claim},
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
    let id = new_id();
    sql(&mut connection, "begin").await;
    assert!(claim(&mut connection, "by_time", id).await.unwrap());
    let error = forget(&mut other, "by_time", id).await.unwrap_err();
    assert_eq!(sqlstate(&error), "55P03", "{error}");
    sql(&mut connection, "commit").await;
    assert!(forget(&mut other, "by_time", id).await.unwrap());

    // In message_id routing there is no lock: what is not committed is not there to be forgotten.
    sql(&mut connection, "begin").await;
    assert!(claim(&mut connection, "by_id", id).await.unwrap());
    assert!(!forget(&mut other, "by_id", id).await.unwrap());
    sql(&mut connection, "commit").await;
    assert!(!claim(&mut other, "by_id", id).await.unwrap());
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
