//! Watches a file descriptor of your own: here a pipe on which a child process prints a line now and then.
//!
//! This is the reactor by itself: whatever has an fd (a pipe, a serial line, another library's socket) can be watched
//! so, and you read it with your own calls.
//!
//! Try: cargo run --example raw_fd

use std::io::{Read, pipe};
use std::os::fd::AsRawFd;
use std::process::Command;

use event_core::{Error, Event, EventBase, What};

fn main() -> Result<(), Error> {
    let mut base = EventBase::new()?;
    println!("watching a pipe with {}", base.method());

    let (mut reader, writer) = pipe()?;
    let script = "for n in 1 2 3; do echo line $n; sleep 0.1; done";
    let mut child = Command::new("sh").args(["-c", script]).stdout(writer).spawn()?;

    // The event borrows the number only; the callback owns the pipe and closes it when it is dropped.
    let fd = reader.as_raw_fd();
    let event = Event::new(&base, fd, What::READ | What::PERSIST, move |event, _ready| {
        // One read for each call does not block: there is something, or the loop would not have called.
        let mut block = [0; 4096];
        match reader.read(&mut block) {
            Ok(0) => {
                println!("the child has closed its end");
                let _ = event.del();
            }
            Ok(n) => print!("{}", String::from_utf8_lossy(&block[..n])),
            Err(error) => {
                eprintln!("cannot read from the pipe: {error}");
                let _ = event.del();
            }
        }
    })?;
    event.add(None)?;

    // Returns when nothing is left to watch.
    base.dispatch()?;
    child.wait()?;
    Ok(())
}
