//! `GET /livez`: the process answers. It says nothing about the database.

/// 200 and `ok`.
pub(super) async fn livez() -> &'static str {
    "ok\n"
}
