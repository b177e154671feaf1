//! One turn of the loop: hand over, wait, collect, run, flush.

use std::cell::Cell;
use std::time::Duration;

use bitflags::bitflags;

use crate::clock::Time;
use crate::error::Error;
use crate::interest::{Ready, What};
use crate::queue::Activation;
use crate::reactor::{
    Callback, Core, EventId, Flags, Kind, Lent, LoopHandle, Slot, TokenHandler, Uses, When,
};
use crate::remote::MESSAGES_PER_TURN;
use crate::slots::Key;
use crate::sys::WAKE_TAG;

/// Streams that others wrote to are flushed at least every so many callbacks, so that a long batch does not hold them.
pub(super) const CALLBACKS_PER_FLUSH: usize = 32;

bitflags! {
    /// How `run` runs: libevent's `EVLOOP_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LoopFlags: u8 {
        /// Ends after a turn in which a user callback ran, or a buffered read, write, flush or accept completed.
        #[doc(alias = "EVLOOP_ONCE")]
        const ONCE = 0x01;
        /// Does not wait: runs what is ready now and ends.
        #[doc(alias = "EVLOOP_NONBLOCK")]
        const NONBLOCK = 0x02;
        /// Waits on although nothing is added: other threads may still send something.
        #[doc(alias = "EVLOOP_NO_EXIT_ON_EMPTY")]
        const NO_EXIT_ON_EMPTY = 0x04;
    }
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopEnd {
    /// `loopbreak` was called.
    Break,
    /// Nothing is left that keeps the loop running.
    Empty,
    /// `loopexit` was called.
    Exit,
    /// A turn has been run, as `ONCE` or `NONBLOCK` asked.
    Once,
}

/// Puts things right when `run` is left, also by a panic in a callback.
struct Running<'a>(&'a LoopHandle);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.reactor.running.set(false);
        self.0.callback_ended();
        self.0.reactor.waiting.set(false);
        self.0.reactor.running_event.set(EventId::NOBODY);
    }
}

/// Frees the event whose callback panics, unless that is the loop's own slot for other threads: a panic in what one of
/// them posted must not silence the others.
struct FreeOnPanic<'a> {
    handle: &'a LoopHandle,
    key: Key,
    armed: bool,
}

impl Drop for FreeOnPanic<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.handle.end(self.key);
        }
    }
}

/// Puts the handler of all tokens back, also when it has panicked: it is not that event's alone.
struct OnLoan<'a> {
    place: &'a Cell<Option<Box<TokenHandler>>>,
    handler: Option<Box<TokenHandler>>,
}

impl Drop for OnLoan<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(newer) = self.place.replace(self.handler.take()) {
            keep_newer(self.place, newer);
        }
    }
}

/// It was set while the other one ran, which goes.
#[cold]
#[inline(never)]
fn keep_newer(place: &Cell<Option<Box<TokenHandler>>>, newer: Box<TokenHandler>) {
    let older = place.replace(Some(newer));
    drop(older);
}

impl LoopHandle {
    /// Frees the event whose callback has panicked.
    #[cold]
    pub(super) fn end(&self, key: Key) {
        match self.remove_slot(key) {
            Some(Slot { callback: Callback::Source(source), .. }) => source.teardown(),
            slot => drop(slot),
        }
    }

    pub(crate) fn run(&self, lent: &mut Lent, flags: LoopFlags) -> Result<LoopEnd, Error> {
        self.check()?;
        let reactor = &self.reactor;
        reactor.got_exit.set(false);
        reactor.got_break.set(false);
        reactor.running.set(true);
        reactor.now.set(Time::NEVER);
        let _running = Running(self);
        // What a panic in the wait hook has left, or a stop that another thread asked for.
        reactor.core.borrow_mut().queue_rest(&*reactor.sys);
        // A stop that another thread asked for before the loop ran.
        self.take_remote_stops();
        let end = self.turns(lent, flags)?;
        reactor.got_exit.set(end == LoopEnd::Exit);
        reactor.got_break.set(end == LoopEnd::Break);
        Ok(end)
    }

