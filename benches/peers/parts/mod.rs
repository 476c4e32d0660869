//! What is measured, a part a file.

pub(crate) mod footprint;
mod removal;
mod scale;
mod stall;

use crate::{arguments::Arguments, report::Report};

/// In the order in which they run and are shown.
pub(crate) const NAMES: [&str; 4] = ["removal", "stall", "scale", "footprint"];

pub(crate) async fn run(name: &str, arguments: Arguments) -> Report {
    match name {
        "removal" => removal::run(arguments.quick).await,
        "stall" => stall::run(arguments.quick).await,
        "scale" => scale::run(arguments.quick).await,
        other => unreachable!("{other} is run apart"),
    }
}
