//! The claim functions, as any session may call them.

mod batch;
mod bouncer;
mod consumers;
mod forget;
mod forms;
mod ids;
mod locks;
mod loud;
mod model;
mod names;
mod rights;
mod sessions;
mod twins;

use inboxd::{Consumers, InboxSpec};

use crate::support::inbox::{Deployment, spec, v7_spec};

/// An inbox of either routing: `by_time` and `by_id`.
pub(crate) async fn both_routings() -> Deployment {
    Deployment::running(vec![spec("public.by_time"), v7_spec("public.by_id")]).await
}

const TABLES: [&str; 2] = ["by_time", "by_id"];

/// An id that an inbox of either routing takes.
fn new_id() -> uuid::Uuid {
    v7_at(now())
}

pub(crate) fn for_many(mut spec: InboxSpec) -> InboxSpec {
    spec.policy.consumers = Consumers::Many;
    spec
}

use chrono::{DateTime, Utc};
use inboxd::clock::Clock;

use crate::support::inbox::v7_at;

fn now() -> DateTime<Utc> {
    Clock::system().now()
}
