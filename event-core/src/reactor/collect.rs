//! What a turn has to run: what was activated for it, what the kernel reports, what is due, which signals came.

use crate::clock::Time;
use crate::heap::{Entry, MOST_SPARE};
use crate::interest::{Interest, Ready, Report, What};
use crate::reactor::{Callback, Core, Flags};
use crate::slots::Key;
use crate::sys::{Reported, Sys};

impl Core {
    /// What was activated for the next turn belongs to this one now.
    #[cold]
    pub(super) fn move_later(&mut self) {
        if self.later.len() > self.later_live {
            self.sweep_later();
        }
        let mut all = std::mem::take(&mut self.later);
        for key in all.drain(..) {
            if let Some(slot) = self.slots.get_mut(key) {
                slot.flags.remove(Flags::LATER);
                let ready = std::mem::take(&mut slot.later);
                self.marks.ran(slot.kind);
                self.activate(key, ready, 0);
            }
        }
        self.later_live = 0;
        // Its memory serves the next turn.
        self.later = all;
    }

    /// Queues the events that the kernel's reports are for.
    pub(super) fn collect_reports(&mut self, sys: &dyn Sys, reports: &[Reported]) {
        let mut queued = 0;
        for reported in reports {
            let report = reported.report();
            let Some(fd) = self.fds.resolve(reported.tag()) else { continue };
            if report.contains(Report::INVALID) {
                let mut lost = self.detach_all(sys, fd);
                self.lost.append(&mut lost);
                continue;
            }
            let ended = report.intersects(Report::HUP | Report::ERR);
            let reported = Interest::from_bits_truncate(report.bits()) - Interest::EDGE;
            let mut ready =
                Ready::from_bits_truncate(report.bits()) & (Ready::READ | Ready::WRITE | Ready::CLOSED);
            if ended {
                ready |= Ready::READ | Ready::WRITE;
            }
            let mut wanted = Interest::empty();
            let mut delivered = false;
            let mut at = self.fds.get(fd).map_or(crate::fdmap::NONE, |entry| entry.first);
            while let Some((key, slot)) = self.slots.at_mut(at) {
                at = slot.next;
                let wants = slot.wanted();
                wanted |= wants;
                let reasons = ready & Ready::from_bits_truncate(wants.bits());
                if !reasons.is_empty() {
                    delivered = true;
                    if slot.what.contains(What::PERSIST) {
                        // Ready beats due, also when it was due in an earlier turn and has not run yet.
                        slot.active.remove(Ready::TIMEOUT);
                    }
                    slot.active |= reasons;
                    if !slot.flags.contains(Flags::QUEUED) {
                        slot.flags.insert(Flags::QUEUED);
                        slot.seq = self.queues.push(key, slot.priority);
                        queued += 1;
                    }
                }
            }
            if ended && !delivered {
                // Nobody reads or writes, yet the kernel would report this for ever: told once, then disarmed.
                let watchers: Vec<Key> = self.watchers(fd).collect();
                for key in watchers {
                    self.activate(key, Ready::CLOSED, 0);
                }
                if let Some(entry) = self.fds.get_mut(fd) {
                    let _ = sys.change(fd, entry.tag(fd), entry.kernel, Interest::empty());
                    entry.forget();
                }
            } else if !wanted.contains(reported) {
                // Somebody paused: now it costs something, so now the kernel is told.
                self.mark(fd);
            }
        }
        self.marks.activated_more(queued);
    }

    /// Takes out the timers that are due. Tells whether the short way will do for them: they are all alone.
    pub(super) fn take_due(&mut self, now: Time) -> bool {
        debug_assert_eq!(self.fired, self.due.len(), "the rest is queued before the next wait");
        self.due.clear();
        self.fired = 0;
        self.due_at = now;
        self.heap.take_due(now, &mut self.due)
    }

    /// Queues the events of the timers that were taken out and are still due.
    pub(super) fn collect_due(&mut self) {
        let due = std::mem::take(&mut self.due);
        let now = self.due_at;
        // All are out by now: a persistent timer of no length would be due again at once.
        for &Entry { deadline, slot: index, .. } in &due[self.fired..] {
            if !self.heap.fire(index) {
                continue;
            }
            let Some((key, slot)) = self.slots.at_mut(index) else { continue };
            if slot.settle_due() {
                self.heap.set_alone(index, None);
            }
            if let Callback::Source(source) = &slot.callback {
                let true_deadline = source.deadline();
                if true_deadline > now && true_deadline != Time::NEVER {
                    self.heap.set(index, true_deadline);
                    continue;
                }
            }
            if let (true, Some(interval)) = (slot.what.contains(What::PERSIST), slot.interval) {
                let next = deadline.after(interval.duration());
                let next = if next <= now { now.after(interval.duration()) } else { next };
                let ready_too = slot.flags.contains(Flags::QUEUED)
                    && slot.active.intersects(Ready::READ | Ready::WRITE | Ready::CLOSED | Ready::SIGNAL);
                if ready_too {
                    // Ready beats due: one call, and the timer starts anew.
                    self.heap.rearm(index, now.after(interval.duration()));
                    continue;
                }
                self.heap.rearm(index, next);
            }
            self.activate(key, Ready::TIMEOUT, 0);
        }
        self.due = due;
        self.forget_due();
    }

    /// None of the timers that were taken out is due any more.
    pub(super) fn forget_due(&mut self) {
        self.fired = 0;
        if self.due.capacity() > MOST_SPARE {
            self.due = Vec::new();
        }
        self.due.clear();
    }

    /// Queues the events of a signal.
    pub(super) fn deliver(&mut self, signal: i32, deliveries: u32) {
        let deliveries = u16::try_from(deliveries).unwrap_or(u16::MAX);
        let mut at =
            self.signals.iter().find(|entry| entry.0 == signal).map_or(crate::fdmap::NONE, |entry| entry.1);
        while let Some(key) = self.slots.key_at(at) {
            let Some(slot) = self.slots.get(key) else { break };
            at = slot.next;
            self.activate(key, Ready::SIGNAL, deliveries);
        }
    }
}
