//! One server connection as a state machine without I/O: bytes and time in, steps out.
//!
//! `Reading` says what the next bytes are, [`Queue`] which answers are due. The driver feeds the bytes it has to
//! [`Conn::next`], takes as many off its input as that consumed, does what the step says and asks again, until the
//! step is one that waits. Nothing here calls the program.

mod linger;
mod queue;
mod reading;
#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::time::Duration;

use crate::encode::{Delivery, Mode, ReplyTo};
use crate::error::{Caller, Error, Peer};
use crate::framing::Asked;
use crate::head::{HeadPool, Headers, MethodSet, RequestHead, Version};
use crate::limits::Limits;
use crate::parse::Scan;

pub(crate) use linger::Linger;
pub(crate) use queue::{Advance, Exchange, Queue, Seq, State, Turn};
pub(crate) use reading::Whole;

/// What a server holds its connections to; one for all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) limits: Limits,
    pub(crate) methods: MethodSet,
    /// A target may have what RFC 3986 does not allow and browsers send.
    pub(crate) lenient_targets: bool,
}

/// What the bytes that were consumed amount to.
#[derive(Debug)]
pub(crate) enum Step {
    /// The connection reads no more; whatever still comes is thrown away (see [`Linger`]).
    Closed,
    /// `100 Continue` is due now; then ask again.
    Continue,
    /// These bytes of the input belong to the body of the last head. They count among the consumed ones, which may
    /// be more on both sides.
    Data(Range<usize>),
    /// The last request is whole. Trailers are empty unless its body was chunked and had some.
    End { seq: Seq, trailers: Headers },
    /// The request cannot be read on, and nothing after it is read.
    ///
    /// With a `seq`, `error` is the answer of that exchange if it has none yet; close when it has left. Without one,
    /// close in silence.
    Fail { seq: Option<Seq>, error: Error },
    /// A request begins. Its body follows as `Data` and `End`; `End` comes also without a body.
    Head { seq: Seq, head: Box<RequestHead> },
    /// More bytes are needed.
    NeedMore,
    /// Nothing is read until an answer has left: too many are out, or the protocol may change.
    Paused,
}

/// What the end of the input cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eof {
    /// Nothing: answers that are out are still sent.
    BetweenRequests,
    /// The body of that request; it will never be whole.
    InBody(Seq),
    /// A head.
    InHead,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    ChunkData(u64),
    /// The CRLF after the data of a chunk.
    ChunkEnd,
    ChunkLine,
    Closed,
    /// The body is read; its `End` is still to be told.
    Ended,
    Head(Scan),
    /// Perhaps another protocol: it waits for the answer that decides it.
    Held,
    /// That many bytes of a body with Content-Length; never zero.
    Length(u64),
    Trailers(Scan),
}

/// A server connection without its socket. `B` keeps the answers that must wait for their turn.
///
/// Times are loop times in nanoseconds, which last for 584 years.
#[derive(Debug)]
pub(crate) struct Conn<B> {
    reading: Reading,
    /// When the running clock began: idle in `Head` before its first byte, the head in `Head` after it, else the body.
    since: u64,
    /// When body bytes last came.
    last: u64,
    /// Body bytes of the last request so far.
    received: u64,
    /// Body bytes of all requests since none was out.
    ahead: u64,
    queue: Queue<B>,
    /// The last request is the last of the connection.
    close: bool,
    /// The last request waits for `100 Continue`.
    expect: bool,
    /// After the last request the protocol may change.
    upgrade: bool,
    /// The one CRLF that may stand before a request line was there.
    blank: bool,
    /// A byte of the head was there.
    started: bool,
    /// Under which rules the deadline was set that there is; `MAX` if there is none.
    told: u16,
}

/// An idle connection is mostly this; twenty thousand of them are 2 MB.
const _: () = assert!(size_of::<Conn<Vec<u8>>>() <= 104);

