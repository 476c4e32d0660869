//! What a pass puts right on partitions that are there, and what becomes of those that have expired.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use chrono::TimeDelta;
use inboxd::{BeforeDrop, Day, Ident, Marker, OnExpiry, Retention, maintain::StepOutcome};
use sqlx::PgConnection;

use crate::support::{
    clock::ClockServer,
    folder::Folder,
    inbox::{Deployment, claim, codes, only, random_id, spec, sql, sqlstate, steps, v7_at, v7_spec},
};

async fn today(connection: &mut PgConnection) -> Day {
    let now: chrono::DateTime<chrono::Utc> = sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(connection)
        .await
        .unwrap();
    Day::containing(now)
}

fn named(day: Day) -> String {
    format!("inbox_{}", day.underscored())
}

#[tokio::test]
async fn s11_a_day_that_was_detached_by_hand_is_attached_again_with_its_rows() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let day = today(&mut admin).await;
    let id = random_id();
    assert!(claim(&mut admin, "inbox", id).await.unwrap());
    for how in ["", " concurrently"] {
        sql(
            &mut admin,
            format!("alter table inbox detach partition {}{how}", named(day)),
        )
        .await;
        sql(
            &mut admin,
            format!("alter table inbox detach partition {}", named(day.next())),
        )
        .await;
        assert_eq!(
            sqlstate(&claim(&mut admin, "inbox", random_id()).await.unwrap_err()),
            "23514",
            "claims fail meanwhile"
        );
        let report = deployment.pass().await;
        assert_eq!(
            steps(&report),
            [
                format!("attach {}", named(day)),
                format!("attach {}", named(day.next()))
            ]
        );
        assert!(
            report.steps().all(|step| step.outcome == StepOutcome::Done),
            "{report:?}"
        );
        assert!(
            only(&report).after.findings.is_empty(),
            "{:?}",
            only(&report).after.findings
        );
        assert!(
            !claim(&mut admin, "inbox", id).await.unwrap(),
            "the rows are remembered again"
        );
    }
}

#[tokio::test]
async fn s11_a_table_that_does_not_fit_is_reported_and_stays_detached() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let tomorrow = named(today(&mut admin).await.next());
    sql(&mut admin, format!("alter table inbox detach partition {tomorrow}")).await;
    // A row of another day: it cannot be attached, and nothing is lost or made in its place.
    sql(
        &mut admin,
        format!("insert into {tomorrow} values (gen_random_uuid(), 'orders', now() - interval '3 days')"),
    )
    .await;
    let report = deployment.pass().await;
    let step = report.steps().next().unwrap();
    assert!(
        matches!(&step.outcome, StepOutcome::Failed { error, .. } if error.contains("23514")),
        "{step:?}"
    );
    assert!(!deployment.partitions("inbox").await.contains(&tomorrow));
    let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select count(*) from {tomorrow}")))
        .fetch_one(&mut admin)
        .await
        .unwrap();
    assert_eq!(rows, 1);
}

/// A reader holds somebody's concurrent detach in its second phase, where it runs into its timeout.
async fn leave_pending(deployment: &Deployment, name: &str) {
    let mut reader = deployment.database.connect().await;
    let mut hand = deployment.database.connect().await;
    sql(&mut reader, "begin; select count(*) from inbox").await;
    sql(&mut hand, "set lock_timeout = '100ms'").await;
    let cut = sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "alter table inbox detach partition {name} concurrently"
    )))
    .execute(&mut hand)
    .await;
    assert_eq!(sqlstate(&cut.unwrap_err()), "55P03");
    sql(&mut reader, "commit").await;
}

#[tokio::test]
async fn a_pending_detach_of_a_day_that_is_needed_is_finalized_and_attached_again_in_one_run() {
    let mut deployment = Deployment::running(vec![spec("public.inbox")]).await;
    deployment.timeouts.lock = Duration::from_secs(10);
    let mut admin = deployment.database.connect().await;
    let name = named(today(&mut admin).await);
    leave_pending(&deployment, &name).await;
    assert_eq!(
        deployment.done().await,
        [format!("finalize {name}"), format!("attach {name}")]
    );
    assert!(claim(&mut admin, "inbox", random_id()).await.unwrap());
}

