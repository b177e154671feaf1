//! A stream over another one: what comes up and what goes down passes the filter in between.
//!
//! The layers work by return value inside one step: a stream hands up what its step has found (`hand_up`), the one above
//! takes it through its filter and calls the program (`lifted`), and what was written goes down to the kernel before the
//! step ends (`drain_filtered`). So a layer costs no turn.

use std::io;
use std::rc::Rc;

use super::buffers::Side;
use super::filter::{Filter, Filtered, FlushMode};
use super::inner::Inner;
use super::limits::READ_PER_VISIT;
use super::rare::Cause;
use super::state::{Due, State};
use super::step::InStep;
use super::{BufferEvent, Direction};
use crate::buffer::Buffer;
use crate::clock::Time;
use crate::error::Error;

/// A step goes through all layers on the stack, so there may be only so many.
const MAX_LAYERS: usize = 32;

/// What a stream over another one has.
pub(super) struct Layer {
    below: Rc<Inner>,
    /// On loan while it runs.
    filter: Option<Box<dyn Filter>>,
    /// How far down: 1 over a stream without a filter.
    depth: usize,
    /// What was asked for and is not done.
    flush_in: FlushMode,
    flush_out: FlushMode,
}

/// How a run of a filter ended.
enum Sifted {
    /// It has taken all it can.
    All,
    /// There was no room for more.
    NoRoom,
}

impl Layer {
    pub(super) fn free(&self) {
        self.below.free();
    }

    pub(super) fn close_with_reset(&self) {
        self.below.close_with_reset();
    }
}

impl Inner {
    /// Makes a stream over this one.
    pub(super) fn stack(self: &Rc<Self>, filter: Box<dyn Filter>) -> Result<Rc<Inner>, Error> {
        self.check()?;
        self.handle.check()?;
        if self.has(State::UNDER_FILTER) {
            return Err(Error::Invalid("there is a filter on this stream already"));
        }
        let depth = 1 + self.rare(0, |rare| rare.layer.as_ref().map_or(0, |layer| layer.depth));
        if depth > MAX_LAYERS {
            return Err(Error::Invalid("too many filters on each other"));
        }
        self.start()?;
        let BufferEvent { inner: above } = BufferEvent::made(&self.handle, -1, State::FILTER);
        let (flush_in, flush_out) = (FlushMode::Normal, FlushMode::Normal);
        let layer = Layer { below: self.clone(), filter: Some(filter), depth, flush_in, flush_out };
        above.rare_mut(|rare| rare.layer = Some(Box::new(layer)));
        self.rare_mut(|rare| rare.above = Rc::downgrade(&above));
        self.set(State::UNDER_FILTER | State::HELD_BACK, true);
        self.set_callbacks(None);
        self.update();
        above.start()?;
        Ok(above)
    }

    pub(super) fn flush_layers(self: &Rc<Self>, direction: Direction, mode: FlushMode) -> Result<(), Error> {
        self.check()?;
        self.handle.check()?;
        if direction.contains(Direction::WRITE) {
            self.ask_flush(mode);
        }
        if direction.contains(Direction::READ) && self.has(State::FILTER) {
            self.with_layer(|layer| layer.flush_in = layer.flush_in.max(mode));
            self.raise(Due::AGAIN);
        }
        Ok(())
    }

    fn with_layer<T>(&self, f: impl FnOnce(&mut Layer) -> T) -> Option<T> {
        self.rare_if(|rare| rare.layer.as_deref_mut().map(f)).flatten()
    }

    /// The stream under this one, unless it is gone.
    pub(super) fn below(&self) -> Option<Rc<Inner>> {
        if !self.has(State::FILTER) {
            return None;
        }
        self.with_layer(|layer| layer.below.clone()).filter(|below| !below.is_freed())
    }

    fn above(&self) -> Option<Rc<Inner>> {
        self.rare(None, |rare| rare.above.upgrade()).filter(|above| !above.is_freed())
    }

    /// How many bytes the streams below have not sent.
    pub(super) fn unsent_below(&self) -> usize {
        self.below().map_or(0, |below| below.len(Side::Output) + below.unsent_below())
    }

    /// When writing last got on in this layer or one below.
    pub(super) fn last_progress(&self) -> Time {
        let own = self.last_write.get();
        self.below().map_or(own, |below| own.max(below.last_progress()))
    }

    /// Whether nothing waits in this layer or one below it, the last word of a transport included.
    pub(super) fn is_filtered_and_sent(&self) -> bool {
        !self.owes_output()
            && self.below().is_none_or(|below| below.is_flushed() && !below.has(State::SHUTDOWN_AFTER_FLUSH))
    }

