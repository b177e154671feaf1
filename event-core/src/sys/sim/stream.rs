//! One end of a simulated stream: what it holds, what it reports, and what a read or a write of it may do.
//!
//! Only the state of this end is here; what crosses to the other end is the affair of `sockets`. The rules are those of
//! Linux: `tcp_poll`, `unix_poll` and `pipe_poll` for readiness, `tcp_recvmsg` and `tcp_sendmsg` for the order in which
//! data, the end of the stream and errors are told.

use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::time::Duration;

use crate::clock::Time;
use crate::interest::Report;
use crate::sys::seam::Address;

use super::errno;
use super::random::Random;
use super::world::ObjId;

/// The largest write to a pipe that is never split: `PIPE_BUF` of Linux, see pipe(7).
pub(super) const PIPE_BUF: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    PipeReader,
    PipeWriter,
    Tcp,
    Unix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A socket that has not set out to connect.
    Unconnected,
    Connecting,
    Open,
    /// A TCP connection that was refused or reset.
    Closed,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) kind: Kind,
    pub(super) phase: Phase,
    /// The other end, which may be gone; 0, which is nobody, while connecting.
    pub(super) peer: ObjId,
    /// What has arrived and was not read.
    pub(super) input: VecDeque<u8>,
    /// How many bytes of this end the other has not read yet, those still under way included.
    pub(super) sent: usize,
    /// The most that `sent` may be: the socket buffers of both ends taken together.
    pub(super) capacity: usize,
    /// How long what this end sends is under way.
    pub(super) latency: Duration,
    /// When the last thing sent arrives; nothing may overtake it.
    pub(super) last_arrival: Time,
    /// A FIN came (TCP only): the end of the stream then counts for more than an error.
    pub(super) fin: bool,
    pub(super) read_shut: bool,
    pub(super) write_shut: bool,
    /// `SO_ERROR`.
    pub(super) error: Option<i32>,
    /// A reset came; unlike `error` it stays.
    pub(super) was_reset: bool,
    /// `SO_LINGER` of 0: its close is a reset.
    pub(super) resets: bool,
    pub(super) local: Address,
    pub(super) remote: Address,
}

impl Stream {
    pub(super) fn new(
        kind: Kind,
        local: Address,
        remote: Address,
        capacity: usize,
        latency: Duration,
    ) -> Stream {
        Stream {
            kind,
            phase: Phase::Connecting,
            peer: 0,
            input: VecDeque::new(),
            sent: 0,
            capacity,
            latency,
            last_arrival: Time::default(),
            fin: false,
            read_shut: false,
            write_shut: false,
            error: None,
            was_reset: false,
            resets: false,
            local,
            remote,
        }
    }

    pub(super) fn is_socket(&self) -> bool {
        matches!(self.kind, Kind::Tcp | Kind::Unix)
    }

    /// What a poll of this end says; `peer_lives` is whether the other end is open.
    pub(super) fn readiness(&self, peer_lives: bool) -> Report {
        let mut report = Report::empty();
        report.set(Report::READ, !self.input.is_empty());
        match self.kind {
            Kind::PipeReader => report.set(Report::HUP, !peer_lives),
            Kind::PipeWriter => {
                report.set(Report::ERR, !peer_lives);
                report.set(Report::WRITE, self.has_room());
            }
            Kind::Tcp | Kind::Unix if self.phase == Phase::Connecting => {}
            Kind::Tcp | Kind::Unix if self.phase == Phase::Unconnected => {
                report = Report::WRITE | Report::HUP
            }
            Kind::Tcp | Kind::Unix => {
                let hung_up = self.phase == Phase::Closed || (self.read_shut && self.write_shut);
                report.set(Report::ERR, self.error.is_some());
                report.set(Report::HUP, hung_up);
                if self.read_shut {
                    report |= Report::READ | Report::CLOSED;
                }
                // A TCP socket that cannot be written to any more will not block a write (tcp_poll).
                report.set(Report::WRITE, self.has_room() || (self.kind == Kind::Tcp && self.write_shut));
            }
        }
        report
    }

