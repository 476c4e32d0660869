//! Which locks a claim holds, what the advisory one is made of, and what the function says about itself.

use chrono::TimeDelta;
use inboxd::{InboxSpec, claim::ClaimConstants};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{for_many, new_id, now};
use crate::support::{
    claims::{Claim, batch},
    clock::ClockServer,
    inbox::{Deployment, random_id, spec, sql, v7_at, v7_spec},
};

/// The keys of the advisory locks that the session holds, as the functions that take them are given them.
async fn advisory_keys(connection: &mut PgConnection) -> Vec<i64> {
    sqlx::query_scalar(
        "select (classid::bigint << 32) | objid::bigint from pg_locks
         where pid = pg_backend_pid() and locktype = 'advisory' and objsubid = 1 order by 1",
    )
    .fetch_all(connection)
    .await
    .unwrap()
}

async fn deployed_with_lock_key(spec: InboxSpec, key: i64) -> Deployment {
    let deployment = Deployment::initialized(vec![spec]).await;
    let mut connection = deployment.database.connect().await;
    sql(&mut connection, format!("update inboxd.inboxes set lock_key = {key}")).await;
    deployment.init().await.unwrap();
    deployment.done().await;
    deployment
}

/// Two versions of the functions with two formulas, side by side during an upgrade, would exclude nobody: these numbers
/// never change.
#[tokio::test]
async fn c36_the_formula_of_the_lock_key_is_what_it_always_was() {
    for (key, id, expected) in GOLDEN {
        let deployment = deployed_with_lock_key(spec("public.inbox"), key).await;
        let mut connection = deployment.database.connect().await;
        for wait in [None, Some("1 second")] {
            sql(&mut connection, "begin").await;
            let message = Claim {
                wait,
                ..Claim::of("inbox", id.parse().unwrap())
            };
            message.on(&mut connection).await.unwrap();
            assert_eq!(advisory_keys(&mut connection).await, [expected], "{key}, {id}");
            sql(&mut connection, "rollback").await;
        }
        sql(&mut connection, "begin").await;
        let id: Uuid = id.parse().unwrap();
        batch(&mut connection, "inbox", &[Some(id)], None).await.unwrap();
        assert_eq!(advisory_keys(&mut connection).await, [expected], "in a batch");
        sql(&mut connection, "rollback").await;
        sql(&mut connection, "begin").await;
        sqlx::query("select inbox_forget($1)")
            .bind(id)
            .execute(&mut connection)
            .await
            .unwrap();
        assert_eq!(advisory_keys(&mut connection).await, [expected], "in a forget");
        sql(&mut connection, "rollback").await;
    }
    let deployment = deployed_with_lock_key(for_many(spec("public.inbox")), 42).await;
    let mut connection = deployment.database.connect().await;
    for (consumer, id, expected) in GOLDEN_OF_MANY {
        sql(&mut connection, "begin").await;
        let message = Claim::of("inbox", id.parse().unwrap()).by(consumer);
        message.on(&mut connection).await.unwrap();
        assert_eq!(advisory_keys(&mut connection).await, [expected], "{consumer}, {id}");
        sql(&mut connection, "rollback").await;
    }
}

const GOLDEN: [(i64, &str, i64); 3] = [
    (42, "f47ac10b-58cc-4372-a567-0e02b2c3d479", 7_721_748_087_112_378_182),
    (42, "018f2d3c-4b5a-7c6d-8e9f-0a1b2c3d4e5f", -3_054_377_763_885_626_088),
    (
        -7_046_029_254_386_353_131,
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        -1_383_949_087_721_466_750,
    ),
];

const GOLDEN_OF_MANY: [(&str, &str, i64); 2] = [
    (
        "mailer",
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        3_728_115_946_592_016_911,
    ),
    (
        "büro",
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        -6_986_336_634_774_246_214,
    ),
];

/// The inbox, its partitions and their indexes that the session holds a lock on. A relation counts once: of the fast path,
/// two modes on one relation take one place.
async fn relation_locks(connection: &mut PgConnection, table: &str) -> Vec<String> {
    sqlx::query_scalar(
        "select distinct replace(relation::regclass::text, $1, 'inbox') from pg_locks
         where pid = pg_backend_pid() and locktype = 'relation' and relation::regclass::text like $1 || '%' order by 1",
    )
    .bind(table)
    .fetch_all(connection)
    .await
    .unwrap()
}

/// An inbox of either routing in the middle of its life: all days of retention are there, and each has rows.
async fn in_its_prime() -> (ClockServer, Deployment) {
    let server = ClockServer::start(&[]).await;
    server.set_to("2027-06-09T12:00:00Z".parse().unwrap());
    let specs = vec![spec("public.by_time"), v7_spec("public.by_id")];
    let deployment = Deployment::new(server.database().await, server.clock(), specs);
    deployment.init().await.unwrap();
    deployment.done().await;
    for _ in 0..7 {
        server.step(TimeDelta::days(1));
        deployment.done().await;
    }
    (server, deployment)
}