#[tokio::test]
async fn a_day_that_was_made_by_hand_is_not_made_a_second_time_in_message_id_routing() {
    let deployment = Deployment::initialized(vec![v7_spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let yesterday = today(&mut admin).await.plus(-1);
    let (name, from, to) = (named(yesterday), yesterday.uuid_floor(), yesterday.next().uuid_floor());
    sql(
        &mut admin,
        format!(
            "create table {name} (like inbox including all);
             alter table inbox attach partition {name} for values from ('{from}') to ('{to}')"
        ),
    )
    .await;
    deployment.done().await;
    let id = v7_at(yesterday.start());
    assert!(claim(&mut admin, "inbox", id).await.unwrap());
    sql(&mut admin, format!("drop table {name}")).await;
    assert_eq!(deployment.done().await, Vec::<String>::new());
    assert_eq!(codes(&deployment.plan().await[0].plan), ["gap"]);
    let error = claim(&mut admin, "inbox", id).await.unwrap_err();
    assert_eq!(sqlstate(&error), "23514", "it must not be fresh a second time");
}

/// A restored database gives its tables new OIDs, and the control schema in it still has the old ones.
#[tokio::test]
async fn an_oid_that_is_on_record_for_another_day_says_nothing_about_a_table() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let tomorrow = named(today(&mut admin).await.next());
    for days_ago in [40, 41] {
        sql(
            &mut admin,
            format!(
                "insert into inboxd.partitions (inbox_id, day, relation_oid, detached_at)
                 select id, current_date - {days_ago}, '{tomorrow}'::regclass::oid, now() - interval '30 days' from inboxd.inboxes"
            ),
        )
        .await;
    }
    assert_eq!(deployment.done().await, Vec::<String>::new());
    // Were it taken for detached on record, nobody would attach it again.
    sql(&mut admin, format!("alter table inbox detach partition {tomorrow}")).await;
    assert_eq!(deployment.done().await, [format!("attach {tomorrow}")]);
    assert_eq!(deployment.done().await, Vec::<String>::new());
}

#[tokio::test]
async fn s18_what_is_marked_as_something_else_stays_marked_so_when_its_detach_is_finalized() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let old = today(&mut admin).await.plus(-40);
    let (name, next) = (named(old), old.next());
    let comment = format!("inboxd inbox={} day={old}", random_id());
    sql(
        &mut admin,
        format!(
            "create table {name} (like inbox including defaults, primary key (message_id));
             alter table inbox attach partition {name} for values from ('{old} 00:00+00') to ('{next} 00:00+00');
             comment on table {name} is '{comment}'"
        ),
    )
    .await;
    leave_pending(&deployment, &name).await;
    assert_eq!(deployment.done().await, [format!("finalize {name}")]);
    let found: String = sqlx::query_scalar("select obj_description($1::regclass)")
        .bind(&name)
        .fetch_one(&mut admin)
        .await
        .unwrap();
    assert_eq!(found, comment);
    assert!(deployment.plan().await[0].plan.steps.is_empty(), "it is never removed");
}

#[tokio::test]
async fn c31_a_key_that_was_dropped_is_made_again_concurrently() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let name = named(today(&mut admin).await);
    let id = random_id();
    assert!(claim(&mut admin, "inbox", id).await.unwrap());
    sql(&mut admin, format!("alter table {name} drop constraint {name}_pkey")).await;
    assert_eq!(
        sqlstate(&claim(&mut admin, "inbox", random_id()).await.unwrap_err()),
        "42P10",
        "claims fail loudly"
    );
    assert_eq!(codes(&deployment.plan().await[0].plan), ["missing_key"]);
    assert_eq!(deployment.done().await, [format!("repair_key {name}")]);
    assert!(!claim(&mut admin, "inbox", id).await.unwrap());
    assert!(claim(&mut admin, "inbox", random_id()).await.unwrap());
    assert!(deployment.plan().await[0].plan.findings.is_empty());
}

