//! What the loop does with a stream: read, call back, write, and tell what else happened.

use std::io::{self, IoSlice};
use std::rc::Rc;

use super::StreamEvent;
use super::buffers::{Side, forget_bare};
use super::files::load;
use super::inner::Inner;
use super::limits::{BYTES_PER_VISIT, READS_PER_VISIT};
use super::rare::Cause;
use super::state::{Due, State};
use crate::buffer::{Buffer, READ_BLOCK};
use crate::clock::Time;
use crate::error::{ConnectError, ConnectPhase};
use crate::interest::Ready;
use crate::reactor::{LoopHandle, Source};

/// How often in one visit a write callback may answer room with more output.
const REFILLS_PER_VISIT: usize = 16;

/// How many pieces one `sendmsg` takes.
const PIECES: usize = 64;

/// With any of these there is more to sending than to hand one piece of memory to the kernel.
const LONG_WAY: State = State::RARE
    .union(State::PAIR)
    .union(State::TRANSPORT)
    .union(State::OUTPUT_OUT)
    .union(State::OVERFULL)
    .union(State::NO_ROOM);

/// Marks the time in which output is flushed by the step itself.
pub(super) struct InStep<'a> {
    inner: &'a Inner,
    was: bool,
}

impl<'a> InStep<'a> {
    pub(super) fn enter(inner: &'a Inner) -> InStep<'a> {
        let was = inner.has(State::IN_STEP);
        inner.set(State::IN_STEP, true);
        InStep { inner, was }
    }
}

impl Drop for InStep<'_> {
    fn drop(&mut self) {
        self.inner.set(State::IN_STEP, self.was);
    }
}

impl Source for Inner {
    fn ready(self: Rc<Self>, handle: &LoopHandle, ready: Ready) {
        if self.is_freed() {
            return;
        }
        if ready == Ready::READ && self.is_resting() && self.due.get().is_empty() {
            return self.read_resting();
        }
        let step = InStep::enter(&self);
        let mut due = self.due.replace(Due::empty());
        if self.has(State::CONNECTING) {
            if ready.intersects(Ready::READ | Ready::WRITE | Ready::CLOSED) {
                due |= self.finish_connect();
            }
        } else if self.has(State::FILTER) {
            self.refill_filtered(&mut due);
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
                due |= if self.may_read() { self.fill(None) } else { self.look_for_hangup(ready) };
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
            let len = self.len(Side::Input);
            due.set(Due::READ, due.contains(Due::READ) || len >= self.rare(0, |rare| rare.read_low).max(1));
        }
        if ready.contains(Ready::TIMEOUT) {
            due |= self.expired(self.handle.cached_now());
            self.refill_limits();
        }
        if !due.is_empty() {
            handle.note_progress();
        }
        self.deliver(due);
        self.end_step(step);
        if ready.contains(Ready::TIMEOUT) && !self.is_freed() {
            // Fired early, or for one deadline of several.
            self.rearm();
        }
    }

    fn flush(self: Rc<Self>) -> usize {
        self.set(State::UNFLUSHED, false);
        if self.is_freed() {
            return 0;
        }
        let before = self.len(Side::Output);
        // In a step, so that what the Drop of a sent block writes is seen below.
        let step = InStep::enter(&self);
        let due = self.drain_out();
        drop(step);
        let after = self.len(Side::Output);
        if self.has(State::UNDER_FILTER) && (after < before || self.has(State::FILTER)) {
            // There may be room for what waits above, or that was the last of it: a filter may have held some back.
            self.raise(Due::WRITE);
        }
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
        self.set(State::DETACHED, true);
        self.fail(Cause::Lost, Due::ERROR);
        self.update();
    }

