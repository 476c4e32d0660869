//! What every request passes, outermost first: its identity and the log, the form of a refusal, a panic's end, whose name it was sent to, how
//! many there are, how long it may take.

use std::{any::Any, net::IpAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header, uri::Authority},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;
use tracing::Instrument;

use super::{
    Context,
    problem::{Problem, ProblemType},
};
use crate::service::{config::Http, page};

/// More than a reading takes at worst, and than the time that a run is waited for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest body is some hundred bytes.
const LARGEST_BODY: usize = 64 * 1024;
/// Readings are shared, so this many only wait for one; beyond, an answer now is better than one late.
const MOST_REQUESTS_AT_ONCE: usize = 128;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Nothing of ours is to be stored, sniffed, framed or told to others; what needs more says so itself.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

pub(super) fn layered(router: Router, context: &Context) -> Router {
    let requests = Arc::new(Semaphore::new(MOST_REQUESTS_AT_ONCE));
    router
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(middleware::from_fn(timeout))
        .layer(middleware::from_fn_with_state(requests, shed))
        .layer(middleware::from_fn_with_state(context.clone(), same_site))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(context.clone(), readable))
        .layer(middleware::from_fn(identify))
}

/// Gives the request an identity, its log lines that too, and the answer the headers that all have.
async fn identify(mut request: Request, next: Next) -> Response {
    let id = request
        .headers()
        .get(REQUEST_ID)
        .filter(|id| is_sane(id))
        .cloned()
        .or_else(|| HeaderValue::try_from(crate::maintain::random_uuid().to_string()).ok())
        // A UUID is a header value.
        .unwrap_or_else(|| HeaderValue::from_static("unknown"));
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default(), %method, path);
    async move {
        let mut response = next.run(request).await;
        tracing::debug!(status = response.status().as_u16(), "answered");
        for (name, value) in HEADERS {
            response
                .headers_mut()
                .entry(name)
                .or_insert(HeaderValue::from_static(value));
        }
        response.headers_mut().insert(REQUEST_ID, id);
        response
    }
    .instrument(span)
    .await
}

/// What was refused before a page was made is told in one to a person who asked for it.
async fn readable(State(context): State<Context>, request: Request, next: Next) -> Response {
    let wants_a_page = page::is_of_page(request.uri().path()) && takes_html(request.headers());
    let response = next.run(request).await;
    match response.extensions().get::<Problem>().cloned() {
        Some(problem) if wants_a_page => page::problem(&context, &problem, response),
        _ => response,
    }
}

/// Browsers name it; who takes anything is a program.
fn takes_html(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|range| range.split(';').next())
        .any(|range| range.trim().eq_ignore_ascii_case("text/html"))
}

fn is_sane(id: &HeaderValue) -> bool {
    let bytes = id.as_bytes();
    (1..=64).contains(&bytes.len())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
}

fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("(no text)");
    tracing::error!(panic = text, "a request panicked; please report this");
    Problem::new(ProblemType::Internal, "the log says what").into_response()
}

/// Refuses requests that a browser was made to send: to a name that leads here by somebody else's DNS, or from a page of
/// another site.
async fn same_site(State(context): State<Context>, request: Request, next: Next) -> Result<Response, Problem> {
    let host = authority(request.headers(), request.uri());
    // Without a name there is no browser: each sends one.
    if let Some(host) = &host
        && !is_ours(host, &context.config.http)
    {
        let detail = "ask by an address, by localhost, or by a name of http.hosts";
        return Err(Problem::new(ProblemType::HostNotAllowed, detail));
    }
    if !request.method().is_safe()
        && request
            .headers()
            .get_all(header::ORIGIN)
            .iter()
            .any(|origin| !is_same(origin, host.as_ref()))
    {
        let detail = "the origin must be absent, or this host's own";
        return Err(Problem::new(ProblemType::OriginNotAllowed, detail));
    }
    Ok(next.run(request).await)
}

/// What the request was sent to; text that is no authority is refused as a name that is not ours, and so are several: a proxy
/// may have looked at another of them than we.
fn authority(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let of_uri = uri.authority().map(|authority| authority.as_str().to_owned());
    let of_header = || {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts.next()?;
        let only = host.to_str().ok().filter(|_| hosts.next().is_none());
        Some(only.unwrap_or("?").to_owned())
    };
    of_uri.or_else(of_header)
}

