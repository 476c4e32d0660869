//! `GET /v1/status`: inboxes, partitions, runway, last and next run.

use axum::{Json, extract::State};

use super::{Context, Member, Problem, STATUS_TIMEOUT};
use crate::{
    postgres::{DbError, ErrorKind},
    service::status::{DatabaseStatus, Status, read_status},
};

const NOT_INITIALIZED: &str = "the database is not initialized; run `inboxd init`";
const CANNOT_BE_READ: &str = "the database cannot be read; the log says why";

/// 200 with the status, where a database that is away says so in its own place; 503 when none can be read.
pub(super) async fn status(State(context): State<Context>) -> Result<Json<Status>, Problem> {
    let mut reading = tokio::task::JoinSet::new();
    for (index, member) in context.members.iter().enumerate() {
        let (context, member) = (context.clone(), member.clone());
        reading.spawn(async move { (index, read(&context, &member).await) });
    }
    let mut databases = reading.join_all().await;
    databases.sort_by_key(|(index, _)| *index);
    let first_error = databases.iter().find_map(|(_, read)| read.as_ref().err().copied());
    if let (Some(error), true) = (first_error, databases.iter().all(|(_, read)| read.is_err())) {
        return Err(Problem::unavailable(error));
    }
    let databases = databases
        .into_iter()
        .map(|(index, read)| {
            read.unwrap_or_else(|error| DatabaseStatus::unreadable(&context.members[index].database.name, error))
        })
        .collect();
    Ok(Json(Status::of(&context.config, databases, context.clock.now())))
}

/// The error is for outside: what the database said goes to the log.
async fn read(context: &Context, member: &Member) -> Result<DatabaseStatus, &'static str> {
    let reading = async {
        let pool = member
            .pool
            .as_ref()
            .ok_or_else(|| DbError::noticed(ErrorKind::Refused, "no database is configured"))?;
        let mut connection = pool.acquire().await.map_err(|error| DbError::new("connect", error))?;
        read_status(&mut connection, &context.config, &member.database, &context.clock).await
    };
    match tokio::time::timeout(STATUS_TIMEOUT, reading).await {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(error)) => {
            tracing::warn!(database = member.database.name, %error, "cannot read the status");
            Err(if error.kind() == ErrorKind::Missing {
                NOT_INITIALIZED
            } else {
                CANNOT_BE_READ
            })
        }
        Err(_) => Err("the database did not answer in time"),
    }
}
