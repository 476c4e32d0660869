//! Claims of one id on either side of midnight, on a server whose clock is stepped: fresh exactly once.

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::{Day, clock::Clock};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use crate::support::{
    claims::{Answer, Claim, batch, pid_of, rows_of, wait_until_blocked},
    clock::ClockServer,
    inbox::{Deployment, attach_days_before, claim, random_id, spec, sql, steps, v7_at, v7_spec},
};

/// An ordinary night, the year's end, and the nights of February with and without a 29th.
const MIDNIGHTS: [&str; 5] = [
    "2027-06-16T00:00:00Z",
    "2028-01-01T00:00:00Z",
    "2028-02-29T00:00:00Z",
    "2028-03-01T00:00:00Z",
    "2029-03-01T00:00:00Z",
];

/// By the time of the claim, the same with sealed days and a digest of them, and by the id.
const TABLES: [&str; 3] = ["by_time", "by_digest", "by_id"];

/// A server with an inbox of each kind, ten seconds before midnight.
struct Night {
    server: ClockServer,
    midnight: DateTime<Utc>,
    deployment: Deployment,
}

impl Night {
    async fn before(midnight: &str) -> Self {
        Self::on(ClockServer::start(&[]).await, midnight).await
    }

    async fn on(server: ClockServer, midnight: &str) -> Self {
        let midnight: DateTime<Utc> = midnight.parse().unwrap();
        server.set_to(midnight - TimeDelta::hours(12));
        let mut with_digest = spec("public.by_digest");
        (with_digest.policy.seal_days, with_digest.policy.digest) = (true, true);
        let specs = vec![spec("public.by_time"), with_digest, v7_spec("public.by_id")];
        let deployment = Deployment::new(server.database().await, server.clock(), specs);
        deployment.init().await.unwrap();
        // As old as its retention, so that the digest covers all that claims look back into.
        let mut connection = deployment.database.connect().await;
        let today = Day::containing(server.now());
        attach_days_before(&mut connection, ("by_digest", "message_id"), today, 7).await;
        assert!(
            deployment
                .done()
                .await
                .iter()
                .any(|step| step.starts_with("build_digest "))
        );
        let night = Self {
            server,
            midnight,
            deployment,
        };
        night.evening();
        night
    }

    fn evening(&self) {
        self.server.set_to(self.midnight - TimeDelta::seconds(10));
    }

    fn morning(&self) {
        self.server.set_to(self.midnight + TimeDelta::seconds(10));
    }

    async fn connect(&self) -> PgConnection {
        self.deployment.database.connect().await
    }

    /// One message of every kind that the look-back, or the id's own day, could treat in its own way.
    fn messages(&self) -> Vec<(&'static str, Claim)> {
        let evening = self.midnight - TimeDelta::seconds(20);
        let morning = self.midnight + TimeDelta::seconds(20);
        let mut messages = vec![
            ("a v7 id that is its own day", Claim::of("by_id", v7_at(evening))),
            ("a v7 id of the next day", Claim::of("by_id", v7_at(morning))),
            (
                "a v7 id of five days ago",
                Claim::of("by_id", v7_at(evening - TimeDelta::days(5))),
            ),
        ];
        for table in ["by_time", "by_digest"] {
            let known = |created_at| Claim {
                created_at: Some(created_at),
                ..Claim::of(table, random_id())
            };
            messages.extend([
                ("a random id", Claim::of(table, random_id())),
                ("a random id created in the evening", known(evening)),
                ("a random id created two days ago", known(evening - TimeDelta::days(2))),
                ("a random id of a producer ahead of us", known(morning)),
                ("a v7 id", Claim::of(table, v7_at(evening))),
                ("a v7 id of a producer ahead of us", Claim::of(table, v7_at(morning))),
            ]);
        }
        messages
    }
}

fn fresh_at(answer: &Answer, table: &str, day: Day) {
    let (outcome, at) = answer;
    assert_eq!(outcome, "fresh", "{table}");
    assert_eq!(
        at.map(Day::containing),
        Some(day),
        "{table}: it belongs to the day of the server's clock"
    );
}