impl<B: Default> Conn<B> {
    /// A connection that was accepted at loop time `now`.
    pub(crate) fn new(now: Duration) -> Conn<B> {
        Conn {
            reading: Reading::Head(Scan::default()),
            since: nanos(now),
            last: 0,
            received: 0,
            ahead: 0,
            queue: Queue::new(),
            close: false,
            expect: false,
            upgrade: false,
            blank: false,
            started: false,
            told: u16::MAX,
        }
    }

    /// Records under which rules a deadline was set; `None` if there is none.
    pub(crate) fn set_told(&mut self, age: Option<u16>) {
        self.told = age.unwrap_or(u16::MAX);
    }

    /// What was last recorded.
    #[inline]
    pub(crate) fn told(&self) -> u16 {
        self.told
    }

    /// Takes the next step; returns how many bytes of `input` it consumed.
    ///
    /// `input` begins with the first byte that was not consumed so far. Ask again after every step but `NeedMore`,
    /// `Paused` and `Closed`; after those when more bytes are there or [`advance`](Conn::advance) moved the queue.
    /// No byte after the consumed ones has any effect, except that [`Step::Continue`] is left out when bytes of the
    /// body are there already.
    ///
    /// `max_body` bounds the body of the last request: it may change once its head is read.
    pub(crate) fn next_within(
        &mut self,
        input: &[u8],
        now: Duration,
        rules: &Rules,
        max_body: Option<u64>,
        pool: &mut HeadPool,
    ) -> (usize, Step) {
        let result = match self.reading {
            Reading::Head(scan) => self.read_head(scan, input, now, rules, pool),
            Reading::Ended => Ok((0, self.end(Headers::new(), now))),
            Reading::Closed => Ok((0, Step::Closed)),
            Reading::Held => Ok((0, Step::Paused)),
            _ => self.read_body(input, now, &rules.limits, max_body),
        };
        match result {
            Ok(done) => done,
            Err(peer) => (0, self.fail(peer, input)),
        }
    }

    /// As [`next_within`](Conn::next_within) with the bound of bodies that are held in memory.
    #[cfg(test)]
    fn next(&mut self, input: &[u8], now: Duration, rules: &Rules, pool: &mut HeadPool) -> (usize, Step) {
        self.next_within(input, now, rules, rules.limits.max_body_bytes, pool)
    }

    /// When [`on_deadline`](Conn::on_deadline) is to be called at the latest; `None` while nothing is awaited from the
    /// peer. While output waits to be sent the connection is not idle.
    pub(crate) fn deadline(&self, limits: &Limits, output_pending: bool) -> Option<Duration> {
        let after = |start: u64, timeout: Duration| Duration::from_nanos(start).saturating_add(timeout);
        match self.reading {
            Reading::Head(_) if self.started => limits.head_timeout.map(|timeout| after(self.since, timeout)),
            Reading::Head(_) if output_pending || !self.queue.is_empty() => None,
            Reading::Head(_) => limits.idle_timeout.map(|timeout| after(self.since, timeout)),
            Reading::Closed | Reading::Ended | Reading::Held => None,
            // The client waits for us.
            _ if self.expect => None,
            _ => {
                let gap = limits.body_timeout.map(|timeout| after(self.last, timeout));
                // The mean rate falls below the least one when this time has passed without another byte.
                let rate = limits.min_body_rate.filter(|&rate| rate > 0).map(|rate| {
                    let fraction = (self.received % rate).saturating_mul(1_000_000_000) / rate;
                    let earned = Duration::from_secs(self.received / rate)
                        .saturating_add(Duration::from_nanos(fraction));
                    after(self.since, earned.max(limits.body_rate_grace))
                });
                gap.into_iter().chain(rate).min()
            }
        }
    }

