//! What the harness is asked for.

use std::path::PathBuf;

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// How many seeds.
    pub(crate) seeds: u64,
    /// The first of them.
    pub(crate) from: u64,
    /// Stepped days a seed.
    pub(crate) days: u32,
    /// Seeds at a time.
    pub(crate) jobs: usize,
    /// Where results are kept; what stands there as passed is not run again.
    pub(crate) log: Option<PathBuf>,
    /// Whether those that have failed once are run as well.
    pub(crate) kept: bool,
    /// Whether one long year is run instead of seeds.
    pub(crate) anchor: bool,
    /// Whether each fault is told as it happens.
    pub(crate) verbose: bool,
}

impl Arguments {
    /// Reads them; none when tests of another name are asked for, or only their list.
    pub(crate) fn read(arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut read = Self {
            seeds: 10,
            from: 1,
            days: 60,
            jobs: 1,
            log: None,
            kept: false,
            anchor: false,
            verbose: false,
        };
        let mut arguments = arguments.skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
                value
                    .parse::<u32>()
                    .map_err(|_| format!("{argument} {value}: not a number"))
            };
            match argument.as_str() {
                "--seeds" => read.seeds = number()?.into(),
                "--from" => read.from = number()?.into(),
                "--days" => read.days = number()?,
                "--jobs" => read.jobs = number()?.max(1) as usize,
                "--kept" => read.kept = true,
                "--anchor" => read.anchor = true,
                "--verbose" => read.verbose = true,
                "--log" => read.log = Some(arguments.next().ok_or("--log needs a file")?.into()),
                // Of the usual harness.
                "--list" => return Ok(None),
                "--nocapture" => {}
                filter if !filter.starts_with('-') => {
                    if !"faults".contains(filter) {
                        return Ok(None);
                    }
                }
                other => {
                    return Err(format!(
                        "{other} is not known; there are --seeds N --from N --days N --jobs N --log FILE --kept --verbose, and --anchor --days N"
                    ));
                }
            }
        }
        Ok(Some(read))
    }
}
