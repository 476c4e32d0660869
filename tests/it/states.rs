//! Every state said plainly: what goes wrong over days, and what stands between us and the server.

use std::time::Duration;

use chrono::TimeDelta;
use inboxd::{Day, Retention, Severity, maintain::StepOutcome, postgres::ErrorKind};
use sqlx::ConnectOptions;

use crate::support::{
    clock::ClockServer,
    folder::Folder,
    inbox::{Deployment, claim, codes, only, random_id, spec, sql, sqlstate, steps},
    pgbouncer::Bouncer,
    program::{A_WHILE, Service, ask, inboxd},
    server,
};

fn unique(name: &str) -> String {
    format!("{name}_{}", random_id().simple())
}

#[tokio::test]
async fn s1_when_every_create_fails_the_runway_falls_from_the_first_failure_and_fails_before_the_last_day() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let mut deployment = Deployment::new(server.database().await, server.clock(), vec![spec("public.inbox")]);
    deployment.init().await.unwrap();
    deployment.done().await;
    let mut admin = deployment.database.connect().await;
    let service = unique("service");
    sql(
        &mut admin,
        format!("create role {service} login; grant usage on schema inboxd to {service}"),
    )
    .await;
    sql(
        &mut admin,
        format!("grant select, insert, update, delete on all tables in schema inboxd to {service}"),
    )
    .await;
    deployment.options = deployment.options.clone().username(&service);

    let (mut severities, mut runways) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        server.step(TimeDelta::days(1));
        let report = deployment.pass().await;
        let failed = report
            .steps()
            .filter(|step| {
                matches!(
                    &step.outcome,
                    StepOutcome::Failed {
                        kind: ErrorKind::Privilege,
                        ..
                    }
                )
            })
            .count();
        assert!(failed > 0, "{report:?}");
        assert_eq!(report.outcome.as_str(), "partial", "told at the first failure");
        let after = &only(&report).after;
        assert!(
            codes(after).contains(&"missing_privilege".to_owned()),
            "{:?}",
            codes(after)
        );
        let runway = after
            .findings
            .iter()
            .filter(|finding| finding.message.contains("for want of a partition"))
            .map(|finding| finding.severity);
        severities.push(runway.max());
        runways.push(after.runway_seconds.unwrap());
    }
    assert!(
        runways.windows(2).all(|pair| pair[1] < pair[0] || pair[0] == 0),
        "{runways:?}"
    );
    assert_eq!(severities[0], Some(Severity::Warn));
    let first_fail = severities
        .iter()
        .position(|severity| *severity == Some(Severity::Fail))
        .unwrap();
    assert!(
        runways[first_fail] >= 86_400,
        "it fails more than a day before claims do: {runways:?}"
    );
    assert_eq!(runways[7], 0);
    assert_eq!(
        sqlstate(&claim(&mut admin, "inbox", random_id()).await.unwrap_err()),
        "23514"
    );
    deployment.options = deployment.database.options.clone();
    deployment.done().await;
    assert!(claim(&mut admin, "inbox", random_id()).await.unwrap());
}

#[tokio::test]
async fn s2_a_lock_that_makes_every_drop_fail_for_a_month_stops_no_creation() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let mut spec = spec("public.inbox");
    spec.policy.retention = Retention::For(TimeDelta::days(1));
    spec.policy.drop_grace = TimeDelta::hours(1);
    let mut deployment = Deployment::new(server.database().await, server.clock(), vec![spec]);
    deployment.timeouts.lock = Duration::from_millis(20);
    deployment.retries.attempts = 1;
    deployment.init().await.unwrap();
    deployment.done().await;
    server.step(TimeDelta::days(2));
    deployment.done().await;
    // Somebody reads the detached day for a month.
    let mut reader = deployment.database.connect().await;
    sql(&mut reader, "begin; select count(*) from inbox_2026_12_01").await;
    let mut failed = 0;
    for _ in 0..30 {
        server.step(TimeDelta::days(1));
        let report = deployment.pass().await;
        for step in report.steps() {
            if step.step.relation.as_str() == "inbox_2026_12_01" {
                failed += usize::from(matches!(
                    &step.outcome,
                    StepOutcome::Failed {
                        kind: ErrorKind::LockTimeout,
                        ..
                    }
                ));
            } else {
                assert_eq!(step.outcome, StepOutcome::Done, "{step:?}");
            }
        }
        assert!(only(&report).after.runway_seconds.unwrap() > 7 * 86_400);
    }
    assert_eq!(failed, 30, "each failure is told and counted");
    let counted: i64 = sqlx::query_scalar(
        "select count(*) from inboxd.steps where outcome = 'failed' and error_kind = 'lock_timeout'",
    )
    .fetch_one(&mut deployment.database.connect().await)
    .await
    .unwrap();
    assert_eq!(counted, 30);
    sql(&mut reader, "commit").await;
    assert!(deployment.done().await.contains(&"drop inbox_2026_12_01".to_owned()));
}

