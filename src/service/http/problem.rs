//! Errors as RFC 9457 problem+json. The types are stable: a client may rely on them, not on the sentences.

use std::borrow::Cow;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use uuid::Uuid;

pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// What kind of problem it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
pub(in crate::service) enum ProblemType {
    #[serde(rename = "urn:inboxd:problem:bad-request")]
    BadRequest,
    #[serde(rename = "urn:inboxd:problem:unauthorized")]
    Unauthorized,
    #[serde(rename = "urn:inboxd:problem:forbidden")]
    Forbidden,
    #[serde(rename = "urn:inboxd:problem:origin-not-allowed")]
    OriginNotAllowed,
    #[serde(rename = "urn:inboxd:problem:not-found")]
    NotFound,
    #[serde(rename = "urn:inboxd:problem:database-not-found")]
    DatabaseNotFound,
    #[serde(rename = "urn:inboxd:problem:inbox-not-found")]
    InboxNotFound,
    #[serde(rename = "urn:inboxd:problem:run-not-found")]
    RunNotFound,
    #[serde(rename = "urn:inboxd:problem:day-not-found")]
    DayNotFound,
    #[serde(rename = "urn:inboxd:problem:hold-not-found")]
    HoldNotFound,
    #[serde(rename = "urn:inboxd:problem:not-ours")]
    NotOurs,
    #[serde(rename = "urn:inboxd:problem:not-detached")]
    NotDetached,
    #[serde(rename = "urn:inboxd:problem:dropped")]
    Dropped,
    #[serde(rename = "urn:inboxd:problem:not-restorable")]
    NotRestorable,
    #[serde(rename = "urn:inboxd:problem:nothing-due")]
    NothingDue,
    #[serde(rename = "urn:inboxd:problem:changed")]
    Changed,
    #[serde(rename = "urn:inboxd:problem:untrusted-clock")]
    UntrustedClock,
    #[serde(rename = "urn:inboxd:problem:in-flight")]
    InFlight,
    #[serde(rename = "urn:inboxd:problem:published")]
    Published,
    #[serde(rename = "urn:inboxd:problem:invalid-id")]
    InvalidId,
    #[serde(rename = "urn:inboxd:problem:invalid-consumer")]
    InvalidConsumer,
    #[serde(rename = "urn:inboxd:problem:standby")]
    Standby,
    #[serde(rename = "urn:inboxd:problem:read-only")]
    ReadOnly,
    #[serde(rename = "urn:inboxd:problem:method-not-allowed")]
    MethodNotAllowed,
    #[serde(rename = "urn:inboxd:problem:run-going")]
    RunGoing,
    #[serde(rename = "urn:inboxd:problem:body-too-large")]
    BodyTooLarge,
    #[serde(rename = "urn:inboxd:problem:unsupported-media-type")]
    UnsupportedMediaType,
    #[serde(rename = "urn:inboxd:problem:host-not-allowed")]
    HostNotAllowed,
    #[serde(rename = "urn:inboxd:problem:invalid-body")]
    InvalidBody,
    #[serde(rename = "urn:inboxd:problem:internal")]
    Internal,
    #[serde(rename = "urn:inboxd:problem:overloaded")]
    Overloaded,
    #[serde(rename = "urn:inboxd:problem:locked")]
    Locked,
    #[serde(rename = "urn:inboxd:problem:timeout")]
    Timeout,
    #[serde(rename = "urn:inboxd:problem:database-unavailable")]
    DatabaseUnavailable,
}

