//! The life of inboxes over many days, on a server whose clock is stepped.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use inboxd::{Day, InboxSpec, Retention};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::support::{
    clock::ClockServer,
    inbox::{Deployment, claim, random_id, spec, steps, v7_at, v7_spec},
};

const RETENTION_DAYS: i64 = 3;
const GRACE_DAYS: i64 = 1;

fn short_lived(mut spec: InboxSpec) -> InboxSpec {
    spec.policy.retention = Retention::For(TimeDelta::days(RETENTION_DAYS));
    spec.policy.drop_grace = TimeDelta::days(GRACE_DAYS);
    spec.policy.ahead = inboxd::Ahead::new(2).unwrap();
    spec
}

/// An id that an inbox takes at an instant.
fn id_for(table: &str, now: DateTime<Utc>) -> Uuid {
    if table == "by_id" { v7_at(now) } else { random_id() }
}

#[tokio::test]
async fn forty_days_pass_without_a_missing_partition_or_an_old_one_too_many() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2027-12-20T13:00:00Z".parse().unwrap());
    let specs = vec![
        short_lived(spec("public.by_time")),
        short_lived(v7_spec("public.by_id")),
    ];
    let deployment = Deployment::new(server.database().await, server.clock(), specs);
    deployment.init().await.unwrap();
    deployment.done().await;
    let mut consumer = deployment.database.connect().await;
    let mut yesterday: Vec<(&str, Uuid)> = Vec::new();
    let mut dropped = 0;

    for day in 0..40_i64 {
        // Each day at another hour, and a claim before the pass: what was made ahead must be enough.
        server.step(TimeDelta::days(1) + TimeDelta::minutes((day * 37) % 60 - 30));
        let now = server.now();
        let today = Day::containing(now);
        let mut claimed = Vec::new();
        for table in ["by_time", "by_id"] {
            let id = id_for(table, now);
            assert!(
                claim(&mut consumer, table, id).await.unwrap(),
                "{today}: the first claim on {table} before the pass"
            );
            claimed.push((table, id));
        }
        for (table, id) in &yesterday {
            assert!(
                !claim(&mut consumer, table, *id).await.unwrap(),
                "{today}: yesterday's id on {table} is a duplicate"
            );
        }

        let done = deployment.done().await;
        dropped += done.iter().filter(|step| step.starts_with("drop ")).count();
        for (table, id) in &claimed {
            assert!(
                !claim(&mut consumer, table, *id).await.unwrap(),
                "{today}: today's id on {table} is a duplicate"
            );
        }
        yesterday = claimed;

        for table in ["by_time", "by_id"] {
            let tables = tables_of(&mut consumer, table).await;
            for offset in 0..=2 {
                let name = format!("{table}_{}", today.plus(offset).underscored());
                assert!(tables.contains(&name), "{today}: {name} is missing among {tables:?}");
            }
            let start_of_today = format!("{table}_{}", today.underscored());
            let old = tables.iter().filter(|name| **name < start_of_today).count();
            let most = usize::try_from(RETENTION_DAYS + GRACE_DAYS + 1).unwrap();
            assert!(old <= most, "{today}: {old} old partitions of {table}: {tables:?}");
        }
        assert_eq!(
            steps(&deployment.pass().await),
            Vec::<String>::new(),
            "{today}: a second pass changes nothing"
        );
    }

    assert!(
        dropped >= 60,
        "only {dropped} partitions were dropped in 40 days of two inboxes"
    );
    let early: Vec<(NaiveDate, DateTime<Utc>)> = sqlx::query_as(
        "select day, dropped_at from inboxd.partitions
         where dropped_at < (day + 1)::timestamp at time zone 'UTC' + make_interval(days => $1)",
    )
    .bind(i32::try_from(RETENTION_DAYS + GRACE_DAYS).unwrap())
    .fetch_all(&mut consumer)
    .await
    .unwrap();
    assert_eq!(early, Vec::new(), "dropped before retention and grace were over");
}

