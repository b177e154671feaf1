//! Timers that are nothing else: adding and cancelling one looks only at what the heap knows of it.
//!
//! Such a slot is `ALONE`: no fd, not persistent, not queued, not in the background, its timer in no queue of a common
//! duration. Whether it is added and keeps the loop running is then what its timer says, and its flags say neither. A
//! slot is about as large as a line of memory, and in a crowd of timers fetching it would cost more than all the rest.
//! Whatever else is asked of the slot calls `settle` first, which puts the flags right.

use std::time::Duration;

use crate::reactor::{Callback, Core, EventId, Flags, Kind, LoopHandle, Slot};
use crate::slots::Key;

impl LoopHandle {
    /// Adds an event that is a timer alone; `false` if it is not one, and nothing was done.
    #[inline]
    pub(super) fn add_alone(&self, id: EventId, after: Duration) -> bool {
        let reactor = &*self.reactor;
        let mut core = reactor.core.borrow_mut();
        if reactor.waiting.get() || core.marks.are_kept() || !core.heap.is_alone(id.0) {
            return false;
        }
        if !self.set_timer(&mut core, id.0.index, after) {
            reactor.keep.set(reactor.keep.get() + 1);
        }
        true
    }

    /// Deletes an event that is a timer alone; `false` if it is not one, and nothing was done.
    #[inline]
    pub(super) fn del_alone(&self, id: EventId) -> bool {
        let reactor = &*self.reactor;
        let mut core = reactor.core.borrow_mut();
        if reactor.waiting.get() || core.marks.are_kept() || !core.heap.is_alone(id.0) {
            return false;
        }
        if core.heap.remove(id.0.index) {
            reactor.keep.set(reactor.keep.get().saturating_sub(1));
        }
        true
    }

    /// Arms a slot's timer by itself, counted from now; tells whether it was armed. It may not stand in a queue of a
    /// common duration.
    #[inline]
    fn set_timer(&self, core: &mut Core, slot: u32, after: Duration) -> bool {
        let reactor = &*self.reactor;
        if reactor.running.get() && !reactor.waiting.get() {
            return core.heap.set_in_callback(slot, after, || reactor.sys.now());
        }
        // Nobody knows how long the program goes on before it runs the loop.
        core.heap.keep_promises(|| reactor.sys.now());
        let was_armed = core.heap.is_armed(slot);
        core.heap.set(slot, reactor.sys.now().after(after));
        was_armed
    }

    /// The loop is left: nothing of a callback goes on.
    pub(super) fn callback_ended(&self) {
        let reactor = &*self.reactor;
        reactor.core.borrow_mut().heap.callback_ended(|| reactor.sys.now());
    }

    /// Sets the deadlines that timers share a reading of the clock for. To be called before deadlines are asked for.
    pub(super) fn keep_promises(&self) {
        let reactor = &*self.reactor;
        reactor.core.borrow_mut().heap.keep_promises(|| reactor.sys.now());
    }
}

impl Core {
    /// Makes the slot `ALONE` if it is a timer and nothing else.
    pub(super) fn leave_alone(&mut self, key: Key) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let flags = Flags::BACKGROUND | Flags::HELD | Flags::LATER | Flags::QUEUED;
        let is_timer = slot.kind == Kind::Fd && slot.source < 0 && slot.what.is_empty();
        let is_added = slot.flags.contains(Flags::ADDED);
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

    /// A slot that may be `ALONE` becomes like any other.
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
}

impl Slot {
    /// Its timer was `ALONE`, perhaps, and has just been disarmed, but the slot is still added.
    #[inline]
    pub(super) fn settle_due(&mut self) {
        if self.flags.contains(Flags::ALONE) {
            self.flags.remove(Flags::ALONE);
            self.flags.insert(Flags::ADDED | Flags::COUNTED);
        }
    }
}
