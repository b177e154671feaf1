//! The object behind a stream's handles: its state, and every call that changes it from outside the loop's step.

use std::cell::Cell;
use std::fmt;
use std::net::Shutdown;
use std::os::fd::RawFd;
use std::rc::Rc;

use bitflags::bitflags;

use super::rare::{Cause, DEFAULT_MAX, Rare};
use super::{Callbacks, Direction};
use crate::buffer::Buffer;
use crate::clock::Time;
use crate::error::Error;
use crate::interest::What;
use crate::reactor::{Callback, EventId, Kind, LoopHandle};
use crate::slots::Key;
use crate::sys::FdKind;

bitflags! {
    /// What a stream is and where it stands.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct State: u32 {
        const READ_ENABLED = 0x0001;
        const WRITE_ENABLED = 0x0002;
        /// Freed: nothing happens any more.
        const FREED = 0x0004;
        /// A connect is under way.
        const CONNECTING = 0x0008;
        /// The peer will send no more; its EOF event was or will be delivered.
        const EOF = 0x0010;
        /// Inside the loop's step for this stream: output is flushed at its end.
        const IN_STEP = 0x0020;
        /// Stands in the loop's flush list.
        const UNFLUSHED = 0x0040;
        /// The kernel took less than it was given: writing waits for readiness.
        const BLOCKED = 0x0080;
        const CLOSE_AFTER_FLUSH = 0x0100;
        const SHUTDOWN_AFTER_FLUSH = 0x0200;
        /// The fd is closed with the stream.
        const OWNS_FD = 0x0400;
        const PAIR = 0x0800;
        const TRANSPORT = 0x1000;
        /// Keeps the loop running, as the loop was told.
        const HELD = 0x2000;
        /// The write side was shut down.
        const WRITE_SHUT = 0x4000;
        /// A callback is running and is to be put back: nobody has taken the callbacks away meanwhile.
        const LENT = 0x8000;
        /// The other end of a pair will write no more, which is told once this one reads.
        const UNTOLD_EOF = 0x1_0000;
        /// The output is out of its cell: that the cell is empty does not mean that all is sent.
        const OUTPUT_OUT = 0x2_0000;
        /// The fd stands with the loop.
        const REGISTERED = 0x4_0000;
        /// The output is over its bound, and the callbacks were or will be told.
        const OVERFULL = 0x8_0000;
        /// Keeps the loop running whatever it does: `set_held`.
        const PINNED = 0x10_0000;
        /// There is a rare part: without this bit nobody needs to look for it.
        const RARE = 0x20_0000;
    }
}

bitflags! {
    /// What is to be delivered, in this order: connected, read, write, the other events.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Due: u16 {
        const CONNECTED = 0x001;
        const READ = 0x002;
        const WRITE = 0x004;
        const READ_EOF = 0x008;
        const READ_ERROR = 0x010;
        const WRITE_ERROR = 0x020;
        /// An error of no direction: a failed connect, a full buffer, a lost fd.
        const ERROR = 0x040;
        const READ_TIMEOUT = 0x080;
        const WRITE_TIMEOUT = 0x100;
        const DEADLINE = 0x200;
        /// The other end of a pair has put something into the input; whether that is a `READ` is seen in the step.
        const ARRIVED = 0x400;
        /// A transport may hold more than it gave.
        const AGAIN = 0x800;
    }
}

/// The id of a stream that the loop does not know yet.
const UNSTARTED: EventId = EventId(Key { index: u32::MAX, generation: u32::MAX });

pub(crate) struct Inner {
    pub(super) handle: LoopHandle,
    pub(super) id: Cell<EventId>,
    pub(super) fd: Cell<RawFd>,
    pub(super) state: Cell<State>,
    pub(super) due: Cell<Due>,
    pub(super) kind: Cell<FdKind>,
    /// What the loop watches for this stream.
    pub(super) watched: Cell<What>,
    pub(super) deadline: Cell<Time>,
    /// When writing last got on, or output first came.
    pub(super) last_write: Cell<Time>,
    pub(super) callbacks: Cell<Option<Box<dyn Callbacks>>>,
    pub(super) input: Cell<Buffer>,
    pub(super) output: Cell<Buffer>,
    pub(super) rare: Cell<Option<Box<Rare>>>,
}

