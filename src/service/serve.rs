//! `serve`: the schedule, the worker and HTTP, started together and ended together.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use sqlx::postgres::PgPoolOptions;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_cron_scheduler::{Job, JobScheduler};
use tokio_util::sync::CancellationToken;

use super::{
    config::{Config, Database},
    http,
    worker::{Asker, Shared, Worker},
};
use crate::{
    clock::Clock,
    maintain::Trigger,
    postgres::{Timeouts, session_options},
};

/// Limits of the sessions that only read, for HTTP: a person waits for them.
const READ_TIMEOUTS: Timeouts = Timeouts {
    lock: Duration::from_secs(1),
    statement: Duration::from_secs(5),
};

/// How long HTTP clients are given to take their answers at the end. One that has connected and says nothing would
/// otherwise keep the process up for as long as it likes.
const HTTP_GOODBYE: Duration = Duration::from_secs(2);

/// Why the service could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken, or not ours to take.
    #[error("cannot listen on {address}: {source}; configure another http.listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The scheduler refused the job.
    #[error("cannot start the schedule: {0}")]
    Schedule(#[from] tokio_cron_scheduler::JobSchedulerError),
}

/// A service that runs.
pub struct Serving {
    address: SocketAddr,
    shutdown: CancellationToken,
    worker: JoinHandle<()>,
    http: JoinHandle<()>,
    scheduler: JobScheduler,
}

/// Starts the service. The first pass begins at once; `/readyz` says when it has made the days that must exist.
///
/// # Errors
/// When the address cannot be listened on. A database that is away is no error: it is tried until it is there.
pub async fn serve(
    config: Config,
    database: Database,
    clock: Clock,
    shutdown: CancellationToken,
) -> Result<Serving, ServeError> {
    let listen = config.listen;
    let listener = TcpListener::bind(listen).await.map_err(|source| ServeError::Listen {
        address: listen,
        source,
    })?;
    let address = listener.local_addr().map_err(|source| ServeError::Listen {
        address: listen,
        source,
    })?;
    let config = Arc::new(config);
    let shared = Shared::default();

    // Two connections: status requests share them, and maintenance has its own.
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .acquire_timeout(Duration::from_secs(3))
        .connect_lazy_with(session_options(&database.options, "inboxd status", READ_TIMEOUTS));
    let (asker, asked) = Worker::channel();
    let scheduler = schedule(&config, asker.clone()).await?;
    let worker = Worker {
        config: config.clone(),
        database,
        clock: clock.clone(),
        shared: shared.clone(),
        shutdown: shutdown.clone(),
    };
    let worker = tokio::spawn(worker.work(asked));
    asker.ask(Trigger::Start);

    let router = http::router(http::Context {
        config,
        clock,
        shared,
        pool: pool.clone(),
    });
    let stop = shutdown.clone();
    let http = tokio::spawn(async move {
        let served = axum::serve(listener, router)
            .with_graceful_shutdown(async move { stop.cancelled().await })
            .await;
        if let Err(error) = served {
            tracing::error!(%error, "HTTP has ended");
        }
        pool.close().await;
    });
    Ok(Serving {
        address,
        shutdown,
        worker,
        http,
        scheduler,
    })
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Serving {
    /// Where HTTP is served; the port is the real one where the configuration says 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until shutdown is asked for, then until everything has ended: the pass finishes its step first.
    pub async fn ended(mut self) {
        self.shutdown.cancelled().await;
        if let Err(error) = self.scheduler.shutdown().await {
            tracing::warn!(%error, "the schedule did not end cleanly");
        }
        if let Err(error) = self.worker.await {
            tracing::error!(%error, "the worker task did not end cleanly");
        }
        match tokio::time::timeout(HTTP_GOODBYE, &mut self.http).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the HTTP task did not end cleanly"),
            Err(_) => {
                tracing::info!("an HTTP client keeps its connection; it is cut");
                self.http.abort();
            }
        }
    }
}

/// The scheduler's job only asks: what is asked for runs in the worker, one at a time, and no panic can stop the schedule.
async fn schedule(config: &Config, asker: Asker) -> Result<JobScheduler, ServeError> {
    let scheduler = JobScheduler::new().await?;
    let job = Job::new_async(config.schedule.six_fields(), move |_, _| {
        asker.ask(Trigger::Schedule);
        Box::pin(std::future::ready(()))
    })?;
    scheduler.add(job).await?;
    scheduler.start().await?;
    Ok(scheduler)
}
