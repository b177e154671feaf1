//! Says every two seconds how long the last pause was: libevent's `time-test` sample. With `-p` the timer is a persistent
//! one, which does not drift; without, it is added again in its callback.
//!
//! Try: cargo run --example time_test              (or: cargo run --example time_test -- -p), and Ctrl-C to end it

use std::time::{Duration, Instant};

use event_core::{Error, EventBase, Timer};
use examples::{getopt, stop_with};

const USAGE: &str = "usage: time_test [-p]
  -p  a persistent timer, instead of one that is added again and again";

const PAUSE: Duration = Duration::from_secs(2);

fn main() -> Result<(), Error> {
    let (options, rest) = getopt("p", USAGE);
    let persistent = !options.is_empty();
    if !rest.is_empty() {
        stop_with(USAGE);
    }

    let mut base = EventBase::new()?;
    let mut last = Instant::now();
    let tick = move |timer: &Timer| {
        println!("{:.3} seconds have passed", last.elapsed().as_secs_f64());
        last = Instant::now();
        if !persistent {
            let _ = timer.add(PAUSE);
        }
    };
    let timer = if persistent { Timer::persistent(&base, tick)? } else { Timer::new(&base, tick)? };
    timer.add(PAUSE)?;
    base.dispatch()?;
    Ok(())
}