#[tokio::test]
async fn c8_an_id_claimed_before_midnight_is_a_duplicate_after_it() {
    let mut server = ClockServer::start(&[]).await;
    for midnight in MIDNIGHTS {
        let night = Night::on(server, midnight).await;
        let mut connection = night.connect().await;
        let messages = night.messages();
        let mut claimed = Vec::new();
        for (kind, message) in &messages {
            let answer = message.on(&mut connection).await.unwrap();
            assert_eq!(answer.0, "fresh", "{midnight}: {kind}");
            claimed.push(answer.1);
        }
        night.morning();
        for ((kind, message), at) in messages.iter().zip(claimed) {
            let again = message.on(&mut connection).await.unwrap();
            assert_eq!(again, ("duplicate".to_owned(), at), "{midnight}: {kind}");
            assert!(!message.fresh(&mut connection).await.unwrap(), "{midnight}: {kind}");
            assert_eq!(rows_of(&mut connection, message.table, message.id.unwrap()).await, 1);
        }
        server = night.server;
    }
}

#[tokio::test]
async fn c8_a_claim_that_waits_over_midnight_is_a_duplicate_once_its_twin_commits() {
    let mut server = ClockServer::start(&[]).await;
    for midnight in MIDNIGHTS {
        let night = Night::on(server, midnight).await;
        let mut connection = night.connect().await;
        for (kind, message) in night.messages() {
            night.evening();
            let mut work = connection.begin().await.unwrap();
            let first = message.on(&mut work).await.unwrap();
            assert_eq!(first.0, "fresh", "{midnight}: {kind}");
            night.morning();
            let twin = message.behind_its_twin(&night.deployment.database).await;
            work.commit().await.unwrap();
            assert_eq!(
                twin.end().await.unwrap(),
                ("duplicate".to_owned(), first.1),
                "{midnight}: {kind}"
            );
            assert_eq!(rows_of(&mut connection, message.table, message.id.unwrap()).await, 1);
        }
        server = night.server;
    }
}

#[tokio::test]
async fn c8_a_claim_that_waits_over_midnight_is_fresh_on_the_new_day_once_its_twin_rolls_back() {
    let mut server = ClockServer::start(&[]).await;
    for midnight in MIDNIGHTS {
        let night = Night::on(server, midnight).await;
        let mut connection = night.connect().await;
        for (kind, message) in night.messages() {
            night.evening();
            let mut work = connection.begin().await.unwrap();
            assert_eq!(message.outcome(&mut work).await, "fresh", "{midnight}: {kind}");
            // It begins to wait before midnight, and goes on after it.
            let twin = message.behind_its_twin(&night.deployment.database).await;
            night.morning();
            work.rollback().await.unwrap();
            let answer = twin.end().await.unwrap();
            if message.table != "by_id" {
                fresh_at(&answer, kind, Day::containing(night.midnight));
            } else {
                assert_eq!(answer.0, "fresh", "{midnight}: {kind}");
            }
            assert_eq!(
                message.outcome(&mut connection).await,
                "duplicate",
                "{midnight}: {kind}"
            );
            assert_eq!(rows_of(&mut connection, message.table, message.id.unwrap()).await, 1);
        }
        server = night.server;
    }
}

#[tokio::test]
async fn c8_a_message_that_becomes_too_old_while_its_claim_waits_is_judged_by_the_time_before_the_wait() {
    let night = Night::before("2027-06-16T00:00:00Z").await;
    let database = &night.deployment.database;
    let (mut connection, mut other) = (night.connect().await, night.connect().await);
    let pid = pid_of(&mut other).await;
    for (end, outcome) in [("commit", "duplicate"), ("rollback", "fresh")] {
        for boolean in [true, false] {
            night.evening();
            let message = Claim::of("by_id", v7_at(night.server.now() - TimeDelta::days(7)));
            sql(&mut connection, "begin").await;
            assert_eq!(message.outcome(&mut connection).await, "fresh");
            let waiting = async {
                if boolean {
                    let fresh = message.fresh(&mut other).await.unwrap();
                    (if fresh { "fresh" } else { "duplicate" }).to_owned()
                } else {
                    message.outcome(&mut other).await
                }
            };
            let (told, ()) = tokio::join!(waiting, async {
                wait_until_blocked(database, pid).await;
                night.morning();
                sql(&mut connection, end).await;
            });
            assert_eq!(told, outcome, "{end}");
            assert_eq!(rows_of(&mut connection, "by_id", message.id.unwrap()).await, 1);
            assert_eq!(message.outcome(&mut other).await, "too_old");
        }
    }
}

