//! Days on hold.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use inboxd::{
    Day, InboxSpec,
    maintain::{
        RunReport, StepOutcome,
        operate::{HeldNow, OperateError, OperateErrorKind, hold, holds, release},
    },
};
use tokio::task::JoinHandle;

use super::{alice, audit, in_december, line, operator, short_lived};
use crate::support::{
    claims::{eventually, wait_until_any_blocked},
    clock::ClockServer,
    inbox::{Deployment, spec, sql, v7_spec},
};

fn day(text: &str) -> Day {
    text.parse().unwrap()
}

#[tokio::test]
async fn s21_a_held_day_stays_past_its_expiry_and_leaves_once_it_is_released() {
    let server = ClockServer::start(&[]).await;
    let deployment = in_december(&server, vec![short_lived(spec("public.inbox"))]).await;
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    let (operator, spec, held_day) = (operator(&deployment, &alice), &deployment.specs[0], day("2026-12-01"));

    let held = hold(&mut connection, operator, spec, held_day, " asked for by audit ")
        .await
        .unwrap();
    assert_eq!(
        (held.is_new, held.partition.as_deref(), held.hold.reason.as_str()),
        (true, Some("inbox_2026_12_01"), "asked for by audit")
    );
    server.step(TimeDelta::hours(1));
    let again = hold(&mut connection, operator, spec, held_day, "another reason")
        .await
        .unwrap();
    assert_eq!((again.is_new, &again.hold), (false, &held.hold), "the first one stands");
    assert_eq!(
        holds(&mut connection, &deployment.name, &deployment.specs)
            .await
            .unwrap(),
        std::slice::from_ref(&held.hold)
    );

    for _ in 0..4 {
        server.step(TimeDelta::days(1));
        deployment.done().await;
    }
    let plan = deployment.plan().await.remove(0).plan;
    assert!(
        deployment
            .partitions("inbox")
            .await
            .contains(&"inbox_2026_12_01".to_owned())
    );
    assert!(
        !deployment
            .partitions("inbox")
            .await
            .contains(&"inbox_2026_12_02".to_owned()),
        "the others go on"
    );
    let finding = plan
        .findings
        .iter()
        .find(|finding| finding.day == Some(held_day))
        .unwrap();
    assert!(
        finding.message.contains("on hold for 4d") && finding.remedy.contains("--release"),
        "{finding:?}"
    );

    let released = release(&mut connection, operator, spec, held_day).await.unwrap();
    assert_eq!(released.hold, Some(held.hold));
    let nothing = release(&mut connection, operator, spec, held_day).await.unwrap();
    assert_eq!(nothing.hold, None);
    assert!(deployment.done().await.contains(&"detach inbox_2026_12_01".to_owned()));
    assert_eq!(
        audit(&mut connection).await,
        [
            line("hold", Some("inbox"), Some("asked for by audit"), Some("2026-12-01")),
            line("release_hold", Some("inbox"), None, Some("2026-12-01")),
        ]
    );
}

#[tokio::test]
async fn a_day_may_be_held_where_the_inbox_is_to_have_it_and_nowhere_else() {
    let server = ClockServer::start(&[]).await;
    let specs = vec![
        short_lived(spec("public.by_time")),
        short_lived(v7_spec("public.by_id")),
    ];
    let deployment = in_december(&server, specs).await;
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    let operator = operator(&deployment, &alice);
    sql(&mut connection, "drop table public.by_time_2026_12_08").await;
    for spec in &deployment.specs {
        // The first and the last day that it is to have; the last one's partition is gone.
        for text in ["2026-11-29", "2026-12-08"] {
            hold(&mut connection, operator, spec, day(text), "why not")
                .await
                .unwrap();
        }
        for text in ["2026-11-28", "2026-12-09", "1970-01-01", "9999-12-31"] {
            let error = hold(&mut connection, operator, spec, day(text), "why not")
                .await
                .unwrap_err();
            assert_eq!(error.kind(), OperateErrorKind::NoSuchDay, "{text}: {error}");
            assert!(error.to_string().contains("2026-11-29 to 2026-12-08"), "{error}");
        }
        for reason in ["", "  ", &"x".repeat(501), "a\0b"] {
            let error = hold(&mut connection, operator, spec, day("2026-12-02"), reason)
                .await
                .unwrap_err();
            assert_eq!(error.kind(), OperateErrorKind::Invalid, "{error}");
        }
    }
    assert_eq!(
        audit(&mut connection).await.len(),
        4,
        "what was refused is not on the audit"
    );
}

