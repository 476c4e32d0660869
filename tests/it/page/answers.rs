//! What the page's routes answer to those who are no browser, or one that another site drives.

use reqwest::{Client, RequestBuilder, Response, redirect};

use super::*;
use crate::support::program::A_WHILE;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

fn client() -> Client {
    let builder = Client::builder().timeout(A_WHILE);
    builder.redirect(redirect::Policy::none()).build().unwrap()
}

fn with(request: RequestBuilder, headers: &[(&str, &str)]) -> RequestBuilder {
    headers
        .iter()
        .fold(request, |request, (name, value)| request.header(*name, *value))
}

pub(super) async fn get(site: &Site, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = client().get(format!("{}{path}", site.base));
    with(request, headers).send().await.unwrap()
}

pub(super) async fn post(site: &Site, path: &str, headers: &[(&str, &str)], form: &str) -> Response {
    let request = client().post(format!("{}{path}", site.base)).body(form.to_owned());
    with(with(request, &[FORM]), headers).send().await.unwrap()
}

pub(super) fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers()[name].to_str().unwrap()
}

#[tokio::test]
async fn a_token_becomes_a_cookie_that_pages_heed_and_the_api_does_not() {
    let site = Site::ready(TOKENS).await;
    let answer = post(
        &site,
        "/session",
        &[],
        "token=admin-0123456789abcdef&then=/inboxes/main.public.inbox",
    )
    .await;
    assert_eq!(
        (answer.status().as_u16(), header(&answer, "location")),
        (303, "/inboxes/main.public.inbox")
    );
    let set = header(&answer, "set-cookie");
    assert_eq!(set, format!("inboxd_token={ADMIN}; Path=/; HttpOnly; SameSite=Strict"));
    let cookie = [("cookie", set.split(';').next().unwrap())];
    assert!(
        get(&site, "/", &cookie)
            .await
            .text()
            .await
            .unwrap()
            .contains("All is well")
    );
    for path in ["/v1/status", "/v1/health", "/metrics"] {
        assert_eq!(get(&site, path, &cookie).await.status(), 401, "{path}");
    }
    let json = [cookie[0], ("content-type", "application/json")];
    let run = with(client().post(format!("{}/v1/runs", site.base)).body("{}"), &json);
    assert_eq!(run.send().await.unwrap().status(), 401);
    // And the other way round: a bearer token is not looked for by pages.
    let bearer = format!("Bearer {ADMIN}");
    let seen = get(&site, "/", &[("authorization", bearer.as_str())])
        .await
        .text()
        .await
        .unwrap();
    assert!(seen.contains("<h1>Sign in</h1>"));
    let secure = post(
        &site,
        "/session",
        &[("x-forwarded-proto", "https")],
        "token=admin-0123456789abcdef",
    )
    .await;
    assert!(header(&secure, "set-cookie").ends_with("; SameSite=Strict; Secure"));
    let away = post(
        &site,
        "/session",
        &[],
        "token=admin-0123456789abcdef&then=//evil.example",
    )
    .await;
    assert_eq!(header(&away, "location"), "/");
    let out = post(&site, "/session/end", &cookie, "").await;
    assert!(header(&out, "set-cookie").contains("inboxd_token=; ") && header(&out, "set-cookie").contains("Max-Age=0"));
}

#[tokio::test]
async fn nobody_acts_or_looks_without_a_token_and_one_that_reads_only_looks() {
    let site = Site::ready(TOKENS).await;
    let reader = format!("inboxd_token={READER}");
    let form = "inbox=main.public.inbox&day=2026-12-01&reason=x";
    for act in [
        "run",
        "hold",
        "release",
        "restore",
        "confirm_drops",
        "confirm_clock",
        "pause",
        "resume",
    ] {
        let path = format!("/act/{act}");
        for cookie in ["", "inboxd_token=wrong-0123456789abcdef"] {
            assert_eq!(
                post(&site, &path, &[("cookie", cookie)], form).await.status(),
                401,
                "{act}"
            );
        }
        let refused = post(&site, &path, &[("cookie", &reader)], form).await;
        assert_eq!(refused.status(), 403, "{act}");
        assert!(refused.text().await.unwrap().contains("An admin token is needed"));
        // What asks is no way round it.
        let asked = get(
            &site,
            &format!("/ask/{act}?inbox=main.public.inbox"),
            &[("cookie", &reader)],
        )
        .await;
        assert_eq!(asked.status(), 403, "{act}");
        assert_eq!(get(&site, &path, &[("cookie", &reader)]).await.status(), 405, "{act}");
    }
    for path in ["/", "/inboxes/main.public.inbox", "/inboxes/other"] {
        let text = get(&site, path, &[]).await.text().await.unwrap();
        assert!(text.contains("<h1>Sign in</h1>") && !text.contains("inbox_2"), "{path}");
    }
    let runs: i64 = sqlx::query_scalar("select count(*) from inboxd.runs")
        .fetch_one(&mut site.database.connect().await)
        .await
        .unwrap();
    assert_eq!(runs, 1, "only the one at the start");
}