#[tokio::test]
async fn c8_a_transaction_that_began_before_midnight_claims_on_the_day_of_the_claim() {
    let night = Night::before("2027-06-16T00:00:00Z").await;
    let mut connection = night.connect().await;
    let mut other = night.connect().await;
    let mut work = connection.begin().await.unwrap();
    let began: DateTime<Utc> = sqlx::query_scalar("select now()").fetch_one(&mut *work).await.unwrap();
    assert!(began < night.midnight);
    let messages = night.messages();
    for (kind, message) in &messages {
        assert_eq!(message.outcome(&mut other).await, "fresh", "{kind}");
    }
    night.morning();
    for (kind, message) in &messages {
        assert_eq!(message.outcome(&mut work).await, "duplicate", "{kind}");
    }
    fresh_at(
        &Claim::of("by_time", random_id()).on(&mut work).await.unwrap(),
        "by_time",
        Day::containing(night.midnight),
    );
    work.commit().await.unwrap();
}

#[tokio::test]
async fn c8_a_batch_meets_what_was_claimed_before_midnight() {
    let night = Night::before("2028-02-29T00:00:00Z").await;
    let mut connection = night.connect().await;
    for table in TABLES {
        for wait in [None, Some("10 seconds")] {
            night.evening();
            let ids: Vec<Option<Uuid>> = (0..20)
                .map(|n| Some(v7_at(night.midnight + TimeDelta::seconds(n - 10))))
                .collect();
            assert_eq!(
                batch(&mut connection, table, &ids[..10], wait).await.unwrap(),
                ["fresh"; 10]
            );
            night.morning();
            let again = batch(&mut connection, table, &ids, wait).await.unwrap();
            assert_eq!(again[..10], ["duplicate"; 10], "{table}");
            assert_eq!(again[10..], ["fresh"; 10], "{table}");
        }
    }
}

#[tokio::test]
async fn c8_a_batch_that_waits_over_midnight_is_decided_by_its_twin() {
    let night = Night::before("2028-01-01T00:00:00Z").await;
    let (mut connection, mut other) = (night.connect().await, night.connect().await);
    for table in TABLES {
        for (commits, expected) in [(true, "duplicate"), (false, "fresh")] {
            night.evening();
            let ids: Vec<Option<Uuid>> = (0..10).map(|_| Some(v7_at(night.server.now()))).collect();
            let mut work = connection.begin().await.unwrap();
            assert_eq!(batch(&mut work, table, &ids, None).await.unwrap(), ["fresh"; 10]);
            night.morning();
            let pid = crate::support::claims::pid_of(&mut other).await;
            let (answer, ()) = tokio::join!(batch(&mut other, table, &ids, None), async {
                crate::support::claims::wait_until_blocked(&night.deployment.database, pid).await;
                if commits {
                    work.commit().await.unwrap();
                } else {
                    work.rollback().await.unwrap();
                }
            });
            assert_eq!(answer.unwrap(), [expected; 10], "{table}");
            for id in ids.into_iter().flatten() {
                assert_eq!(rows_of(&mut connection, table, id).await, 1, "{table}");
            }
        }
    }
}

#[tokio::test]
async fn a_bounded_wait_over_midnight_is_in_flight_and_then_a_duplicate() {
    let night = Night::before("2028-03-01T00:00:00Z").await;
    let (mut connection, mut other) = (night.connect().await, night.connect().await);
    for (kind, message) in night.messages() {
        night.evening();
        let mut work = connection.begin().await.unwrap();
        assert_eq!(message.outcome(&mut work).await, "fresh", "{kind}");
        night.morning();
        for wait in ["0", "50 milliseconds"] {
            let bounded = message.clone().waiting(wait);
            assert_eq!(
                bounded.on(&mut other).await.unwrap(),
                ("in_flight".to_owned(), None),
                "{kind}"
            );
        }
        work.commit().await.unwrap();
        assert_eq!(
            message.clone().waiting("0").outcome(&mut other).await,
            "duplicate",
            "{kind}"
        );
    }
}

