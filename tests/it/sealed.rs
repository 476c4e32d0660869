//! Days that are over take no row any more, and what that is good for: a clock that steps back, however far.

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::{maintain::StepOutcome, postgres::ErrorKind};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::support::{
    claims::{Claim, batch, pid_of, rows_of},
    clock::ClockServer,
    inbox::{Deployment, random_id, spec, sql, sqlstate, v7_at},
};

const TABLE: &str = "by_time";
const DAY: &str = "by_time_2027_06_16";

/// An inbox whose days are sealed, at noon of the 16th.
async fn at_noon(settings: &[(&str, &str)], consumers: inboxd::Consumers) -> (ClockServer, Deployment) {
    let server = ClockServer::start(settings).await;
    server.set_to(on_16th("12:00:00"));
    let mut spec = spec("public.by_time");
    spec.policy.seal_days = true;
    spec.policy.consumers = consumers;
    let deployment = Deployment::new(server.database().await, server.clock(), vec![spec]);
    deployment.init().await.unwrap();
    deployment.done().await;
    (server, deployment)
}

async fn for_one(settings: &[(&str, &str)]) -> (ClockServer, Deployment) {
    at_noon(settings, inboxd::Consumers::One).await
}

fn on_16th(time: &str) -> DateTime<Utc> {
    format!("2027-06-16T{time}Z").parse().unwrap()
}

fn on_17th(time: &str) -> DateTime<Utc> {
    on_16th(time) + TimeDelta::days(1)
}

/// What a pass seals, all of whose steps must be done.
async fn seals(deployment: &Deployment) -> Vec<String> {
    let mut steps = deployment.done().await;
    steps.retain(|step| step.starts_with("seal "));
    steps
}

