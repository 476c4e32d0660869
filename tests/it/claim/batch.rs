//! The batch: outcomes in the order of the input, all of it or nothing.

use std::time::Instant;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use super::{TABLES, both_routings, new_id};
use crate::support::{
    claims::{Claim, batch, pid_of, rows_of, wait_until_blocked},
    inbox::{Deployment, claim, spec, sql, sqlstate, v7_spec},
};

#[tokio::test]
async fn outcomes_come_in_the_order_of_the_input() {
    let deployment = both_routings().await;
    let (mut connection, mut holder) = (deployment.database.connect().await, deployment.database.connect().await);
    for table in TABLES {
        let (held, done) = (new_id(), new_id());
        let mut holding = holder.begin().await.unwrap();
        assert!(claim(&mut holding, table, held).await.unwrap());
        assert!(claim(&mut connection, table, done).await.unwrap());
        // Many fresh ones between them, so that the order of the locks is another one.
        let mut ids: Vec<Option<Uuid>> = (0..20).map(|_| Some(new_id())).collect();
        let mut expected = vec!["fresh"; 20];
        for (place, id, outcome) in [(3, held, "in_flight"), (9, done, "duplicate"), (15, held, "in_flight")] {
            ids.insert(place, Some(id));
            expected.insert(place, outcome);
        }
        let outcomes = batch(&mut connection, table, &ids, Some("20 milliseconds"))
            .await
            .unwrap();
        assert_eq!(outcomes, expected, "{table}");
        holding.commit().await.unwrap();
        let again = batch(&mut connection, table, &ids, Some("20 milliseconds"))
            .await
            .unwrap();
        assert!(again.iter().all(|outcome| outcome == "duplicate"), "{table}: {again:?}");
    }
}

#[tokio::test]
async fn c12_an_id_that_stands_twice_in_a_batch_is_fresh_once() {
    let deployment = both_routings().await;
    let (mut connection, mut holder) = (deployment.database.connect().await, deployment.database.connect().await);
    for table in TABLES {
        for wait in [None, Some("1 second")] {
            let (a, b, held) = (new_id(), new_id(), new_id());
            let ids = [Some(a), Some(b), Some(a), Some(a), None, Some(b), None];
            let outcomes = batch(&mut connection, table, &ids, wait).await.unwrap();
            assert_eq!(
                outcomes,
                [
                    "fresh", "fresh", "repeated", "repeated", "invalid", "repeated", "invalid"
                ],
                "{table}"
            );
            assert_eq!(rows_of(&mut connection, table, a).await, 1);
            let outcomes = batch(&mut connection, table, &[Some(a), Some(a)], wait).await.unwrap();
            assert_eq!(outcomes, ["duplicate", "duplicate"], "{table}");

            let mut holding = holder.begin().await.unwrap();
            assert!(claim(&mut holding, table, held).await.unwrap());
            let outcomes = batch(&mut connection, table, &[Some(held), Some(held)], Some("0"))
                .await
                .unwrap();
            assert_eq!(outcomes, ["in_flight", "in_flight"], "{table}");
        }
    }
}

#[tokio::test]
async fn c13_an_invalid_id_is_reported_for_its_place_and_the_rest_go_on() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    for table in TABLES {
        for wait in [None, Some("1 second")] {
            let mut ids: Vec<Option<Uuid>> = (0..200).map(|_| Some(new_id())).collect();
            ids[0] = None;
            ids[100] = Some(Uuid::nil());
            ids[199] = None;
            let outcomes = batch(&mut connection, table, &ids, wait).await.unwrap();
            for (place, outcome) in outcomes.iter().enumerate() {
                let expected = if [0, 100, 199].contains(&place) {
                    "invalid"
                } else {
                    "fresh"
                };
                assert_eq!(outcome, expected, "{table}, place {place}");
            }
        }
    }
}

#[tokio::test]
async fn c14_a_batch_over_the_limit_is_refused_and_nothing_is_half_done() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    for table in TABLES {
        sql(&mut connection, "begin; savepoint a").await;
        let ids: Vec<Option<Uuid>> = (0..1_001).map(|_| Some(new_id())).collect();
        let error = batch(&mut connection, table, &ids, None).await.unwrap_err();
        assert_eq!(sqlstate(&error), "54000", "{table}");
        assert!(
            error.to_string().contains("1001 claims is over the limit of 1000"),
            "{error}"
        );
        sql(&mut connection, "rollback to a").await;
        let held: i64 =
            sqlx::query_scalar("select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'")
                .fetch_one(&mut connection)
                .await
                .unwrap();
        let rows: i64 = sqlx::query_scalar(AssertSqlSafe(format!("select count(*) from {table}")))
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!((held, rows), (0, 0), "{table}");
        let outcomes = batch(&mut connection, table, &ids[1..], None).await.unwrap();
        assert!(
            outcomes.iter().all(|outcome| outcome == "fresh"),
            "{table}: a thousand are taken"
        );
        sql(&mut connection, "rollback").await;
    }
}

