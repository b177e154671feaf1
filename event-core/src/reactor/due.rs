//! The short way of timers that are due: from their list to their callbacks. See `direct`.

use std::cell::Cell;

use crate::heap::Entry;
use crate::interest::Ready;
use crate::reactor::slot::BoxedCallback;
use crate::reactor::turn::CALLBACKS_PER_FLUSH;
use crate::reactor::{Callback, Core, EventId, Flags, Lent, LoopHandle, Slot, Uses};
use crate::slots::Key;
use crate::sys;

/// So many timers ahead a callback's captures are fetched; its slot twice as far.
const AHEAD: usize = 4;

/// What comes next.
enum Next {
    /// A closure, out of its slot.
    User(Key, BoxedCallback),
    Token(Key, usize),
    /// The callback that has just run: its timer was freed, or has another callback now, or is to be freed.
    Unwanted(Key, BoxedCallback),
    End,
}

impl LoopHandle {
    /// Runs the timers that are due, after so many callbacks. Returns how many have run by then, and whether the batch is
    /// over; what is left is queued by the caller.
    #[inline(never)]
    pub(super) fn run_due(&self, lent: &mut Lent, mut callbacks: usize) -> (usize, bool) {
        let reactor = &*self.reactor;
        let mut back = None;
        loop {
            // Back into its slot and on to the next one, in one borrow.
            let next = {
                let core = &mut *reactor.core.borrow_mut();
                core.heap.callback_ended(|| reactor.sys.now());
                match back.take().and_then(|(key, cb)| core.put_back_due(key, cb)) {
                    Some((key, cb)) => Next::Unwanted(key, cb),
                    None => core.next_due(&reactor.keep),
                }
            };
            match next {
                Next::User(key, mut cb) => {
                    reactor.running_event.set(EventId(key));
                    lent.set_timer_id(EventId(key));
                    reactor.progress.set(true);
                    cb(lent, Ready::TIMEOUT, 1);
                    back = Some((key, cb));
                }
                Next::Token(key, token) => {
                    reactor.running_event.set(EventId(key));
                    self.call_token(EventId(key), token, Ready::TIMEOUT, 1);
                }
                Next::Unwanted(key, cb) => {
                    let unwanted = self.put_back(key, cb);
                    drop(unwanted);
                    if reactor.extras.has(Uses::LONG_WAY | Uses::STOP)
                        && let Some(is_over) = self.pause(None, callbacks)
                    {
                        return (callbacks, is_over);
                    }
                    continue;
                }
                Next::End => return (callbacks, false),
            }
            callbacks += 1;
            if !reactor.extras.has(Uses::LONG_WAY | Uses::STOP)
                && !callbacks.is_multiple_of(CALLBACKS_PER_FLUSH)
            {
                continue;
            }
            if let Some(is_over) = self.pause(back.take(), callbacks) {
                return (callbacks, is_over);
            }
        }
    }
}

impl Core {
    /// The next timer that is still due, with its callback on loan. It is alone: neither added nor counted from here on,
    /// and its flags say nothing else already.
    #[inline]
    fn next_due(&mut self, keep: &Cell<usize>) -> Next {
        while let Some(&Entry { slot: index, .. }) = self.due.get(self.fired) {
            self.fired += 1;
            self.fetch_due();
            if !self.heap.fire(index) {
                continue;
            }
            debug_assert!(self.queues.is_empty(), "whatever is queued comes behind the rest");
            keep.set(keep.get().saturating_sub(1));
            let Some((key, slot)) = self.slots.linked_mut(index) else { continue };
            debug_assert!(slot.flags.contains(Flags::ALONE));
            match std::mem::take(&mut slot.callback) {
                Callback::User(cb) => return Next::User(key, cb),
                Callback::Token(token) => {
                    slot.callback = Callback::Token(token);
                    return Next::Token(key, token);
                }
                other => slot.callback = other,
            }
        }
        self.forget_due();
        Next::End
    }

    /// Timers that are due together lie all over the memory of a crowd. What is known of those that come soon is asked
    /// for before it is needed.
    #[inline]
    fn fetch_due(&self) {
        if let Some(&Entry { slot, .. }) = self.due.get(self.fired + 2 * AHEAD) {
            sys::prefetch(self.slots.address(slot));
            sys::prefetch(self.heap.address(slot));
        }
        if let Some(&Entry { slot, .. }) = self.due.get(self.fired + AHEAD)
            && let Some(Slot { callback: Callback::User(cb), .. }) = self.slots.at(slot)
        {
            sys::prefetch(std::ptr::from_ref(&**cb).cast());
        }
    }

    /// Returns what is not put back: the timer was freed, or has another callback now, or is to be freed.
    #[inline]
    fn put_back_due(&mut self, key: Key, cb: BoxedCallback) -> Option<(Key, BoxedCallback)> {
        match self.slots.get_mut(key) {
            Some(slot)
                if matches!(slot.callback, Callback::Empty) && !slot.flags.contains(Flags::FREE_AFTER) =>
            {
                slot.callback = Callback::User(cb);
                None
            }
            _ => Some((key, cb)),
        }
    }
}
