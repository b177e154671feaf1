//! Streams over a transport of the program's.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use event_core::{Buffer, BufferEvent, Direction, EventBase, Filter, LoopEnd, LoopFlags, Transport, What};
use tests::streams::{Canary, Echo, Recorder, Seen};
use tests::{Peer, each_backend};

/// Turns every byte over, after an exchange of greetings. Reads ahead of what it is asked for, as encryption does.
struct Mirror {
    socket: UnixStream,
    greeted: bool,
    greeting_sent: bool,
    ahead: Vec<u8>,
    ended: bool,
    polls: Rc<Cell<usize>>,
    _canary: Canary,
}

impl Mirror {
    fn greet(&mut self) -> io::Result<()> {
        if !self.greeting_sent {
            self.socket.write_all(b"!")?;
            self.greeting_sent = true;
        }
        if !self.greeted {
            let mut byte = [0];
            self.socket.read_exact(&mut byte)?;
            self.greeted = true;
        }
        Ok(())
    }
}

impl Transport for Mirror {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn poll_read(&mut self, input: &mut Buffer, max: usize) -> io::Result<usize> {
        self.polls.set(self.polls.get() + 1);
        self.greet()?;
        let mut block = [0; 4096];
        while !self.ended {
            match self.socket.read(&mut block) {
                Ok(0) => self.ended = true,
                Ok(n) => self.ahead.extend(block[..n].iter().map(|byte| !byte)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.ahead.is_empty() && !self.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // Little by little, whatever is there.
        let n = max.min(self.ahead.len()).min(100);
        input.add(&self.ahead[..n]);
        self.ahead.drain(..n);
        Ok(n)
    }

    fn poll_write(&mut self, output: &mut Buffer, max: usize) -> io::Result<usize> {
        self.polls.set(self.polls.get() + 1);
        self.greet()?;
        let bytes: Vec<u8> = output.contiguous().iter().take(max).map(|byte| !byte).collect();
        if bytes.is_empty() {
            return Ok(0);
        }
        let n = self.socket.write(&bytes)?;
        output.drain(n);
        Ok(n)
    }

    fn want(&self) -> What {
        if self.greeted { What::empty() } else { What::READ }
    }

    fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }
}

#[test]
#[cfg_attr(miri, ignore = "real sockets")]
fn a_transport_shakes_hands_reads_ahead_and_ends() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let mut base = bed.base();
        let (canary, polls) = (Canary::new(), Rc::new(Cell::new(0)));
        let (ours, theirs) = UnixStream::pair().unwrap();
        let make = |socket: UnixStream| {
            socket.set_nonblocking(true).unwrap();
            let mirror = Mirror {
                socket,
                greeted: false,
                greeting_sent: false,
                ahead: Vec::new(),
                ended: false,
                polls: polls.clone(),
                _canary: canary.clone(),
            };
            BufferEvent::with_transport(&base, mirror).unwrap()
        };
        let (one, other) = (make(ours), make(theirs));
        other.set_callbacks(Echo);
        other.set_watermark(Direction::READ, 0, Some(150));
        other.enable(Direction::READ).unwrap();
        let got = Rc::new(RefCell::new(Vec::new()));
        let sink = got.clone();
        one.set_read_cb(move |bev| sink.borrow_mut().extend(bev.read_buffer().to_vec()));
        one.enable(Direction::READ).unwrap();
        let all: Vec<u8> = (0..50_000_u32).map(|n| (n % 251) as u8).collect();
        one.write(all.clone()).unwrap();
        bed.run_until(&mut base, || got.borrow().len() == all.len());
        assert!(*got.borrow() == all);
        // Idle: nobody is asked again and again.
        bed.settle(&mut base);
        let before = polls.get();
        bed.settle(&mut base);
        assert_eq!(polls.get(), before);
        one.shutdown_write();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(other.is_freed() && one.is_freed());
        assert_eq!(canary.alive(), 0);
    });
}

#[test]
#[cfg_attr(miri, ignore = "real sockets")]
fn a_handshake_without_a_word_to_say_does_not_spin() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let mut base = bed.base();
        let (canary, polls) = (Canary::new(), Rc::new(Cell::new(0)));
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mirror = Mirror {
            socket: ours,
            greeted: false,
            greeting_sent: false,
            ahead: Vec::new(),
            ended: false,
            polls: polls.clone(),
            _canary: canary,
        };
        let stream = BufferEvent::with_transport(&base, mirror).unwrap();
        let seen = Seen::new();
        stream.set_callbacks(Recorder::new(&seen));
        stream.write("after the greeting").unwrap();
        bed.settle(&mut base);
        let asked = polls.get();
        bed.settle(&mut base);
        assert!(polls.get() - asked <= 1, "{} polls", polls.get());
        theirs.write_all(b"!").unwrap();
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["wrote, 0 left"]);
        let mut got = [0; 19];
        theirs.read_exact(&mut got).unwrap();
        assert_eq!((got[0], !got[1]), (b'!', b'a'));
        stream.free();
    });
}

