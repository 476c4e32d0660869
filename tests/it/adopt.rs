//! A table in use becomes an inbox, under old and new consumers; and an inbox becomes something that works without us.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::{
    InboxSpec,
    maintain::{self, AdoptRequest, Adopted, AdoptionState},
    postgres::DbError,
};
use sqlx::{Connection, PgConnection};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::{
    support::{
        claims::{batch, rows_of},
        clock::ClockServer,
        inbox::{Deployment, claim, codes, random_id, spec, sql, sqlstate, try_claim},
        program::{Answer, inboxd},
        server::{self, TestDatabase},
    },
    waiting::{Sampler, consumer},
};

const SEED: &str = "create table inbox (message_id uuid primary key, topic varchar(255) not null,
                    processed_at timestamptz not null default now())";

/// The insert of a consumer that knows of no claim function.
const OLD_INSERT: &str = "insert into inbox (message_id, topic) values ($1, 'orders') on conflict (message_id) do nothing returning message_id";

fn request<'a>(deployment: &'a Deployment, spec: &'a InboxSpec) -> AdoptRequest<'a> {
    AdoptRequest {
        deployment: &deployment.name,
        spec,
        actor: "a test",
        clock: &deployment.clock,
        lock_timeout: Duration::from_millis(250),
        attempts: 40,
        tell: &|_| {},
    }
}

impl Deployment {
    async fn prepare(&self) -> Result<Adopted, DbError> {
        maintain::prepare_adoption(&mut self.maintenance().await, request(self, &self.specs[0])).await
    }

    async fn swap(&self, confirmed: bool) -> Result<Adopted, DbError> {
        maintain::adopt(&mut self.maintenance().await, request(self, &self.specs[0]), confirmed).await
    }

    async fn abort(&self) -> Result<Adopted, DbError> {
        maintain::abort_adoption(&mut self.maintenance().await, request(self, &self.specs[0])).await
    }

    async fn release(&self) -> Result<maintain::ReleasedInbox, DbError> {
        maintain::release_inbox(&mut self.maintenance().await, request(self, &self.specs[0])).await
    }

    async fn adopted(&self) {
        self.prepare().await.unwrap();
        self.swap(true).await.unwrap();
    }
}

/// A database with a table that was filled before anybody knew of inboxd.
async fn with_table(create: &str) -> Deployment {
    let deployment = Deployment::new(
        server::database().await,
        inboxd::clock::Clock::system(),
        vec![spec("public.inbox")],
    );
    sql(&mut deployment.database.connect().await, create).await;
    deployment
}

