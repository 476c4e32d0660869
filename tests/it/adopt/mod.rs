//! A table in use becomes an inbox, under old and new consumers; and an inbox becomes something that works without us.

mod killed;
mod large;
mod moves;
mod moving;
mod partitioned;
mod refused;
mod release;
mod watch;

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
    waiting::consumer,
};

const SEED: &str = "create table inbox (message_id uuid primary key, topic varchar(255) not null,
                    processed_at timestamptz not null default now())";

/// The insert of a consumer that knows of no claim function.
const OLD_INSERT: &str = "insert into inbox (message_id, topic) values ($1, 'orders') on conflict (message_id) do nothing returning message_id";

/// The default.
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);

fn request<'a>(deployment: &'a Deployment, spec: &'a InboxSpec) -> AdoptRequest<'a> {
    AdoptRequest {
        deployment: &deployment.name,
        spec,
        actor: "a test",
        clock: &deployment.clock,
        lock_timeout: LOCK_TIMEOUT,
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