    /// Whether the filter is to give out more, with or without output.
    pub(super) fn owes_output(&self) -> bool {
        self.has(State::FLUSHES | State::STUCK_OUT)
    }

    /// Whether this stream, or the lowest below it, is over a transport, which has a last word.
    pub(super) fn is_over_transport(&self) -> bool {
        self.has(State::TRANSPORT) || self.below().is_some_and(|below| below.is_over_transport())
    }

    fn flush_out(&self) -> FlushMode {
        if !self.has(State::FLUSHES) {
            return FlushMode::Normal;
        }
        self.with_layer(|layer| layer.flush_out).unwrap_or_default()
    }

    /// Asks for what a flush of the output comes to on this kind of stream.
    fn ask_flush(self: &Rc<Self>, mode: FlushMode) {
        if self.has(State::FILTER) {
            if mode == FlushMode::Normal {
                return;
            }
            self.with_layer(|layer| layer.flush_out = layer.flush_out.max(mode));
            self.set(State::FLUSHES, true);
            self.set(State::BLOCKED, false);
            if !self.has(State::IN_STEP) {
                if self.may_write() {
                    self.push_unflushed();
                }
                self.update();
            }
        } else if self.has(State::PAIR) && mode == FlushMode::Finished {
            self.shutdown_write();
        }
    }

    /// The output is to end: the filter is told before the streams below are. Says whether that is still to be done.
    pub(super) fn ask_finish(self: &Rc<Self>) -> bool {
        if !self.has(State::FILTER) || self.has(State::FINISHED) || self.below().is_none() {
            return false;
        }
        self.ask_flush(FlushMode::Finished);
        true
    }

    /// The output has grown: what the filter could do nothing with may be enough now.
    pub(super) fn more_to_filter(&self) {
        self.set(State::BLOCKED, false);
        if !self.has(State::WRITE_SHUT) {
            self.set(State::FINISHED, false);
        }
    }

    // Up.

    /// The step of this stream has found something, which is the affair of the one above.
    pub(super) fn hand_up(self: &Rc<Self>, due: Due) {
        if let Some(above) = self.above() {
            above.lifted(self, due);
        }
        if !self.is_freed() && self.call_changes() {
            let rest = self.drain_out();
            self.raise_rest(rest);
        }
    }

    /// The stream below has found something.
    fn lifted(self: &Rc<Self>, below: &Inner, found: Due) {
        let step = InStep::enter(self);
        let mut due = found & (Due::CONNECTED | Due::TRIGGERED);
        if found.contains(Due::TRIGGERED) {
            let triggered = below.rare_if(|rare| std::mem::take(&mut rare.triggered)).unwrap_or_default();
            self.rare_mut(|rare| rare.triggered |= triggered);
        }
        if found.intersects(Due::READ | Due::READ_EOF) {
            due |= self.fill_filtered();
        }
        due |= self.share_failure(below, found);
        let waits = State::SENT_BELOW | State::NO_ROOM | State::FLUSHES | State::STUCK_OUT;
        if self.has_output() || self.has(waits) {
            self.set(State::BLOCKED, false);
            // What the layers below have sent is told also while this one may write no more.
            due |= if self.may_write() { self.drain_out() } else { self.note_moved(0) };
        }
        if !due.is_empty() {
            self.handle.note_progress();
        }
        self.deliver(due);
        self.end_step(step);
    }

    /// An error or timeout of the stream below is one of this stream.
    fn share_failure(&self, below: &Inner, found: Due) -> Due {
        let (read, write) = (
            Due::READ_ERROR | Due::READ_TIMEOUT | Due::ERROR,
            Due::WRITE_ERROR | Due::WRITE_TIMEOUT | Due::ERROR,
        );
        let failure = found & (read | write);
        if failure.is_empty() {
            return failure;
        }
        for (of, enabled) in [(read, State::READ_ENABLED), (write, State::WRITE_ENABLED)] {
            if failure.intersects(of) {
                self.set(enabled, self.has(enabled) && below.has(enabled));
            }
        }
        if failure.intersects(Due::READ_ERROR | Due::WRITE_ERROR | Due::ERROR)
            && let Some(cause) = below.rare(None, |rare| rare.cause.clone())
        {
            self.set_cause(cause);
        }
        failure
    }

    /// Its own activation: more room, a flush, a timeout.
    pub(super) fn refill_filtered(self: &Rc<Self>, due: &mut Due) {
        if due.contains(Due::AGAIN) {
            due.remove(Due::AGAIN);
            *due |= self.fill_filtered();
        }
    }

