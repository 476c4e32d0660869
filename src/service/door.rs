//! The door of HTTP: who is let in, and for how long.
//!
//! Its invariant: however many connect, and whatever they send or leave out, HTTP takes no more than a share of the files
//! that the process may have open, and each connection comes to an end. Whoever finds no room waits in the system's queue.

use std::{io, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// More than an operator's browsers, Prometheus and a proxy's pool together; each takes a file and some 20 KiB.
const MOST_CONNECTIONS: usize = 256;
/// A request comes in milliseconds. The same bounds how long a connection is kept for the next one.
const LONGEST_HEAD: Duration = Duration::from_secs(10);
/// Then a client is to connect anew: one that takes its answer byte by byte would stay for ever.
const LONGEST_LIFE: Duration = Duration::from_secs(120);
/// More than a request may take, for the one that such a connection has in hand.
const LAST_ANSWER: Duration = Duration::from_secs(20);
/// How long the system is given when it lets nobody in: files that are out are not back at once.
const RECOVERY: Duration = Duration::from_millis(500);

/// What a connection may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How many there are at a time.
    connections: usize,
    /// How long a request's head may take, and how long the next one may be away.
    head: Duration,
    /// How long a connection is used.
    life: Duration,
    /// How long a request that is then going may take.
    last_answer: Duration,
    /// How long it may take at the end of the service.
    goodbye: Duration,
}

impl Limits {
    /// Those of this process. Half of its files stay for the databases, the log and the rest.
    pub(super) fn of_process(goodbye: Duration) -> Self {
        let files = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
        let share = files
            .ok()
            .and_then(|(soft, _)| usize::try_from(soft / 2).ok())
            .unwrap_or(MOST_CONNECTIONS);
        Self {
            connections: share.clamp(1, MOST_CONNECTIONS),
            head: LONGEST_HEAD,
            life: LONGEST_LIFE,
            last_answer: LAST_ANSWER,
            goodbye,
        }
    }
}

/// Answers whoever connects until shutdown, then gives those who are in their goodbye.
pub(super) async fn answer(listener: TcpListener, router: Router, limits: Limits, shutdown: CancellationToken) {
    let connections = TaskTracker::new();
    let mut door = Door {
        listener,
        room: Arc::new(Semaphore::new(limits.connections)),
        limits,
        is_full: false,
        is_failing: false,
    };
    while let Some((stream, place)) = shutdown.run_until_cancelled(door.next()).await {
        let connection = connection(stream, router.clone(), limits, shutdown.clone());
        connections.spawn(async move {
            connection.await;
            drop(place);
        });
    }
    // From now on the system refuses whoever comes.
    drop(door);
    connections.close();
    connections.wait().await;
}

struct Door {
    listener: TcpListener,
    room: Arc<Semaphore>,
    limits: Limits,
    is_full: bool,
    is_failing: bool,
}

impl Door {
    /// The next connection, once there is room for it.
    async fn next(&mut self) -> (TcpStream, OwnedSemaphorePermit) {
        loop {
            // It is never closed.
            let Ok(place) = self.place().await else { continue };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!("HTTP connections are accepted again");
                    }
                    return (stream, place);
                }
                Err(error) if is_of_one_client(&error) => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.is_failing, true) {
                        tracing::warn!(%error, "no HTTP connection can be accepted; it is tried again and again");
                    }
                    sleep(RECOVERY).await;
                }
            }
        }
    }

    async fn place(&mut self) -> Result<OwnedSemaphorePermit, tokio::sync::AcquireError> {
        let most = self.limits.connections;
        if self.room.available_permits() == 0 {
            if !std::mem::replace(&mut self.is_full, true) {
                tracing::warn!(most, "as many HTTP connections are open as there may be; others wait");
            }
        } else if self.room.available_permits() > most / 2 {
            // Not as soon as one has left, or the log had a line for each.
            self.is_full = false;
        }
        self.room.clone().acquire_owned().await
    }
}

