//! `[http]`, from text to checked values.

use std::{collections::HashMap, net::SocketAddr};

use super::{Http, problems::Problems, raw::RawHttp, tokens::tokens};

const DEFAULT_LISTEN: &str = "127.0.0.1:8087";

/// Without tokens whoever reaches the port may do everything; so only this machine may reach it.
pub(super) fn http(problems: &mut Problems, raw: RawHttp, environment: &HashMap<String, String>) -> Option<Http> {
    let tokens = tokens(problems, &raw, environment);
    let listen: Option<SocketAddr> = problems.parse("http.listen", raw.listen.as_deref(), DEFAULT_LISTEN);
    let has_tokens = !(raw.read_tokens.is_empty() && raw.admin_tokens.is_empty());
    if let Some(listen) = listen.filter(|listen| !listen.ip().is_loopback() && !has_tokens) {
        let accepted = "a loopback address such as 127.0.0.1:8087, for there are no access tokens; configure \
                        http.read_tokens and http.admin_tokens to serve another";
        problems.add("http.listen", listen, accepted);
    }
    let mut hosts = Vec::new();
    for host in raw.hosts {
        let fits = !host.is_empty()
            && host.len() <= 253
            && host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        if fits {
            hosts.push(host.to_ascii_lowercase());
        } else {
            let accepted = "the name of a host as in a URL, without port, for example inboxd.example.com";
            problems.add("http.hosts", format!("{host:?}"), accepted);
        }
    }
    let choices = [("false", false), ("true", true)];
    let open_metrics = problems.choice("http.open_metrics", raw.open_metrics.as_deref(), &choices);
    Some(Http {
        listen: listen?,
        hosts,
        tokens,
        open_metrics: open_metrics?,
    })
}
