//! What a part found: Markdown on standard output and, with the plots, in `target/bench`.

use std::{fmt::Write, fs, path::PathBuf};

use crate::{measure, support::server};

/// The columns of the README's table, in their order; a part that has something to say there names them.
pub(crate) const ESSENTIAL: [&str; 4] = ["`DELETE` at once", "`DELETE` in batches", "pg_partman", "inboxd"];

/// What a part found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) name: &'static str,
    tables: String,
    /// A name and an SVG.
    plots: Vec<(&'static str, String)>,
    /// Lines of the README's table.
    essential: String,
}

/// Where it was found.
#[derive(Debug)]
pub(crate) struct Machine {
    text: String,
    quick: bool,
}

/// A Markdown table.
#[derive(Debug)]
pub(crate) struct Table {
    text: String,
    lines: usize,
}

impl Table {
    pub(crate) fn new(columns: &[impl AsRef<str>]) -> Self {
        let mut table = Self {
            text: String::new(),
            lines: 0,
        };
        table.row(columns);
        let rule: Vec<&str> = columns.iter().map(|_| "---").collect();
        table.row(&rule);
        table
    }

    pub(crate) fn row(&mut self, cells: &[impl AsRef<str>]) {
        let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
        writeln!(self.text, "| {} |", cells.join(" | ")).unwrap();
        self.lines += 1;
    }
}

impl Report {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// A table, with a sentence above it.
    ///
    /// # Panics
    ///
    /// Of one that has no rows: a part that measured nothing must not pass for one that ran.
    pub(crate) fn table(&mut self, says: &str, table: Table) {
        assert!(table.lines > 2, "no rows for {says:?}");
        writeln!(self.tables, "{says}\n\n{}", table.text).unwrap();
    }

    pub(crate) fn plot(&mut self, name: &'static str, says: &str, svg: String) {
        writeln!(self.tables, "![{says}](performance/{name}.svg)\n").unwrap();
        self.plots.push((name, svg));
    }

    /// A line of the README's table: what, and a cell for each of [`ESSENTIAL`].
    pub(crate) fn essential(&mut self, what: &str, cells: [String; ESSENTIAL.len()]) {
        writeln!(self.essential, "| {what} | {} |", cells.join(" | ")).unwrap();
    }

    /// Prints it, and keeps it for `--write-docs`; what is quick apart, which no documentation is made of.
    pub(crate) fn publish(self, machine: &Machine) {
        assert!(!self.tables.is_empty(), "{} has no table", self.name);
        let text = format!("{}{}\n", self.tables, machine.text);
        println!("## {}\n\n{text}", self.name);
        let folder = if machine.quick {
            folder().join("quick")
        } else {
            folder()
        };
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{}.md", self.name)), text).unwrap();
        fs::write(folder.join(format!("{}.essential", self.name)), self.essential).unwrap();
        for (name, svg) in self.plots {
            fs::write(folder.join(format!("{name}.svg")), svg).unwrap();
        }
    }
}

/// Where what was measured is kept.
pub(crate) fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("bench")
}

/// The folder of the package.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

impl Machine {
    pub(crate) fn look(quick: bool) -> Self {
        let form = if quick {
            "the quick form, which proves nothing"
        } else {
            "the whole form"
        };
        let build = if cfg!(debug_assertions) {
            ", an unoptimized build"
        } else {
            ""
        };
        let text = format!(
            "<sub>{form}{build}; inboxd {}, {}, {} cores of {}, {} of memory, Linux {}; load average {} when it began</sub>",
            env!("CARGO_PKG_VERSION"),
            server_version(),
            std::thread::available_parallelism().map_or(0, usize::from),
            field("/proc/cpuinfo", "model name").unwrap_or_else(|| "an unknown kind".to_owned()),
            field("/proc/meminfo", "MemTotal")
                .and_then(|text| text.trim_end_matches(" kB").parse::<f64>().ok())
                .map_or_else(String::new, |kilobytes| measure::bytes(kilobytes * 1024.0)),
            fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim(),
            fs::read_to_string("/proc/loadavg")
                .unwrap_or_default()
                .split(' ')
                .next()
                .unwrap_or_default(),
        );
        Self { text, quick }
    }
}

/// What the server programs call themselves.
fn server_version() -> String {
    let folder = server::shared().cluster.bin_dir().to_path_buf();
    let output = std::process::Command::new(folder.join("postgres"))
        .arg("--version")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split("(PostgreSQL) ").nth(1).unwrap_or_default();
    format!("PostgreSQL {}", version.split_whitespace().next().unwrap_or_default())
}

/// The first value with a name in a file of `name : value` lines.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
