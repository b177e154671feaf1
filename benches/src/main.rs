//! Side-by-side measurements of our HTTP server, our event loop and their peers; README.md says how to read them.

mod allocs;
mod callgrind;
mod client;
mod dispatch;
mod http;
mod instructions;
mod le_proxy;
mod memory;
mod options;
mod posts;
mod proc;
mod programs;
mod report;
mod servers;
mod syscalls;
mod throughput;
mod timers;
mod tools;

use std::error::Error;
use std::process::ExitCode;

use crate::options::{Command, Options};
use crate::report::Report;

/// What every step of a measurement gives: an error is text for the person who reads the table.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("benches: {error}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match measure(&options) {
        Ok(report) if report.is_clean() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("benches: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Outcome<Report> {
    let mut report = Report::new(options.command.name());
    if cfg!(debug_assertions) {
        report.note("built without --release: the figures of Rust servers mean nothing");
    }
    report.note(proc::machine());
    proc::raise_open_file_limit()?;
    match options.command {
        Command::Allocs => allocs::run(options, &mut report)?,
        Command::Dispatch => dispatch::run(options, &mut report)?,
        Command::Http => http::run(options, &mut report)?,
        Command::Instructions => instructions::run(options, &mut report)?,
        Command::Memory => memory::run(options, &mut report)?,
        Command::Posts => posts::run(options, &mut report)?,
        Command::Syscalls => syscalls::run(options, &mut report)?,
        Command::Throughput => throughput::run(options, &mut report)?,
        Command::Timers => timers::run(options, &mut report)?,
    }
    print!("{}", report.text());
    if let Some(path) = &options.json {
        std::fs::write(path, report.json())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(report)
}
