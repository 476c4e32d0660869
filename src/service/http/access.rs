//! Who may do what: bearer tokens, or everybody on loopback where none is configured.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, header},
    middleware::Next,
    response::Response,
};

use super::{
    Context,
    problem::{Problem, ProblemType},
};
use crate::service::config::Access;

/// Who asks, for the log and for whoever records what was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller {
    /// The name of the token; `loopback` where no tokens are configured.
    pub(super) name: String,
    access: Access,
}

/// Who asks.
///
/// # Errors
/// `Unauthorized` without a token that is known.
pub(super) fn caller(context: &Context, headers: &HeaderMap) -> Result<Caller, Problem> {
    let tokens = &context.config.http.tokens;
    if tokens.is_empty() {
        return Ok(Caller {
            name: "loopback".to_owned(),
            access: Access::Admin,
        });
    }
    let detail = "send a token that is known: authorization: Bearer …";
    let known = bearer(headers).and_then(|token| tokens.recognize(token));
    let (name, access) = known.ok_or_else(|| Problem::new(ProblemType::Unauthorized, detail))?;
    Ok(Caller {
        name: name.to_owned(),
        access,
    })
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Reading needs any token, everything else an admin's. The caller travels with the request.
pub(super) async fn guard(
    State(context): State<Context>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if request.uri().path() == "/metrics" && context.config.http.open_metrics {
        return Ok(next.run(request).await);
    }
    let caller = caller(&context, request.headers())?;
    let needed = if request.method().is_safe() {
        Access::Read
    } else {
        Access::Admin
    };
    if caller.access < needed {
        let detail = "it may only read; this needs one of http.admin_tokens";
        return Err(Problem::new(ProblemType::Forbidden, detail));
    }
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}
