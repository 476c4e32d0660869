//! `POST /session` and `POST /session/end`: signing in and out.
//!
//! The cookie holds the token itself, and only pages heed it: the API takes bearer tokens alone, so that no other site can
//! make a browser drive it.

use axum::{
    extract::{Form, State, rejection::FormRejection},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Redirect, Response},
};

use super::{Page, cookies, visitor::sign_in};

/// What the form holds.
#[derive(serde::Deserialize)]
pub(super) struct SignInForm {
    #[serde(default)]
    token: String,
    #[serde(default)]
    then: String,
}

/// Keeps a token that is known in a cookie.
pub(super) async fn begin(
    State(page): State<Page>,
    headers: HeaderMap,
    form: Result<Form<SignInForm>, FormRejection>,
) -> Response {
    let Ok(Form(form)) = form else {
        return sign_in(&page, StatusCode::BAD_REQUEST, Some("The form could not be read."), "/");
    };
    let then = if is_a_page(&form.then) { &*form.then } else { "/" };
    let token = form.token.trim();
    let tokens = &page.context.config.http.tokens;
    let known = tokens.recognize(token.as_bytes());
    if tokens.is_empty() {
        return Redirect::to(then).into_response();
    }
    let Some((name, _)) = known else {
        tracing::warn!("somebody tried to sign in to the page with a token that is not known");
        let wrong = "That token is not known. Use one of http.read_tokens or http.admin_tokens.";
        return sign_in(&page, StatusCode::UNAUTHORIZED, Some(wrong), then);
    };
    tracing::info!(by = name, "signed in to the page");
    let mut response = Redirect::to(then).into_response();
    response.headers_mut().extend(cookies::keep_token(token, &headers));
    response
}

/// Forgets it.
pub(super) async fn end(headers: HeaderMap) -> Response {
    let mut response = Redirect::to("/").into_response();
    response.headers_mut().extend(cookies::forget_token(&headers));
    response
}

/// Whether it is a path of ours that can be gone to: never another site, however it is written.
fn is_a_page(path: &str) -> bool {
    let is_plain = path
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/._~-".contains(&byte));
    is_plain && !path.contains("//") && (path == "/" || path.starts_with("/inboxes/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signing_in_leads_to_pages_of_ours_only() {
        assert!(is_a_page("/") && is_a_page("/inboxes/main.public.inbox"));
        for path in [
            "",
            "//evil.example",
            "https://evil.example/",
            "/\\evil.example",
            "/inboxes//evil.example",
            "/inboxes/\r\nset-cookie: a=b",
            "/v1/runs",
        ] {
            assert!(!is_a_page(path), "{path}");
        }
    }
}