async fn sealed(connection: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar(
        "select tgrelid::regclass::text from pg_trigger where tgname = 'inboxd_sealed' and tgenabled = 'A' order by 1",
    )
    .fetch_all(connection)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_day_is_sealed_once_no_clock_that_is_allowed_for_can_step_back_into_it() {
    let (server, deployment) = for_one(&[]).await;
    let mut connection = deployment.database.connect().await;
    let before = Claim::of(TABLE, random_id());
    assert!(before.fresh(&mut connection).await.unwrap());
    server.set_to(on_17th("00:59:50"));
    assert!(seals(&deployment).await.is_empty());
    server.set_to(on_17th("01:00:10"));
    assert_eq!(seals(&deployment).await, [format!("seal {DAY}")]);
    assert_eq!(sealed(&mut connection).await, [DAY]);
    assert!(deployment.done().await.is_empty(), "once");

    // Claims do not notice, and whatever else would write into the day does.
    assert_eq!(before.outcome(&mut connection).await, "duplicate");
    assert_eq!(Claim::of(TABLE, random_id()).outcome(&mut connection).await, "fresh");
    for statement in [
        format!(
            "insert into {TABLE} values (gen_random_uuid(), 'orders', '2027-06-16 23:00+00') on conflict do nothing"
        ),
        format!("insert into {DAY} values (gen_random_uuid(), 'orders', '2027-06-16 23:00+00')"),
        format!("update {TABLE} set processed_at = '2027-06-16 23:00+00' where processed_at >= '2027-06-17 00:00+00'"),
        format!(
            "set session_replication_role = replica; insert into {DAY} values (gen_random_uuid(), '', '2027-06-16 23:00+00')"
        ),
    ] {
        let error = sqlx::raw_sql(sqlx::AssertSqlSafe(statement.clone()))
            .execute(&mut connection)
            .await;
        assert_eq!(sqlstate(&error.unwrap_err()), "55000", "{statement}");
    }
    // A forget still can.
    sql(&mut connection, "set session_replication_role = origin").await;
    let forgotten: bool = sqlx::query_scalar("select by_time_forget($1)")
        .bind(before.id)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(forgotten);
    assert_eq!(before.outcome(&mut connection).await, "fresh");
}

/// One id for each form in which it can come again.
pub(crate) struct Forms {
    pub ids: Vec<Uuid>,
    consumer: Option<&'static str>,
}

impl Forms {
    pub(crate) fn new(consumer: Option<&'static str>, now: DateTime<Utc>) -> Self {
        let ids = (0..4).flat_map(|_| [random_id(), v7_at(now)]).collect();
        Self { ids, consumer }
    }

    /// What each form says of its id, in two lists: of single claims, and of a batch.
    pub(crate) async fn outcomes(&self, connection: &mut PgConnection) -> Vec<String> {
        let mut outcomes = Vec::new();
        for (n, id) in self.ids.iter().enumerate() {
            let message = Claim {
                consumer: self.consumer,
                ..Claim::of(TABLE, *id)
            };
            outcomes.push(match n / 2 {
                0 => message.outcome(connection).await,
                1 => message.waiting("1 second").outcome(connection).await,
                2 if message.fresh(connection).await.unwrap() => "fresh".to_owned(),
                2 => "duplicate".to_owned(),
                _ => self.batch(connection, &[Some(*id)], None).await.remove(0),
            });
        }
        outcomes
    }

    pub(crate) async fn batch(
        &self,
        connection: &mut PgConnection,
        ids: &[Option<Uuid>],
        wait: Option<&str>,
    ) -> Vec<String> {
        if self.consumer.is_none() {
            return batch(connection, TABLE, ids, wait).await.unwrap();
        }
        let text = "select outcome from by_time_claim_batch($1, array_fill('orders'::text, array[cardinality($1)]), null, $2, $3::text::interval) order by ord";
        sqlx::query_scalar(text)
            .bind(ids)
            .bind(self.consumer)
            .bind(wait)
            .fetch_all(connection)
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn c8_a_clock_that_steps_back_into_a_sealed_day_hides_no_claim() {
    for (consumers, consumer) in [
        (inboxd::Consumers::One, None),
        (inboxd::Consumers::Many, Some("mailer")),
    ] {
        let (server, deployment) = at_noon(&[], consumers).await;
        let mut connection = deployment.database.connect().await;
        let on_the_day = Forms::new(consumer, server.now());
        assert!(
            on_the_day
                .outcomes(&mut connection)
                .await
                .iter()
                .all(|told| told == "fresh")
        );
        server.set_to(on_17th("03:00:00"));
        assert_eq!(seals(&deployment).await, [format!("seal {DAY}")]);
        let after_it = Forms::new(consumer, server.now());
        assert!(
            after_it
                .outcomes(&mut connection)
                .await
                .iter()
                .all(|told| told == "fresh")
        );

        // Five hours, and then before the sealed day, in a session that has its plans and in one that makes them now.
        for back_to in [on_16th("22:00:00"), on_16th("00:30:00")] {
            server.set_to(back_to);
            let mut other = deployment.database.connect().await;
            for session in [&mut connection, &mut other] {
                for earlier in [&on_the_day, &after_it] {
                    let told = earlier.outcomes(session).await;
                    assert!(told.iter().all(|told| told == "duplicate"), "{back_to}: {told:?}");
                }
                let new = Forms::new(consumer, server.now());
                let told = new.outcomes(session).await;
                assert!(told.iter().all(|told| told == "fresh"), "{back_to}: {told:?}");
                let told = new.outcomes(session).await;
                assert!(told.iter().all(|told| told == "duplicate"), "{back_to}: {told:?}");
                for wait in [None, Some("1 second")] {
                    let (fresh, twice) = (random_id(), v7_at(server.now()));
                    let ids = [fresh, twice, after_it.ids[0], on_the_day.ids[1], twice].map(Some);
                    let told = new.batch(session, &ids, wait).await;
                    let wanted = ["fresh", "fresh", "duplicate", "duplicate", "repeated"];
                    assert_eq!(told, wanted, "{back_to}, wait {wait:?}");
                    let told = new.batch(session, &ids, wait).await;
                    assert!(told.iter().all(|told| told == "duplicate"), "{back_to}: {told:?}");
                    for id in [fresh, twice] {
                        assert_eq!(rows_of(session, TABLE, id).await, 1);
                        assert_eq!(rows_of(session, DAY, id).await, 0, "the sealed day takes none");
                    }
                }
            }
            server.set_to(on_17th("04:00:00"));
            for earlier in [&on_the_day, &after_it] {
                let told = earlier.outcomes(&mut connection).await;
                assert!(told.iter().all(|told| told == "duplicate"), "forth again: {told:?}");
            }
        }
    }
}

/// What was claimed on a day that is still open, beyond the one at which a claim begins anew.
#[tokio::test]
async fn c8_a_clock_that_steps_back_over_two_midnights_hides_no_claim_once_the_first_day_is_sealed() {
    let (server, deployment) = for_one(&[]).await;
    let mut connection = deployment.database.connect().await;
    server.set_to(on_17th("03:00:00"));
    assert_eq!(seals(&deployment).await, [format!("seal {DAY}")]);
    server.set_to(on_17th("00:30:00") + TimeDelta::days(1));
    deployment.pass().await;
    assert_eq!(sealed(&mut connection).await, [DAY]);
    let later = Forms::new(None, server.now());
    assert!(later.outcomes(&mut connection).await.iter().all(|told| told == "fresh"));
    server.set_to(on_16th("22:00:00"));
    let told = later.outcomes(&mut connection).await;
    assert!(told.iter().all(|told| told == "duplicate"), "{told:?}");
}

#[tokio::test]
async fn a_handler_that_is_open_over_midnight_keeps_its_day_open_and_is_named() {
    let (server, deployment) = for_one(&[]).await;
    let mut handler = deployment.database.connect().await;
    let mut reader = deployment.database.connect().await;
    sql(&mut handler, "set application_name = 'a slow handler'").await;
    let message = Claim::of(TABLE, random_id());
    let mut work = handler.begin().await.unwrap();
    assert_eq!(message.outcome(&mut work).await, "fresh");
    let pid = pid_of(&mut work).await;
    // Who only reads is in nobody's way, and not blamed.
    sql(&mut reader, format!("begin; select count(*) from {DAY}")).await;

    server.set_to(on_17th("02:00:00"));
    let report = deployment.pass().await;
    let step = report.steps().find(|step| step.step.action.as_str() == "seal").unwrap();
    let StepOutcome::Failed { kind, error } = &step.outcome else {
        panic!("{step:?}");
    };
    assert_eq!(*kind, ErrorKind::LockTimeout);
    assert!(error.contains(&format!("pid {pid} (a slow handler")), "{error}");
    assert_eq!(error.matches("pid ").count(), 1, "{error}");
    assert!(sealed(&mut reader).await.is_empty());

    let twin = message.behind_its_twin(&deployment.database).await;
    work.commit().await.unwrap();
    assert_eq!(twin.end().await.unwrap().0, "duplicate");
    assert_eq!(seals(&deployment).await, [format!("seal {DAY}")], "beside the reader");
}

#[tokio::test]
async fn a_prepared_transaction_keeps_its_day_open_until_it_ends() {
    for end in ["commit", "rollback"] {
        let (server, deployment) = for_one(&[("max_prepared_transactions", "4")]).await;
        let mut connection = deployment.database.connect().await;
        let message = Claim::of(TABLE, random_id());
        sql(&mut connection, "begin").await;
        assert_eq!(message.outcome(&mut connection).await, "fresh");
        sql(&mut connection, "prepare transaction 'work'").await;
        server.set_to(on_17th("02:00:00"));
        deployment.pass().await;
        assert!(sealed(&mut connection).await.is_empty());
        sql(&mut connection, format!("{end} prepared 'work'")).await;
        deployment.done().await;
        assert_eq!(sealed(&mut connection).await, [DAY]);
        let wanted = if end == "commit" { "duplicate" } else { "fresh" };
        assert_eq!(message.outcome(&mut connection).await, wanted);
    }
}

/// A claim on an older day does not look into a younger one.
#[tokio::test]
async fn no_day_is_sealed_before_an_older_one() {
    let (server, deployment) = for_one(&[]).await;
    let mut connection = deployment.database.connect().await;
    let mut handler = deployment.database.connect().await;
    sql(&mut handler, "begin").await;
    assert_eq!(Claim::of(TABLE, random_id()).outcome(&mut handler).await, "fresh");
    server.set_to(on_17th("12:00:00") + TimeDelta::days(1));
    let report = deployment.pass().await;
    let seals: Vec<_> = report
        .steps()
        .filter(|step| step.step.action.as_str() == "seal")
        .collect();
    assert_eq!(seals.len(), 2);
    assert!(matches!(seals[0].outcome, StepOutcome::Failed { .. }));
    let StepOutcome::Skipped { why } = &seals[1].outcome else {
        panic!("{:?}", seals[1]);
    };
    assert!(why.contains(DAY), "{why}");
    assert!(sealed(&mut connection).await.is_empty());
    sql(&mut handler, "commit").await;
    deployment.done().await;
    assert_eq!(sealed(&mut connection).await, [DAY, "by_time_2027_06_17"]);
}

#[tokio::test]
async fn a_day_stays_sealed_when_it_leaves_the_inbox_and_comes_back() {
    let (server, deployment) = for_one(&[]).await;
    let mut connection = deployment.database.connect().await;
    let message = Claim::of(TABLE, random_id());
    assert!(message.fresh(&mut connection).await.unwrap());
    server.set_to(on_17th("02:00:00"));
    deployment.done().await;
    sql(&mut connection, format!("alter table {TABLE} detach partition {DAY}")).await;
    assert_eq!(deployment.done().await, [format!("attach {DAY}")]);
    assert_eq!(sealed(&mut connection).await, [DAY]);
    assert_eq!(message.outcome(&mut connection).await, "duplicate");
    server.set_to(on_16th("22:00:00"));
    let new = Claim::of(TABLE, random_id());
    assert_eq!(new.outcome(&mut connection).await, "fresh");
    assert_eq!(rows_of(&mut connection, DAY, new.id.unwrap()).await, 0);
}

#[tokio::test]
async fn no_day_is_sealed_that_a_subscription_brings_rows_to() {
    let (server, deployment) = for_one(&[]).await;
    let mut connection = deployment.database.connect().await;
    sql(
        &mut connection,
        format!("insert into pg_subscription_rel (srsubid, srrelid, srsubstate) values (1, '{TABLE}'::regclass, 'r')"),
    )
    .await;
    server.set_to(on_17th("02:00:00"));
    assert!(seals(&deployment).await.is_empty());
    sql(&mut connection, "delete from pg_subscription_rel").await;
    assert_eq!(seals(&deployment).await, [format!("seal {DAY}")]);
}

#[tokio::test]
async fn functions_that_cannot_deal_with_a_sealed_day_keep_days_open() {
    let (server, deployment) = for_one(&[]).await;
    let mut connection = deployment.database.connect().await;
    sql(
        &mut connection,
        "do $$ begin execute format('comment on function by_time_claim is %L', regexp_replace(
           obj_description('by_time_claim'::regproc, 'pg_proc'), '\"version\":[0-9]+', '\"version\":4')); end $$",
    )
    .await;
    server.set_to(on_17th("02:00:00"));
    assert!(seals(&deployment).await.is_empty());
    deployment.init().await.unwrap();
    assert_eq!(seals(&deployment).await, [format!("seal {DAY}")]);
}
