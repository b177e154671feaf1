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
use crate::interest::{Interest, Ready, Report, What};
use crate::reactor::slot::BoxedCallback;
use crate::reactor::turn::CALLBACKS_PER_FLUSH;
use crate::reactor::{Callback, Core, EventId, Flags, Kind, Lent, LoopHandle, Reactor, Source, Uses};
use crate::slots::Key;
use crate::sys::{Reported, Sys, WAKE_TAG};

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

/// What the short way comes upon next. Each is made in one place, so that it never lies in memory.
enum Next {
    /// A closure that reads, out of its slot.
    User(Key, BoxedCallback),
    Source(Key, Rc<dyn Source>),
    Token(Key, usize),
    /// The callback that has just run: its event was freed, or has another callback now.
    Unwanted(BoxedCallback),
    /// A report that is none of these.
    Other,
    /// No report is left, and nothing else to be done but to wait, until this deadline.
    Wait(Option<Time>),
    /// No report is left, but timers that are due.
    Due,
    /// Nothing is left.
    End,
}

/// The same for a report of anything but reading, or one that may not go the short way.
enum Other {
    User(Key, Ready, BoxedCallback),
    Source(Key, Ready, Rc<dyn Source>),
    Token(Key, Ready, usize),
    /// A report from before the kernel forgot the fd, or for an event that has no callback any more.
    Stale,
    /// It has to go the long way.
    End,
}

/// How the short way ends.
enum End {
    /// In a batch, after so many callbacks.
    Batch { callbacks: usize, is_over: bool },
    /// With a wait after which more is to be done than it does.
    Wait { waited: std::io::Result<()>, is_woken: bool },
}

impl LoopHandle {
    /// Turns of nothing but readiness, one after the other, each the same as `wait` and `batch` make it; the first that
    /// is more than that is the last. Tells whether there was any.
    pub(super) fn short_turns(&self, lent: &mut Lent) -> Result<bool, Error> {
        let reactor = &*self.reactor;
        {
            let core = reactor.core.borrow();
            if !core.is_calm(reactor) {
                return Ok(false);
            }
            debug_assert!(!core.has_rest(), "a batch that ends early queues them, or the loop ends");
        }
        match self.direct::<true>(lent) {
            End::Batch { callbacks, is_over } => self.batch_queued(lent, callbacks, is_over),
            End::Wait { waited, is_woken } => {
                self.after_wait(waited, is_woken)?;
                self.batch(lent);
            }
        }
        Ok(true)
    }

    /// A batch that begins on the short way: what the reports are for, then the timers that are due, then what is queued.
    pub(super) fn run_direct(&self, lent: &mut Lent) {
        if let End::Batch { callbacks, is_over } = self.direct::<false>(lent) {
            self.batch_queued(lent, callbacks, is_over);
        }
    }

    /// Runs what the reports are for, and then the timers that are due, as long as the short way goes; what is left is
    /// queued. With `TURNS`, where nothing else is to be done then, waits for the next reports and goes on with them.
    #[inline(never)]
    fn direct<const TURNS: bool>(&self, lent: &mut Lent) -> End {
        let reactor = &*self.reactor;
        let sys = &*reactor.sys;
        let guard = Guard(self);
        // What the next wait fills, while what the last one has filled is dealt with.
        let mut spare = Vec::new();
        if TURNS {
            spare = std::mem::take(&mut reactor.core.borrow_mut().spare_reports);
        }
        let mut callbacks = 0_usize;
        let mut is_over = false;
        let mut back = None;
        let after_wait = loop {
            // Back into its slot and on to the next one, in one borrow.
            let next = {
                let core = &mut *reactor.core.borrow_mut();
                core.heap.callback_ended(|| sys.now());
                match back.take().and_then(|cb| core.put_back_plain(lent.id().0, cb)) {
                    Some(cb) => Next::Unwanted(cb),
                    None => core.next_plain::<TURNS>(reactor),
                }
            };
            match next {
                Next::User(key, cb) => back = Some(self.call_user::<TURNS>(lent, key, cb, Ready::READ)),
                Next::Source(key, source) => {
                    reactor.running_event.set(EventId(key));
                    source.ready(self, Ready::READ);
                }
                Next::Token(key, token) => {
                    reactor.running_event.set(EventId(key));
                    self.call_token(EventId(key), token, Ready::READ, 1);
                }
                Next::Other => {
                    let other = reactor.core.borrow_mut().next_other();
                    match other {
                        Other::User(key, ready, cb) => {
                            back = Some(self.call_user::<TURNS>(lent, key, cb, ready));
                        }
                        Other::Source(key, ready, source) => {
                            reactor.running_event.set(EventId(key));
                            source.ready(self, ready);
                        }
                        Other::Token(key, ready, token) => {
                            reactor.running_event.set(EventId(key));
                            self.call_token(EventId(key), token, ready, 1);
                        }
                        Other::Stale => continue,
                        Other::End => break None,
                    }
                }
                Next::Unwanted(cb) => {
                    let_go(cb);
                    // What was dropped may have asked for a stop.
                    if reactor.extras.has(Uses::LONG_WAY | Uses::STOP)
                        && let Some(over) = self.pause(None, callbacks)
                    {
                        is_over = over;
                        break None;
                    }
                    continue;
                }
                Next::Wait(first) => {
                    reactor.running_event.set(EventId::NOBODY);
                    callbacks = 0;
                    let timeout = first.map(|deadline| deadline.since(sys.now()));
                    reactor.waiting.set(true);
                    let waited = sys.wait(&mut spare, timeout);
                    reactor.waiting.set(false);
                    reactor.now.set(Time::NEVER);
                    // The backend puts it first.
                    let is_woken = spare.first().is_some_and(|reported| reported.tag() == WAKE_TAG);
                    if is_woken || waited.is_err() {
                        reactor.core.borrow_mut().take_reports(&mut spare);
                        break Some((waited, is_woken));
                    }
                    reactor.core.borrow_mut().take_reports(&mut spare);
                    if let Some(deadline) = first
                        && deadline <= self.turn_time()
                    {
                        break Some((Ok(()), false));
                    }
                    continue;
                }
                Next::Due => {
                    (callbacks, is_over) = self.run_due(lent, callbacks);
                    break None;
                }
                Next::End => break None,
            }
            callbacks += 1;
            if reactor.extras.has(Uses::PAUSE)
                && self.is_to_pause(callbacks)
                && let Some(over) = self.pause(back.take().map(|cb| (lent.id().0, cb)), callbacks)
            {
                is_over = over;
                break None;
            }
        };
        // Disarmed: nobody has panicked.
        std::mem::forget(guard);
        if TURNS {
            reactor.core.borrow_mut().spare_reports = spare;
        }
        if let Some((waited, is_woken)) = after_wait {
            return End::Wait { waited, is_woken };
        }
        reactor.running_event.set(EventId::NOBODY);
        reactor.core.borrow_mut().queue_rest(&*reactor.sys);
        End::Batch { callbacks, is_over }
    }

