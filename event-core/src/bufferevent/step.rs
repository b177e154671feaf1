//! What the loop does with a stream: read, call back, write, and tell what else happened.

use std::io::{self, IoSlice};
use std::rc::Rc;

use super::files::load;
use super::inner::{Due, Inner, State};
use super::rare::Cause;
use super::{BufferEvent, Callbacks, StreamEvent};
use crate::buffer::Buffer;
use crate::clock::Time;
use crate::interest::Ready;
use crate::reactor::{LoopHandle, Source};

/// A read that fills its block is repeated at most so often in one visit, so that one sender cannot hold the loop.
const READS_PER_VISIT: usize = 4;

/// A visit writes at most so much before the others get their turn.
pub(super) const BYTES_PER_VISIT: usize = 1 << 20;

/// How often in one visit a write callback may answer room with more output.
const REFILLS_PER_VISIT: usize = 16;

/// How many pieces one `sendmsg` takes.
const PIECES: usize = 64;

/// Marks the time in which output is flushed by the step itself.
struct InStep<'a>(&'a Inner);

impl<'a> InStep<'a> {
    fn enter(inner: &'a Inner) -> InStep<'a> {
        inner.set(State::IN_STEP, true);
        InStep(inner)
    }
}

impl Drop for InStep<'_> {
    fn drop(&mut self) {
        self.0.set(State::IN_STEP, false);
    }
}

impl Source for Inner {
    fn ready(self: Rc<Self>, handle: &LoopHandle, ready: Ready) {
        if self.is_freed() {
            return;
        }
        let step = InStep::enter(&self);
        let mut due = self.due.replace(Due::empty());
        if self.has(State::CONNECTING) {
            if ready.intersects(Ready::READ | Ready::WRITE | Ready::CLOSED) {
                due |= self.finish_connect();
            }
        } else {
            let (mut reads, mut writes) =
                (ready.intersects(Ready::READ | Ready::CLOSED), ready.contains(Ready::WRITE));
            if self.has(State::TRANSPORT) {
                // Either may be what either direction waits for, and it may hold bytes that its fd tells nothing of.
                let any = reads || writes;
                (reads, writes) = (any || due.contains(Due::AGAIN), any);
                due.remove(Due::AGAIN);
            }
            if reads {
                due |= if self.may_read() { self.fill() } else { self.look_for_hangup(ready) };
            }
            if writes {
                self.set(State::BLOCKED, false);
                due |= self.nudge_transport();
                due |= self.drain_out();
            }
        }
        if due.contains(Due::ARRIVED) {
            due.remove(Due::ARRIVED);
            // Somebody may have taken it since.
            let len = self.peek_len(&self.input);
            due.set(Due::READ, due.contains(Due::READ) || len >= self.rare(0, |rare| rare.read_low).max(1));
        }
        if ready.contains(Ready::TIMEOUT) {
            due |= self.expired(self.handle.cached_now());
        }
        if !due.is_empty() {
            handle.note_progress();
        }
        self.deliver(due);
        if !self.is_freed() {
            self.settle_input();
        }
        drop(step);
        self.check_input_full();
        self.after_step();
    }

    fn flush(self: Rc<Self>) -> usize {
        self.set(State::UNFLUSHED, false);
        if self.is_freed() {
            return 0;
        }
        let before = self.peek_len(&self.output);
        // In a step, so that what the Drop of a sent block writes is seen below.
        let step = InStep::enter(&self);
        let due = self.drain_out();
        drop(step);
        let after = self.peek_len(&self.output);
        // Callbacks run on a fresh stack, in the next turn.
        self.raise_rest(due);
        self.after_step();
        before.saturating_sub(after)
    }

    fn deadline(&self) -> Time {
        self.true_deadline()
    }

    fn lost(self: Rc<Self>) {
        // The number may be another file's by now: it is not ours to close.
        self.fd.set(-1);
        self.set(State::OWNS_FD | State::READ_ENABLED | State::WRITE_ENABLED | State::CONNECTING, false);
        self.fail(Cause::Lost, Due::ERROR);
        self.update();
    }

    fn teardown(self: Rc<Self>) {
        self.free();
    }
}

