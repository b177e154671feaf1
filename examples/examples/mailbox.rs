//! A thread does slow work and sends messages; a callback on the loop's own thread gets them, one by one and in order.
//! The callback may use what cannot be sent to a thread, here an `Rc`.
//!
//! Try: cargo run --example mailbox

use std::cell::Cell;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use event_core::{Error, EventBase, LoopFlags};

enum Message {
    Squared(u64, u64),
    Finished,
}

fn main() -> Result<(), Error> {
    let mut base = EventBase::new()?;
    println!("a mailbox on {}", base.method());

    let sum = Rc::new(Cell::new(0));
    let (total, handle) = (sum.clone(), base.handle());
    let (mailbox, sender) = base.mailbox(move |message| match message {
        Message::Squared(n, square) => {
            println!("{n} squared is {square}");
            total.set(total.get() + square);
        }
        Message::Finished => {
            let _ = handle.loopexit(None);
        }
    })?;

    let worker = thread::spawn(move || {
        for n in 1..=5 {
            thread::sleep(Duration::from_millis(50)); // the slow work
            if sender.send(Message::Squared(n, n * n)).is_err() {
                return; // nobody reads any more
            }
        }
        let _ = sender.send(Message::Finished);
    });

    // A mailbox does not keep the loop running: nobody knows whether another message will come. We do.
    base.run(LoopFlags::NO_EXIT_ON_EMPTY)?;
    println!("the sum is {}", sum.get());
    drop(mailbox);
    if worker.join().is_err() {
        eprintln!("the worker has panicked");
    }
    Ok(())
}
