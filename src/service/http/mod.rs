//! HTTP: one endpoint a file, its answer's shape beside its handler. Nothing here touches a partition, and no database
//! text goes outward.

mod access;
mod acts;
mod audit;
mod confirm_clock;
mod confirm_drops;
mod docs;
mod drops;
mod extract;
mod forget;
mod health;
mod hold;
mod hold_day;
mod holds;
mod inbox;
mod inboxes;
mod layers;
mod livez;
mod message;
mod metrics;
mod openapi;
mod paging;
mod partitions;
mod pause;
mod plan;
mod problem;
mod readyz;
mod release_day;
mod requested;
mod restore;
mod resume;
mod run;
mod run_now;
mod runs;
mod status;

use std::sync::Arc;

use axum::{Extension, Router, middleware};
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(super) use self::{
    extract::{Path, Query},
    paging::acquire,
    problem::{Problem, ProblemType},
    requested::Requested,
    run_now::{SetOff, set_off},
};
use super::{
    acts::Acts,
    config::{Config, Database},
    counters::Counters,
    page,
    reading::{ReadError, Reader},
    status::{DatabaseStatus, InboxStatus, Status},
    webhook::Queue,
    worker::{Asker, Heart, Met, Shared},
};
use crate::{clock::Clock, pure::InboxSpec};

/// What the endpoints need.
#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) config: Arc<Config>,
    pub(super) clock: Clock,
    pub(super) heart: Heart,
    pub(super) members: Arc<[Member]>,
    /// The runs that were asked for here.
    pub(super) requested: Requested,
    /// What is posted where a webhook is configured, for metrics.
    pub(super) webhook: Option<Queue>,
}

/// One database, as the endpoints see it.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) database: Arc<Database>,
    pub(super) shared: Shared,
    pub(super) counters: Counters,
    pub(super) asker: Asker,
    pub(super) reader: Reader,
    pub(super) met: Met,
    pub(super) acts: Acts,
}

/// Every route of the API with its description. What is not described is not served.
fn routes() -> OpenApiRouter<Context> {
    OpenApiRouter::with_openapi(openapi::Description::openapi())
        .routes(routes!(livez::livez))
        .routes(routes!(readyz::readyz))
        .routes(routes!(openapi::openapi))
}

/// Those that tokens guard.
fn guarded() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(health::health))
        .routes(routes!(status::status))
        .routes(routes!(inboxes::inboxes))
        .routes(routes!(inbox::inbox))
        .routes(routes!(partitions::partitions))
        .routes(routes!(plan::plan))
        .routes(routes!(runs::runs, run_now::run_now))
        .routes(routes!(run::run))
        .routes(routes!(holds::holds, hold_day::hold_day))
        .routes(routes!(hold::hold, release_day::release_day))
        .routes(routes!(restore::restore))
        .routes(routes!(confirm_clock::confirm_clock))
        .routes(routes!(drops::drops))
        .routes(routes!(confirm_drops::confirm_drops))
        .routes(routes!(pause::pause))
        .routes(routes!(resume::resume))
        .routes(routes!(message::message))
        .routes(routes!(forget::forget))
        .routes(routes!(audit::audit))
        .routes(routes!(metrics::metrics))
}

pub(super) fn router(context: Context) -> Router {
    let guard = middleware::from_fn_with_state(context.clone(), access::guard);
    let (router, document) = routes().merge(guarded().route_layer(guard)).split_for_parts();
    // Serialized once; a document of strings and maps cannot fail.
    let document = serde_json::to_value(&document).unwrap_or_default();
    let router = router
        .merge(docs::docs())
        .merge(page::router(&context))
        .fallback(async || Problem::new(ProblemType::NotFound, "see /openapi.json for what there is"))
        .method_not_allowed_fallback(async || {
            Problem::new(ProblemType::MethodNotAllowed, "see /openapi.json for what there is")
        })
        .layer(Extension(Arc::new(document)))
        .with_state(context.clone());
    layers::layered(router, &context)
}

impl Context {
    /// What is read of each database, in the configuration's order.
    async fn read_all(&self) -> Vec<(&Member, Result<Arc<DatabaseStatus>, ReadError>)> {
        let readings = self.members.iter().map(|member| member.reader.read());
        let readings = futures_util::future::join_all(readings).await;
        self.members.iter().zip(readings).collect()
    }

    /// The status of all databases; one that cannot be read says so in its own place.
    pub(super) async fn status(&self) -> Status {
        let readings = self.read_all().await;
        let databases = readings.into_iter().map(|(member, reading)| match reading {
            Ok(status) => self.with_canaries(member, (*status).clone()),
            Err(error) => DatabaseStatus {
                error_kind: Some(error.kind),
                ..DatabaseStatus::unreadable(&member.database.name, error.message)
            },
        });
        Status::of(&self.config, databases.collect(), self.clock.now()).without_database_text()
    }

    /// What the canaries met is known here, not in the database.
    fn with_canaries(&self, member: &Member, mut status: DatabaseStatus) -> DatabaseStatus {
        let now = self.clock.now();
        for inbox in &mut status.inboxes {
            inbox.canary = member.met.last(&inbox.inbox, &self.config.schedule, now);
        }
        status
    }

    /// The same where at least one database can be read.
    async fn some_status(&self) -> Result<Status, Problem> {
        let status = self.status().await;
        let errors: Vec<&String> = status
            .databases
            .iter()
            .filter_map(|database| database.error.as_ref())
            .collect();
        match errors.first() {
            Some(error) if errors.len() == status.databases.len() => Err(Problem::unavailable((*error).clone())),
            _ => Ok(status),
        }
    }

    /// An inbox of the configuration, with its database.
    fn spec(&self, name: &str) -> Option<(&Member, &InboxSpec)> {
        self.members.iter().find_map(|member| {
            let spec = member.database.inboxes.iter().find(|spec| spec.name == name)?;
            Some((member, spec))
        })
    }

    /// One inbox, with the name of its database and that one's clock.
    pub(super) async fn inbox(&self, name: &str) -> Result<(Arc<DatabaseStatus>, InboxStatus), Problem> {
        let (member, _) = self.spec(name).ok_or_else(inbox_not_found)?;
        let status = member
            .reader
            .read()
            .await
            .map_err(|error| Problem::unavailable(error.message))?;
        let status = Arc::new(self.with_canaries(member, (*status).clone()));
        let inbox = status.inboxes.iter().find(|inbox| inbox.inbox == name).cloned();
        // A status has every inbox of the configuration.
        let inbox = inbox.ok_or_else(|| Problem::new(ProblemType::Internal, "the inbox is not in the status"))?;
        Ok((status, inbox))
    }
}

fn inbox_not_found() -> Problem {
    let detail = "see /v1/inboxes for those that are configured";
    Problem::new(ProblemType::InboxNotFound, detail)
}

#[cfg(test)]
mod tests;
