//! What a request says, read strictly: whatever cannot be read is a problem, never the framework's own text.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request, rejection::BytesRejection},
    http::{StatusCode, header, request::Parts},
};
use serde::de::DeserializeOwned;

use super::problem::{Problem, ProblemType};

/// The parameters of the path.
#[derive(Debug)]
pub(in crate::service) struct Path<T>(pub(in crate::service) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::new(ProblemType::BadRequest, rejection.body_text())),
        }
    }
}

/// The parameters of the query.
#[derive(Debug)]
pub(in crate::service) struct Query<T>(pub(in crate::service) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Query::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::new(ProblemType::BadRequest, rejection.body_text())),
        }
    }
}

/// A body of JSON. None at all, or null, is an object without fields.
///
/// A body must say that it is JSON: a form of another site cannot say so without the browser asking us first.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let content_type = request.headers().get(header::CONTENT_TYPE).cloned();
        let bytes = Bytes::from_request(request, state).await.map_err(unreadable)?;
        if bytes.is_empty() {
            return read(serde_json::json!({}));
        }
        let is_json = content_type
            .as_ref()
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split(';').next())
            .is_some_and(|value| value.trim().eq_ignore_ascii_case("application/json"));
        if !is_json {
            let detail = "send it with content-type: application/json";
            return Err(Problem::new(ProblemType::UnsupportedMediaType, detail));
        }
        let value: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|error| Problem::new(ProblemType::BadRequest, error.to_string()))?;
        if value.is_null() {
            return read(serde_json::json!({}));
        }
        // serde takes a list for a struct too, and an empty one for all its defaults.
        if !value.is_object() {
            return Err(Problem::new(ProblemType::InvalidBody, "the body must be an object"));
        }
        read(value)
    }
}

fn read<T: DeserializeOwned>(value: serde_json::Value) -> Result<Body<T>, Problem> {
    serde_json::from_value(value)
        .map(Body)
        .map_err(|error| Problem::new(ProblemType::InvalidBody, error.to_string()))
}

fn unreadable(rejection: BytesRejection) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::new(ProblemType::BodyTooLarge, "at most 64 KiB");
    }
    Problem::new(ProblemType::BadRequest, "the body broke off")
}