#[tokio::test]
async fn arrays_of_different_length_are_refused_and_an_empty_batch_is_nothing() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    let id = format!("array['{}'::uuid]", new_id());
    for table in TABLES {
        for arguments in [
            "$id, null, null, null, null",
            "$id, array[]::text[], null, null, null",
            "$id, array['a', 'b'], null, null, null",
            "$id, array['a'], array[]::timestamptz[], null, null",
            "$id, array['a'], array[null, null]::timestamptz[], null, null",
            "array[]::uuid[], array['a'], null, null, null",
            "null, array['a'], null, null, null",
        ] {
            let call = format!("select * from {table}_claim_batch({})", arguments.replace("$id", &id));
            let error = sqlx::query(AssertSqlSafe(call))
                .execute(&mut connection)
                .await
                .unwrap_err();
            assert_eq!(sqlstate(&error), "2202E", "{arguments}");
        }
        for arguments in ["null, null, null, null, null", "'{}', '{}', '{}', null, '1 second'"] {
            let call = format!("select * from {table}_claim_batch({arguments})");
            let rows = sqlx::query(AssertSqlSafe(call))
                .fetch_all(&mut connection)
                .await
                .unwrap();
            assert_eq!(rows.len(), 0, "{arguments}");
        }
        let call = format!(
            "select outcome from {table}_claim_batch({id}, array['a'], array[null]::timestamptz[], null, null)"
        );
        let outcome: String = sqlx::query_scalar(AssertSqlSafe(call))
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(outcome, "fresh");
    }
}

async fn subtransactions_of(connection: &mut PgConnection, table: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(format!("select count(distinct xmin::text) from {table}")))
        .fetch_one(connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_bounded_batch_costs_one_subtransaction_and_one_more_for_each_id_in_flight() {
    let deployment = both_routings().await;
    let (mut connection, mut holder) = (deployment.database.connect().await, deployment.database.connect().await);
    for table in TABLES {
        let ids: Vec<Option<Uuid>> = (0..300).map(|_| Some(new_id())).collect();
        let mut work = connection.begin().await.unwrap();
        let outcomes = batch(&mut work, table, &ids, Some("1 second")).await.unwrap();
        assert_eq!(outcomes, ["fresh"; 300]);
        assert_eq!(subtransactions_of(&mut work, table).await, 1, "{table}");
        work.rollback().await.unwrap();

        let mut holding = holder.begin().await.unwrap();
        for place in [50, 150, 250] {
            assert!(claim(&mut holding, table, ids[place].unwrap()).await.unwrap());
        }
        let mut work = connection.begin().await.unwrap();
        let outcomes = batch(&mut work, table, &ids, Some("0")).await.unwrap();
        for (place, outcome) in outcomes.iter().enumerate() {
            let expected = if [50, 150, 250].contains(&place) {
                "in_flight"
            } else {
                "fresh"
            };
            assert_eq!(outcome, expected, "{table}, place {place}");
        }
        assert!(subtransactions_of(&mut work, table).await <= 4, "{table}");
        // What the batch was told is also what it holds.
        let again = batch(&mut work, table, &ids, Some("0")).await.unwrap();
        assert_eq!(
            again.iter().filter(|outcome| *outcome == "repeated").count(),
            297,
            "{table}"
        );
        work.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn a_bounded_batch_waits_no_longer_in_all_than_it_was_allowed() {
    let deployment = both_routings().await;
    let (mut connection, mut holder) = (deployment.database.connect().await, deployment.database.connect().await);
    for table in TABLES {
        let ids: Vec<Option<Uuid>> = (0..40).map(|_| Some(new_id())).collect();
        let mut holding = holder.begin().await.unwrap();
        assert_eq!(batch(&mut holding, table, &ids, None).await.unwrap(), ["fresh"; 40]);
        let begin = Instant::now();
        let outcomes = batch(&mut connection, table, &ids, Some("300 milliseconds"))
            .await
            .unwrap();
        assert_eq!(outcomes, ["in_flight"; 40]);
        // Forty waits of their own would be twelve seconds.
        assert!(begin.elapsed().as_secs() < 6, "{table}: {:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn a_batch_goes_on_as_soon_as_the_twin_it_waits_for_has_ended() {
    let deployment = both_routings().await;
    let (mut connection, mut holder) = (deployment.database.connect().await, deployment.database.connect().await);
    let pid = pid_of(&mut connection).await;
    for table in TABLES {
        let ids: Vec<Option<Uuid>> = (0..20).map(|_| Some(new_id())).collect();
        let mut holding = holder.begin().await.unwrap();
        assert!(claim(&mut holding, table, ids[7].unwrap()).await.unwrap());
        let (outcomes, ()) = tokio::join!(batch(&mut connection, table, &ids, Some("1 hour")), async {
            wait_until_blocked(&deployment.database, pid).await;
            holding.commit().await.unwrap();
        });
        let outcomes = outcomes.unwrap();
        assert_eq!(outcomes[7], "duplicate", "{table}");
        assert_eq!(
            outcomes.iter().filter(|outcome| *outcome == "fresh").count(),
            19,
            "{table}"
        );
        assert_eq!(
            Claim::of(table, ids[0].unwrap()).outcome(&mut connection).await,
            "duplicate"
        );
    }
}

/// The answer of the insert is told apart by its order.
#[tokio::test]
async fn a_large_batch_with_a_duplicate_is_told_rightly_where_the_server_has_little_memory_to_sort() {
    let mut specs = vec![spec("public.by_time"), v7_spec("public.by_id")];
    specs.iter_mut().for_each(|spec| spec.claim.max_batch = 5_000);
    let deployment = Deployment::running(specs).await;
    let mut connection = deployment.database.connect().await;
    sql(&mut connection, "set work_mem = '64kB'").await;
    for table in TABLES {
        let ids: Vec<Option<Uuid>> = (0..5_000).map(|_| Some(new_id())).collect();
        assert!(claim(&mut connection, table, ids[2_500].unwrap()).await.unwrap());
        let outcomes = batch(&mut connection, table, &ids, None).await.unwrap();
        for (place, outcome) in outcomes.iter().enumerate() {
            let expected = if place == 2_500 { "duplicate" } else { "fresh" };
            assert_eq!(outcome, expected, "{table}, place {place}");
        }
    }
}
