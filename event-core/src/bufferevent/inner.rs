//! The object behind a stream's handles: its state, and every call that changes it from outside the loop's step.

use std::cell::Cell;
use std::fmt;
use std::os::fd::RawFd;
use std::rc::Rc;

use super::buffers::{Buffers, Side};
use super::rare::{Cause, DEFAULT_ROOM, Rare};
use super::state::{Due, State};
use super::step::InStep;
use super::{BufferEvent, Callbacks, Direction, StreamEvent};
use crate::buffer::Buffer;
use crate::clock::Time;
use crate::error::Error;
use crate::interest::What;
use crate::reactor::{Callback, EventId, Kind, LoopHandle};
use crate::slots::Key;
use crate::sys::FdKind;

/// The id of a stream that the loop does not know yet.
const UNSTARTED: EventId = EventId(Key { index: u32::MAX, generation: u32::MAX });

/// With any of these, more than the output itself changes with the output.
const WATCHED_OUTPUT: State = State::RARE
    .union(State::NO_ROOM)
    .union(State::OVERFULL)
    .union(State::FREED)
    .union(State::PAIR)
    .union(State::OUTPUT_FIRST)
    .union(State::OUTPUT_SECOND);

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
    pub(super) buffers: Buffers,
    pub(super) rare: Cell<Option<Box<Rare>>>,
}

// An idle stream is one of these, 136 bytes with the two reference counts, and its slot.
const _: () = assert!(size_of::<Inner>() <= 120);

/// Marks the output as out of its place, as it is while somebody appends to it.
struct OutputOut<'a>(&'a Inner);

