//! From answers to bytes: heads, bodies and chunks, in the order of the requests, and how much may be unsent.

use std::rc::Rc;

use event_core::Buffer;

use super::{Connection, Stage};
use crate::conn::{Advance, Seq, State, Turn};
use crate::encode::{self, Automatic, Delivery, ErrorReply, Mode, Payload, ReplyHead};
use crate::error::{Caller, Error};
use crate::head::Headers;
use crate::server::{ErrorDue, Progress};

/// What a stream may hold at first. Ours may hold more: `admit` bounds it.
pub(super) const STREAM_MAX: usize = 16 << 20;

/// A body up to this size is copied behind its head, so that both leave in one piece.
const COPY_BODY: usize = 2048;

/// Room for an answer's head as handlers usually write it.
pub(super) const HEAD_ROOM: usize = 512;

impl Connection {
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
        self.check().is_ok() && self.pending_output(seq) <= self.room()
    }

    /// Unsent bytes above which there is no room.
    pub(super) fn room(&self) -> usize {
        self.server.with_limits(|limits| limits.room)
    }

    /// Closes a connection whose client does not read what it was sent, before more is added.
    pub(super) fn admit(&self) -> Result<(), Error> {
        self.check()?;
        let held: usize = self.core.borrow().held().map(Buffer::len).sum();
        let max = self.server.with_limits(|limits| limits.max_output_bytes);
        if max.is_some_and(|max| self.bev.pending_output() + held > max) {
            log::debug!("{:?} does not read its answers", self.peer());
            self.close(false);
            return Err(event_core::Error::OutputFull.into());
        }
        Ok(())
    }

    /// Whether `len` more bytes are within every bound.
    #[inline]
    fn takes_at_once(&self, len: usize) -> bool {
        let pending = self.bev.pending_output();
        let most = || self.server.with_limits(|limits| limits.max_output_bytes.unwrap_or(STREAM_MAX));
        pending == 0 || pending <= most().min(STREAM_MAX - len)
    }

    /// Lets the stream take `len` more bytes; how much it may hold is decided by `admit`.
    pub(super) fn lift_bound(&self, len: usize) {
        if self.bev.pending_output() + len > STREAM_MAX {
            self.bev.set_max(Some(STREAM_MAX), None);
        }
    }

    pub(super) fn send(&self, buffer: Buffer) -> Result<(), Error> {
        self.lift_bound(buffer.len());
        Ok(self.bev.write(buffer)?)
    }

    /// Appends to the answer of `seq`, wherever that is kept now.
    pub(super) fn append(&self, seq: Seq, room: usize, f: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
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
    pub(super) fn append_buffer(&self, seq: Seq, mut buffer: Buffer) -> Result<(), Error> {
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

    /// Writes the head of an answer, and behind it `body` if the answer has one on the wire.
    pub(super) fn reply_head(
        &self,
        seq: Seq,
        head: &ReplyHead<'_>,
        payload: Payload,
        body: Option<&Buffer>,
    ) -> Result<Delivery, Error> {
        self.admit()?;
        let to = {
            let core = self.core.borrow();
            let exchange = core.exchange(seq).ok_or(Caller::LateReply)?;
            if exchange.state != State::Waiting {
                return Err(Caller::ReplyEnded.into());
            }
            exchange.to
        };
        let mut written = Err(Caller::LateReply.into());
        let room =
            HEAD_ROOM + if let Payload::Whole(len) = payload { COPY_BODY.min(len as usize) } else { 0 };
        self.append(seq, room, |out| {
            self.server.with_date(|date| {
                self.server.with_content_type(|content_type| {
                    let automatic = Automatic { date, content_type };
                    written = encode::reply_head(out, to, head, payload, automatic);
                });
            });
            if let (Ok(delivery), Some(body)) = (&written, body)
                && delivery.mode != Mode::Nothing
            {
                body.chunks().for_each(|chunk| out.extend_from_slice(chunk));
            }
        })?;
        let delivery = written?;
        self.core.borrow_mut().start_reply(seq, delivery, self.server.handle.elapsed())?;
        Ok(delivery)
    }

    /// A whole answer.
    pub(crate) fn reply(
        self: &Rc<Self>,
        seq: Seq,
        head: &ReplyHead<'_>,
        mut body: Buffer,
    ) -> Result<(), Error> {
        if let Some(sent) = self.reply_plain(seq, head, &body) {
            return sent;
        }
        let len = body.len() as u64;
        // A small file is read. If it cannot be, that ends the connection behind what is sent before it.
        let small = body.len() <= COPY_BODY && body.load(usize::MAX).is_ok();
        let delivery = self.reply_head(seq, head, Payload::Whole(len), small.then_some(&body))?;
        let mut result = Ok(());
        if let Mode::Length(_) = delivery.mode {
            self.core.borrow_mut().take_body(seq, len)?;
            if !small {
                result = self.append_buffer(seq, body);
            }
        }
        self.finish(seq).and(result)
    }

    /// The short way of an answer: a small one, in one piece, to the only request that is out, where nobody is to be told of
    /// anything. `None`, and nothing has changed, if it does not go.
    #[inline]
    fn reply_plain(
        self: &Rc<Self>,
        seq: Seq,
        head: &ReplyHead<'_>,
        body: &Buffer,
    ) -> Option<Result<(), Error>> {
        let len = body.len();
        if len > COPY_BODY || self.stage.get() != Stage::Open || self.has_extra() {
            return None;
        }
        let content = body.contiguous();
        let to = self.core.borrow().only_waiting(seq)?;
        let room = HEAD_ROOM + len;
        if content.len() != len || self.bev.is_freed() || !self.takes_at_once(room) {
            return None;
        }
        let mut written = false;
        let result = self.bev.write_with(room, |out| {
            written = self.server.plain_reply(out, to, head, content);
        });
        if !written {
            return None;
        }
        if let Err(error) = result {
            return Some(Err(error.into()));
        }
        if to.close {
            return Some(self.end_plain(seq));
        }
        self.core.borrow_mut().complete_only();
        if !self.pumping.get() {
            self.core.borrow_mut().on_drained(self.server.handle.elapsed());
            self.advanced();
        }
        Some(Ok(()))
    }

    /// The rest of `reply_plain` for the last answer of a connection: all of it is written.
    fn end_plain(self: &Rc<Self>, seq: Seq) -> Result<(), Error> {
        let delivery = Delivery { mode: Mode::Nothing, close: true };
        self.core.borrow_mut().start_reply(seq, delivery, self.server.handle.elapsed())?;
        self.finish(seq)
    }

    /// An error page; the connection ends behind it. The program may write the page, on a fresh stack.
    pub(crate) fn reply_error(self: &Rc<Self>, seq: Seq, error: &ErrorReply<'_>) -> Result<(), Error> {
        let rules = self.server.rules();
        let allow = error.allow.or((error.status == 405).then_some(&rules.methods));
        let error = ErrorReply { allow, ..*error };
        if self.server.error_page.is_set() && self.awaits(seq, State::Waiting) {
            let due = ErrorDue::new(self, seq, &error);
            self.server.queue_call(move || due.run());
            return Ok(());
        }
        self.reply_error_now(seq, &error)
    }

    /// Whether the answer of `seq` can be given and is in that state.
    pub(crate) fn awaits(&self, seq: Seq, state: State) -> bool {
        self.check().is_ok()
            && self.core.borrow().exchange(seq).is_some_and(|exchange| exchange.state == state)
    }

    /// The standard error page.
    pub(crate) fn reply_error_now(self: &Rc<Self>, seq: Seq, error: &ErrorReply<'_>) -> Result<(), Error> {
        self.check()?;
        let to = {
            let core = self.core.borrow();
            let exchange = core.exchange(seq).ok_or(Caller::LateReply)?;
            match exchange.state {
                State::Waiting => Some(exchange.to),
                State::Streaming(_) => None,
                State::Done => return Err(Caller::ReplyEnded.into()),
            }
        };
        let Some(to) = to else {
            self.reply_abandoned(seq);
            return Ok(());
        };
        self.append(seq, HEAD_ROOM, |out| {
            self.server.with_date(|date| encode::error_reply(out, to.asked, error, date));
        })?;
        let delivery = Delivery { mode: Mode::Nothing, close: true };
        self.core.borrow_mut().start_reply(seq, delivery, self.server.handle.elapsed())?;
        self.finish(seq)
    }

    /// Begins an answer in pieces.
    pub(crate) fn reply_start(&self, seq: Seq, head: &ReplyHead<'_>) -> Result<Mode, Error> {
        let mode = self.reply_head(seq, head, Payload::Stream, None)?.mode;
        self.arm_outside();
        Ok(mode)
    }

    /// A piece of an answer.
    pub(crate) fn chunk(&self, seq: Seq, mut piece: Buffer) -> Result<(), Error> {
        self.admit()?;
        if piece.is_empty() {
            return Ok(());
        }
        let len = piece.len() as u64;
        let mode = self.core.borrow_mut().take_body(seq, len)?;
        match mode {
            Mode::Nothing => {}
            Mode::Chunked if piece.len() <= COPY_BODY && piece.load(usize::MAX).is_ok() => {
                self.append(seq, piece.len() + 20, |out| {
                    encode::chunk_start(out, len);
                    piece.chunks().for_each(|chunk| out.extend_from_slice(chunk));
                    out.extend_from_slice(encode::CHUNK_END);
                })?;
            }
            Mode::Chunked => {
                // Framed before it is appended: moving the piece may drop a block of the program's, which may write.
                let mut framed = Vec::with_capacity(20);
                encode::chunk_start(&mut framed, len);
                let mut framed = Buffer::from(framed);
                framed.add_buffer(&mut piece);
                framed.add(encode::CHUNK_END);
                self.append_buffer(seq, framed)?;
            }
            Mode::Length(_) | Mode::UntilClose => self.append_buffer(seq, piece)?,
        }
        self.arm_outside();
        Ok(())
    }

    /// The answer is complete.
    pub(crate) fn reply_end(self: &Rc<Self>, seq: Seq, trailers: Option<&Headers>) -> Result<(), Error> {
        self.check()?;
        let state = self.core.borrow().exchange(seq).map(|exchange| exchange.state);
        match state {
            Some(State::Streaming(Mode::Chunked)) => {
                let end = self.append(seq, 64, |out| encode::last_chunk(out, trailers));
                if end.is_err() {
                    // The stream took it and fails for it, as its bound is the program's; nobody else ends this.
                    self.reply_abandoned(seq);
                    return end;
                }
            }
            Some(State::Streaming(_)) => {}
            Some(_) => return Err(Caller::ReplyEnded.into()),
            None => return Err(Caller::LateReply.into()),
        }
        self.finish(seq)
    }

    /// The answer will not be completed: what the client has of it must not look whole.
    pub(crate) fn reply_abandoned(self: &Rc<Self>, seq: Seq) {
        {
            let mut core = self.core.borrow_mut();
            let state = core.exchange(seq).map(|exchange| exchange.state);
            // Without a length and without chunks the end of the connection is the end of the answer.
            self.cut.set(self.cut.get() || matches!(state, Some(State::Streaming(Mode::UntilClose))));
            core.abandon(seq);
        }
        self.advance();
    }

    pub(super) fn finish(self: &Rc<Self>, seq: Seq) -> Result<(), Error> {
        let finished = self.core.borrow_mut().finish(seq);
        if finished.as_ref().is_err_and(|error| !error.is_client_gone() && error.status().is_some()) {
            log::warn!(
                "an answer to {:?} is shorter than its content-length; the connection closes",
                self.peer()
            );
        }
        if finished.is_ok() {
            self.mark(seq, Progress::Pending, Progress::Ended);
        }
        self.advance();
        finished
    }

    /// Lets the next answers come forward.
    pub(super) fn advance(self: &Rc<Self>) {
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
                Some(Advance::HandOver) => {
                    self.begin_hand_over();
                    break;
                }
                Some(Advance::Turn(held)) => {
                    if !held.is_empty() {
                        let _ = self.send(held);
                    }
                }
                Some(Advance::Last(rest)) => {
                    drop(rest);
                    self.end_unread_body(front);
                    if self.stage.get() == Stage::Open {
                        self.stage.set(Stage::Closing);
                    }
                    break;
                }
            }
        }
        // The end of an answer may have written nothing, and then `drained` is not told.
        self.settle_hooks();
        if !self.pumping.get() {
            self.advanced();
        }
    }

    /// Answers have come forward outside of `pump`.
    fn advanced(self: &Rc<Self>) {
        // Outside of `pump`: what waited for this answer goes on in the next turn, on a fresh stack.
        if self.stage.get() == Stage::Open {
            // A client that waits for `100 Continue` behind this answer sends nothing by itself.
            let waits =
                self.paused.get() || self.bev.pending_input() > 0 || self.core.borrow().owes_continue();
            if waits && self.bev.pending_output() <= self.room() {
                self.resume();
            }
        } else {
            self.close_if_ended();
        }
        self.arm();
    }
}