#[tokio::test]
async fn c31_a_key_is_made_again_however_long_a_report_keeps_its_snapshot() {
    let mut deployment = Deployment::running(vec![spec("public.inbox")]).await;
    (deployment.timeouts.lock, deployment.timeouts.statement) = (Duration::from_millis(50), Duration::from_millis(100));
    let (mut admin, mut reader) = (deployment.database.connect().await, deployment.database.connect().await);
    let name = named(today(&mut admin).await);
    sql(&mut admin, format!("alter table {name} drop constraint {name}_pkey")).await;
    sql(&mut reader, "begin isolation level repeatable read; select 1").await;
    let (done, ()) = tokio::join!(deployment.done(), async {
        let waits = "select exists (select from pg_stat_activity
             where application_name = 'inboxd maintenance' and datname = current_database() and wait_event_type = 'Lock'
               and clock_timestamp() - query_start > interval '500 milliseconds')";
        for _ in 0..2_000 {
            if sqlx::query_scalar(waits).fetch_one(&mut admin).await.unwrap() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sql(&mut reader, "commit").await;
    });
    assert_eq!(done, [format!("repair_key {name}")]);
    assert!(claim(&mut admin, "inbox", random_id()).await.unwrap());
}

#[tokio::test]
async fn c31_duplicates_under_a_lost_key_are_reported_and_not_touched() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let name = named(today(&mut admin).await);
    sql(&mut admin, format!("alter table {name} drop constraint {name}_pkey")).await;
    let id = random_id();
    sql(
        &mut admin,
        format!("insert into inbox values ('{id}', 'a'), ('{id}', 'b')"),
    )
    .await;
    for _ in 0..2 {
        // The second run finds the invalid index that the first one left.
        let report = deployment.pass().await;
        let step = report.steps().next().unwrap();
        assert!(
            matches!(&step.outcome, StepOutcome::Failed { error, .. } if error.contains("23505")),
            "{step:?}"
        );
    }
    let rows: i64 = sqlx::query_scalar("select count(*) from inbox")
        .fetch_one(&mut admin)
        .await
        .unwrap();
    assert_eq!(rows, 2);
    sql(&mut admin, "delete from inbox where topic = 'b'").await;
    assert_eq!(deployment.done().await, [format!("repair_key {name}")]);
}

#[tokio::test]
async fn drift_is_mended_where_no_claim_waits_for_it_and_reported_elsewhere() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let today = today(&mut admin).await;
    let (now, later) = (named(today), named(today.plus(5)));
    let role = format!("role_{}", random_id().simple());
    sql(
        &mut admin,
        format!("create role {role}; grant create on schema public to {role}"),
    )
    .await;
    for name in [&now, &later] {
        sql(
            &mut admin,
            format!("alter table {name} reset (autovacuum_vacuum_insert_threshold); grant select on {name} to public"),
        )
        .await;
        sql(&mut admin, format!("comment on table {name} is null; alter table {name} owner to {role}; alter table {name} replica identity full")).await;
    }
    let report = deployment.pass().await;
    assert!(
        report.steps().all(|step| step.outcome == StepOutcome::Done),
        "{report:?}"
    );
    let both: Vec<String> = ["repair_marker", "repair_grants", "repair_storage"]
        .into_iter()
        .map(str::to_owned)
        .collect();
    let on = |name: &str| {
        steps(&report)
            .into_iter()
            .filter_map(|step| step.strip_suffix(&format!(" {name}")).map(str::to_owned))
            .collect::<Vec<_>>()
    };
    assert_eq!(on(&now), both, "on today only what takes no lock that a claim meets");
    assert_eq!(
        on(&later),
        [
            &both[..],
            &["repair_owner".to_owned(), "repair_replica_identity".to_owned()]
        ]
        .concat()
    );
    assert_eq!(codes(&only(&report).after), ["owner_drift", "replica_identity_drift"]);
    let comment: String = sqlx::query_scalar("select obj_description($1::regclass)")
        .bind(&now)
        .fetch_one(&mut admin)
        .await
        .unwrap();
    assert_eq!(comment.parse::<Marker>().unwrap().day, today);
}

