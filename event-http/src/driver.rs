//! One connection: joins a stream's bytes to the state machine, and the state machine's steps to the program.
//!
//! The only file that knows both `BufferEvent` and `conn`. Nothing is borrowed while the program runs.

use std::cell::{Cell, RefCell};
use std::net::SocketAddrV4;
use std::rc::Rc;
use std::time::Duration;

use event_core::{Address, Buffer, BufferEvent, BufferGuard, Callbacks, Direction, Hold, StreamEvent};

use crate::conn::{Advance, Conn, Eof, Linger, Rules, Seq, State, Step, Turn};
use crate::encode::{self, Automatic, Delivery, Mode, Payload, ReplyHead};
use crate::error::{Caller, Error, Ours};
use crate::head::{Headers, RequestHead};
use crate::server::{Completion, Gone, Hook, Inner, Progress, Request, RoomCallback, guarded};

/// So many requests of one connection are served before the others get their turn.
const REQUESTS_PER_VISIT: usize = 64;

/// A body up to this size is copied behind its head, so that both leave in one piece.
const COPY_BODY: usize = 2048;

/// Above this many unsent bytes an answer has no room, and no further request is read.
const ROOM: usize = 1 << 20;

/// Above this many unsent bytes, those that wait for their turn included, whoever adds more loses the connection. What
/// is given in one piece may be larger: it is in memory already.
const MAX_OUTPUT: usize = 16 << 20;

/// Room for an answer's head as handlers usually write it.
const HEAD_ROOM: usize = 512;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Requests are read and answered.
    Open,
    /// The last answer is written; when it is flushed, the stream closes.
    Closing,
    /// The last answer is written; when it is flushed, lingering begins.
    Flushing,
    /// The write side is shut; input is thrown away for a while.
    Lingering,
    /// It is over: the client left, or the connection was closed.
    Closed,
    /// It is over: the server was freed.
    ServerGone,
}

/// A request of which the body is still to come.
struct Incoming {
    seq: Seq,
    head: Box<RequestHead>,
    body: Buffer,
}

/// The hooks of a connection's requests, oldest first. In a box that most connections never have.
#[derive(Default)]
struct Hooks(Vec<Hook>);

/// The peer's address, small for the usual kind.
enum PeerAddress {
    V4(SocketAddrV4),
    Other(Box<Address>),
}

pub(crate) struct Connection {
    bev: BufferEvent,
    server: Rc<Inner>,
    core: RefCell<Conn<Buffer>>,
    incoming: Cell<Option<Box<Incoming>>>,
    hooks: Cell<Option<Box<Hooks>>>,
    linger: Cell<Option<Box<Linger>>>,
    /// Keeps the loop running while requests are with the program.
    hold: Cell<Option<Hold>>,
    /// Requests and unfinished answers that are with the program.
    lent: Cell<u32>,
    peer: PeerAddress,
    /// Where the server's table has this connection.
    key: Cell<u32>,
    stage: Cell<Stage>,
    /// Inside `pump`: it goes on by itself.
    pumping: Cell<bool>,
    /// Reading waits for an answer to leave.
    paused: Cell<bool>,
    /// What is left of the input waits for the next turn.
    yields: Cell<bool>,
    /// The client has sent its last byte, perhaps behind requests that are still to be read.
    finished: Cell<bool>,
    /// Closing has to wait for input that the peer is still sending.
    lingers: Cell<bool>,
}

// Besides its stream, this is what an idle connection holds.
const _: () = assert!(size_of::<Connection>() <= 192);

/// The stream's end of a connection. Dropped with the stream.
struct Link(Rc<Connection>);

impl Callbacks for Link {
    fn on_read(&mut self, _: &BufferEvent) {
        self.0.pump();
    }

    fn on_write(&mut self, _: &BufferEvent) {
        self.0.drained();
    }

    fn on_event(&mut self, _: &BufferEvent, event: StreamEvent) {
        if event.intersects(StreamEvent::ERROR | StreamEvent::TIMEOUT) {
            self.0.reset();
        } else if event.contains(StreamEvent::EOF) {
            self.0.finished();
        }
    }

    fn on_deadline(&mut self, _: &BufferEvent) {
        self.0.expired();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.0.over(Stage::Closed);
    }
}

