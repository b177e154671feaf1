//! What an event can be told: add, delete, free, activate. Everything by id, everything legal in every callback.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::clock::Time;
use crate::common_timeout::{After, Timers};
use crate::error::Error;
use crate::interest::{Ready, What};
use crate::reactor::slot::Interval;
use crate::reactor::timers::AddedAlone;
use crate::reactor::{Callback, Core, EventId, Flags, Kind, Lent, LoopHandle, Reactor, Slot};
use crate::slots::Key;
use crate::sys::Sys;

impl LoopHandle {
    /// Adds an event: it is watched from here on, once or, with `PERSIST`, until it is deleted.
    ///
    /// With a timeout the event also fires when that much time passes without it; the timeout counts from this call and
    /// replaces an earlier one. It is never early. Of the timers that one callback adds, those beyond the sixteenth may count
    /// from a little later: up to eight share a reading of the clock, made when the eighth is added, when a deadline is asked
    /// for, or when the callback returns. An activation that is queued only because the old timeout passed is taken back. With
    /// `None` a timeout that is armed stays. Adding twice is harmless. O(1), and with a timeout O(log n) over the life of it.
    ///
    /// # Errors
    /// - `Error::Stale` if the event was freed.
    /// - `Error::Invalid` if the id is that of a stream or listener.
    /// - `Error::Io` with the kernel's errno if it refuses the fd: `EPERM` for a regular file on epoll, `EBADF` for one
    ///   that is not open, `EINVAL` for a signal that does not exist.
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "event_add")]
    pub fn add(&self, id: EventId, timeout: Option<Duration>) -> Result<(), Error> {
        self.check()?;
        let Some(after) = timeout else { return self.add_any(id, None) };
        match self.add_alone(id, After::Duration(after)) {
            AddedAlone::Last => self.added_last(),
            AddedAlone::No => self.add_any(id, timeout),
            AddedAlone::Yes => Ok(()),
        }
    }

    /// Of its own, so that what `add` does for a timer needs few registers.
    #[inline(never)]
    fn add_any(&self, id: EventId, timeout: Option<Duration>) -> Result<(), Error> {
        if timeout.is_some_and(|after| self.arm_alone(id, After::Duration(after))) {
            return Ok(());
        }
        self.add_with(id, timeout, |timers, clock, timeout| timers.set(id.0.index, clock.after(timeout)))?;
        let mut core = self.reactor.core.borrow_mut();
        core.leave_alone(id.0);
        if timeout.is_some() {
            self.note_armed(&mut core);
        }
        Ok(())
    }

    /// Like `add`; `arm` sets the event's timer.
    #[inline]
    pub(super) fn add_with(
        &self,
        id: EventId,
        timeout: Option<Duration>,
        arm: impl FnOnce(&mut Timers, Time, Duration),
    ) -> Result<(), Error> {
        self.check()?;
        let mut lost = Vec::new();
        let added = {
            let mut core = self.reactor.core.borrow_mut();
            core.settle(id.0);
            let slot = core.programs(id.0)?;
            let added = if slot.flags.contains(Flags::ADDED) {
                Ok(())
            } else {
                core.register(&*self.reactor.sys, id.0, &mut lost)
            };
            if let (Some(timeout), Ok(())) = (timeout, &added) {
                let core = &mut *core;
                let now = self.clock();
                core.heap.keep_promises(|| now);
                arm(&mut core.heap, now, timeout);
                if let Some(slot) = core.slots.get_mut(id.0) {
                    slot.interval = Some(Interval::new(timeout));
                    core.fds.forget_plain(slot.source);
                    if slot.active == Ready::TIMEOUT && slot.flags.contains(Flags::QUEUED) {
                        slot.active = Ready::empty();
                        slot.flags.remove(Flags::QUEUED);
                        core.marks.ran(slot.kind);
                    }
                }
            }
            self.recount(&mut core, id.0);
            added
        };
        for key in lost {
            self.lose(key);
        }
        added?;
        self.touched()
    }

    /// Deletes an event: it is not watched, its timeout is off and a queued activation does not run. It can be added
    /// again. Deleting twice is harmless. O(log n).
    ///
    /// # Errors
    /// - `Error::Stale` if the event was freed.
    /// - `Error::Invalid` if the id is that of a stream or listener.
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "event_del")]
    pub fn del(&self, id: EventId) -> Result<(), Error> {
        self.check()?;
        if self.del_alone(id) {
            return Ok(());
        }
        self.del_any(id)
    }

    #[inline(never)]
    fn del_any(&self, id: EventId) -> Result<(), Error> {
        {
            let mut core = self.reactor.core.borrow_mut();
            core.programs(id.0)?;
            core.unregister(&*self.reactor.sys, id.0, true);
            self.recount(&mut core, id.0);
        }
        self.touched()
    }

    /// Frees an event, or the stream or listener whose id it is (as [`running_event`](Self::running_event) gives it). The
    /// id is stale from here on; its callback is dropped at once, or, if it is running, after it returns. Freeing a stale
    /// id is harmless. O(log n).
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped, and with it the event.
    #[doc(alias = "event_free")]
    pub fn free(&self, id: EventId) -> Result<(), Error> {
        match self.remove_slot(id.0) {
            Some(Slot { callback: Callback::Source(source), .. }) => source.let_go(),
            slot => drop(slot),
        }
        if self.is_gone() { Err(Error::LoopGone) } else { self.touched() }
    }

    /// Queues the event's callback with `ready` as its reasons for the next turn, whether or not it is added. Reasons
    /// asked for before it runs are merged.
    ///
    /// # Errors
    /// - `Error::Stale` if the event was freed.
    /// - `Error::Invalid` if the id is that of a stream or listener.
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "event_active")]
    pub fn activate(&self, id: EventId, ready: Ready) -> Result<(), Error> {
        self.check()?;
        self.reactor.core.borrow_mut().programs(id.0)?;
        self.activate_any(id, ready)
    }

    fn activate_any(&self, id: EventId, ready: Ready) -> Result<(), Error> {
        self.check()?;
        let mut core = self.reactor.core.borrow_mut();
        core.activate_later(&*self.reactor.sys, id.0, ready)?;
        self.recount(&mut core, id.0);
        drop(core);
        self.touched()
    }

    /// Queues the event's callback for the pass that is running, behind what is queued already: libevent's
    /// `event_active`. A callback that activates itself so keeps the loop from looking at anything else.
    ///
    /// # Errors
    /// - `Error::Stale` if the event was freed.
    /// - `Error::Invalid` if the id is that of a stream or listener.
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "event_active")]
    pub fn activate_now(&self, id: EventId, ready: Ready) -> Result<(), Error> {
        self.check()?;
        {
            let mut core = self.reactor.core.borrow_mut();
            core.programs(id.0)?;
            core.queue_rest(&*self.reactor.sys);
            core.activate(id.0, ready, 0);
            self.recount(&mut core, id.0);
        }
        self.touched()
    }

    /// Takes the event's timeout away and leaves the rest as it is.
    ///
    /// # Errors
    /// - `Error::Stale` if the event was freed.
    /// - `Error::Invalid` if the id is that of a stream or listener.
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "event_remove_timer")]
    pub fn remove_timer(&self, id: EventId) -> Result<(), Error> {
        self.check()?;
        let mut core = self.reactor.core.borrow_mut();
        core.settle_and_queue(&*self.reactor.sys, id.0);
        core.programs(id.0)?.interval = None;
        core.heap.remove(id.0.index);
        self.recount(&mut core, id.0);
        drop(core);
        self.touched()
    }

    /// What the event waits for now, and the reasons it is queued with; empty for a stale id.
    #[doc(alias = "event_pending")]
    pub fn pending(&self, id: EventId) -> Ready {
        let core = self.reactor.core.borrow();
        let Some(slot) = core.slots.get(id.0) else { return Ready::empty() };
        let mut pending = Ready::empty();
        if slot.flags.contains(Flags::QUEUED) {
            pending |= slot.active;
        }
        if slot.flags.contains(Flags::LATER) {
            pending |= slot.later;
        }
        if core.heap.is_armed(id.0.index) {
            pending |= Ready::TIMEOUT;
        }
        if slot.flags.contains(Flags::ADDED) {
            pending |= match slot.kind {
                Kind::Signal => Ready::SIGNAL,
                _ => Ready::from_bits_truncate(slot.what.interest().bits()),
            };
        }
        pending
    }

    /// When the event's timeout passes; `None` without one and for a stale id.
    #[doc(alias = "event_pending")]
    pub fn deadline(&self, id: EventId) -> Option<Instant> {
        self.keep_promises();
        let core = self.reactor.core.borrow();
        core.slots.get(id.0)?;
        core.heap.deadline(id.0.index).map(|deadline| self.to_instant(deadline))
    }

    /// Whether the id's object has not been freed.
    pub fn is_alive(&self, id: EventId) -> bool {
        self.reactor.core.borrow().slots.contains(id.0)
    }

    /// Sets an event's priority; 0 is the most urgent.
    ///
    /// # Errors
    /// - `Error::Invalid` if there is no such priority or the event is queued to run.
    /// - `Error::Stale`, `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "event_priority_set")]
    pub fn set_priority(&self, id: EventId, priority: u8) -> Result<(), Error> {
        self.check()?;
        let mut core = self.reactor.core.borrow_mut();
        core.queue_rest(&*self.reactor.sys);
        let priorities = core.queues.priorities();
        let slot = core.slots.get_mut(id.0).ok_or(Error::Stale)?;
        if usize::from(priority) >= priorities {
            return Err(Error::Invalid("there is no such priority"));
        }
        if slot.flags.contains(Flags::QUEUED) {
            return Err(Error::Invalid("the priority of an active event cannot change"));
        }
        slot.priority = priority;
        Ok(())
    }

    /// Whether the event keeps the loop running while it is added. A stop signal or a statistics timer does not want to.
    ///
    /// # Errors
    /// - `Error::Stale`, `Error::LoopGone`, `Error::Forked`.
    pub fn set_background(&self, id: EventId, background: bool) -> Result<(), Error> {
        self.check()?;
        {
            let mut core = self.reactor.core.borrow_mut();
            core.settle_and_queue(&*self.reactor.sys, id.0);
            let slot = core.slots.get_mut(id.0).ok_or(Error::Stale)?;
            slot.flags.set(Flags::BACKGROUND, background);
            self.recount(&mut core, id.0);
        }
        self.touched()
    }

    /// Calls `cb` once, when `fd` is ready for `what` or the timeout passes, whichever is first; there is no object to
    /// keep. With an fd of -1 it is a pure timeout; without a timeout that is the next turn.
    ///
    /// # Errors
    /// - `Error::Invalid` for a persistent event, which would never be freed.
    /// - `Error::Io` as for [`add`](Self::add); `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "event_base_once")]
    pub fn once(
        &self,
        fd: RawFd,
        what: What,
        timeout: Option<Duration>,
        cb: impl FnOnce(Ready) + 'static,
    ) -> Result<(), Error> {
        if what.contains(What::PERSIST) {
            return Err(Error::Invalid("a once event cannot be persistent"));
        }
        let mut cb = Some(cb);
        let callback = move |_: &Lent, ready: Ready, _: u32| {
            if let Some(cb) = cb.take() {
                cb(ready);
            }
        };
        let id = self.insert(Kind::Fd, fd, what, Callback::User(Box::new(callback)))?;
        let nothing_to_wait_for = timeout.is_none() && (fd < 0 || what.interest().is_empty());
        let added =
            if nothing_to_wait_for { self.activate(id, Ready::TIMEOUT) } else { self.add(id, timeout) };
        match added {
            Ok(()) => {
                if let Some(slot) = self.reactor.core.borrow_mut().slots.get_mut(id.0) {
                    slot.flags.insert(Flags::FREE_AFTER);
                }
                Ok(())
            }
            Err(error) => {
                let _ = self.free(id);
                Err(error)
            }
        }
    }

    /// Registers an event without owner object and without closure: the base's token handler is called for it, with
    /// `token`. It lives until [`free`](Self::free) or the end of the loop. `signal` events take a signal number in
    /// `source`, others an fd or -1.
    ///
    /// # Errors
    /// - `Error::Invalid` if there is no such priority; `Error::LoopGone`, `Error::Forked`.
    pub fn register_token(
        &self,
        source: i32,
        signal: bool,
        what: What,
        priority: Option<u8>,
        token: usize,
    ) -> Result<EventId, Error> {
        let kind = if signal { Kind::Signal } else { Kind::Fd };
        let id = self.insert(kind, source, what, Callback::Token(token))?;
        if let Some(priority) = priority
            && let Err(error) = self.set_priority(id, priority)
        {
            let _ = self.free(id);
            return Err(error);
        }
        Ok(id)
    }

    /// Makes a slot with the middle priority. A signal always persists.
    pub(crate) fn insert(
        &self,
        kind: Kind,
        source: i32,
        what: What,
        callback: Callback,
    ) -> Result<EventId, Error> {
        if let Err(error) = self.check() {
            drop(callback);
            return Err(error);
        }
        let mut core = self.reactor.core.borrow_mut();
        let priority = u8::try_from(core.queues.priorities() / 2).unwrap_or(u8::MAX);
        let priority = if core.queues.priorities() == 1 { 0 } else { priority };
        let mut slot = Slot::new(kind, source, what, callback, priority);
        match kind {
            Kind::Signal => slot.what |= What::PERSIST,
            Kind::Mailbox | Kind::Remote => slot.flags.insert(Flags::BACKGROUND),
            Kind::Fd => {}
        }
        let key = core.slots.insert(slot).ok_or(Error::Invalid("too many events"))?;
        core.leave_alone(key);
        Ok(EventId(key))
    }

    /// Takes a slot out, with everything that stands for it elsewhere. The caller drops it with nothing borrowed.
    pub(crate) fn remove_slot(&self, key: Key) -> Option<Slot> {
        let mut core = self.reactor.core.borrow_mut();
        // In the child of a fork the kernel set is the parent's, and is left alone.
        core.unregister(&*self.reactor.sys, key, !self.is_forked());
        let slot = core.slots.remove(key)?;
        if slot.flags.contains(Flags::COUNTED) {
            self.reactor.keep.set(self.reactor.keep.get().saturating_sub(1));
        }
        Some(slot)
    }

    /// Replaces the callback; the old one is dropped, or, if it is running, dropped when it returns.
    pub(crate) fn set_callback(&self, id: EventId, callback: Callback) -> Result<(), Error> {
        let old = {
            let mut core = self.reactor.core.borrow_mut();
            match core.slots.get_mut(id.0) {
                Some(slot) => Ok(std::mem::replace(&mut slot.callback, callback)),
                None => Err(callback),
            }
        };
        match old {
            Ok(old) => drop(old),
            Err(unwanted) => {
                drop(unwanted);
                return Err(if self.is_gone() { Error::LoopGone } else { Error::Stale });
            }
        }
        Ok(())
    }

    /// The kernel closed or reused an event's fd behind our back: the event ends, its id goes stale.
    pub(super) fn lose(&self, key: Key) {
        let source = match self.reactor.core.borrow().slots.get(key) {
            Some(Slot { callback: Callback::Source(source), .. }) => Some(source.clone()),
            _ => None,
        };
        match source {
            Some(source) => source.lost(),
            None => drop(self.remove_slot(key)),
        }
    }

    // What sources use.

    /// Sets what a source's slot watches, adding it to its fd if need be. Widening is handed to the kernel before the
    /// next wait; narrowing not at all until an unwanted report arrives.
    pub(crate) fn set_interest(&self, id: EventId, what: What) {
        let mut core = self.reactor.core.borrow_mut();
        let Some(slot) = core.slots.get(id.0) else { return };
        if slot.what != what {
            // What was reported is held against what was wanted then.
            core.queue_rest(&*self.reactor.sys);
        }
        let Some(slot) = core.slots.get_mut(id.0) else { return };
        slot.what = what;
        let fd = slot.source;
        core.fds.forget_plain(fd);
        core.mark_if_short(fd);
        drop(core);
        let _ = self.touched();
    }

    /// Registers a source's slot with its fd.
    pub(crate) fn add_io(&self, id: EventId) -> Result<(), Error> {
        let mut lost = Vec::new();
        let added = {
            let mut core = self.reactor.core.borrow_mut();
            if !core.slots.contains(id.0) {
                return Err(Error::Stale);
            }
            core.register(&*self.reactor.sys, id.0, &mut lost)
        };
        for key in lost {
            self.lose(key);
        }
        added?;
        self.touched()
    }

    /// Takes a source's slot off its fd, with its timer and whatever is queued, and gives it another (-1 for none), to
    /// be registered by `add_io`.
    pub(crate) fn set_source(&self, id: EventId, fd: RawFd) {
        {
            let mut core = self.reactor.core.borrow_mut();
            core.unregister(&*self.reactor.sys, id.0, !self.is_forked());
            if let Some(slot) = core.slots.get_mut(id.0) {
                slot.source = fd;
                slot.what = What::empty();
            }
            self.recount(&mut core, id.0);
        }
        let _ = self.touched();
    }

    /// Whether a source keeps the loop running.
    pub(crate) fn set_held(&self, id: EventId, held: bool) {
        let mut core = self.reactor.core.borrow_mut();
        let Some(slot) = core.slots.get_mut(id.0) else { return };
        if slot.flags.contains(Flags::HELD) != held {
            slot.flags.set(Flags::HELD, held);
            self.recount(&mut core, id.0);
        }
    }

    /// Arms a source's timer. It may be earlier than the source's true deadline: see `Source::deadline`.
    pub(crate) fn arm(&self, id: EventId, deadline: Time) {
        {
            let mut core = self.reactor.core.borrow_mut();
            if !core.slots.contains(id.0) {
                return;
            }
            if deadline == Time::NEVER {
                core.heap.remove(id.0.index);
            } else {
                core.heap.set(id.0.index, deadline);
            }
        }
        let _ = self.touched();
    }

    /// When a source's timer is armed for.
    pub(crate) fn armed(&self, id: EventId) -> Time {
        self.reactor.core.borrow().heap.deadline(id.0.index).unwrap_or(Time::NEVER)
    }

    /// Queues a source or mailbox for the next turn.
    pub(crate) fn activate_internal(&self, id: EventId) {
        let _ = self.activate_any(id, Ready::empty());
    }

    pub(crate) fn priority(&self, id: EventId) -> u8 {
        self.reactor.core.borrow().slots.get(id.0).map_or(0, |slot| slot.priority)
    }

    /// Recounts whether a slot keeps the loop running.
    pub(super) fn recount(&self, core: &mut Core, key: Key) {
        self.reactor.recount(core, key);
    }

    /// After a change: if the loop is waiting (the wait hook let somebody in), it acts at once.
    pub(super) fn touched(&self) -> Result<(), Error> {
        if self.reactor.waiting.get() {
            self.apply_dirty();
            self.reactor.shared.wake();
        }
        Ok(())
    }

    /// Hands the modified interests to the kernel.
    pub(super) fn apply_dirty(&self) {
        if self.reactor.core.borrow().dirty.is_empty() {
            return;
        }
        let lost = self.reactor.core.borrow_mut().apply_dirty(&*self.reactor.sys);
        for (key, refused) in lost {
            let source = match self.reactor.core.borrow().slots.get(key) {
                Some(Slot { callback: Callback::Source(source), .. }) => Some(source.clone()),
                _ => None,
            };
            match (source, refused) {
                (Some(source), Some(errno)) => source.refused(errno),
                _ => self.lose(key),
            }
        }
    }
}

