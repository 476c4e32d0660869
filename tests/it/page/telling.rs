//! What the page's routes say when something takes long, is refused on the way, or needs more than a word.

use std::net::TcpListener;

use super::answers::{get, header, post};
use super::*;

const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8");

#[tokio::test]
async fn a_restore_that_takes_long_is_told_to_be_going_on() {
    let site = Site::ready("[maintenance]\nlock_timeout = '60s'\nstatement_timeout = '60s'\n").await;
    let day = site.day(0).await;
    let mut other = site.database.connect().await;
    let partition = format!("public.inbox_{}", day.underscored());
    sql(
        &mut other,
        format!("alter table public.inbox detach partition {partition} concurrently"),
    )
    .await;
    sql(
        &mut other,
        format!("update inboxd.partitions set detached_at = now() where day = '{day}'"),
    )
    .await;
    sql(&mut other, "begin; lock table public.inbox in access exclusive mode").await;
    let form = format!("inbox={INBOX}&day={day}");
    let answer = post(&site, "/act/restore", &[HTML], &form).await;
    let back = format!("/inboxes/{INBOX}");
    assert_eq!(
        (
            answer.status().as_u16(),
            answer.headers().get("location").map(|place| place.to_str().unwrap())
        ),
        (303, Some(back.as_str()))
    );
    let notice = header(&answer, "set-cookie").split(';').next().unwrap().to_owned();
    sql(&mut other, "rollback").await;
    let seen = get(&site, &back, &[("cookie", &notice)]).await.text().await.unwrap();
    assert!(
        seen.contains("restore") && seen.contains("is going on; look again"),
        "{seen}"
    );
}

#[tokio::test]
async fn what_is_refused_before_a_page_is_made_is_a_page_for_a_browser() {
    let site = Site::ready("").await;
    let evil = ("origin", "https://evil.example");
    for (what, answer, status, title) in [
        (
            "another site",
            post(&site, "/act/run", &[HTML, evil], "").await,
            403,
            "Another site may not ask this",
        ),
        (
            "another name",
            get(&site, "/", &[HTML, ("host", "evil.example")]).await,
            421,
            "The service is not known by this name",
        ),
        (
            "no act",
            get(&site, "/ask/nothing", &[HTML]).await,
            400,
            "The request cannot be read",
        ),
        (
            "no method",
            get(&site, "/act/run", &[HTML]).await,
            405,
            "The resource does not have this method",
        ),
    ] {
        assert_eq!(answer.status(), status, "{what}");
        assert_eq!(header(&answer, "content-type"), "text/html; charset=utf-8", "{what}");
        assert!(
            header(&answer, "content-security-policy").contains("style-src 'self'"),
            "{what}"
        );
        assert!(answer.headers().contains_key("x-request-id"), "{what}");
        let text = answer.text().await.unwrap();
        assert!(
            text.contains("role=\"alert\"") && text.contains(&format!("<h1>{title}</h1>")),
            "{what}: {text}"
        );
    }
    // Others are answered as ever, and so are those who ask the API.
    for (path, headers) in [
        ("/", vec![("host", "evil.example")]),
        ("/v1/status", vec![("host", "evil.example"), HTML]),
        ("/metrics", vec![("host", "evil.example"), HTML]),
    ] {
        let answer = get(&site, path, &headers).await;
        assert_eq!(answer.status(), 421, "{path}");
        assert_eq!(header(&answer, "content-type"), "application/problem+json", "{path}");
    }
}

#[tokio::test]
async fn a_day_on_hold_says_who_holds_it_and_why() {
    let site = Site::ready("").await;
    let day = site.day(0).await;
    let form = format!("inbox={INBOX}&day={day}&reason=%3Cb%3Ean+audit%3C%2Fb%3E");
    assert_eq!(post(&site, "/act/hold", &[], &form).await.status(), 303);
    let seen = get(&site, &format!("/inboxes/{INBOX}"), &[])
        .await
        .text()
        .await
        .unwrap();
    assert!(!seen.contains("<b>an audit"), "{seen}");
    assert!(seen.contains("by loopback: &#60;b&#62;an audit&#60;/b&#62;"), "{seen}");
}

#[tokio::test]
async fn however_many_databases_are_silent_their_clocks_are_asked_for_at_once() {
    // The system takes connections for a listener that never does.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let mut config = String::new();
    for number in 0..10 {
        config.push_str(&format!(
            "[databases.d{number}]\nurl = 'postgres://u:p@{address}/d'\n
             [[inbox]]\ntable = 'public.inbox'\nname = 'i{number}'\ndatabase = 'd{number}'\n"
        ));
    }
    let folder = Folder::new();
    let file = config_file(folder.path(), &config);
    let mut service = Service::spawn(inboxd(&["serve", "--config", file.to_str().unwrap()]));
    let url = service.url("/ask/confirm_clock");
    let answer = reqwest::get(url).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.text().await.unwrap().contains("The clock of database d9"));
}
