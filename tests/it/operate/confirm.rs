//! A clock that has leapt, and removals beyond the cap.

use chrono::TimeDelta;
use inboxd::{
    Retention,
    maintain::{
        StepOutcome,
        operate::{OperateErrorKind, confirm_clock, confirm_drops, due_drops},
    },
};

use super::{alice, audit, in_december, line, operator};
use crate::support::{
    clock::ClockServer,
    inbox::{Deployment, codes, spec, sql, steps, v7_spec},
};

/// Twelve days later, under the retention of 30 days; then that is cut to three by a slip.
async fn cut_by_a_slip(server: &ClockServer) -> Deployment {
    let mut specs = vec![spec("public.by_time"), v7_spec("public.by_id")];
    for spec in &mut specs {
        spec.policy.retention = Retention::For(TimeDelta::days(30));
    }
    let mut deployment = in_december(server, specs).await;
    for _ in 0..3 {
        server.step(TimeDelta::days(4));
        deployment.done().await;
    }
    for spec in &mut deployment.specs {
        spec.policy.retention = Retention::For(TimeDelta::days(3));
    }
    deployment.init().await.unwrap();
    deployment
}

fn count(steps: &[String], what: &str) -> usize {
    steps.iter().filter(|step| step.starts_with(what)).count()
}

#[tokio::test]
async fn s20_a_retention_cut_by_a_slip_waits_at_the_cap_until_a_person_confirms_and_then_goes_in_one_run() {
    let server = ClockServer::start(&[]).await;
    let deployment = cut_by_a_slip(&server).await;
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    let operator = operator(&deployment, &alice);
    for planned in deployment.plan().await {
        assert!(
            codes(&planned.plan).contains(&"blocked_by_cap".to_owned()),
            "{planned:?}"
        );
        assert_eq!(
            count(
                &planned
                    .plan
                    .steps
                    .iter()
                    .map(|step| step.action.as_str().to_owned())
                    .collect::<Vec<_>>(),
                "detach"
            ),
            4
        );
    }
    let spec = &deployment.specs[0];
    let due = due_drops(&mut connection, operator, spec).await.unwrap();
    // 1 to 9 December are older than three days on the 13th.
    assert_eq!(
        (due.due.detach.len(), due.due.drop.len(), due.is_over_the_cap()),
        (9, 0, true)
    );
    let changed = confirm_drops(&mut connection, operator, spec, Some(8))
        .await
        .unwrap_err();
    assert_eq!(changed.kind(), OperateErrorKind::Changed);
    let confirmed = confirm_drops(&mut connection, operator, spec, Some(9)).await.unwrap();
    assert_eq!(confirmed.confirmed, due);

    // It was asked about one inbox, and the other keeps to its cap.
    let done = deployment.done().await;
    assert_eq!(
        (count(&done, "detach by_time"), count(&done, "detach by_id")),
        (9, 4),
        "{done:?}"
    );
    let used: Vec<bool> = sqlx::query_scalar("select used_at is not null from inboxd.confirmations")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert_eq!(used, [true], "once");
    let nothing = confirm_drops(&mut connection, operator, spec, None).await.unwrap_err();
    assert_eq!(nothing.kind(), OperateErrorKind::NothingDue, "{nothing}");

    // Their drops are other removals: a day later they keep to the cap again, and can be confirmed as well.
    server.step(TimeDelta::hours(25));
    let done = deployment.done().await;
    assert_eq!(count(&done, "drop by_time"), 4, "{done:?}");
    let due = confirm_drops(&mut connection, operator, spec, None).await.unwrap();
    assert_eq!(due.confirmed.due.drop.len(), 5);
    assert_eq!(count(&deployment.done().await, "drop by_time"), 5);
    assert_eq!(
        audit(&mut connection).await,
        [
            line("confirm_drops", Some("by_time"), None, None),
            line("confirm_drops", Some("by_time"), None, None)
        ]
    );
}

#[tokio::test]
async fn s20_without_a_confirmation_later_runs_drain_what_is_due_at_the_cap() {
    let server = ClockServer::start(&[]).await;
    let deployment = cut_by_a_slip(&server).await;
    let mut counts = Vec::new();
    for _ in 0..4 {
        counts.push(count(&deployment.done().await, "detach by_time"));
    }
    assert_eq!(counts, [4, 4, 1, 0]);
}

#[tokio::test]
async fn s20_what_was_confirmed_and_could_not_be_done_is_done_by_the_next_run_and_a_hold_still_keeps_its_day() {
    let server = ClockServer::start(&[]).await;
    let mut deployment = cut_by_a_slip(&server).await;
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    confirm_drops(
        &mut connection,
        operator(&deployment, &alice),
        &deployment.specs[0],
        None,
    )
    .await
    .unwrap();
    sql(
        &mut connection,
        "insert into inboxd.holds (inbox_id, day, reason) select id, '2026-12-02', 'needed' from inboxd.inboxes where table_name = 'by_time'",
    )
    .await;
    let mut other = deployment.database.connect().await;
    sql(
        &mut other,
        "begin; lock table public.by_time in share update exclusive mode",
    )
    .await;
    deployment.timeouts.lock = std::time::Duration::from_millis(30);
    deployment.retries.attempts = 1;
    let report = deployment.pass().await;
    assert!(
        report
            .steps()
            .any(|step| matches!(step.outcome, StepOutcome::Failed { .. }))
    );
    sql(&mut other, "commit").await;
    deployment.timeouts.lock = std::time::Duration::from_secs(5);
    let done = steps(&deployment.pass().await);
    assert_eq!(count(&done, "detach by_time"), 8, "{done:?}");
    assert!(
        deployment
            .partitions("by_time")
            .await
            .contains(&"by_time_2026_12_02".to_owned())
    );
}

#[tokio::test]
async fn removals_are_not_confirmed_under_a_clock_that_is_not_trusted_and_a_confirmed_clock_is() {
    let server = ClockServer::start(&[]).await;
    let deployment = in_december(&server, vec![spec("public.inbox")]).await;
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    let operator = operator(&deployment, &alice);
    server.step(TimeDelta::days(40));
    deployment.done().await;
    let finding = deployment.plan().await.remove(0).plan;
    let finding = finding
        .findings
        .iter()
        .find(|finding| finding.message.contains("trusted"))
        .unwrap();
    assert!(finding.remedy.contains("inboxd confirm clock"), "{finding:?}");
    let refused = confirm_drops(&mut connection, operator, &deployment.specs[0], None)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), OperateErrorKind::UntrustedClock);

    let confirmed = confirm_clock(&mut connection, operator, &deployment.specs)
        .await
        .unwrap();
    assert!(confirmed.still_blocked.is_empty());
    let leap = confirmed.trusted_at - confirmed.trusted_before.unwrap();
    assert_eq!(leap.num_days(), 40);
    assert_eq!(count(&deployment.done().await, "detach"), 4);
    assert_eq!(audit(&mut connection).await, [line("confirm_clock", None, None, None)]);

    // A host whose clock says something else is another matter.
    let apart = inboxd::clock::Clock::from_fn({
        let now = server.now();
        move || now - TimeDelta::hours(3)
    });
    let apart = inboxd::maintain::operate::Operator {
        clock: &apart,
        ..operator
    };
    let blocked = confirm_clock(&mut connection, apart, &deployment.specs)
        .await
        .unwrap()
        .still_blocked;
    assert!(blocked[0].contains("differ by"), "{blocked:?}");
}
