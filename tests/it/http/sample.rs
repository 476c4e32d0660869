//! A request to each endpoint that it can answer, and how it answers then.

use serde_json::json;

use super::*;
use crate::support::inbox::sql;

pub(super) const INBOX: &str = "main.public.inbox";
pub(super) const JSON: (&str, &str) = ("content-type", "application/json");
pub(super) const ID: &str = "0199a0c5-53c4-7d2c-9f3e-6f2f6c1b8a10";

/// A database in which each endpoint has something to answer with: today is on hold, and a day that need not be there is
/// detached.
pub(super) struct Sample {
    run: String,
    /// The days that there were, from today; the last is detached.
    pub(super) days: Vec<String>,
}

impl Sample {
    /// Of a service that is ready.
    pub(super) async fn of(database: &TestDatabase) -> Self {
        let folder = Folder::new();
        let file = config_file(folder.path(), "[[inbox]]\ntable = 'public.inbox'\nahead = 8\n");
        ask(&database.url, &["run", "--config", file.to_str().unwrap()]).must(0, &[]);
        let days = days(database).await;
        ask(&database.url, &["hold", INBOX, &days[0], "--reason", "a sample"]).must(0, &[]);
        detach(database, days.last().unwrap()).await;
        let run: uuid::Uuid = sqlx::query_scalar("select id from inboxd.runs limit 1")
            .fetch_one(&mut database.connect().await)
            .await
            .unwrap();
        Self {
            run: run.to_string(),
            days,
        }
    }

    /// A path with names of the sample in it.
    pub(super) fn path(&self, method: &str, path: &str) -> String {
        let id = if path.contains("/messages/") { ID } else { &self.run };
        // What is to be looked at is not the one that is taken away.
        let day = if method == "delete" {
            &self.days[1]
        } else {
            &self.days[0]
        };
        let filled = path.replace("{inbox}", INBOX).replace("{id}", id).replace("{day}", day);
        assert!(!filled.contains('{'), "{path} has a parameter that is new here");
        filled
    }

    /// What is sent, and the status of the answer.
    pub(super) fn body(&self, method: &str, path: &str) -> (Option<String>, u16) {
        let last = self.days.last().unwrap();
        let (body, status) = match (method, path) {
            ("get" | "delete", _) => return (None, 200),
            ("post", "/v1/runs") => (json!({"dry_run": true}), 200),
            ("post", "/v1/holds") => (json!({"inbox": INBOX, "day": self.days[2], "reason": "an audit"}), 201),
            ("post", "/v1/restore") => (json!({"inbox": INBOX, "day": last, "reason": "a slip"}), 200),
            ("post", "/v1/confirm/clock" | "/v1/resume") => (json!({}), 200),
            // In a new inbox nothing is due.
            ("post", "/v1/confirm/drops") => (json!({"inbox": INBOX, "expected": 5}), 409),
            ("post", "/v1/pause") => (json!({"reason": "a migration"}), 200),
            ("post", forget) if forget.ends_with("/forget") => (json!({"reason": "a slip"}), 200),
            _ => panic!("{method} {path} is new here"),
        };
        (Some(body.to_string()), status)
    }
}

/// The days of the partitions of the inbox, from the oldest.
pub(super) async fn days(database: &TestDatabase) -> Vec<String> {
    sqlx::query_scalar(
        "select replace(substring(inhrelid::regclass::text from '[0-9_]{10}$'), '_', '-')
         from pg_inherits where inhparent = 'public.inbox'::regclass order by 1",
    )
    .fetch_all(&mut database.connect().await)
    .await
    .unwrap()
}

/// Takes a day out of the inbox, as a run would put it on record.
pub(super) async fn detach(database: &TestDatabase, day: &str) {
    let mut connection = database.connect().await;
    let name = format!("public.inbox_{}", day.replace('-', "_"));
    sql(
        &mut connection,
        format!("alter table public.inbox detach partition {name} concurrently"),
    )
    .await;
    sql(
        &mut connection,
        format!("update inboxd.partitions set detached_at = now() where day = '{day}'"),
    )
    .await;
}
