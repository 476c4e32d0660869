//! `GET /v1/audit`: what persons decided, the newest first, a page at a time.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};

use super::{
    Context, Member, acts,
    extract::Query,
    inboxes::Unreadable,
    openapi::AuditProblems,
    paging::{Asked, Placed, acquire, told},
    problem::Problem,
};
use crate::{
    postgres::history::{self, AuditFilter, AuditLine},
    pure::TableName,
    service::reading::ReadError,
};

/// Which lines.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WantedLines {
    /// Those of one database.
    database: Option<String>,
    /// Those about one inbox.
    inbox: Option<String>,
    /// The most in one answer.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<i64>,
    /// `next_cursor` of the page before.
    #[param(pattern = "^[A-Za-z0-9._~-]+:-?[0-9]{1,18}(,[A-Za-z0-9._~-]+:-?[0-9]{1,18})*$")]
    cursor: Option<String>,
}

/// A page of the audit.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct Audit {
    /// The newest first; within a database in the order in which they were written.
    decisions: Vec<AuditedDecision>,
    /// Asks for the next page; none on the last.
    next_cursor: Option<String>,
    /// Databases that cannot be read; their lines are missing here, and on the next page if they can be read by then.
    unreadable: Vec<Unreadable>,
}

/// One line of the audit.
#[derive(serde::Serialize, utoipa::ToSchema)]
struct AuditedDecision {
    /// The database.
    database: String,
    /// When, by the database's clock.
    at: DateTime<Utc>,
    /// Who: the name of an access token, an account, or a role.
    actor: String,
    /// What: `hold`, `release_hold`, `restore`, `confirm_clock`, `confirm_drops`, `pause`, `resume`, `forget`, `run`, `takeover`.
    action: String,
    /// The inbox; none when it is about no single one, or that is configured no more.
    inbox: Option<String>,
    /// Why, as far as that was asked.
    reason: Option<String>,
    /// What belongs to the action: a day, a message, a run.
    #[schema(value_type = Object)]
    detail: serde_json::Value,
}

impl Placed for AuditLine {
    fn at(&self) -> DateTime<Utc> {
        self.at
    }

    fn place(&self) -> i64 {
        self.id
    }
}

/// What persons decided, the newest first: who, when, what and why.
#[utoipa::path(
    get,
    path = "/v1/audit",
    tag = "decide",
    params(WantedLines),
    responses((status = 200, description = "A page of the audit", body = Audit), AuditProblems),
    security((), ("bearer" = []))
)]
pub(super) async fn audit(
    State(context): State<Context>,
    Query(wanted): Query<WantedLines>,
) -> Result<Json<Audit>, Problem> {
    let mut asked = Asked::of(
        &context,
        wanted.database.as_deref(),
        wanted.limit,
        wanted.cursor.as_deref(),
    )?;
    let mut table = None;
    if let Some(name) = &wanted.inbox {
        let (member, spec) = acts::inbox(&context, name)?;
        table = Some(&spec.table);
        // An inbox of another database than the one that is named has no lines there.
        asked
            .members
            .retain(|asked| asked.database.name == member.database.name);
    }
    let looks = asked.members.iter().map(|member| {
        let filter = AuditFilter {
            before: asked.before(member),
            table,
        };
        lines(&context, member, filter, asked.fetched())
    });
    let looks = futures_util::future::join_all(looks).await;
    let page = asked.page(looks)?;
    let decisions = page.records.into_iter().map(|(database, line)| {
        let inbox = line
            .table
            .as_ref()
            .and_then(|table| name_of(&context, &database, table));
        AuditedDecision {
            database,
            at: line.at,
            actor: line.actor,
            action: line.action,
            inbox,
            reason: line.reason,
            detail: line.detail,
        }
    });
    Ok(Json(Audit {
        decisions: decisions.collect(),
        next_cursor: page.next_cursor,
        unreadable: page.unreadable,
    }))
}

async fn lines(
    context: &Context,
    member: &Member,
    filter: AuditFilter<'_>,
    limit: i64,
) -> Result<Vec<AuditLine>, ReadError> {
    let look = async {
        let mut connection = acquire(member).await?;
        crate::postgres::schema::check(&mut connection).await?;
        history::audit(&mut connection, &context.config.deployment, filter, limit).await
    };
    look.await.map_err(|error| told(member, &error))
}

fn name_of(context: &Context, database: &str, table: &TableName) -> Option<String> {
    let member = context.members.iter().find(|member| member.database.name == database)?;
    let spec = member.database.inboxes.iter().find(|spec| spec.table == *table)?;
    Some(spec.name.clone())
}