/// Every table named like a partition of the inbox, attached or detached.
async fn tables_of(connection: &mut PgConnection, table: &str) -> Vec<String> {
    sqlx::query_scalar("select relname::text from pg_class where relkind = 'r' and relname like $1 order by 1")
        .bind(format!("{table}\\_20%"))
        .fetch_all(connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn s6_after_forty_days_down_today_comes_first_and_nothing_past_is_made() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let deployment = Deployment::new(server.database().await, server.clock(), vec![spec("public.inbox")]);
    deployment.init().await.unwrap();
    deployment.done().await;

    server.step(TimeDelta::days(40));
    let report = deployment.pass().await;
    let done = steps(&report);
    let expected: Vec<String> = (0..=7)
        .map(|offset| {
            let today: Day = "2027-01-10".parse().unwrap();
            format!("create inbox_{}", today.plus(offset).underscored())
        })
        .collect();
    assert_eq!(
        done, expected,
        "today first, then ahead, and nothing else while the leap is not confirmed"
    );
    let after = &report.inboxes[0].after;
    let text = serde_json::to_string(&after.findings).unwrap();
    assert!(
        text.contains("blocked_by_clock") && text.contains("--confirm-clock"),
        "{text}"
    );
    assert!(
        text.contains("\"gap\"") && text.contains("2027-01-09"),
        "the gap is reported: {text}"
    );
    assert!(
        !text.contains("2026-12-20"),
        "days past the retention are no gap: {text}"
    );

    // A person confirms the clock: what expired in the outage leaves, at most four a run, and later runs take the rest.
    let confirmed = match deployment.outcome(true).await.unwrap() {
        inboxd::maintain::PassOutcome::Ran(report) => steps(&report),
        other => panic!("{other:?}"),
    };
    let detached = |days: std::ops::RangeInclusive<u32>| {
        days.map(|day| format!("detach inbox_2026_12_{day:02}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(confirmed, detached(1..=4));
    assert_eq!(deployment.done().await, detached(5..=8));
    server.step(TimeDelta::hours(25));
    let last = deployment.done().await;
    assert!(last.contains(&"drop inbox_2026_12_01".to_owned()), "{last:?}");
}

#[tokio::test]
async fn s7_an_idle_inbox_keeps_its_days_ahead_for_thirty_days() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-02-10T09:00:00Z".parse().unwrap());
    let deployment = Deployment::new(server.database().await, server.clock(), vec![spec("public.inbox")]);
    deployment.init().await.unwrap();
    for _ in 0..30 {
        deployment.done().await;
        let newest = deployment.partitions("inbox").await.pop().unwrap();
        let wanted = Day::containing(server.now()).plus(7);
        assert_eq!(newest, format!("inbox_{}", wanted.underscored()));
        server.step(TimeDelta::days(1));
    }
    assert!(
        claim(&mut deployment.database.connect().await, "inbox", random_id())
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn s5_ten_seconds_before_midnight_on_an_empty_inbox_today_and_all_days_ahead_are_made() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-31T23:59:50Z".parse().unwrap());
    let specs = vec![spec("public.by_time"), v7_spec("public.by_id")];
    let deployment = Deployment::new(server.database().await, server.clock(), specs);
    deployment.init().await.unwrap();
    server.set_to("2026-12-31T23:59:50Z".parse().unwrap());
    deployment.done().await;
    let mut consumer = deployment.database.connect().await;
    for (now, name) in [
        ("2026-12-31T23:59:55Z", "2026_12_31"),
        ("2027-01-01T00:00:05Z", "2027_01_01"),
        ("2027-01-07T23:59:59Z", "2027_01_07"),
    ] {
        for table in ["by_time", "by_id"] {
            server.set_to(now.parse().unwrap());
            let id = id_for(table, server.now());
            assert!(claim(&mut consumer, table, id).await.unwrap());
            let partition: String = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
                "select tableoid::regclass::text from {table} where message_id = $1"
            )))
            .bind(id)
            .fetch_one(&mut consumer)
            .await
            .unwrap();
            assert_eq!(partition, format!("{table}_{name}"));
        }
    }
}

#[tokio::test]
async fn s14_the_days_round_a_year_end_and_a_leap_day_have_exact_names_and_bounds() {
    let server = ClockServer::start(&[]).await;
    for (start, table) in [
        ("2026-12-25T00:00:00Z", "year_end"),
        ("2028-02-27T23:50:00Z", "leap_day"),
    ] {
        server.set_to(start.parse().unwrap());
        let mut spec = spec(&format!("public.{table}"));
        spec.policy.ahead = inboxd::Ahead::new(11).unwrap();
        let deployment = Deployment::new(server.database().await, server.clock(), vec![spec]);
        deployment.init().await.unwrap();
        deployment.done().await;
        let bounds: Vec<(String, String)> = sqlx::query_as(
            "select relation.relname::text, pg_get_expr(relation.relpartbound, 0)
             from pg_inherits join pg_class as relation on relation.oid = inhrelid
             where inhparent = $1::regclass order by 1",
        )
        .bind(format!("public.{table}"))
        .fetch_all(&mut deployment.maintenance().await)
        .await
        .unwrap();
        let first = Day::containing(start.parse().unwrap());
        let expected: Vec<(String, String)> = (0..12)
            .map(|offset| {
                let day = first.plus(offset);
                (
                    format!("{table}_{}", day.underscored()),
                    format!(
                        "FOR VALUES FROM ('{day} 00:00:00+00') TO ('{} 00:00:00+00')",
                        day.next()
                    ),
                )
            })
            .collect();
        assert_eq!(bounds, expected);
        let names: Vec<&str> = bounds.iter().map(|(name, _)| name.as_str()).collect();
        let odd = if table == "leap_day" {
            "leap_day_2028_02_29"
        } else {
            "year_end_2027_01_05"
        };
        assert!(names.contains(&odd), "{names:?}");
    }
}