    fn turns(&self, lent: &mut Lent, flags: LoopFlags) -> Result<LoopEnd, Error> {
        let reactor = &*self.reactor;
        let may_be_short = !flags.intersects(LoopFlags::ONCE | LoopFlags::NONBLOCK);
        loop {
            if self.is_stopped() {
                return Ok(self.broken_off());
            }
            let mut work = self.hand_over();
            if !work && self.is_empty(flags) {
                return Ok(LoopEnd::Empty);
            }
            if reactor.extras.has(Uses::PREPARE) {
                self.run_watchers(When::Prepare, self.next_wait(work || self.must_not_wait(flags)));
                if self.is_stopped() {
                    continue;
                }
                // What they asked for counts for this very wait.
                work = self.hand_over();
                if !work && self.is_empty(flags) {
                    return Ok(LoopEnd::Empty);
                }
            }
            reactor.progress.set(false);
            reactor.message_budget.set(MESSAGES_PER_TURN);
            let is_short =
                !work && may_be_short && !reactor.extras.has(Uses::LONG_TURN) && self.short_turns(lent)?;
            if !is_short {
                self.wait(work || self.must_not_wait(flags))?;
                self.batch(lent);
            }
            if self.is_stopped() {
                return Ok(self.broken_off());
            }
            if reactor.extras.has(Uses::EXIT) {
                reactor.extras.set(Uses::EXIT, false);
                self.flush_all();
                return Ok(LoopEnd::Exit);
            }
            if flags.contains(LoopFlags::ONCE) && reactor.progress.get() {
                return Ok(LoopEnd::Once);
            }
            if flags.contains(LoopFlags::NONBLOCK) && !self.has_active() {
                return Ok(LoopEnd::Once);
            }
        }
    }

    #[cold]
    fn broken_off(&self) -> LoopEnd {
        // An exit that came with it is seen, too.
        self.reactor.extras.set(Uses::EXIT | Uses::STOP, false);
        self.flush_all();
        LoopEnd::Break
    }

    /// Writes what was written outside of the loop or is left over from the last turn, and tells the kernel what is
    /// wanted by now. Tells whether anything is to be done without waiting.
    #[inline]
    fn hand_over(&self) -> bool {
        self.flush_all();
        let (is_dirty, is_queued) = {
            let core = self.reactor.core.borrow();
            (!core.dirty.is_empty(), core.has_queued())
        };
        if is_dirty {
            self.apply_dirty();
            return self.has_work();
        }
        is_queued || self.has_unflushed() || self.reactor.shared.has_ops()
    }

    /// Whether nothing keeps the loop running.
    fn is_empty(&self, flags: LoopFlags) -> bool {
        self.reactor.keep.get() == 0
            && !self.reactor.extras.has(Uses::EXIT)
            && !flags.contains(LoopFlags::NO_EXIT_ON_EMPTY)
    }

    fn must_not_wait(&self, flags: LoopFlags) -> bool {
        self.reactor.extras.has(Uses::EXIT) || flags.contains(LoopFlags::NONBLOCK)
    }

    /// How long the loop may wait, as it stands.
    fn next_wait(&self, nonblock: bool) -> Option<Duration> {
        if nonblock {
            return Some(Duration::ZERO);
        }
        let mut core = self.reactor.core.borrow_mut();
        core.heap.keep_promises(|| self.clock());
        core.heap.first().map(|deadline| deadline.since(self.clock()))
    }

    /// Whether anything is to be done without waiting.
    #[cold]
    fn has_work(&self) -> bool {
        let queued = self.reactor.core.borrow().has_queued();
        queued || self.has_unflushed() || self.reactor.shared.has_ops()
    }

    fn has_active(&self) -> bool {
        !self.reactor.core.borrow().queues.is_empty()
    }