// An idle keep-alive connection holds one of these: 168 bytes with the two reference counts.
const _: () = assert!(size_of::<Inner>() <= 152);

impl Inner {
    pub(super) fn new(handle: LoopHandle, fd: RawFd, state: State) -> Inner {
        Inner {
            handle,
            id: Cell::new(UNSTARTED),
            fd: Cell::new(fd),
            state: Cell::new(state | State::WRITE_ENABLED),
            due: Cell::new(Due::empty()),
            kind: Cell::new(FdKind::Socket),
            watched: Cell::new(What::empty()),
            deadline: Cell::new(Time::NEVER),
            last_write: Cell::new(Time::default()),
            callbacks: Cell::new(None),
            input: Cell::new(Buffer::new()),
            output: Cell::new(Buffer::new()),
            rare: Cell::new(None),
        }
    }

    // Small views.

    pub(super) fn has(&self, state: State) -> bool {
        self.state.get().intersects(state)
    }

    pub(super) fn set(&self, state: State, on: bool) {
        let mut all = self.state.get();
        all.set(state, on);
        self.state.set(all);
    }

    pub(super) fn is_freed(&self) -> bool {
        self.has(State::FREED)
    }

    /// Reads from the rare part; `default` is what a stream without one has.
    pub(super) fn rare<T>(&self, default: T, read: impl FnOnce(&Rare) -> T) -> T {
        if !self.has(State::RARE) {
            return default;
        }
        let rare = self.rare.take();
        let result = match &rare {
            Some(rare) => read(rare),
            None => default,
        };
        self.rare.set(rare);
        result
    }

    /// Changes the rare part, making it if need be. It is taken out meanwhile: `change` is ours and drops nothing that
    /// users gave.
    pub(super) fn rare_mut<T>(&self, change: impl FnOnce(&mut Rare) -> T) -> T {
        self.set(State::RARE, true);
        let mut rare = self.rare.take().unwrap_or_default();
        let result = change(&mut rare);
        self.rare.set(Some(rare));
        result
    }

    /// Changes the rare part if there is one.
    pub(super) fn rare_if<T>(&self, change: impl FnOnce(&mut Rare) -> T) -> Option<T> {
        if !self.has(State::RARE) {
            return None;
        }
        let mut rare = self.rare.take()?;
        let result = change(&mut rare);
        self.rare.set(Some(rare));
        Some(result)
    }

    #[inline]
    pub(super) fn peek_len(&self, cell: &Cell<Buffer>) -> usize {
        peek(cell, Buffer::len)
    }

    /// Whether nothing waits to be sent.
    fn is_flushed(&self) -> bool {
        self.peek_len(&self.output) == 0 && !self.has(State::OUTPUT_OUT)
    }

    pub(super) fn is_closing(&self) -> bool {
        self.has(State::CLOSE_AFTER_FLUSH) && !self.is_freed()
    }

    pub(super) fn error(&self) -> Option<Error> {
        self.rare(None, |rare| rare.cause).map(Cause::error)
    }

    /// How many bytes may be read now.
    pub(super) fn room(&self) -> usize {
        let most = self.rare(DEFAULT_MAX, |rare| rare.read_high.min(rare.max_input));
        most.saturating_sub(self.peek_len(&self.input))
    }

    fn wants_read(&self) -> bool {
        let state = self.state.get();
        state.contains(State::READ_ENABLED)
            && !state.intersects(State::EOF | State::CONNECTING | State::CLOSE_AFTER_FLUSH | State::FREED)
    }

    /// Whether bytes may be read now: wanted, and below the marks.
    pub(super) fn may_read(&self) -> bool {
        self.wants_read() && self.room() > 0
    }

