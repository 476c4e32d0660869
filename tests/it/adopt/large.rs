//! A large table under steady claims: who waits for an adoption, and for how long.

use super::{
    watch::{Watch, of_the_checks, of_the_swap},
    *,
};

/// How many rows the table has; the long form is asked for by name.
fn rows() -> i64 {
    let rows = std::env::var("INBOXD_TEST_ROWS").ok();
    rows.map_or(200_000, |rows| rows.parse().expect("INBOXD_TEST_ROWS is a number"))
}

/// What a consumer counted: its deliveries, and the longest of its transactions.
type Counted = (u64, Duration);

/// A consumer of one kind or the other, each third of whose deliveries is one of its own again.
fn consumers(
    database: &TestDatabase,
    stop: &Arc<AtomicBool>,
    fresh: &Arc<Mutex<Vec<Uuid>>>,
    old: bool,
) -> JoinHandle<Counted> {
    let (database, stop, fresh) = (database.clone(), stop.clone(), fresh.clone());
    tokio::spawn(async move {
        let mut connection = consumer(&database).await;
        let (mut claims, mut longest, mut recent) = (0_u64, Duration::ZERO, Vec::new());
        while !stop.load(Ordering::SeqCst) {
            let begun = Instant::now();
            let mut transaction = connection.begin().await.unwrap();
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

async fn sequential_scans(connection: &mut PgConnection, oid: i64) -> i64 {
    sqlx::query_scalar("select pg_stat_get_numscans($1::oid)")
        .bind(oid)
        .fetch_one(connection)
        .await
        .unwrap()
}

/// How often the table was read from end to end, once that is at least so often: the server hears of it a moment later.
async fn scans_once_at_least(connection: &mut PgConnection, oid: i64, times: i64) -> i64 {
    for _ in 0..1_000 {
        let found = sequential_scans(connection, oid).await;
        if found >= times {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("fewer than {times} scans are counted");
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
    // An autovacuum of so many new rows would be in the swap's way, as in life; here the claims are the matter. And each
    // worker of a parallel scan would count as one.
    let name = &deployment.database.name;
    let quiet = format!(
        "alter table inbox set (autovacuum_enabled = off); alter database {name} set max_parallel_workers_per_gather = 0; analyze inbox"
    );
    sql(&mut connection, quiet).await;
    let old_ids: Vec<Uuid> = sqlx::query_scalar("select message_id from inbox limit 500")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let oid: i64 = sqlx::query_scalar("select 'inbox'::regclass::oid::int8")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    // What a session read is counted at its end at the latest.
    connection.close().await.unwrap();
    let mut connection = deployment.database.connect().await;
    let scans_before = scans_once_at_least(&mut connection, oid, 1).await;

    let (stop, fresh) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let old: Vec<_> = (0..2)
        .map(|_| consumers(&deployment.database, &stop, &fresh, true))
        .collect();
    let watch = Watch::start(&deployment.database).await;
    let began = Instant::now();
    deployment.prepare().await.unwrap();
    let prepared_in = began.elapsed();
    let preparing = watch.stop().await;

    let new: Vec<_> = (0..2)
        .map(|_| consumers(&deployment.database, &stop, &fresh, false))
        .collect();
    // Both kinds side by side: nothing of ours is going on, and nobody waits for us.
    let watch = Watch::start(&deployment.database).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let between = watch.stop().await;

    let watch = Watch::start(&deployment.database).await;
    let began = Instant::now();
    let swapped = deployment.swap(true).await.unwrap();
    let swapped_in = began.elapsed();
    let swapping = watch.stop().await;

    let mut claims = 0;
    let mut longest = Duration::ZERO;
    for task in old {
        let (made, took) = task.await.unwrap();
        claims += made;
        longest = longest.max(took);
    }
    let watch = Watch::start(&deployment.database).await;
    deployment.pass().await;
    let released = deployment.release().await.unwrap();
    let afterwards = watch.stop().await;
    stop.store(true, Ordering::SeqCst);
    for task in new {
        let (made, took) = task.await.unwrap();
        assert!(made > 0);
        claims += made;
        longest = longest.max(took);
    }
    println!(
        "{rows} rows: prepared in {prepared_in:?}, swapped in {swapped_in:?}, {} ms under the lock; {claims} claims, the \
         longest {longest:?}; the longest wait for the checks {:?}, for the swap {:?}, of {} and {} samples",
        swapped.under_lock_ms.unwrap(),
        preparing.longest(),
        swapping.longest(),
        preparing.samples,
        swapping.samples,
    );
    for seen in [&preparing, &between, &swapping, &afterwards] {
        assert!(seen.samples > 0);
    }
    preparing.must_only_be(&of_the_checks());
    between.must_only_be(&[]);
    swapping.must_only_be(&of_the_swap());
    afterwards.must_only_be(&[]);
    for seen in [&preparing, &swapping] {
        assert!(
            seen.longest() <= LOCK_TIMEOUT + COMMIT,
            "longer than the lock timeout: {seen:?}"
        );
    }

    let mut reader = deployment.database.connect().await;
    sql(&mut reader, "select count(*) from only inbox_adopted").await;
    reader.close().await.unwrap();
    let scans = scans_once_at_least(&mut connection, oid, scans_before + 3).await - scans_before;
    assert_eq!(
        scans, 3,
        "the scan, the validation, and what we read: the swap reads nothing"
    );

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
    assert!(released.rest.is_some());
}

/// What a commit takes on a machine that is busy with other tests; it is no longer in the hands of the swap.
const COMMIT: Duration = Duration::from_millis(500);
