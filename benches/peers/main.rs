//! Side by side with what a user would pick instead: Markdown tables and SVG plots, each table from one run on one private
//! server. `benches/run --help` says how it is asked; `docs/performance.md` shows what came out and what that does not tell.

#[cfg(test)]
mod arguments;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod load;
#[cfg(test)]
mod measure;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod peer;
#[cfg(test)]
mod pgbench;
#[cfg(test)]
mod plot;
#[cfg(test)]
mod report;
#[cfg(test)]
mod run;
#[cfg(test)]
#[allow(unused_imports, reason = "the toolbox of `it`, whose own tests run there")]
#[path = "../../tests/it/support/mod.rs"]
mod support;

fn main() -> std::process::ExitCode {
    run::main()
}