impl<'a> OutputOut<'a> {
    #[inline]
    fn enter(inner: &'a Inner) -> OutputOut<'a> {
        inner.set(State::OUTPUT_OUT, true);
        OutputOut(inner)
    }
}

impl Drop for OutputOut<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.set(State::OUTPUT_OUT, false);
    }
}

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
            buffers: Buffers::default(),
            rare: Cell::new(None),
        }
    }

    // Small views.

    #[inline]
    pub(super) fn has(&self, state: State) -> bool {
        self.state.get().intersects(state)
    }

    #[inline]
    pub(super) fn set(&self, state: State, on: bool) {
        let mut all = self.state.get();
        all.set(state, on);
        self.state.set(all);
    }

    #[inline]
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

    /// How much of the output is not sent, below this stream included.
    #[inline]
    pub(super) fn pending_output(&self) -> usize {
        if self.has(State::HAS_OUTPUT | State::FILTER) { self.count_unsent() } else { 0 }
    }

    #[inline(never)]
    fn count_unsent(&self) -> usize {
        self.unsent(self.len(Side::Output))
    }

    /// How much is not sent if the output holds `len` bytes.
    #[inline]
    pub(super) fn unsent(&self, len: usize) -> usize {
        if self.has(State::FILTER) { len + self.unsent_below() } else { len }
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_flushed(&self) -> bool {
        !self.has_output()
            && !self.has(State::OUTPUT_OUT)
            && (!self.has(State::FILTER) || self.is_filtered_and_sent())
    }

    pub(super) fn is_closing(&self) -> bool {
        self.has(State::CLOSE_AFTER_FLUSH) && !self.is_freed()
    }

    pub(super) fn error(&self) -> Option<Error> {
        self.rare(None, |rare| rare.cause.clone()).map(Cause::error)
    }

    #[inline]
    pub(super) fn wants_read(&self) -> bool {
        let state = self.state.get();
        state.contains(State::READ_ENABLED)
            && !state.intersects(
                State::EOF
                    | State::CONNECTING
                    | State::CLOSE_AFTER_FLUSH
                    | State::DETACHED
                    | State::FREED
                    | State::HELD_BACK,
            )
    }

    /// Whether bytes may be read now: wanted, and below the marks.
    pub(super) fn may_read(&self) -> bool {
        self.wants_read() && !self.has(State::READ_LIMITED) && self.room() > 0
    }

    /// Whether output is to be sent, now or when the rate limit lets it.
    fn wants_write(&self) -> bool {
        self.may_write_but(State::empty())
    }

    #[inline]
    pub(super) fn may_write(&self) -> bool {
        self.may_write_but(State::WRITE_LIMITED)
    }

    fn may_write_but(&self, but: State) -> bool {
        let state = self.state.get();
        state.contains(State::WRITE_ENABLED)
            && !state.intersects(State::CONNECTING | State::DETACHED | State::FREED | but)
    }

    #[inline]
    pub(super) fn check(&self) -> Result<(), Error> {
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
        self.rearm();
        if !self.due.get().is_empty() {
            self.handle.activate_internal(id);
        }
        Ok(())
    }

    /// Whether the stream waits for input with nothing else under way, and the loop knows: nothing of what the end of a
    /// step sees to is to be done.
    #[inline]
    pub(super) fn is_resting(&self) -> bool {
        const ASIDE: State = State::OWNS_FD.union(State::PINNED).union(State::LENT);
        const RESTING: State =
            State::READ_ENABLED.union(State::WRITE_ENABLED).union(State::REGISTERED).union(State::HELD);
        self.state.get() - ASIDE == RESTING && self.watched.get() == What::READ
    }

    pub(super) fn enable(self: &Rc<Self>, direction: Direction) -> Result<(), Error> {
        self.start()?;
        if self.has(State::FILTER) {
            BufferEvent { inner: self.below().ok_or(Error::Stale)? }.enable(direction)?;
        }
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

    #[inline]
    pub(super) fn enabled(&self) -> Direction {
        let mut enabled = Direction::empty();
        enabled.set(Direction::READ, self.has(State::READ_ENABLED));
        enabled.set(Direction::WRITE, self.has(State::WRITE_ENABLED));
        enabled
    }

    // Output.

    pub(super) fn write(self: &Rc<Self>, append: impl FnOnce(&mut Buffer)) -> Result<(), Error> {
        self.check()?;
        let mut output = self.borrow(Side::Output);
        if output.is_empty() {
            self.touch_write();
        }
        append(&mut output);
        // In a step that sends it there is nothing to see to but bounds, unless something came meanwhile.
        let is_plain = output.len() <= DEFAULT_ROOM && !self.has(WATCHED_OUTPUT) && self.has(State::IN_STEP);
        drop(output);
        if is_plain {
            return Ok(());
        }
        self.output_changed();
        if self.has(State::OVERFULL) && !self.is_freed() { Err(Error::OutputFull) } else { Ok(()) }
    }

    #[inline]
    pub(super) fn write_with(
        self: &Rc<Self>,
        room: usize,
        f: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        if !self.has(State::IN_STEP) || self.has(WATCHED_OUTPUT | State::OUTPUT_OUT | State::INPUT_FIRST) {
            return self.write(|output| output.with_tail(room, self.handle.pool(), f));
        }
        self.check()?;
        let mut block = self.handle.pool().take(room);
        let out = OutputOut::enter(self);
        f(&mut block);
        drop(out);
        self.touch_write();
        // `f` is the caller's, and may have done anything meanwhile.
        let is_plain = !self.has(WATCHED_OUTPUT | State::INPUT_FIRST) && self.has(State::IN_STEP);
        if is_plain && !block.is_empty() && block.len() <= DEFAULT_ROOM {
            self.put_block(Side::Output, block);
            return Ok(());
        }
        let mut output = Buffer::of_block(block);
        self.put_back(Side::Output, &mut output);
        drop(output);
        self.output_changed();
        if self.has(State::OVERFULL) && !self.is_freed() { Err(Error::OutputFull) } else { Ok(()) }
    }

    /// The output may have grown: it is sent at the end of the stream's own step, or with the flush list.
    pub(super) fn output_changed(self: &Rc<Self>) {
        if self.is_freed() {
            return;
        }
        let len = self.len(Side::Output);
        if self.finds_room(self.unsent(len)) {
            self.raise(Due::ROOM);
        }
        if self.has(State::FILTER) && len > 0 {
            self.more_to_filter();
        }
        if len == 0 {
            self.set(State::OVERFULL, false);
            if !self.has(State::IN_STEP) {
                self.finish_if_flushed();
            }
            return self.update();
        }
        let over_full = self.is_over_full(len);
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

    #[inline]
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

    pub(super) fn trigger_at_marks(self: &Rc<Self>, direction: Direction) -> Result<(), Error> {
        let (read_low, write_low) = self.rare((0, 0), |rare| (rare.read_low, rare.write_low));
        let mut met = Direction::empty();
        met.set(Direction::READ, self.len(Side::Input) >= read_low);
        met.set(Direction::WRITE, self.len(Side::Output) <= write_low);
        self.trigger(direction & met)
    }

    pub(super) fn trigger_event(self: &Rc<Self>, event: StreamEvent) -> Result<(), Error> {
        self.start()?;
        if !event.is_empty() {
            self.rare_mut(|rare| rare.triggered |= event);
            self.raise(Due::TRIGGERED);
        }
        Ok(())
    }

    /// Sends what the kernel takes now; says whether that was all.
    pub(super) fn try_flush(self: &Rc<Self>) -> Result<bool, Error> {
        self.start()?;
        if let Some(below) = self.below() {
            below.try_flush()?;
            return Ok(self.is_flushed());
        }
        // What a guard holds goes first, and so does what is being written right now.
        if !self.has(State::OUTPUT_OUT) {
            let step = InStep::enter(self);
            let due = self.drain_out();
            drop(step);
            self.raise_rest(due);
            if !self.has(State::IN_STEP) {
                self.after_step();
            }
            if due.contains(Due::WRITE_ERROR)
                && let Some(error) = self.error()
            {
                return Err(error);
            }
        }
        Ok(self.is_flushed())
    }

    /// The stream fails: its error event is queued.
    pub(super) fn fail(&self, cause: Cause, due: Due) {
        self.raise(due);
        self.set_cause(cause);
    }

    /// An old one may be of the program's making, as what is told of a look-up is.
    pub(super) fn set_cause(&self, cause: Cause) {
        let old = self.rare_mut(|rare| rare.cause.replace(cause));
        drop(old);
    }

    /// Forgets why it failed; the result is to be dropped last.
    pub(super) fn take_cause(&self) -> Option<Cause> {
        self.rare_if(|rare| rare.cause.take()).flatten()
    }

    // What the loop is told.

    fn wanted(&self) -> What {
        let mut what = What::empty();
        what.set(What::READ, self.may_read());
        let blocked =
            self.has(State::BLOCKED) && self.may_write() && (self.has_output() || self.ends_later());
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

    pub(super) fn try_update(&self) -> Result<(), Error> {
        let id = self.id.get();
        if id == UNSTARTED || self.is_freed() {
            return Ok(());
        }
        let (wanted, before) = (self.wanted(), self.watched.get());
        if wanted != before {
            self.watched.set(wanted);
            if self.has(State::FILTER) {
                self.hold_below(!wanted.contains(What::READ));
            }
            if wanted.contains(What::READ) && !before.contains(What::READ) {
                // The time in which nothing was asked for does not count.
                self.touch_read();
                if self.has(State::TRANSPORT | State::FILTER) {
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
            || self.wants_write() && (self.has_output() || self.ends_later() || self.owes_output());
        if held != self.has(State::HELD) {
            self.set(State::HELD, held);
            self.handle.set_held(id, held);
        }
        // Of other streams nothing but `set_deadline`, `start` and the timer itself moves the deadline.
        if self.has(State::RARE) {
            self.rearm();
        }
        Ok(())
    }
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
