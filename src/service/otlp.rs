//! Spans over OTLP (HTTP, protobuf), configured by the standard `OTEL_*` variables.
//!
//! Nothing is exported unless an endpoint is named: without one the specification means localhost, where mostly nobody
//! listens. Never in the way: spans wait in a bounded buffer of the exporter's own thread.

use std::{collections::HashMap, future::Future, pin::Pin, time::Duration};

use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Response, body::Bytes};
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::HttpError;
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tracing_subscriber::{Layer, registry::LookupSpan};

use super::outward::HttpClient;

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// How long spans that wait at the end may take.
const GOODBYE: Duration = Duration::from_secs(1);
/// A collector answers with a few bytes.
const LARGEST_ANSWER: usize = 64 * 1024;

/// An exporter that runs.
#[derive(Debug)]
pub struct Exporting(SdkTracerProvider);

impl Exporting {
    /// Starts to export, where the environment names an endpoint. Within a runtime of tokio.
    ///
    /// # Errors
    /// When a variable cannot be understood, or the system has no certificates for https.
    pub fn start(
        environment: &HashMap<String, String>,
    ) -> Result<Option<Self>, Box<dyn std::error::Error + Send + Sync>> {
        let is = |name: &str, value: &str| {
            environment
                .get(name)
                .is_some_and(|found| found.eq_ignore_ascii_case(value))
        };
        let endpoint = ENDPOINTS
            .iter()
            .find_map(|name| environment.get(*name).filter(|endpoint| !endpoint.is_empty()));
        let Some(endpoint) = endpoint else { return Ok(None) };
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let sender = Sender {
            client: HttpClient::new(endpoint.starts_with("https:"))?,
            runtime: tokio::runtime::Handle::current(),
        };
        // The rest of the variables is read by the exporter and the resource themselves.
        let exporter = SpanExporter::builder().with_http().with_http_client(sender).build()?;
        let is_named = environment.contains_key("OTEL_SERVICE_NAME")
            || environment
                .get("OTEL_RESOURCE_ATTRIBUTES")
                .is_some_and(|attributes| attributes.contains("service.name="));
        let mut resource = Resource::builder();
        if !is_named {
            resource = resource.with_service_name("inboxd");
        }
        let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.with_attribute(version).build())
            .with_batch_exporter(exporter)
            .build();
        Ok(Some(Self(provider)))
    }

    /// What collects the spans.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        tracing_opentelemetry::layer().with_tracer(self.0.tracer("inboxd"))
    }

    /// Sends what waits, bounded.
    pub async fn end(self) {
        // It blocks until its thread has sent, which needs this runtime.
        let ended = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(GOODBYE)).await;
        if let Ok(Err(error)) = ended {
            tracing::info!(%error, "spans were not exported before the end");
        }
    }
}

/// The exporter's thread has no runtime of its own, so the request is made on ours.
#[derive(Debug)]
struct Sender {
    client: HttpClient,
    runtime: tokio::runtime::Handle,
}

type Sending<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl opentelemetry_http::HttpClient for Sender {
    fn send_bytes<'life, 'a>(&'life self, request: Request<Bytes>) -> Sending<'a>
    where
        'life: 'a,
        Self: 'a,
    {
        let client = self.client.clone();
        let sending = self.runtime.spawn(async move {
            let answer = client.send(request.map(Full::new)).await?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, LARGEST_ANSWER).collect().await?.to_bytes();
            Ok(Response::from_parts(parts, body))
        });
        Box::pin(async move { sending.await? })
    }
}
