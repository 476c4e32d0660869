//! `init`: what it makes, what it refuses, and that it can be run again.

use inboxd::{Consumers, Routing, clock::Clock, postgres::ErrorKind};

use crate::support::{
    inbox::{Deployment, claim, codes, random_id, spec, sql, v7_spec},
    server,
};

async fn fresh(specs: Vec<inboxd::InboxSpec>) -> Deployment {
    Deployment::new(server::database().await, Clock::system(), specs)
}

#[tokio::test]
async fn running_init_again_changes_nothing() {
    let mut many = v7_spec("public.shared");
    many.policy.consumers = Consumers::Many;
    let deployment = fresh(vec![spec("public.inbox"), many]).await;
    let first = deployment.init().await.unwrap();
    assert!(
        first
            .inboxes
            .iter()
            .all(|inbox| inbox.table_made && inbox.functions_made)
    );
    deployment.done().await;
    let mut connection = deployment.database.connect().await;
    assert!(claim(&mut connection, "inbox", random_id()).await.unwrap());
    let second = deployment.init().await.unwrap();
    assert!(
        second
            .inboxes
            .iter()
            .all(|inbox| !inbox.table_made && !inbox.functions_made)
    );
    let rows: i64 = sqlx::query_scalar("select count(*) from inbox")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn a_changed_configuration_is_drift_until_init_runs_again() {
    let mut deployment = Deployment::running(vec![spec("public.inbox")]).await;
    deployment.specs[0].policy.retention = inboxd::Retention::For(chrono::TimeDelta::days(3));
    let planned = deployment.plan().await;
    assert_eq!(codes(&planned[0].plan), ["claim_drift"]);
    assert!(
        planned[0].plan.findings[0]
            .message
            .contains("retention is 604800 s, configured is 259200 s")
    );
    let report = deployment.init().await.unwrap();
    assert_eq!(
        report.inboxes[0].functions_had,
        ["retention is 604800 s, configured is 259200 s"]
    );
    assert!(deployment.plan().await[0].plan.findings.is_empty());
}

#[tokio::test]
async fn a_function_that_is_gone_or_anothers_is_reported_until_init_runs_again() {
    let deployment = Deployment::running(vec![spec("public.inbox"), v7_spec("public.by_id")]).await;
    let mut admin = deployment.database.connect().await;
    let role = format!("role_{}", random_id().simple());
    sql(
        &mut admin,
        format!("create role {role}; grant create, usage on schema public to {role}"),
    )
    .await;
    for spoil in [
        "drop function inbox_try_claim; drop function by_id_forget".to_owned(),
        format!("alter table inbox owner to {role}; alter function by_id_claim_inner owner to {role}"),
    ] {
        sql(&mut admin, spoil.as_str()).await;
        for planned in deployment.plan().await {
            assert!(
                codes(&planned.plan).contains(&"claim_drift".to_owned()),
                "{spoil}: {planned:?}"
            );
        }
        let report = deployment.init().await.unwrap();
        assert!(report.inboxes.iter().all(|inbox| inbox.functions_made), "{spoil}");
        for planned in deployment.plan().await {
            assert!(
                !codes(&planned.plan).contains(&"claim_drift".to_owned()),
                "{spoil}: {planned:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_table_that_does_not_fit_is_refused_and_left_alone() {
    for (table, needle) in [
        (
            "create table inbox (message_id uuid primary key, topic varchar(255), processed_at timestamptz)",
            "not a partitioned table",
        ),
        ("create view inbox as select 1 as message_id", "not a partitioned table"),
        (
            "create table inbox (message_id uuid, topic varchar(255), processed_at timestamptz) partition by hash (message_id)",
            "range (processed_at)",
        ),
        (
            "create table inbox (message_id uuid, topic varchar(255), processed_at timestamptz) partition by range (processed_at, topic)",
            "range (processed_at)",
        ),
        (
            "create table inbox (message_id text, topic varchar(255), processed_at timestamptz) partition by range (processed_at)",
            "message_id is of type text",
        ),
        (
            "create table inbox (message_id uuid, processed_at timestamptz) partition by range (processed_at)",
            "no column topic",
        ),
        (
            "create table inbox (message_id uuid, topic varchar(255), processed_at timestamptz, primary key (message_id, processed_at)) partition by range (processed_at)",
            "catches no duplicate",
        ),
        (
            "create table inbox (message_id uuid, topic varchar(255), processed_at timestamptz) partition by range (message_id)",
            "no unique key",
        ),
    ] {
        let by_id = table.ends_with("range (message_id)");
        let spec = if by_id {
            v7_spec("public.inbox")
        } else {
            spec("public.inbox")
        };
        let deployment = fresh(vec![spec]).await;
        let mut admin = deployment.database.connect().await;
        sql(&mut admin, table).await;
        let error = deployment.init().await.unwrap_err();
        assert!(
            error.to_string().contains(needle) && error.to_string().contains("rename it"),
            "{table}: {error}"
        );
        let registered: i64 = sqlx::query_scalar("select count(*) from inboxd.inboxes")
            .fetch_one(&mut admin)
            .await
            .unwrap();
        assert_eq!(registered, 0, "nothing is half done");
    }
}

#[tokio::test]
async fn routing_and_sharing_cannot_be_changed() {
    let mut deployment = Deployment::running(vec![spec("public.inbox")]).await;
    deployment.specs[0].policy.routing = Routing::MessageId;
    let error = deployment.init().await.unwrap_err();
    assert!(error.to_string().contains("neither can be changed"), "{error}");
    assert_eq!(codes(&deployment.plan().await[0].plan), ["inbox_unfit"]);
}

#[tokio::test]
async fn another_deployment_is_refused_and_does_nothing() {
    let mut deployment = Deployment::running(vec![spec("public.inbox")]).await;
    deployment.name = "other".to_owned();
    let error = deployment.init().await.unwrap_err();
    assert!(error.to_string().contains("belongs to deployment \"test\""), "{error}");
    let planned = deployment.plan().await;
    assert_eq!(codes(&planned[0].plan), ["other_deployment"]);
    assert!(planned[0].plan.steps.is_empty());
}

#[tokio::test]
async fn a_newer_control_schema_is_refused_by_everything() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    sql(
        &mut deployment.database.connect().await,
        "insert into inboxd.migrations (version, description, success, checksum, execution_time) values (9999, 'newer', true, '', 0)",
    )
    .await;
    for error in [
        deployment.init().await.unwrap_err(),
        deployment.outcome(false).await.unwrap_err(),
    ] {
        assert!(
            error.to_string().contains("9999") && error.to_string().contains("newer"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn before_init_a_pass_says_what_to_do() {
    let deployment = fresh(vec![spec("public.inbox")]).await;
    let error = deployment.outcome(false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
    assert!(error.to_string().contains("inboxd init"), "{error}");
}

#[tokio::test]
async fn the_ledger_of_migrations_stands_in_our_schema_and_the_hosts_is_untouched() {
    let deployment = fresh(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    sql(&mut admin, "create table _sqlx_migrations (version bigint primary key, mine text); insert into _sqlx_migrations values (7, 'x')").await;
    deployment.init().await.unwrap();
    let ours: i64 = sqlx::query_scalar("select count(*) from inboxd.migrations")
        .fetch_one(&mut admin)
        .await
        .unwrap();
    let theirs: Vec<i64> = sqlx::query_scalar("select version from _sqlx_migrations")
        .fetch_all(&mut admin)
        .await
        .unwrap();
    assert_eq!((ours, theirs), (inboxd::postgres::schema::SCHEMA_VERSION, vec![7]));
}

#[tokio::test]
async fn a_fitting_table_that_is_not_on_record_is_taken_on() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let id = random_id();
    assert!(claim(&mut admin, "inbox", id).await.unwrap());
    // The control schema is lost, as after a restore of the application's schema alone.
    sql(&mut admin, "drop schema inboxd cascade").await;
    let report = deployment.init().await.unwrap();
    assert!(!report.inboxes[0].table_made);
    assert!(!claim(&mut admin, "inbox", id).await.unwrap());
    // It is the inbox that it was: its partitions are its own, and claims under way still exclude new ones.
    assert!(!report.inboxes[0].functions_made);
    deployment.done().await;
    assert!(deployment.plan().await[0].plan.findings.is_empty());
}
