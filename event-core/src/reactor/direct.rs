//! The short way of a batch: from the kernel's report, or from a timer that is due, to the callback, past the queues.
//!
//! A turn takes it when there is nothing else to tell apart: one priority, nothing queued, no timer due but such as are
//! timers alone (`timers`), nobody watching or measuring. The reports, and behind them the timers, then are the queue. What the queues would make of it is kept to by one rule:
//! while any are left, nothing is queued. Whoever would queue something, take something back or ask what is queued
//! calls `queue_rest` first, after which they go the long way. A timer that is due may be deleted and armed again: what
//! the heap knows of it tells.

use std::rc::Rc;

use crate::clock::Time;
use crate::error::Error;
use crate::fdmap::NONE;
use crate::interest::{Interest, Ready, Report, What};
use crate::reactor::slot::BoxedCallback;
use crate::reactor::turn::CALLBACKS_PER_FLUSH;
use crate::reactor::{Callback, Core, EventId, Flags, Kind, Lent, LoopHandle, Source, Uses};
use crate::slots::Key;
use crate::sys::{Sys, WAKE_TAG};

/// What a report may say on the short way; these bits are the same in every set.
const PLAIN: u8 = Interest::READ.bits() | Interest::WRITE.bits() | Interest::CLOSED.bits();

const _: () = {
    assert!(PLAIN == Ready::READ.bits() | Ready::WRITE.bits() | Ready::CLOSED.bits());
    assert!(PLAIN == What::READ.bits() | What::WRITE.bits() | What::CLOSED.bits());
    assert!(PLAIN == Report::READ.bits() | Report::WRITE.bits() | Report::CLOSED.bits());
};

/// Ends the event whose callback panics; the rest of the reports is queued for the next dispatch.
struct Guard<'a>(&'a LoopHandle);

impl Drop for Guard<'_> {
    #[cold]
    fn drop(&mut self) {
        let reactor = &*self.0.reactor;
        reactor.core.borrow_mut().queue_rest(&*reactor.sys);
        let running = reactor.running_event.replace(EventId::NOBODY);
        if running != EventId::NOBODY {
            self.0.end(running.0);
        }
    }
}

/// Out of the way of the loop that nearly never comes here.
#[cold]
#[inline(never)]
fn let_go(cb: BoxedCallback) {
    drop(cb);
}

/// What the short way comes upon next.
enum Next {
    /// A closure, out of its slot.
    User(Key, Ready, BoxedCallback),
    Source(Key, Ready, Rc<dyn Source>),
    Token(Key, Ready, usize),
    /// A report from before the kernel forgot the fd.
    Stale,
    /// The callback that has just run: its event was freed, or has another callback now.
    Unwanted(BoxedCallback),
    /// No report is left, but timers that are due.
    Due,
    /// Nothing is left, or a report that has to go the long way.
    End,
}

impl LoopHandle {
    /// Turns of nothing but readiness, one after the other, each the same as `wait` and `batch` make it; the first that
    /// is more than that is the last. Tells whether there was any.
    pub(super) fn short_turns(&self, lent: &mut Lent) -> Result<bool, Error> {
        let reactor = &*self.reactor;
        let mut any = false;
        while reactor.keep.get() > 0 {
            let (mut reports, first) = {
                let core = &mut *reactor.core.borrow_mut();
                if !core.is_calm() {
                    break;
                }
                core.heap.callback_ended(|| reactor.sys.now());
                (std::mem::take(&mut core.reports), core.heap.first())
            };
            any = true;
            let timeout = first.map(|deadline| deadline.since(self.clock()));
            reactor.waiting.set(true);
            let waited = reactor.sys.wait(&mut reports, timeout);
            reactor.waiting.set(false);
            let is_woken = reports.first().is_some_and(|reported| reported.tag() == WAKE_TAG);
            {
                let core = &mut *reactor.core.borrow_mut();
                core.reports = reports;
                core.reported = 0;
            }
            reactor.now.set(Time::NEVER);
            let is_due = match first {
                Some(deadline) => deadline <= self.turn_time(),
                None => false,
            };
            if is_woken || is_due || waited.is_err() {
                self.after_wait(waited, is_woken)?;
                self.batch(lent);
                break;
            }
            let (callbacks, over) = self.run_direct(lent);
            let is_left = {
                let core = reactor.core.borrow();
                !core.queues.is_empty() || !core.lost.is_empty()
            };
            if is_left || over || reactor.extras.has(Uses::LONG_TURN) {
                self.batch_queued(lent, callbacks, over);
                break;
            }
        }
        Ok(any)
    }