    /// Whether there is enough room to report WRITE. Sockets: a third of the buffer, as in `sk_stream_is_writeable`;
    /// pipes: a write of `PIPE_BUF`.
    pub(super) fn has_room(&self) -> bool {
        if self.is_socket() {
            self.sent <= self.capacity.saturating_mul(2) / 3
        } else {
            self.room() >= PIPE_BUF.min(self.capacity)
        }
    }

    /// How many bytes a read could take now; 0 is the end of the stream. An error that is told is taken.
    pub(super) fn readable(&mut self, peer_lives: bool) -> io::Result<usize> {
        if self.kind == Kind::PipeWriter {
            return Err(errno(libc::EBADF));
        }
        if !self.input.is_empty() {
            return Ok(self.input.len());
        }
        if self.phase == Phase::Unconnected {
            return Err(errno(libc::ENOTCONN));
        }
        if self.fin || (self.kind == Kind::PipeReader && !peer_lives) {
            return Ok(0);
        }
        match self.error.take() {
            Some(code) => Err(errno(code)),
            None if self.read_shut => Ok(0),
            None => Err(errno(libc::EAGAIN)),
        }
    }

    /// How many of `total` bytes a write could place now, at least 1. An error that is told is taken.
    pub(super) fn writable(&mut self, total: usize, peer_lives: bool) -> io::Result<usize> {
        match self.kind {
            Kind::PipeReader => return Err(errno(libc::EBADF)),
            Kind::PipeWriter if !peer_lives => return Err(errno(libc::EPIPE)),
            Kind::PipeWriter => {}
            Kind::Tcp if self.phase == Phase::Connecting => return Err(errno(libc::EAGAIN)),
            Kind::Tcp if self.phase == Phase::Unconnected => return Err(errno(libc::EPIPE)),
            Kind::Unix if self.phase == Phase::Unconnected => return Err(errno(libc::ENOTCONN)),
            // unix_stream_sendmsg looks at the shutdown first, tcp_sendmsg at the error.
            Kind::Unix if self.write_shut => return Err(errno(libc::EPIPE)),
            Kind::Tcp | Kind::Unix => {
                if let Some(code) = self.error.take() {
                    return Err(errno(code));
                }
                if self.write_shut {
                    return Err(errno(libc::EPIPE));
                }
            }
        }
        let room = self.room();
        if room == 0 || (self.is_atomic(total) && room < total) {
            return Err(errno(libc::EAGAIN));
        }
        Ok(room.min(total))
    }

    /// Whether a write of `total` bytes goes whole or not at all. A pipe smaller than the write splits it all the same.
    pub(super) fn is_atomic(&self, total: usize) -> bool {
        self.kind == Kind::PipeWriter && total <= PIPE_BUF.min(self.capacity)
    }

    /// Moves the first `count` bytes of the input, which must be there, to the end of `out`.
    pub(super) fn take_input(&mut self, count: usize, out: &mut Vec<u8>) {
        let (front, back) = self.input.as_slices();
        let from_front = count.min(front.len());
        out.extend_from_slice(&front[..from_front]);
        out.extend_from_slice(&back[..count - from_front]);
        self.input.drain(..count);
    }

    /// An RST came in. What had arrived before it can still be read.
    pub(super) fn reset(&mut self) {
        if self.fin && self.write_shut {
            return; // Both sides had said goodbye: tcp_reset does nothing in TIME_WAIT and CLOSE.
        }
        // tcp_reset: a socket that has seen the FIN (CLOSE_WAIT) gets EPIPE.
        self.fail(if self.fin { libc::EPIPE } else { libc::ECONNRESET });
        self.was_reset = true;
    }