    fn refused(self: Rc<Self>, errno: i32) {
        self.set(State::READ_ENABLED | State::WRITE_ENABLED | State::CONNECTING | State::REGISTERED, false);
        self.fail(Cause::Errno(errno), Due::ERROR);
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
                let error = ConnectError::new(ConnectPhase::Connect, error);
                self.set_cause(Cause::Connect(error));
                Due::ERROR
            }
        }
    }

    /// The step of a stream that rests: it has no input and no output, and its fd is readable.
    fn read_resting(self: &Rc<Self>) {
        let step = InStep::enter(self);
        let mut block = self.handle.pool().take_read();
        let max = block.capacity();
        let mut due = Due::empty();
        match self.handle.sys().recv(self.fd.get(), &self.kind, &mut block, max) {
            Ok(n) if n > 0 && n < max => {
                self.put_block(Side::Input, block);
                self.handle.note_progress();
                self.call_read();
                self.called(&mut due);
            }
            read => {
                due = self.fill(Some((block, read)));
                if !due.is_empty() {
                    self.handle.note_progress();
                }
            }
        }
        if !due.is_empty() || self.has(State::COUNTS_CHANGES) {
            self.deliver(due);
        }
        self.end_step(step);
    }

    /// What every step ends with.
    #[inline]
    pub(super) fn end_step(self: &Rc<Self>, step: InStep<'_>) {
        if !self.is_freed() {
            self.settle_input();
        }
        drop(step);
        if self.is_resting() {
            return;
        }
        self.check_input_full();
        self.after_step();
    }

    /// Reads into the input. The first read may be made already: a block with what it brought.
    fn fill(self: &Rc<Self>, mut made: Option<(Vec<u8>, io::Result<usize>)>) -> Due {
        let mut due = Due::empty();
        let mut input = self.borrow(Side::Input);
        let before = input.len();
        let mut left = self.room_beside(before);
        if self.has(State::LIMITED) {
            left = left.min(self.quota(Side::Input));
        }
        let mut more = false;
        for _ in 0..READS_PER_VISIT {
            if left == 0 {
                break;
            }
            let read = match made.take() {
                Some((block, read)) => self.take_in(&mut input, block, READ_BLOCK, read),
                None => self.read_once(&mut input, left),
            };
            match read {
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
                    self.set_cause(Cause::of(&error));
                    due |= Due::READ_ERROR;
                    break;
                }
            }
        }
        let len = input.len();
        drop(input);
        if self.has(State::LIMITED) {
            self.charge(Side::Input, len.saturating_sub(before), left == 0);
        }
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
        self.take_in(input, block, max, read)
    }

    /// What came of a read of at most `max` bytes into a block of the pool.
    fn take_in(
        &self,
        input: &mut Buffer,
        block: Vec<u8>,
        max: usize,
        read: io::Result<usize>,
    ) -> io::Result<(usize, bool)> {
        match read {
            Ok(n) if n > 0 => {
                input.push_block(block);
                Ok((n, n >= max))
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
                self.set_cause(Cause::of(&error));
                Due::READ_ERROR
            }
            _ => Due::empty(),
        }
    }

    /// Sends the output until it is empty or the kernel takes no more.
    pub(super) fn drain_out(self: &Rc<Self>) -> Due {
        if !self.may_write() {
            return Due::empty();
        }
        if self.has(State::FILTER) {
            return self.drain_filtered();
        }
        if !self.has_output() {
            return Due::empty();
        }
        if self.has(LONG_WAY) { self.drain_any() } else { self.send_plain() }
    }

    /// Sends output that lies in memory of its own, in one piece, with one call: nothing of anybody's drops.
    fn send_plain(self: &Rc<Self>) -> Due {
        let mut output = self.take(Side::Output);
        if let Some(piece) = output.only_own()
            && piece.len() <= BYTES_PER_VISIT
        {
            let offered = piece.len();
            let sent = self.handle.sys().send(self.fd.get(), &self.kind, piece);
            if !matches!(sent, Ok(n) if n == offered) {
                return self.sent_less(output, sent);
            }
            output.give_only_own(self.handle.pool());
            forget_bare(output);
            self.touch_write();
            return Due::WRITE;
        }
        self.put(Side::Output, output);
        self.drain_any()
    }

    #[cold]
    fn sent_less(&self, mut output: Buffer, sent: io::Result<usize>) -> Due {
        output.drain_to_pool(*sent.as_ref().unwrap_or(&0), self.handle.pool());
        self.put(Side::Output, output);
        match sent {
            Ok(n) => {
                self.set(State::BLOCKED, true);
                if n > 0 {
                    self.touch_write();
                }
                Due::empty()
            }
            Err(error) => self.write_failed(&error),
        }
    }

    fn write_failed(&self, error: &io::Error) -> Due {
        if error.kind() == io::ErrorKind::WouldBlock {
            self.set(State::BLOCKED, true);
            return Due::empty();
        }
        self.set(State::WRITE_ENABLED, false);
        self.set_cause(Cause::of(error));
        Due::WRITE_ERROR
    }

    fn drain_any(self: &Rc<Self>) -> Due {
        let mut due = Due::empty();
        let mut budget = self.write_budget_of(self.len(Side::Output));
        if self.has(State::LIMITED) {
            budget = budget.min(self.quota(Side::Output));
        }
        let mut output = self.borrow(Side::Output);
        let mut sent = 0;
        // Asked each time: what is sent drops, and the owner of referenced memory may free or disable this.
        while !output.is_empty() && sent < budget && self.may_write() {
            let offered = output.len().min(budget - sent);
            match self.write_once(&mut output, budget - sent) {
                Ok((n, all)) => {
                    sent += n;
                    if !all {
                        self.set(State::BLOCKED, n < offered);
                        break;
                    }
                }
                Err(error) => {
                    due |= self.write_failed(&error);
                    break;
                }
            }
        }
        drop(output);
        if self.has(State::LIMITED) {
            self.charge(Side::Output, sent, sent >= budget && self.has_output());
        }
        if sent > 0 {
            self.touch_write();
            if self.has(State::OVERFULL) {
                self.set(State::OVERFULL, self.is_over_full(self.len(Side::Output)));
            }
            let left = self.len(Side::Output);
            if left <= self.rare(0, |rare| rare.write_low) {
                due |= Due::WRITE;
            }
            if self.has(State::NO_ROOM) && self.finds_room(left) {
                due |= Due::ROOM;
            }
        }
        due
    }

    /// Lets a transport go on with what it does on its own account when there is no output that would.
    fn nudge_transport(&self) -> Due {
        if !self.has(State::TRANSPORT) || self.is_freed() || self.has_output() {
            return Due::empty();
        }
        match self.with_transport(|transport| transport.poll_write(&mut Buffer::new(), 0)) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                self.set(State::WRITE_ENABLED, false);
                self.set_cause(Cause::of(&error));
                Due::WRITE_ERROR
            }
            _ => Due::empty(),
        }
    }

    /// One write: how much was taken, and whether that was all that was offered.
    fn write_once(self: &Rc<Self>, output: &mut Buffer, max: usize) -> io::Result<(usize, bool)> {
        if self.has(State::PAIR) {
            return self.give_partner(output, max);
        }
        if self.has(State::TRANSPORT) {
            let most = load(output, max)?;
            let n = self.with_transport(|transport| transport.poll_write(output, most))?;
            return Ok((n, n > 0));
        }
        if let Some(done) = self.send_file(output, max)? {
            return Ok(done);
        }
        let sys = self.handle.sys();
        let first = output.contiguous();
        let (n, offered) = if first.len() == output.len() || first.len() >= max {
            let first = &first[..first.len().min(max)];
            (sys.send(self.fd.get(), &self.kind, first)?, first.len())
        } else {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = output.memory_slices(max, &mut pieces);
            let offered = pieces[..count].iter().map(|piece| piece.len()).sum();
            (sys.sendv(self.fd.get(), &self.kind, &pieces[..count])?, offered)
        };
        output.drain_to_pool(n, self.handle.pool());
        Ok((n, n == offered))
    }

    /// A callback has returned: what was due of an fd that it has replaced is void, and what it wrote is sent.
    fn called(self: &Rc<Self>, due: &mut Due) {
        self.forget_replaced(due);
        let sent = self.drain_out();
        if !self.has(State::UNATTENDED) {
            *due |= sent;
            return;
        }
        self.set(State::UNATTENDED, false);
        if sent != Due::WRITE || !self.is_flushed() {
            *due |= sent;
            self.attend(sent, due);
        }
    }

    /// Tells at once of output that was left unattended and did not leave, unless something else is to be told of it. What
    /// the kernel has just refused is not offered again.
    #[cold]
    fn attend(self: &Rc<Self>, sent: Due, due: &mut Due) {
        if !sent.is_empty() || self.is_freed() || self.is_flushed() {
            return;
        }
        self.call_write();
        self.set(State::UNATTENDED, false);
        self.forget_replaced(due);
        if !self.has(State::BLOCKED) {
            *due |= self.drain_out();
        }
    }

    #[inline]
    fn forget_replaced(&self, due: &mut Due) {
        if self.has(State::REPLACED) {
            self.set(State::REPLACED, false);
            *due -= Due::OF_FD;
        }
    }

    /// Calls back for everything that is due, in order, and flushes after each.
    #[inline(never)]
    pub(super) fn deliver(self: &Rc<Self>, mut due: Due) {
        self.set(State::REPLACED, false);
        if self.has(State::UNDER_FILTER) {
            return self.hand_up(due);
        }
        if due.contains(Due::CONNECTED) {
            self.call_event(StreamEvent::CONNECTED);
            self.called(&mut due);
        }
        if due.contains(Due::READ) && !self.is_freed() {
            self.call_read();
            due.remove(Due::READ);
            self.called(&mut due);
        }
        let mut refills = 0;
        while due.contains(Due::WRITE) && !self.is_freed() && refills < REFILLS_PER_VISIT {
            due.remove(Due::WRITE);
            refills += 1;
            self.call_write();
            self.called(&mut due);
        }
        if due.is_empty() && !self.has(State::COUNTS_CHANGES) {
            return;
        }
        if due.contains(Due::ROOM) && !self.is_freed() {
            due.remove(Due::ROOM);
            self.call_room();
            self.called(&mut due);
        }
        if due.contains(Due::DEADLINE) && !self.is_freed() {
            self.call_deadline();
            self.called(&mut due);
        }
        if !self.is_freed() && self.call_changes() {
            self.called(&mut due);
        }
        let mut events = events(due);
        if due.contains(Due::TRIGGERED) {
            events |= self.rare_if(|rare| std::mem::take(&mut rare.triggered)).unwrap_or_default();
        }
        let mut rest = due & (Due::WRITE | Due::ROOM);
        if !events.is_empty() && !self.is_freed() {
            let failed = due.intersects(Due::READ_ERROR | Due::WRITE_ERROR | Due::ERROR);
            if failed && self.has(State::CLOSE_AFTER_FLUSH) {
                // Nobody waits for an answer any more; what was cut off must not look whole.
                self.close_with_reset();
                return;
            }
            self.call_event(events);
            let sent = self.drain_out();
            if !(self.has(State::UNATTENDED) && self.is_flushed()) {
                rest |= sent;
            }
            self.set(State::UNATTENDED, false);
            if due.contains(Due::WRITE_TIMEOUT) && !self.has(State::WRITE_ENABLED) && self.is_closing() {
                self.close_with_reset();
            }
        }
        self.raise_rest(rest);
    }

    /// Sees to it that somebody wakes this stream next, or that it ends.
    pub(super) fn after_step(self: &Rc<Self>) {
        if self.has_untold_changes() {
            self.raise(Due::CHANGED);
        }
        self.finish_if_flushed();
        if self.is_freed() {
            return;
        }
        if self.may_write() && !self.has(State::BLOCKED) && self.has_output() {
            // The visit's budget is used up, or something was written behind the last flush.
            self.push_unflushed();
        }
        if self.has(State::FILTER) {
            self.wake_filter();
        }
        if self.may_read() {
            self.ask_partner();
        }
        self.update();
        debug_assert!(self.is_freed() || self.is_woken(), "nothing would send the output");
    }

    /// Whether output that may be sent will be: on readiness, from the flush list, or when the other end of a pair asks.
    fn is_woken(&self) -> bool {
        let has_more = self.has_output() || self.owes_output();
        if self.has(State::WRITE_LIMITED) && has_more && !self.is_woken_by_limit(Side::Output) {
            return false;
        }
        let waits = self.may_write() && self.has_output();
        !waits || self.has(State::BLOCKED | State::UNFLUSHED) || self.handle.check().is_err()
    }

    /// What a last flush brought about runs in the next turn.
    pub(super) fn raise_rest(&self, due: Due) {
        if !due.is_empty() && !self.is_freed() {
            self.raise(due);
        }
    }

    /// What is left in a big block moves into memory of its own size, and the block goes back to the loop.
    #[inline]
    pub(super) fn settle_input(&self) {
        if self.has(State::HAS_INPUT) {
            self.settle_held();
        }
        self.settle_places();
    }

    #[inline(never)]
    fn settle_held(&self) {
        self.borrow(Side::Input).settle(self.handle.pool());
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