    /// Takes what the stream below has read through the filter.
    fn fill_filtered(self: &Rc<Self>) -> Due {
        let Some(below) = self.below().filter(|_| self.may_read()) else { return Due::empty() };
        let was_stuck = self.has(State::STUCK);
        self.set(State::STUCK, false);
        // A reset is an end of another kind, and is told by itself.
        let has_ended = below.has(State::EOF) && !below.due.get().contains(Due::READ_ERROR);
        let asked = self.with_layer(|layer| std::mem::take(&mut layer.flush_in)).unwrap_or_default();
        let mode = if has_ended { FlushMode::Finished } else { asked };
        if !below.has(State::HAS_INPUT) && mode == FlushMode::Normal && !was_stuck {
            return Due::empty();
        }
        let mut input = self.borrow(Side::Input);
        let before = input.len();
        let mut room = self.room_beside(before).min(READ_PER_VISIT);
        if self.has(State::LIMITED) {
            room = room.min(self.quota(Side::Input));
        }
        let mut from = below.borrow(Side::Input);
        let sifted = self.sift(Side::Input, &mut from, &mut input, room, mode);
        let left = from.len();
        drop(from);
        below.set(State::NEEDED, left > 0 && matches!(sifted, Ok(Sifted::All)));
        let len = input.len();
        drop(input);
        if self.has(State::LIMITED) {
            let given = len.saturating_sub(before);
            self.charge(Side::Input, given, given >= room);
        }
        let mut due = Due::empty();
        if len > before {
            self.handle.note_progress();
            self.touch_read();
            if len >= self.rare(0, |rare| rare.read_low) {
                due |= Due::READ;
            }
        }
        match sifted {
            Ok(Sifted::All) if has_ended && left > 0 => {
                due |= self.filter_failed(&io::ErrorKind::UnexpectedEof.into(), Side::Input);
            }
            Ok(Sifted::All) => {
                if has_ended && !self.is_freed() {
                    self.set(State::EOF, true);
                    due |= Due::READ_EOF;
                }
            }
            Ok(Sifted::NoRoom) => {
                self.set(State::STUCK, true);
                self.with_layer(|layer| layer.flush_in = layer.flush_in.max(asked));
            }
            Err(error) => due |= self.filter_failed(&error, Side::Input),
        }
        if !below.is_freed() && !below.has(State::IN_STEP) {
            below.settle_input();
            below.input_changed();
        }
        due
    }

    fn filter_failed(&self, error: &io::Error, side: Side) -> Due {
        let (enabled, due) = match side {
            Side::Input => (State::READ_ENABLED, Due::READ_ERROR),
            Side::Output => (State::WRITE_ENABLED, Due::WRITE_ERROR),
        };
        if !self.is_freed() {
            self.set(enabled, false);
            self.set_cause(Cause::of(error));
        }
        due
    }

    // Down.

    /// Takes output through the filter and sends it, until there is none, or the streams below take no more.
    pub(super) fn drain_filtered(self: &Rc<Self>) -> Due {
        let Some(below) = self.below() else { return Due::empty() };
        let mut due = Due::empty();
        let mut moved = 0;
        // Of the bytes that went in and those that came out, the more; a filter may make many out of few.
        let mut budget = self.write_budget();
        if self.has(State::LIMITED) {
            budget = budget.min(self.quota(Side::Output));
        }
        let is_nested = below.has(State::IN_STEP);
        // What is put into it is sent here, not by the flush list.
        let step = InStep::enter(&below);
        loop {
            let mode = self.flush_out();
            let is_idle = !self.has_output() && mode == FlushMode::Normal && !self.has(State::STUCK_OUT);
            if is_idle || budget == 0 || !self.may_write() || below.is_freed() {
                break;
            }
            let room = below.room_for_output().min(budget);
            if room == 0 {
                self.set(State::BLOCKED, true);
                break;
            }
            self.set(State::STUCK_OUT | State::NEEDED_OUT, false);
            let mut output = self.borrow(Side::Output);
            let before = output.len();
            let mut to = below.borrow(Side::Output);
            let held = to.len();
            if held == 0 {
                below.touch_write();
            }
            let sifted = self.sift(Side::Output, &mut output, &mut to, room, mode);
            let given = to.len().saturating_sub(held);
            drop(to);
            let left = output.len();
            drop(output);
            let taken = before.saturating_sub(left);
            moved += taken;
            budget = budget.saturating_sub(given.max(taken));
            below.output_changed();
            let sent = below.drain_out();
            let failure = self.share_failure(&below, sent);
            due |= failure;
            let is_all = match sifted {
                Ok(Sifted::NoRoom) => {
                    self.set(State::STUCK_OUT, true);
                    false
                }
                Ok(Sifted::All) => {
                    due |= self.flushed_through(&below, mode, left);
                    true
                }
                Err(error) => {
                    due |= self.filter_failed(&error, Side::Output);
                    true
                }
            };
            if !failure.is_empty() || is_all {
                // What the filter leaves waits for more, which it may have written itself.
                let waits = left > 0 && self.len(Side::Output) == left;
                self.set(State::NEEDED_OUT, waits && is_all);
                self.set(State::BLOCKED, waits && self.flush_out() == FlushMode::Normal);
                break;
            }
        }
        drop(step);
        if self.has(State::LIMITED) {
            self.charge(Side::Output, moved, budget == 0 && self.has_output());
        }
        if !is_nested && !below.is_freed() {
            below.after_step();
        }
        due | self.note_moved(moved)
    }