#[tokio::test]
async fn another_site_cannot_make_a_browser_act_here() {
    let site = Site::ready("").await;
    for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
        let answer = post(&site, "/act/run", &[("origin", origin)], "").await;
        assert_eq!(answer.status(), 403, "{origin}");
    }
    assert_eq!(get(&site, "/", &[("host", "evil.example")]).await.status(), 421);
    let own = site.base.clone();
    assert_eq!(
        post(&site, "/act/run", &[("origin", own.as_str())], "").await.status(),
        303
    );
}

#[tokio::test]
async fn nothing_inline_or_from_elsewhere_is_allowed_and_none_is_there() {
    let site = Site::ready("").await;
    let answer = get(&site, "/", &[]).await;
    let policy = header(&answer, "content-security-policy").to_owned();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; ") && !policy.contains("unsafe")
    );
    assert_eq!(
        (header(&answer, "cache-control"), header(&answer, "x-frame-options")),
        ("no-store", "DENY")
    );
    let text = answer.text().await.unwrap();
    for inline in [" style=", " onclick=", "<style", "<script>", "http://", "https://"] {
        assert!(!text.contains(inline), "{inline}");
    }
    let digest = text.split("data-digest=\"").nth(1).unwrap().split('"').next().unwrap();
    for (kind, content_type) in [
        ("css", "text/css; charset=utf-8"),
        ("js", "text/javascript; charset=utf-8"),
        ("svg", "image/svg+xml"),
    ] {
        let file = get(&site, &format!("/page/{digest}.{kind}"), &[]).await;
        assert_eq!(
            (file.status().as_u16(), header(&file, "content-type")),
            (200, content_type)
        );
        assert!(header(&file, "cache-control").contains("immutable"));
    }
}

#[tokio::test]
async fn what_is_not_there_or_cannot_be_read_is_told_and_nothing_is_done() {
    let site = Site::ready("").await;
    assert_eq!(get(&site, "/inboxes/other", &[]).await.status(), 404);
    for (path, status) in [
        ("/ask/hold?inbox=other&day=2026-12-01", 404),
        ("/ask/hold?inbox=main.public.inbox&day=yesterday", 404),
        ("/ask/pause?database=other", 404),
        ("/ask/run", 404),
        ("/ask/nothing", 400),
        ("/ask/confirm_drops?inbox=main.public.inbox", 409),
    ] {
        assert_eq!(get(&site, path, &[]).await.status(), status, "{path}");
    }
    for (path, form, status) in [
        ("/act/hold", "inbox=main.public.inbox&day=2026-12-01", 422),
        ("/act/hold", "inbox=main.public.inbox&day=1999-01-01&reason=x", 409),
        ("/act/hold", "inbox=other&day=2026-12-01&reason=x", 404),
        ("/act/confirm_drops", "inbox=main.public.inbox&expected=x", 404),
        ("/act/confirm_drops", "inbox=main.public.inbox&expected=1", 409),
        ("/act/pause", "reason=", 422),
        ("/act/run", "inbox=other", 404),
        ("/act/run", "inbox=a&inbox=b", 400),
    ] {
        let answer = post(&site, path, &[], form).await;
        assert_eq!(answer.status().as_u16(), status, "{path} {form}");
        assert!(answer.text().await.unwrap().contains("role=\"alert\""), "{path} {form}");
    }
    // Markup in what somebody sends is text.
    let text = get(&site, "/?find=%3Cscript%3E", &[]).await.text().await.unwrap();
    assert!(!text.contains("<script>"));
}
