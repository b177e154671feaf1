//! Counts SIGINT and deletes its event at the third, whereupon the loop ends by itself: libevent's `signal-test` sample.
//!
//! Try: cargo run --example signal_test, then Ctrl-C three times

use event_core::{Error, EventBase, Signal};

fn main() -> Result<(), Error> {
    let mut base = EventBase::new()?;

    let mut count = 0;
    let signal = Signal::new(&base, Signal::INT, move |signal| {
        count += 1;
        println!("signal {}, number {count}", Signal::INT);
        if count == 3 {
            let _ = signal.del(); // nothing is left to wait for
        }
    })?;
    signal.add()?;

    println!("waiting for three SIGINT");
    base.dispatch()?;
    println!("done");
    Ok(())
}
