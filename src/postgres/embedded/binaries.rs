//! Finding `initdb` and `postgres`.
//!
//! An explicit folder (an option, then `PG_BINDIR`) is taken at its word and never fallen back from. Otherwise `PATH`
//! and the usual places of the packagers are candidates; a data folder that exists picks those of its own major
//! version, so that installing a newer PostgreSQL beside it changes nothing.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::EmbeddedError;
use super::identity::Identity;

/// Where packagers put versions side by side: the folder, the prefix of a version's name in it, and the rest.
const USUAL_PLACES: [(&str, &str, &str); 6] = [
    ("/usr/lib/postgresql", "", "bin"),                          // Debian, Ubuntu
    ("/usr", "pgsql-", "bin"),                                   // PGDG on Red Hat and its kin
    ("/opt/homebrew/opt", "postgresql@", "bin"),                 // Homebrew on Apple silicon
    ("/usr/local/opt", "postgresql@", "bin"),                    // Homebrew on Intel
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql@", "bin"),    // Homebrew on Linux
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"), // Postgres.app
];

/// A folder with server programs, and their major version.
#[derive(Debug, Clone)]
pub(super) struct Binaries {
    pub(super) dir: PathBuf,
    pub(super) major: u32,
}

impl Binaries {
    pub(super) fn initdb(&self) -> PathBuf {
        self.dir.join("initdb")
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.dir.join("postgres")
    }
}

/// The inputs of the search, apart from the disk.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// A folder named by the caller.
    pub(super) bin_dir: Option<PathBuf>,
    /// The value of `PG_BINDIR`.
    pub(super) pg_bindir: Option<OsString>,
    /// The value of `PATH`.
    pub(super) path: Option<OsString>,
    /// Version folders in the sense of [`USUAL_PLACES`].
    pub(super) usual: Vec<(PathBuf, String, String)>,
}

impl Search {
    /// The search as the environment of this process defines it.
    pub(super) fn from_environment(bin_dir: Option<PathBuf>) -> Self {
        Self {
            bin_dir,
            pg_bindir: std::env::var_os("PG_BINDIR").filter(|value| !value.is_empty()),
            path: std::env::var_os("PATH"),
            usual: USUAL_PLACES
                .map(|(dir, prefix, rest)| (dir.into(), prefix.into(), rest.into()))
                .into(),
        }
    }

    /// The best server programs: those of major version `wanted` if any candidate has it, else the first candidate.
    pub(super) fn find(&self, wanted: Option<u32>, identity: &Identity) -> Result<Binaries, EmbeddedError> {
        let explicit = self
            .bin_dir
            .clone()
            .or_else(|| self.pg_bindir.clone().map(PathBuf::from));
        if let Some(dir) = explicit {
            // Relative to where we are; the server itself runs elsewhere.
            let dir = std::path::absolute(&dir).unwrap_or(dir);
            return if holds_programs(&dir) {
                identity.check_reach(&dir.join("postgres"))?;
                probe(dir, identity)
            } else {
                let source = if self.bin_dir.is_some() {
                    "the configured folder"
                } else {
                    "PG_BINDIR"
                };
                Err(EmbeddedError::NoBinaries {
                    looked: format!("{} ({source})", dir.display()),
                })
            };
        }

        let (mut best, mut problem) = (None, None);
        for dir in self.candidates() {
            let probed = identity
                .check_reach(&dir.join("postgres"))
                .and_then(|()| probe(dir, identity));
            match probed {
                Ok(found) if wanted.is_none_or(|major| major == found.major) => return Ok(found),
                Ok(found) => best = best.or(Some(found)),
                Err(error) => {
                    tracing::warn!(%error, "passed over a PostgreSQL that cannot be used");
                    problem = problem.or(Some(error));
                }
            }
        }
        best.ok_or_else(|| problem.unwrap_or_else(|| EmbeddedError::NoBinaries { looked: self.places() }))
    }

    /// Every folder that holds both programs: in the order of `PATH`, then the usual places, newest first.
    fn candidates(&self) -> Vec<PathBuf> {
        let path = self
            .path
            .iter()
            .flat_map(std::env::split_paths)
            .filter(|dir| dir.is_absolute());
        let mut usual: Vec<(u32, PathBuf)> = Vec::new();
        for (parent, prefix, rest) in &self.usual {
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let version = name
                    .to_str()
                    .and_then(|name| name.strip_prefix(prefix.as_str()))
                    .and_then(leading_number);
                usual.extend(version.map(|version| (version, entry.path().join(rest))));
            }
        }
        usual.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
        path.chain(usual.into_iter().map(|(_, dir)| dir))
            .filter(|dir| holds_programs(dir))
            .collect()
    }

    fn places(&self) -> String {
        let usual = self
            .usual
            .iter()
            .map(|(dir, prefix, rest)| format!("{}/{prefix}*/{rest}", dir.display()));
        std::iter::once("PATH".to_owned())
            .chain(usual)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn holds_programs(dir: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|name| dir.join(name).is_file())
}

