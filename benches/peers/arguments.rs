//! What the benchmark is asked for.

use crate::parts::NAMES;

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Small sizes: shows that it runs, and little else.
    pub(crate) quick: bool,
    /// The only part; all without.
    pub(crate) only: Option<&'static str>,
    /// Whether what was measured before is put into the documentation, instead of measuring.
    pub(crate) write_docs: bool,
}

impl Arguments {
    /// Reads them; none when tests of another name are asked for, or only their list.
    pub(crate) fn read(arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut read = Self {
            quick: false,
            only: None,
            write_docs: false,
        };
        let mut arguments = arguments.skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => read.quick = true,
                "--write-docs" => read.write_docs = true,
                "--only" => {
                    let name = arguments.next().ok_or_else(|| usage("--only needs a part"))?;
                    let known = NAMES.into_iter().find(|known| *known == name);
                    read.only = Some(known.ok_or_else(|| usage(&format!("{name} is no part")))?);
                }
                // Of cargo.
                "--bench" => {}
                "--list" => return Ok(None),
                filter if !filter.starts_with('-') && !"peers".contains(filter) => return Ok(None),
                filter if !filter.starts_with('-') => {}
                other => return Err(usage(&format!("{other} is not known"))),
            }
        }
        Ok(Some(read))
    }
}

fn usage(why: &str) -> String {
    format!(
        "{why}

benches/run                what a whole run measures, in less than 30 minutes on two cores
benches/run --quick        the same with small sizes, in 3 minutes: shows that it runs
benches/run --only PART    one of {}
benches/run --write-docs   puts what was measured last into docs/performance.md and README.md

INBOXD_TEST_PG_BINDIR chooses the server programs, PG_CLIENT_BINDIR has pgbench where they come without.",
        NAMES.join(", ")
    )
}