impl ProblemType {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::OriginNotAllowed => StatusCode::FORBIDDEN,
            Self::NotFound
            | Self::DatabaseNotFound
            | Self::InboxNotFound
            | Self::RunNotFound
            | Self::DayNotFound
            | Self::HoldNotFound => StatusCode::NOT_FOUND,
            Self::Dropped => StatusCode::GONE,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RunGoing
            | Self::NotOurs
            | Self::NotDetached
            | Self::NotRestorable
            | Self::NothingDue
            | Self::Changed
            | Self::UntrustedClock
            | Self::InFlight
            | Self::Published
            | Self::Standby
            | Self::ReadOnly => StatusCode::CONFLICT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::HostNotAllowed => StatusCode::MISDIRECTED_REQUEST,
            Self::InvalidBody | Self::InvalidId | Self::InvalidConsumer => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Overloaded | Self::Locked | Self::Timeout | Self::DatabaseUnavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::BadRequest => "The request cannot be read",
            Self::Unauthorized => "A token is needed",
            Self::Forbidden => "The token does not allow this",
            Self::OriginNotAllowed => "Another site may not ask this",
            Self::NotFound => "There is no such resource",
            Self::DatabaseNotFound => "There is no such database",
            Self::InboxNotFound => "There is no such inbox",
            Self::RunNotFound => "There is no such run",
            Self::DayNotFound => "There is no such day in the inbox",
            Self::HoldNotFound => "The day is not on hold",
            Self::NotOurs => "The inbox is not this deployment's to change",
            Self::NotDetached => "The day's partition is not detached",
            Self::Dropped => "The day's partition was dropped",
            Self::NotRestorable => "The partition cannot be attached as it is",
            Self::NothingDue => "Nothing waits for a confirmation",
            Self::Changed => "Something else is due by now",
            Self::UntrustedClock => "The database's clock is not trusted",
            Self::InFlight => "An open transaction claims the message",
            Self::Published => "The delete would reach subscribers that cannot apply it",
            Self::InvalidId => "The id is none that the inbox can hold",
            Self::InvalidConsumer => "The consumer is none that the inbox can have",
            Self::Standby => "The server is a standby",
            Self::ReadOnly => "The database lets nobody write",
            Self::MethodNotAllowed => "The resource does not have this method",
            Self::RunGoing => "A run is going",
            Self::BodyTooLarge => "The body is too large",
            Self::UnsupportedMediaType => "The body must be JSON",
            Self::HostNotAllowed => "The service is not known by this name",
            Self::InvalidBody => "The body does not say what is needed",
            Self::Internal => "Something went wrong here",
            Self::Overloaded => "Too many requests at once",
            Self::Locked => "Another session has it locked",
            Self::Timeout => "It took too long",
            Self::DatabaseUnavailable => "The database is unavailable",
        }
    }

    /// The URN.
    pub(super) fn urn(self) -> String {
        // It is serialized as a string, and a unit variant cannot fail.
        serde_json::to_value(self)
            .ok()
            .and_then(|value| Some(value.as_str()?.to_owned()))
            .unwrap_or_default()
    }
}

/// A problem, as RFC 9457 has it.
#[derive(Debug, Clone, serde::Serialize, utoipa::ToSchema)]
pub(in crate::service) struct Problem {
    /// What kind it is; stable.
    #[serde(rename = "type")]
    kind: ProblemType,
    /// The kind as a sentence.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is wrong with this request.
    detail: Cow<'static, str>,
    /// Only with `run-going`: where.
    #[serde(skip_serializing_if = "Option::is_none")]
    going: Option<Vec<Going>>,
}

/// A run that is in the way.
#[derive(Debug, Clone, serde::Serialize, utoipa::ToSchema)]
pub(super) struct Going {
    /// The database.
    pub(super) database: String,
    /// The run, where it is known.
    pub(super) run: Option<Uuid>,
    /// The database session that runs it, where another process does.
    pub(super) holder: Option<crate::postgres::lock::LockHolder>,
}

impl Problem {
    pub(in crate::service) fn new(kind: ProblemType, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            title: kind.title(),
            status: kind.status().as_u16(),
            detail: detail.into(),
            going: None,
        }
    }

    pub(in crate::service) fn title(&self) -> &'static str {
        self.title
    }

    pub(in crate::service) fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ProblemType::DatabaseUnavailable, detail)
    }

    pub(super) fn run_going(going: Vec<Going>) -> Self {
        let detail = "nothing was done; ask again when that run has ended";
        Self {
            going: Some(going),
            ..Self::new(ProblemType::RunGoing, detail)
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let kind = self.kind;
        let mut response = (kind.status(), Json(&self)).into_response();
        // For whoever tells it in another form.
        response.extensions_mut().insert(self);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        let retry_after = match kind {
            ProblemType::Overloaded => Some("1"),
            ProblemType::Locked | ProblemType::Timeout | ProblemType::DatabaseUnavailable => Some("5"),
            _ => None,
        };
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        if kind == ProblemType::Unauthorized {
            let challenge = HeaderValue::from_static("Bearer realm=\"inboxd\"");
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