    pub(super) fn may_write(&self) -> bool {
        let state = self.state.get();
        state.contains(State::WRITE_ENABLED) && !state.intersects(State::CONNECTING | State::FREED)
    }

    fn check(&self) -> Result<(), Error> {
        if self.handle.is_gone() {
            Err(Error::LoopGone)
        } else if self.is_freed() {
            Err(Error::Stale)
        } else {
            Ok(())
        }
    }

    // Starting.

    /// Makes the loop the owner.
    pub(super) fn start(self: &Rc<Self>) -> Result<(), Error> {
        self.check()?;
        if self.id.get() != UNSTARTED {
            return Ok(());
        }
        let id =
            self.handle.insert(Kind::Fd, self.fd.get(), What::empty(), Callback::Source(self.clone()))?;
        self.id.set(id);
        if let Err(error) = self.try_update() {
            // As if it had not been tried: the fd and the callbacks are still the stream's.
            let slot = self.handle.remove_slot(id.0);
            self.id.set(UNSTARTED);
            self.watched.set(What::empty());
            self.set(State::HELD, false);
            drop(slot);
            return Err(error);
        }
        if !self.due.get().is_empty() {
            self.handle.activate_internal(id);
        }
        Ok(())
    }

    pub(super) fn enable(self: &Rc<Self>, direction: Direction) -> Result<(), Error> {
        self.start()?;
        let before = self.state.get();
        self.set(
            State::READ_ENABLED,
            before.contains(State::READ_ENABLED) || direction.contains(Direction::READ),
        );
        self.set(
            State::WRITE_ENABLED,
            before.contains(State::WRITE_ENABLED) || direction.contains(Direction::WRITE),
        );
        if direction.contains(Direction::WRITE) && !before.contains(State::WRITE_ENABLED) {
            self.touch_write();
        }
        if let Err(error) = self.try_update() {
            for flag in [State::READ_ENABLED, State::WRITE_ENABLED] {
                self.set(flag, before.contains(flag));
            }
            self.update();
            return Err(error);
        }
        if self.has(State::UNTOLD_EOF) && self.has(State::READ_ENABLED) {
            self.set(State::UNTOLD_EOF, false);
            self.set(State::EOF, true);
            self.raise(Due::READ_EOF);
        }
        self.output_changed();
        self.input_changed();
        if !self.has(State::IN_STEP) {
            // It may be full as it is.
            self.check_input_full();
        }
        Ok(())
    }

    pub(super) fn disable(&self, direction: Direction) {
        self.set(State::READ_ENABLED, self.has(State::READ_ENABLED) && !direction.contains(Direction::READ));
        self.set(
            State::WRITE_ENABLED,
            self.has(State::WRITE_ENABLED) && !direction.contains(Direction::WRITE),
        );
        self.update();
    }

    pub(super) fn enabled(&self) -> Direction {
        let mut enabled = Direction::empty();
        enabled.set(Direction::READ, self.has(State::READ_ENABLED));
        enabled.set(Direction::WRITE, self.has(State::WRITE_ENABLED));
        enabled
    }

    // Callbacks.

    pub(super) fn set_callbacks(self: &Rc<Self>, callbacks: Option<Box<dyn Callbacks>>) {
        if self.is_freed() {
            drop(callbacks);
            return;
        }
        let starts = callbacks.is_some();
        self.set(State::LENT, false);
        let old = self.callbacks.replace(callbacks);
        let closures = self.take_closures();
        if starts {
            // A stream with a callback is the loop's.
            let _ = self.start();
        }
        drop((old, closures));
    }

    pub(super) fn set_closure<T>(self: &Rc<Self>, set: impl FnOnce(&mut Rare) -> Option<T>) {
        if self.is_freed() {
            return;
        }
        let old = self.rare_mut(set);
        let object = self.callbacks.take();
        let _ = self.start();
        drop((old, object));
    }

    fn take_closures(&self) -> Option<impl Sized + use<>> {
        self.rare_if(|rare| (rare.read_cb.take(), rare.write_cb.take(), rare.event_cb.take()))
    }