/// Only 16 relation locks fit the fast path of a transaction before PostgreSQL 18.
#[tokio::test]
async fn a_claim_holds_as_few_relation_locks_as_its_look_back_has_days() {
    let (server, deployment) = in_its_prime().await;
    let mut connection = deployment.database.connect().await;
    let today = "inbox_2027_06_16";
    // Often enough that a cached plan, which locks every partition in it, would come up.
    for _ in 0..8 {
        for (table, id) in [
            ("by_time", random_id()),
            ("by_time", v7_at(server.now())),
            ("by_id", v7_at(server.now())),
        ] {
            for outcome in ["fresh", "duplicate"] {
                assert_eq!(Claim::of(table, id).outcome(&mut connection).await, outcome);
            }
        }
    }
    let mut shown = Vec::new();
    for (kind, table, id) in [
        ("random", "by_time", random_id()),
        ("v7", "by_time", v7_at(server.now())),
        ("v7", "by_id", v7_at(server.now())),
    ] {
        for outcome in ["fresh", "duplicate"] {
            sql(&mut connection, "begin").await;
            assert_eq!(Claim::of(table, id).outcome(&mut connection).await, outcome);
            let locks = relation_locks(&mut connection, table).await;
            // PostgreSQL 18 also locks the parent's own key where it reads by it.
            let counted = locks.iter().filter(|lock| !lock.starts_with("inbox_pkey")).count();
            shown.push((kind, table, outcome, counted));
            let ahead = locks
                .iter()
                .any(|lock| lock.starts_with("inbox_2027") && lock.as_str() > "inbox_2027_06_17");
            assert!(!ahead, "{kind} in {table}: no day ahead is locked: {locks:?}");
            assert!(locks.iter().any(|lock| lock.starts_with(today)), "{locks:?}");
            sql(&mut connection, "commit").await;
        }
    }
    // The parent; table and index of each day that is looked into; the table of today, and its index where a row is
    // read from it.
    assert_eq!(
        shown,
        [
            ("random", "by_time", "fresh", 16),
            ("random", "by_time", "duplicate", 17),
            ("v7", "by_time", "fresh", 4),
            ("v7", "by_time", "duplicate", 5),
            ("v7", "by_id", "fresh", 2),
            ("v7", "by_id", "duplicate", 3),
        ]
    );
}

/// The key of the leaf that took the row is asked for in the server's own cache of it.
#[tokio::test]
async fn a_fresh_claim_locks_nothing_of_the_catalog() {
    for spec in [spec("public.by_time"), for_many(spec("public.by_time"))] {
        let consumer = (spec.policy.consumers == inboxd::Consumers::Many).then_some("mailer");
        let deployment = Deployment::running(vec![spec]).await;
        let mut connection = deployment.database.connect().await;
        let message = || Claim {
            consumer,
            ..Claim::of("by_time", v7_at(now()))
        };
        // The first of a session reads the catalog to plan.
        assert!(message().fresh(&mut connection).await.unwrap());
        sql(&mut connection, "begin").await;
        assert!(message().fresh(&mut connection).await.unwrap());
        let of_the_catalog: Vec<String> = sqlx::query_scalar(
            "select relation::regclass::text from pg_locks
             where pid = pg_backend_pid() and locktype = 'relation' and relation::regclass::text like 'pg_index%'",
        )
        .fetch_all(&mut connection)
        .await
        .unwrap();
        assert_eq!(of_the_catalog, Vec::<String>::new(), "{consumer:?}");
        sql(&mut connection, "rollback").await;
    }
}

/// PostgreSQL plans a statement of a function for any parameters at its sixth execution in a session, and that plan locks
/// every partition: the claim then waited for maintenance on a day that no claim uses yet.
#[tokio::test]
async fn no_duplicate_of_a_session_locks_a_day_ahead() {
    let deployment = super::both_routings().await;
    let mut connection = deployment.database.connect().await;
    for table in super::TABLES {
        let message = Claim::of(table, new_id());
        assert_eq!(message.outcome(&mut connection).await, "fresh");
        for nth in 1..=12 {
            sql(&mut connection, "begin").await;
            assert_eq!(message.outcome(&mut connection).await, "duplicate");
            let locks = relation_locks(&mut connection, table).await;
            let two_days_ahead = format!("inbox_{}", inboxd::Day::containing(now()).plus(2).underscored());
            let ahead: Vec<_> = locks
                .iter()
                .filter(|lock| **lock >= two_days_ahead && !lock.starts_with("inbox_pkey"))
                .collect();
            assert!(ahead.is_empty(), "duplicate {nth} in {table} locks {ahead:?}");
            sql(&mut connection, "commit").await;
        }
    }
}

