//! Which ids and which times an inbox takes.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use super::{TABLES, both_routings, new_id};
use crate::support::{
    claims::{Claim, batch},
    clock::ClockServer,
    inbox::{Deployment, claim, random_id, spec, sqlstate, v7_at, v7_spec},
};

async fn count(connection: &mut PgConnection, table: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(format!("select count(*) from {table}")))
        .fetch_one(connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn c16_an_empty_or_nil_id_is_refused_and_nothing_claimed() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    for table in TABLES {
        for id in [None, Some(Uuid::nil())] {
            let claim = Claim {
                table,
                id,
                ..Claim::default()
            };
            assert_eq!(
                claim.on(&mut connection).await.unwrap(),
                ("invalid".to_owned(), None),
                "{table}"
            );
            assert_eq!(
                claim.clone().waiting("0").outcome(&mut connection).await,
                "invalid",
                "{table}"
            );
            let error = claim.fresh(&mut connection).await.unwrap_err();
            assert_eq!(sqlstate(&error), "IX003", "{table}");
        }
        assert_eq!(count(&mut connection, table).await, 0);
    }
}

#[tokio::test]
async fn ids_that_are_no_uuid_v7_are_refused_where_the_id_is_the_day() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    let good = *new_id().as_bytes();
    let mut refused = vec![random_id(), Uuid::max()];
    for version in (0..16_u8).filter(|version| *version != 7) {
        let mut bytes = good;
        bytes[6] = (bytes[6] & 0x0f) | (version << 4);
        refused.push(Uuid::from_bytes(bytes));
    }
    for variant in [0x00, 0x40, 0xc0, 0xe0] {
        let mut bytes = good;
        bytes[8] = (bytes[8] & 0x1f) | variant;
        refused.push(Uuid::from_bytes(bytes));
    }
    for id in &refused {
        assert_eq!(
            Claim::of("by_id", *id).outcome(&mut connection).await,
            "invalid",
            "{id}"
        );
        assert_eq!(
            sqlstate(&claim(&mut connection, "by_id", *id).await.unwrap_err()),
            "IX003",
            "{id}"
        );
        assert_eq!(
            Claim::of("by_time", *id).outcome(&mut connection).await,
            "fresh",
            "{id}"
        );
        assert_eq!(
            Claim::of("by_time", *id).outcome(&mut connection).await,
            "duplicate",
            "{id}"
        );
    }
    let ids: Vec<Option<Uuid>> = refused.iter().copied().map(Some).collect();
    let outcomes = batch(&mut connection, "by_id", &ids, None).await.unwrap();
    assert!(outcomes.iter().all(|outcome| outcome == "invalid"));
    // Every value of the free bits, at both ends.
    for free in [0x00, 0xff] {
        let mut bytes = good;
        bytes[6] = 0x70 | (free & 0x0f);
        bytes[8] = 0x80 | (free & 0x3f);
        for byte in [7, 9, 10, 11, 12, 13, 14, 15] {
            bytes[byte] = free;
        }
        assert_eq!(
            Claim::of("by_id", Uuid::from_bytes(bytes))
                .outcome(&mut connection)
                .await,
            "fresh"
        );
    }
}

#[tokio::test]
async fn the_horizon_of_message_id_routing_is_exact_to_the_millisecond() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2028-02-28T12:00:00Z".parse().unwrap());
    let deployment = Deployment::new(server.database().await, server.clock(), vec![v7_spec("public.by_id")]);
    deployment.init().await.unwrap();
    deployment.done().await;
    let mut connection = deployment.database.connect().await;
    let millisecond = TimeDelta::milliseconds(1);
    // Seven days of retention and seven ahead, with a 29 February between them.
    let oldest: DateTime<Utc> = "2028-02-21T00:00:00Z".parse().unwrap();
    let newest: DateTime<Utc> = "2028-03-07T00:00:00Z".parse().unwrap();
    for (instant, expected, state) in [
        (oldest, "fresh", ""),
        (oldest - millisecond, "too_old", "IX001"),
        (newest - millisecond, "fresh", ""),
        (newest, "too_new", "IX002"),
        (DateTime::UNIX_EPOCH, "too_old", "IX001"),
        (
            DateTime::from_timestamp_millis((1 << 48) - 1).unwrap(),
            "too_new",
            "IX002",
        ),
    ] {
        let message = Claim::of("by_id", v7_at(instant));
        let (outcome, at) = message.on(&mut connection).await.unwrap();
        assert_eq!(outcome, expected, "{instant}");
        assert_eq!(at.is_some(), expected == "fresh", "{instant}");
        let outcomes = batch(&mut connection, "by_id", &[Some(v7_at(instant))], Some("0"))
            .await
            .unwrap();
        assert_eq!(outcomes, [expected], "{instant}");
        match message.fresh(&mut connection).await {
            Ok(fresh) => assert!(!fresh && state.is_empty(), "{instant}"),
            Err(error) => assert_eq!(sqlstate(&error), state, "{instant}"),
        }
    }
    // A day later the edge has moved by a day.
    server.step(TimeDelta::days(1));
    deployment.done().await;
    for (instant, expected) in [(oldest, "too_old"), (newest, "fresh")] {
        assert_eq!(
            Claim::of("by_id", v7_at(instant)).outcome(&mut connection).await,
            expected
        );
    }
}