    /// Steps 3 to 5 of a turn: wait, read the clock, collect what is ready and then what is due.
    #[inline]
    fn wait(&self, nonblock: bool) -> Result<(), Error> {
        let reactor = &*self.reactor;
        let (mut reports, first) = {
            let core = &mut *reactor.core.borrow_mut();
            core.heap.callback_ended(|| reactor.sys.now());
            if !core.later.is_empty() {
                core.move_later();
            }
            debug_assert!(!core.has_rest(), "a batch that ends early queues them, or the loop ends");
            (std::mem::take(&mut core.reports), core.heap.first())
        };
        let hook = reactor.wait_hook.borrow().clone();
        reactor.waiting.set(true);
        let timeout = match &hook {
            None if nonblock => Some(Duration::ZERO),
            None => first.map(|deadline| deadline.since(self.clock())),
            Some(hook) => {
                (hook.before)();
                // Only now: the hook may have taken long, or have let somebody in who left work.
                self.next_wait(nonblock || self.has_work())
            }
        };
        let start = self.wait_starts();
        let waited = reactor.sys.wait(&mut reports, timeout);
        // The backend puts it first.
        let is_woken = reports.first().is_some_and(|reported| reported.tag() == WAKE_TAG);
        {
            // Kept where a panic in the hook cannot lose them.
            let core = &mut *reactor.core.borrow_mut();
            core.reports = reports;
            core.reported = 0;
        }
        if let Some(hook) = hook {
            (hook.after)();
        }
        reactor.waiting.set(false);
        reactor.now.set(Time::NEVER);
        self.wait_ended(start);
        self.after_wait(waited, is_woken)
    }

    /// Collects what there is to run, after a wait.
    pub(super) fn after_wait(&self, waited: std::io::Result<()>, is_woken: bool) -> Result<(), Error> {
        let reactor = &*self.reactor;
        if is_woken {
            self.woken();
        } else if reactor.shared.has_ops() {
            self.activate_remote();
        }
        self.collect();
        if reactor.extras.has(Uses::CHECK) {
            // Everything is queued by now: a panic there loses nothing.
            self.run_watchers(When::Check, None);
        }
        waited.map_err(Error::from)
    }

    /// Finds what is due, and queues what is ready and then what is due unless the short way will do.
    #[inline]
    fn collect(&self) {
        let reactor = &*self.reactor;
        let core = &mut *reactor.core.borrow_mut();
        let is_due = match core.heap.first() {
            Some(deadline) => deadline <= self.turn_time(),
            None => false,
        };
        let mut is_long =
            !core.queues.is_empty() || core.queues.priorities() > 1 || reactor.extras.has(Uses::LONG_WAY);
        if is_due {
            is_long |= !core.take_due(reactor.now.get());
        }
        if is_long {
            core.queue_rest(&*reactor.sys);
        }
    }

    /// Ends the events whose fd is gone.
    #[cold]
    fn lose_lost(&self) {
        let lost = std::mem::take(&mut self.reactor.core.borrow_mut().lost);
        for key in lost {
            self.lose(key);
        }
    }

    /// Takes the wake-up back and queues what it was for: signals, stops, other threads' requests.
    #[cold]
    fn woken(&self) {
        let reactor = &self.reactor;
        reactor.shared.clear_wake();
        let mut signals = Vec::new();
        reactor.sys.take_signals(&mut signals);
        {
            let mut core = reactor.core.borrow_mut();
            for (signal, deliveries) in signals {
                core.deliver(signal, deliveries);
            }
        }
        self.take_remote_stops();
        self.activate_remote();
    }

    fn take_remote_stops(&self) {
        let taken = self.reactor.shared.take_stops();
        if taken.exit {
            self.exit();
        }
        if taken.stop {
            self.stop();
        }
    }

    #[cold]
    fn activate_remote(&self) {
        if let Some(id) = self.reactor.remote_slot.get()
            && self.reactor.shared.has_ops()
        {
            self.reactor.core.borrow_mut().activate(id.0, Ready::empty(), 0);
        }
    }

    /// Step 6 to 8: runs the most urgent queue, in order, until it is empty, something more urgent turns up, or the
    /// loop is to stop.
    pub(super) fn batch(&self, lent: &mut Lent) {
        self.begin_batch();
        let is_direct = self.reactor.core.borrow().has_rest() && !self.is_stopped();
        if is_direct { self.run_direct(lent) } else { self.batch_queued(lent, 0, false) }
    }

