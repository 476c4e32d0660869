//! pgbench, for a load that keeps a server busy: its client costs less than ours, and leaves more of the machine to what is measured.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use crate::{
    peer::Peer,
    support::{clock::ClockServer, folder::Folder},
};

/// A UUIDv7 of the server's now, in a microsecond or two.
const V7: &str = "(lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid";

/// Claims of a number, as fast as they go; each in a transaction of its own.
pub(crate) struct Pgbench {
    child: Child,
    folder: Folder,
}

/// A claim that was made: when it ended, in seconds of the machine's clock, and what it took, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) end: f64,
    pub(crate) millis: f64,
}

impl Pgbench {
    pub(crate) fn start(server: &ClockServer, peer: &Peer, clients: u32, claims: u32) -> Self {
        let folder = Folder::new();
        let script = folder.path().join("claim.sql");
        fs::write(&script, peer.claim().replace("$1", V7)).unwrap();
        let mut command = Command::new(program(server));
        command.args(["-n", "-M", "prepared", "-j", "2", "-l"]);
        command.args(["-c", &clients.to_string(), "-t", &(claims / clients).to_string()]);
        command.arg("--log-prefix").arg(folder.path().join("log"));
        command.arg("-f").arg(script).arg(&peer.database.url).current_dir("/");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    /// What was claimed in the order of the ends, once it has come to its own.
    pub(crate) fn ended(&mut self) -> Option<Vec<Claim>> {
        let status = self.child.try_wait().unwrap()?;
        assert!(status.success(), "pgbench: {status}");
        let mut claims = Vec::new();
        for entry in fs::read_dir(self.folder.path()).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("log.") {
                claims.extend(fs::read_to_string(entry.path()).unwrap().lines().map(read));
            }
        }
        claims.sort_by(|one, other| one.end.total_cmp(&other.end));
        Some(claims)
    }
}

/// `client transaction microseconds script second microsecond`.
fn read(line: &str) -> Claim {
    let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    Claim {
        end: numbers[4] + numbers[5] / 1e6,
        millis: numbers[2] / 1000.0,
    }
}

fn program(server: &ClockServer) -> PathBuf {
    let named = std::env::var_os("PG_CLIENT_BINDIR").map(PathBuf::from);
    let beside = server.server.cluster.bin_dir().to_path_buf();
    let mut usual: Vec<(Option<u32>, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| {
            let version = entry.file_name().to_string_lossy().parse().ok();
            (version, entry.path().join("bin"))
        })
        .collect();
    usual.sort();
    let folders = named
        .into_iter()
        .chain([beside])
        .chain(usual.into_iter().rev().map(|(_, folder)| folder));
    folders
        .map(|folder| folder.join("pgbench"))
        .find(|program| program.is_file())
        .expect("pgbench is needed: PG_CLIENT_BINDIR says where it is")
}