#[tokio::test]
async fn any_creation_time_that_a_producer_sends_is_taken() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    for created_at in [
        "infinity",
        "-infinity",
        "4714-11-24 00:00:00+00 BC",
        "294276-12-31 23:59:59.999999+00",
        "1970-01-01 00:00:00+00",
    ] {
        for (table, id) in [
            ("by_time", random_id()),
            ("by_time", new_id()),
            ("by_time", "ffffffff-ffff-7fff-bfff-ffffffffffff".parse().unwrap()),
            ("by_time", "00000000-0000-7000-8000-000000000000".parse().unwrap()),
            ("by_id", new_id()),
        ] {
            let call = format!("select outcome from {table}_try_claim($1, 'orders', '{created_at}', null, null)");
            let first: Result<String, sqlx::Error> = sqlx::query_scalar(AssertSqlSafe(call.clone()))
                .bind(id)
                .fetch_one(&mut connection)
                .await;
            let first = first.unwrap_or_else(|error| panic!("{created_at}: {error}"));
            assert!(
                ["fresh", "duplicate"].contains(&first.as_str()),
                "{created_at}: {first}"
            );
            let again: String = sqlx::query_scalar(AssertSqlSafe(call))
                .bind(id)
                .fetch_one(&mut connection)
                .await
                .unwrap();
            assert_eq!(again, "duplicate", "{created_at}");
        }
    }
}

#[tokio::test]
async fn a_repeated_claim_is_repeated_also_when_the_clock_stepped_back_in_its_transaction() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2027-06-16T12:00:00Z".parse().unwrap());
    let specs = vec![spec("public.by_time"), v7_spec("public.by_id")];
    let deployment = Deployment::new(server.database().await, server.clock(), specs);
    deployment.init().await.unwrap();
    deployment.done().await;
    server.step(TimeDelta::days(3));
    let mut connection = deployment.database.connect().await;
    for table in TABLES {
        sqlx::query("begin").execute(&mut connection).await.unwrap();
        sqlx::query("select now()").execute(&mut connection).await.unwrap();
        server.step(TimeDelta::days(-2));
        let message = Claim::of(table, v7_at(server.now()));
        assert_eq!(message.outcome(&mut connection).await, "fresh", "{table}");
        assert_eq!(message.outcome(&mut connection).await, "repeated", "{table}");
        sqlx::query("commit").execute(&mut connection).await.unwrap();
        server.step(TimeDelta::days(2));
    }
}

#[tokio::test]
async fn waits_of_any_length_are_taken_and_a_negative_one_is_refused() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    for table in TABLES {
        for wait in ["0", "1 microsecond", "0.4 milliseconds", "178000000 years", "1 mon"] {
            let claim = Claim {
                wait: Some(wait),
                ..Claim::of(table, new_id())
            };
            assert_eq!(claim.outcome(&mut connection).await, "fresh", "{wait}");
            assert_eq!(
                batch(&mut connection, table, &[Some(new_id())], Some(wait))
                    .await
                    .unwrap(),
                ["fresh"],
                "{wait}"
            );
        }
        for wait in ["-1 microsecond", "-178000000 years"] {
            let claim = Claim {
                wait: Some(wait),
                ..Claim::of(table, new_id())
            };
            assert_eq!(
                sqlstate(&claim.on(&mut connection).await.unwrap_err()),
                "22023",
                "{wait}"
            );
            let refused = batch(&mut connection, table, &[Some(new_id())], Some(wait))
                .await
                .unwrap_err();
            assert_eq!(sqlstate(&refused), "22023", "{wait}");
        }
    }
}