impl Inner {
    fn finish_connect(&self) -> Due {
        match self.handle.sys().take_error(self.fd.get()) {
            Ok(None) => {
                self.set(State::CONNECTING, false);
                // What was written before has waited for the connection, not for the peer.
                self.touch_write();
                Due::CONNECTED
            }
            Ok(Some(error)) | Err(error) => {
                self.set(State::CONNECTING | State::READ_ENABLED | State::WRITE_ENABLED, false);
                self.rare_mut(|rare| rare.cause = Some(Cause::of(&error)));
                Due::ERROR
            }
        }
    }

    /// Reads into the input.
    fn fill(&self) -> Due {
        let mut due = Due::empty();
        let mut input = self.borrow(&self.input);
        let mut left = {
            let most = self.rare(super::rare::DEFAULT_MAX, |rare| rare.read_high.min(rare.max_input));
            most.saturating_sub(input.len())
        };
        let before = input.len();
        let mut more = false;
        for _ in 0..READS_PER_VISIT {
            if left == 0 {
                break;
            }
            match self.read_once(&mut input, left) {
                Ok((0, _)) => {
                    self.set(State::EOF, true);
                    due |= Due::READ_EOF;
                    break;
                }
                Ok((n, filled)) => {
                    left -= n.min(left);
                    more = filled;
                    if !filled {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    more = false;
                    break;
                }
                Err(error) => {
                    self.set(State::READ_ENABLED, false);
                    self.rare_mut(|rare| rare.cause = Some(Cause::of(&error)));
                    due |= Due::READ_ERROR;
                    break;
                }
            }
        }
        let len = input.len();
        drop(input);
        if more && self.has(State::TRANSPORT) {
            // The visit stopped before the transport did, and what that holds makes no fd readable.
            self.raise(Due::AGAIN);
        }
        if len > before {
            self.handle.note_progress();
            self.touch_read();
            if len >= self.rare(0, |rare| rare.read_low) {
                due |= Due::READ;
            }
        }
        due
    }

    /// One read of at most `max` bytes: how many came, and whether there may be more.
    fn read_once(&self, input: &mut Buffer, max: usize) -> io::Result<(usize, bool)> {
        if self.has(State::TRANSPORT) {
            let n = self.with_transport(|transport| transport.poll_read(input, max))?;
            return Ok((n, n > 0));
        }
        let mut block = self.handle.pool().take_read();
        let max = max.min(block.capacity());
        let read = self.handle.sys().recv(self.fd.get(), &self.kind, &mut block, max);
        match read {
            Ok(n) if n > 0 => {
                input.push_block(block);
                Ok((n, n == max))
            }
            other => {
                self.handle.pool().give(block);
                other.map(|n| (n, false))
            }
        }
    }

    /// The fd has hung up while nothing is read: a reset is told at once, an end only to who reads.
    fn look_for_hangup(&self, ready: Ready) -> Due {
        if !ready.contains(Ready::CLOSED) || self.fd.get() < 0 {
            return Due::empty();
        }
        match self.handle.sys().take_error(self.fd.get()) {
            Ok(Some(error)) => {
                self.set(State::READ_ENABLED, false);
                self.rare_mut(|rare| rare.cause = Some(Cause::of(&error)));
                Due::READ_ERROR
            }
            _ => Due::empty(),
        }
    }

    /// Sends the output until it is empty or the kernel takes no more.
    fn drain_out(self: &Rc<Self>) -> Due {
        if !self.may_write() {
            return Due::empty();
        }
        let mut due = Due::empty();
        let mut output = self.borrow(&self.output);
        let mut sent = 0;
        // Asked each time: what is sent drops, and the owner of referenced memory may free or disable this.
        while !output.is_empty() && sent < BYTES_PER_VISIT && self.may_write() {
            let offered = output.len();
            match self.write_once(&mut output) {
                Ok((n, all)) => {
                    sent += n;
                    if !all {
                        self.set(State::BLOCKED, n < offered);
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.set(State::BLOCKED, true);
                    break;
                }
                Err(error) => {
                    self.set(State::WRITE_ENABLED, false);
                    self.rare_mut(|rare| rare.cause = Some(Cause::of(&error)));
                    due |= Due::WRITE_ERROR;
                    break;
                }
            }
        }
        drop(output);
        if sent > 0 {
            self.touch_write();
            if self.has(State::OVERFULL) {
                self.set(State::OVERFULL, self.over_full());
            }
            if self.peek_len(&self.output) <= self.rare(0, |rare| rare.write_low) {
                due |= Due::WRITE;
            }
        }
        due
    }

    /// Lets a transport go on with what it does on its own account when there is no output that would.
    fn nudge_transport(&self) -> Due {
        if !self.has(State::TRANSPORT) || self.is_freed() || self.peek_len(&self.output) > 0 {
            return Due::empty();
        }
        match self.with_transport(|transport| transport.poll_write(&mut Buffer::new(), 0)) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                self.set(State::WRITE_ENABLED, false);
                self.rare_mut(|rare| rare.cause = Some(Cause::of(&error)));
                Due::WRITE_ERROR
            }
            _ => Due::empty(),
        }
    }

