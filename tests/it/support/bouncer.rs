//! A pgbouncer in transaction mode in front of a server.

use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::{folder::Folder, process};

/// Ended when dropped.
pub(crate) struct Bouncer {
    child: Child,
    port: u16,
}

impl Bouncer {
    /// In front of the server with that socket, with settings of its own, a line each.
    pub(crate) fn start(folder: &Folder, socket_dir: &Path, settings: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let file = folder.path().join(format!("pgbouncer-{port}.ini"));
        let text = format!(
            "[databases]\n* = host={} port=5432 user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\n{settings}\n",
            socket_dir.display()
        );
        std::fs::write(&file, text).unwrap();
        process::open_to_all(&file);
        let mut command = Command::new("pgbouncer");
        command
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = process::as_owner_of(socket_dir, &mut command)
            .spawn()
            .expect("pgbouncer is needed to stand in front of a server: apt-get install pgbouncer");
        let listens = || TcpStream::connect(("127.0.0.1", port)).ok();
        process::poll(Duration::from_secs(20), listens).expect("pgbouncer listens");
        Self { child, port }
    }

    /// Where a database is reached through it.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
