//! Prints what is written to a named pipe: libevent's `event-read-fifo` sample. Ctrl-C ends it and removes the pipe.
//!
//! Try: cargo run --example event_read_fifo
//! and in another terminal, in the same directory: echo hello > event.fifo

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use event_core::{Error, Event, EventBase, Signal, What};
use nix::sys::stat::Mode;

const FIFO: &str = "event.fifo";

/// Makes the pipe, in place of one that an earlier run has left. Anything else of that name is not touched.
fn make_fifo() -> io::Result<()> {
    match fs::symlink_metadata(FIFO) {
        Ok(there) if there.file_type().is_fifo() => fs::remove_file(FIFO)?,
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => {}
    }
    nix::unistd::mkfifo(FIFO, Mode::from_bits_truncate(0o600))?;
    Ok(())
}

fn main() -> Result<(), Error> {
    if let Err(error) = make_fifo() {
        eprintln!("cannot make the pipe {FIFO} here: {error}");
        eprintln!("move what has that name, or run this in a directory that you may write to");
        std::process::exit(1);
    }
    let mut base = EventBase::new()?;

    // Open for writing, too: so the end of one writer is not the end of the pipe.
    let mut pipe = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(FIFO)?;
    let fd = pipe.as_raw_fd();
    // The callback gets its own event (in C: event_self_cbarg) and owns the pipe.
    let event = Event::new(&base, fd, What::READ | What::PERSIST, move |event, _ready| {
        let mut block = [0; 255];
        match pipe.read(&mut block) {
            Ok(0) => drop(event.del()),
            Ok(n) => {
                print!("read {n} bytes: {}", String::from_utf8_lossy(&block[..n]));
                let _ = io::stdout().flush();
            }
            Err(error) => {
                eprintln!("cannot read from {FIFO}: {error}");
                let _ = event.del();
            }
        }
    })?;
    event.add(None)?;

    let handle = base.handle();
    let interrupt = Signal::new(&base, Signal::INT, move |_| drop(handle.loopbreak()))?;
    interrupt.add()?;

    println!("waiting for what is written to {FIFO}");
    base.dispatch()?;
    fs::remove_file(FIFO)?;
    println!("done");
    Ok(())
}