    // Output.

    pub(super) fn write(self: &Rc<Self>, append: impl FnOnce(&mut Buffer)) -> Result<(), Error> {
        self.check()?;
        let mut output = self.borrow(&self.output);
        if output.is_empty() {
            self.touch_write();
        }
        append(&mut output);
        drop(output);
        self.output_changed();
        if self.over_full() { Err(Error::OutputFull) } else { Ok(()) }
    }

    pub(super) fn write_with(
        self: &Rc<Self>,
        room: usize,
        f: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        self.write(|output| output.with_tail(room, self.handle.pool(), f))
    }

    pub(super) fn over_full(&self) -> bool {
        // What lies in a file takes no memory.
        peek(&self.output, Buffer::memory_len) > self.rare(DEFAULT_MAX, |rare| rare.max_output)
    }

    /// The output may have grown: it is sent at the end of the stream's own step, or with the flush list.
    pub(super) fn output_changed(self: &Rc<Self>) {
        if self.is_freed() {
            return;
        }
        if self.peek_len(&self.output) == 0 {
            if !self.has(State::IN_STEP) {
                self.finish_if_flushed();
            }
            return self.update();
        }
        let over_full = self.over_full();
        if over_full && !self.has(State::OVERFULL) {
            self.fail(Cause::OutputFull, Due::ERROR);
        }
        self.set(State::OVERFULL, over_full);
        if self.has(State::IN_STEP) {
            // The step sends it, and ends with an update.
            return;
        }
        if self.may_write() && !self.has(State::BLOCKED) {
            self.push_unflushed();
        }
        self.update();
    }

    pub(super) fn push_unflushed(self: &Rc<Self>) {
        if !self.has(State::UNFLUSHED) && self.start().is_ok() {
            self.set(State::UNFLUSHED, true);
            self.handle.push_unflushed(self.handle.priority(self.id.get()), self.clone());
        }
    }

    pub(super) fn close_after_flush(self: &Rc<Self>) {
        if self.is_freed() {
            return;
        }
        let failed = self.due.get().intersects(Due::WRITE_ERROR | Due::ERROR);
        if self.is_flushed() || failed || !self.has(State::WRITE_ENABLED) {
            self.free();
        } else {
            self.set(State::CLOSE_AFTER_FLUSH, true);
            self.output_changed();
            self.update();
        }
    }

    pub(super) fn shutdown_write(self: &Rc<Self>) {
        if self.is_freed() || self.has(State::WRITE_SHUT) {
            return;
        }
        if self.is_flushed() && !self.has(State::CONNECTING) {
            self.shutdown_now();
            self.free_if_over();
        } else {
            self.set(State::SHUTDOWN_AFTER_FLUSH, true);
        }
    }

    pub(super) fn shutdown_now(self: &Rc<Self>) {
        self.set(State::WRITE_SHUT, true);
        self.set(State::SHUTDOWN_AFTER_FLUSH, false);
        if self.has(State::PAIR) {
            self.end_partner(false);
        } else if self.has(State::TRANSPORT) {
            let _ = self.with_transport(|transport| transport.shutdown(Shutdown::Write));
        } else if self.fd.get() >= 0 {
            // ENOTCONN: the peer is gone, and reading will say so.
            let _ = self.handle.sys().shutdown(self.fd.get(), Shutdown::Write);
        }
    }

    /// Runs a transport's code with nothing of ours borrowed.
    pub(super) fn with_transport<T>(
        &self,
        f: impl FnOnce(&mut dyn super::Transport) -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        let transport = self.rare_mut(|rare| rare.transport.take());
        let Some(mut transport) = transport else {
            return Err(std::io::ErrorKind::NotConnected.into());
        };
        let result = f(&mut *transport);
        let unwanted = if self.is_freed() {
            Some(transport)
        } else {
            self.rare_mut(|rare| rare.transport.replace(transport))
        };
        drop(unwanted);
        result
    }

