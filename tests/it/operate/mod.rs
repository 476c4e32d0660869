//! What a person decides: each act, what it refuses, and what it leaves on the audit.

mod command;
mod confirm;
mod hold;
mod message;
mod pause;
mod restore;

use chrono::TimeDelta;
use inboxd::{
    InboxSpec, Retention,
    maintain::operate::{Actor, Operator},
};
use sqlx::PgConnection;

use crate::support::{clock::ClockServer, inbox::Deployment};

/// Who acts in these tests.
pub(crate) fn alice() -> Actor {
    Actor::new("alice").unwrap()
}

pub(crate) fn operator<'a>(deployment: &'a Deployment, actor: &'a Actor) -> Operator<'a> {
    Operator {
        deployment: &deployment.name,
        actor,
        clock: &deployment.clock,
        retries: deployment.retries,
    }
}

/// A line of the audit: who, what, to which table, why, and the day that it is about.
type Line = (String, String, Option<String>, Option<String>, Option<String>);

/// The audit, the oldest line first.
pub(crate) async fn audit(connection: &mut PgConnection) -> Vec<Line> {
    sqlx::query_as(
        "select audit.actor, audit.action, inbox.table_name, audit.reason, audit.detail ->> 'day'
         from inboxd.audit as audit left join inboxd.inboxes as inbox on inbox.id = audit.inbox_id order by audit.id",
    )
    .fetch_all(connection)
    .await
    .unwrap()
}

/// A line of the audit as [`audit`] reads it, by alice.
pub(crate) fn line(action: &str, table: Option<&str>, reason: Option<&str>, day: Option<&str>) -> Line {
    let text = |text: Option<&str>| text.map(str::to_owned);
    (
        "alice".to_owned(),
        action.to_owned(),
        text(table),
        text(reason),
        text(day),
    )
}

/// Two days of retention, a day of grace.
pub(crate) fn short_lived(mut spec: InboxSpec) -> InboxSpec {
    spec.policy.retention = Retention::For(TimeDelta::days(2));
    spec
}

/// On 1 December at noon, with its first pass done.
pub(crate) async fn in_december(server: &ClockServer, specs: Vec<InboxSpec>) -> Deployment {
    server.set_to("2026-12-01T12:00:00Z".parse().unwrap());
    let deployment = Deployment::new(server.database().await, server.clock(), specs);
    deployment.init().await.unwrap();
    deployment.done().await;
    deployment
}