#[tokio::test]
async fn a_day_whose_partition_was_dropped_cannot_be_held_any_more() {
    let server = ClockServer::start(&[]).await;
    let deployment = in_december(&server, vec![short_lived(spec("public.inbox"))]).await;
    server.step(TimeDelta::days(3));
    deployment.done().await;
    server.step(TimeDelta::days(1));
    assert!(deployment.done().await.contains(&"drop inbox_2026_12_01".to_owned()));
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    let error = hold(
        &mut connection,
        operator(&deployment, &alice),
        &deployment.specs[0],
        day("2026-12-01"),
        "late",
    )
    .await
    .unwrap_err();
    assert_eq!(error.kind(), OperateErrorKind::Dropped, "{error}");
    assert!(error.to_string().contains("2026-12-05T12:"), "{error}");
}

#[tokio::test]
async fn an_inbox_that_is_unknown_or_anothers_is_refused_with_the_remedy() {
    let mut deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    let today = Day::containing(deployment.clock.now());
    let unknown = spec("public.elsewhere");
    let error = hold(&mut connection, operator(&deployment, &alice), &unknown, today, "x")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), OperateErrorKind::UnknownInbox);
    assert!(error.remedy().contains("inboxd init"), "{error}");
    deployment.name = "blue".to_owned();
    let error = hold(
        &mut connection,
        operator(&deployment, &alice),
        &deployment.specs[0],
        today,
        "x",
    )
    .await
    .unwrap_err();
    assert_eq!(error.kind(), OperateErrorKind::NotOurs);
    assert!(error.remedy().contains("inboxd takeover"), "{error}");
}

#[tokio::test]
async fn s21_a_day_that_is_held_after_the_plan_was_made_is_not_detached() {
    let server = ClockServer::start(&[]).await;
    let mut deployment = in_december(&server, vec![short_lived(spec("public.inbox"))]).await;
    server.step(TimeDelta::days(4));
    // The creates wait for this lock while the plan, which has two detaches, is made already.
    let mut other = deployment.database.connect().await;
    sql(
        &mut other,
        "begin; lock table public.inbox in share update exclusive mode",
    )
    .await;
    deployment.timeouts.lock = std::time::Duration::from_secs(30);
    let passing = tokio::spawn({
        let deployment = deployment.clone();
        async move { deployment.pass().await }
    });
    crate::support::claims::wait_until_any_blocked(&deployment.database).await;
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    hold(
        &mut connection,
        operator(&deployment, &alice),
        &deployment.specs[0],
        day("2026-12-01"),
        "now",
    )
    .await
    .unwrap();
    sql(&mut other, "commit").await;
    let report = passing.await.unwrap();
    let outcome = |name: &str| {
        let is_it = |step: &&inboxd::maintain::StepReport| {
            step.step.action.as_str() == "detach" && step.step.relation.as_str() == name
        };
        report.steps().find(is_it).map(|step| step.outcome.clone()).unwrap()
    };
    assert!(
        matches!(outcome("inbox_2026_12_01"), StepOutcome::Failed { error, .. } if error.contains("on hold")),
        "{report:?}"
    );
    assert!(
        deployment
            .partitions("inbox")
            .await
            .contains(&"inbox_2026_12_01".to_owned())
    );
}

/// A pass that waits for its locks for as long as it takes.
fn patient_pass(deployment: &Deployment) -> JoinHandle<RunReport> {
    let mut deployment = deployment.clone();
    deployment.timeouts.lock = Duration::from_secs(60);
    deployment.timeouts.statement = Duration::from_secs(90);
    tokio::spawn(async move { deployment.pass().await })
}