    /// The connection is over with `code` to be told once: refused or reset.
    pub(super) fn fail(&mut self, code: i32) {
        self.phase = Phase::Closed;
        self.error = Some(code);
        self.read_shut = true;
        self.write_shut = true;
        self.sent = 0;
    }

    /// Notes a shutdown of this end and says which directions it newly shut: (read, write).
    pub(super) fn shut(&mut self, how: Shutdown) -> io::Result<(bool, bool)> {
        if !self.is_socket() {
            return Err(errno(libc::ENOTSOCK));
        }
        if self.phase != Phase::Open {
            return Err(errno(libc::ENOTCONN));
        }
        let read = matches!(how, Shutdown::Read | Shutdown::Both) && !self.read_shut;
        let write = matches!(how, Shutdown::Write | Shutdown::Both) && !self.write_shut;
        self.read_shut |= read;
        self.write_shut |= write;
        Ok((read, write))
    }

    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.sent)
    }
}

/// One thing that a test has laid in the way of the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Moves at most this many bytes, but at least one.
    AtMost(usize),
    /// Fails with this errno and does nothing.
    Fail(i32),
}

/// What lies in the way of the calls of one kind on one open file, in order.
#[derive(Debug, Default)]
pub(super) struct Obstacles {
    pub(super) steps: VecDeque<Step>,
    /// Random refusals in a row: 0 to `Obstacles::PATIENCE`.
    refused: u8,
}

impl Obstacles {
    /// After so many random EAGAINs in a row the next call goes through, so that a loop makes progress.
    const PATIENCE: u8 = 2;

    /// The errno that the test wants from this call.
    pub(super) fn failure(&mut self) -> Option<i32> {
        let Some(&Step::Fail(code)) = self.steps.front() else { return None };
        self.steps.pop_front();
        Some(code)
    }

