//! `GET /openapi.json`: the description of the API, made of its types, and what all descriptions share.

use std::collections::BTreeMap;

use axum::Json;
use utoipa::{
    IntoResponses, Modify, OpenApi, PartialSchema, ToSchema,
    openapi::{
        ContentBuilder, KnownFormat, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Schema, SchemaFormat, Type,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::problem::{PROBLEM_JSON, Problem, ProblemType};
use crate::pure::{Day, Ident, Retention, TableName};

/// The description without its paths, which the routes bring.
#[derive(Debug, OpenApi)]
#[openapi(
    info(
        title = "inboxd",
        description = "The admin API of inboxd. Times are RFC 3339 in UTC. Errors are problem+json (RFC 9457); their `type` is stable. \
            Where access tokens are configured, reading needs any, and changing needs an admin's.",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT")
    ),
    components(schemas(Problem)),
    modifiers(&Bearer)
)]
pub(super) struct Description;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    }
}

/// The description of the API.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "about",
    responses((status = 200, description = "An OpenAPI 3.1 document", body = serde_json::Value), OpenProblems)
)]
pub(super) async fn openapi(document: axum::Extension<std::sync::Arc<serde_json::Value>>) -> Json<serde_json::Value> {
    Json((*document.0).clone())
}

/// Whoever asks, whatever it is.
const ALWAYS: [ProblemType; 4] = [
    ProblemType::HostNotAllowed,
    ProblemType::Internal,
    ProblemType::Overloaded,
    ProblemType::Timeout,
];

/// The problems of an endpoint, by status; several may share one.
pub(super) fn problems(kinds: &[ProblemType]) -> BTreeMap<String, RefOr<Response>> {
    let mut by_status: BTreeMap<u16, Vec<ProblemType>> = BTreeMap::new();
    for kind in kinds.iter().chain(&ALWAYS) {
        by_status.entry(kind.status().as_u16()).or_default().push(*kind);
    }
    by_status
        .into_iter()
        .map(|(status, kinds)| {
            let lines: Vec<String> = kinds
                .iter()
                .map(|kind| format!("{}: `{}`", kind.title(), kind.urn()))
                .collect();
            let response = ResponseBuilder::new()
                .description(lines.join("; "))
                .content(PROBLEM_JSON, content(Problem::name().as_ref()))
                .build();
            (status.to_string(), RefOr::T(response))
        })
        .collect()
}

fn content(schema: &str) -> utoipa::openapi::Content {
    ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(schema)))
        .build()
}

/// Adds another body that a status may have beside a problem.
pub(super) fn or_body(
    mut responses: BTreeMap<String, RefOr<Response>>,
    status: &str,
    content_type: &str,
    schema: &str,
    description: &str,
) -> BTreeMap<String, RefOr<Response>> {
    if let Some(RefOr::T(response)) = responses.get_mut(status) {
        response.description = format!("{description}; {}", response.description);
        response.content.insert(content_type.to_owned(), content(schema).into());
    }
    responses
}

macro_rules! problem_sets {
    ($($(#[$doc:meta])* $name:ident: $($kind:ident),*;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                problems(&[$(ProblemType::$kind),*])
            }
        }
    )*};
}

problem_sets! {
    /// Of what everybody may ask.
    OpenProblems: ;
    /// Of metrics.
    TokenProblems: Unauthorized;
    /// Of what needs the databases.
    ReadProblems: Unauthorized, DatabaseUnavailable;
    /// Of what is about one inbox.
    InboxProblems: BadRequest, Unauthorized, InboxNotFound, DatabaseUnavailable;
    /// Of the history of runs.
    RunsProblems: BadRequest, Unauthorized, DatabaseNotFound, DatabaseUnavailable;
    /// Of one run.
    RunProblems: BadRequest, Unauthorized, RunNotFound, DatabaseUnavailable;
    /// Of a new run.
    RunNowProblems: BadRequest, Unauthorized, Forbidden, OriginNotAllowed, DatabaseNotFound, InboxNotFound, RunGoing, ReadOnly,
        BodyTooLarge, UnsupportedMediaType, InvalidBody, Locked, DatabaseUnavailable;
    /// Of the holds.
    HoldsProblems: BadRequest, Unauthorized, InboxNotFound, Locked, DatabaseUnavailable;
    /// Of one hold.
    HoldProblems: BadRequest, Unauthorized, InboxNotFound, HoldNotFound, Locked, DatabaseUnavailable;
    /// Of a new hold.
    HoldDayProblems: BadRequest, Unauthorized, Forbidden, OriginNotAllowed, InboxNotFound, DayNotFound, Dropped, NotOurs, Standby, ReadOnly,
        BodyTooLarge, UnsupportedMediaType, InvalidBody, Locked, DatabaseUnavailable;
    /// Of a release.
    ReleaseProblems: BadRequest, Unauthorized, Forbidden, OriginNotAllowed, InboxNotFound, NotOurs, Standby, ReadOnly, Locked,
        DatabaseUnavailable;
    /// Of a restore.
    RestoreProblems: BadRequest, Unauthorized, Forbidden, OriginNotAllowed, InboxNotFound, DayNotFound, Dropped, NotOurs, NotDetached,
        NotRestorable, RunGoing, Standby, ReadOnly, BodyTooLarge, UnsupportedMediaType, InvalidBody, Locked, DatabaseUnavailable;
    /// Of what is done in one database or in all.
    EverywhereProblems: BadRequest, Unauthorized, Forbidden, OriginNotAllowed, DatabaseNotFound, Standby, ReadOnly, BodyTooLarge,
        UnsupportedMediaType, InvalidBody, Locked, DatabaseUnavailable;
    /// Of what is due to be removed.
    DropsProblems: BadRequest, Unauthorized, InboxNotFound, NotOurs, UntrustedClock, Standby, ReadOnly, Locked, DatabaseUnavailable;
    /// Of its confirmation.
    ConfirmDropsProblems: BadRequest, Unauthorized, Forbidden, OriginNotAllowed, InboxNotFound, NotOurs, UntrustedClock, NothingDue,
        Changed, Standby, ReadOnly, BodyTooLarge, UnsupportedMediaType, InvalidBody, Locked, DatabaseUnavailable;
    /// Of a look for a message.
    MessageProblems: BadRequest, Unauthorized, InboxNotFound, NotOurs, InvalidId, InvalidConsumer, Locked, DatabaseUnavailable;
    /// Of a forget.
    ForgetProblems: BadRequest, Unauthorized, Forbidden, OriginNotAllowed, InboxNotFound, NotOurs, InvalidId, InvalidConsumer, InFlight,
        Published, Standby, ReadOnly, BodyTooLarge, UnsupportedMediaType, InvalidBody, Locked, DatabaseUnavailable;
    /// Of the audit.
    AuditProblems: BadRequest, Unauthorized, DatabaseNotFound, InboxNotFound, DatabaseUnavailable;
}

/// Types of the inner parts that are written as one string.
macro_rules! strings {
    ($($type:ty, $name:literal, $format:expr, $description:literal;)*) => {$(
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .format($format)
                    .description(Some($description))
                    .into()
            }
        }

        impl ToSchema for $type {
            fn name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }
        }
    )*};
}

strings! {
    Day, "Day", Some(SchemaFormat::KnownFormat(KnownFormat::Date)), "A UTC calendar day";
    Ident, "Ident", None, "The name of something in PostgreSQL, without quotes";
    TableName, "TableName", None, "A table as in SQL: schema and name, quoted where need be";
    Retention, "Retention", None, "A duration with its unit, or `forever`";
}
