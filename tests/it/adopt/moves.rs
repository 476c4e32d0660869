//! Each move, on tables of every make that may be adopted.

use super::*;

#[tokio::test]
async fn a_table_in_use_becomes_an_inbox_and_its_old_rows_stay_duplicates() {
    let deployment = with_table(SEED).await;
    let mut connection = deployment.database.connect().await;
    let (last_month, yesterday, just_now) = (random_id(), random_id(), random_id());
    let now = inboxd::clock::Clock::system().now();
    insert_at(&mut connection, last_month, now - TimeDelta::days(30)).await;
    insert_at(&mut connection, yesterday, now - TimeDelta::days(1)).await;
    insert_at(&mut connection, just_now, now).await;

    let prepared = deployment.prepare().await.unwrap();
    assert_eq!(prepared.done, ["scan", "make_functions", "add_checks", "validate"]);
    let AdoptionState::ToDo(adoption) = prepared.now else {
        panic!("adopted already")
    };
    let left = adoption.seconds_left().unwrap();
    assert!((48 * 3600 - 60..=72 * 3600).contains(&left), "{left}");
    assert!(
        deployment.prepare().await.unwrap().done.is_empty(),
        "a second time there is nothing to do"
    );

    // Claims work on the table as it is, beside old consumers; also a row older than the retention is a duplicate.
    let both = random_id();
    assert!(claim(&mut connection, "inbox", both).await.unwrap());
    assert!(!insert_old(&mut connection, both).await.unwrap());
    for id in [last_month, yesterday, just_now] {
        assert!(!claim(&mut connection, "inbox", id).await.unwrap());
        assert_eq!(
            try_claim(&mut connection, "inbox", id, None).await.unwrap(),
            "duplicate"
        );
    }
    let ids = [Some(last_month), Some(random_id()), Some(yesterday)];
    assert_eq!(
        batch(&mut connection, "inbox", &ids, None).await.unwrap(),
        ["duplicate", "fresh", "duplicate"]
    );

    let planned = deployment.plan().await;
    assert_eq!(codes(&planned[0].plan), ["adoption"]);
    assert!(planned[0].plan.steps.is_empty());
    let runway = planned[0].plan.runway_seconds.unwrap();
    assert!(
        (runway - left).abs() < 120,
        "the runway ends at the deadline: {runway} and {left}"
    );
    assert!(
        deployment.pass().await.steps().next().is_none(),
        "a pass leaves it alone"
    );

    let swapped = deployment.swap(true).await.unwrap();
    assert_eq!(
        (swapped.done.as_slice(), &swapped.now),
        (&["swap"][..], &AdoptionState::Done)
    );
    assert!(deployment.swap(false).await.unwrap().done.is_empty(), "done is done");
    for id in [last_month, yesterday, just_now, both] {
        assert!(!claim(&mut connection, "inbox", id).await.unwrap());
        assert_eq!(rows_of(&mut connection, "inbox", id).await, 1);
    }
    let ids = [Some(last_month), Some(random_id()), Some(yesterday)];
    assert_eq!(
        batch(&mut connection, "inbox", &ids, None).await.unwrap(),
        ["duplicate", "fresh", "duplicate"]
    );
    assert!(claim(&mut connection, "inbox", random_id()).await.unwrap());
    let error = insert_old(&mut connection, random_id()).await.unwrap_err();
    assert_eq!(sqlstate(&error), "42P10", "an old consumer fails loudly");

    let names = deployment.partitions("inbox").await;
    assert!(
        names.contains(&"inbox_adopted".to_owned()) && names.len() > 4,
        "{names:?}"
    );
    let report = deployment.pass().await;
    assert!(
        report.steps().all(|step| step.outcome == maintain::StepOutcome::Done),
        "{report:?}"
    );
    let planned = deployment.plan().await;
    assert!(
        planned[0].plan.steps.is_empty() && codes(&planned[0].plan).is_empty(),
        "{planned:?}"
    );
}

#[tokio::test]
async fn an_adopted_table_leaves_by_retention_when_its_last_day_has_expired() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-02T12:00:00Z".parse().unwrap());
    let mut spec = spec("public.inbox");
    spec.policy.max_clock_leap = TimeDelta::days(60);
    let deployment = Deployment::new(server.database().await, server.clock(), vec![spec]);
    let mut connection = deployment.database.connect().await;
    sql(&mut connection, SEED).await;
    let old = random_id();
    insert_at(&mut connection, old, server.now()).await;
    deployment.adopted().await;
    deployment.done().await;
    // Up to 5 December; with a retention of 7 days it is needed until the 12th.
    for day in 3..12 {
        server.set_to(format!("2026-12-{day:02}T12:00:00Z").parse().unwrap());
        deployment.done().await;
        assert!(
            deployment
                .partitions("inbox")
                .await
                .contains(&"inbox_adopted".to_owned()),
            "{day}"
        );
    }
    server.set_to("2026-12-12T00:10:00Z".parse().unwrap());
    let mut done = deployment.done().await;
    assert!(done.contains(&"detach inbox_adopted".to_owned()), "{done:?}");
    server.step(TimeDelta::hours(25));
    done.extend(deployment.done().await);
    assert!(done.contains(&"drop inbox_adopted".to_owned()), "{done:?}");
}