    /// The batch after so many callbacks on the short way.
    pub(super) fn batch_queued(&self, lent: &mut Lent, mut callbacks: usize, is_over: bool) {
        let reactor = &*self.reactor;
        // The queue that this batch is of, once a callback of it has run.
        let mut chosen = (callbacks > 0).then_some(0);
        loop {
            let (is_empty, has_lost) = {
                let core = reactor.core.borrow();
                (core.queues.is_empty(), !core.lost.is_empty())
            };
            if has_lost {
                self.lose_lost();
            }
            if is_empty || is_over || self.is_stopped() {
                break;
            }
            let next = reactor.core.borrow_mut().next(self, chosen);
            let Some((urgent, next)) = next else { break };
            let ran = self.run_one(lent, next);
            if reactor.extras.has(Uses::LONG_WAY) && self.after_one(urgent, callbacks + usize::from(ran)) {
                break;
            }
            if ran {
                chosen = Some(urgent);
                callbacks += 1;
                if callbacks.is_multiple_of(CALLBACKS_PER_FLUSH) {
                    self.flush_all();
                }
            }
        }
        self.flush_all();
    }

    /// Runs one activation; tells whether it was somebody's callback. What other threads ask for is not: it must not
    /// hold up the less urgent events that it is for.
    fn run_one(&self, lent: &mut Lent, run: Run) -> bool {
        let Run { key, callback, kind, ready, deliveries } = run;
        let id = EventId(key);
        // The slot for other threads is the loop's own: nobody may get hold of its id and free it.
        self.reactor.running_event.set(if kind == Kind::Remote { EventId::NOBODY } else { id });
        lent.set_id(id);
        if self.reactor.extras.has(Uses::MARKS | Uses::MEASURE) {
            self.before_one(key, kind);
        }
        // Disarmed by hand: the loop may be run by a Drop while its thread unwinds already.
        let mut guard = FreeOnPanic { handle: self, key, armed: kind != Kind::Remote };
        match callback {
            Callback::Source(source) => source.ready(self, ready),
            Callback::Token(token) => self.call_token(id, token, ready, deliveries),
            Callback::User(mut cb) => {
                // A mailbox says so itself, for it may find no message.
                if kind != Kind::Mailbox {
                    self.note_progress();
                }
                let left = if kind == Kind::Signal {
                    self.repeat(key, deliveries, |times| cb(lent, ready, times))
                } else {
                    cb(lent, ready, deliveries.into());
                    0
                };
                let unwanted = self.put_back(key, cb);
                drop(unwanted);
                if left > 0 {
                    // For the next dispatch after a break, or for the callback that has taken the place of this one.
                    self.reactor.core.borrow_mut().activate(key, Ready::SIGNAL, 0);
                }
            }
            Callback::Empty if kind == Kind::Remote => self.run_remote(),
            Callback::Empty => {}
        }
        guard.armed = false;
        drop(guard);
        self.reactor.running_event.set(EventId::NOBODY);
        kind != Kind::Remote
    }

    #[inline]
    pub(super) fn call_token(&self, id: EventId, token: usize, ready: Ready, deliveries: u16) {
        let place = &self.reactor.token_handler;
        let Some(handler) = place.take() else { return };
        self.note_progress();
        let on_loan = OnLoan { place, handler: Some(handler) };
        if let Some(handler) = &on_loan.handler {
            handler(self, id, token, ready, deliveries.into());
        }
    }

    /// Calls once for each delivery of a signal. Returns how many are left after a break, or when the callback was
    /// replaced. What is still to be told is kept in the slot, where deleting the event clears it.
    fn repeat(&self, key: Key, deliveries: u16, mut call: impl FnMut(u32)) -> u16 {
        let mut left = deliveries;
        loop {
            if let Some(slot) = self.reactor.core.borrow_mut().slots.get_mut(key) {
                slot.deliveries = left - 1;
            }
            call(deliveries.into());
            self.callback_ended();
            left = self.reactor.core.borrow().slots.get(key).map_or(0, |slot| slot.deliveries);
            if left == 0 || self.is_stopped() || !self.is_on_loan(key) {
                return left;
            }
        }
    }

    /// Whether the event still has the callback that is running, and no other.
    fn is_on_loan(&self, key: Key) -> bool {
        matches!(self.reactor.core.borrow().slots.get(key), Some(Slot { callback: Callback::Empty, .. }))
    }

