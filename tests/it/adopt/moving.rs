//! Consumers move while they work: the same messages come to old and new ones, and each is processed once.

use super::*;

/// What was processed, in the transactions that claimed.
const EFFECTS: &str = "create table effects (message_id uuid not null, by text not null)";

/// Where the consumers stand.
struct Move {
    /// How many consumers, by number, claim already.
    moved: std::sync::atomic::AtomicUsize,
    stop: AtomicBool,
    /// Each message with how often it is still to be delivered.
    deliveries: Mutex<Vec<Uuid>>,
    delivered: std::sync::atomic::AtomicUsize,
}

/// One consumer. It inserts by itself until it is moved; a forgotten one learns it by its failure.
async fn consume(database: TestDatabase, shared: Arc<Move>, number: usize) -> (usize, usize) {
    let mut connection = consumer(&database).await;
    let (mut refused, mut forgotten) = (0, false);
    while !shared.stop.load(Ordering::SeqCst) {
        let Some(id) = shared.deliveries.lock().unwrap().pop() else {
            break;
        };
        let is_new = forgotten || number < shared.moved.load(Ordering::SeqCst);
        let mut transaction = connection.begin().await.unwrap();
        let claimed = if is_new {
            claim(&mut transaction, "inbox", id).await
        } else {
            insert_old(&mut transaction, id).await
        };
        let is_fresh = match claimed {
            Ok(is_fresh) => is_fresh,
            Err(error) => {
                assert_eq!(sqlstate(&error), "42P10", "{error}");
                transaction.rollback().await.unwrap();
                // The broker delivers it again.
                shared.deliveries.lock().unwrap().push(id);
                (refused, forgotten) = (refused + 1, true);
                continue;
            }
        };
        if is_fresh {
            sqlx::query("insert into effects values ($1, $2)")
                .bind(id)
                .bind(if is_new { "new" } else { "old" })
                .execute(&mut *transaction)
                .await
                .unwrap();
        }
        transaction.commit().await.unwrap();
        shared.delivered.fetch_add(1, Ordering::SeqCst);
    }
    (number, refused)
}

/// Waits until this many more deliveries have been made.
async fn some_more(shared: &Move, more: usize) {
    let wanted = shared.delivered.load(Ordering::SeqCst) + more;
    for _ in 0..6_000 {
        if shared.delivered.load(Ordering::SeqCst) >= wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the consumers stand still");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_processed_twice_while_consumers_move_from_inserts_to_claims() {
    let deployment = with_table(&format!("{SEED}; {EFFECTS}")).await;
    let mut connection = deployment.database.connect().await;
    // Some were processed before anybody knew of inboxd; they come again, too.
    let before: Vec<Uuid> = (0..50).map(|_| random_id()).collect();
    for id in &before {
        let at = inboxd::clock::Clock::system().now() - TimeDelta::days(2);
        insert_at(&mut connection, *id, at).await;
    }
    // Its last statement is not an insert any more, for which it would be taken for a consumer.
    sql(&mut connection, "select 'all is there'").await;
    let ids: Vec<Uuid> = (0..4_000).map(|_| random_id()).collect();
    // Each four times, near each other, so that the same message is in several hands at once.
    let deliveries: Vec<Uuid> = ids
        .chunks(8)
        .flat_map(|some| [some, some, some, some].concat())
        .chain(before.iter().copied())
        .rev()
        .collect();
    let shared = Arc::new(Move {
        moved: 0.into(),
        stop: AtomicBool::new(false),
        deliveries: Mutex::new(deliveries),
        delivered: 0.into(),
    });
    let tasks: Vec<_> = (0..4)
        .map(|number| tokio::spawn(consume(deployment.database.clone(), shared.clone(), number)))
        .collect();
    some_more(&shared, 200).await;
    deployment.prepare().await.unwrap();
    // They move one by one; the last is forgotten.
    for moved in 1..4 {
        some_more(&shared, 200).await;
        shared.moved.store(moved, Ordering::SeqCst);
    }
    some_more(&shared, 200).await;
    let error = deployment.swap(false).await.unwrap_err().to_string();
    assert!(error.contains("(claims, role"), "the forgotten one is seen: {error}");
    some_more(&shared, 200).await;
    deployment.swap(true).await.unwrap();
    some_more(&shared, 400).await;
    shared
        .deliveries
        .lock()
        .unwrap()
        .splice(0..0, ids.iter().copied().take(300));
    for task in tasks {
        let (number, refused) = task.await.unwrap();
        assert_eq!(refused, usize::from(number == 3), "only the forgotten one fails, once");
    }
    let left = shared.deliveries.lock().unwrap().len();
    assert_eq!(left, 0, "all were delivered");
    let (effects, distinct, old): (i64, i64, i64) =
        sqlx::query_as("select count(*), count(distinct message_id), count(*) filter (where by = 'old') from effects")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert_eq!(
        (effects, distinct),
        (4_000, 4_000),
        "each once, those from before not again"
    );
    assert!(old > 100 && old < 3_900, "both kinds worked: {old}");
    assert_eq!(doubled(&mut connection).await, 0);
}
