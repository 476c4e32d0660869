//! A server that speaks German: nothing of ours reads what an error says, only its SQLSTATE.

use std::process::Command;

use inboxd::{Day, clock::Clock, maintain::StepOutcome};

use crate::support::{
    folder::Folder,
    inbox::{Deployment, claim, random_id, spec, sql, sqlstate, try_claim},
    process,
    server::{self, OwnServer, TestDatabase},
};

/// A German server and its locale, which this machine need not have.
async fn german() -> (Folder, OwnServer, TestDatabase) {
    let locales = Folder::new();
    process::open_to_all(locales.path());
    let compiled = Command::new("localedef")
        .args(["-i", "de_DE", "-f", "UTF-8"])
        .arg(locales.path().join("de_DE.UTF-8"))
        .output()
        .expect("localedef makes the German locale: apt-get install locales");
    assert!(
        compiled.status.success(),
        "apt-get install locales: {}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let folder = Folder::new();
    let mut options = server::options_in(folder.path());
    options.environment = vec![("LOCPATH".into(), locales.path().into())];
    options.settings = vec![("lc_messages".to_owned(), "de_DE.UTF-8".to_owned())];
    let own = OwnServer::start(folder, options).await;
    let database = own.database().await;
    let spoken = sqlx::query("select * from nirgends")
        .execute(&mut database.connect().await)
        .await
        .unwrap_err()
        .to_string();
    assert!(spoken.contains("existiert nicht"), "it does not speak German: {spoken}");
    (locales, own, database)
}

#[tokio::test]
async fn s8_a_lost_race_is_known_by_its_sqlstate_in_german_too() {
    let (_locales, _own, database) = german().await;
    let deployment = Deployment::new(database, Clock::system(), vec![spec("public.inbox")]);
    deployment.init().await.unwrap();
    deployment.init().await.unwrap();
    let mut hand = deployment.database.connect().await;
    let now: chrono::DateTime<chrono::Utc> = sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(&mut hand)
        .await
        .unwrap();
    let today = Day::containing(now);
    let name = format!("inbox_{}", today.underscored());
    // Made, but not committed: our create finds the name taken only when it commits.
    sql(
        &mut hand,
        format!("begin; create table {name} (like inbox including defaults, primary key (message_id))"),
    )
    .await;
    sql(
        &mut hand,
        format!(
            "alter table inbox attach partition {name} for values from ('{today} 00:00+00') to ('{} 00:00+00')",
            today.next()
        ),
    )
    .await;
    let passing = tokio::spawn({
        let deployment = deployment.clone();
        async move { deployment.pass().await }
    });
    loop {
        let waits = "select exists (select from pg_stat_activity where application_name = 'inboxd maintenance' and wait_event_type = 'Lock')";
        if sqlx::query_scalar(waits)
            .fetch_one(&mut deployment.database.connect().await)
            .await
            .unwrap()
        {
            break;
        }
        assert!(!passing.is_finished(), "the pass did not meet the other transaction");
    }
    sql(&mut hand, "commit").await;
    let report = passing.await.unwrap();
    assert!(
        report.steps().all(|step| step.outcome == StepOutcome::Done),
        "{report:?}"
    );
}

#[tokio::test]
async fn c27_a_claim_tells_its_outcomes_in_german_as_in_any_language() {
    let (_locales, _own, database) = german().await;
    let deployment = Deployment::new(database, Clock::system(), vec![spec("public.inbox")]);
    deployment.init().await.unwrap();
    let (mut one, mut other) = (deployment.database.connect().await, deployment.database.connect().await);
    let id = random_id();
    assert_eq!(
        sqlstate(&claim(&mut one, "inbox", id).await.unwrap_err()),
        "23514",
        "no partition yet"
    );
    deployment.done().await;
    sql(&mut one, "begin").await;
    assert!(claim(&mut one, "inbox", id).await.unwrap());
    let at_once = Some(std::time::Duration::ZERO);
    assert_eq!(try_claim(&mut other, "inbox", id, at_once).await.unwrap(), "in_flight");
    sql(&mut one, "commit").await;
    assert_eq!(try_claim(&mut other, "inbox", id, at_once).await.unwrap(), "duplicate");
}
