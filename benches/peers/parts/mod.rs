//! What is measured, a part a file.

mod claims;
pub(crate) mod footprint;
mod life;
mod removal;
mod scale;
mod stall;

use crate::{arguments::Arguments, report::Report};

/// In the order in which they run and are shown.
pub(crate) const NAMES: [&str; 6] = ["life", "removal", "stall", "claims", "scale", "footprint"];

pub(crate) async fn run(name: &str, arguments: Arguments) -> Report {
    match name {
        "life" => life::run(arguments.quick).await,
        "removal" => removal::run(arguments.quick).await,
        "stall" => stall::run(arguments.quick).await,
        "claims" => claims::run(arguments.quick),
        "scale" => scale::run(arguments.quick).await,
        other => unreachable!("{other} is run apart"),
    }
}