impl Connection {
    /// Starts to serve a stream.
    pub(crate) fn start(server: &Rc<Inner>, bev: BufferEvent, peer: Address) -> Option<Rc<Connection>> {
        let now = server.handle.elapsed();
        let peer = match peer {
            Address::Ip(std::net::SocketAddr::V4(address)) => PeerAddress::V4(address),
            other => PeerAddress::Other(Box::new(other)),
        };
        let connection = Rc::new(Connection {
            bev,
            server: server.clone(),
            core: RefCell::new(Conn::new(now)),
            incoming: Cell::new(None),
            hooks: Cell::new(None),
            linger: Cell::new(None),
            hold: Cell::new(None),
            lent: Cell::new(0),
            peer,
            key: Cell::new(u32::MAX),
            stage: Cell::new(Stage::Open),
            pumping: Cell::new(false),
            paused: Cell::new(false),
            yields: Cell::new(false),
            finished: Cell::new(false),
            lingers: Cell::new(false),
        });
        connection.key.set(server.insert(connection.clone())?);
        connection.bev.set_callbacks(Link(connection.clone()));
        if let Err(error) = connection.bev.enable(Direction::READ) {
            log::debug!("a connection could not be served: {error}");
            connection.bev.free();
            return None;
        }
        if connection.bev.pending_input() > 0 {
            // The program has read before it handed the stream over.
            connection.yields.set(connection.bev.trigger(Direction::READ).is_ok());
        }
        connection.arm();
        Some(connection)
    }

    pub(crate) fn peer(&self) -> Address {
        match &self.peer {
            PeerAddress::V4(address) => Address::Ip((*address).into()),
            PeerAddress::Other(address) => (**address).clone(),
        }
    }

    pub(crate) fn server(&self) -> &Rc<Inner> {
        &self.server
    }

    /// A request, or its unfinished answer, goes to the program: that keeps the loop running, while the connection
    /// lives.
    pub(crate) fn lend(&self) {
        let lent = self.lent.get();
        self.lent.set(lent + 1);
        if lent == 0 && self.check().is_ok() {
            self.hold.set(Some(self.server.handle.hold()));
        }
    }

    /// It has come back.
    pub(crate) fn take_back(&self) {
        let lent = self.lent.get().saturating_sub(1);
        self.lent.set(lent);
        if lent == 0 {
            self.hold.set(None);
        }
    }

    /// Unsent bytes that the answer of `seq` adds to: the connection's, and its own that wait for their turn.
    pub(crate) fn pending_output(&self, seq: Seq) -> usize {
        let own = match self.core.borrow_mut().turn(seq) {
            Turn::Later(held) => held.len(),
            Turn::Now | Turn::Gone => 0,
        };
        self.bev.pending_output() + own
    }

    /// Whether the answer of `seq` may go on without only growing memory.
    pub(crate) fn has_room(&self, seq: Seq) -> bool {
        self.check().is_ok() && self.pending_output(seq) <= ROOM
    }

    /// Closes a connection whose client does not read what it was sent, before more is added.
    fn admit(&self) -> Result<(), Error> {
        self.check()?;
        let held: usize = self.core.borrow().held().map(Buffer::len).sum();
        if self.bev.pending_output() + held > MAX_OUTPUT {
            log::debug!("{:?} does not read its answers", self.peer());
            self.close(false);
            return Err(event_core::Error::OutputFull.into());
        }
        Ok(())
    }

    /// Lets the stream take `len` more bytes; how much it may hold is decided by `admit`.
    fn lift_bound(&self, len: usize) {
        if self.bev.pending_output() + len > MAX_OUTPUT {
            self.bev.set_max(Some(MAX_OUTPUT), None);
        }
    }

    fn send(&self, buffer: Buffer) -> Result<(), Error> {
        self.lift_bound(buffer.len());
        Ok(self.bev.write(buffer)?)
    }

