//! The page that an operator looks at. It is made on the server, needs no script to be read or acted on, and asks nobody but
//! this service for anything.
//!
//! What it shows is a pure function of the status (`view`); what it does, the acts of `service::acts`, as the API does.

mod acting;
mod asking;
mod assets;
mod cookies;
mod looking;
mod past;
mod session;
mod timeline;
mod view;
mod visitor;
mod words;

use std::sync::Arc;

use axum::{
    Router,
    http::{HeaderValue, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};

use self::{
    past::Past,
    visitor::{Frame, Refusal},
};
use super::http::{Context, Member, Problem};
use crate::pure::InboxSpec;

/// Its own script, styles and icon, and forms that lead back here. Nothing inline, nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// What the page needs.
#[derive(Debug, Clone)]
struct Page {
    context: Context,
    /// The last runs of each database, in the order of the members.
    pasts: Arc<[Past]>,
}

impl Page {
    /// The database that holds an inbox.
    fn member_of(&self, inbox: &str) -> Option<&Member> {
        self.inbox(inbox).map(|(member, _)| member)
    }

    /// An inbox by its name, with its database.
    fn inbox(&self, inbox: &str) -> Option<(&Member, &InboxSpec)> {
        self.context.members.iter().find_map(|member| {
            let spec = member.database.inboxes.iter().find(|spec| spec.name == inbox)?;
            Some((member, spec))
        })
    }
}

/// Whether a path is one that a person goes to: those of [`router`], but for the files that a page is made of.
pub(super) fn is_of_page(path: &str) -> bool {
    let begins = ["/inboxes/", "/ask/", "/act/", "/session/"];
    path == "/" || path == "/session" || begins.iter().any(|begin| path.starts_with(begin))
}

/// A problem as a page, in place of the answer that a program would get.
pub(super) fn problem(context: &Context, problem: &Problem, response: Response) -> Response {
    let template = Refusal {
        frame: Frame::new(context, problem.title()),
        said: words::sentence(problem.detail()),
        back: "/",
    };
    let told = visitor::html(response.status(), &template);
    let (mut parts, _) = response.into_parts();
    let (as_page, body) = told.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.extend(as_page.headers);
    let mut response = (parts, body).into_response();
    set_policies(&mut response);
    response
}

/// The routes of the page. The API's description says nothing of them: they are for people.
pub(super) fn router(context: &Context) -> Router<Context> {
    let pasts = context.members.iter().map(|_| Past::default()).collect();
    let page = Page {
        context: context.clone(),
        pasts,
    };
    Router::new()
        .route("/", get(looking::overview))
        .route("/inboxes/{inbox}", get(looking::inbox))
        .route("/ask/{act}", get(asking::ask))
        .route("/act/{act}", post(acting::act))
        .route("/session", post(session::begin))
        .route("/session/end", post(session::end))
        .route("/page/{file}", get(assets::asset))
        .layer(middleware::map_response(with_policies))
        .with_state(page)
}

async fn with_policies(mut response: Response) -> Response {
    set_policies(&mut response);
    response
}

fn set_policies(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    // Under "no-referrer" a browser hides the origin of a form as well, and the form would be refused.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}
