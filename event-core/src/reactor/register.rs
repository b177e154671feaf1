//! Which events watch which fd or signal, and what the kernel is told of it.

use std::os::fd::RawFd;

use crate::error::Error;
use crate::fdmap::NONE;
use crate::interest::{Interest, Ready, What};
use crate::reactor::{Callback, Core, Flags, Kind, Slot};
use crate::slots::Key;
use crate::sys::Sys;

impl Core {
    /// Registers an event with its fd or signal. Appends the events that turned out to watch an fd that is gone, also
    /// when the newcomer is refused.
    pub(super) fn register(&mut self, sys: &dyn Sys, key: Key, lost: &mut Vec<Key>) -> Result<(), Error> {
        let Some(slot) = self.slots.get(key) else { return Err(Error::Stale) };
        let (kind, source, what) = (slot.kind, slot.source, slot.what);
        match kind {
            Kind::Fd if source >= 0 && (!what.interest().is_empty() || self.is_source(key)) => {
                self.register_fd(sys, key, source, what, lost)?;
            }
            Kind::Signal => self.register_signal(sys, key, source)?,
            _ => {}
        }
        if let Some(slot) = self.slots.get_mut(key) {
            if !slot.flags.contains(Flags::ADDED) {
                self.marks.added();
            }
            slot.flags.insert(Flags::ADDED);
        }
        Ok(())
    }

    fn is_source(&self, key: Key) -> bool {
        matches!(self.slots.get(key), Some(Slot { callback: Callback::Source(_), .. }))
    }

