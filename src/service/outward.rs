//! Requests that the program itself makes, over http or https. A redirect is an answer like any other.

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

#[derive(Debug, Clone)]
pub(super) enum HttpClient {
    Plain(Client<HttpConnector, Full<Bytes>>),
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

impl HttpClient {
    /// # Errors
    /// With TLS, when the system has no certificates to trust.
    pub(super) fn new(is_tls: bool) -> std::io::Result<Self> {
        // Requests are rare: a kept connection would be found dead.
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_max_idle_per_host(0);
        if !is_tls {
            return Ok(Self::Plain(builder.build_http()));
        }
        let connector = HttpsConnectorBuilder::new()
            .with_native_roots()?
            .https_only()
            .enable_http1()
            .build();
        Ok(Self::Tls(builder.build(connector)))
    }

    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, String> {
        let answer = match self {
            Self::Plain(client) => client.request(request).await,
            Self::Tls(client) => client.request(request).await,
        };
        answer.map_err(|error| {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            text
        })
    }
}
