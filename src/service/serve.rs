//! `serve`: the schedule, the worker and HTTP, started together and ended together.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{
    net::TcpListener,
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    acts::Acts,
    config::{Config, Database},
    counters::Counters,
    door::{self, Limits},
    http,
    reading::Reader,
    systemd::Systemd,
    timetable::Timetable,
    watch::Watch,
    webhook::{Poster, Queue},
    worker::{Canaries, Heart, Met, Shared, Worker},
};
use crate::{
    clock::Clock,
    maintain::{Replica, Trigger},
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
/// How long the sessions that HTTP has read with are given after that.
const POOLS_GOODBYE: Duration = Duration::from_millis(500);
/// How long after the shutdown the acts of persons are waited for. They bound themselves to less, once they have begun.
const ACTS_GOODBYE: Duration = Duration::from_secs(4);

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
    /// The system has none that a webhook's host could be known by.
    #[error("cannot post to the webhook over https: {0}; install the system's root certificates")]
    Certificates(std::io::Error),
    /// The scheduler refused the job.
    #[error("cannot start the schedule: {0}")]
    Schedule(#[from] tokio_cron_scheduler::JobSchedulerError),
}

/// A service that runs.
pub struct Serving {
    address: SocketAddr,
    shutdown: CancellationToken,
    workers: Vec<JoinHandle<()>>,
    http: JoinHandle<()>,
    timetable: JoinHandle<()>,
    /// The acts of persons that are going.
    acts: TaskTracker,
    systemd: Option<Systemd>,
}

/// Starts the service: a worker for each database, the schedule that asks them, and HTTP. The first passes begin at once;
/// `/readyz` says when they have made the days that must exist.
///
/// # Errors
/// When the address cannot be listened on. A database that is away is no error: it is tried until it is there, and the
/// others go on.
pub async fn serve(config: Config, clock: Clock, shutdown: CancellationToken) -> Result<Serving, ServeError> {
    let listen = config.http.listen;
    let listener = TcpListener::bind(listen).await.map_err(|source| ServeError::Listen {
        address: listen,
        source,
    })?;
    let address = listener.local_addr().map_err(|source| ServeError::Listen {
        address: listen,
        source,
    })?;
    let config = Arc::new(config);
    let common = Common {
        config: config.clone(),
        clock: clock.clone(),
        judge: Arc::new(Notify::new()),
        acts: TaskTracker::new(),
        shutdown: shutdown.clone(),
    };
    let mut workers = Vec::new();
    let members: Vec<http::Member> = config
        .databases
        .iter()
        .map(|database| begin(&common, database, &mut workers))
        .collect();
    let heart = Heart::new();
    let timetable = Timetable {
        config: config.clone(),
        askers: members.iter().map(|member| member.asker.clone()).collect(),
        heart: heart.clone(),
        clock: clock.clone(),
    };
    let begun = timetable.start().await?;
    let timetable = tokio::spawn(timetable.keep(begun, shutdown.clone()));

    let pools: Vec<PgPool> = members
        .iter()
        .filter_map(|member| member.reader.pool().cloned())
        .collect();
    let webhook = webhook(&config, &clock, &shutdown, &mut workers)?;
    let seen = members
        .iter()
        .map(|member| (member.database.name.clone(), member.shared.clone()))
        .collect();
    let (said, how) = watch::channel("the first run has not ended yet".to_owned());
    let (timeouts, beats) = (config.timeouts, heart.clone());
    let context = http::Context {
        webhook: webhook.clone(),
        config,
        clock,
        heart,
        members: members.into(),
        requested: http::Requested::default(),
    };
    let watch = Watch {
        context: context.clone(),
        judge: common.judge,
        webhook,
        said,
        shutdown: shutdown.clone(),
    };
    workers.push(tokio::spawn(watch.watch()));
    let router = http::router(context);
    let stop = shutdown.clone();
    let http = tokio::spawn(async move {
        door::answer(listener, router, Limits::of_process(HTTP_GOODBYE), stop).await;
        for pool in pools {
            pool.close().await;
        }
    });
    let tasks = workers.iter().chain([&http, &timetable]);
    let systemd = Systemd {
        tasks: tasks.map(JoinHandle::abort_handle).collect(),
        workers: seen,
        heart: beats,
        timeouts,
        said: how,
        shutdown: shutdown.clone(),
    };
    Ok(Serving {
        systemd: Some(systemd),
        address,
        shutdown,
        workers,
        http,
        timetable,
        acts: common.acts,
    })
}

/// What the tasks of all databases share.
struct Common {
    config: Arc<Config>,
    clock: Clock,
    /// Told when there is a new health to judge.
    judge: Arc<Notify>,
    acts: TaskTracker,
    shutdown: CancellationToken,
}

/// Begins what one database needs: its worker, whose first pass begins at once, its canaries, and what HTTP asks.
fn begin(common: &Common, database: &Database, workers: &mut Vec<JoinHandle<()>>) -> http::Member {
    let (config, clock) = (common.config.clone(), common.clock.clone());
    let (database, shared, met) = (Arc::new(database.clone()), Shared::default(), Met::default());
    let (asker, asked) = Worker::channel();
    let (canaries_asked, canaries_asks) = mpsc::channel(1);
    let counters = Counters::new(database.inboxes.iter().map(|spec| spec.name.as_str()));
    let pool = database.options.as_ref().map(read_pool);
    let reader = Reader::new(config.clone(), database.clone(), clock.clone(), pool);
    let worker = Worker {
        config: config.clone(),
        database: database.clone(),
        replica: Replica::new(host(), config.schedule.period()),
        clock: clock.clone(),
        shared: shared.clone(),
        counters: counters.clone(),
        reader: reader.clone(),
        canaries: canaries_asked,
        judge: common.judge.clone(),
        shutdown: common.shutdown.clone(),
    };
    let canaries = Canaries {
        database: database.clone(),
        clock: clock.clone(),
        met: met.clone(),
        landed: common.judge.clone(),
        shutdown: common.shutdown.clone(),
    };
    workers.push(tokio::spawn(canaries.fly(canaries_asks)));
    workers.push(tokio::spawn(worker.work(asked)));
    asker.ask(Trigger::Start);
    http::Member {
        acts: Acts::new(
            config,
            database.clone(),
            clock,
            reader.clone(),
            common.acts.clone(),
            common.shutdown.clone(),
        ),
        database,
        shared,
        counters,
        asker,
        reader,
        met,
    }
}

/// The task that posts changes of health, where that is configured.
fn webhook(
    config: &Config,
    clock: &Clock,
    shutdown: &CancellationToken,
    workers: &mut Vec<JoinHandle<()>>,
) -> Result<Option<Queue>, ServeError> {
    let Some(webhook) = &config.webhook else {
        return Ok(None);
    };
    let queue = Queue::new(webhook.severity);
    let poster = Poster::new(webhook.clone(), queue.clone(), clock.clone(), shutdown.clone());
    let poster = poster.map_err(ServeError::Certificates)?;
    workers.push(tokio::spawn(poster.post_until_shutdown()));
    Ok(Some(queue))
}

/// Two connections: status requests share them, and maintenance has its own.
fn read_pool(options: &PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(2)
        .acquire_timeout(Duration::from_secs(3))
        .connect_lazy_with(session_options(options, "inboxd status", READ_TIMEOUTS))
}

/// The host's name, for people; where it has none that is text, something that says so.
fn host() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_else(|| "unknown".to_owned())
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

    /// Tells systemd from here on that the service is up, how it fares, and that it is alive; does nothing where it is not
    /// systemd that started it. For the program that is the service: of a process it can be told by one only.
    pub fn tell_systemd(&mut self) {
        if let Some(systemd) = self.systemd.take().filter(|_| Systemd::is_there()) {
            self.workers.push(tokio::spawn(systemd.tell()));
        }
    }

    /// Waits until shutdown is asked for, then until everything has ended: the pass finishes its step first. That takes
    /// less than five seconds, whatever a client, a server or an act does.
    pub async fn ended(mut self) {
        self.shutdown.cancelled().await;
        let acts_end = Instant::now() + ACTS_GOODBYE;
        if let Err(error) = self.timetable.await {
            tracing::error!(%error, "the timetable did not end cleanly");
        }
        match tokio::time::timeout(HTTP_GOODBYE + POOLS_GOODBYE, &mut self.http).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the HTTP task did not end cleanly"),
            Err(_) => {
                tracing::info!("a session that HTTP reads with does not end; it is cut");
                self.http.abort();
            }
        }
        for worker in self.workers {
            if let Err(error) = worker.await {
                tracing::error!(%error, "a worker task did not end cleanly");
            }
        }
        // Nobody can ask for another any more.
        self.acts.close();
        if tokio::time::timeout_at(acts_end, self.acts.wait()).await.is_err() {
            let acts = self.acts.len();
            tracing::warn!(
                acts,
                "an act that a person asked for has not ended; see whether it was done"
            );
        }
    }
}