#[tokio::test]
async fn s3_a_service_that_is_killed_again_and_again_does_its_due_work_at_each_start() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let database = server.database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut connection = database.connect().await;
    for _ in 0..4 {
        // Its schedule would not fire for a month: what is done is done at the start.
        let mut command = inboxd(&["serve"]);
        command
            .envs(server.shim_environment())
            .env("DATABASE_URL", &database.url)
            .env("INBOXD_SCHEDULE__CRON", "0 0 1 * *");
        let mut service = Service::spawn(command);
        let wanted = format!("inbox_{}", Day::containing(server.now()).plus(7).underscored());
        let begin = std::time::Instant::now();
        loop {
            let made: bool = sqlx::query_scalar("select exists (select from inboxd.steps where relation_name = $1)")
                .bind(&wanted)
                .fetch_one(&mut connection)
                .await
                .unwrap();
            if made {
                break;
            }
            assert!(begin.elapsed() < A_WHILE, "{wanted} is not made");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        service.kill();
        server.step(TimeDelta::days(1));
    }
    ask(&database.url, &["status"]).must(0, &["last run: "]);
}

#[tokio::test]
async fn s30_a_pooler_in_front_is_noticed_and_refused_with_the_remedy() {
    let own = server::own(&[]).await;
    let database = own.database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    // One that refuses our settings, and one that is told to drop them in silence.
    for ignored in ["extra_float_digits", "extra_float_digits,options"] {
        let bouncer = Bouncer::ignoring(own.cluster.socket_dir(), ignored);
        let url = bouncer.url(&database.name);
        for command in ["init", "plan", "run"] {
            ask(&url, &[command]).must_fail(&["directly", "pgbouncer"]);
        }
        ask(&url, &["check"]).must(2, &["directly"]);
        // Consumers may come through it all the same: a claim takes only transaction locks.
        ask(&database.url, &["run"]);
        let mut consumer = bouncer.options(&database.name).connect().await.unwrap();
        sql(
            &mut consumer,
            format!("begin; select inbox_claim('{}', 'orders'); commit", random_id()),
        )
        .await;
    }
}

/// Something that listens as PostgreSQL would, and refuses each session in words of its own.
fn refusing(words: &'static str) -> std::net::SocketAddr {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            let _ = client.read(&mut [0; 4096]);
            let fields = format!("SFATAL\0C08P01\0M{words}\0\0");
            let length = u32::try_from(4 + fields.len()).unwrap().to_be_bytes();
            let _ = client.write_all(&[b"E", &length[..], fields.as_bytes()].concat());
        }
    });
    address
}

#[tokio::test]
async fn s30_what_a_pooler_said_is_in_the_log_and_not_told_outside() {
    const WORDS: &str = "no pool named secret_payroll";
    let url = format!("postgres://u:p@{}/d?sslmode=disable", refusing(WORDS));
    let mut service = Service::start(&url, &[("INBOXD_SCHEDULE__CRON", "0 0 1 1 *")]);
    let line = service.wait_for_log("the pass failed");
    assert!(line.to_string().contains(WORDS), "{line}");
    assert!(line.to_string().contains("directly"), "{line}");
    for path in ["/readyz", "/v1/status", "/v1/health", "/metrics", "/"] {
        let text = service.get(path).await.text().await.unwrap();
        assert!(!text.contains(WORDS), "{path}: {text}");
    }
    let readiness = service.get("/readyz").await.text().await.unwrap();
    assert!(readiness.contains("directly"), "{readiness}");
    service.must_end();
}