impl Reactor {
    /// Recounts whether a slot keeps the loop running.
    pub(super) fn recount(&self, core: &mut Core, key: Key) {
        let heap = &core.heap;
        let Some(slot) = core.slots.get_mut(key) else { return };
        let queued = slot.flags.intersects(Flags::QUEUED | Flags::LATER);
        let counts = match slot.callback {
            Callback::Source(_) => slot.flags.contains(Flags::HELD) || queued,
            _ => queued || slot.flags.contains(Flags::ADDED) && slot.waits() || heap.is_armed(key.index),
        } && !slot.flags.contains(Flags::BACKGROUND);
        if slot.flags.contains(Flags::COUNTED) != counts {
            slot.flags.set(Flags::COUNTED, counts);
            let keep = self.keep.get();
            self.keep.set(if counts { keep + 1 } else { keep.saturating_sub(1) });
        }
    }
}

impl Core {
    /// The slot of an event that is the program's to change. What a stream or listener waits for is its own affair.
    fn programs(&mut self, key: Key) -> Result<&mut Slot, Error> {
        match self.slots.get_mut(key) {
            None => Err(Error::Stale),
            Some(Slot { callback: Callback::Source(source), .. }) if !source.is_for_calls() => {
                Err(Error::Invalid("the id is that of a stream or listener, which has calls of its own"))
            }
            Some(slot) => Ok(slot),
        }
    }