fn is_ours(authority: &str, http: &Http) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else {
        return false;
    };
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_ascii_lowercase();
    // A name can be made to lead anywhere, an address only to itself.
    if let Ok(address) = host.parse::<IpAddr>() {
        let listens = http.listen.ip();
        return address.is_loopback() || listens.is_unspecified() || address == listens;
    }
    host == "localhost" || host.ends_with(".localhost") || http.hosts.contains(&host)
}

/// Whether an origin is that of the host that it asks; TLS may end at a proxy, so the scheme is not compared.
fn is_same(origin: &HeaderValue, host: Option<&String>) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    let Some((_, origin_host)) = origin.split_once("://") else {
        return false;
    };
    host.is_some_and(|host| host.eq_ignore_ascii_case(origin_host))
}

/// One too many is told to come again, rather than kept.
async fn shed(State(requests): State<Arc<Semaphore>>, request: Request, next: Next) -> Result<Response, Problem> {
    if request.uri().path() == "/livez" && request.method() == Method::GET {
        return Ok(next.run(request).await);
    }
    let Ok(_permit) = requests.try_acquire() else {
        return Err(Problem::new(ProblemType::Overloaded, "ask again in a moment"));
    };
    Ok(next.run(request).await)
}

async fn timeout(request: Request, next: Next) -> Result<Response, Problem> {
    match tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => Ok(response),
        Err(_) => Err(Problem::new(ProblemType::Timeout, "the request was given up")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(listen: &str) -> Http {
        Http {
            listen: listen.parse().unwrap(),
            hosts: vec!["inboxd.example.com".to_owned()],
            tokens: crate::service::config::Tokens::default(),
            open_metrics: false,
        }
    }

    #[test]
    fn a_name_that_somebody_made_lead_here_is_not_ours() {
        let http = http("192.0.2.7:80");
        for ours in [
            "localhost",
            "LOCALHOST:8087",
            "app.localhost",
            "127.0.0.1",
            "127.8.9.1:80",
            "[::1]:8087",
            "192.0.2.7",
            "Inboxd.Example.com:443",
        ] {
            assert!(is_ours(ours, &http), "{ours}");
        }
        for not in [
            "evil.example",
            "localhost.evil.example",
            "192.0.2.8",
            "127.0.0.1.evil.example",
            "?",
            "",
            "a b",
        ] {
            assert!(!is_ours(not, &http), "{not}");
        }
    }

    #[test]
    fn several_names_are_none() {
        let mut headers = HeaderMap::new();
        let uri = Uri::from_static("/livez");
        assert_eq!(authority(&headers, &uri), None);
        headers.append(header::HOST, HeaderValue::from_static("localhost"));
        assert_eq!(authority(&headers, &uri).as_deref(), Some("localhost"));
        headers.append(header::HOST, HeaderValue::from_static("localhost"));
        assert_eq!(authority(&headers, &uri).as_deref(), Some("?"));
    }

    #[test]
    fn on_every_address_each_address_is_ours_and_no_other_name() {
        let http = http("[::]:80");
        assert!(is_ours("192.0.2.8", &http) && is_ours("[2001:db8::1]:80", &http));
        assert!(!is_ours("evil.example", &http));
    }

    #[test]
    fn an_origin_is_ours_with_the_very_host_and_port() {
        let same =
            |origin: &'static str, host: &str| is_same(&HeaderValue::from_static(origin), Some(&host.to_owned()));
        assert!(same("http://localhost:8087", "localhost:8087"));
        assert!(same("https://Inboxd.example.com", "inboxd.example.com"));
        for origin in [
            "null",
            "http://localhost",
            "http://localhost:8088",
            "http://evil.example",
        ] {
            assert!(!same(origin, "localhost:8087"), "{origin}");
        }
    }

    #[test]
    fn an_id_is_taken_over_only_if_it_cannot_harm_a_log() {
        let sane = |id: &'static str| is_sane(&HeaderValue::from_static(id));
        assert!(sane("0199a0c5-53c4-7d2c-9f3e-6f2f6c1b8a10") && sane("a.b_c"));
        assert!(!sane("") && !sane("a b") && !sane("a\"b"));
        let long = HeaderValue::try_from("a".repeat(65)).unwrap();
        assert!(!is_sane(&long));
    }
}