    /// Whether answers can still be given.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.stage.get() {
            Stage::Closed => Err(Caller::LateReply.into()),
            Stage::ServerGone => Err(Ours::ServerGone.into()),
            // By the program, which may have kept a handle on a stream that it gave to `serve`.
            _ if self.bev.is_freed() => Err(Caller::LateReply.into()),
            _ => Ok(()),
        }
    }

    /// Whether an answer of `seq` would go nowhere.
    pub(crate) fn is_gone(&self, seq: Seq) -> bool {
        self.check().is_err() || matches!(self.core.borrow_mut().turn(seq), Turn::Gone)
    }

    /// Refuses the client before it has asked anything.
    pub(crate) fn refuse(self: &Rc<Self>, error: &Error) {
        let seq = self.core.borrow_mut().refuse();
        // Its request is on its way, and a reset that answers it could overtake the refusal.
        self.lingers.set(true);
        self.fail(Some(seq), error);
    }

    // Reading.

    /// Serves what is there.
    fn pump(self: &Rc<Self>) {
        match self.stage.get() {
            Stage::Open => {}
            _ => return self.discard(),
        }
        self.pumping.set(true);
        self.yields.set(false);
        let mut input = self.bev.input();
        self.serve(&mut input);
        drop(input);
        self.pumping.set(false);
        if self.stage.get() == Stage::Open && self.finished.get() && !self.reads_on() {
            self.end_of_input();
        }
        self.close_if_ended();
        self.arm();
    }

    /// Whether input that lies here will be read later.
    fn reads_on(&self) -> bool {
        self.paused.get() || self.yields.get()
    }

    fn serve(self: &Rc<Self>, input: &mut BufferGuard) {
        let mut rules = self.server.rules();
        let mut incoming = self.incoming.take();
        let mut fresh: Option<Incoming> = None;
        let mut served = 0;
        while self.stage.get() == Stage::Open && !self.bev.is_freed() {
            if self.bev.pending_output() > ROOM && self.core.borrow().is_between_requests() {
                // More answers would only grow memory; `drained` goes on.
                self.pause();
                break;
            }
            let (consumed, step) = self.next(input, &rules);
            match step {
                Step::Head { seq, head } => {
                    input.drain(consumed);
                    fresh = Some(Incoming { seq, head, body: Buffer::new() });
                }
                Step::Data(range) => {
                    input.drain(range.start);
                    let body = match (&mut fresh, &mut incoming) {
                        (Some(request), _) => &mut request.body,
                        (None, Some(request)) => &mut request.body,
                        (None, None) => return self.free(),
                    };
                    let (len, rest) = (range.len(), consumed - range.end);
                    input.remove_buffer(body, len);
                    input.drain(rest);
                }
                Step::End { seq: ended, trailers } => {
                    input.drain(consumed);
                    let request = fresh.take().or_else(|| incoming.take().map(|boxed| *boxed));
                    let Some(Incoming { seq, head, body }) = request else { return self.free() };
                    debug_assert_eq!(seq, ended, "a request ends before the next begins");
                    self.server.serve(Request::new(self.clone(), seq, head, body, trailers));
                    served += 1;
                    // The handler may have changed them.
                    rules = self.server.rules();
                    if served == REQUESTS_PER_VISIT && !input.is_empty() {
                        // The rest waits a turn.
                        self.yields.set(self.bev.trigger(Direction::READ).is_ok());
                        break;
                    }
                }
                Step::Continue => {
                    input.drain(consumed);
                    let _ = self.bev.write_with(encode::CONTINUE.len(), |out| {
                        out.extend_from_slice(encode::CONTINUE);
                    });
                }
                Step::Fail { seq, error } => {
                    input.drain(consumed);
                    self.lingers.set(true);
                    (fresh, incoming) = (None, None);
                    self.fail(seq, &error);
                    break;
                }
                Step::NeedMore => {
                    input.drain(consumed);
                    let (first, len) = (input.contiguous().len(), input.len());
                    if consumed > 0 && len > 0 {
                        continue;
                    }
                    if first == len {
                        break;
                    }
                    // A head or a line lies across chunks. Doubling keeps the copying linear.
                    input.pullup(len.min((first * 2).max(4096)));
                }
                Step::Paused => {
                    input.drain(consumed);
                    self.pause();
                    break;
                }
                Step::Closed => {
                    // Behind the last request; nothing of it is run.
                    if !input.is_empty() {
                        self.lingers.set(true);
                    }
                    input.clear();
                    break;
                }
            }
        }
        self.incoming.set(fresh.map(Box::new).or(incoming));
    }

    /// Reads nothing until an answer has left.
    fn pause(&self) {
        self.paused.set(true);
        self.bev.disable(Direction::READ);
    }

    /// Reads on in the next turn, on a fresh stack.
    fn resume(&self) {
        self.paused.set(false);
        let _ = self.bev.enable(Direction::READ);
        self.yields.set(self.bev.trigger(Direction::READ).is_ok());
    }

    fn next(&self, input: &Buffer, rules: &Rules) -> (usize, Step) {
        let now = self.server.handle.elapsed();
        self.core.borrow_mut().next(input.contiguous(), now, rules, &mut self.server.heads.borrow_mut())
    }

    /// Answers a request that cannot be read, or closes in silence.
    fn fail(self: &Rc<Self>, seq: Option<Seq>, error: &Error) {
        let (Some(seq), Some(status)) = (seq, error.status()) else {
            self.free();
            return;
        };
        log::debug!("{status} to {:?}: {error}", self.peer());
        let _ = self.reply_error(seq, status, None);
    }

    /// Input after the last answer.
    fn discard(self: &Rc<Self>) {
        let mut input = self.bev.input();
        let len = input.len();
        input.clear();
        drop(input);
        if let Some(mut linger) = self.linger.take() {
            let goes_on = linger.discard(len, self.server.handle.elapsed());
            self.linger.set(Some(linger));
            if !goes_on {
                self.free();
            }
        }
    }

    // Answering.

    /// Appends to the answer of `seq`, wherever that is kept now.
    fn append(&self, seq: Seq, room: usize, f: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        self.check()?;
        match self.core.borrow_mut().turn(seq) {
            Turn::Gone => return Err(Caller::LateReply.into()),
            Turn::Later(held) => {
                let mut bytes = Vec::with_capacity(room);
                f(&mut bytes);
                held.add(&bytes);
                return Ok(());
            }
            Turn::Now => {}
        }
        self.lift_bound(room);
        Ok(self.bev.write_with(room, f)?)
    }

    /// Moves a buffer behind the answer of `seq`.
    fn append_buffer(&self, seq: Seq, mut buffer: Buffer) -> Result<(), Error> {
        self.check()?;
        let held = match self.core.borrow_mut().turn(seq) {
            Turn::Gone => return Err(Caller::LateReply.into()),
            // Taken out: what a small piece is copied from may be dropped, and that is the program's code.
            Turn::Later(held) => Some(std::mem::take(held)),
            Turn::Now => None,
        };
        let Some(mut held) = held else { return self.send(buffer) };
        held.add_buffer(&mut buffer);
        let rest = match self.core.borrow_mut().turn(seq) {
            Turn::Later(place) if place.is_empty() => {
                *place = held;
                return Ok(());
            }
            // What that Drop wrote in the meantime stands behind.
            Turn::Later(place) => Some(std::mem::take(place)),
            Turn::Now => None,
            Turn::Gone => return Err(Caller::LateReply.into()),
        };
        match rest {
            Some(rest) => {
                self.append_buffer(seq, held)?;
                self.append_buffer(seq, rest)
            }
            None => self.send(held),
        }
    }

    /// Writes the head of an answer.
    fn reply_head(&self, seq: Seq, head: &ReplyHead<'_>, payload: Payload) -> Result<Delivery, Error> {
        self.admit()?;
        let to = {
            let core = self.core.borrow();
            let exchange = core.exchange(seq).ok_or(Caller::LateReply)?;
            if exchange.state != State::Waiting {
                return Err(Caller::ReplyEnded.into());
            }
            let mut to = exchange.to;
            to.close |= core.is_unread(seq);
            to
        };
        let content_type = self.server.content_type();
        let mut written = Err(Caller::LateReply.into());
        let room =
            HEAD_ROOM + if let Payload::Whole(len) = payload { COPY_BODY.min(len as usize) } else { 0 };
        self.append(seq, room, |out| {
            self.server.with_date(|date| {
                let automatic = Automatic { date, content_type: content_type.as_deref() };
                written = encode::reply_head(out, to, head, payload, automatic);
            });
        })?;
        let delivery = written?;
        self.core.borrow_mut().start_reply(seq, delivery, self.server.handle.elapsed())?;
        Ok(delivery)
    }

    /// A whole answer.
    pub(crate) fn reply(self: &Rc<Self>, seq: Seq, head: &ReplyHead<'_>, body: Buffer) -> Result<(), Error> {
        let delivery = self.reply_head(seq, head, Payload::Whole(body.len() as u64))?;
        let mut result = Ok(());
        if delivery.mode != Mode::Nothing && !body.is_empty() {
            result = self.body(seq, body, delivery.mode);
        } else {
            drop(body);
        }
        self.finish(seq).and(result)
    }

    /// An error page; the connection ends behind it.
    pub(crate) fn reply_error(
        self: &Rc<Self>,
        seq: Seq,
        status: u16,
        reason: Option<&str>,
    ) -> Result<(), Error> {
        self.check()?;
        let to = {
            let core = self.core.borrow();
            let exchange = core.exchange(seq).ok_or(Caller::LateReply)?;
            match exchange.state {
                State::Waiting => Some(exchange.to),
                _ => None,
            }
        };
        if let Some(to) = to {
            let rules = self.server.rules();
            let allow = (status == 405).then_some(&rules.methods);
            self.append(seq, HEAD_ROOM, |out| {
                self.server.with_date(|date| {
                    encode::error_reply(out, to.asked, status, reason, allow, date);
                });
            })?;
            let delivery = Delivery { mode: Mode::Nothing, close: true };
            self.core.borrow_mut().start_reply(seq, delivery, self.server.handle.elapsed())?;
        }
        self.finish(seq)
    }

    /// Begins an answer in pieces.
    pub(crate) fn reply_start(&self, seq: Seq, head: &ReplyHead<'_>) -> Result<Mode, Error> {
        let mode = self.reply_head(seq, head, Payload::Stream)?.mode;
        self.arm_outside();
        Ok(mode)
    }

    /// A piece of an answer.
    pub(crate) fn chunk(&self, seq: Seq, piece: Buffer) -> Result<(), Error> {
        self.admit()?;
        if piece.is_empty() {
            return Ok(());
        }
        let len = piece.len() as u64;
        let mode = self.core.borrow_mut().take_body(seq, len)?;
        match mode {
            Mode::Nothing => {}
            Mode::Chunked => {
                self.append(seq, 20, |out| encode::chunk_start(out, len))?;
                self.append_buffer(seq, piece)?;
                self.append(seq, 2, |out| out.extend_from_slice(encode::CHUNK_END))?;
            }
            Mode::Length(_) | Mode::UntilClose => self.append_buffer(seq, piece)?,
        }
        self.arm_outside();
        Ok(())
    }

    fn body(&self, seq: Seq, body: Buffer, mode: Mode) -> Result<(), Error> {
        debug_assert!(matches!(mode, Mode::Length(_)), "a whole body has a length");
        self.core.borrow_mut().take_body(seq, body.len() as u64)?;
        if body.len() <= COPY_BODY {
            self.append(seq, body.len(), |out| body.chunks().for_each(|chunk| out.extend_from_slice(chunk)))
        } else {
            self.append_buffer(seq, body)
        }
    }

    /// The answer is complete.
    pub(crate) fn reply_end(self: &Rc<Self>, seq: Seq, trailers: Option<&Headers>) -> Result<(), Error> {
        self.check()?;
        let state = self.core.borrow().exchange(seq).map(|exchange| exchange.state);
        match state {
            Some(State::Streaming(Mode::Chunked)) => {
                self.append(seq, 64, |out| encode::last_chunk(out, trailers))?;
            }
            Some(State::Streaming(_)) => {}
            Some(_) => return Err(Caller::ReplyEnded.into()),
            None => return Err(Caller::LateReply.into()),
        }
        self.finish(seq)
    }

    /// The answer will not be completed: what the client has of it must not look whole.
    pub(crate) fn reply_abandoned(self: &Rc<Self>, seq: Seq) {
        self.core.borrow_mut().abandon(seq);
        self.advance();
    }

    fn finish(self: &Rc<Self>, seq: Seq) -> Result<(), Error> {
        if self.core.borrow().is_unread(seq) {
            self.lingers.set(true);
        }
        let finished = self.core.borrow_mut().finish(seq);
        if finished.is_ok() {
            self.mark(seq, Progress::Pending, Progress::Ended);
        }
        self.advance();
        finished
    }

    /// Lets the next answers come forward.
    fn advance(self: &Rc<Self>) {
        let now = self.server.handle.elapsed();
        loop {
            let (front, advance) = {
                let mut core = self.core.borrow_mut();
                (core.front(), core.advance(now))
            };
            if let (Some(front), Some(_)) = (front, &advance) {
                // Not of one that was cut off.
                self.mark(front, Progress::Ended, Progress::Written);
            }
            match advance {
                None => break,
                Some(Advance::Empty) => {}
                Some(Advance::Turn(held)) => {
                    if !held.is_empty() {
                        let _ = self.send(held);
                    }
                }
                Some(Advance::Last(rest)) => {
                    drop(rest);
                    if self.stage.get() == Stage::Open {
                        self.stage.set(Stage::Closing);
                    }
                    break;
                }
            }
        }
        // The end of an answer may have written nothing, and then `drained` is not told.
        self.settle_hooks();
        if self.pumping.get() {
            return;
        }
        // Outside of `pump`: what waited for this answer goes on in the next turn, on a fresh stack.
        if self.stage.get() == Stage::Open {
            // A client that waits for `100 Continue` behind this answer sends nothing by itself.
            let waits =
                self.paused.get() || self.bev.pending_input() > 0 || self.core.borrow().owes_continue();
            if waits && self.bev.pending_output() <= ROOM {
                self.resume();
            }
        } else {
            self.close_if_ended();
        }
        self.arm();
    }

    /// The last answer is written: close behind it, at once or in stages (RFC 9112 section 9.6).
    fn close_if_ended(self: &Rc<Self>) {
        if self.stage.get() != Stage::Closing {
            return;
        }
        // After a FIN nothing can come that would be answered with a reset.
        let lingers = !self.finished.get() && (self.lingers.get() || self.bev.pending_input() > 0);
        if !lingers || self.bev.enabled().is_empty() {
            self.settle_hooks();
            self.bev.close_after_flush();
            return;
        }
        self.stage.set(Stage::Flushing);
        let _ = self.bev.enable(Direction::READ);
        if self.bev.pending_output() == 0 {
            self.linger();
        }
    }

    fn linger(self: &Rc<Self>) {
        self.stage.set(Stage::Lingering);
        self.bev.shutdown_write();
        let rules = self.server.rules();
        self.linger.set(Some(Box::new(Linger::new(self.server.handle.elapsed(), &rules.limits))));
        self.arm();
    }

    // What the stream tells.

    /// All output has been handed to the kernel.
    fn drained(self: &Rc<Self>) {
        self.run_room_hooks();
        if self.bev.pending_output() > 0 {
            // Only down to the mark of `watch_room`.
            return self.arm();
        }
        let now = self.server.handle.elapsed();
        match self.stage.get() {
            Stage::Open => {
                self.core.borrow_mut().on_drained(now);
                if self.paused.get() {
                    self.resume();
                }
            }
            Stage::Flushing => self.linger(),
            _ => {}
        }
        for hook in self.written_hooks() {
            hook.complete(Completion::Sent);
        }
        if self.finished.get() {
            self.run_gone_hooks(Gone::Finished);
        }
        self.arm();
    }

    /// The client will send no more; it may still read.
    fn finished(self: &Rc<Self>) {
        self.finished.set(true);
        if self.stage.get() != Stage::Open {
            // Lingering has what it waited for; an answer under way is still sent.
            if self.stage.get() == Stage::Lingering {
                self.free();
            } else {
                self.stage.set(Stage::Closing);
                self.close_if_ended();
            }
            return;
        }
        if self.reads_on() {
            self.run_gone_hooks(Gone::Finished);
        } else {
            self.end_of_input();
        }
        self.arm();
    }

    /// All that the client has sent is read.
    fn end_of_input(self: &Rc<Self>) {
        let unfinished = self.incoming.take();
        drop(unfinished);
        let eof = self.core.borrow_mut().on_eof();
        if let Eof::InBody(seq) = eof {
            // Its answer will never be asked for.
            let _ = self.finish(seq);
        }
        if self.core.borrow().outstanding() == 0 {
            self.stage.set(Stage::Closing);
            return self.close_if_ended();
        }
        self.run_gone_hooks(Gone::Finished);
    }

    /// The stream has failed.
    fn reset(self: &Rc<Self>) {
        self.stage.set(Stage::Closed);
        self.run_gone_hooks(Gone::Reset);
        self.free();
    }

    fn expired(self: &Rc<Self>) {
        let now = self.server.handle.elapsed();
        let rules = self.server.rules();
        let output = self.bev.pending_output() > 0;
        if output && self.answer_deadline(&rules).is_some_and(|deadline| deadline <= now) {
            // The client does not read.
            self.reset();
            return;
        }
        if self.stage.get() == Stage::Lingering {
            let linger = self.linger.take();
            let over = linger.as_ref().is_none_or(|l| l.deadline().is_some_and(|deadline| deadline <= now));
            self.linger.set(linger);
            if over {
                return self.free();
            }
        }
        if self.stage.get() == Stage::Open {
            let step = self.core.borrow_mut().on_deadline(now, &rules.limits, output);
            if let Some(Step::Fail { seq, error }) = step {
                self.lingers.set(true);
                let unfinished = self.incoming.take();
                drop(unfinished);
                self.fail(seq, &error);
                self.close_if_ended();
            }
        }
        self.arm();
    }

    /// When the client must have read something of what is written.
    fn answer_deadline(&self, rules: &Rules) -> Option<Duration> {
        let since = self.bev.last_written().saturating_duration_since(self.server.handle.clock_origin());
        rules.limits.answer_timeout.map(|timeout| since.saturating_add(timeout))
    }

    /// Output that is written outside of `pump`, which arms by itself, must be read in time as well.
    fn arm_outside(&self) {
        if !self.pumping.get() {
            self.arm();
        }
    }

    /// Sets the nearest deadline. Law: whenever a connection waits, something will wake it.
    fn arm(&self) {
        let rules = self.server.rules();
        let output = self.bev.pending_output() > 0;
        let mut deadline = match self.stage.get() {
            Stage::Open => self.core.borrow().deadline(&rules.limits, output),
            Stage::Lingering => {
                let linger = self.linger.take();
                let deadline = linger.as_ref().and_then(|linger| linger.deadline());
                self.linger.set(linger);
                deadline
            }
            _ => None,
        };
        if output && let Some(answer) = self.answer_deadline(&rules) {
            deadline = Some(deadline.map_or(answer, |deadline| deadline.min(answer)));
        }
        self.bev.set_deadline(deadline.map(|deadline| self.server.handle.clock_origin() + deadline));
        debug_assert!(
            output || deadline.is_some() || self.is_awaited(),
            "nobody wakes a connection that is {:?}",
            self.stage.get()
        );
    }

    /// Whether a read, the next turn or the program will go on with this connection, or nothing has to.
    fn is_awaited(&self) -> bool {
        let reads = self.bev.enabled().contains(Direction::READ) && !self.finished.get();
        // The stream itself closes behind what it has sent.
        let closes = self.stage.get() == Stage::Closing || self.bev.is_freed();
        reads || closes || self.yields.get() || self.lent.get() > 0
    }

    // The end.

    /// Takes no more requests; closes now if none is out.
    pub(crate) fn stop(self: &Rc<Self>) {
        if self.stage.get() != Stage::Open {
            return;
        }
        if self.core.borrow_mut().stop() {
            self.stage.set(Stage::Closing);
            if !self.pumping.get() {
                self.close_if_ended();
                self.arm();
            }
        }
    }

    /// Frees the stream; what has left before has left.
    fn free(&self) {
        self.settle_hooks();
        self.bev.free();
    }

    /// Closes now.
    pub(crate) fn close(&self, server_gone: bool) {
        self.settle_hooks();
        self.over(if server_gone { Stage::ServerGone } else { Stage::Closed });
        self.free();
    }

    /// The connection has ended; its requests' hooks run in the loop's next turn.
    fn over(&self, stage: Stage) {
        if !matches!(self.stage.get(), Stage::Closed | Stage::ServerGone) {
            self.stage.set(stage);
        }
        let unfinished = self.incoming.take();
        self.hold.set(None);
        let key = self.key.replace(u32::MAX);
        if key != u32::MAX {
            self.server.remove(key);
        }
        let completion = match self.stage.get() {
            Stage::ServerGone => Completion::ServerGone,
            _ => Completion::ClientGone,
        };
        for mut hook in self.hooks.take().into_iter().flat_map(|hooks| hooks.0) {
            // Whoever was to hear of it has heard.
            let unheard = hook.take_gone();
            self.server.queue_hook(hook, completion);
            drop(unheard);
        }
        drop(unfinished);
    }

    // Hooks.

    pub(crate) fn add_hook(&self, hook: Hook) {
        match self.stage.get() {
            Stage::Closed => self.server.queue_hook(hook, Completion::ClientGone),
            Stage::ServerGone => self.server.queue_hook(hook, Completion::ServerGone),
            _ => {
                if hook.is_gone() && self.finished.get() {
                    // Told in the next turn, by `drained`.
                    let _ = self.bev.trigger(Direction::WRITE);
                }
                let mut hooks = self.hooks.take().unwrap_or_default();
                hooks.0.push(hook);
                self.hooks.set(Some(hooks));
            }
        }
    }

    /// The answer of `seq` got on.
    fn mark(&self, seq: Seq, from: Progress, to: Progress) {
        if let Some(mut hooks) = self.hooks.take() {
            let its = hooks.0.iter_mut().filter(|hook| hook.seq == seq && hook.progress == from);
            its.for_each(|hook| hook.progress = to);
            self.hooks.set(Some(hooks));
        }
    }

    /// Takes out the hooks that `wanted` picks.
    fn take_hooks(&self, wanted: impl FnMut(&mut Hook) -> bool) -> Vec<Hook> {
        let Some(mut hooks) = self.hooks.take() else { return Vec::new() };
        let taken = hooks.0.extract_if(.., wanted).collect();
        if !hooks.0.is_empty() {
            self.hooks.set(Some(hooks));
        }
        taken
    }

    /// Takes out the hooks of answers that are written as a whole.
    fn written_hooks(&self) -> Vec<Hook> {
        self.take_hooks(|hook| hook.progress == Progress::Written)
    }

    /// Queues the hooks of answers that have left, if no flush is to come that tells them.
    fn settle_hooks(&self) {
        if self.bev.pending_output() == 0 {
            for hook in self.written_hooks() {
                self.server.queue_hook(hook, Completion::Sent);
            }
        }
    }

    /// Has `cb` called whenever bytes have left and few are unsent, as long as the answer of `seq` goes on.
    pub(crate) fn watch_room(&self, seq: Seq, cb: RoomCallback) {
        self.bev.set_watermark(Direction::WRITE, ROOM / 2, None);
        self.add_hook(Hook::on_room(seq, cb));
    }

    fn run_room_hooks(&self) {
        for mut hook in self.take_hooks(|hook| hook.is_room()) {
            let again = match self.is_streaming(hook.seq) {
                true if self.pending_output(hook.seq) <= ROOM / 2 => hook.call_room(),
                streaming => streaming,
            };
            // The call may have ended the answer.
            if again && self.is_streaming(hook.seq) {
                self.add_hook(hook);
            }
        }
    }

    fn is_streaming(&self, seq: Seq) -> bool {
        self.check().is_ok()
            && self.core.borrow().exchange(seq).is_some_and(|e| matches!(e.state, State::Streaming(_)))
    }

    /// Tells every request that is out that the client has left.
    fn run_gone_hooks(&self, gone: Gone) {
        let Some(mut hooks) = self.hooks.take() else { return };
        let pending = hooks.0.iter_mut().filter(|hook| hook.progress == Progress::Pending);
        let callbacks: Vec<_> = pending
            .filter_map(|hook| {
                if gone == Gone::Reset {
                    hook.raise_flag();
                }
                hook.take_gone()
            })
            .collect();
        self.hooks.set(Some(hooks));
        for callback in callbacks {
            guarded("on_client_gone", || callback(gone));
        }
    }
}