    /// Queues an activation for this pass, or merges it into the one that is queued. `deliveries` is how often a signal
    /// came, and 0 for every other reason.
    pub(super) fn activate(&mut self, key: Key, ready: Ready, deliveries: u16) {
        self.settle(key);
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.active |= ready;
        slot.deliveries = slot.deliveries.saturating_add(deliveries);
        if !slot.flags.contains(Flags::QUEUED) {
            slot.flags.insert(Flags::QUEUED);
            slot.seq = self.queues.push(key, slot.priority);
            self.marks.activated(slot.kind);
        }
    }

    fn activate_later(&mut self, sys: &dyn Sys, key: Key, ready: Ready) -> Result<(), Error> {
        self.settle_and_queue(sys, key);
        let slot = self.slots.get_mut(key).ok_or(Error::Stale)?;
        slot.later |= ready;
        if !slot.flags.contains(Flags::LATER) {
            slot.flags.insert(Flags::LATER);
            self.marks.activated(slot.kind);
            self.later.push(key);
            self.later_live += 1;
        }
        Ok(())
    }

    /// Throws out what was taken back. The last entry of an event is the one that counts.
    pub(super) fn sweep_later(&mut self) {
        let mut kept = Vec::with_capacity(self.later_live);
        for key in std::mem::take(&mut self.later).into_iter().rev() {
            if let Some(slot) = self.slots.get_mut(key)
                && slot.flags.contains(Flags::LATER)
            {
                // Seen; an earlier entry of it is passed over.
                slot.flags.remove(Flags::LATER);
                kept.push(key);
            }
        }
        kept.reverse();
        for &key in &kept {
            if let Some(slot) = self.slots.get_mut(key) {
                slot.flags.insert(Flags::LATER);
            }
        }
        debug_assert_eq!(kept.len(), self.later_live);
        self.later = kept;
    }
}
