//! The end of a loop: everything of the program's is dropped, whatever some of it does as it goes.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::reactor::{Callback, LoopHandle, Slot};

/// The first panic of what is dropped. It comes out when everything else is gone.
#[derive(Default)]
pub(crate) struct FirstPanic(Option<Box<dyn Any + Send>>);

impl FirstPanic {
    /// Drops `value`, and keeps a panic of it.
    pub(crate) fn drop<T>(&mut self, value: T) {
        self.keep(|| drop(value));
    }

    fn keep(&mut self, f: impl FnOnce()) {
        let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { return };
        match &self.0 {
            None => self.0 = Some(payload),
            Some(_) => drop_payload(payload),
        }
    }

    /// Lets the panic go on, unless the thread unwinds already: a second one would end the process.
    fn resume(self) {
        match self.0 {
            Some(payload) if std::thread::panicking() => drop_payload(payload),
            Some(payload) => resume_unwind(payload),
            None => {}
        }
    }
}

/// What it panics with itself is leaked: dropping that might go on so for ever.
fn drop_payload(payload: Box<dyn Any + Send>) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(payload);
    }
}

impl LoopHandle {
    /// The loop ends: every callback is moved out and dropped, every source torn down. Ids stay stale for ever. If
    /// something panics as it drops the rest is dropped all the same, and the first panic comes out.
    pub(crate) fn teardown(&self) {
        let reactor = &self.reactor;
        let mut panic = FirstPanic::default();
        reactor.gone.set(true);
        let unread = (reactor.taken.close(), reactor.shared.close());
        let keys = reactor.core.borrow().slots.keys();
        for key in keys {
            match self.remove_slot(key) {
                Some(Slot { callback: Callback::Source(source), .. }) => panic.keep(|| source.teardown()),
                slot => panic.drop(slot),
            }
        }
        {
            let mut core = reactor.core.borrow_mut();
            core.queues.clear();
            core.later.clear();
            core.later_live = 0;
        }
        reactor.keep.set(0);
        unread.0.into_iter().chain(unread.1).for_each(|op| op.discard(&mut panic));
        reactor.flush_list.take().into_iter().for_each(|unflushed| panic.drop(unflushed));
        panic.drop(reactor.wait_hook.take());
        panic.drop(reactor.token_handler.take());
        self.take_watchers().for_each(|watcher| panic.drop(watcher));
        for guest in self.reactor.guests.take() {
            panic.keep(|| guest.teardown());
            panic.drop(guest);
        }
        panic.resume();
    }
}