#[tokio::test]
async fn s31_a_flood_of_status_requests_takes_no_connection_from_maintenance() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut service = Service::start(&database.url, &[("INBOXD_SCHEDULE__CRON", "* * * * * *")]);
    service.wait_until_ready().await;
    let url = service.url("/v1/status");
    let client = reqwest::Client::new();
    let flood: Vec<_> = (0..60)
        .map(|_| {
            let (client, url) = (client.clone(), url.clone());
            tokio::spawn(async move {
                for _ in 0..10 {
                    let status = client.get(&url).send().await.unwrap().status().as_u16();
                    assert!(status == 200 || status == 503, "{status}");
                }
            })
        })
        .collect();
    let mut connection = database.connect().await;
    let count = "select count(*) from inboxd.runs where outcome = 'done'";
    let before: i64 = sqlx::query_scalar(count).fetch_one(&mut connection).await.unwrap();
    let begin = std::time::Instant::now();
    loop {
        let now: i64 = sqlx::query_scalar(count).fetch_one(&mut connection).await.unwrap();
        if now > before + 1 {
            break;
        }
        assert!(begin.elapsed() < A_WHILE, "no run beside the flood");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for task in flood {
        task.await.unwrap();
    }
    service.must_end();
}

#[tokio::test]
async fn s32_a_service_role_without_what_it_needs_is_told_the_grant_as_one_would_write_it() {
    let mut deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    let (owner, service) = (unique("owner"), unique("service"));
    sql(
        &mut admin,
        format!("create role {owner}; create role {service} login; alter table inbox owner to {owner}"),
    )
    .await;
    sql(
        &mut admin,
        format!(
            "grant create, usage on schema public to {owner}, {service}; grant usage on schema inboxd to {service}"
        ),
    )
    .await;
    sql(
        &mut admin,
        format!("grant select, insert, update, delete on all tables in schema inboxd to {service}"),
    )
    .await;
    deployment.options = deployment.options.clone().username(&service);
    let lacking = async |deployment: &Deployment| -> Vec<String> {
        let plan = deployment.plan().await.remove(0).plan;
        let finding = |finding: &inboxd::Finding| finding.remedy.strip_prefix("grant it: ").map(str::to_owned);
        plan.findings.iter().filter_map(finding).collect()
    };
    assert_eq!(lacking(&deployment).await, [format!("grant {owner} to {service}")]);
    let version: i32 = sqlx::query_scalar("select current_setting('server_version_num')::int")
        .fetch_one(&mut admin)
        .await
        .unwrap();
    if version >= 160_000 {
        // From 16 on a role may be a member and still not be allowed to make the owner the owner of anything.
        sql(
            &mut admin,
            format!("grant {owner} to {service} with inherit true, set false"),
        )
        .await;
        assert_eq!(
            lacking(&deployment).await,
            [format!("grant {owner} to {service} with set true")]
        );
        sql(&mut admin, format!("grant {owner} to {service} with set true")).await;
    } else {
        sql(&mut admin, format!("grant {owner} to {service}")).await;
    }
    assert_eq!(lacking(&deployment).await, Vec::<String>::new());
}

#[tokio::test]
async fn s33_a_standby_is_a_state_and_work_goes_on_once_it_is_promoted() {
    let mut own = server::own(&[]).await;
    let database = own.database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    // A server that believes to follow another one, from where it was shut down.
    std::fs::write(own.cluster.data_dir().join("standby.signal"), "").unwrap();
    own.cluster.restart().await.unwrap();
    ask(&database.url, &["run"]).must(0, &["standby"]);
    ask(&database.url, &["init"]).must_fail(&["standby", "primary"]);
    ask(&database.url, &["takeover"]).must_fail(&["standby"]);
    let mut service = Service::start(&database.url, &[("INBOXD_SCHEDULE__CRON", "* * * * * *")]);
    service.wait_for_log("the server is a standby; nothing is written until it is promoted");
    let not_ready = service.wait_until("/readyz", 503).await;
    assert!(
        not_ready["reasons"][0].as_str().unwrap().contains("standby"),
        "{not_ready}"
    );
    sql(&mut database.connect().await, "select pg_promote()").await;
    service.wait_until_ready().await;
    assert_eq!(service.mishaps(), [""; 0]);
    service.must_end();
}

