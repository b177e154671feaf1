//! What the tests of events share.

use event_core::{Event, EventBase, LoopFlags, Ready, What};

use crate::Log;

/// An event that notes why it was called.
pub fn noter(base: &EventBase, fd: i32, what: What, log: &Log<Ready>) -> Event {
    let log = log.clone();
    Event::new(base, fd, what, move |_, ready| log.push(ready)).unwrap()
}

/// One pass without waiting.
pub fn pass(base: &mut EventBase) {
    base.run(LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
}

/// An event of no fd that notes its name, for tests that activate by hand.
pub fn named(base: &EventBase, log: &Log<&'static str>, name: &'static str) -> Event {
    let log = log.clone();
    Event::new(base, -1, What::empty(), move |_, _| log.push(name)).unwrap()
}
