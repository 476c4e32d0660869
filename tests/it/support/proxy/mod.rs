//! A proxy between a client and a test server that reads along: it counts round trips, cuts a connection round a
//! statement, and holds answers back.
//!
//! It lives in the runtime of the test that started it, so such a test must not block its thread for long.

mod tests;
mod wire;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::server::TestDatabase;
use wire::{Message, Upstream, begins_with, connection};

/// Long enough for a loaded machine; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// When a connection is cut: round the statement that trips it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The server never sees the statement.
    Before,
    /// The server runs the statement, and the client never learns what became of it.
    After,
    /// The server never sees the statement, and the connection stays until [`Proxy::cut_all`]: for a client that is killed
    /// while it sends.
    Held,
    /// The server runs the statement, and the connection stays: neither side hears of the other again, nor that anything is amiss.
    Frozen,
}

/// A TCP port in front of one database.
#[derive(Debug)]
pub(crate) struct Proxy {
    options: PgConnectOptions,
    address: SocketAddr,
    upstream: Upstream,
    // Bound and never listening: it keeps the port ours while nobody listens there.
    _port: TcpSocket,
    accepting: Option<JoinHandle<()>>,
    connections: Arc<Mutex<JoinSet<()>>>,
    shared: Arc<Shared>,
}

/// What the proxy and its connections tell each other.
#[derive(Debug)]
struct Shared {
    seen: watch::Sender<Seen>,
    armed: Mutex<Option<(At, Cut)>>,
    silent: AtomicBool,
    held: watch::Sender<bool>,
}

/// Where a connection is cut.
#[derive(Debug)]
enum At {
    /// At the next simple query that begins with this word.
    Word(String),
    /// At the round trip of this number, or at the simple query of this number.
    RoundTrip(usize),
    Query(usize),
}

#[derive(Debug, Default, Clone)]
struct Seen {
    connections: usize,
    round_trips: usize,
    queries: Vec<String>,
    cuts: usize,
}

impl Proxy {
    /// Starts a proxy in front of a database, on whatever server that is.
    pub(crate) async fn in_front_of(database: &TestDatabase) -> Self {
        Self::start(&database.options).await
    }

    /// Starts a proxy in front of what these options lead to.
    pub(crate) async fn start(options: &PgConnectOptions) -> Self {
        let port = TcpSocket::new_v4().unwrap();
        port.set_reuseport(true).unwrap();
        port.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = port.local_addr().unwrap();
        let upstream = upstream(options);
        let mut proxy = Self {
            options: without_socket(options)
                .host("127.0.0.1")
                .port(address.port())
                .ssl_mode(PgSslMode::Disable),
            address,
            upstream,
            _port: port,
            accepting: None,
            connections: Arc::default(),
            shared: Arc::new(Shared {
                seen: watch::Sender::default(),
                armed: Mutex::default(),
                silent: AtomicBool::new(false),
                held: watch::Sender::default(),
            }),
        };
        proxy.allow().await;
        proxy
    }

    /// How a client connects through the proxy.
    pub(crate) fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// The same as a URL.
    pub(crate) fn url(&self) -> String {
        format!(
            "postgres://{}@{}/{}?sslmode=disable",
            self.options.get_username(),
            self.address,
            self.options.get_database().unwrap_or_default()
        )
    }

    /// How often clients waited for the server so far: their simple queries and their Sync messages, not their
    /// connecting.
    pub(crate) fn round_trips(&self) -> usize {
        self.shared.seen.borrow().round_trips
    }

    /// The texts of the simple queries so far, in order.
    pub(crate) fn queries(&self) -> Vec<String> {
        self.shared.seen.borrow().queries.clone()
    }