#[tokio::test]
async fn s37_a_journal_that_lives_a_week_is_spared_needless_vacuums_and_shows_its_age_and_dead_rows() {
    let deployment = Deployment::running(vec![spec("public.inbox")]).await;
    let mut admin = deployment.database.connect().await;
    for _ in 0..20 {
        sql(
            &mut admin,
            format!("begin; select inbox_claim('{}', 'orders'); rollback", random_id()),
        )
        .await;
    }
    sql(&mut admin, format!("select inbox_claim('{}', 'orders')", random_id())).await;
    let begin = std::time::Instant::now();
    loop {
        // Before version 15 a session sends its statistics with a later statement, at most twice a second.
        sql(&mut admin, "select 1").await;
        let json = ask(&deployment.database.url, &["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&json.out).unwrap();
        let today = &status["databases"][0]["inboxes"][0]["partitions"][0];
        assert!(today["xid_age"].as_i64().unwrap() > 0, "{today}");
        if today["dead_rows"].as_i64().unwrap() >= 20 && today["estimated_rows"].as_i64().unwrap() >= 1 {
            break;
        }
        assert!(begin.elapsed() < A_WHILE, "{today}");
    }
    let parameters: Vec<String> = sqlx::query_scalar(
        "select distinct unnest(reloptions) from pg_class join pg_inherits on inhrelid = oid order by 1",
    )
    .fetch_all(&mut admin)
    .await
    .unwrap();
    assert_eq!(
        parameters,
        ["autovacuum_vacuum_insert_threshold=-1", "vacuum_truncate=false"]
    );
}

#[tokio::test]
async fn a_run_over_many_inboxes_asks_no_more_questions_than_a_run_over_one() {
    let own = server::own(&[("log_statement", "all"), ("log_line_prefix", "[%a] ")]).await;
    let mut asked = Vec::new();
    for inboxes in [1, 20] {
        let specs = (0..inboxes)
            .map(|number| spec(&format!("public.inbox_{number}")))
            .collect();
        let deployment = Deployment::new(own.database().await, inboxd::clock::Clock::system(), specs);
        deployment.init().await.unwrap();
        deployment.done().await;
        let log = || {
            std::fs::read_to_string(own.cluster.log_file())
                .unwrap()
                .lines()
                .filter(|line| line.starts_with("[inboxd maintenance]"))
                .count()
        };
        let before = log();
        assert_eq!(steps(&deployment.pass().await), Vec::<String>::new());
        asked.push(log() - before);
    }
    assert_eq!(asked[0], asked[1], "statements of a run that finds nothing to do");
    assert!((5..30).contains(&asked[0]), "{asked:?}");
}

#[tokio::test]
async fn s33_a_database_that_is_read_only_by_default_is_told_and_nothing_is_written() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    ask(&database.url, &["run"]).must(0, &[]);
    let mut admin = database.connect().await;
    sql(
        &mut admin,
        format!(
            "alter database {} set default_transaction_read_only = on",
            database.name
        ),
    )
    .await;
    for command in ["run", "init", "takeover"] {
        ask(&database.url, &[command]).must_fail(&["read only", "default_transaction_read_only"]);
    }
    ask(&database.url, &["check"]).must(1, &["read only by default"]);
    sql(&mut admin, "set default_transaction_read_only = off").await;
    sql(
        &mut admin,
        format!("alter database {} reset default_transaction_read_only", database.name),
    )
    .await;
    ask(&database.url, &["run"]).must(0, &["nothing to do"]);
    ask(&database.url, &["check"]).must(0, &["all is well"]);
}

#[tokio::test]
async fn whatever_fails_makes_the_service_not_ready_and_says_why() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    let mut service = Service::start(&database.url, &[("INBOXD_SCHEDULE__CRON", "* * * * * *")]);
    service.wait_until_ready().await;
    let mut admin = database.connect().await;
    sql(&mut admin, "grant insert on inbox to public").await;
    let not_ready = service.wait_until("/readyz", 503).await;
    assert!(
        not_ready["reasons"][0].as_str().unwrap().contains("revoke insert"),
        "{not_ready}"
    );
    sql(&mut admin, "revoke insert on inbox from public").await;
    service.wait_until_ready().await;
    service.must_end();
}

