//! What the middleware costs, side by side in one run with the same consumer written by hand on the broker's client and sqlx.
//!
//! ```sh
//! cargo bench --all-features --bench consumers      # servers of its own, PostgreSQL with fsync; some minutes
//! MESSAGES=5000 ROUNDS=9 CONCURRENCY=16 BROKER=nats cargo bench --all-features --bench consumers
//! ```
//!
//! In each round every shape works off a queue of its own that was filled before; counted is the time from the first run of
//! the handler to the last. Printed is the median of each shape, and the median of the rounds' ratios to `by hand` with the
//! smallest and the largest. `by hand` claims with the same SQL function, so the ratio is the middleware's own price;
//! `plain insert` has a table with a primary key in place of the inbox.

#[cfg(test)]
mod brokers;
#[cfg(test)]
mod run;
#[cfg(test)]
#[allow(unused_imports, reason = "the toolbox of the tests")]
#[path = "../../tests/it/support/mod.rs"]
mod support;

fn main() {
    run::main();
}