#[tokio::test]
async fn new_partitions_have_the_inboxes_replica_identity() {
    let deployment = Deployment::initialized(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    sql(&mut admin, "alter table inbox replica identity full").await;
    deployment.done().await;
    let others: i64 = sqlx::query_scalar(
        "select count(*) from pg_inherits join pg_class on oid = inhrelid where relreplident <> 'f'",
    )
    .fetch_one(&mut admin)
    .await
    .unwrap();
    assert_eq!(others, 0);
    assert!(deployment.plan().await[0].plan.findings.is_empty());
}

#[tokio::test]
async fn a_missing_privilege_is_named_as_one_would_grant_it() {
    let mut deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let (owner, service) = (
        format!("owner_{}", random_id().simple()),
        format!("service_{}", random_id().simple()),
    );
    sql(
        &mut admin,
        format!("create role {owner}; create role {service} login; alter table inbox owner to {owner}"),
    )
    .await;
    sql(&mut admin, format!("grant usage on schema inboxd to {service}; grant select, insert, update, delete on all tables in schema inboxd to {service}")).await;
    sql(
        &mut admin,
        format!("revoke create on schema public from public; grant create, usage on schema public to {owner}"),
    )
    .await;
    deployment.options = deployment.options.clone().username(&service);
    let plan = deployment.plan().await.remove(0).plan;
    let remedies: Vec<&str> = plan
        .findings
        .iter()
        .filter(|finding| finding.message.contains("lacks a privilege"))
        .map(|finding| finding.remedy.as_str())
        .collect();
    assert!(
        remedies.contains(&format!("grant it: grant {owner} to {service}").as_str()),
        "{remedies:?}"
    );
    assert!(
        remedies.contains(&format!("grant it: grant create, usage on schema public to {service}").as_str()),
        "{remedies:?}"
    );
    sql(
        &mut admin,
        format!("grant {owner} to {service}; grant create, usage on schema public to {service}"),
    )
    .await;
    assert!(!codes(&deployment.plan().await[0].plan).contains(&"missing_privilege".to_owned()));
}

/// An inbox whose day of 2026-12-01 has expired and is detached for longer than its grace.
async fn due_to_go(server: &ClockServer, change: impl FnOnce(&mut inboxd::InboxSpec)) -> Deployment {
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let mut spec = spec("public.inbox");
    spec.policy.retention = Retention::For(TimeDelta::days(1));
    spec.policy.drop_grace = TimeDelta::hours(1);
    change(&mut spec);
    let deployment = Deployment::new(server.database().await, server.clock(), vec![spec]);
    deployment.init().await.unwrap();
    deployment.done().await;
    server.step(TimeDelta::days(2));
    assert!(deployment.done().await.contains(&"detach inbox_2026_12_01".to_owned()));
    server.step(TimeDelta::minutes(61));
    deployment
}

async fn schema_of(deployment: &Deployment, name: &str) -> Vec<String> {
    sqlx::query_scalar("select relnamespace::regnamespace::text from pg_class where relname = $1")
        .bind(name)
        .fetch_all(&mut deployment.database.connect().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn what_is_to_be_kept_is_detached_and_stays() {
    let server = ClockServer::start(&[]).await;
    let deployment = due_to_go(&server, |spec| {
        spec.policy.on_expiry = OnExpiry::Keep { archive_schema: None }
    })
    .await;
    assert_eq!(deployment.done().await, Vec::<String>::new());
    assert_eq!(schema_of(&deployment, "inbox_2026_12_01").await, ["public"]);
}

#[tokio::test]
async fn what_is_to_be_archived_moves_to_the_archives_schema() {
    let server = ClockServer::start(&[]).await;
    let archive = Ident::new("archive").unwrap();
    let deployment = due_to_go(&server, |spec| {
        spec.policy.on_expiry = OnExpiry::Keep {
            archive_schema: Some(archive),
        }
    })
    .await;
    let report = deployment.pass().await;
    let step = report.steps().next().unwrap();
    assert!(
        matches!(&step.outcome, StepOutcome::Failed { error, .. } if error.contains("archive")),
        "there is no such schema yet: {step:?}"
    );
    sql(&mut deployment.database.connect().await, "create schema archive").await;
    assert_eq!(deployment.done().await, ["archive inbox_2026_12_01"]);
    assert_eq!(schema_of(&deployment, "inbox_2026_12_01").await, ["archive"]);
    let plan = deployment.plan().await.remove(0).plan;
    assert_eq!((plan.steps, plan.findings), (vec![], vec![]));
}

#[tokio::test]
async fn s21_a_day_that_is_held_while_its_command_runs_is_not_dropped() {
    let server = ClockServer::start(&[]).await;
    let deployment = due_to_go(&server, |_| {}).await;
    // The command itself puts the hold, as a person would meanwhile.
    let mut held = deployment.clone();
    held.specs[0].before_drop = Some(BeforeDrop {
        command: [
            "psql",
            "-qXd",
            &deployment.database.url,
            "-c",
            "insert into inboxd.holds (inbox_id, day, reason) select id, '2026-12-01', 'asked for' from inboxd.inboxes",
        ]
        .map(str::to_owned)
        .to_vec(),
        timeout: Duration::from_secs(20),
    });
    let report = held.pass().await;
    let step = report.steps().next().unwrap();
    assert!(
        matches!(&step.outcome, StepOutcome::Failed { error, .. } if error.contains("on hold")),
        "{step:?}"
    );
    assert_eq!(schema_of(&deployment, "inbox_2026_12_01").await, ["public"]);
    assert_eq!(deployment.done().await, Vec::<String>::new());
}

#[tokio::test]
async fn nothing_is_dropped_before_its_command_has_succeeded() {
    let server = ClockServer::start(&[]).await;
    let folder = Folder::new();
    let (script, log) = (folder.path().join("export.sh"), folder.path().join("exported"));
    // Written by a shell: a program that this process still had open for writing could not be run.
    let text = format!(
        "echo \"$INBOXD_SCHEMA $INBOXD_TABLE $INBOXD_DAY $INBOXD_FROM $INBOXD_TO $1\" > {}\necho no room >&2\nexit $(cat {}.code)\n",
        log.display(),
        log.display()
    );
    std::process::Command::new("sh")
        .arg("-c")
        .arg(format!("cat > {} <<'END'\n{text}END\n", script.display()))
        .status()
        .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(format!("{}.code", log.display()), "3").unwrap();
    let command = vec!["sh".to_owned(), script.display().to_string(), "$HOME; echo".to_owned()];
    let mut deployment = due_to_go(&server, |spec| {
        spec.before_drop = Some(BeforeDrop {
            command,
            timeout: Duration::from_secs(20),
        })
    })
    .await;

    let report = deployment.pass().await;
    let step = report.steps().next().unwrap();
    assert!(
        matches!(&step.outcome, StepOutcome::Failed { error, .. } if error.contains("no room")),
        "{step:?}"
    );
    assert_eq!(schema_of(&deployment, "inbox_2026_12_01").await, ["public"]);
    let told = std::fs::read_to_string(&log).unwrap();
    assert_eq!(
        told.trim(),
        "public inbox_2026_12_01 2026-12-01 2026-12-01 00:00:00+00 2026-12-02 00:00:00+00 $HOME; echo",
        "no shell reads the arguments"
    );

    // One that hangs is killed, and one that is not there says so.
    for (command, needle) in [
        (vec!["sleep", "600"], "was killed"),
        (vec!["/nowhere/export"], "cannot be started"),
    ] {
        let command = command.into_iter().map(str::to_owned).collect();
        deployment.specs[0].before_drop = Some(BeforeDrop {
            command,
            timeout: Duration::from_millis(100),
        });
        let report = deployment.pass().await;
        assert!(
            matches!(&report.steps().next().unwrap().outcome, StepOutcome::Failed { error, .. } if error.contains(needle)),
            "{report:?}"
        );
    }
    std::fs::write(format!("{}.code", log.display()), "0").unwrap();
    deployment.specs[0].before_drop = Some(BeforeDrop {
        command: vec!["sh".to_owned(), script.display().to_string()],
        timeout: Duration::from_secs(20),
    });
    assert_eq!(deployment.done().await, ["drop inbox_2026_12_01"]);
    assert!(schema_of(&deployment, "inbox_2026_12_01").await.is_empty());
}