#[tokio::test]
async fn a_run_that_failed_or_never_ended_is_told_by_check() {
    let database = server::database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    ask(&database.url, &["run"]).must(0, &[]);
    let mut admin = database.connect().await;
    sql(
        &mut admin,
        "update inboxd.runs set outcome = 'failed', error = 'the disk is full'",
    )
    .await;
    ask(&database.url, &["check"]).must(1, &["failed as a whole: the disk is full"]);
    sql(
        &mut admin,
        "update inboxd.runs set outcome = null, finished_at = null, started_at = started_at - interval '16 minutes'",
    )
    .await;
    ask(&database.url, &["check"]).must(1, &["has not ended"]);
    // Who keeps all runs away has a name: here a session that took the run lock and went to sleep.
    sql(
        &mut admin,
        "set application_name = 'a lost run'; select pg_advisory_lock(x'696e626f78640001'::bigint)",
    )
    .await;
    let pid = crate::support::claims::pid_of(&mut admin).await;
    let named = format!("pid {pid} (\"a lost run\" from local) has the run lock");
    ask(&database.url, &["check"]).must(1, &["has not ended", &named]);
    sql(
        &mut admin,
        "update inboxd.runs set outcome = 'done', started_at = started_at - interval '1 day'",
    )
    .await;
    ask(&database.url, &["check"]).must(1, &["no run has begun since", &named]);
}

#[tokio::test]
async fn status_shows_what_expires_by_the_retention_that_rules() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let database = server.database().await;
    ask(&database.url, &["init"]).must(0, &[]);
    ask(&database.url, &["run"]).must(0, &[]);
    server.step(TimeDelta::days(3));
    // Configured is less than what the claim functions were made with, and the longer rules until `init` runs again.
    let folder = Folder::new();
    let file = crate::support::program::config_file(folder.path(), "[[inbox]]\ntable = 'inbox'\nretention = '1d'");
    let status = |command: &str| {
        let mut command = inboxd(&["--config", file.to_str().unwrap(), command]);
        command
            .envs(server.shim_environment())
            .env("DATABASE_URL", &database.url);
        crate::support::program::Answer::of(&mut command)
    };
    let shown = status("status").must(0, &["retention 7d", "live      inbox_2026_12_01"]);
    assert!(!shown.out.contains("expired"), "{shown:?}");
    status("init").must(0, &["retention is 604800 s, configured is 86400 s"]);
    status("status").must(0, &["retention 1d", "expired   inbox_2026_12_01"]);
}

#[tokio::test]
async fn who_was_in_the_way_of_a_step_is_told_by_the_health_checks_too() {
    let server = ClockServer::start(&[]).await;
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let database = server.database().await;
    let environment = [
        ("INBOXD_SCHEDULE__CRON", "0 0 1 1 *"),
        ("INBOXD_MAINTENANCE__LOCK_TIMEOUT", "50ms"),
        ("INBOXD_MAINTENANCE__ATTEMPTS", "1"),
    ];
    let folder = Folder::new();
    let text = "[[inbox]]\ntable = 'inbox'\nname = 'orders'\nretention = '1d'\n";
    let config = crate::support::program::config_file(folder.path(), text);
    let command = |arguments: &[&str]| {
        let mut command = inboxd(arguments);
        command
            .envs(server.shim_environment())
            .envs(environment.iter().copied())
            .env("INBOXD_CONFIG", &config)
            .env("DATABASE_URL", &database.url);
        command
    };
    crate::support::program::Answer::of(&mut command(&["init"])).must(0, &[]);
    crate::support::program::Answer::of(&mut command(&["run"])).must(0, &[]);
    server.step(TimeDelta::days(4));
    let mut other = database.connect().await;
    sql(
        &mut other,
        "set application_name = 'nightly report'; begin; lock table public.inbox_2026_12_01 in share mode",
    )
    .await;
    let pid = crate::support::claims::pid_of(&mut other).await;
    crate::support::program::Answer::of(&mut command(&["run"])).must(3, &["in the way"]);
    // Also once it has gone: the night is over when a person looks.
    sql(&mut other, "rollback").await;
    let named = format!("pid {pid} (nightly report, idle in transaction, its transaction ");
    crate::support::program::Answer::of(&mut command(&["check"])).must(1, &[&named]);
}
