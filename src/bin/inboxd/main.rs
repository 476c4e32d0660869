//! The `inboxd` program: parse, compose, exit code.

mod adopt;
mod args;
mod carried;
mod commands;
mod embedded;
mod operate;
mod run;
mod text;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = args::Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("inboxd: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let executed = runtime.block_on(commands::execute(arguments));
    // A name that is being looked up cannot be cancelled, and would keep the process up.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    match executed {
        Ok(code) => code,
        Err(error) => {
            eprintln!("inboxd: {}", text::error(&error));
            ExitCode::FAILURE
        }
    }
}
