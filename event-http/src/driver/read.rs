//! From bytes to requests: runs the state machine over the input and hands whole requests on.

use std::rc::Rc;

use event_core::{Buffer, BufferGuard, Direction};

use super::{Connection, Incoming, Stage, Taker};
use crate::conn::{Rules, Seq, Step, Whole};
use crate::encode::{self, ErrorReply};
use crate::error::Error;
use crate::head::RequestHead;
use crate::server::Request;

/// So many requests of one connection are served before the others get their turn.
const REQUESTS_PER_VISIT: usize = 64;

/// How far the short way went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    /// All that is there is answered.
    All,
    /// The rest is not for now.
    Enough,
    /// The rest goes the long way.
    Some,
}

impl Connection {
    /// Serves what is there.
    pub(super) fn pump(self: &Rc<Self>) {
        match self.stage.get() {
            Stage::Open => {}
            Stage::Upgrading => return self.hand_over(),
            _ => return self.discard(),
        }
        self.pumping.set(true);
        self.yields.set(false);
        let so_far = {
            let mut input = self.bev.input();
            let mut served = 0;
            let so_far = self.serve_plain(&mut input, &mut served);
            if so_far == Served::Some {
                self.serve(&mut input, served);
            }
            so_far
        };
        self.pumping.set(false);
        if so_far == Served::All && self.rests() {
            return;
        }
        if self.stage.get() == Stage::Open
            && !self.reads_on()
            && !self.bev.enabled().contains(Direction::READ)
        {
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

    /// Serves requests the short way: those that lie here whole, are plain, and are nobody's but their handler's. Nothing
    /// is begun that is not ended here.
    fn serve_plain(self: &Rc<Self>, input: &mut Buffer, served: &mut usize) -> Served {
        while self.stage.get() == Stage::Open && !self.bev.is_freed() {
            if self.has_extra() || self.server.asks_first() || self.server.is_early() {
                return Served::Some;
            }
            let Some((seq, head)) = self.next_whole(input) else { return Served::Some };
            self.server.serve(Request::plain(self.clone(), seq, head));
            *served += 1;
            if self.is_visit_over(seq, *served, input) {
                return Served::Enough;
            }
            if input.is_empty() && self.core.borrow().outstanding() == 0 {
                return Served::All;
            }
        }
        Served::Enough
    }

    /// When all that was read is answered the short way: whether that is all. False if there is more to see to.
    #[inline]
    fn rests(&self) -> bool {
        if self.stage.get() != Stage::Open
            || self.reads_on()
            || self.finished.get()
            || self.has_extra()
            || !self.bev.enabled().contains(Direction::READ)
            || !self.has_near_deadline()
        {
            return false;
        }
        // `drained` would find nothing to do, unless not all is sent: then it sets the deadline for the rest.
        self.bev.leave_unattended();
        true
    }

    fn serve(self: &Rc<Self>, input: &mut BufferGuard, mut served: usize) {
        let mut rules = self.server.rules();
        let mut incoming = self.take_incoming();
        while self.stage.get() == Stage::Open && !self.bev.is_freed() {
            let mut max_body = rules.limits.max_body_bytes;
            match &incoming {
                None if self.must_not_begin(input, &rules) => break,
                None | Some(Incoming { taker: Taker::Head(_), .. }) => {}
                Some(request) if self.waits_for_program(request) => break,
                Some(Incoming { taker: Taker::Early(early), .. }) if early.ended.is_some() => {
                    let Some(request) = incoming.take() else { break };
                    self.end_of_body(request);
                    self.server.renew(&mut rules);
                    continue;
                }
                Some(Incoming { taker: Taker::Early(early), .. }) => {
                    max_body = early.state.as_ref().map_or(max_body, |state| state.max(max_body));
                }
            }
            let (consumed, step) = self.next(input, &rules, max_body);
            match step {
                Step::Head { seq, head } => {
                    input.drain(consumed);
                    self.asked.set(false);
                    if self.server.is_early() {
                        incoming = self.hand_out(seq, head);
                        self.server.renew(&mut rules);
                    } else {
                        incoming = Some(Incoming { seq, taker: Taker::Head(head), body: Buffer::new() });
                    }
                }
                Step::Data(range) => {
                    input.drain(range.start);
                    let Some(request) = &mut incoming else { return self.free() };
                    let (len, rest) = (range.len(), consumed - range.end);
                    input.remove_buffer(&mut request.body, len);
                    input.drain(rest);
                    if !matches!(request.taker, Taker::Head(_)) {
                        incoming = incoming.and_then(|request| self.deliver_large(request));
                    }
                }
                Step::End { seq: ended, trailers } => {
                    input.drain(consumed);
                    let Some(mut request) = incoming.take() else { return self.free() };
                    debug_assert_eq!(request.seq, ended, "a request ends before the next begins");
                    match request.taker {
                        Taker::Head(head) => {
                            self.server.serve(Request::new(
                                self.clone(),
                                ended,
                                head,
                                request.body,
                                trailers,
                            ));
                        }
                        Taker::Early(ref mut early) => {
                            early.ended = Some(trailers);
                            incoming = self.deliver(request, 1);
                        }
                    }
                    served += 1;
                    // The handler may have changed them.
                    self.server.renew(&mut rules);
                    if self.is_visit_over(ended, served, input) {
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
                    self.fail(seq, &error);
                    super::body::fail(incoming.take(), error);
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
                        let len = input.len();
                        input.clear();
                        self.count_junk(len);
                    }
                    break;
                }
            }
        }
        if let Some(request) = incoming
            && let Some(request) = self.deliver(request, 1)
        {
            self.keep(request);
        }
    }

    /// A request was handed to the program; says whether the others get their turn now.
    #[inline]
    fn is_visit_over(&self, seq: Seq, served: usize, input: &Buffer) -> bool {
        if self.server.times_handlers() {
            self.note_handed(seq);
        }
        served >= REQUESTS_PER_VISIT && self.leave_rest(input)
    }

    #[cold]
    fn leave_rest(&self, input: &Buffer) -> bool {
        if input.is_empty() {
            return false;
        }
        // The rest waits a turn, and more is read only behind it: a client that sends faster than it is served would fill
        // the input.
        self.bev.disable(Direction::READ);
        self.yields.set(self.bev.trigger(Direction::READ).is_ok());
        true
    }

    /// A request that lies here whole and is plain, if there is room for its answer.
    #[inline]
    fn next_whole(&self, input: &mut Buffer) -> Option<(Seq, Box<RequestHead>)> {
        let pending = self.bev.pending_output();
        let now = self.server.handle.elapsed_nanos();
        let Whole { seq, mut head, body } = self.server.with_rules(|rules| {
            if pending > rules.limits.room {
                return None;
            }
            let mut heads = self.server.heads.borrow_mut();
            self.core.borrow_mut().next_whole(input.contiguous(), now, rules, &mut heads)
        })?;
        input.drain(head.headers.bytes.len());
        if body > 0 {
            input.remove_buffer(&mut head.body, body);
        }
        self.asked.set(false);
        Some((seq, head))
    }

    /// Whether the next request is not to be begun now.
    fn must_not_begin(self: &Rc<Self>, input: &Buffer, rules: &Rules) -> bool {
        let full = self.bev.pending_output() > rules.limits.room;
        if !(full || self.server.asks_first()) || !self.core.borrow().is_between_requests() {
            return false;
        }
        if full {
            // More answers would only grow memory; `drained` goes on.
            self.pause();
        }
        full || !(input.is_empty() || self.ask_first())
    }

    /// Asks the program whether it wants a request before a byte of it is read.
    fn ask_first(self: &Rc<Self>) -> bool {
        if self.asked.get() || self.server.may_begin(&self.peer()) {
            self.asked.set(true);
            return self.stage.get() == Stage::Open;
        }
        // What is out is still answered.
        if self.core.borrow_mut().stop() {
            match self.bev.pending_output() {
                0 => self.free(),
                _ => self.stage.set(Stage::Closing),
            }
        }
        false
    }

    /// Reads nothing until an answer has left.
    pub(super) fn pause(&self) {
        self.paused.set(true);
        self.bev.disable(Direction::READ);
    }

    /// Goes on in the next turn, on a fresh stack, with what lies here; more is read behind it.
    pub(super) fn resume(&self) {
        if self.has_read_junk() {
            // The lingering close goes on.
            return;
        }
        self.paused.set(false);
        self.yields.set(self.bev.trigger(Direction::READ).is_ok());
    }

    pub(super) fn next(&self, input: &Buffer, rules: &Rules, max_body: Option<u64>) -> (usize, Step) {
        let now = self.server.handle.elapsed();
        let mut heads = self.server.heads.borrow_mut();
        self.core.borrow_mut().next_within(input.contiguous(), now, rules, max_body, &mut heads)
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
        if self.stage.get() == Stage::Flushing {
            return self.bound_junk(len);
        }
        let now = self.server.handle.elapsed();
        let goes_on = self.extra(|extra| extra.linger.as_mut().is_none_or(|l| l.discard(len, now)));
        if !goes_on {
            self.free();
        }
    }

    /// Counts input while the last answer is on its way. To close would cut that off, so what is too much stays with the
    /// client until lingering begins.
    fn bound_junk(&self, len: usize) {
        let most = self.server.with_limits(|limits| limits.max_linger_bytes);
        let is_over = self.extra(|extra| {
            extra.junk = extra.junk.saturating_add(len);
            most.is_some_and(|most| extra.junk as u64 >= most)
        });
        if is_over {
            self.bev.disable(Direction::READ);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use event_core::LoopFlags;
    use event_core::testing::Sim;

    use super::*;
    use crate::server::Server;

    #[test]
    fn clients_of_every_kind_of_address_are_served_the_short_way() {
        for address in ["127.0.0.1:80", "[::1]:80"] {
            let sim = Sim::new(1);
            let mut base = sim.event_base().unwrap();
            let http = Server::new(&base).unwrap();
            let seen = Rc::new(RefCell::new(None));
            let keep = seen.clone();
            http.set_gencb(move |req| {
                let connection = req.connection().clone();
                assert_eq!(req.peer(), connection.bev.peer_address().unwrap());
                keep.replace(Some(connection));
                req.send_reply(200, "OK", "body")
            });
            let bound = http.bind(address).unwrap();
            let client = sim.connect(&bound.local_address().unwrap()).unwrap();
            client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            base.run(LoopFlags::NONBLOCK).unwrap();
            base.run(LoopFlags::NONBLOCK).unwrap();
            let connection = seen.take().unwrap();
            let mut input = Buffer::from("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let mut served = 0;
            assert_eq!(connection.serve_plain(&mut input, &mut served), Served::All, "{address}");
            assert_eq!((served, input.len()), (1, 0));
            assert!(connection.rests(), "{address}");
        }
    }

    #[test]
    fn a_body_that_lies_whole_behind_its_head_is_taken_with_it() {
        let sim = Sim::new(1);
        let mut base = sim.event_base().unwrap();
        let http = Server::new(&base).unwrap();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let keep = seen.clone();
        http.set_gencb(move |mut req| {
            let body = req.take_body();
            keep.borrow_mut().push((req.connection().clone(), body));
            req.send_reply(200, "OK", "body")
        });
        let bound = http.bind("127.0.0.1:80").unwrap();
        let client = sim.connect(&bound.local_address().unwrap()).unwrap();
        client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        base.run(LoopFlags::NONBLOCK).unwrap();
        base.run(LoopFlags::NONBLOCK).unwrap();
        let (connection, _) = seen.borrow_mut().remove(0);
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
        let mut served = 0;
        let mut input = Buffer::from(format!("{post}first{post}other{post}rest"));
        assert_eq!(
            connection.serve_plain(&mut input, &mut served),
            Served::Some,
            "the last one is not whole"
        );
        assert_eq!((served, input), (2, Buffer::from(format!("{post}rest"))));
        let bodies: Vec<_> = seen.borrow().iter().map(|(_, body)| body.to_vec()).collect();
        assert_eq!(bodies, [b"first", b"other"]);
    }
}
