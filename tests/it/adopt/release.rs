//! An inbox becomes something that works without us, and comes back.

use super::*;

#[tokio::test]
async fn a_released_inbox_works_without_us_and_can_come_back() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-02T12:00:00Z".parse().unwrap());
    let deployment = Deployment::new(server.database().await, server.clock(), vec![spec("public.inbox")]);
    let mut connection = deployment.database.connect().await;
    sql(&mut connection, SEED).await;
    let (old, new) = (random_id(), random_id());
    insert_at(&mut connection, old, server.now()).await;
    deployment.adopted().await;
    deployment.done().await;
    assert!(claim(&mut connection, "inbox", new).await.unwrap());
    let released = deployment.release().await.unwrap();
    assert_eq!(released.rest.unwrap().to_string(), "inbox_rest");
    let error = deployment.release().await.unwrap_err().to_string();
    assert!(error.contains("no inbox on record"), "{error}");
    assert!(deployment.pass().await.steps().next().is_none());
    // Long after the last day that we made, nothing fails, and nothing within the retention is forgotten.
    server.step(TimeDelta::days(5));
    for id in [old, new] {
        assert!(!claim(&mut connection, "inbox", id).await.unwrap());
    }
    server.step(TimeDelta::days(60));
    let late = random_id();
    assert!(claim(&mut connection, "inbox", late).await.unwrap());
    server.step(TimeDelta::days(1));
    assert!(
        !claim(&mut connection, "inbox", late).await.unwrap(),
        "also across days"
    );
    deployment.init().await.unwrap();
    assert!(!claim(&mut connection, "inbox", late).await.unwrap());
}
