//! Lets another loop drive ours: for a program that has a loop already, of a toolkit or of its own, and wants this
//! library's events in it.
//!
//! All that the other loop has to do is to wait until `poll_fd` is readable, but no longer than until `next_deadline`,
//! and then to run ours without waiting. Here the other loop is a second `EventBase`; in a loop around poll(2) the three
//! lines marked below are the same.
//!
//! Try: cargo run --example inside_another_loop

use std::time::{Duration, Instant};

use event_core::{Error, Event, EventBase, LoopEnd, LoopFlags, Timer, What};

fn main() -> Result<(), Error> {
    let mut inner = EventBase::new()?;
    let Some(fd) = inner.poll_fd() else {
        eprintln!("{} has no fd that another loop could watch: use another backend", inner.method());
        std::process::exit(1)
    };
    println!("{} inside another loop", inner.method());

    // The program's own events, of which the outer loop knows nothing: a timer and messages from a thread.
    let handle = inner.handle();
    let mut ticks = 0;
    let tick = Timer::persistent(&inner, move |_| {
        ticks += 1;
        println!("inner tick {ticks}");
        if ticks == 3 {
            let _ = handle.loopexit(None);
        }
    })?;
    tick.add(Duration::from_millis(100))?;
    let (_mailbox, sender) = inner.mailbox(|text: &str| println!("inner message: {text}"))?;
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        let _ = sender.send("hello");
    });

    let mut outer = EventBase::new()?;
    let drive = Event::new(&outer, fd, What::READ, move |event, _| {
        // 1. Run what is ready and due, and do not wait. It goes on though it may be empty for now.
        match inner.run(LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY) {
            Ok(LoopEnd::Break | LoopEnd::Exit) => println!("the inner loop has ended"),
            Ok(LoopEnd::Empty | LoopEnd::Once) => {
                // 2. Ask how long it may be left alone: not at all, until a timer is due, or for good.
                let left = inner.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
                // 3. Wait for the fd, but no longer than that.
                if let Err(error) = event.add(left) {
                    eprintln!("cannot go on: {error}");
                }
            }
            Err(error) => eprintln!("the inner loop has failed: {error}"),
        }
    })?;
    drive.add(Some(Duration::ZERO))?;

    // The outer loop's own business goes on meanwhile.
    let own = Timer::new(&outer, |_| println!("outer timer"))?;
    own.add(Duration::from_millis(150))?;
    outer.dispatch()?;
    Ok(())
}
