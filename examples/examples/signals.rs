//! Signals as events: counts SIGINT, SIGTERM and SIGUSR1, each in a callback of the loop and not in a signal handler,
//! so that everything is allowed there. SIGINT (Ctrl-C) ends the program.
//!
//! Try: cargo run --example signals

use std::cell::Cell;
use std::rc::Rc;

use event_core::{Error, EventBase, Signal};

fn main() -> Result<(), Error> {
    let mut base = EventBase::new()?;

    let mut signals = Vec::new();
    let counts = Rc::new([const { Cell::new(0) }; 3]);
    let known = [("SIGINT", libc::SIGINT), ("SIGTERM", libc::SIGTERM), ("SIGUSR1", libc::SIGUSR1)];
    for (index, (name, number)) in known.into_iter().enumerate() {
        let (counts, handle) = (counts.clone(), base.handle());
        let signal = Signal::new(&base, number, move |_| {
            counts[index].set(counts[index].get() + 1);
            println!("{name}: {}", counts[index].get());
            if number == libc::SIGINT {
                let _ = handle.loopexit(None);
            }
        })?;
        signal.add()?;
        signals.push(signal);
    }

    let pid = std::process::id();
    println!("waiting for signals with {}: try kill -USR1 {pid}, end with kill -INT {pid}", base.method());
    base.dispatch()?;
    for (index, (name, _)) in known.into_iter().enumerate() {
        println!("{name} in all: {}", counts[index].get());
    }
    Ok(())
}