    // Input.

    /// Somebody took from the input: reading may go on.
    pub(super) fn input_changed(self: &Rc<Self>) {
        if self.is_freed() || self.has(State::IN_STEP) {
            return;
        }
        if self.may_read() {
            self.ask_partner();
        }
        self.update();
    }

    /// Input at the library's own bound that nobody took is an event, not a silent stop.
    pub(super) fn check_input_full(&self) {
        if !self.wants_read() || self.due.get().contains(Due::ARRIVED) {
            return;
        }
        let len = self.peek_len(&self.input);
        let (max, high) = self.rare((DEFAULT_MAX, usize::MAX), |rare| (rare.max_input, rare.read_high));
        if len >= max && high > max {
            self.set(State::READ_ENABLED, false);
            self.fail(Cause::InputFull, Due::ERROR);
        }
    }

    /// Everything is sent: what was to happen then happens, once the callbacks know.
    pub(super) fn finish_if_flushed(self: &Rc<Self>) {
        if self.is_freed() || !self.due.get().is_empty() {
            return;
        }
        if self.is_flushed() {
            if self.has(State::CLOSE_AFTER_FLUSH) {
                self.free();
                return;
            }
            if self.has(State::SHUTDOWN_AFTER_FLUSH) && !self.has(State::CONNECTING) {
                self.shutdown_now();
            }
        }
        self.free_if_over();
    }

    /// Both directions have ended, and the callbacks know it.
    fn free_if_over(&self) {
        if self.has(State::EOF)
            && self.has(State::WRITE_SHUT)
            && !self.has(State::IN_STEP)
            && self.due.get().is_empty()
        {
            self.free();
        }
    }

    pub(super) fn set_held(&self, held: bool) {
        self.set(State::PINNED, held);
        // Reading holds the loop as a rule, and a step ends with an update of its own.
        if held != self.has(State::HELD) && !self.has(State::IN_STEP) {
            self.update();
        }
    }

    /// Queues something for the stream's callbacks, for the next turn.
    pub(super) fn raise(&self, due: Due) {
        self.due.set(self.due.get() | due);
        if self.id.get() != UNSTARTED {
            self.handle.activate_internal(self.id.get());
        }
    }

    pub(super) fn trigger(self: &Rc<Self>, direction: Direction) -> Result<(), Error> {
        self.start()?;
        let mut due = Due::empty();
        due.set(Due::READ, direction.contains(Direction::READ));
        due.set(Due::WRITE, direction.contains(Direction::WRITE));
        self.raise(due);
        Ok(())
    }

    /// The stream fails: its error event is queued.
    pub(super) fn fail(&self, cause: Cause, due: Due) {
        self.rare_mut(|rare| rare.cause = Some(cause));
        self.raise(due);
    }

    pub(super) fn connect_failed(&self, error: &std::io::Error) {
        self.set(State::CONNECTING, false);
        self.set(State::READ_ENABLED | State::WRITE_ENABLED, false);
        self.fail(Cause::of(error), Due::ERROR);
        self.update();
    }

    // Bounds and marks.

    pub(super) fn set_max(self: &Rc<Self>, max_input: Option<usize>, max_output: Option<usize>) {
        self.rare_mut(|rare| {
            rare.max_input = max_input.unwrap_or(usize::MAX);
            rare.max_output = max_output.unwrap_or(usize::MAX);
        });
        self.output_changed();
        self.input_changed();
        if !self.has(State::IN_STEP) {
            self.check_input_full();
        }
    }

    pub(super) fn set_watermark(self: &Rc<Self>, direction: Direction, low: usize, high: Option<usize>) {
        self.rare_mut(|rare| {
            if direction.contains(Direction::READ) {
                rare.read_low = low;
                // A mark below the other would pause for ever before the first callback.
                rare.read_high = high.map_or(usize::MAX, |high| high.max(low));
            }
            if direction.contains(Direction::WRITE) {
                rare.write_low = low;
            }
        });
        self.input_changed();
    }