    /// Whether what is in use is to be looked at after so many callbacks.
    #[inline(never)]
    fn is_to_pause(&self, callbacks: usize) -> bool {
        self.reactor.extras.has(Uses::LONG_WAY | Uses::STOP) || callbacks.is_multiple_of(CALLBACKS_PER_FLUSH)
    }

    #[inline(always)]
    fn call_user<const TURNS: bool>(
        &self,
        lent: &mut Lent,
        key: Key,
        mut cb: BoxedCallback,
        ready: Ready,
    ) -> BoxedCallback {
        self.reactor.running_event.set(EventId(key));
        lent.set_event_id(EventId(key));
        if !TURNS {
            // Turns that follow one another are no affair of `ONCE`.
            self.reactor.progress.set(true);
        }
        cb(lent, ready, 1);
        cb
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
        // What was sent dropped, too.
        reactor.extras.has(Uses::STOP).then_some(false)
    }
}

impl Core {
    /// Whether there is nothing to do but to wait, with one priority, and something keeps the loop running.
    #[inline]
    fn is_calm(&self, reactor: &Reactor) -> bool {
        // One branch for all of them.
        self.queues.len() | self.later.len() | self.dirty.len() | self.lost.len() == 0
            && reactor.keep.get() > 0
            && !reactor.extras.has(Uses::LONG_TURN)
    }

    /// What a wait has put there is what is to be dealt with; what it replaces, which was, is memory for the next.
    #[inline]
    fn take_reports(&mut self, reports: &mut Vec<Reported>) {
        std::mem::swap(&mut self.reports, reports);
        self.reported = 0;
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
    fn next_plain<const TURNS: bool>(&mut self, reactor: &Reactor) -> Next {
        let Some(reported) = self.reports.get(self.reported) else {
            if TURNS && self.is_calm(reactor) {
                debug_assert!(!self.has_rest());
                return Next::Wait(self.heap.first());
            }
            return if self.fired < self.due.len() { Next::Due } else { Next::End };
        };
        if !reported.is_read() {
            return Next::Other;
        }
        let Some(plain) = self.fds.plain_by_tag(reported.tag()) else { return Next::Other };
        let Some((key, slot)) = self.slots.linked_mut(plain) else { return Next::Other };
        debug_assert!(self.queues.is_empty(), "whatever is queued comes behind the rest");
        debug_assert!(slot.flags.contains(Flags::ADDED) && slot.kind == Kind::Fd);
        debug_assert!(slot.is_plain() && slot.what.contains(What::READ));
        if let Callback::Source(source) = &slot.callback {
            self.reported += 1;
            return Next::Source(key, source.clone());
        }
        if let Callback::Token(token) = slot.callback {
            self.reported += 1;
            return Next::Token(key, token);
        }
        match std::mem::take(&mut slot.callback) {
            Callback::User(cb) => {
                self.reported += 1;
                Next::User(key, cb)
            }
            other => {
                slot.callback = other;
                Next::Other
            }
        }
    }

    /// The next report's event whatever it is, of which there is one.
    #[inline(never)]
    fn next_other(&mut self) -> Other {
        let Some(reported) = self.reports.get(self.reported) else { return Other::End };
        let report = reported.report();
        let Some(first) = self.fds.first_by_tag(reported.tag()) else {
            self.reported += 1;
            return Other::Stale;
        };
        let Some((key, slot)) = self.slots.linked_mut(first) else { return Other::End };
        let asked = slot.what.bits() & PLAIN;
        if report.bits() & !asked != 0 || !slot.is_plain() {
            return Other::End;
        }
        if reported.is_read() {
            self.fds.set_plain(reported.tag());
        }
        let ready = Ready::from_bits_retain(report.bits());
        self.reported += 1;
        if let Callback::Source(source) = &slot.callback {
            return Other::Source(key, ready, source.clone());
        }
        match std::mem::take(&mut slot.callback) {
            Callback::User(cb) => Other::User(key, ready, cb),
            other => {
                let token = if let Callback::Token(token) = other { Some(token) } else { None };
                slot.callback = other;
                token.map_or(Other::Stale, |token| Other::Token(key, ready, token))
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
