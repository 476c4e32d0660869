//! `GET /docs`: Swagger UI over `/openapi.json`. All of it is in the program; it asks nobody else for anything.

use axum::{
    Router,
    http::{HeaderValue, header},
    response::Response,
};
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::Context;

/// Its own scripts and styles, the styles that it sets on elements, and its icons, which are data URLs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

pub(super) fn docs() -> Router<Context> {
    let config = Config::new(["/openapi.json"]).persist_authorization(false);
    Router::from(SwaggerUi::new("/docs").config(config)).layer(axum::middleware::map_response(allow_its_own))
}

async fn allow_its_own(mut response: Response) -> Response {
    let policy = HeaderValue::from_static(POLICY);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}
