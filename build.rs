//! Tells the program of which revision it is built. It downloads nothing and never fails: where the revision cannot be told,
//! `--version` shows the version alone.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// How much of a commit's hash is shown.
const DIGITS: usize = 12;
/// What the program is made of; a change of anything else makes no other program.
const SOURCES: [&str; 7] = [
    "Cargo.toml",
    "Cargo.lock",
    "askama.toml",
    "build.rs",
    "migrations",
    "sql",
    "src",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=BUILD_REVISION");
    // A consumer of the library has no use for it.
    if env::var_os("CARGO_FEATURE_SERVICE").is_none() {
        return;
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    // With each commit everything would be built again; in a build for trying things that is not worth a number.
    let from_checkout = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let revision = given(env::var("BUILD_REVISION").ok().as_deref())
        .or_else(|| packaged(&root))
        .or_else(|| from_checkout.then(|| checked_out(&root)).flatten());
    for watched in revision.iter().flat_map(|revision| &revision.watched) {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    let shown = revision.map_or(version.clone(), |revision| format!("{version} ({})", revision.text));
    println!("cargo::rustc-env=INBOXD_VERSION_LINE={shown}");
}

/// What is built, and what may make it something else.
#[derive(Debug)]
pub(crate) struct Revision {
    pub(crate) text: String,
    watched: Vec<PathBuf>,
}

impl Revision {
    fn new(hash: &str, modified: bool, watched: Vec<PathBuf>) -> Self {
        let is_hash = hash.len() >= 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut text = if is_hash { &hash[..DIGITS] } else { hash }.to_owned();
        if modified {
            text.push_str("-modified");
        }
        Self { text, watched }
    }
}

/// What an image's build says, which has no repository beside it.
pub(crate) fn given(text: Option<&str>) -> Option<Revision> {
    let text = text?.trim();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    if text.is_empty() || text.len() > 64 || !text.bytes().all(plain) {
        return None;
    }
    Some(Revision::new(text, false, Vec::new()))
}

/// What `cargo package` wrote down.
pub(crate) fn packaged(root: &Path) -> Option<Revision> {
    let text = fs::read_to_string(root.join(".cargo_vcs_info.json")).ok()?;
    let (_, behind) = text.split_once("\"sha1\"")?;
    let hash = behind.split('"').nth(1)?;
    let modified = text.replace(' ', "").contains("\"dirty\":true");
    given(Some(hash)).map(|revision| Revision::new(&revision.text, modified, Vec::new()))
}

/// What git says, if the repository is this package's own and not one that it merely lies in.
pub(crate) fn checked_out(root: &Path) -> Option<Revision> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if fs::canonicalize(top).ok()? != fs::canonicalize(root).ok()? {
        return None;
    }
    let hash = git(root, &["rev-parse", "--verify", "HEAD"])?;
    let mut status = vec!["status", "--porcelain", "--"];
    status.extend(SOURCES);
    let modified = !git(root, &status)?.is_empty();
    // The log of HEAD grows with each commit and each checkout.
    let mut watched: Vec<PathBuf> = ["HEAD", "logs/HEAD"]
        .iter()
        .filter_map(|name| git(root, &["rev-parse", "--git-path", name]))
        .map(|path| root.join(path))
        .collect();
    watched.extend(SOURCES.iter().map(|name| root.join(name)));
    // What is not there would be changed each time.
    watched.retain(|path| path.exists());
    Some(Revision::new(&hash, modified, watched))
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}