/// Whether only the client that was about to come in has gone.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// One connection to its end. What goes wrong on it is its client's own affair.
async fn connection(stream: TcpStream, router: Router, limits: Limits, shutdown: CancellationToken) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = shutdown.cancelled() => {}
        () = sleep(limits.life) => {}
    }
    connection.as_mut().graceful_shutdown();
    let goodbye = async {
        shutdown.cancelled().await;
        sleep(limits.goodbye).await;
    };
    tokio::select! {
        _ = connection.as_mut() => {}
        () = goodbye => tracing::debug!("an HTTP client keeps its connection; it is cut"),
        () = sleep(limits.last_answer) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::Notify,
        task::JoinHandle,
        time::timeout,
    };

    use super::*;

    /// Long enough for a loaded machine; only a test that fails waits for it.
    const A_WHILE: Duration = Duration::from_secs(30);
    const ASK: &[u8] = b"GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n";

    const PATIENT: Limits = Limits {
        connections: 8,
        head: A_WHILE,
        life: A_WHILE,
        last_answer: A_WHILE,
        goodbye: A_WHILE,
    };

    /// Serves `/now`, which answers at once, and `/late`, which does once it is let.
    struct Served {
        address: SocketAddr,
        late: Arc<Notify>,
        shutdown: CancellationToken,
        serving: JoinHandle<()>,
    }

    async fn served(limits: Limits) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, late, shutdown) = (
            listener.local_addr().unwrap(),
            Arc::new(Notify::new()),
            CancellationToken::new(),
        );
        let waits = late.clone();
        let router = Router::new().route("/now", get(async || "now")).route(
            "/late",
            get(async move || {
                waits.notified().await;
                "late"
            }),
        );
        let serving = tokio::spawn(answer(listener, router, limits, shutdown.clone()));
        Served {
            address,
            late,
            shutdown,
            serving,
        }
    }

    impl Served {
        async fn sent(&self, bytes: &[u8]) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream
        }
    }

    /// Reads until a text has come; false where the connection ends before.
    async fn comes(stream: &mut TcpStream, text: &str) -> bool {
        let (mut said, mut buffer) = (Vec::new(), [0; 1024]);
        let reading = async {
            loop {
                match stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => return false,
                    Ok(count) => said.extend_from_slice(&buffer[..count]),
                }
                if String::from_utf8_lossy(&said).contains(text) {
                    return true;
                }
            }
        };
        timeout(A_WHILE, reading).await.expect("neither an answer nor an end")
    }

    #[tokio::test]
    async fn half_a_request_and_none_at_all_are_waited_for_only_so_long() {
        let head = Duration::from_millis(100);
        let served = served(Limits { head, ..PATIENT }).await;
        for begin in [&b""[..], b"GET /now HTTP/1.1\r\nHo"] {
            assert!(!comes(&mut served.sent(begin).await, "never").await);
        }
        let mut kept = served.sent(ASK).await;
        assert!(comes(&mut kept, "\r\n\r\nnow").await);
        assert!(!comes(&mut kept, "never").await, "nor is the next one");
    }

    #[tokio::test]
    async fn one_that_finds_no_room_waits_until_another_leaves() {
        let served = served(Limits {
            connections: 2,
            ..PATIENT
        })
        .await;
        let (first, _second) = (served.sent(b"").await, served.sent(b"").await);
        let mut third = served.sent(ASK).await;
        let waited = timeout(Duration::from_millis(200), third.readable()).await;
        assert!(waited.is_err(), "it was answered beside two others");
        drop(first);
        assert!(comes(&mut third, "\r\n\r\nnow").await);
    }

    #[tokio::test]
    async fn an_old_connection_ends_with_the_answer_that_it_waits_for() {
        let life = Duration::from_millis(100);
        let served = served(Limits { life, ..PATIENT }).await;
        let mut late = served.sent(b"GET /late HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        assert!(!comes(&mut served.sent(b"").await, "never").await);
        served.late.notify_one();
        assert!(comes(&mut late, "late").await);
        assert!(!comes(&mut late, "never").await);
    }

    #[tokio::test]
    async fn an_old_connection_whose_answer_never_comes_is_cut() {
        let (life, last_answer) = (Duration::from_millis(100), Duration::from_millis(100));
        let served = served(Limits {
            life,
            last_answer,
            ..PATIENT
        })
        .await;
        let mut late = served.sent(b"GET /late HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        assert!(!comes(&mut late, "late").await);
    }

    #[tokio::test]
    async fn at_the_end_who_waits_is_answered_and_who_says_nothing_is_cut() {
        let goodbye = Duration::from_millis(500);
        let served = served(Limits { goodbye, ..PATIENT }).await;
        let mut late = served.sent(b"GET /late HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        let mut half = served.sent(b"GET /now HTTP/1.1\r\nHo").await;
        let mut kept = served.sent(ASK).await;
        assert!(comes(&mut kept, "\r\n\r\nnow").await, "all three are in");
        served.shutdown.cancel();
        assert!(!comes(&mut kept, "never").await);
        served.late.notify_one();
        assert!(comes(&mut late, "late").await);
        assert!(!comes(&mut half, "never").await);
        timeout(A_WHILE, served.serving).await.unwrap().unwrap();
        assert!(TcpStream::connect(served.address).await.is_err(), "nobody is let in");
    }
}
