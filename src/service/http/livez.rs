//! `GET /livez`: the process answers. It says nothing about the database.

use super::openapi::OpenProblems;

/// The process answers.
#[utoipa::path(
    get,
    path = "/livez",
    tag = "probes",
    responses((status = 200, description = "`ok`", body = String, content_type = "text/plain"), OpenProblems)
)]
pub(super) async fn livez() -> &'static str {
    "ok\n"
}