#[tokio::test]
async fn a_claim_sees_partitions_that_came_and_went_under_its_cached_plans() {
    let (server, deployment) = in_its_prime().await;
    let mut connection = deployment.database.connect().await;
    let mut claimed = Vec::new();
    for _ in 0..12 {
        for (table, id) in [
            ("by_time", random_id()),
            ("by_time", v7_at(server.now())),
            ("by_id", v7_at(server.now())),
        ] {
            let message = Claim::of(table, id);
            for outcome in ["fresh", "duplicate"] {
                assert_eq!(message.outcome(&mut connection).await, outcome, "{}", server.now());
            }
            claimed.push((server.now(), message));
        }
        server.step(TimeDelta::days(1));
        // Makes, detaches and drops, while this session keeps its plans.
        deployment.pass().await;
        for (at, message) in &claimed {
            if server.now() - *at < TimeDelta::days(7) {
                assert_eq!(message.outcome(&mut connection).await, "duplicate", "{at}");
            }
        }
    }
}

/// The days of a look are constants of its plan, and nothing renews the plan while no partition comes or goes.
#[tokio::test]
async fn c8_plans_that_were_made_on_another_day_are_not_believed() {
    for steps in [[1, 1, 1], [2, 2, -1], [2, -2, 2], [4, -3, 2]] {
        let (server, deployment) = in_its_prime().await;
        let mut connection = deployment.database.connect().await;
        let mut claimed = Vec::new();
        for step in [0].into_iter().chain(steps) {
            server.step(TimeDelta::days(step));
            for round in 0..8 {
                let (random, v7) = (random_id(), v7_at(server.now()));
                for id in [random, v7] {
                    let message = Claim::of("by_time", id);
                    if round % 2 == 0 {
                        assert!(message.fresh(&mut connection).await.unwrap());
                    } else {
                        assert_eq!(message.outcome(&mut connection).await, "fresh");
                    }
                }
                let ids = [Some(random_id()), Some(v7_at(server.now()))];
                let outcomes = batch(&mut connection, "by_time", &ids, None).await.unwrap();
                assert_eq!(outcomes, ["fresh", "fresh"]);
                let all = [Some(random), Some(v7), ids[0], ids[1]];
                claimed.extend(all.map(|id| (server.now(), id.unwrap())));
            }
            // A clock that stepped back hides what is further ahead than the tolerance.
            for (_, id) in claimed.iter().filter(|(at, _)| *at <= server.now()) {
                let message = Claim::of("by_time", *id);
                assert_eq!(message.outcome(&mut connection).await, "duplicate", "{steps:?}");
                assert!(!message.fresh(&mut connection).await.unwrap(), "{steps:?}");
                let outcomes = batch(&mut connection, "by_time", &[Some(*id)], None).await.unwrap();
                assert_eq!(outcomes, ["duplicate"], "{steps:?}");
            }
        }
    }
}

#[tokio::test]
async fn the_comment_of_the_claim_says_what_it_was_made_with() {
    let mut spec = for_many(v7_spec("public.inbox"));
    spec.claim.max_batch = 321;
    let deployment = Deployment::running(vec![spec.clone()]).await;
    let mut connection = deployment.database.connect().await;
    let (comment, id, lock_key): (String, Uuid, i64) = sqlx::query_as(
        "select obj_description('inbox_claim(uuid, text, timestamptz, text)'::regprocedure, 'pg_proc'), id, lock_key
         from inboxd.inboxes",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    let read = ClaimConstants::from_comment(&comment).unwrap();
    assert_eq!(read, ClaimConstants::of(&spec, id, lock_key));
    let value: serde_json::Value = serde_json::from_str(&comment).unwrap();
    assert_eq!(
        value,
        serde_json::json!({"inboxd": {
            "version": 7, "inbox": id, "lock_key": lock_key, "routing": "message_id", "consumers": "many",
            "retention_seconds": 604_800, "ahead_days": 7, "producer_clock_tolerance_seconds": 86_400,
            "clock_step_tolerance_seconds": 3_600, "max_batch": 321, "digest": false,
        }})
    );
}

#[tokio::test]
async fn c36_claims_stay_exact_while_init_replaces_the_functions() {
    let deployment = super::both_routings().await;
    let mut connections = Vec::new();
    for _ in 0..3 {
        connections.push(deployment.database.connect().await);
    }
    let mut changed = deployment.clone();
    for round in 0..12 {
        for spec in &mut changed.specs {
            spec.claim.max_batch = 1_000 - round % 2;
        }
        for table in super::TABLES {
            let message = Claim::of(table, v7_at(now()));
            let [a, b, c] = &mut connections[..] else {
                unreachable!()
            };
            let (replaced, a, b, c) = tokio::join!(changed.init(), message.on(a), message.on(b), message.on(c));
            replaced.unwrap();
            let mut outcomes = [a, b, c].map(|answer| answer.unwrap().0);
            outcomes.sort();
            assert_eq!(outcomes, ["duplicate", "duplicate", "fresh"], "{table}");
        }
    }
    assert!(Claim::of("by_time", new_id()).fresh(&mut connections[0]).await.unwrap());
}