/// Takes all it is given, sends it when it can, and ends with a word of its own: what encryption does.
struct Courteous {
    socket: UnixStream,
    pending: Vec<u8>,
    said: bool,
}

impl Courteous {
    fn send(&mut self) -> io::Result<()> {
        while !self.pending.is_empty() {
            let n = self.socket.write(&self.pending)?;
            self.pending.drain(..n);
        }
        Ok(())
    }
}

impl Transport for Courteous {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn poll_read(&mut self, input: &mut Buffer, max: usize) -> io::Result<usize> {
        let mut block = [0; 1024];
        let n = self.socket.read(&mut block[..max.min(1024)])?;
        input.add(&block[..n]);
        Ok(n)
    }

    fn poll_write(&mut self, output: &mut Buffer, max: usize) -> io::Result<usize> {
        let mut bytes = vec![0; max.min(output.len())];
        output.remove(&mut bytes);
        self.pending.extend(&bytes);
        match self.send() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(bytes.len()),
        }
    }

    fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        if !std::mem::replace(&mut self.said, true) {
            self.pending.extend(b"good-bye");
        }
        self.send()?;
        self.socket.shutdown(how)
    }
}

fn courteous(base: &EventBase) -> (BufferEvent, UnixStream) {
    let (socket, theirs) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let transport = Courteous { socket, pending: Vec::new(), said: false };
    (BufferEvent::with_transport(base, transport).unwrap(), theirs)
}

/// Passes everything on.
struct Identity;

impl Filter for Identity {}

/// A transport under so many filters, ended in either way with nothing and with much on its way.
fn says_its_last_word(filters: usize) {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let ends: [fn(&BufferEvent); 2] = [BufferEvent::close_after_flush, BufferEvent::shutdown_write];
        for (end, len) in ends.into_iter().flat_map(|end| [0, 3 << 20].map(|len| (end, len))) {
            let mut base = bed.base();
            let (transport, theirs) = courteous(&base);
            let stream =
                (0..filters).fold(transport, |under, _| BufferEvent::filter(&under, Identity).unwrap());
            stream.set_read_cb(|_| {});
            stream.enable(Direction::READ).unwrap();
            stream.write(vec![b'x'; len]).unwrap();
            bed.settle(&mut base);
            end(&stream);
            bed.settle(&mut base);
            assert_eq!(stream.pending_output(), 0, "the transport has it");
            let (mut got, mut ended) = (Vec::new(), false);
            let theirs = Peer::Unix(theirs);
            bed.run_until(&mut base, || {
                let (bytes, end) = theirs.read();
                got.extend(bytes);
                ended |= end;
                ended
            });
            assert_eq!(got.len(), len + 8);
            assert!(got.ends_with(b"good-bye"));
            drop(theirs);
            bed.run_until(&mut base, || stream.is_freed());
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        }
    });
}

// Row 191: what a transport has to say at the end was never said before a close, and cut off before a FIN.
#[test]
#[cfg_attr(miri, ignore = "real sockets")]
fn a_transport_says_its_last_word_before_a_graceful_close_or_a_shutdown() {
    says_its_last_word(0);
}

#[test]
#[cfg_attr(miri, ignore = "real sockets")]
fn a_transport_under_filters_says_its_last_word_too() {
    says_its_last_word(2);
}

#[test]
#[cfg_attr(miri, ignore = "real sockets")]
fn a_last_word_that_nobody_reads_is_bounded_by_the_write_timeout_and_does_not_spin() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let mut base = bed.base();
        let (stream, _theirs) = courteous(&base);
        stream.set_callbacks(Recorder::new(&Seen::new()));
        stream.write(vec![b'x'; 3 << 20]).unwrap();
        bed.settle(&mut base);
        stream.set_timeouts(None, Some(Duration::from_millis(30)));
        stream.close_after_flush();
        assert!(!stream.is_freed());
        // It waits, for the peer or the timeout: two turns at the most, and then it is closed.
        let turns = Cell::new(0);
        while !stream.is_freed() {
            assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
            turns.set(turns.get() + 1);
        }
        assert!(turns.get() <= 2, "{} turns", turns.get());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}
