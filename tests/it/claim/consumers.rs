//! One consumer or many.

use sqlx::AssertSqlSafe;

use super::{for_many, new_id};
use crate::support::{
    claims::Claim,
    inbox::{Deployment, spec, sqlstate, v7_spec},
};

#[tokio::test]
async fn c15_an_inbox_for_one_refuses_a_consumers_name() {
    let deployment = super::both_routings().await;
    let mut connection = deployment.database.connect().await;
    for table in super::TABLES {
        for consumer in ["mailer", ""] {
            let claim = Claim::of(table, new_id()).by(consumer);
            for error in [
                claim.on(&mut connection).await.unwrap_err(),
                claim.clone().waiting("1 second").on(&mut connection).await.unwrap_err(),
                claim.fresh(&mut connection).await.unwrap_err(),
            ] {
                assert_eq!(sqlstate(&error), "22023", "{table}: {error}");
            }
            let unnamed = Claim {
                consumer: None,
                ..claim
            };
            assert_eq!(
                unnamed.outcome(&mut connection).await,
                "fresh",
                "{table}: nothing was claimed"
            );
        }
    }
}

#[tokio::test]
async fn c15_an_inbox_for_many_is_fresh_once_for_each_consumer() {
    let specs = vec![for_many(spec("public.by_time")), for_many(v7_spec("public.by_id"))];
    let deployment = Deployment::running(specs).await;
    let mut connection = deployment.database.connect().await;
    for table in super::TABLES {
        let message = Claim::of(table, new_id());
        for consumer in [None, Some("")] {
            let unnamed = Claim {
                consumer,
                ..message.clone()
            };
            assert_eq!(
                sqlstate(&unnamed.on(&mut connection).await.unwrap_err()),
                "22023",
                "{table}"
            );
            assert_eq!(
                sqlstate(&unnamed.fresh(&mut connection).await.unwrap_err()),
                "22023",
                "{table}"
            );
            let batch = format!("select * from {table}_claim_batch(array[$1], array['orders'], null, $2, null)");
            let refused = sqlx::query(AssertSqlSafe(batch))
                .bind(new_id())
                .bind(consumer)
                .execute(&mut connection)
                .await
                .unwrap_err();
            assert_eq!(sqlstate(&refused), "22023", "{table}");
        }
        for consumer in ["mailer", "Mailer", "mailer ", "büro"] {
            let claim = message.clone().by(consumer);
            assert_eq!(claim.outcome(&mut connection).await, "fresh", "{table}: {consumer}");
            assert_eq!(claim.outcome(&mut connection).await, "duplicate", "{table}: {consumer}");
            assert!(!claim.fresh(&mut connection).await.unwrap(), "{table}: {consumer}");
        }
        let rows = crate::support::claims::rows_of(&mut connection, table, message.id.unwrap()).await;
        assert_eq!(rows, 4, "{table}");
    }
}

#[tokio::test]
async fn c15_a_consumer_does_not_wait_for_another_ones_twin() {
    let specs = vec![for_many(spec("public.by_time")), for_many(v7_spec("public.by_id"))];
    let deployment = Deployment::running(specs).await;
    let (mut connection, mut other) = (deployment.database.connect().await, deployment.database.connect().await);
    for table in super::TABLES {
        let message = Claim::of(table, new_id());
        crate::support::inbox::sql(&mut connection, "begin").await;
        assert_eq!(message.clone().by("mailer").outcome(&mut connection).await, "fresh");
        assert_eq!(
            message.clone().by("biller").waiting("0").outcome(&mut other).await,
            "fresh"
        );
        assert_eq!(
            message.clone().by("mailer").waiting("0").outcome(&mut other).await,
            "in_flight"
        );
        let twin = message.clone().by("mailer").behind_its_twin(&deployment.database).await;
        crate::support::inbox::sql(&mut connection, "commit").await;
        assert_eq!(twin.end().await.unwrap().0, "duplicate", "{table}");
    }
}