/// Asks the server program for its version, under the account it will run under.
fn probe(dir: PathBuf, identity: &Identity) -> Result<Binaries, EmbeddedError> {
    let program = dir.join("postgres");
    let unusable = |problem: String| EmbeddedError::UnusableBinary {
        program: program.clone(),
        problem,
    };
    let mut command = Command::new(&program);
    command.arg("--version").current_dir("/").stdin(Stdio::null());
    identity.apply(&mut command);
    let output = command.output().map_err(|error| unusable(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    match said
        .split_once("(PostgreSQL) ")
        .and_then(|(_, version)| leading_number(version))
    {
        Some(major) if output.status.success() => Ok(Binaries { dir, major }),
        _ => {
            let complaint = String::from_utf8_lossy(&output.stderr);
            Err(unusable(format!(
                "`--version` answered {:?} ({}) {}",
                said.trim(),
                output.status,
                complaint.trim()
            )))
        }
    }
}

/// The number that a version begins with: 15 of `15.18`, 18 of `18beta1`.
pub(super) fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Lays out programs that only know their version.
    ///
    /// A shell writes them: a file that this process has open for writing cannot be run, and a child that another
    /// test starts at that moment keeps it open for a little longer.
    fn lay_out(dir: &Path, version: &str) {
        let script = r##"mkdir -p "$1" && for name in initdb postgres; do
            printf "#!/bin/sh\necho '%s (PostgreSQL) %s'\n" "$name" "$2" > "$1/$name" && chmod 755 "$1/$name"
        done"##;
        let status = Command::new("sh")
            .args(["-ec", script, "sh"])
            .arg(dir)
            .arg(version)
            .status()
            .unwrap();
        assert!(status.success());
    }

    fn open_folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    fn identity() -> Identity {
        Identity::choose(Path::new("/nonexistent/data")).unwrap()
    }

    fn search_in(root: &Path) -> Search {
        Search {
            usual: vec![(root.to_path_buf(), "pg-".into(), "bin".into())],
            ..Search::default()
        }
    }

    #[test]
    fn the_newest_usual_place_wins_by_number_not_by_name() {
        let folder = open_folder();
        lay_out(&folder.path().join("pg-9/bin"), "9.6.24");
        lay_out(&folder.path().join("pg-15/bin"), "15.18");
        let found = search_in(folder.path()).find(None, &identity()).unwrap();
        assert_eq!((found.major, found.dir), (15, folder.path().join("pg-15/bin")));
    }

    #[test]
    fn a_data_folder_picks_the_programs_of_its_own_major() {
        let folder = open_folder();
        lay_out(&folder.path().join("pg-15/bin"), "15.18");
        lay_out(&folder.path().join("pg-16/bin"), "16.14");
        assert_eq!(search_in(folder.path()).find(Some(15), &identity()).unwrap().major, 15);
        assert_eq!(search_in(folder.path()).find(Some(14), &identity()).unwrap().major, 16);
    }

    #[test]
    fn path_comes_before_the_usual_places() {
        let folder = open_folder();
        lay_out(&folder.path().join("pg-16/bin"), "16.14");
        lay_out(&folder.path().join("own"), "14.23");
        let path = Some(folder.path().join("own").into_os_string());
        let search = Search {
            path,
            ..search_in(folder.path())
        };
        assert_eq!(search.find(None, &identity()).unwrap().major, 14);
    }

    #[test]
    fn a_named_folder_without_programs_is_refused_rather_than_passed_over() {
        let folder = open_folder();
        lay_out(&folder.path().join("pg-16/bin"), "16.14");
        let search = Search {
            pg_bindir: Some("/nonexistent/bin".into()),
            ..search_in(folder.path())
        };
        let message = search.find(None, &identity()).unwrap_err().to_string();
        assert!(message.contains("/nonexistent/bin (PG_BINDIR)"), "{message}");
    }

    #[test]
    fn where_nothing_is_found_the_message_says_where_it_looked_and_what_to_do() {
        let folder = open_folder();
        let message = search_in(folder.path())
            .find(None, &identity())
            .unwrap_err()
            .to_string();
        assert!(
            message.contains(&format!("{}/pg-*/bin", folder.path().display())),
            "{message}"
        );
        assert!(
            message.contains("apt-get install postgresql") && message.contains("PG_BINDIR"),
            "{message}"
        );
    }

    #[test]
    fn programs_that_do_not_say_their_version_are_named() {
        let folder = open_folder();
        lay_out(&folder.path().join("pg-16/bin"), "unheard of");
        let message = search_in(folder.path())
            .find(None, &identity())
            .unwrap_err()
            .to_string();
        assert!(message.contains("pg-16/bin/postgres"), "{message}");
    }
}
