//! The style sheet, the script and the icon of the page. They are in the program, each under a name that changes with what is
//! in it, so that a browser keeps it for as long as it is right.

use std::sync::LazyLock;

use axum::{
    http::{HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};

use crate::service::http::{Path, Problem, ProblemType};

const FILES: [(&str, &str, &str); 3] = [
    ("css", "text/css; charset=utf-8", include_str!("assets/page.css")),
    ("js", "text/javascript; charset=utf-8", include_str!("assets/page.js")),
    ("svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// A short digest of all of them together: a page that is open knows by it that another version answers.
static DIGEST: LazyLock<String> = LazyLock::new(|| {
    let all: String = FILES.iter().map(|(_, _, text)| *text).collect();
    let digest: [u8; 32] = Sha256::digest(all).into();
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
});

/// The digest, which stands in the files' names.
pub(super) fn digest() -> &'static str {
    &DIGEST
}

/// `GET /page/{digest}.{css,js,svg}`.
pub(super) async fn asset(Path(name): Path<String>) -> Response {
    let found = name
        .strip_prefix(digest())
        .and_then(|rest| rest.strip_prefix('.'))
        .and_then(|extension| FILES.iter().find(|(known, _, _)| *known == extension));
    let Some((_, content_type, text)) = found else {
        return Problem::new(ProblemType::NotFound, "the page at / names its files").into_response();
    };
    let headers: [(HeaderName, &str); 2] = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    (StatusCode::OK, headers, *text).into_response()
}