    /// The step to take if a deadline has passed at loop time `now`, else `None`.
    pub(crate) fn on_deadline(
        &mut self,
        now: Duration,
        limits: &Limits,
        output_pending: bool,
    ) -> Option<Step> {
        if now < self.deadline(limits, output_pending)? {
            return None;
        }
        let peer = match self.reading {
            Reading::Head(_) if self.started => Peer::HeadTimeout,
            Reading::Head(_) => Peer::Idle,
            _ => Peer::BodyTimeout,
        };
        Some(self.fail(peer, &[]))
    }

    /// Starts the idle clock anew: the last answer was read by the peer only now.
    pub(crate) fn on_drained(&mut self, now: Duration) {
        if matches!(self.reading, Reading::Head(_)) && !self.started {
            self.since = nanos(now);
        }
    }

    /// As [`on_drained`](Conn::on_drained) if all that was read is answered and the client waits for nothing; false, and
    /// nothing has changed, if not.
    #[inline]
    pub(crate) fn on_all_drained(&mut self, now: Duration) -> bool {
        let is_idle = matches!(self.reading, Reading::Head(_)) && self.queue.is_empty() && !self.expect;
        if is_idle {
            self.on_drained(now);
        }
        is_idle
    }

    /// Tells that no more bytes will come; answers that are out can still be sent.
    pub(crate) fn on_eof(&mut self) -> Eof {
        let eof = match self.reading {
            Reading::Head(_) if self.started => Eof::InHead,
            Reading::Closed | Reading::Ended | Reading::Head(_) | Reading::Held => Eof::BetweenRequests,
            _ => self.queue.last().map_or(Eof::BetweenRequests, Eof::InBody),
        };
        if self.reading != Reading::Ended {
            self.reading = Reading::Closed;
        }
        self.close_last();
        eof
    }

    /// Takes no further requests; those that are out will be answered, the last one with `Connection: close`. True if
    /// none is out, so that the connection can be closed now.
    pub(crate) fn stop(&mut self) -> bool {
        if matches!(self.reading, Reading::Head(_) | Reading::Held) {
            self.reading = Reading::Closed;
        }
        self.close_last();
        self.queue.is_empty()
    }

    /// The exchange of `seq`, `None` when it is over.
    pub(crate) fn exchange(&self, seq: Seq) -> Option<&Exchange> {
        self.queue.get(seq)
    }

