//! Pools of connections, as consumers have.

use std::time::Duration;

use sqlx::postgres::{PgPool, PgPoolOptions};

use super::server::TestDatabase;

/// Long enough for a loaded machine; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

impl TestDatabase {
    /// A pool of at most this many connections; none is opened before it is needed.
    pub(crate) fn pool(&self, connections: u32) -> PgPool {
        options(connections).connect_lazy_with(self.options.clone())
    }
}

/// Options for a pool of at most this many connections, for what hooks a test may want to add.
pub(crate) fn options(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(PATIENCE)
}

mod tests {
    use crate::support::server;

    #[tokio::test]
    async fn a_pool_hands_out_as_many_connections_as_it_has() {
        let pool = server::database().await.pool(2);
        let taken = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
        assert!(pool.try_acquire().is_none() && pool.size() == 2);
        drop(taken);
        pool.close().await;
    }
}