    fn register_fd(
        &mut self,
        sys: &dyn Sys,
        key: Key,
        fd: RawFd,
        what: What,
        lost: &mut Vec<Key>,
    ) -> Result<(), Error> {
        if self.fds.get(fd).is_some_and(|entry| entry.first != NONE) {
            // What was reported is not for the newcomer, nor for one that was taken off and is back.
            self.queue_rest(sys);
        }
        // Only now: the rest may have taken this very fd out of the kernel.
        let known = self.fds.get(fd).copied();
        let any = known.is_some_and(|entry| entry.first != NONE);
        let mut wanted = join(self.union(fd), any, what.interest());
        match known.filter(|entry| entry.first != NONE && !entry.kernel.is_empty()) {
            None if wanted.is_empty() => {}
            // Asked before the table grows to the number, which may be anything.
            None => sys.change(fd, self.fds.tag(fd), Interest::empty(), wanted)?,
            // Always asked, also when nothing changes: the answer tells whether the number still means the same file.
            Some(entry) => match sys.change(fd, entry.tag(fd), entry.kernel, wanted) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EBADF)) => {
                    lost.append(&mut self.detach_all(sys, fd));
                    wanted = what.interest();
                    sys.change(fd, self.fds.tag(fd), Interest::empty(), wanted)?;
                }
                told => told?,
            },
        }
        let entry = self.fds.entry(fd);
        entry.kernel = wanted;
        let next = std::mem::replace(&mut entry.first, key.index);
        if let Some(slot) = self.slots.get_mut(key) {
            slot.next = next;
        }
        Ok(())
    }

    fn register_signal(&mut self, sys: &dyn Sys, key: Key, signal: i32) -> Result<(), Error> {
        if let Some(entry) = self.signals.iter_mut().find(|entry| entry.0 == signal) {
            let next = std::mem::replace(&mut entry.1, key.index);
            if let Some(slot) = self.slots.get_mut(key) {
                slot.next = next;
            }
            return Ok(());
        }
        sys.signal_add(signal)?;
        self.signals.push((signal, key.index));
        if let Some(slot) = self.slots.get_mut(key) {
            slot.next = NONE;
        }
        Ok(())
    }

    /// Deletes an event everywhere but from the slab.
    pub(super) fn unregister(&mut self, sys: &dyn Sys, key: Key, tell_kernel: bool) {
        self.settle(key);
        self.unregister_io(sys, key, tell_kernel);
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.interval = None;
        slot.active = Ready::empty();
        slot.deliveries = 0;
        if slot.flags.contains(Flags::QUEUED) {
            self.marks.ran(slot.kind);
        }
        slot.flags.remove(Flags::QUEUED);
        let later = slot.flags.contains(Flags::LATER);
        slot.flags.remove(Flags::LATER);
        slot.later = Ready::empty();
        self.heap.remove(key.index);
        if later {
            self.marks.ran(slot.kind);
            self.later_live -= 1;
            // Searching for it would make taking back many cost the square of their number.
            if self.later.len() > 2 * self.later_live + 64 {
                self.sweep_later();
            }
        }
    }

    /// Takes an event off its fd or signal.
    pub(super) fn unregister_io(&mut self, sys: &dyn Sys, key: Key, tell_kernel: bool) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if !slot.flags.contains(Flags::ADDED) {
            return;
        }
        slot.flags.remove(Flags::ADDED);
        self.marks.deleted();
        let (kind, source, next) = (slot.kind, slot.source, slot.next);
        match kind {
            Kind::Fd if source >= 0 => {
                let Some(entry) = self.fds.get_mut(source) else { return };
                if !unlink(&mut self.slots, &mut entry.first, key.index, next) {
                    return;
                }
                if entry.first == NONE {
                    if tell_kernel && !entry.kernel.is_empty() {
                        // A refusal means that the kernel has forgotten the fd already.
                        let _ = sys.change(source, entry.tag(source), entry.kernel, Interest::empty());
                    }
                    entry.forget();
                }
            }
            Kind::Signal => {
                let Some(at) = self.signals.iter().position(|entry| entry.0 == source) else { return };
                unlink(&mut self.slots, &mut self.signals[at].1, key.index, next);
                if self.signals[at].1 == NONE {
                    self.signals.swap_remove(at);
                    // Also in the child of a fork: its dispositions are its own, and nothing reaches the parent.
                    sys.signal_del(source);
                }
            }
            _ => {}
        }
    }

    /// What all events of an fd want together. Edge-triggered only if all of them are.
    pub(super) fn union(&self, fd: RawFd) -> Interest {
        let mut union = Interest::empty();
        let mut any = false;
        for key in self.watchers(fd) {
            if let Some(slot) = self.slots.get(key) {
                union = join(union, any, slot.wanted());
                any = true;
            }
        }
        union
    }

    /// The events of an fd, newest first.
    pub(super) fn watchers(&self, fd: RawFd) -> impl Iterator<Item = Key> + '_ {
        let mut at = self.fds.get(fd).map_or(NONE, |entry| entry.first);
        std::iter::from_fn(move || {
            let key = self.slots.key_at(at)?;
            at = self.slots.get(key)?.next;
            Some(key)
        })
    }

    /// Marks an fd for the next hand-over if the kernel watches less than is wanted.
    pub(super) fn mark_if_short(&mut self, fd: RawFd) {
        let wanted = self.union(fd);
        if let Some(entry) = self.fds.get(fd)
            && !entry.kernel.contains(wanted)
        {
            self.mark(fd);
        }
    }

    pub(super) fn mark(&mut self, fd: RawFd) {
        if let Some(entry) = self.fds.get_mut(fd)
            && !std::mem::replace(&mut entry.dirty, true)
        {
            self.dirty.push(fd);
        }
    }

    /// Returns the events whose fd the kernel does not know any more, or whose interest it refuses, with the errno then.
    pub(super) fn apply_dirty(&mut self, sys: &dyn Sys) -> Vec<(Key, Option<i32>)> {
        let mut lost = Vec::new();
        for fd in std::mem::take(&mut self.dirty) {
            let wanted = self.union(fd);
            let Some(entry) = self.fds.get_mut(fd) else { continue };
            entry.dirty = false;
            if entry.first == NONE || entry.kernel == wanted {
                continue;
            }
            match sys.change(fd, entry.tag(fd), entry.kernel, wanted) {
                Ok(()) if wanted.is_empty() => entry.forget(),
                Ok(()) => entry.kernel = wanted,
                Err(error) => {
                    // Of another refusal: it is still that file, whose reports would come for ever.
                    let errno = error.raw_os_error();
                    let refused = errno.filter(|errno| !matches!(*errno, libc::ENOENT | libc::EBADF));
                    lost.extend(self.detach_all(sys, fd).into_iter().map(|key| (key, refused)));
                }
            }
        }
        lost
    }

    /// Takes every event off an fd that the kernel does not know any more, or is not to report any more: it is told, for
    /// poll(2) would report a closed one for ever.
    pub(super) fn detach_all(&mut self, sys: &dyn Sys, fd: RawFd) -> Vec<Key> {
        let keys: Vec<Key> = self.watchers(fd).collect();
        for &key in &keys {
            if let Some(slot) = self.slots.get_mut(key) {
                if slot.flags.contains(Flags::ADDED) {
                    self.marks.deleted();
                }
                slot.flags.remove(Flags::ADDED);
                slot.next = NONE;
            }
        }
        if let Some(entry) = self.fds.get_mut(fd) {
            if !entry.kernel.is_empty() {
                // What is gone already is as good.
                let _ = sys.change(fd, entry.tag(fd), entry.kernel, Interest::empty());
            }
            entry.first = NONE;
            entry.forget();
        }
        keys
    }

    /// After a fork: the new kernel set is empty. Returns the events whose fd cannot be added.
    pub(super) fn readd_all(&mut self, sys: &dyn Sys) -> Vec<Key> {
        let mut lost = Vec::new();
        for fd in self.fds.in_use() {
            let wanted = self.union(fd);
            let Some(entry) = self.fds.get_mut(fd) else { continue };
            entry.forget();
            if !wanted.is_empty() {
                match sys.change(fd, entry.tag(fd), Interest::empty(), wanted) {
                    Ok(()) => entry.kernel = wanted,
                    Err(_) => lost.append(&mut self.detach_all(sys, fd)),
                }
            }
        }
        lost
    }
}

/// The union of two interests; edge-triggered only if both are.
fn join(others: Interest, any: bool, one: Interest) -> Interest {
    let edge = one & Interest::EDGE & if any { others } else { Interest::all() };
    ((others | one) - Interest::EDGE) | edge
}

/// Takes `index` out of a list of slots that starts at `first`.
fn unlink(slots: &mut crate::slots::Slots<Slot>, first: &mut u32, index: u32, next: u32) -> bool {
    if *first == index {
        *first = next;
        return true;
    }
    let mut at = *first;
    while let Some(key) = slots.key_at(at) {
        let Some(slot) = slots.get_mut(key) else { return false };
        if slot.next == index {
            slot.next = next;
            return true;
        }
        at = slot.next;
    }
    false
}
