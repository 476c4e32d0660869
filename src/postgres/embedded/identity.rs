//! The operating system account that the server runs under.
//!
//! PostgreSQL refuses to run as root. A root process hands it to the owner of an existing data folder, else to
//! `postgres`, else to `nobody`; any other process runs it as itself.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::{Uid, User, geteuid};

use super::error::EmbeddedError;

/// The accounts tried by a root process, in order.
const SERVER_USERS: [&str; 2] = ["postgres", "nobody"];

/// An account, and whether a child has to be switched to it.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) uid: u32,
    gid: u32,
    switch: bool,
}

impl Identity {
    /// Chooses the account for a data folder, which need not exist.
    pub(super) fn choose(data_dir: &Path) -> Result<Self, EmbeddedError> {
        let own = geteuid();
        if !own.is_root() {
            return Ok(Self::of(user(own)?, false));
        }
        // A cluster keeps the account it was made under: chown -R of somebody's data would be worse.
        if let Ok(found) = data_dir.metadata()
            && found.uid() != 0
        {
            return Ok(Self::of(user(Uid::from_raw(found.uid()))?, true));
        }
        SERVER_USERS
            .into_iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .map(|user| Self::of(user, true))
            .ok_or(EmbeddedError::NoServerUser)
    }

    fn of(user: User, switch: bool) -> Self {
        Self {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            switch,
        }
    }

    /// Makes a command run under this account.
    ///
    /// std drops the supplementary groups of a root process itself once a uid is set.
    pub(super) fn apply(&self, command: &mut Command) {
        if self.switch {
            command.uid(self.uid).gid(self.gid);
        }
    }

    /// Hands a file or folder that we made to this account.
    pub(super) fn give(&self, path: &Path) -> io::Result<()> {
        if self.switch {
            lchown(path, Some(self.uid), Some(self.gid))
        } else {
            Ok(())
        }
    }

    /// Checks that every folder above `path` lets this account pass.
    ///
    /// It goes by owner, group and mode: an access list that says more is not seen, and a root process would not
    /// notice by trying.
    pub(super) fn check_reach(&self, path: &Path) -> Result<(), EmbeddedError> {
        let unreachable = |blocker: &Path| EmbeddedError::Unreachable {
            path: path.to_path_buf(),
            blocker: blocker.to_path_buf(),
            user: self.name.clone(),
        };
        // With links resolved, from the nearest part that exists; not the thing itself.
        let above = path
            .canonicalize()
            .ok()
            .and_then(|real| real.parent().map(Path::to_path_buf));
        let nearest = || path.ancestors().skip(1).find_map(|part| part.canonicalize().ok());
        let Some(start) = above.or_else(nearest) else {
            return Ok(());
        };
        let closed = start
            .ancestors()
            .find(|folder| folder.metadata().is_ok_and(|found| !self.has(&found, 0o1)));
        closed.map_or(Ok(()), |folder| Err(unreachable(folder)))
    }

    /// Whether owner, group and mode grant this account `bits` (4 read, 2 write, 1 pass).
    pub(super) fn has(&self, found: &Metadata, bits: u32) -> bool {
        let shift = if found.uid() == self.uid {
            6
        } else if found.gid() == self.gid {
            3
        } else {
            0
        };
        (found.mode() >> shift) & bits == bits
    }
}

fn user(uid: Uid) -> Result<User, EmbeddedError> {
    User::from_uid(uid)
        .ok()
        .flatten()
        .ok_or(EmbeddedError::UnknownUser { uid: uid.as_raw() })
}
