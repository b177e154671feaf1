//! Bytes that travel from socket pair to socket pair: what libevent's `bench.c` does.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Instant;

use event_core::{Event, EventBase, LoopFlags, LoopHandle, What};

use crate::Outcome;

/// The pairs, and how far the work has come.
struct Relay {
    readers: Vec<UnixStream>,
    writers: Vec<UnixStream>,
    total: u64,
    reads: Cell<u64>,
    /// Bytes that may still be passed on.
    left: Cell<u64>,
    /// Whoever reads the last byte stops the loop.
    stay: bool,
    error: RefCell<Option<io::Error>>,
}

impl Relay {
    fn new(pairs: usize, active: usize, writes: u64, stay: bool) -> Outcome<Self> {
        let (mut readers, mut writers) = (Vec::with_capacity(pairs), Vec::with_capacity(pairs));
        for _ in 0..pairs {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            writer.set_nonblocking(true)?;
            readers.push(reader);
            writers.push(writer);
        }
        Ok(Self {
            readers,
            writers,
            total: active as u64 + writes,
            reads: Cell::new(0),
            left: Cell::new(writes),
            stay,
            error: RefCell::new(None),
        })
    }

    /// What each callback does: no more than the peers' do.
    #[inline(always)]
    fn step(&self, handle: &LoopHandle, at: usize) {
        let mut byte = [0];
        match (&self.readers[at]).read(&mut byte) {
            Ok(1) => {}
            other => return self.failed(handle, other),
        }
        self.reads.set(self.reads.get() + 1);
        if self.left.get() > 0 {
            self.left.set(self.left.get() - 1);
            let next = if at + 1 == self.writers.len() { 0 } else { at + 1 };
            match (&self.writers[next]).write(b"e") {
                Ok(1) => {}
                other => self.failed(handle, other),
            }
        }
        if self.stay && self.reads.get() == self.total {
            self.stop(handle);
        }
    }

    #[cold]
    fn failed(&self, handle: &LoopHandle, outcome: io::Result<usize>) {
        let error = match outcome {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => error,
            Ok(_) => ErrorKind::UnexpectedEof.into(),
        };
        self.error.replace(Some(error));
        self.reads.set(self.total);
        self.stop(handle);
    }

    #[cold]
    fn stop(&self, handle: &LoopHandle) {
        // Fails only without a loop, and one is calling.
        let _it_runs = handle.loopbreak();
    }
}

pub(crate) fn run(args: &[&str]) -> Outcome<()> {
    let &[pairs, active, writes, how @ ("pass" | "stay"), by @ ("events" | "tokens")] = args else {
        return Err("dispatch PAIRS ACTIVE WRITES pass|stay events|tokens".into());
    };
    let (pairs, active): (usize, usize) = (pairs.parse()?, active.parse()?);
    if active == 0 || active > pairs {
        return Err("ACTIVE must be from 1 to PAIRS".into());
    }
    let relay = Rc::new(Relay::new(pairs, active, writes.parse()?, how == "stay")?);
    let mut base = EventBase::new()?;
    match by {
        "events" => watch_by_events(&base, &relay)?,
        _ => watch_by_tokens(&base, &relay)?,
    }
    let pass = LoopFlags::ONCE | LoopFlags::NONBLOCK;
    base.run(pass)?;
    for i in 0..active {
        (&relay.writers[i * (pairs / active)]).write_all(b"e")?;
    }
    let start = Instant::now();
    if relay.stay {
        base.dispatch()?;
    } else {
        while relay.reads.get() < relay.total {
            base.run(pass)?;
        }
    }
    let took = start.elapsed();
    if let Some(error) = relay.error.take() {
        return Err(error.into());
    }
    if relay.reads.get() != relay.total {
        return Err("bytes were lost".into());
    }
    println!("ns {:.3}", took.as_secs_f64() * 1e9 / relay.total as f64);
    Ok(())
}

/// One persistent event a pair, each with a closure of its own.
fn watch_by_events(base: &EventBase, relay: &Rc<Relay>) -> Outcome<()> {
    for (at, reader) in relay.readers.iter().enumerate() {
        let relay = relay.clone();
        let event = Event::new(base, reader.as_raw_fd(), What::READ | What::PERSIST, move |event, _| {
            relay.step(event.handle(), at);
        })?;
        event.add(None)?;
        event.detach();
    }
    Ok(())
}

/// One token a pair, one handler for all.
fn watch_by_tokens(base: &EventBase, relay: &Rc<Relay>) -> Outcome<()> {
    for (at, reader) in relay.readers.iter().enumerate() {
        let id = base.register_token(reader.as_raw_fd(), false, What::READ | What::PERSIST, None, at)?;
        base.add(id, None)?;
    }
    let relay = relay.clone();
    base.set_token_handler(move |handle, _, at, _, _| relay.step(handle, at));
    Ok(())
}