    /// Runs what the reports are for, and then the timers that are due, as long as the short way goes. Returns how many callbacks ran, and whether the
    /// batch is over; what is left is queued.
    #[inline]
    pub(super) fn run_direct(&self, lent: &mut Lent) -> (usize, bool) {
        let reactor = &*self.reactor;
        let guard = Guard(self);
        let mut callbacks = 0_usize;
        let mut over = false;
        let mut back = None;
        loop {
            // Back into its slot and on to the next one, in one borrow.
            let next = {
                let core = &mut *reactor.core.borrow_mut();
                core.heap.callback_ended(|| reactor.sys.now());
                match back.take().and_then(|(key, cb)| core.put_back_plain(key, cb)) {
                    Some(cb) => Next::Unwanted(cb),
                    None => core.next_plain(),
                }
            };
            match next {
                Next::User(key, ready, mut cb) => {
                    reactor.running_event.set(EventId(key));
                    lent.set_event_id(EventId(key));
                    reactor.progress.set(true);
                    cb(lent, ready, 1);
                    back = Some((key, cb));
                }
                Next::Source(key, ready, source) => {
                    reactor.running_event.set(EventId(key));
                    source.ready(self, ready);
                }
                Next::Token(key, ready, token) => {
                    reactor.running_event.set(EventId(key));
                    self.call_token(EventId(key), token, ready, 1);
                }
                Next::Stale => continue,
                Next::Unwanted(cb) => {
                    let_go(cb);
                    continue;
                }
                Next::Due => {
                    (callbacks, over) = self.run_due(lent, callbacks);
                    break;
                }
                Next::End => break,
            }
            callbacks += 1;
            if !reactor.extras.has(Uses::LONG_WAY | Uses::STOP)
                && !callbacks.is_multiple_of(CALLBACKS_PER_FLUSH)
            {
                continue;
            }
            if let Some(is_over) = self.pause(back.take(), callbacks) {
                over = is_over;
                break;
            }
        }
        reactor.running_event.set(EventId::NOBODY);
        // Disarmed: nobody has panicked.
        std::mem::forget(guard);
        reactor.core.borrow_mut().queue_rest(&*reactor.sys);
        (callbacks, over)
    }

    /// What comes now and then between two callbacks of the short way, of which so many have run; the last one's comes
    /// back. `Some` if the short way ends here, and whether the batch is over with it.
    #[inline(never)]
    pub(super) fn pause(&self, back: Option<(Key, BoxedCallback)>, callbacks: usize) -> Option<bool> {
        let reactor = &*self.reactor;
        if let Some((key, cb)) = back {
            let unwanted = self.put_back(key, cb);
            drop(unwanted);
        }
        // What comes now is not this event's doing.
        reactor.running_event.set(EventId::NOBODY);
        if reactor.extras.has(Uses::STOP) {
            return Some(false);
        }
        if reactor.extras.has(Uses::LONG_WAY) {
            return Some(self.after_one(0, callbacks));
        }
        self.flush_all();
        None
    }
}

impl Core {
    /// Whether there is nothing to do before a wait, and one priority.
    #[inline]
    fn is_calm(&self) -> bool {
        self.queues.is_empty()
            && self.later.is_empty()
            && self.dirty.is_empty()
            && self.queues.priorities() == 1
    }

    /// Whether the short way has anything left.
    #[inline]
    pub(super) fn has_rest(&self) -> bool {
        self.reported < self.reports.len() || self.fired < self.due.len()
    }

    /// Queues what the short way has not reached.
    #[inline]
    pub(super) fn queue_rest(&mut self, sys: &dyn Sys) {
        if self.has_rest() {
            self.collect_rest(sys);
        }
    }

    #[cold]
    fn collect_rest(&mut self, sys: &dyn Sys) {
        let reports = std::mem::take(&mut self.reports);
        self.collect_reports(sys, &reports[self.reported..]);
        self.reports = reports;
        self.reported = self.reports.len();
        self.collect_due();
    }

    /// The next report's event, with its callback on loan. The short way ends where there is more than one event on the
    /// fd, or one that is not persistent or has a timeout, or where a report was not asked for.
    #[inline]
    fn next_plain(&mut self) -> Next {
        let Some(reported) = self.reports.get(self.reported) else {
            return if self.fired < self.due.len() { Next::Due } else { Next::End };
        };
        let report = reported.report();
        let Some(first) = self.fds.first_by_tag(reported.tag()) else {
            self.reported += 1;
            return Next::Stale;
        };
        let Some((key, slot)) = self.slots.linked_mut(first) else { return Next::End };
        debug_assert!(self.queues.is_empty(), "whatever is queued comes behind the rest");
        debug_assert!(slot.flags.contains(Flags::ADDED) && slot.kind == Kind::Fd);
        let asked = slot.what.bits() & PLAIN;
        if report.bits() & !asked != 0 || slot.next != NONE {
            return Next::End;
        }
        let ready = Ready::from_bits_retain(report.bits());
        if let Callback::Source(source) = &slot.callback {
            self.reported += 1;
            return Next::Source(key, ready, source.clone());
        }
        if slot.interval.is_some() || !slot.what.contains(What::PERSIST) {
            return Next::End;
        }
        match std::mem::take(&mut slot.callback) {
            Callback::User(cb) => {
                self.reported += 1;
                Next::User(key, ready, cb)
            }
            other => {
                let token = if let Callback::Token(token) = other { Some(token) } else { None };
                slot.callback = other;
                self.reported += 1;
                token.map_or(Next::Stale, |token| Next::Token(key, ready, token))
            }
        }
    }

    /// Returns what is not put back: the event was freed, or has another callback now.
    #[inline]
    fn put_back_plain(&mut self, key: Key, cb: BoxedCallback) -> Option<BoxedCallback> {
        match self.slots.get_mut(key) {
            Some(slot) if matches!(slot.callback, Callback::Empty) => {
                slot.callback = Callback::User(cb);
                None
            }
            _ => Some(cb),
        }
    }
}
