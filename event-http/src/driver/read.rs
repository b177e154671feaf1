//! From bytes to requests: runs the state machine over the input and hands whole requests on.

use std::rc::Rc;

use event_core::{Buffer, BufferGuard, Direction};

use super::{Connection, Incoming, ROOM, Stage};
use crate::conn::{Rules, Seq, Step};
use crate::encode::{self, ErrorReply};
use crate::error::Error;
use crate::server::Request;

/// So many requests of one connection are served before the others get their turn.
const REQUESTS_PER_VISIT: usize = 64;

impl Connection {
    /// Serves what is there.
    pub(super) fn pump(self: &Rc<Self>) {
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
        if self.stage.get() == Stage::Open && !self.reads_on() {
            let _ = self.bev.enable(Direction::READ);
        }
        if self.stage.get() == Stage::Open && self.finished.get() && !self.reads_on() {
            self.end_of_input();
        }
        self.close_if_ended();
        self.arm();
    }

    /// Whether input that lies here will be read later.
    pub(super) fn reads_on(&self) -> bool {
        self.paused.get() || self.yields.get()
    }

    pub(super) fn serve(self: &Rc<Self>, input: &mut BufferGuard) {
        let mut rules = self.server.rules();
        let mut incoming = self.take_incoming();
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
                    let request = fresh.take().or_else(|| incoming.take());
                    let Some(Incoming { seq, head, body }) = request else { return self.free() };
                    debug_assert_eq!(seq, ended, "a request ends before the next begins");
                    self.server.serve(Request::new(self.clone(), seq, head, body, trailers));
                    served += 1;
                    // The handler may have changed them.
                    rules = self.server.rules();
                    if served == REQUESTS_PER_VISIT && !input.is_empty() {
                        // The rest waits a turn, and more is read only behind it: a client that sends faster than it is
                        // served would fill the input.
                        self.bev.disable(Direction::READ);
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
        if let Some(request) = fresh.or(incoming) {
            self.extra(|extra| extra.incoming = Some(request));
        }
    }

    /// Reads nothing until an answer has left.
    pub(super) fn pause(&self) {
        self.paused.set(true);
        self.bev.disable(Direction::READ);
    }

    /// Goes on in the next turn, on a fresh stack, with what lies here; more is read behind it.
    pub(super) fn resume(&self) {
        self.paused.set(false);
        self.yields.set(self.bev.trigger(Direction::READ).is_ok());
    }

    pub(super) fn next(&self, input: &Buffer, rules: &Rules) -> (usize, Step) {
        let now = self.server.handle.elapsed();
        self.core.borrow_mut().next(input.contiguous(), now, rules, &mut self.server.heads.borrow_mut())
    }

    /// Answers a request that cannot be read, or closes in silence.
    pub(super) fn fail(self: &Rc<Self>, seq: Option<Seq>, error: &Error) {
        let (Some(seq), Some(status)) = (seq, error.status()) else {
            self.free();
            return;
        };
        log::debug!("{status} to {:?}: {error}", self.peer());
        let _ = self.reply_error(seq, &ErrorReply::of(status));
    }

    /// Input after the last answer.
    pub(super) fn discard(self: &Rc<Self>) {
        let mut input = self.bev.input();
        let len = input.len();
        input.clear();
        drop(input);
        let now = self.server.handle.elapsed();
        let goes_on = self.extra(|extra| extra.linger.as_mut().is_none_or(|l| l.discard(len, now)));
        if !goes_on {
            self.free();
        }
    }
}