#[tokio::test]
async fn near_the_deadline_the_swap_is_refused_and_taking_it_back_saves_the_day() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-02T12:00:00Z".parse().unwrap());
    let deployment = Deployment::new(server.database().await, server.clock(), vec![spec("public.inbox")]);
    let mut connection = deployment.database.connect().await;
    sql(&mut connection, SEED).await;
    deployment.prepare().await.unwrap();
    for (now, severity) in [
        ("2026-12-03T12:00:00Z", inboxd::Severity::Warn),
        ("2026-12-04T12:00:01Z", inboxd::Severity::Fail),
    ] {
        server.set_to(now.parse().unwrap());
        assert_eq!(deployment.plan().await[0].plan.severity(), severity, "{now}");
    }
    server.set_to("2026-12-04T23:00:01Z".parse().unwrap());
    let error = deployment.swap(true).await.unwrap_err().to_string();
    assert!(
        error.contains("less than an hour") && error.contains("--abort"),
        "{error}"
    );
    assert!(insert_old(&mut connection, random_id()).await.unwrap());
    server.set_to("2026-12-05T00:00:01Z".parse().unwrap());
    let error = insert_old(&mut connection, random_id()).await.unwrap_err();
    assert_eq!(sqlstate(&error), "23514", "what the deadline is about");
    assert_eq!(deployment.plan().await[0].plan.runway_seconds, Some(0));
    deployment.abort().await.unwrap();
    assert!(insert_old(&mut connection, random_id()).await.unwrap());
    assert!(
        claim(&mut connection, "inbox", random_id()).await.unwrap(),
        "the functions stay"
    );
    deployment.adopted().await;
    assert!(claim(&mut connection, "inbox", random_id()).await.unwrap());
}

#[tokio::test]
async fn what_may_stay_comes_along() {
    let deployment = with_table(
        "create table inbox (message_id uuid primary key, topic varchar(255), processed_at timestamptz default now(),
         note text default 'x', constraint short check (length(topic) < 200));
         comment on table inbox is 'ours''s'; alter table inbox replica identity full; create index by_topic on inbox (topic);
         grant select, insert on inbox to public",
    )
    .await;
    deployment.adopted().await;
    let mut connection = deployment.database.connect().await;
    assert!(claim(&mut connection, "inbox", random_id()).await.unwrap());
    let (comment, identity, may_select, may_insert): (String, String, bool, bool) = sqlx::query_as(
        "select obj_description('inbox'::regclass, 'pg_class'), relreplident::text,
           exists (select from aclexplode(relacl) where grantee = 0 and privilege_type = 'SELECT'),
           exists (select from aclexplode(relacl) where grantee = 0 and privilege_type = 'INSERT')
         from pg_class where oid = 'inbox'::regclass",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(
        (comment.as_str(), identity.as_str(), may_select, may_insert),
        ("ours's", "f", true, false)
    );
    let checks: Vec<String> = sqlx::query_scalar(
        "select conname::text from pg_constraint where contype = 'c' and conrelid = 'inbox'::regclass",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(checks, ["short"], "its own stay, ours are gone");
    deployment.done().await;
    let planned = deployment.plan().await;
    assert!(codes(&planned[0].plan).is_empty(), "{planned:?}");
}

#[tokio::test]
async fn consumers_that_insert_directly_keep_the_swap_from_being_done() {
    let deployment = with_table(SEED).await;
    deployment.prepare().await.unwrap();
    let mut old = consumer(&deployment.database).await;
    assert!(insert_old(&mut old, random_id()).await.unwrap());
    let error = deployment.swap(false).await.unwrap_err().to_string();
    assert!(
        error.contains("(claims, role") && error.contains("--confirm-consumers-moved"),
        "{error}"
    );
    assert!(claim(&mut old, "inbox", random_id()).await.unwrap(), "it moves");
    assert_eq!(deployment.swap(false).await.unwrap().done, ["swap"]);
}

#[tokio::test]
async fn a_transaction_that_stays_open_is_named_and_nothing_has_changed() {
    let deployment = with_table(SEED).await;
    deployment.prepare().await.unwrap();
    let mut business = consumer(&deployment.database).await;
    sql(&mut business, "begin").await;
    assert!(claim(&mut business, "inbox", random_id()).await.unwrap());
    let mut request = request(&deployment, &deployment.specs[0]);
    request.attempts = 2;
    let error = maintain::adopt(&mut deployment.maintenance().await, request, true)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("in the way: pid") && error.contains("claims"), "{error}");
    sql(&mut business, "commit").await;
    deployment.swap(true).await.unwrap();
}
