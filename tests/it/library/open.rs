//! `Inbox::open`: early and clear.

use std::time::Duration;

use chrono::TimeDelta;
use inboxd::{
    Consumers, Routing,
    claim::{Inbox, OpenError},
};
use sqlx::Connection;

use super::TABLES;
use crate::{
    claim::{both_routings, for_many},
    support::{
        inbox::{Deployment, sql, v7_spec},
        log::Log,
    },
};

#[tokio::test]
async fn an_inbox_says_what_it_was_made_with() {
    let mut spec = for_many(v7_spec(r#"public."In.Box""#));
    spec.claim.max_batch = 77;
    let deployment = Deployment::running(vec![spec]).await;
    let mut connection = deployment.database.connect().await;
    let inbox = Inbox::open(&mut connection, r#"public."In.Box""#).await.unwrap();
    assert_eq!(inbox.table().table().as_str(), "In.Box");
    assert_eq!(
        (inbox.routing(), inbox.consumers()),
        (Routing::MessageId, Consumers::Many)
    );
    assert_eq!(inbox.retention(), Some(TimeDelta::days(7)));
    assert_eq!(inbox.constants().max_batch, 77);
}

#[tokio::test]
async fn what_is_no_inbox_is_refused_with_the_remedy() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    let refused = |error: OpenError, needles: &[&str]| {
        let text = error.to_string();
        for needle in needles {
            assert!(text.contains(needle), "{text}");
        }
    };
    refused(
        Inbox::open(&mut connection, "public.nowhere").await.unwrap_err(),
        &["nowhere_claim", "inboxd init"],
    );
    refused(Inbox::open(&mut connection, "a.b.c").await.unwrap_err(), &["a.b.c"]);
    sql(
        &mut connection,
        "create function theirs_claim(uuid, text, timestamptz, text) returns boolean language sql return true;
         comment on function by_id_claim(uuid, text, timestamptz, text) is 'mine'",
    )
    .await;
    for name in ["theirs", "by_id"] {
        refused(
            Inbox::open(&mut connection, name).await.unwrap_err(),
            &[name, "inboxd init"],
        );
    }
}

#[tokio::test]
async fn a_role_that_may_not_claim_is_named_and_one_that_may_sees_all_that_it_needs() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    let role = format!("claimer_{}", deployment.database.name);
    sql(&mut connection, format!("create role {role} login")).await;
    let options = deployment.database.options.clone().username(&role);
    let mut theirs = sqlx::PgConnection::connect_with(&options).await.unwrap();
    for table in TABLES {
        let error = Inbox::open(&mut theirs, table).await.unwrap_err().to_string();
        assert!(error.contains(&role) && error.contains("consumer_roles"), "{error}");
    }
    let mut specs = deployment.specs.clone();
    for spec in &mut specs {
        spec.consumer_roles = vec![inboxd::Ident::new(role.clone()).unwrap()];
    }
    let granted = Deployment {
        specs,
        ..deployment.clone()
    };
    granted.init().await.unwrap();
    for table in TABLES {
        let inbox = Inbox::open(&mut theirs, table).await.unwrap();
        let message = super::new_message();
        let mut tx = theirs.begin().await.unwrap();
        assert!(inbox.claim(&mut tx, &message).await.unwrap().is_fresh());
        tx.commit().await.unwrap();
    }
    theirs.close().await.unwrap();
}

#[tokio::test]
async fn c22_a_session_limit_below_the_handlers_timeout_is_warned_of() {
    let deployment = both_routings().await;
    let mut connection = deployment.database.connect().await;
    let database = &deployment.database.name;
    sql(
        &mut connection,
        format!("alter database {database} set idle_in_transaction_session_timeout = '3s'"),
    )
    .await;
    let pool = deployment.database.pool(1);
    let inbox = super::open(&pool, "by_time").await;
    let warnings = |timeout| {
        let (inbox, log) = (inbox.clone(), Log::default());
        tracing::subscriber::with_default(log.subscriber(), || drop(inbox.with_handler_timeout(timeout)));
        log.text()
    };
    assert_eq!(warnings(Duration::from_secs(2)), "");
    let warned = warnings(Duration::from_secs(20));
    assert!(
        warned.contains("WARN") && warned.contains("session_limit_ms=3000") && warned.contains("idle_in_transaction"),
        "{warned}"
    );
}
