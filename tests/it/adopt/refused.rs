//! What is refused, with what to do about it.

use super::*;

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
