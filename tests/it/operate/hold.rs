//! Days on hold.

use chrono::TimeDelta;
use inboxd::{
    Day,
    maintain::{
        StepOutcome,
        operate::{OperateErrorKind, hold, holds, release},
    },
};

use super::{alice, audit, in_december, line, operator, short_lived};
use crate::support::{
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