/// Puts a day of an inbox on hold, on a connection of its own.
async fn hold_of(deployment: &Deployment, spec: &InboxSpec, day: Day) -> Result<HeldNow, OperateError> {
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    hold(&mut connection, operator(deployment, &alice), spec, day, "asked for").await
}

fn outcome(report: &RunReport, action: &str, relation: &str) -> StepOutcome {
    let step = report
        .steps()
        .find(|step| step.step.action.as_str() == action && step.step.relation.as_str() == relation);
    step.unwrap_or_else(|| panic!("{report:?}")).outcome.clone()
}

fn state(held: &HeldNow) -> serde_json::Value {
    serde_json::to_value(held).unwrap()["state"].clone()
}

/// Ends each drop of a table in a wait for whoever has this lock.
const SLOW_DROPS: &str = "
    create function slow() returns event_trigger language plpgsql as
      $$ begin perform pg_catalog.pg_advisory_xact_lock(4711); end $$;
    create event trigger slow on sql_drop when tag in ('DROP TABLE') execute function slow();
    select pg_catalog.pg_advisory_lock(4711)";

#[tokio::test]
async fn s21_a_hold_that_meets_a_drop_in_hand_is_not_answered_as_if_the_day_were_kept() {
    let server = ClockServer::start(&[]).await;
    let deployment = in_december(&server, vec![short_lived(spec("public.inbox"))]).await;
    server.step(TimeDelta::days(3));
    deployment.done().await;
    server.step(TimeDelta::days(1));
    let mut other = deployment.database.connect().await;
    sql(&mut other, SLOW_DROPS).await;
    let passing = patient_pass(&deployment);
    wait_until_any_blocked(&deployment.database).await;

    let begun = Instant::now();
    let held = hold_of(&deployment, &deployment.specs[0], day("2026-12-01")).await;
    let error = held.expect_err("the drop is in hand, and nobody can say yet that the day is kept");
    assert_eq!(error.kind().as_str(), "locked", "{error}");
    assert!(error.remedy().contains("try again"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    // The other days are nobody's concern.
    hold_of(&deployment, &deployment.specs[0], day("2026-12-02"))
        .await
        .unwrap();

    sql(&mut other, "select pg_catalog.pg_advisory_unlock(4711)").await;
    let report = passing.await.unwrap();
    assert_eq!(outcome(&report, "drop", "inbox_2026_12_01"), StepOutcome::Done);
    let error = hold_of(&deployment, &deployment.specs[0], day("2026-12-01"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), OperateErrorKind::Dropped, "{error}");
}

#[tokio::test]
async fn s21_a_hold_that_waits_out_a_drop_is_told_that_the_day_is_gone() {
    let server = ClockServer::start(&[]).await;
    let deployment = in_december(&server, vec![short_lived(spec("public.inbox"))]).await;
    server.step(TimeDelta::days(3));
    deployment.done().await;
    server.step(TimeDelta::days(1));
    let mut other = deployment.database.connect().await;
    sql(&mut other, SLOW_DROPS).await;
    let passing = patient_pass(&deployment);
    wait_until_any_blocked(&deployment.database).await;
    let mut patient = deployment.clone();
    patient.timeouts.lock = Duration::from_secs(60);
    let holding =
        tokio::spawn(async move { hold_of(&patient, &patient.specs[0], "2026-12-01".parse().unwrap()).await });
    eventually("two sessions wait", async || {
        let waiting: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity
             where datname = current_database() and wait_event_type = 'Lock' and wait_event = 'advisory'",
        )
        .fetch_one(&mut deployment.database.connect().await)
        .await
        .unwrap();
        waiting == 2 || holding.is_finished()
    })
    .await;
    sql(&mut other, "select pg_catalog.pg_advisory_unlock(4711)").await;
    let error = holding.await.unwrap().expect_err("the day is gone");
    assert_eq!(error.kind(), OperateErrorKind::Dropped, "{error}");
    assert_eq!(
        outcome(&passing.await.unwrap(), "drop", "inbox_2026_12_01"),
        StepOutcome::Done
    );
}

#[tokio::test]
async fn s21_a_hold_that_meets_a_detach_at_its_last_look_is_not_answered_before_it_is_known_whether_the_day_leaves() {
    let server = ClockServer::start(&[]).await;
    let deployment = in_december(&server, vec![short_lived(spec("public.inbox"))]).await;
    server.step(TimeDelta::days(3));
    // The detach has seen that the day is not on hold, and waits for this to put on record that it begins.
    let mut other = deployment.database.connect().await;
    sql(
        &mut other,
        "begin; select from inboxd.partitions where day = '2026-12-01' for update",
    )
    .await;
    let passing = patient_pass(&deployment);
    wait_until_any_blocked(&deployment.database).await;
    let held = hold_of(&deployment, &deployment.specs[0], day("2026-12-01")).await;
    let error = held.expect_err("the detach goes on");
    assert_eq!(error.kind().as_str(), "locked", "{error}");
    sql(&mut other, "commit").await;
    let report = passing.await.unwrap();
    assert_eq!(outcome(&report, "detach", "inbox_2026_12_01"), StepOutcome::Done);
    let held = hold_of(&deployment, &deployment.specs[0], day("2026-12-01"))
        .await
        .unwrap();
    assert_eq!((held.is_new, state(&held)), (true, "detached".into()));
}

#[tokio::test]
async fn s21_a_day_that_is_held_while_it_is_detached_is_told_to_be_leaving_and_never_dropped() {
    let server = ClockServer::start(&[]).await;
    let deployment = in_december(&server, vec![short_lived(spec("public.inbox"))]).await;
    server.step(TimeDelta::days(3));
    let mut reader = deployment.database.connect().await;
    sql(&mut reader, "begin; select count(*) from public.inbox").await;
    let passing = patient_pass(&deployment);
    eventually("the detach waits for the reader", async || {
        sqlx::query_scalar("select count(*) > 0 from pg_catalog.pg_inherits where inhdetachpending")
            .fetch_one(&mut deployment.database.connect().await)
            .await
            .unwrap()
    })
    .await;
    let held = hold_of(&deployment, &deployment.specs[0], day("2026-12-01"))
        .await
        .unwrap();
    assert_eq!((held.is_new, state(&held)), (true, "detaching".into()));
    sql(&mut reader, "commit").await;
    assert_eq!(
        outcome(&passing.await.unwrap(), "detach", "inbox_2026_12_01"),
        StepOutcome::Done
    );
    let again = hold_of(&deployment, &deployment.specs[0], day("2026-12-01"))
        .await
        .unwrap();
    assert_eq!((again.is_new, state(&again)), (false, "detached".into()));
    for _ in 0..3 {
        server.step(TimeDelta::days(1));
        let done = deployment.done().await;
        assert!(!done.contains(&"drop inbox_2026_12_01".to_owned()), "{done:?}");
    }
    sql(&mut reader, "select from public.inbox_2026_12_01").await;
}

#[tokio::test]
async fn s21_a_day_whose_detach_waits_for_its_lock_is_told_to_be_leaving() {
    let server = ClockServer::start(&[]).await;
    let mut deployment = in_december(&server, vec![spec("public.inbox")]).await;
    server.step(TimeDelta::days(3));
    deployment.done().await;
    deployment.specs = vec![short_lived(deployment.specs.remove(0))];
    deployment.init().await.unwrap();
    // Nothing but the detach is left to be done, and it waits for this.
    let mut other = deployment.database.connect().await;
    sql(
        &mut other,
        "begin; lock table public.inbox in share update exclusive mode",
    )
    .await;
    let passing = patient_pass(&deployment);
    wait_until_any_blocked(&deployment.database).await;
    let held = hold_of(&deployment, &deployment.specs[0], day("2026-12-01"))
        .await
        .unwrap();
    assert_eq!(state(&held), "detaching");
    sql(&mut other, "commit").await;
    assert_eq!(
        outcome(&passing.await.unwrap(), "detach", "inbox_2026_12_01"),
        StepOutcome::Done
    );
}