    /// Where the answer of `seq` is to be written.
    pub(crate) fn turn(&mut self, seq: Seq) -> Turn<'_, B> {
        self.queue.turn(seq)
    }

    /// True if the body of `seq` is not read to its end: an answer that is complete now also ends the connection, so
    /// its head should say so.
    pub(crate) fn is_unread(&self, seq: Seq) -> bool {
        self.is_in_body() && self.queue.last() == Some(seq)
    }

    /// Whether bytes of a body are still to be read, its last chunk and trailers included.
    pub(crate) fn is_in_body(&self) -> bool {
        !matches!(self.reading, Reading::Closed | Reading::Ended | Reading::Head(_) | Reading::Held)
    }

    /// The body was not read for `pause`, because the program was not ready for it: its clocks stood still.
    pub(crate) fn on_body_resumed(&mut self, pause: Duration, now: Duration) {
        self.since = self.since.saturating_add(nanos(pause)).min(nanos(now));
        self.last = nanos(now);
    }

    /// Whether an interim answer may be written for `seq` now: only to HTTP/1.1, and only before the answer.
    ///
    /// # Errors
    /// - The client has left or the connection ends before this answer: `is_client_gone`.
    /// - The answer was begun.
    pub(crate) fn may_inform(&self, seq: Seq) -> Result<bool, Error> {
        let exchange = self.queue.get(seq).ok_or(Caller::LateReply)?;
        match exchange.state {
            State::Waiting => Ok(exchange.to.version == Version::Http11),
            State::Streaming(_) | State::Done => Err(Caller::ReplyEnded.into()),
        }
    }

    /// The program has written a `100 Continue` for `seq` itself.
    pub(crate) fn on_continued(&mut self, seq: Seq, now: Duration) {
        if self.expect && self.is_unread(seq) {
            self.start_body(now);
        }
    }

    /// Records that the answer of `seq`, which is complete, hands the connection to another protocol: no byte behind
    /// the request is read here any more.
    ///
    /// # Errors
    /// - The client has left, or the connection ends before this answer: `is_client_gone`.
    /// - The request did not offer it, or was not read to its end.
    pub(crate) fn hand_over(&mut self, seq: Seq) -> Result<(), Error> {
        let offered = self.may_hand_over(seq);
        let exchange = self.queue.get_mut(seq).ok_or(Caller::LateReply)?;
        if !offered {
            return Err(Caller::NoUpgrade.into());
        }
        (exchange.state, exchange.hands_over) = (State::Done, true);
        self.reading = Reading::Held;
        Ok(())
    }

    /// Whether `seq` has offered another protocol and nothing behind it was read.
    pub(crate) fn may_hand_over(&self, seq: Seq) -> bool {
        let waits = matches!(self.reading, Reading::Held | Reading::Ended);
        waits && self.upgrade && !self.close && self.queue.last() == Some(seq)
    }

    /// Records that the head of an answer was written.
    ///
    /// A client that waits for `100 Continue` gets none any more: the clock of its body starts.
    ///
    /// # Errors
    /// - The client has left or the connection ends before this answer: `is_client_gone`.
    /// - A head was written before.
    pub(crate) fn start_reply(&mut self, seq: Seq, delivery: Delivery, now: Duration) -> Result<(), Error> {
        let waits = self.expect && self.is_unread(seq);
        let exchange = self.queue.get_mut(seq).ok_or(Caller::LateReply)?;
        if exchange.state != State::Waiting {
            return Err(Caller::ReplyEnded.into());
        }
        exchange.state = State::Streaming(delivery.mode);
        exchange.to.close |= delivery.close;
        if exchange.to.close {
            self.close_after(seq);
        }
        if waits {
            self.start_body(now);
        }
        Ok(())
    }

    /// Counts `len` bytes of body that are about to be written, and tells how they go out.
    ///
    /// # Errors
    /// - The client has left: `is_client_gone`.
    /// - The head is not written or the answer has ended, or it would be longer than its Content-Length. Nothing is
    ///   counted then.
    pub(crate) fn take_body(&mut self, seq: Seq, len: u64) -> Result<Mode, Error> {
        let exchange = self.queue.get_mut(seq).ok_or(Caller::LateReply)?;
        let State::Streaming(mode) = &mut exchange.state else { return Err(Caller::ReplyEnded.into()) };
        if let Mode::Length(left) = mode {
            *left = left.checked_sub(len).ok_or(Caller::BodyTooLong)?;
        }
        Ok(*mode)
    }

    /// Records that an answer is complete; call [`advance`](Conn::advance) next.
    ///
    /// If the body of the request is not read to its end, the connection closes after this answer.
    ///
    /// # Errors
    /// - The client has left: `is_client_gone`.
    /// - The answer had ended before.
    /// - It is shorter than its Content-Length: it is complete all the same, and closing tells the client.
    pub(crate) fn finish(&mut self, seq: Seq) -> Result<(), Error> {
        let unread = self.is_unread(seq);
        let exchange = self.queue.get_mut(seq).ok_or(Caller::LateReply)?;
        let short = match exchange.state {
            State::Done => return Err(Caller::ReplyEnded.into()),
            State::Streaming(Mode::Length(left)) => left > 0,
            State::Streaming(_) | State::Waiting => false,
        };
        exchange.state = State::Done;
        exchange.to.close |= short || unread;
        if unread {
            self.reading = Reading::Closed;
        }
        if exchange.to.close {
            self.close_after(seq);
        }
        if short { Err(Caller::BodyTooShort.into()) } else { Ok(()) }
    }

    /// What the answer of `seq` depends on, if nothing of it is written, no other request is out and its body is read.
    #[inline]
    pub(crate) fn only_waiting(&self, seq: Seq) -> Option<ReplyTo> {
        let exchange = self.queue.only(seq)?;
        (exchange.state == State::Waiting && !self.is_in_body()).then_some(exchange.to)
    }

    /// Records that the answer of [`only_waiting`](Conn::only_waiting) is written as a whole and ends nothing. The idle
    /// clock goes on from when the request was read, until [`on_drained`](Conn::on_drained).
    #[inline]
    pub(crate) fn complete_only(&mut self) {
        self.queue.close_only();
        self.emptied();
    }

    /// Gives an answer up: what was written of it must not look whole, so the connection ends after it.
    pub(crate) fn abandon(&mut self, seq: Seq) {
        if let Some(exchange) = self.queue.get_mut(seq) {
            exchange.state = State::Done;
            exchange.to.close = true;
            self.close_after(seq);
        }
    }

    /// Opens an exchange for an answer to no request: the connection is refused.
    pub(crate) fn refuse(&mut self) -> Seq {
        self.reading = Reading::Closed;
        self.queue.open(ReplyTo { asked: Asked::Other, version: Version::Http11, close: true })
    }

    /// Lets the next answer come forward when the one at the front is complete. Call it until it gives `None`, then
    /// [`next`](Conn::next).
    pub(crate) fn advance(&mut self, now: Duration) -> Option<Advance<B>> {
        let advance = self.queue.advance()?;
        match &advance {
            Advance::HandOver | Advance::Last(_) => self.reading = Reading::Closed,
            Advance::Empty => {
                self.emptied();
                self.on_drained(now);
            }
            Advance::Turn(_) => {}
        }
        Some(advance)
    }

    /// Every request is answered.
    fn emptied(&mut self) {
        self.ahead = 0;
        if self.reading == Reading::Held {
            // The protocol was not changed.
            self.reading = Reading::Head(Scan::default());
        }
    }

    /// Whether a `100 Continue` waits until the answers before it have left.
    pub(crate) fn owes_continue(&self) -> bool {
        self.expect
    }

    /// The exchange whose answer is due on the wire.
    pub(crate) fn front(&self) -> Option<Seq> {
        self.queue.front()
    }

    /// Whether the next byte would begin a request.
    pub(crate) fn is_between_requests(&self) -> bool {
        matches!(self.reading, Reading::Head(_)) && !self.started
    }

    /// What is kept for answers whose turn has not come.
    pub(crate) fn held(&self) -> impl Iterator<Item = &B> {
        self.queue.held()
    }

    /// Requests that are read and not answered.
    pub(crate) fn outstanding(&self) -> usize {
        self.queue.len()
    }

    #[cold]
    fn fail(&mut self, peer: Peer, input: &[u8]) -> Step {
        let in_body = self.is_in_body();
        self.reading = Reading::Closed;
        if peer.status().is_none() {
            return Step::Fail { seq: None, error: peer.into() };
        }
        let seq = if in_body {
            self.close_last();
            self.queue.newest()
        } else {
            // The answer is framed by what was asked even if the rest of the head is refused.
            let line = input.strip_prefix(b"\r\n").unwrap_or(input);
            let asked = if line.starts_with(b"HEAD ") { Asked::Head } else { Asked::Other };
            self.queue.open(ReplyTo { asked, version: Version::Http11, close: true })
        };
        Step::Fail { seq: Some(seq), error: peer.into() }
    }

    /// Makes the last request the last of the connection.
    fn close_last(&mut self) {
        self.close = true;
        if let Some(exchange) = self.queue.last().and_then(|seq| self.queue.get_mut(seq)) {
            exchange.to.close = true;
        }
    }

    /// Reads nothing more that belongs to a later request than `seq`.
    fn close_after(&mut self, seq: Seq) {
        let own_body =
            self.queue.last() == Some(seq) && (self.is_in_body() || self.reading == Reading::Ended);
        self.close = true;
        if !own_body {
            self.reading = Reading::Closed;
        }
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(time.subsec_nanos()))
}