    // What the loop is told.

    fn wanted(&self) -> What {
        let mut what = What::empty();
        what.set(What::READ, self.may_read());
        let blocked = self.has(State::BLOCKED) && self.may_write() && self.peek_len(&self.output) > 0;
        what.set(What::WRITE, blocked || self.has(State::CONNECTING));
        if self.has(State::TRANSPORT) && !self.is_freed() {
            let own = self.with_transport(|transport| Ok(transport.want())).unwrap_or_default();
            if !own.is_empty() {
                // It knows better what a write waits for.
                what = own | what & What::READ;
            }
        }
        what
    }

    /// Tells the loop what this stream waits for and whether it keeps the loop running. What the backend refuses is
    /// an error event.
    pub(super) fn update(&self) {
        if let Err(error) = self.try_update() {
            self.set(State::READ_ENABLED | State::WRITE_ENABLED | State::CONNECTING, false);
            let cause = match &error {
                Error::Io(error) => Cause::of(error),
                _ => Cause::Lost,
            };
            self.fail(cause, Due::ERROR);
            // Nothing is wanted any more, so nothing is refused.
            let _ = self.try_update();
        }
    }

    fn try_update(&self) -> Result<(), Error> {
        let id = self.id.get();
        if id == UNSTARTED || self.is_freed() {
            return Ok(());
        }
        let (wanted, before) = (self.wanted(), self.watched.get());
        if wanted != before {
            self.watched.set(wanted);
            if wanted.contains(What::READ) && !before.contains(What::READ) {
                // The time in which nothing was asked for does not count.
                self.touch_read();
                if self.has(State::TRANSPORT) {
                    // It may hold bytes from before.
                    self.raise(Due::AGAIN);
                }
            }
            if self.fd.get() >= 0 {
                self.handle.set_interest(id, wanted);
                if !self.has(State::REGISTERED) && !wanted.is_empty() {
                    // Only now, so that a refusal is told to whoever asked first.
                    if let Err(error) = self.handle.add_io(id) {
                        self.watched.set(before);
                        self.handle.set_interest(id, before);
                        return Err(error);
                    }
                    self.set(State::REGISTERED, true);
                }
            }
        }
        let held = self.wants_read()
            || self.has(State::CONNECTING | State::PINNED)
            || self.may_write() && self.peek_len(&self.output) > 0;
        if held != self.has(State::HELD) {
            self.set(State::HELD, held);
            self.handle.set_held(id, held);
        }
        self.rearm();
        Ok(())
    }

    // The end.

    /// Frees the stream. What drops, drops here, last, with nothing borrowed.
    pub(super) fn free(&self) {
        if self.is_freed() {
            return;
        }
        self.set(State::FREED, true);
        let slot = self.handle.remove_slot(self.id.get().0);
        if self.has(State::PAIR) {
            self.end_partner(true);
        }
        let fd = self.fd.replace(-1);
        let transport = self.rare_if(|rare| rare.transport.take()).flatten();
        let closures = self.take_closures();
        let callbacks = self.callbacks.take();
        let buffers = (self.input.take(), self.output.take());
        if fd >= 0 && self.has(State::OWNS_FD) {
            self.handle.sys().close(fd);
        }
        drop((slot, transport, closures, callbacks, buffers));
    }
}

/// Looks at a buffer in its cell.
#[inline]
fn peek<T>(cell: &Cell<Buffer>, look: impl FnOnce(&Buffer) -> T) -> T {
    let buffer = cell.take();
    let result = look(&buffer);
    // What comes back is the empty one that `take` left. Dropping it does nothing, but is code at every place that
    // looks: some 700 instructions a request.
    std::mem::forget(cell.replace(buffer));
    result
}

impl Drop for Inner {
    /// Only a stream that was never started gets here unfreed.
    fn drop(&mut self) {
        self.free();
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("fd", &self.fd.get())
            .field("state", &self.state.get())
            .finish_non_exhaustive()
    }
}
