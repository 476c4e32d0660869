//! `serve --embedded`: a private PostgreSQL beside the service.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result, anyhow};
use inboxd::{
    TableName,
    clock::Clock,
    maintain::{PassRequest, Trigger, init, run_pass},
    postgres::{
        self,
        embedded::{Cluster, ClusterOptions},
    },
    service::config::Config,
};
use tokio_util::sync::CancellationToken;

use crate::args::Serve;

/// The database that every cluster has.
const DATABASE: &str = "postgres";

/// The pause before a server that has died is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_RESTART_PAUSE: Duration = Duration::from_secs(60);

pub(crate) struct Private {
    cluster: Cluster,
}

/// What a newcomer is told.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Greeting {
    pub(crate) data_dir: PathBuf,
    pub(crate) url: String,
    pub(crate) psql: String,
    pub(crate) first_claim: String,
    pub(crate) status: String,
}

impl Private {
    /// Starts the cluster and makes the inboxes in it, with their partitions: the first claim finds all it needs.
    pub(crate) async fn start(config: &mut Config, options: &Serve, clock: &Clock) -> Result<Self> {
        let [database] = config.databases.as_mut_slice() else {
            return Err(anyhow!(
                "--embedded serves one database, and {} are configured",
                config.databases.len()
            ));
        };
        let named = options.state_dir.clone().or_else(|| variable("INBOXD_STATE_DIR"));
        let folder = match named {
            Some(folder) => std::path::absolute(folder).context("the state folder")?,
            None => default_state_dir()?,
        };
        let mut cluster = ClusterOptions::new(folder.join("postgres"));
        cluster.port = options.postgres_port;
        tracing::info!(folder = %folder.display(), "starting a private PostgreSQL");
        let cluster = Cluster::start(cluster).await?;
        let mut connection =
            postgres::connect(&cluster.connect_options(DATABASE), "inboxd init", config.timeouts).await?;
        database.options = Some(cluster.connect_options(DATABASE));
        init(&mut connection, &database.inboxes, &config.deployment, clock).await?;
        // The service's own first pass would come too late for the claim that is about to be printed.
        let request = PassRequest {
            deployment: &config.deployment,
            specs: &database.inboxes,
            replica: None,
            trigger: Trigger::Start,
            confirm_clock: false,
            retries: config.retries,
            clock,
            stop: &|| false,
        };
        run_pass(&mut connection, request).await?;
        Ok(Self { cluster })
    }

    pub(crate) fn greeting(&self, tables: &[TableName], address: SocketAddr) -> Greeting {
        let psql = self.cluster.psql_command(DATABASE);
        let claim = tables.first().and_then(|table| {
            let function = table.derive(inboxd::Derived::Function(inboxd::Function::Claim)).ok()?;
            let function = table.quoted_sibling(&function).replace('\'', "'\\''");
            Some(format!(
                "{psql} -c 'select {function}($$0199a0c5-53c4-7d2c-9f3e-6f2f6c1b8a10$$, $$orders$$)'"
            ))
        });
        Greeting {
            data_dir: self.cluster.data_dir().to_owned(),
            url: self.cluster.url(DATABASE),
            psql,
            first_claim: claim.unwrap_or_default(),
            status: format!("http://{address}/v1/status"),
        }
    }

    /// Starts the server again whenever it dies, until the shutdown; then stops it.
    pub(crate) async fn supervise(mut self, shutdown: CancellationToken) -> Result<()> {
        let mut pause = RESTART_PAUSE;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                status = self.cluster.wait_exit() => {
                    let status = status.map(|status| status.to_string());
                    tracing::error!(status, "the private PostgreSQL has ended by itself; it is started again");
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
            match self.cluster.restart().await {
                Ok(()) => {
                    tracing::info!(pid = self.cluster.pid(), "the private PostgreSQL runs again");
                    pause = RESTART_PAUSE;
                }
                Err(error) => {
                    tracing::error!(%error, "the private PostgreSQL does not start");
                    pause = (pause * 2).min(LONGEST_RESTART_PAUSE);
                }
            }
        }
        self.cluster.stop().await.context("stop the private PostgreSQL")
    }
}

/// A path in the environment; an empty one is how a shell says "not set".
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// A folder that outlives the process: for root the system's, since the server's account must reach it and cannot enter
/// root's home.
fn default_state_dir() -> Result<PathBuf> {
    if nix::unistd::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/inboxd"));
    }
    variable("XDG_STATE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("inboxd"))
        .ok_or_else(|| anyhow!("no HOME to keep the private PostgreSQL in; name a folder with --state-dir"))
}
