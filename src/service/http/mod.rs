//! HTTP: one endpoint a file. Nothing here touches a partition, and no database text goes outward.

mod livez;
mod problem;
mod readyz;
mod status;

use std::{sync::Arc, time::Duration};

use axum::{Router, routing::get};
use sqlx::PgPool;

use self::problem::Problem;
use super::{
    config::{Config, Database},
    worker::{Heart, Shared},
};
use crate::clock::Clock;

/// The longest that a request for the status may take.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// What the endpoints need.
#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) config: Arc<Config>,
    pub(super) clock: Clock,
    pub(super) heart: Heart,
    pub(super) members: Arc<[Member]>,
}

/// One database, as the endpoints see it.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) database: Arc<Database>,
    pub(super) shared: Shared,
    /// None where no URL is configured.
    pub(super) pool: Option<PgPool>,
}

pub(super) fn router(context: Context) -> Router {
    Router::new()
        .route("/livez", get(livez::livez))
        .route("/readyz", get(readyz::readyz))
        .route("/v1/status", get(status::status))
        .fallback(async || Problem::not_found())
        .with_state(context)
}