#[tokio::test]
async fn c9_only_the_servers_clock_chooses_the_day() {
    let night = Night::before("2027-06-16T00:00:00Z").await;
    night.morning();
    // The host that maintains, and this process, live in another year.
    let deployment = Deployment {
        clock: Clock::system(),
        ..night.deployment.clone()
    };
    deployment.pass().await;
    let mut connection = night.connect().await;
    for (table, id) in [("by_time", random_id()), ("by_id", v7_at(night.server.now()))] {
        assert!(claim(&mut connection, table, id).await.unwrap());
        let leaf: String = sqlx::query_scalar(AssertSqlSafe(format!(
            "select tableoid::regclass::text from {table} where message_id = $1"
        )))
        .bind(id)
        .fetch_one(&mut connection)
        .await
        .unwrap();
        assert_eq!(leaf, format!("{table}_2027_06_16"));
    }
}

#[tokio::test]
async fn c10_a_clock_that_steps_back_over_midnight_hides_no_claim() {
    let night = Night::before("2028-01-01T00:00:00Z").await;
    let mut connection = night.connect().await;
    let messages = night.messages();
    night.morning();
    for (kind, message) in &messages {
        assert_eq!(message.outcome(&mut connection).await, "fresh", "{kind}");
    }
    let minute = TimeDelta::minutes(1);
    for back in [minute, minute * 59, minute * 60 - TimeDelta::seconds(5)] {
        night.server.set_to(night.midnight - back);
        for (kind, message) in &messages {
            assert_eq!(
                message.outcome(&mut connection).await,
                "duplicate",
                "{kind}, {back} before midnight"
            );
            assert_eq!(rows_of(&mut connection, message.table, message.id.unwrap()).await, 1);
        }
    }
    // And overlapping: the twin of the new day is still open when the clock is back on the old one.
    for (ends_well, expected) in [(true, "duplicate"), (false, "fresh")] {
        night.morning();
        let message = Claim::of("by_time", random_id());
        let mut work = connection.begin().await.unwrap();
        assert_eq!(message.outcome(&mut work).await, "fresh");
        night.evening();
        let twin = message.behind_its_twin(&night.deployment.database).await;
        if ends_well {
            work.commit().await.unwrap();
        } else {
            work.rollback().await.unwrap();
        }
        assert_eq!(twin.end().await.unwrap().0, expected);
    }
}

#[tokio::test]
async fn c26_an_id_is_a_duplicate_within_the_retention_and_no_longer() {
    let night = Night::before("2028-02-26T00:00:00Z").await;
    let mut connection = night.connect().await;
    let messages: Vec<(&str, Claim)> = night
        .messages()
        .into_iter()
        .filter(|(kind, _)| !kind.contains("five days"))
        .collect();
    for (kind, message) in &messages {
        assert_eq!(message.outcome(&mut connection).await, "fresh", "{kind}");
    }
    for day in 1..=7 {
        night.server.step(TimeDelta::days(1));
        night.deployment.done().await;
        for (kind, message) in &messages {
            assert_eq!(
                message.outcome(&mut connection).await,
                "duplicate",
                "{kind}, {day} days later"
            );
        }
    }
    // Two days more, and the day of the claims is expired; one more and its grace is over.
    let mut done = Vec::new();
    for _ in 8..=10 {
        night.server.step(TimeDelta::days(1));
        done.extend(steps(&night.deployment.pass().await));
    }
    for table in TABLES {
        assert!(done.contains(&format!("drop {table}_2028_02_25")), "{done:?}");
    }
    for (kind, message) in &messages {
        let expected = if message.table != "by_id" { "fresh" } else { "too_old" };
        assert_eq!(message.outcome(&mut connection).await, expected, "{kind}");
    }
}
