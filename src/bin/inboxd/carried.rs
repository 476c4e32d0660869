//! What a package of the program carries beside it: completions for shells and manual pages, from the command line's own
//! definition and the configuration's own keys. Neither reads a configuration.

use std::{fs, io::Write, path::Path, process::ExitCode};

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::roff::{Roff, bold, roman};
use inboxd::service::config::KEYS;

use crate::args::Arguments;

pub(crate) fn completions(shell: Shell) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "inboxd", &mut text);
    // A reader that has gone is no error.
    let _ = std::io::stdout().write_all(&text);
    ExitCode::SUCCESS
}

/// Writes `inboxd.1`, a page for each command, and `inboxd.toml.5`.
pub(crate) fn manual(folder: &Path) -> Result<ExitCode> {
    let writing = || format!("write manual pages to {}", folder.display());
    fs::create_dir_all(folder).with_context(writing)?;
    clap_mangen::generate_to(Arguments::command(), folder).with_context(writing)?;
    fs::write(folder.join("inboxd.toml.5"), of_the_configuration()).with_context(writing)?;
    Ok(ExitCode::SUCCESS)
}

fn of_the_configuration() -> String {
    let mut page = Roff::new();
    let source = concat!("inboxd ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["inboxd.toml", "5", "", source]);
    page.control("SH", ["NAME"]);
    page.text([roman("inboxd.toml - the configuration of inboxd")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(
        "One TOML file, which --config or INBOXD_CONFIG names, with the environment on top: INBOXD_SCHEDULE__CRON sets \
         schedule.cron, and DATABASE_URL sets database.url. An unknown key is an error. Keys of inbox stand in an [[inbox]], \
         which only the file can hold. A duration has its unit: 90s, 1h 30m, 7d.",
    )]);
    page.control("SH", ["KEYS"]);
    for key in KEYS {
        page.control("TP", []);
        page.text([bold(key.name)]);
        let default = key.default.map_or_else(|| key.without.to_owned(), str::to_owned);
        page.text([roman(format!(
            "{}. Accepted: {}. Default: {default}.",
            key.meaning,
            key.accepts.to_string().replace('`', "")
        ))]);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("inboxd"), roman("(1)")]);
    page.to_roff()
}
