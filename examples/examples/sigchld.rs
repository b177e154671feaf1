//! Reaps child processes in the loop: starts a few, and says of each when it has ended and how.
//!
//! Signals of the same kind merge: one SIGCHLD may stand for several children. So every child is asked each time, and
//! only those that this program started, since other code may wait for children of its own.
//!
//! Try: cargo run --example sigchld

use std::cell::RefCell;
use std::io;
use std::process::{Child, Command};
use std::rc::Rc;

use event_core::{Error, EventBase, Signal};

fn start(script: &str) -> io::Result<Child> {
    Command::new("sh").args(["-c", script]).spawn()
}

fn main() -> Result<(), Error> {
    let mut base = EventBase::new()?;
    println!("reaping children with {}", base.method());

    // Watched before the first child is started: no end is missed.
    let children = Rc::new(RefCell::new(Vec::new()));
    let running = children.clone();
    let signal = Signal::new(&base, Signal::CHLD, move |signal| {
        running.borrow_mut().retain_mut(|(name, child): &mut (&str, Child)| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                println!("{name}: {status}");
                false
            }
            Err(error) => {
                eprintln!("{name}: cannot ask: {error}");
                false
            }
        });
        if running.borrow().is_empty() {
            // Nothing is left to wait for: the loop ends.
            let _ = signal.del();
        }
    })?;
    signal.add()?;

    for (name, script) in
        [("slow", "sleep 0.4; exit 3"), ("quick", "exit 0"), ("killed", "sleep 0.2; kill -9 $$")]
    {
        children.borrow_mut().push((name, start(script)?));
    }
    base.dispatch()?;
    println!("all children have ended");
    Ok(())
}
