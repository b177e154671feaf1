//! A timer that fires once and one that fires again and again until it deletes itself; then nothing is left to wait
//! for and the loop ends by itself.
//!
//! Try: cargo run --example timer

use std::time::Duration;

use event_core::{Error, EventBase, Timer};

fn main() -> Result<(), Error> {
    let mut base = EventBase::new()?;
    println!("timers on {}", base.method());

    let once = Timer::new(&base, |_| println!("once"))?;
    once.add(Duration::from_millis(250))?;

    // Counted from when each tick was due, so the ticks do not drift.
    let mut ticks = 0;
    let ticking = Timer::persistent(&base, move |timer| {
        ticks += 1;
        println!("tick {ticks}");
        if ticks == 5 {
            let _ = timer.del();
        }
    })?;
    ticking.add(Duration::from_millis(100))?;

    let start = base.now();
    base.dispatch()?;
    println!("no timer is left after {} ms", (base.now() - start).as_millis());
    Ok(())
}