    /// How much of what is `possible` this call may do, by the script or else by chance.
    pub(super) fn limit(&mut self, possible: usize, random: Option<&mut Random>) -> io::Result<usize> {
        if let Some(&Step::AtMost(most)) = self.steps.front() {
            self.steps.pop_front();
            return Ok(possible.min(most.max(1)));
        }
        let Some(random) = random else { return Ok(possible) };
        if self.refused < Obstacles::PATIENCE && random.below(4) == 0 {
            self.refused += 1;
            return Err(errno(libc::EAGAIN));
        }
        self.refused = 0;
        if possible < 2 || random.below(2) == 0 {
            return Ok(possible);
        }
        // A short count anywhere, but often a very short one: that is where parsers break.
        let longest = if random.below(2) == 0 { possible - 1 } else { (possible - 1).min(16) };
        Ok(1 + random.below(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(kind: Kind) -> Stream {
        let nowhere = Address::Unix(None);
        let mut stream = Stream::new(kind, nowhere.clone(), nowhere, 30_000, Duration::ZERO);
        stream.phase = Phase::Open;
        stream
    }

    fn code<T>(result: io::Result<T>) -> i32 {
        result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
    }

    #[test]
    fn a_socket_is_reported_writable_while_a_third_of_its_buffer_is_free() {
        let mut stream = open(Kind::Tcp);
        stream.sent = 20_000;
        assert_eq!(stream.readiness(true), Report::WRITE);
        stream.sent = 20_001;
        assert_eq!(stream.readiness(true), Report::empty());
        assert_eq!(stream.writable(100_000, true).unwrap(), 9_999, "but there is room");
        stream.sent = 30_000;
        assert_eq!(code(stream.writable(1, true)), libc::EAGAIN);
    }

    #[test]
    fn even_the_smallest_buffer_becomes_writable_again() {
        for capacity in 1..5 {
            let mut stream = open(Kind::Tcp);
            stream.capacity = capacity;
            assert!(stream.has_room());
            stream.sent = capacity;
            assert!(!stream.has_room());
        }
    }

    #[test]
    fn the_end_of_the_stream_follows_the_data_and_an_error_is_told_once() {
        let mut stream = open(Kind::Tcp);
        stream.input.extend(b"ab");
        stream.reset();
        let everything = Report::READ | Report::WRITE | Report::CLOSED | Report::HUP | Report::ERR;
        assert_eq!(stream.readiness(true), everything);
        assert_eq!(stream.readable(true).unwrap(), 2);
        stream.take_input(2, &mut Vec::new());
        assert_eq!(code(stream.readable(true)), libc::ECONNRESET);
        assert_eq!(stream.readable(true).unwrap(), 0);
        assert_eq!(code(stream.writable(1, true)), libc::EPIPE);
        assert_eq!(stream.readiness(true), everything - Report::ERR);
    }

    #[test]
    fn a_reset_after_the_fin_is_a_broken_pipe_and_after_both_fins_nothing() {
        let mut stream = open(Kind::Tcp);
        (stream.fin, stream.read_shut) = (true, true);
        stream.reset();
        assert_eq!(stream.readable(true).unwrap(), 0, "the FIN comes first");
        assert_eq!(code(stream.writable(1, true)), libc::EPIPE);
        assert_eq!(stream.error, None);

        let mut stream = open(Kind::Tcp);
        (stream.fin, stream.read_shut, stream.write_shut) = (true, true, true);
        stream.reset();
        assert_eq!((stream.error, stream.was_reset), (None, false));
    }

    #[test]
    fn pipes_report_as_pipe_poll_does() {
        let mut reader = open(Kind::PipeReader);
        assert_eq!(reader.readiness(true), Report::empty());
        assert_eq!(reader.readiness(false), Report::HUP);
        reader.input.extend(b"x");
        assert_eq!(reader.readiness(false), Report::HUP | Report::READ);
        assert_eq!(code(reader.writable(1, true)), libc::EBADF);

        let mut writer = open(Kind::PipeWriter);
        assert_eq!(writer.readiness(true), Report::WRITE);
        assert_eq!(writer.readiness(false), Report::WRITE | Report::ERR);
        assert_eq!(code(writer.writable(1, false)), libc::EPIPE);
        writer.sent = writer.capacity - PIPE_BUF + 1;
        assert_eq!(writer.readiness(true), Report::empty());
        assert_eq!(code(writer.writable(PIPE_BUF, true)), libc::EAGAIN, "all or nothing");
        assert_eq!(writer.writable(PIPE_BUF + 1, true).unwrap(), PIPE_BUF - 1);
        assert_eq!(code(writer.readable(true)), libc::EBADF);
    }

    #[test]
    fn the_script_comes_before_chance_and_never_fakes_an_end() {
        let mut obstacles = Obstacles::default();
        obstacles.steps.extend([Step::Fail(libc::EIO), Step::AtMost(0), Step::AtMost(9)]);
        assert_eq!(obstacles.failure(), Some(libc::EIO));
        assert_eq!(obstacles.failure(), None);
        assert_eq!(obstacles.limit(5, None).unwrap(), 1);
        assert_eq!(obstacles.limit(5, None).unwrap(), 5);
        assert!(obstacles.steps.is_empty());
    }

    #[test]
    fn chance_refuses_at_most_twice_in_a_row_and_always_moves_something() {
        let (mut random, mut obstacles) = (Random::new(1), Obstacles::default());
        let (mut refused, mut short, mut whole, mut in_a_row) = (0, 0, 0, 0);
        for _ in 0..1000 {
            match obstacles.limit(100, Some(&mut random)) {
                Ok(count) => {
                    assert!((1..=100).contains(&count));
                    if count < 100 {
                        short += 1
                    } else {
                        whole += 1
                    }
                    in_a_row = 0;
                }
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
                    in_a_row += 1;
                    refused += 1;
                    assert!(in_a_row <= Obstacles::PATIENCE);
                }
            }
        }
        assert!(refused > 50 && short > 50 && whole > 50, "{refused} {short} {whole}");
    }
}