async fn insert_old(connection: &mut PgConnection, id: Uuid) -> Result<bool, sqlx::Error> {
    let found: Option<Uuid> = sqlx::query_scalar(OLD_INSERT)
        .bind(id)
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

async fn insert_at(connection: &mut PgConnection, id: Uuid, at: DateTime<Utc>) {
    sqlx::query("insert into inbox values ($1, 'orders', $2)")
        .bind(id)
        .bind(at)
        .execute(connection)
        .await
        .unwrap();
}

/// Rows of each id of the journal that are more than one.
async fn doubled(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar("select count(*) - count(distinct message_id) from inbox")
        .fetch_one(connection)
        .await
        .unwrap()
}

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
async fn a_table_that_would_lose_something_is_refused_with_what_to_do() {
    for (spoil, needle) in [
        ("alter table inbox drop constraint inbox_pkey", "unique index"),
        ("alter table inbox alter column topic type text", "varchar(255)"),
        (
            "alter table inbox add column payload text not null",
            "give it a default",
        ),
        (
            "alter table inbox add column n int generated always as identity",
            "drop identity",
        ),
        ("alter table inbox add unique (topic)", "inbox_topic_key"),
        ("create view seen as select * from inbox", "views"),
        ("create table done (id uuid references inbox)", "foreign keys"),
        (
            "create publication changes for table inbox",
            "publish_via_partition_root",
        ),
        ("alter table inbox enable row level security", "row level security"),
        (
            "create function f() returns setof inbox language sql as 'select * from inbox'",
            "row type",
        ),
        ("create rule r as on delete to inbox do instead nothing", "rules"),
        ("alter table inbox set unlogged", "set logged"),
        ("create table younger () inherits (inbox)", "inherits"),
        ("grant select (topic) on inbox to pg_monitor", "single columns"),
        ("create table inbox_adopted ()", "names that the swap needs"),
        (
            "insert into inbox values (gen_random_uuid(), 'x', now() + '4 days')",
            "1 rows have a processed_at",
        ),
        (
            "alter table inbox alter column topic drop not null; insert into inbox values (gen_random_uuid(), null)",
            "1 rows have no topic",
        ),
        (
            "create function t() returns trigger language plpgsql as 'begin return new; end';
             create trigger tell after insert on inbox for each row execute function t()",
            "triggers",
        ),
    ] {
        let deployment = with_table(&format!("{SEED}; {spoil}")).await;
        let error = deployment.prepare().await.unwrap_err().to_string();
        assert!(error.contains(needle), "{spoil}: {error}");
        let left: i64 = sqlx::query_scalar(
            "select count(*) from pg_constraint where conrelid = 'inbox'::regclass and contype = 'c'",
        )
        .fetch_one(&mut deployment.database.connect().await)
        .await
        .unwrap();
        assert_eq!(left, 0, "{spoil}: refused before anything keeps rows out");
    }
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

/// Consumers of both kinds at a few dozen ids, each of which comes again and again: what they counted as theirs.
fn consumers(
    database: &TestDatabase,
    stop: &Arc<AtomicBool>,
    fresh: &Arc<Mutex<Vec<Uuid>>>,
    old: bool,
) -> JoinHandle<(u64, Duration)> {
    let (database, stop, fresh) = (database.clone(), stop.clone(), fresh.clone());
    tokio::spawn(async move {
        let mut connection = consumer(&database).await;
        let (mut claims, mut longest, mut recent) = (0_u64, Duration::ZERO, Vec::new());
        while !stop.load(Ordering::SeqCst) {
            let begun = Instant::now();
            let mut transaction = connection.begin().await.unwrap();
            // Every third is a redelivery of one of its own.
            let id = match recent.get(usize::try_from(claims).unwrap() % 97) {
                Some(id) if claims % 3 == 0 => *id,
                _ => random_id(),
            };
            let is_fresh = if old {
                match insert_old(&mut transaction, id).await {
                    Ok(is_fresh) => is_fresh,
                    Err(error) if sqlstate(&error) == "42P10" => break,
                    Err(error) => panic!("{error}"),
                }
            } else {
                claim(&mut transaction, "inbox", id).await.unwrap()
            };
            transaction.commit().await.unwrap();
            longest = longest.max(begun.elapsed());
            if is_fresh {
                fresh.lock().unwrap().push(id);
                recent.push(id);
            }
            claims += 1;
        }
        (claims, longest)
    })
}

fn rows() -> i64 {
    let rows = std::env::var("INBOXD_TEST_ADOPT_ROWS").ok();
    rows.map_or(200_000, |rows| {
        rows.parse().expect("INBOXD_TEST_ADOPT_ROWS is a number")
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_table_is_adopted_under_old_and_new_consumers() {
    let deployment = with_table(SEED).await;
    let mut connection = deployment.database.connect().await;
    let rows = rows();
    sqlx::query(
        "insert into inbox select gen_random_uuid(), 'orders', now() - n * interval '6 days' / $1 from generate_series(1, $1) as n",
    )
    .bind(i32::try_from(rows).unwrap())
    .execute(&mut connection)
    .await
    .unwrap();
    let old_ids: Vec<Uuid> = sqlx::query_scalar("select message_id from inbox limit 500")
        .fetch_all(&mut connection)
        .await
        .unwrap();

    let (stop, fresh) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let old: Vec<_> = (0..2)
        .map(|_| consumers(&deployment.database, &stop, &fresh, true))
        .collect();
    let mut began = Instant::now();
    let prepare_sampler = Sampler::start(&deployment.database).await;
    deployment.prepare().await.unwrap();
    let prepared_in = began.elapsed();
    let (_, prepare_blocked) = prepare_sampler.stop().await;
    let new: Vec<_> = (0..2)
        .map(|_| consumers(&deployment.database, &stop, &fresh, false))
        .collect();
    // Both kinds side by side, until the new ones have claimed for a while.
    tokio::time::sleep(Duration::from_millis(500)).await;
    began = Instant::now();
    let swap_sampler = Sampler::start(&deployment.database).await;
    let swapped = deployment.swap(true).await.unwrap();
    let swapped_in = began.elapsed();
    let (samples, swap_blocked) = swap_sampler.stop().await;
    let mut claims = 0;
    let mut longest = Duration::ZERO;
    for task in old {
        let (made, wait) = task.await.unwrap();
        claims += made;
        longest = longest.max(wait);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.store(true, Ordering::SeqCst);
    for task in new {
        let (made, wait) = task.await.unwrap();
        assert!(made > 0);
        claims += made;
        longest = longest.max(wait);
    }
    println!(
        "{rows} rows: prepared in {prepared_in:?}, swapped in {swapped_in:?}, {:?} ms under the lock, {claims} claims, the \
         longest {longest:?}; {} of {samples} samples saw one wait for the swap",
        swapped.under_lock_ms,
        swap_blocked.len()
    );
    for blocker in prepare_blocked.iter().chain(&swap_blocked) {
        let reads_all = ["adopt, look for rows", "adopt, make sure that a check"];
        assert!(
            !reads_all.iter().any(|statement| blocker.contains(statement)),
            "what is long makes nobody wait: {blocker}"
        );
    }
    // A lock timeout, the transaction under the lock, and what a loaded machine takes.
    assert!(longest < Duration::from_secs(3), "{longest:?}");

    let fresh = fresh.lock().unwrap().clone();
    let found: i64 = sqlx::query_scalar("select count(*) from inbox")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(
        found,
        rows + i64::try_from(fresh.len()).unwrap(),
        "nothing lost, nothing twice"
    );
    assert_eq!(doubled(&mut connection).await, 0);
    for id in old_ids.iter().chain(fresh.iter().take(500)) {
        assert!(!claim(&mut connection, "inbox", *id).await.unwrap());
    }
}

/// Kills the program at each of its statements in turn, and runs it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_anywhere_and_run_again_it_ends_the_same() {
    for (killed_at, arguments) in [
        ("claim, inner", &["--prepare"][..]),
        ("comment on a claim function", &["--prepare"]),
        ("adopt, add a check", &["--prepare"]),
        ("adopt, make sure", &["--prepare"]),
        ("adopt, rename", &["--confirm-consumers-moved"]),
        ("adopt, create the parent", &["--confirm-consumers-moved"]),
        ("create partition, attach", &["--confirm-consumers-moved"]),
        ("adopt, drop a check", &["--abort"]),
    ] {
        let deployment = with_table(SEED).await;
        let mut connection = deployment.database.connect().await;
        let old = random_id();
        insert_at(
            &mut connection,
            old,
            inboxd::clock::Clock::system().now() - TimeDelta::days(2),
        )
        .await;
        let url = deployment.database.url.clone();
        if arguments != ["--prepare"] {
            adopt(&url, &["--prepare"]).must(0, &["DEADLINE"]);
        }
        die_at(&url, killed_at, arguments, &mut connection).await;
        assert!(
            !claim_or_insert(&mut connection, old).await,
            "{killed_at}: still a duplicate"
        );
        adopt(&url, arguments).must(0, &[]);
        adopt(&url, &["--prepare"]).must(0, &[]);
        adopt(&url, &["--confirm-consumers-moved"]).must(0, &["It is an inbox now"]);
        assert!(!claim(&mut connection, "inbox", old).await.unwrap(), "{killed_at}");
        let names = deployment.partitions("inbox").await;
        assert!(names.contains(&"inbox_adopted".to_owned()), "{killed_at}: {names:?}");
        let report = Answer::of(inboxd(&["run"]).env("DATABASE_URL", &url));
        assert_eq!(report.code, Some(0), "{report:?}");
        sql(&mut connection, "drop event trigger hold_up").await;
        let left: i64 = sqlx::query_scalar(
            "select count(*) from pg_constraint where contype = 'c' and conrelid in ('inbox'::regclass, 'inbox_adopted'::regclass)",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap();
        assert_eq!(left, 0, "{killed_at}");
    }
}

async fn claim_or_insert(connection: &mut PgConnection, id: Uuid) -> bool {
    match claim(connection, "inbox", id).await {
        Ok(is_fresh) => is_fresh,
        Err(_) => insert_old(connection, id).await.unwrap(),
    }
}

fn adopt(url: &str, arguments: &[&str]) -> Answer {
    let arguments: Vec<&str> = ["adopt"].into_iter().chain(arguments.iter().copied()).collect();
    Answer::of(inboxd(&arguments).env("DATABASE_URL", url))
}

/// Runs the program until it is inside a statement that begins like this, and kills it there, with its session.
async fn die_at(url: &str, statement: &str, arguments: &[&str], connection: &mut PgConnection) {
    sql(
        connection,
        format!(
            "create table held_up (once boolean);
             create function hold_up() returns event_trigger language plpgsql as $$
             begin
               if current_query() like '-- inboxd: {statement}%' and current_setting('application_name') = 'inboxd adopt'
                 and not exists (select from public.held_up)
               then
                 perform pg_sleep(60);
               end if;
             end $$;
             create event trigger hold_up on ddl_command_start execute function hold_up()"
        ),
    )
    .await;
    let arguments: Vec<&str> = ["adopt"].into_iter().chain(arguments.iter().copied()).collect();
    let mut child = inboxd(&arguments)
        .env("DATABASE_URL", url)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut pid = None;
    for _ in 0..4_000 {
        pid = sqlx::query_scalar::<_, i32>(
            "select pid from pg_stat_activity
             where application_name = 'inboxd adopt' and datname = current_database() and wait_event = 'PgSleep'",
        )
        .fetch_optional(&mut *connection)
        .await
        .unwrap();
        if pid.is_some() || child.try_wait().unwrap().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let pid = pid.unwrap_or_else(|| panic!("it never came to {statement:?}"));
    child.kill().unwrap();
    child.wait().unwrap();
    // The server would notice at its next word to the client; so it notices now.
    sqlx::query("select pg_terminate_backend($1, 10000)")
        .bind(pid)
        .execute(&mut *connection)
        .await
        .unwrap();
    sql(connection, "insert into held_up values (true)").await;
}