    /// One write: how much was taken, and whether that was all that was offered.
    fn write_once(self: &Rc<Self>, output: &mut Buffer) -> io::Result<(usize, bool)> {
        if self.has(State::PAIR) {
            return self.give_partner(output);
        }
        if self.has(State::TRANSPORT) {
            let most = load(output, BYTES_PER_VISIT)?;
            let n = self.with_transport(|transport| transport.poll_write(output, most))?;
            return Ok((n, n > 0));
        }
        if let Some(done) = self.send_file(output)? {
            return Ok(done);
        }
        let sys = self.handle.sys();
        let first = output.contiguous();
        let (n, offered) = if first.len() == output.len() {
            (sys.send(self.fd.get(), &self.kind, first)?, first.len())
        } else {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = output.memory_slices(BYTES_PER_VISIT, &mut pieces);
            let offered = pieces[..count].iter().map(|piece| piece.len()).sum();
            (sys.sendv(self.fd.get(), &self.kind, &pieces[..count])?, offered)
        };
        output.drain_to_pool(n, self.handle.pool());
        Ok((n, n == offered))
    }

    /// Calls back for everything that is due, in order, and flushes after each.
    fn deliver(self: &Rc<Self>, mut due: Due) {
        if due.contains(Due::CONNECTED) {
            self.call_event(StreamEvent::CONNECTED);
            due |= self.drain_out();
        }
        if due.contains(Due::READ) && !self.is_freed() {
            self.call_read();
            due |= self.drain_out();
        }
        let mut refills = 0;
        while due.contains(Due::WRITE) && !self.is_freed() && refills < REFILLS_PER_VISIT {
            due.remove(Due::WRITE);
            refills += 1;
            self.call_write();
            due |= self.drain_out();
        }
        if due.contains(Due::DEADLINE) && !self.is_freed() {
            self.call_deadline();
            due |= self.drain_out();
        }
        let events = events(due);
        let mut rest = due & Due::WRITE;
        if !events.is_empty() && !self.is_freed() {
            let failed = due.intersects(Due::READ_ERROR | Due::WRITE_ERROR | Due::ERROR);
            if failed && self.has(State::CLOSE_AFTER_FLUSH) {
                // Nobody waits for an answer any more.
                self.free();
                return;
            }
            self.call_event(events);
            rest |= self.drain_out();
            if due.contains(Due::WRITE_TIMEOUT) && !self.has(State::WRITE_ENABLED) && self.is_closing() {
                self.free();
            }
        }
        self.raise_rest(rest);
    }

    /// Sees to it that somebody wakes this stream next, or that it ends.
    fn after_step(self: &Rc<Self>) {
        self.finish_if_flushed();
        if self.is_freed() {
            return;
        }
        if self.may_write() && !self.has(State::BLOCKED) && self.peek_len(&self.output) > 0 {
            // The visit's budget is used up, or something was written behind the last flush.
            self.push_unflushed();
        }
        if self.may_read() {
            self.ask_partner();
        }
        self.update();
        debug_assert!(self.is_freed() || self.is_woken(), "nothing would send the output");
    }

    /// Whether output that may be sent will be: on readiness, from the flush list, or when the other end of a pair asks.
    fn is_woken(&self) -> bool {
        let waits = self.may_write() && self.peek_len(&self.output) > 0;
        !waits || self.has(State::BLOCKED | State::UNFLUSHED) || self.handle.check().is_err()
    }

