//! Who looks at the page, and what every answer to them has in common.

use askama::Template;
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, StatusCode, header, request::Parts},
    response::{IntoResponse, Redirect, Response},
};

use super::{Page, assets, cookies, words};
use crate::service::{config::Access, http::Context};

/// Sent by the script when it refreshes a page that is open.
const REFRESH: &str = "x-inboxd-refresh";

/// What stands around every page.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) title: String,
    pub(super) deployment: String,
    pub(super) version: &'static str,
    pub(super) digest: &'static str,
    /// The name of the token, where tokens are configured and one was given.
    pub(super) visitor: Option<String>,
    /// Whether buttons are shown.
    pub(super) may_act: bool,
    /// When this was made, by the host's clock.
    pub(super) made_at: String,
    pub(super) made_at_exact: String,
    /// What the last act came to.
    pub(super) notice: Option<String>,
    /// Whether the script refreshes it.
    pub(super) refreshes: bool,
}

/// Somebody who may look.
#[derive(Debug, Clone)]
pub(super) struct Visitor {
    pub(super) name: String,
    access: Access,
    has_tokens: bool,
    headers: HeaderMap,
}

/// Somebody who may act.
#[derive(Debug, Clone)]
pub(super) struct Admin(pub(super) Visitor);

/// The form in which a token is given.
#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn {
    frame: Frame,
    /// Why the last try did not do.
    wrong: Option<&'static str>,
    /// Where to go then.
    then: String,
}

/// Something that was not done, or is not there.
#[derive(Template)]
#[template(path = "refusal.html")]
pub(super) struct Refusal<'a> {
    pub(super) frame: Frame,
    pub(super) said: String,
    pub(super) back: &'a str,
}

impl Frame {
    pub(super) fn new(context: &Context, title: &str) -> Self {
        let now = context.clock.now();
        Self {
            title: title.to_owned(),
            deployment: context.config.deployment.clone(),
            version: env!("CARGO_PKG_VERSION"),
            digest: assets::digest(),
            visitor: None,
            may_act: false,
            made_at: words::clock(now),
            made_at_exact: words::exact(now),
            notice: None,
            refreshes: false,
        }
    }
}

impl Visitor {
    /// The frame of a page for this visitor.
    pub(super) fn frame(&self, page: &Page, title: &str) -> Frame {
        Frame {
            visitor: self.has_tokens.then(|| self.name.clone()),
            may_act: self.access >= Access::Admin,
            notice: self.notice(),
            ..Frame::new(&page.context, title)
        }
    }

    /// What is to be told once. A refresh in another tab does not take it away.
    fn notice(&self) -> Option<String> {
        if self.headers.contains_key(REFRESH) {
            return None;
        }
        cookies::notice(&self.headers)
    }

    /// A page for this visitor.
    pub(super) fn show(&self, template: &impl Template) -> Response {
        let mut response = html(StatusCode::OK, template);
        if self.notice().is_some()
            && let Some((name, value)) = cookies::forget_notice(&self.headers)
        {
            response.headers_mut().append(name, value);
        }
        response
    }

    /// What was asked for was done: back to a page, which tells it.
    pub(super) fn done(&self, told: &str, back: &str) -> Response {
        let mut response = Redirect::to(back).into_response();
        if let Some((name, value)) = cookies::leave_notice(told, &self.headers) {
            response.headers_mut().append(name, value);
        }
        response
    }

    /// It was not done.
    pub(super) fn refused(
        &self,
        page: &Page,
        status: StatusCode,
        title: &str,
        said: impl Into<String>,
        back: &str,
    ) -> Response {
        let template = Refusal {
            frame: self.frame(page, title),
            said: said.into(),
            back,
        };
        html(status, &template)
    }
}

impl FromRequestParts<Page> for Visitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, page: &Page) -> Result<Self, Response> {
        let tokens = &page.context.config.http.tokens;
        let visitor = |name: &str, access| Self {
            name: name.to_owned(),
            access,
            has_tokens: !tokens.is_empty(),
            headers: parts.headers.clone(),
        };
        if tokens.is_empty() {
            return Ok(visitor("loopback", Access::Admin));
        }
        let token = cookies::token(&parts.headers);
        if let Some((name, access)) = token.and_then(|token| tokens.recognize(token.as_bytes())) {
            return Ok(visitor(name, access));
        }
        let (status, then) = if parts.method.is_safe() {
            (StatusCode::OK, parts.uri.path())
        } else {
            // What was sent is lost, and is not to be sent again by signing in.
            (StatusCode::UNAUTHORIZED, "/")
        };
        let wrong = token.map(|_| "The token that you signed in with is no longer known.");
        Err(sign_in(page, status, wrong, then))
    }
}

impl FromRequestParts<Page> for Admin {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, page: &Page) -> Result<Self, Response> {
        let visitor = Visitor::from_request_parts(parts, page).await?;
        if visitor.access < Access::Admin {
            let said = "Your token may only read. Sign out, then sign in with one of http.admin_tokens.";
            return Err(visitor.refused(page, StatusCode::FORBIDDEN, "An admin token is needed", said, "/"));
        }
        Ok(Self(visitor))
    }
}

/// The form in which a token is given.
pub(super) fn sign_in(page: &Page, status: StatusCode, wrong: Option<&'static str>, then: &str) -> Response {
    let template = SignIn {
        frame: Frame::new(&page.context, "Sign in"),
        wrong,
        then: then.to_owned(),
    };
    html(status, &template)
}

/// A page of HTML.
pub(super) fn html(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page cannot be rendered; please report this");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