    /// How many connections were let through so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.seen.borrow().connections
    }

    /// How many connections [`Proxy::cut`] has cut so far.
    pub(crate) fn cuts(&self) -> usize {
        self.shared.seen.borrow().cuts
    }

    /// Counts from zero again.
    pub(crate) fn forget(&self) {
        self.shared.seen.send_replace(Seen::default());
    }

    /// Returns once a simple query that begins with a word has been seen.
    pub(crate) async fn wait_for_query(&self, word: &str) {
        let mut seen = self.shared.seen.subscribe();
        let found = seen.wait_for(|seen| seen.queries.iter().any(|text| begins_with(text, word)));
        let in_time = tokio::time::timeout(PATIENCE, found).await.is_ok();
        assert!(in_time, "waited in vain for {word}: {:?}", self.queries());
    }

    /// Cuts the connection that next sends a simple query which begins with this word, whatever its case. Once: the
    /// next such query passes.
    pub(crate) fn cut(&self, word: &str, when: Cut) {
        *self.shared.armed.lock().unwrap() = Some((At::Word(word.to_owned()), when));
    }

    /// Cuts the connection that sends the simple query of this number, the first being 1, since the proxy began to count.
    pub(crate) fn cut_at_query(&self, number: usize, when: Cut) {
        *self.shared.armed.lock().unwrap() = Some((At::Query(number), when));
    }

    /// The same for any round trip. What comes in parts has arrived by then, but for the part that asks for the answer.
    pub(crate) fn cut_at_round_trip(&self, number: usize, when: Cut) {
        *self.shared.armed.lock().unwrap() = Some((At::RoundTrip(number), when));
    }

    /// Cuts nothing that has not been cut yet.
    pub(crate) fn disarm(&self) {
        *self.shared.armed.lock().unwrap() = None;
    }

    /// Cuts every connection there is, now.
    pub(crate) fn cut_all(&self) {
        self.connections.lock().unwrap().abort_all();
    }

    /// Refuses new connections from now on, as a port does where nobody listens. Those that are there stay.
    pub(crate) async fn refuse(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            let _ = accepting.await;
        }
    }

    /// Accepts new connections from now on and never says anything to them. Those that are there stay.
    pub(crate) async fn blackhole(&mut self) {
        self.allow().await;
        self.shared.silent.store(true, Ordering::SeqCst);
    }

    /// Lets new connections through again. Those in the black hole stay in it.
    pub(crate) async fn allow(&mut self) {
        self.shared.silent.store(false, Ordering::SeqCst);
        if self.accepting.is_some() {
            return;
        }
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseport(true).unwrap();
        socket.bind(self.address).unwrap();
        let listener = socket.listen(128).unwrap();
        let (connections, shared, upstream) = (
            Arc::clone(&self.connections),
            Arc::clone(&self.shared),
            self.upstream.clone(),
        );
        self.accepting = Some(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut connections = connections.lock().unwrap();
                while connections.try_join_next().is_some() {}
                if shared.silent.load(Ordering::SeqCst) {
                    connections.spawn(async move {
                        let _client = client;
                        std::future::pending::<()>().await;
                    });
                } else {
                    shared.seen.send_modify(|seen| seen.connections += 1);
                    connections.spawn(connection(client, upstream.clone(), Arc::clone(&shared)));
                }
            }
        }));
    }

    /// Leads to another server from now on, as an address does that is moved. Those that are there are cut.
    pub(crate) async fn move_to(&mut self, options: &PgConnectOptions) {
        self.refuse().await;
        self.cut_all();
        self.upstream = upstream(options);
        self.allow().await;
    }

    /// Holds every answer of the server back from now on, on all connections.
    pub(crate) fn hold(&self) {
        self.shared.held.send_replace(true);
    }

    /// Lets the answers go.
    pub(crate) fn release(&self) {
        self.shared.held.send_replace(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
        self.cut_all();
    }
}

fn upstream(options: &PgConnectOptions) -> Upstream {
    match options.get_socket() {
        Some(folder) => Upstream::Unix(folder.join(format!(".s.PGSQL.{}", options.get_port()))),
        None => Upstream::Tcp(options.get_host().to_owned(), options.get_port()),
    }
}

/// Options cannot be told to forget their socket, hence new ones for the same user and database.
fn without_socket(options: &PgConnectOptions) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .username(options.get_username())
        .password("")
        .database(options.get_database().unwrap_or("postgres"))
}

impl Shared {
    /// Notes what a client sends; what to do about it.
    fn note(&self, message: &Message<'_>) -> Option<Cut> {
        let text = match message.kind {
            b'Q' => message.query(),
            b'S' => None,
            _ => return None,
        };
        let mut armed = self.armed.lock().unwrap();
        let mut cut = None;
        self.seen.send_modify(|seen| {
            seen.queries.extend(text.map(str::to_owned));
            let is_here = |at: &At| match (at, text) {
                (At::Word(word), Some(text)) => begins_with(text, word),
                (At::Query(number), Some(_)) => *number == seen.queries.len(),
                (At::RoundTrip(number), _) => *number == seen.round_trips,
                (At::Word(_) | At::Query(_), None) => false,
            };
            cut = armed.take_if(|(at, _)| is_here(at)).map(|(_, cut)| cut);
            seen.cuts += usize::from(cut.is_some());
        });
        cut
    }

    fn count_round_trip(&self) {
        self.seen.send_modify(|seen| seen.round_trips += 1);
    }
}
