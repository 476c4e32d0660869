//! What keeps a task of the service alive over a panic in what it does: a task that is dead says nothing any more, and nobody
//! sees it.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

/// What it came to; none, and an error in the log, when it panicked. What it works on must make sense after each of its steps.
pub(super) async fn caught<T>(what: &'static str, doing: impl Future<Output = T>) -> Option<T> {
    let done = AssertUnwindSafe(doing).catch_unwind().await;
    if done.is_err() {
        // The panic's own words are on standard error.
        tracing::error!("{what} panicked; please report this. It goes on");
    }
    done.ok()
}
