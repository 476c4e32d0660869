//! Making a new cluster, so that a data folder is never half of one.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::binaries::Binaries;
use super::error::EmbeddedError;
use super::folders::{beside, last_lines, server_command};
use super::identity::Identity;

/// It takes a second on a good disk; only a hung one takes longer than this.
const INITDB_TIMEOUT: Duration = Duration::from_secs(180);

/// Marks `<data>.initializing` as ours to remove.
const INITIALIZING_MARK: &str = "made-by-inboxd";

/// Makes a new cluster: aside first, then moved to its place, so that a data folder is never half a cluster.
///
/// Each try gets a name of its own, because an `initdb` whose parent was killed works on, and removes its folder
/// when it fails.
pub(super) async fn initialize(
    data_dir: &Path,
    binaries: &Binaries,
    identity: &Identity,
    environment: &[(OsString, OsString)],
    durable: bool,
) -> Result<(), EmbeddedError> {
    let aside = beside(data_dir, ".initializing");
    let attempt = prepare_attempt(&aside, identity)?;
    identity.check_reach(&attempt)?;

    let mut command = server_command(&binaries.initdb(), identity, environment);
    command.args([
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "--no-instructions",
        "-D",
    ]);
    command.arg(&attempt).stdout(Stdio::piped()).stderr(Stdio::piped());
    if !durable {
        command.arg("--no-sync");
    }
    let failed = |output: String| EmbeddedError::InitFailed {
        path: data_dir.to_path_buf(),
        output,
    };
    let mut command = tokio::process::Command::from(command);
    let output = tokio::time::timeout(INITDB_TIMEOUT, command.kill_on_drop(true).output())
        .await
        .map_err(|_| failed(format!("it was not done after {} s", INITDB_TIMEOUT.as_secs())))?
        .map_err(EmbeddedError::io("run", &binaries.initdb()))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        return Err(failed(format!(
            "{}\n{}",
            output.status,
            last_lines(&String::from_utf8_lossy(&said))
        )));
    }

    fs::rename(&attempt, data_dir).map_err(EmbeddedError::io("move the new cluster to", data_dir))?;
    if durable && let Some(parent) = data_dir.parent() {
        File::open(parent)
            .and_then(|folder| folder.sync_all())
            .map_err(EmbeddedError::io("sync", parent))?;
    }
    fs::remove_dir_all(&aside).map_err(EmbeddedError::io("remove", &aside))
}

/// Makes the folder for the next try and removes those of earlier ones.
fn prepare_attempt(aside: &Path, identity: &Identity) -> Result<PathBuf, EmbeddedError> {
    let mark = aside.join(INITIALIZING_MARK);
    let entries = |error| EmbeddedError::io("read", aside)(error);
    match fs::create_dir(aside) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(EmbeddedError::io("create", aside)(error));
        }
        _ => {}
    }
    let old = fs::read_dir(aside)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(entries)?;
    if !old.is_empty() && !mark.exists() {
        return Err(EmbeddedError::NotACluster {
            path: aside.to_path_buf(),
        });
    }
    fs::write(
        &mark,
        "An unfinished cluster. It is safe to remove while inboxd is not running.\n",
    )
    .and_then(|()| fs::set_permissions(aside, fs::Permissions::from_mode(0o755)))
    .map_err(EmbeddedError::io("write", &mark))?;

    let number = old
        .iter()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .max();
    let attempt = aside.join(number.map_or(0, |last| last.wrapping_add(1)).to_string());
    DirBuilder::new()
        .mode(0o700)
        .create(&attempt)
        .and_then(|()| identity.give(&attempt))
        .map_err(EmbeddedError::io("create", &attempt))?;
    for entry in old.iter().filter(|entry| entry.path() != mark) {
        // What an initdb that still runs puts back goes with the next try, or with the whole.
        let _ = fs::remove_dir_all(entry.path());
    }
    Ok(attempt)
}
