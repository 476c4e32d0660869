//! The two cookies of the page: the token of whoever has signed in, and what the last act came to, to be told once.
//!
//! Neither can be read by a script or is sent along by another site; the API heeds neither.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

const TOKEN: &str = "inboxd_token";
const NOTICE: &str = "inboxd_notice";
/// A notice is told by the very next page.
const NOTICE_SECONDS: u32 = 60;
/// In bytes, each of which takes two of the cookie: a browser drops one of more than 4 KiB, and says nothing of it.
const LONGEST_NOTICE: usize = 1500;

/// One `Set-Cookie`.
pub(super) type SetCookie = (HeaderName, HeaderValue);

/// The token that a browser kept.
pub(super) fn token(headers: &HeaderMap) -> Option<&str> {
    read(headers, TOKEN).filter(|token| !token.is_empty())
}

/// What is to be told once.
pub(super) fn notice(headers: &HeaderMap) -> Option<String> {
    decode(read(headers, NOTICE)?).filter(|text| !text.is_empty())
}

/// Keeps a token for as long as the browser is open. The token is one that is known, and so fits into a header.
pub(super) fn keep_token(token: &str, headers: &HeaderMap) -> Option<SetCookie> {
    set(TOKEN, token, headers, "")
}

/// Forgets the token.
pub(super) fn forget_token(headers: &HeaderMap) -> Option<SetCookie> {
    set(TOKEN, "", headers, "; Max-Age=0")
}

/// Leaves a sentence for the next page.
pub(super) fn leave_notice(text: &str, headers: &HeaderMap) -> Option<SetCookie> {
    let text = if text.len() > LONGEST_NOTICE {
        let kept = &text[..text.floor_char_boundary(LONGEST_NOTICE)];
        format!("{kept}… (cut short; the log has the rest)")
    } else {
        text.to_owned()
    };
    set(NOTICE, &encode(&text), headers, &format!("; Max-Age={NOTICE_SECONDS}"))
}

/// The notice was told.
pub(super) fn forget_notice(headers: &HeaderMap) -> Option<SetCookie> {
    set(NOTICE, "", headers, "; Max-Age=0")
}

fn set(name: &str, value: &str, headers: &HeaderMap, more: &str) -> Option<SetCookie> {
    // TLS ends at a proxy, which says so. Over plain HTTP a browser would not keep it.
    let is_secure = headers
        .get("x-forwarded-proto")
        .is_some_and(|scheme| scheme.as_bytes().eq_ignore_ascii_case(b"https"));
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}");
    Some((header::SET_COOKIE, HeaderValue::try_from(text).ok()?))
}

fn read<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(key, value)| (key == name).then_some(value))
}

/// A sentence has characters that a cookie may not hold.
fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn decode(text: &str) -> Option<String> {
    let digits = text.as_bytes();
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let bytes: Option<Vec<u8>> = pairs
        .iter()
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::try_from(value).unwrap())])
    }

    #[test]
    fn a_cookie_is_kept_from_scripts_and_other_sites_and_from_plain_http_where_there_is_tls() {
        let (_, plain) = keep_token("abc", &HeaderMap::new()).unwrap();
        assert_eq!(plain, "inboxd_token=abc; Path=/; HttpOnly; SameSite=Strict");
        let (_, secure) = keep_token("abc", &with("x-forwarded-proto", "https")).unwrap();
        assert_eq!(secure, "inboxd_token=abc; Path=/; HttpOnly; SameSite=Strict; Secure");
    }

    #[test]
    fn a_cookie_is_found_among_others_and_by_its_whole_name() {
        let headers = with("cookie", "a=b; inboxd_token_x=no; inboxd_token=yes=; c=d");
        assert_eq!(token(&headers), Some("yes="));
        assert_eq!(token(&with("cookie", "inboxd_token=")), None);
    }

    #[test]
    fn a_notice_comes_back_as_it_was_left_and_garbage_is_none() {
        let (_, left) = leave_notice("Day „1“ is on hold; done.", &HeaderMap::new()).unwrap();
        let pair = left.to_str().unwrap().split(';').next().unwrap().to_owned();
        assert_eq!(notice(&with("cookie", &pair)).unwrap(), "Day „1“ is on hold; done.");
        for garbage in [
            "inboxd_notice=zz",
            "inboxd_notice=1",
            "inboxd_notice=ff",
            "inboxd_notice=+1",
        ] {
            assert_eq!(notice(&with("cookie", garbage)), None, "{garbage}");
        }
    }

    #[test]
    fn a_notice_of_many_databases_is_cut_between_two_characters_and_fits_into_a_cookie() {
        for before in ["", "a", "ab"] {
            let text = format!("{before}{}", "„ü".repeat(5000));
            let (_, left) = leave_notice(&text, &with("x-forwarded-proto", "https")).unwrap();
            assert!(left.len() < 4096, "{}", left.len());
            let pair = left.to_str().unwrap().split(';').next().unwrap().to_owned();
            let told = notice(&with("cookie", &pair)).unwrap();
            let kept = told.split('…').next().unwrap();
            assert!(text.starts_with(kept) && kept.len() > 1400, "{told}");
        }
    }
}
