//! Our side of `dispatch`, `timers`, `posts`, `streams` and `throughput`: the work of one run, figures on standard output;
//! and the server of `bulk`.
//!
//! A program of its own, because the one that drives the measurements counts its allocations, which costs time.
//!
//!     ours dispatch PAIRS ACTIVE WRITES pass|stay events|tokens
//!     ours timers COUNT random|one timers|common|tokens
//!     ours timers steps cancel|change|fire TIMES
//!     ours posts MESSAGES mailbox|closures
//!     ours streams LOW HIGH objects|closures
//!     ours throughput filters|pair|proxy MIB BLOCK_KIB
//!     ours bulk ADDRESS

mod bulk;
mod dispatch;
mod posts;
mod streams;
mod throughput;
mod timers;

use std::error::Error;
use std::process::ExitCode;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "usage: ours bulk|dispatch|timers|posts|streams|throughput ARGUMENTS";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        ["bulk", ref rest @ ..] => bulk::run(rest),
        ["dispatch", ref rest @ ..] => dispatch::run(rest),
        ["streams", ref rest @ ..] => streams::run(rest),
        ["throughput", ref rest @ ..] => throughput::run(rest),
        ["timers", "steps", ref rest @ ..] => timers::steps(rest),
        ["timers", ref rest @ ..] => timers::run(rest),
        ["posts", ref rest @ ..] => posts::run(rest),
        _ => Err(USAGE.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ours: {error}");
            ExitCode::FAILURE
        }
    }
}
