//! Timers that are nothing else: adding and cancelling one looks only at what the heap knows of it.
//!
//! Such a slot is `ALONE`: no fd, not persistent, not queued, not in the background. Whether it is added and keeps the loop running is then what its timer says, and its flags say neither. A
//! slot is about as large as a line of memory, and in a crowd of timers fetching it would cost more than all the rest.
//! Whatever else is asked of the slot calls `settle` first, which puts the flags right.

use crate::common_timeout::After;
use crate::error::Error;
use crate::reactor::{Callback, Core, EventId, Flags, Kind, LoopHandle, Slot};
use crate::slots::Key;
use crate::sys::Sys;

/// What has become of an attempt to add a timer alone.
#[derive(Clone, Copy, Debug)]
pub(super) enum AddedAlone {
    /// It is added, and the deadlines that are not known are to be set now.
    Last,
    /// It is not one, or there are not so many, and nothing was done.
    No,
    Yes,
}

impl LoopHandle {
    /// Adds an event that is a timer alone, in a callback that has added many.
    #[inline]
    pub(super) fn add_alone(&self, id: EventId, after: After) -> AddedAlone {
        let reactor = &*self.reactor;
        let mut core = reactor.core.borrow_mut();
        if !core.heap.is_sharing() {
            return AddedAlone::No;
        }
        let Some(was_armed) = core.heap.promise_alone(id.0, after) else { return AddedAlone::No };
        if !was_armed {
            reactor.keep.set(reactor.keep.get() + 1);
        }
        if core.heap.is_full() { AddedAlone::Last } else { AddedAlone::Yes }
    }

    /// Adds an event that is a timer alone, by a reading of the clock of its own; `false` if it is not one, and nothing
    /// was done.
    pub(super) fn arm_alone(&self, id: EventId, after: After) -> bool {
        let reactor = &*self.reactor;
        if reactor.waiting.get() {
            return false;
        }
        let mut core = reactor.core.borrow_mut();
        let was_armed = core.heap.arm_alone(id.0, after, || reactor.sys.now());
        if was_armed.is_some() {
            self.note_armed(&mut core);
        }
        if was_armed == Some(false) {
            reactor.keep.set(reactor.keep.get() + 1);
        }
        was_armed.is_some()
    }

    /// Deletes an event that is a timer alone; `false` if it is not one, and nothing was done.
    #[inline]
    pub(super) fn del_alone(&self, id: EventId) -> bool {
        let reactor = &*self.reactor;
        if reactor.waiting.get() {
            return false;
        }
        let was_armed = reactor.core.borrow_mut().heap.remove_alone(id.0);
        if was_armed == Some(true) {
            reactor.keep.set(reactor.keep.get().saturating_sub(1));
        }
        was_armed.is_some()
    }

    /// What a callback adds beyond so many shares readings of the clock. Outside of one nobody knows how long the program
    /// goes on before it runs the loop.
    pub(super) fn note_armed(&self, core: &mut Core) {
        let reactor = &*self.reactor;
        if reactor.running.get() && !reactor.waiting.get() && !core.marks.are_kept() {
            core.heap.armed_one();
        }
    }

    /// A callback has returned: another one of the same event's may follow, or the loop is left.
    pub(crate) fn callback_ended(&self) {
        let reactor = &*self.reactor;
        reactor.core.borrow_mut().heap.callback_ended(|| reactor.sys.now());
    }

    /// Sets the deadlines that timers share a reading of the clock for. To be called before deadlines are asked for.
    #[inline(never)]
    pub(super) fn keep_promises(&self) {
        let reactor = &*self.reactor;
        reactor.core.borrow_mut().heap.keep_promises(|| reactor.sys.now());
    }

    /// The end of an `add` whose timer is the last that shares a reading of the clock. Of its own, so that the others
    /// need few registers.
    #[inline(never)]
    pub(super) fn added_last(&self) -> Result<(), Error> {
        self.keep_promises();
        Ok(())
    }
}

impl Core {
    /// Makes the slot `ALONE` if it is a timer and nothing else.
    pub(super) fn leave_alone(&mut self, key: Key) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let flags = Flags::BACKGROUND | Flags::HELD | Flags::LATER | Flags::QUEUED;
        let is_timer = slot.kind == Kind::Fd && slot.source < 0 && slot.what.is_empty();
        let is_added = slot.flags.contains(Flags::ADDED);
        if self.marks.are_kept() {
            return;
        }
        // Without a timeout it is added all the same, which nothing but the flag tells.
        if !is_timer
            || slot.flags.intersects(flags)
            || matches!(slot.callback, Callback::Source(_))
            || is_added != self.heap.is_armed(key.index)
        {
            return;
        }
        slot.flags.remove(Flags::ADDED | Flags::COUNTED);
        slot.flags.insert(Flags::ALONE);
        self.heap.set_alone(key.index, Some(key.generation));
    }

    /// A slot that may be `ALONE`, and whose timer may be due, becomes like any other: what is due is queued.
    #[inline]
    pub(super) fn settle_and_queue(&mut self, sys: &dyn Sys, key: Key) {
        if self.has_rest() && self.heap.is_due(key.index) {
            self.queue_rest(sys);
        }
        self.settle(key);
    }

    /// A slot that may be `ALONE` becomes like any other. If its timer is due it is left so, or is taken back.
    #[inline]
    pub(super) fn settle(&mut self, key: Key) {
        if let Some(slot) = self.slots.get_mut(key)
            && slot.flags.contains(Flags::ALONE)
        {
            slot.flags.remove(Flags::ALONE);
            self.heap.set_alone(key.index, None);
            if self.heap.is_armed(key.index) {
                slot.flags.insert(Flags::ADDED | Flags::COUNTED);
            }
        }
    }

    /// No slot is `ALONE` any more.
    pub(super) fn settle_all(&mut self) {
        for key in self.slots.keys() {
            self.settle(key);
        }
    }
}

impl Slot {
    /// Its timer has just been disarmed, but the slot is still added. Tells whether it was `ALONE`.
    #[inline]
    pub(super) fn settle_due(&mut self) -> bool {
        let was_alone = self.flags.contains(Flags::ALONE);
        if was_alone {
            self.flags.remove(Flags::ALONE);
            self.flags.insert(Flags::ADDED | Flags::COUNTED);
        }
        was_alone
    }
}
