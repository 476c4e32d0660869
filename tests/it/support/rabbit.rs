//! A RabbitMQ node of the tests' own.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::folder::Folder;
use super::process::{self, Watchdog};

/// A node boots in 3 s on a machine that has nothing else to do, and in 20 s on one that compiles.
const PATIENCE: Duration = Duration::from_secs(180);

/// A node with the port mapper that it wants; both are ended when dropped, or after the test process's own end. What it stores
/// stays over a restart.
#[derive(Debug)]
pub(crate) struct RabbitServer {
    node: Option<(Child, Watchdog)>,
    mapper: Option<(Child, Watchdog)>,
    folder: Folder,
    ports: Ports,
}

#[derive(Debug)]
struct Ports {
    amqp: u16,
    amqps: u16,
    distribution: u16,
    mapper: u16,
}

/// The node that the tests of this process share. It is never dropped; its watchdogs end it.
pub(crate) fn shared() -> &'static RabbitServer {
    static SHARED: OnceLock<RabbitServer> = OnceLock::new();
    SHARED.get_or_init(|| RabbitServer::start(None))
}

impl RabbitServer {
    /// Starts one. With an ack timeout, it closes a channel that holds a delivery for longer.
    pub(crate) fn start(ack_timeout: Option<Duration>) -> Self {
        let mut server = Self {
            node: None,
            mapper: None,
            folder: Folder::new(),
            ports: Ports::free(),
        };
        server.configure(ack_timeout);
        server.start_mapper();
        server.start_again();
        server
    }

    pub(crate) fn uri(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.ports.amqp)
    }

    /// Where it listens with TLS, and the certificate that it shows there.
    pub(crate) fn tls(&self) -> (String, PathBuf) {
        let uri = format!("amqps://guest:guest@127.0.0.1:{}/%2f", self.ports.amqps);
        (uri, self.folder.path().join("certificate.pem"))
    }

    /// Kills it outright.
    pub(crate) fn kill(&mut self) {
        if let Some((mut node, _watchdog)) = self.node.take() {
            // The script that was started waits for the node.
            process::kill_group(node.id());
            node.wait().unwrap();
        }
    }

    pub(crate) fn start_again(&mut self) {
        let mut command = self.command("rabbitmq-server");
        let mut node = quietly(&mut command);
        let watchdog = Watchdog::over_group(&node);
        let listens = || {
            let ended = node.try_wait().unwrap();
            assert!(ended.is_none(), "rabbitmq-server ended: {ended:?}");
            TcpStream::connect(("127.0.0.1", self.ports.amqp)).ok()
        };
        process::poll(PATIENCE, listens).expect("rabbitmq-server listens");
        self.node = Some((node, watchdog));
    }

    /// Has it write down which queues there are. It does so by itself, but only every now and then, and knows nothing of a queue
    /// that was made in the seconds before it was killed.
    pub(crate) fn write_down_queues(&self) {
        let mut command = self.command("rabbitmqctl");
        command.args(["eval", "mnesia:dump_log()."]);
        let mut asking = quietly(&mut command);
        let _watchdog = Watchdog::over_group(&asking);
        let ended = process::poll(PATIENCE, || asking.try_wait().unwrap()).expect("rabbitmqctl ends");
        assert!(ended.success(), "rabbitmqctl: {ended}");
    }

    /// A program of the node's, for this node.
    fn command(&self, name: &str) -> Command {
        let program = program(name).unwrap_or_else(|| {
            panic!("{name} is needed for the tests of the middleware: tests/rabbitmq-server installs it")
        });
        let folder = self.folder.path();
        let mut command = Command::new(program);
        command
            .env("HOME", folder.join("home"))
            .env("RABBITMQ_NODENAME", format!("inboxd-{}@localhost", self.ports.amqp))
            .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", folder.join("advanced.config"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("plugins"))
            .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
            .env("RABBITMQ_LOG_BASE", folder.join("log"))
            .env("RABBITMQ_PID_FILE", folder.join("pid"))
            .env("RABBITMQ_DIST_PORT", self.ports.distribution.to_string())
            // Its schedulers spin for work otherwise, on the cores that everything else needs.
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "+sbwt none +sbwtdcpu none +sbwtdio none",
            )
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_EPMD_PORT", self.ports.mapper.to_string());
        command
    }

    fn configure(&self, ack_timeout: Option<Duration>) {
        let file = |name: &str| self.folder.path().join(name);
        fs::create_dir(file("home")).unwrap();
        self.make_certificate();
        let lines = [
            format!("listeners.tcp.1 = 127.0.0.1:{}", self.ports.amqp),
            format!("listeners.ssl.1 = 127.0.0.1:{}", self.ports.amqps),
            format!("ssl_options.certfile = {}", file("certificate.pem").display()),
            format!("ssl_options.keyfile = {}", file("key.pem").display()),
            "disk_free_limit.absolute = 1MB\n".to_owned(),
        ];
        fs::write(file("rabbitmq.conf"), lines.join("\n")).unwrap();
        fs::write(file("plugins"), "[].\n").unwrap();
        let limit = ack_timeout.map_or("undefined".to_owned(), |limit| limit.as_millis().to_string());
        // It looks for deliveries that are held too long at its ticks, once a minute by default.
        let advanced = format!("[{{rabbit, [{{channel_tick_interval, 300}}, {{consumer_timeout, {limit}}}]}}].\n");
        fs::write(file("advanced.config"), advanced).unwrap();
    }

    /// Of no authority: nobody trusts it who is not told to.
    fn make_certificate(&self) {
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ])
            .args([
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
            ])
            .args([
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-keyout",
                "key.pem",
                "-out",
            ])
            .arg("certificate.pem")
            .current_dir(self.folder.path())
            .output()
            .expect("openssl is needed for the tests of the middleware: tests/rabbitmq-server installs it");
        assert!(made.status.success(), "{made:?}");
    }

    /// The node would start one itself, and leave it behind.
    fn start_mapper(&mut self) {
        let mut command = Command::new("epmd");
        command.args(["-address", "127.0.0.1", "-port", &self.ports.mapper.to_string()]);
        let mapper = quietly(&mut command);
        let watchdog = Watchdog::over_group(&mapper);
        let listens = || TcpStream::connect(("127.0.0.1", self.ports.mapper)).ok();
        process::poll(PATIENCE, listens).expect("epmd listens");
        self.mapper = Some((mapper, watchdog));
    }
}

impl Drop for RabbitServer {
    fn drop(&mut self) {
        self.kill();
        if let Some((mut mapper, _watchdog)) = self.mapper.take() {
            process::kill_group(mapper.id());
            let _ = mapper.wait();
        }
    }
}

impl Ports {
    fn free() -> Self {
        // Held together, so that they differ.
        let held = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [amqp, amqps, distribution, mapper] = held.map(|held| held.local_addr().unwrap().port());
        Self {
            amqp,
            amqps,
            distribution,
            mapper,
        }
    }
}

fn quietly(command: &mut Command) -> Child {
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    process::in_own_group(command)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The node's own scripts. Those of the packages on the PATH change to an account of their own.
fn program(name: &str) -> Option<PathBuf> {
    let releases = fs::read_dir("/usr/lib/rabbitmq/lib").ok()?;
    let scripts = releases.flatten().map(|release| release.path().join("sbin").join(name));
    scripts.filter(|script| script.is_file()).max()
}
