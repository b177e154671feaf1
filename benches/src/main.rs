//! Side-by-side measurements of our HTTP server, our event loop and their peers; README.md says how to read them.

mod allocs;
mod bulk;
mod callgrind;
#[cfg(feature = "chart")]
mod chart;
mod client;
mod configured;
mod dispatch;
mod http;
mod instructions;
mod le_proxy;
mod memory;
mod modes;
mod options;
mod paired;
mod peers;
mod posts;
mod proc;
mod programs;
mod report;
mod servers;
mod slowloris;
mod syscalls;
mod throughput;
mod timers;
mod tools;
mod work;
mod wrk;

use std::error::Error;
use std::process::ExitCode;

use crate::options::{Command, Options};
use crate::report::Report;

/// What every step of a measurement gives: an error is text for the person who reads the table.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [command, files @ ..] = &args[..]
        && command == "chart"
    {
        return match draw(files) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("benches: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let options = match Options::parse(args.iter().cloned()) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("benches: {error}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match measure(&options, &args) {
        Ok(report) if report.is_clean() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("benches: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Draws what was measured before.
#[cfg(feature = "chart")]
fn draw(files: &[String]) -> Outcome<()> {
    chart::run(files)
}

/// Most builds have no need of a plotting crate.
#[cfg(not(feature = "chart"))]
fn draw(_: &[String]) -> Outcome<()> {
    Err("chart needs a build with the feature: cargo run --release -p benches --features chart -- chart ..."
        .into())
}

fn measure(options: &Options, args: &[String]) -> Outcome<Report> {
    let mut report = Report::new(options.command.name());
    if cfg!(debug_assertions) {
        report.note("built without --release: the figures of Rust servers mean nothing");
    }
    report.set_origin(proc::machine(), format!("cargo run --release -p benches -- {}", args.join(" ")));
    proc::raise_open_file_limit()?;
    match options.command {
        Command::Allocs => allocs::run(options, &mut report)?,
        Command::Bulk => bulk::run(options, &mut report)?,
        Command::Dispatch => dispatch::run(options, &mut report)?,
        Command::Http => http::run(options, &mut report)?,
        Command::Instructions => instructions::run(options, &mut report)?,
        Command::Memory => memory::run(options, &mut report)?,
        Command::Posts => posts::run(options, &mut report)?,
        Command::Slowloris => slowloris::run(options, &mut report)?,
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
