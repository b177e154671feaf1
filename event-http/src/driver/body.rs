//! Requests that are handed out before their bodies, and where those bodies go.

use std::rc::Rc;

use event_core::Buffer;

use super::{Connection, Early, Incoming, Stage, Taker};
use crate::conn::Seq;
use crate::error::{Caller, Error};
use crate::head::{Headers, RequestHead};
use crate::server::{BodyDue, BodyState, Completion, Request};

/// So much of a body is gathered before it goes to its callback, however small its chunks are.
const PIECE: usize = 64 << 10;

/// Junk behind the last request that is read and thrown away while an answer to it is still out. Beyond it nothing is
/// read: what a client sends there must cost it more than us.
const MAX_JUNK: usize = 64 << 10;

impl Connection {
    /// Hands a request out whose body is still to come.
    pub(super) fn hand_out(self: &Rc<Self>, seq: Seq, head: Box<RequestHead>) -> Option<Incoming> {
        let request = Request::new(self.clone(), seq, head, Buffer::new(), Headers::new());
        // In its place: the program may say in the call what it wants of the body, or end the connection.
        let incoming = Incoming { seq, taker: Taker::Early(Box::default()), body: Buffer::new() };
        self.extra(|extra| extra.incoming = Some(incoming));
        let held = self.server.serve_early(request);
        let Some(mut incoming) = self.take_incoming() else {
            drop(held);
            return None;
        };
        if let Some(request) = held.filter(|request| request.is(self, seq)) {
            incoming.early()?.state = Some(BodyState::held(request));
        }
        Some(incoming)
    }

    /// Whether the body of a request waits for the program, so that it must not be read on.
    pub(super) fn waits_for_program(&self, incoming: &Incoming) -> bool {
        let Taker::Early(early) = &incoming.taker else { return false };
        let core = self.core.borrow();
        match &early.state {
            None => core.is_unread(incoming.seq),
            // Once it is answered nobody has to say anything any more.
            Some(state) => {
                let is_there = early.ended.is_some() || core.is_unread(incoming.seq);
                state.is_paused() && is_there && core.exchange(incoming.seq).is_some()
            }
        }
    }

    /// Gives what was gathered to the callback. The program may pause, end the connection or anything else.
    pub(super) fn deliver(self: &Rc<Self>, mut incoming: Incoming, at_least: usize) -> Option<Incoming> {
        let state = incoming.early().and_then(|early| early.state.clone());
        let Some(state) = state.filter(|state| !state.is_held() && incoming.body.len() >= at_least) else {
            return Some(incoming);
        };
        let piece = incoming.body.take_all();
        self.extra(|extra| extra.incoming = Some(incoming));
        state.data(piece);
        let mut incoming = self.take_incoming()?;
        let early = incoming.early()?;
        if state.is_over() && early.state.as_ref().is_some_and(|now| Rc::ptr_eq(now, &state)) {
            // It panicked.
            early.state = None;
        }
        Some(incoming)
    }

    pub(super) fn deliver_large(self: &Rc<Self>, incoming: Incoming) -> Option<Incoming> {
        self.deliver(incoming, PIECE)
    }

    /// The request is whole, and what came of its body was handed on.
    pub(super) fn end_of_body(self: &Rc<Self>, incoming: Incoming) {
        let Incoming { taker: Taker::Early(early), body, .. } = incoming else { return };
        let Early { state: Some(state), ended, .. } = *early else { return };
        let trailers = ended.unwrap_or_default();
        if !state.is_held() {
            return state.end(trailers);
        }
        if let Some(mut request) = state.take_request() {
            request.set_body(body, trailers);
            self.server.serve(request);
        }
    }

    /// Where the body of `seq` goes from now on; false if it is not awaited any more.
    pub(crate) fn stream_body(self: &Rc<Self>, seq: Seq, state: &Rc<BodyState>) -> bool {
        let taken = self.with_early(seq, |early| early.state.replace(state.clone()));
        let is_taken = taken.is_some();
        if let Some(old) = taken.flatten() {
            old.close();
        }
        if is_taken {
            // The program's time begins when the body is whole.
            self.forget_handed(seq);
            self.resume_body(seq);
        }
        is_taken
    }

    /// The program wants more of the body of `seq`.
    pub(crate) fn resume_body(self: &Rc<Self>, seq: Seq) {
        let now = self.server.handle.elapsed();
        let since = self.with_early(seq, |early| early.waits.take()).flatten();
        let Some(since) = since.filter(|_| self.stage.get() == Stage::Open) else { return };
        self.core.borrow_mut().on_body_resumed(now.saturating_sub(since), now);
        self.resume();
        self.arm();
    }

    /// Whether the clocks of the body stand still, because the program is not ready for it.
    #[inline]
    pub(super) fn body_waits(&self) -> bool {
        self.paused.get() && self.early_waits()
    }

    fn early_waits(&self) -> bool {
        self.extra(|extra| {
            extra.incoming.as_mut().and_then(Incoming::early).is_some_and(|early| early.waits.is_some())
        })
    }

    /// Looks at the request of `seq`, if its body is still to come and it was handed out. `f` is ours.
    fn with_early<T>(&self, seq: Seq, f: impl FnOnce(&mut Early) -> T) -> Option<T> {
        self.extra(|extra| {
            let incoming = extra.incoming.as_mut().filter(|incoming| incoming.seq == seq);
            incoming.and_then(Incoming::early).map(f)
        })
    }

    /// Keeps a request for which the program or more bytes are awaited.
    pub(super) fn keep(&self, mut incoming: Incoming) {
        if self.waits_for_program(&incoming)
            && let Some(early) = incoming.early()
        {
            early.waits.get_or_insert_with(|| self.server.handle.elapsed());
            if early.state.is_none() && self.server.times_handlers() {
                self.note_handed(incoming.seq);
            }
            self.pause();
        }
        self.extra(|extra| extra.incoming = Some(incoming));
    }

    /// The connection reads no bodies any more: the answer of `last` was the last one. Nothing is called here.
    pub(super) fn end_unread_body(&self, last: Option<Seq>) {
        let Some(incoming) = self.take_incoming() else { return };
        let seq = incoming.seq;
        let Some(state) = incoming.into_state() else { return };
        if last == Some(seq) {
            // It has answered without the rest.
            return state.close();
        }
        let due = BodyDue(state);
        self.server.queue_call(move || due.fail(Completion::ClientGone));
    }

    /// Counts what came behind the last request and was thrown away.
    pub(super) fn count_junk(&self, len: usize) {
        self.lingers.set(true);
        self.extra(|extra| extra.junk = extra.junk.saturating_add(len));
        if self.has_read_junk() {
            self.pause();
        }
    }

    /// Whether so much of it came that no more is read while an answer is out.
    pub(super) fn has_read_junk(&self) -> bool {
        self.extra(|extra| extra.junk > MAX_JUNK)
    }
}

/// Tells whoever streams the body that no more of it comes.
pub(super) fn fail(incoming: Option<Incoming>, error: Error) {
    if let Some(state) = incoming.and_then(Incoming::into_state) {
        state.fail(error);
    }
}

/// As `fail`, for a client that has left.
pub(super) fn cut_off(incoming: Option<Incoming>) {
    fail(incoming, Caller::LateReply.into());
}
