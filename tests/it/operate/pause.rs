//! The schedule is paused, and goes on.

use inboxd::maintain::{
    PassOutcome, PassRequest, Replica, Trigger,
    operate::{OperateErrorKind, pause, paused, resume},
    run_pass,
};

use super::{alice, audit, line, operator};
use crate::support::{
    inbox::{Deployment, spec, sql},
    process,
    program::{A_WHILE, Service, ask},
    server,
};

const EVERY_SECOND: (&str, &str) = ("INBOXD_SCHEDULE__CRON", "* * * * * *");

#[tokio::test]
async fn while_the_schedule_is_paused_only_a_person_runs_and_the_heartbeat_goes_on() {
    let deployment = Deployment::initialized(vec![spec("public.inbox")]).await;
    let (alice, mut connection) = (alice(), deployment.maintenance().await);
    let operator = operator(&deployment, &alice);
    let first = pause(&mut connection, operator, "a migration").await.unwrap();
    assert!(first.is_new);
    let again = pause(&mut connection, operator, "another").await.unwrap();
    assert_eq!((again.is_new, &again.pause), (false, &first.pause));
    assert_eq!(
        pause(&mut connection, operator, " ").await.unwrap_err().kind(),
        OperateErrorKind::Invalid
    );
    assert_eq!(
        paused(&mut connection, &deployment.name).await.unwrap(),
        Some(first.pause.clone())
    );
    assert_eq!(
        paused(&mut connection, "blue").await.unwrap(),
        None,
        "another deployment goes on"
    );

    let replica = Replica::new("one", chrono::TimeDelta::days(1));
    for trigger in [Trigger::Start, Trigger::Schedule, Trigger::Retry] {
        let request = PassRequest {
            deployment: &deployment.name,
            specs: &deployment.specs,
            replica: Some(&replica),
            trigger,
            confirm_clock: false,
            retries: deployment.retries,
            clock: &deployment.clock,
            stop: &|| false,
        };
        let outcome = run_pass(&mut connection, request).await.unwrap();
        assert_eq!(outcome, PassOutcome::Paused(first.pause.clone()), "{trigger:?}");
    }
    let (runs, replicas): (i64, i64) =
        sqlx::query_as("select (select count(*) from inboxd.runs), (select count(*) from inboxd.replicas)")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert_eq!((runs, replicas), (0, 1));
    let report = deployment.pass().await;
    assert_eq!((report.steps().count(), report.paused), (8, Some(first.pause.clone())));

    assert_eq!(
        resume(&mut connection, operator).await.unwrap().pause,
        Some(first.pause)
    );
    assert_eq!(resume(&mut connection, operator).await.unwrap().pause, None);
    assert_eq!(deployment.pass().await.paused, None);
    assert_eq!(
        audit(&mut connection).await,
        [
            line("pause", None, Some("a migration"), None),
            line("resume", None, None, None)
        ]
    );
}

#[tokio::test]
async fn a_pause_survives_the_restart_of_a_service_which_says_so_once_and_stays_ready() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    ask(&database.url, &["run"]).must(0, &[]);
    ask(&database.url, &["pause", "--reason", "a migration"]).must(0, &["is paused since", "a migration"]);
    let mut connection = database.connect().await;
    // A day is missing, which nobody makes while the schedule is paused.
    let runs = "select count(*) from inboxd.runs";
    for _ in 0..2 {
        let mut service = Service::start(&database.url, &[EVERY_SECOND]);
        let told = service.wait_for_log("the schedule is paused");
        assert_eq!(told["fields"]["reason"], "a migration");
        service.wait_until_ready().await;
        // Three ticks of the schedule, seen by the heartbeats of its passes.
        for _ in 0..3 {
            let before: chrono::DateTime<chrono::Utc> =
                sqlx::query_scalar("select max(heartbeat_at) from inboxd.replicas")
                    .fetch_one(&mut connection)
                    .await
                    .unwrap();
            let begin = std::time::Instant::now();
            while sqlx::query_scalar::<_, bool>("select max(heartbeat_at) <= $1 from inboxd.replicas")
                .bind(before)
                .fetch_one(&mut connection)
                .await
                .unwrap()
            {
                assert!(begin.elapsed() < A_WHILE);
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
        let mut said = service.logged_at("INFO");
        said.retain(|line| line.contains("the schedule is paused"));
        assert_eq!(said.len(), 1, "a line on the change only: {said:?}");
        let count: i64 = sqlx::query_scalar(runs).fetch_one(&mut connection).await.unwrap();
        assert_eq!(count, 1, "only the person's run");
        service.must_end();
        let ended = service.log();
        let is_false = |line: &serde_json::Value| line.to_string().contains("no longer paused");
        assert!(!ended.iter().any(is_false), "{ended:#?}");
    }
    ask(&database.url, &["check"]).must(1, &["the schedule is paused since", "a migration", "inboxd resume"]);
    ask(&database.url, &["status"]).must(0, &["the schedule is paused since"]);
    ask(&database.url, &["run"]).must(0, &["nothing to do", "is paused since", "This run was a person's."]);

    let service = Service::start(&database.url, &[EVERY_SECOND]);
    service.wait_for_log("the schedule is paused");
    ask(&database.url, &["resume"]).must(0, &["the schedule goes on"]);
    service.wait_for_log("the schedule is no longer paused");
    let count = process::poll(A_WHILE, || {
        service
            .log()
            .iter()
            .any(|line| line.to_string().contains("no longer paused"))
            .then_some(())
    });
    assert!(count.is_some());
    let begin = std::time::Instant::now();
    while sqlx::query_scalar::<_, i64>(runs)
        .fetch_one(&mut connection)
        .await
        .unwrap()
        < 3
    {
        assert!(begin.elapsed() < A_WHILE);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    ask(&database.url, &["check"]).must(0, &["all is well"]);
}

#[tokio::test]
async fn a_paused_service_whose_inbox_lacks_days_is_not_ready_and_the_runway_alarm_goes_on() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    ask(&database.url, &["pause", "--reason", "too early"]).must(0, &[]);
    let mut service = Service::start(&database.url, &[EVERY_SECOND]);
    service.wait_for_log("the schedule is paused");
    let not_ready = service.wait_until("/readyz", 503).await;
    assert!(not_ready.to_string().contains("claims fail now"), "{not_ready}");
    ask(&database.url, &["check"]).must(2, &["claims fail now", "inboxd resume"]);
    let mut connection = database.connect().await;
    sql(&mut connection, "delete from inboxd.pauses").await;
    service.wait_until_ready().await;
    service.must_end();
}
