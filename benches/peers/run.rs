//! The parts, one after the other.

use std::{process::ExitCode, time::Instant};

use crate::{
    arguments::Arguments,
    docs,
    parts::{self, NAMES},
    report::Machine,
};

pub(crate) fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args()) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    if arguments.write_docs {
        docs::write();
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(all(arguments));
    ExitCode::SUCCESS
}

async fn all(arguments: Arguments) {
    let begin = Instant::now();
    let wanted = |name: &str| arguments.only.is_none_or(|only| only == name);
    // The service idles beside all other parts: what it uses is told by the system, not by a stopwatch.
    let idle = match wanted("footprint") {
        true => Some(parts::footprint::start(arguments).await),
        false => None,
    };
    for name in NAMES.into_iter().filter(|name| wanted(name) && *name != "footprint") {
        eprintln!("-- {name} at {} s", begin.elapsed().as_secs());
        let machine = Machine::look(arguments.quick);
        parts::run(name, arguments).await.publish(&machine);
    }
    if let Some(idle) = idle {
        eprintln!("-- footprint at {} s", begin.elapsed().as_secs());
        let machine = Machine::look(arguments.quick);
        idle.end().await.publish(&machine);
    }
    eprintln!("-- done at {} s", begin.elapsed().as_secs());
}
