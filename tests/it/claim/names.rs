//! Tables with names that only quoting survives.

use inboxd::{Derived, Function, InboxSpec, TableName};
use sqlx::{AssertSqlSafe, Connection};

use super::{for_many, new_id};
use crate::support::inbox::{Deployment, spec, sql, v7_spec};

const NAMES: [&str; 12] = [
    "in\"box; drop",
    "MixedCase",
    "back\\slash",
    "a''quote'",
    "$inboxd$",
    "$inboxd",
    "$$",
    "{{inbox}}",
    "with space_1970_01_01",
    "ümläut",
    "select",
    "forty_seven_bytes_are_the_most_that_a_name_has_",
];

fn named(name: &str, base: fn(&str) -> InboxSpec) -> InboxSpec {
    let mut spec = base("public.placeholder");
    spec.table = TableName::new("Sche\"ma", name).unwrap();
    spec.name = spec.table.quoted();
    spec
}

async fn deployed(base: fn(&str) -> InboxSpec) -> Deployment {
    let database = crate::support::server::database().await;
    sql(&mut database.connect().await, "create schema \"Sche\"\"ma\"").await;
    let specs = NAMES.iter().map(|name| named(name, base)).collect();
    let deployment = Deployment::new(database, inboxd::clock::Clock::system(), specs);
    deployment.init().await.unwrap();
    deployment.done().await;
    deployment
}

async fn claims_work(deployment: &Deployment, consumer: &str) {
    assert_eq!(NAMES[11].len(), 47);
    let mut connection = deployment.database.connect().await;
    let mut work = connection.begin().await.unwrap();
    // The bodies are parsed under the caller's settings.
    for strings in ["on", "off"] {
        sql(&mut work, format!("set local standard_conforming_strings = {strings}")).await;
        for spec in &deployment.specs {
            let table = &spec.table;
            let function = |function| table.quoted_sibling(&table.derive(Derived::Function(function)).unwrap());
            let id = new_id();
            for (call, expected) in [
                (
                    format!(
                        "{}('{id}', 'orders', null, {consumer})::text",
                        function(Function::Claim)
                    ),
                    "true",
                ),
                (
                    format!(
                        "(select outcome from {}('{id}', 'orders', null, {consumer}, '1 second'))",
                        function(Function::TryClaim)
                    ),
                    "repeated",
                ),
                (
                    format!(
                        "(select outcome from {}(array['{id}'::uuid], array['orders'], null, {consumer}, null))",
                        function(Function::ClaimBatch)
                    ),
                    "repeated",
                ),
                (
                    format!(
                        "(select outcome from {}(array['{id}'::uuid], array['orders'], null, {consumer}, '1 second'))",
                        function(Function::ClaimBatch)
                    ),
                    "repeated",
                ),
                (
                    format!("{}('{id}', {consumer}, 'a test')::text", function(Function::Forget)),
                    "true",
                ),
                (
                    format!(
                        "{}('{id}', 'orders', null, {consumer})::text",
                        function(Function::Claim)
                    ),
                    "true",
                ),
            ] {
                let outcome: String = sqlx::query_scalar(AssertSqlSafe(format!("select {call}")))
                    .fetch_one(&mut *work)
                    .await
                    .unwrap_or_else(|error| panic!("{call}: {error}"));
                assert_eq!(outcome, expected, "{call}");
            }
        }
    }
    work.commit().await.unwrap();
    for spec in &deployment.specs {
        let rows: i64 = sqlx::query_scalar(AssertSqlSafe(format!("select count(*) from {}", spec.table.quoted())))
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(rows, 2, "{}", spec.table);
    }
}

#[tokio::test]
async fn s12_names_that_only_quoting_survives_work_in_processed_at_routing() {
    claims_work(&deployed(spec).await, "null").await;
}

#[tokio::test]
async fn s12_names_that_only_quoting_survives_work_in_message_id_routing() {
    claims_work(&deployed(v7_spec).await, "null").await;
}

#[tokio::test]
async fn s12_names_that_only_quoting_survives_work_for_many_consumers() {
    claims_work(&deployed(|table| for_many(spec(table))).await, "'it''s'").await;
}
