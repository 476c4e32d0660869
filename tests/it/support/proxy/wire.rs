//! What the proxy understands of the protocol, and how it hands it on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::{Cut, PATIENCE, Shared};

/// Where the server listens.
#[derive(Debug, Clone)]
pub(super) enum Upstream {
    Unix(PathBuf),
    Tcp(String, u16),
}

/// A message of a client. One that belongs to the start of a session has no type byte; it is 0 here.
#[derive(Debug)]
pub(super) struct Message<'a> {
    pub(super) kind: u8,
    body: &'a [u8],
    bytes: usize,
}

impl<'a> Message<'a> {
    /// The first message in a buffer, if all of it is there.
    fn first_of(buffer: &'a [u8], started: bool) -> Option<Self> {
        let type_bytes = usize::from(started);
        let length = buffer.get(type_bytes..type_bytes + 4)?;
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        assert!(
            (4..1 << 28).contains(&length),
            "not the PostgreSQL protocol: {buffer:?}"
        );
        let bytes = type_bytes + length;
        Some(Self {
            kind: if started { buffer[0] } else { 0 },
            body: buffer.get(type_bytes + 4..bytes)?,
            bytes,
        })
    }

    /// The text of a simple query.
    pub(super) fn query(&self) -> Option<&'a str> {
        std::str::from_utf8(self.body.strip_suffix(&[0])?).ok()
    }

    /// Whether the server says when it is ready again.
    fn asks(&self) -> bool {
        matches!(self.kind, b'Q' | b'S')
    }

    /// Whether it starts the session, and not merely asks for encryption first.
    fn starts(&self) -> bool {
        const PROTOCOL_3: &[u8] = &[0, 3];
        self.kind == 0 && self.body.starts_with(PROTOCOL_3)
    }
}

/// Whether the first word of a statement is this one, where several may be sent at once. Comments in front, as our own statements
/// have, do not count.
pub(super) fn begins_with(text: &str, word: &str) -> bool {
    text.split(';').any(|statement| statement_begins_with(statement, word))
}

fn statement_begins_with(text: &str, word: &str) -> bool {
    let mut text = text.trim_start();
    while text.starts_with("--") {
        text = text.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
    }
    let behind = text.get(word.len()..).and_then(|rest| rest.chars().next());
    text.get(..word.len())
        .is_some_and(|begin| begin.eq_ignore_ascii_case(word))
        && behind.is_none_or(|next| !next.is_alphanumeric() && next != '_')
}

/// One connection, from its accept to its end; dropping it cuts it.
pub(super) async fn connection(client: TcpStream, upstream: Upstream, shared: Arc<Shared>) {
    let _ = client.set_nodelay(true);
    let server = match upstream {
        Upstream::Unix(path) => UnixStream::connect(path).await.map(|server| {
            let (read, write) = server.into_split();
            (Box::new(read) as Reader, Box::new(write) as Writer)
        }),
        Upstream::Tcp(host, port) => TcpStream::connect((host, port)).await.map(|server| {
            let (read, write) = server.into_split();
            (Box::new(read) as Reader, Box::new(write) as Writer)
        }),
    };
    // A server that is not there looks to the client like one that went away.
    let Ok((mut from_server, mut to_server)) = server else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let muted = AtomicBool::new(false);
    let end = tokio::select! {
        end = requests(&mut from_client, &mut to_server, &shared, &muted) => end,
        () = answers(&mut from_server, &mut to_client, &shared, &muted) => End::AtOnce,
    };
    if end == End::AfterStatement {
        drop((from_client, to_client));
        let _ = tokio::time::timeout(PATIENCE, tokio::io::copy(&mut from_server, &mut tokio::io::sink())).await;
    }
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

#[derive(Debug, PartialEq, Eq)]
enum End {
    AtOnce,
    /// The client is cut off at once; the server finishes its work.
    AfterStatement,
}

/// Hands on what the client says, until it leaves or is cut off.
async fn requests(
    client: &mut (impl AsyncRead + Unpin),
    server: &mut Writer,
    shared: &Shared,
    muted: &AtomicBool,
) -> End {
    const TERMINATE: &[u8] = b"X\0\0\0\x04";
    let (mut buffer, mut started) = (Vec::new(), false);
    loop {
        let (mut whole, mut is_asked) = (0, false);
        while let Some(message) = Message::first_of(&buffer[whole..], started) {
            // What is sent together is answered together.
            if message.asks() && !std::mem::replace(&mut is_asked, true) {
                shared.count_round_trip();
            }
            let cut = shared.note(&message);
            started |= message.starts();
            if cut == Some(Cut::Before) {
                return End::AtOnce;
            }
            if cut == Some(Cut::Held) {
                std::future::pending::<()>().await;
            }
            whole += message.bytes;
            if cut == Some(Cut::Frozen) {
                muted.store(true, Ordering::SeqCst);
                let _ = server.write_all(&buffer[..whole]).await;
                std::future::pending::<()>().await;
            }
            if cut == Some(Cut::After) {
                // First of all, lest an answer slip through.
                muted.store(true, Ordering::SeqCst);
                buffer.truncate(whole);
                buffer.extend_from_slice(TERMINATE);
                let _ = server.write_all(&buffer).await;
                return End::AfterStatement;
            }
        }
        if server.write_all(&buffer[..whole]).await.is_err() {
            // Its last words are still to be read.
            std::future::pending::<()>().await;
        }
        buffer.drain(..whole);
        if !matches!(client.read_buf(&mut buffer).await, Ok(1..)) {
            return End::AtOnce;
        }
    }
}

/// Hands on what the server says, unless that is held back, until either side is gone.
async fn answers(server: &mut Reader, client: &mut (impl AsyncWrite + Unpin), shared: &Shared, muted: &AtomicBool) {
    let mut held = shared.held.subscribe();
    let mut buffer = Vec::new();
    while matches!(server.read_buf(&mut buffer).await, Ok(1..)) {
        let _ = held.wait_for(|held| !held).await;
        if muted.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if client.write_all(&buffer).await.is_err() {
            return;
        }
        buffer.clear();
    }
}