    /// The filter has taken all it can in this mode, and left so many bytes.
    fn flushed_through(&self, below: &Rc<Inner>, mode: FlushMode, left: usize) -> Due {
        if mode == FlushMode::Normal || self.is_freed() {
            return Due::empty();
        }
        let is_done = self.with_layer(|layer| {
            let is_done = layer.flush_out == mode;
            if is_done {
                layer.flush_out = FlushMode::Normal;
            }
            is_done
        });
        self.set(State::FLUSHES, is_done != Some(true));
        if mode == FlushMode::Finished {
            if left > 0 {
                return self.filter_failed(&io::ErrorKind::WriteZero.into(), Side::Output);
            }
            self.set(State::FINISHED, true);
        }
        below.ask_flush(mode);
        let sent = below.drain_out();
        self.share_failure(below, sent)
    }

    /// So many bytes have left this layer: who is to be told of what the layers hold now?
    fn note_moved(&self, moved: usize) -> Due {
        let mut due = Due::empty();
        if self.is_freed() {
            return due;
        }
        if moved > 0 {
            self.touch_write();
            self.set(State::SENT_BELOW, true);
        }
        let own = self.len(Side::Output);
        if self.has(State::OVERFULL) {
            self.set(State::OVERFULL, self.is_over_full(own));
        }
        let left = own + self.unsent_below();
        if self.has(State::SENT_BELOW) && left <= self.rare(0, |rare| rare.write_low) {
            self.set(State::SENT_BELOW, false);
            due |= Due::WRITE;
        }
        if self.has(State::NO_ROOM) && self.finds_room(left) {
            due |= Due::ROOM;
        }
        due
    }

    /// Runs the filter until it has taken all it can, or `room` is used up.
    fn sift(
        &self,
        side: Side,
        from: &mut Buffer,
        to: &mut Buffer,
        mut room: usize,
        mode: FlushMode,
    ) -> io::Result<Sifted> {
        let Some(mut filter) = self.with_layer(|layer| layer.filter.take()).flatten() else {
            return Ok(Sifted::All);
        };
        let sifted = loop {
            if room == 0 {
                break Ok(Sifted::NoRoom);
            }
            let (had, held) = (from.len(), to.len());
            let result = match side {
                Side::Input => filter.input(from, to, room, mode),
                Side::Output => filter.output(from, to, room, mode),
            };
            let given = to.len().saturating_sub(held);
            let is_idle = given == 0 && from.len() >= had;
            room = room.saturating_sub(given);
            match result {
                Err(error) => break Err(error),
                Ok(Filtered::NeedMore) => break Ok(Sifted::All),
                Ok(Filtered::Done) if is_idle || self.is_freed() => break Ok(Sifted::All),
                Ok(Filtered::Done) if room > 0 && from.is_empty() && mode == FlushMode::Normal => {
                    break Ok(Sifted::All);
                }
                Ok(Filtered::Done) => {}
            }
        };
        if self.is_freed() {
            drop(filter);
        } else {
            self.with_layer(|layer| layer.filter = Some(filter));
        }
        sifted
    }

    // Together.

    /// What is to go on later, in a layer's own time.
    pub(super) fn wake_filter(self: &Rc<Self>) {
        if self.has(State::STUCK) && self.may_read() {
            self.raise(Due::AGAIN);
        }
        if self.has(State::FLUSHES | State::STUCK_OUT) && self.may_write() && !self.has(State::BLOCKED) {
            self.push_unflushed();
        }
    }

    /// The stream below reads while this one may.
    pub(super) fn hold_below(&self, holds: bool) {
        let Some(below) = self.below() else { return };
        if below.has(State::HELD_BACK) != holds {
            below.set(State::HELD_BACK, holds);
            if holds && !below.has(State::IN_STEP) {
                below.update();
            } else {
                below.input_changed();
            }
        }
    }

    /// This stream was freed: the one above it learns that it stands on nothing.
    pub(super) fn leave_above(&self) {
        let Some(above) = self.above() else { return };
        above.set(State::READ_ENABLED | State::WRITE_ENABLED, false);
        above.fail(Cause::Lost, Due::ERROR);
        above.update();
    }
}
