//! The fault harness: the real service, claims and an operator live through stepped days while everything round them goes
//! wrong, and what must never happen is looked for throughout.
//!
//! `cargo test --test faults -- --seeds 10 --days 60`. A seed decides what goes wrong when; the seed and the day are named
//! where an invariant is broken. See `CONTRIBUTING.md` for the long form.

#[cfg(test)]
mod anchor;
#[cfg(test)]
mod arguments;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod consumers;
#[cfg(test)]
mod course;
#[cfg(test)]
mod defaults;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod hands;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod operating;
#[cfg(test)]
mod run;
#[cfg(test)]
mod settle;
#[cfg(test)]
#[allow(unused_imports, reason = "the toolbox of `it`, whose own tests run there")]
#[path = "../it/support/mod.rs"]
mod support;
#[cfg(test)]
mod watch;
#[cfg(test)]
mod world;

fn main() -> std::process::ExitCode {
    run::main()
}