    /// Returns what is not put back: the event was freed, or has another callback now.
    pub(super) fn put_back(
        &self,
        key: Key,
        cb: super::slot::BoxedCallback,
    ) -> Option<(Option<Slot>, Callback)> {
        let mut core = self.reactor.core.borrow_mut();
        let Some(slot) = core.slots.get_mut(key) else { return Some((None, Callback::User(cb))) };
        if slot.flags.contains(Flags::FREE_AFTER) {
            drop(core);
            return Some((self.remove_slot(key), Callback::User(cb)));
        }
        if matches!(slot.callback, Callback::Empty) {
            slot.callback = Callback::User(cb);
            return None;
        }
        Some((None, Callback::User(cb)))
    }

    /// Runs what other threads asked for, within the turn's budget.
    fn run_remote(&self) {
        self.run_taken();
        if self.reactor.shared.has_ops()
            && let Some(id) = self.reactor.remote_slot.get()
        {
            self.activate_internal(id);
        }
    }
}

/// An activation whose time has come, with the callback on loan.
struct Run {
    key: Key,
    callback: Callback,
    kind: Kind,
    ready: Ready,
    deliveries: u16,
}

impl Core {
    /// Whether anything is queued, for this turn or the next, or an event is to be told that its fd is gone.
    #[inline]
    pub(super) fn has_queued(&self) -> bool {
        !self.queues.is_empty() || self.later_live > 0 || !self.lost.is_empty()
    }

    /// Whether an activation is queued for this turn, and was not taken back.
    pub(super) fn is_any_active(&self) -> bool {
        let counts = |slot: &Slot, seq| slot.flags.contains(Flags::QUEUED) && slot.seq == seq;
        let mut all = self.queues.iter();
        all.any(|activation| self.slots.get(activation.key).is_some_and(|slot| counts(slot, activation.seq)))
    }

    /// The next activation to run, and its priority: of the most urgent queue that holds one, unless a batch is under
    /// way that is of another.
    fn next(&mut self, handle: &LoopHandle, chosen: Option<usize>) -> Option<(usize, Run)> {
        self.heap.callback_ended(|| handle.clock());
        loop {
            let urgent = self.queues.most_urgent()?;
            if chosen.is_some_and(|of| of != urgent) {
                return None;
            }
            let activation = self.queues.pop(urgent)?;
            if let Some(run) = self.begin(handle, activation) {
                return Some((urgent, run));
            }
        }
    }

    /// An activation is about to run: it is not queued any more, a one-shot event is deleted, a persistent one's timer
    /// starts anew, and the callback is on loan. `None` if it was taken back.
    #[inline]
    fn begin(&mut self, handle: &LoopHandle, activation: Activation) -> Option<Run> {
        let key = activation.key;
        let slot = self.slots.get_mut(key)?;
        if !slot.flags.contains(Flags::QUEUED) || slot.seq != activation.seq {
            return None;
        }
        slot.flags.remove(Flags::QUEUED);
        let ready = std::mem::take(&mut slot.active);
        // Called once by any other reason.
        let deliveries = std::mem::take(&mut slot.deliveries).max(1);
        let kind = slot.kind;
        // What counts by itself counts as before; anything else counted for being queued, perhaps.
        let mut recount = !match slot.callback {
            Callback::Source(_) => slot.flags.contains(Flags::HELD),
            _ => slot.flags.contains(Flags::ADDED) && slot.waits(),
        };
        let callback = match &mut slot.callback {
            Callback::Source(source) => Callback::Source(source.clone()),
            Callback::Token(token) => Callback::Token(*token),
            other => std::mem::take(other),
        };
        if matches!(callback, Callback::Source(_)) {
            // It decides for itself.
        } else if slot.what.contains(What::PERSIST) {
            if let Some(interval) = slot.interval
                && !ready.contains(Ready::TIMEOUT)
                && self.heap.is_armed(key.index)
            {
                self.heap.rearm(key.index, handle.turn_time().after(interval.duration()));
            }
        } else if matches!(kind, Kind::Fd) {
            slot.interval = None;
            self.heap.remove(key.index);
            self.unregister_io(&*handle.reactor.sys, key, true);
            recount = true;
        }
        if recount {
            handle.recount(self, key);
        }
        Some(Run { key, callback, kind, ready, deliveries })
    }
}
