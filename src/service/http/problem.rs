//! Errors as RFC 9457 problem+json.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

#[derive(Debug, serde::Serialize)]
pub(super) struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'static str,
}

impl Problem {
    pub(super) fn not_found() -> Self {
        Self {
            kind: "about:blank",
            title: "Not Found",
            status: 404,
            detail: "there are /livez, /readyz and /v1/status",
        }
    }

    pub(super) fn unavailable(detail: &'static str) -> Self {
        Self {
            kind: "urn:inboxd:problem:database-unavailable",
            title: "Database unavailable",
            status: 503,
            detail,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry = status == StatusCode::SERVICE_UNAVAILABLE;
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if retry {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}