    /// What a last flush brought about runs in the next turn.
    fn raise_rest(&self, due: Due) {
        if !due.is_empty() && !self.is_freed() {
            self.raise(due);
        }
    }

    /// What is left in a big block moves into memory of its own size, and the block goes back to the loop.
    fn settle_input(&self) {
        self.borrow(&self.input).settle(self.handle.pool());
    }

    // Calling out. The callback is on loan: whatever it does to this stream, it is put back only if the stream lives,
    // has no other by then, and its callbacks were not taken away.

    fn call(self: &Rc<Self>, f: impl FnOnce(&mut dyn Callbacks, &BufferEvent)) -> bool {
        let Some(mut callbacks) = self.callbacks.take() else { return false };
        let bev = BufferEvent { inner: self.clone() };
        self.set(State::LENT, true);
        f(&mut *callbacks, &bev);
        if self.has(State::LENT) && !self.is_freed() && !self.has_closures() {
            self.callbacks.set(Some(callbacks));
        } else {
            drop(callbacks);
        }
        true
    }

    fn has_closures(&self) -> bool {
        self.rare(false, |rare| rare.read_cb.is_some() || rare.write_cb.is_some() || rare.event_cb.is_some())
    }

    fn call_read(self: &Rc<Self>) {
        if self.call(|callbacks, bev| callbacks.on_read(bev)) {
            return;
        }
        let cb = self.rare_if(|rare| rare.read_cb.take()).flatten();
        let Some(mut cb) = cb else { return };
        self.set(State::LENT, true);
        cb(&BufferEvent { inner: self.clone() });
        self.put_back_closure(cb, |rare| &mut rare.read_cb);
    }

    fn call_write(self: &Rc<Self>) {
        if self.call(|callbacks, bev| callbacks.on_write(bev)) {
            return;
        }
        let cb = self.rare_if(|rare| rare.write_cb.take()).flatten();
        let Some(mut cb) = cb else { return };
        self.set(State::LENT, true);
        cb(&BufferEvent { inner: self.clone() });
        self.put_back_closure(cb, |rare| &mut rare.write_cb);
    }

    fn call_event(self: &Rc<Self>, event: StreamEvent) {
        if self.call(|callbacks, bev| callbacks.on_event(bev, event)) {
            return;
        }
        let cb = self.rare_if(|rare| rare.event_cb.take()).flatten();
        match cb {
            Some(mut cb) => {
                self.set(State::LENT, true);
                cb(&BufferEvent { inner: self.clone() }, event);
                self.put_back_closure(cb, |rare| &mut rare.event_cb);
            }
            // Nobody handles it.
            None if !event.contains(StreamEvent::CONNECTED) => self.free(),
            None => {}
        }
    }

    fn call_deadline(self: &Rc<Self>) {
        self.call(|callbacks, bev| callbacks.on_deadline(bev));
    }

    fn put_back_closure<T>(&self, cb: T, place: impl FnOnce(&mut super::rare::Rare) -> &mut Option<T>) {
        let unwanted = if self.is_freed() || !self.has(State::LENT) {
            Some(cb)
        } else {
            self.rare_mut(|rare| {
                let place = place(rare);
                if place.is_some() { Some(cb) } else { place.replace(cb) }
            })
        };
        drop(unwanted);
    }
}

/// The event bits of what is due.
fn events(due: Due) -> StreamEvent {
    let mut events = StreamEvent::empty();
    let pairs = [
        (Due::READ_EOF, StreamEvent::EOF | StreamEvent::READING),
        (Due::READ_ERROR, StreamEvent::ERROR | StreamEvent::READING),
        (Due::WRITE_ERROR, StreamEvent::ERROR | StreamEvent::WRITING),
        (Due::ERROR, StreamEvent::ERROR),
        (Due::READ_TIMEOUT, StreamEvent::TIMEOUT | StreamEvent::READING),
        (Due::WRITE_TIMEOUT, StreamEvent::TIMEOUT | StreamEvent::WRITING),
    ];
    for (bit, event) in pairs {
        if due.contains(bit) {
            events |= event;
        }
    }
    events
}
