//! Dispatching a warm event allocates nothing.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use allocation_counter::measure;
use event_core::{Event, EventBase, LoopFlags, Ready, Timer, What};
use tests::each_backend;

/// How often the loop allocates in ten turns, once it is warm.
fn allocations(base: &mut EventBase, mut turn: impl FnMut(&mut EventBase)) -> u64 {
    (0..20).for_each(|_| turn(base));
    measure(|| (0..10).for_each(|_| turn(base))).count_total
}

#[test]
fn a_persistent_event_on_an_fd_allocates_nothing() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return; // The simulated kernel allocates, not the loop.
        }
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let event = Event::new(&base, fd.raw(), What::READ | What::PERSIST, |_, _| {}).unwrap();
        event.add(Some(Duration::from_secs(60))).unwrap();
        peer.write_all(b"x");
        let count = allocations(&mut base, |base| _ = base.run(LoopFlags::ONCE).unwrap());
        assert_eq!(count, 0);
    });
}

#[test]
fn a_one_shot_event_that_adds_itself_again_allocates_nothing() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let event = Event::new(&base, fd.raw(), What::READ, |event, _| event.add(None).unwrap()).unwrap();
        event.add(None).unwrap();
        peer.write_all(b"x");
        let count = allocations(&mut base, |base| _ = base.run(LoopFlags::ONCE).unwrap());
        assert_eq!(count, 0);
    });
}

#[test]
fn an_activation_allocates_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let event = Event::new(&base, -1, What::PERSIST, |_, _| {}).unwrap();
        let now = allocations(&mut base, |base| {
            event.activate_now(Ready::READ).unwrap();
            base.run(LoopFlags::NONBLOCK).unwrap();
        });
        let later = allocations(&mut base, |base| {
            event.activate(Ready::READ).unwrap();
            base.run(LoopFlags::NONBLOCK).unwrap();
        });
        assert_eq!((now, later), (0, 0));
    });
}

#[test]
fn a_persistent_timer_allocates_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let timer = Timer::persistent(&base, |_| {}).unwrap();
        timer.add(Duration::from_micros(10)).unwrap();
        let count = allocations(&mut base, |base| _ = base.run(LoopFlags::ONCE).unwrap());
        assert_eq!(count, 0);
    });
}

#[test]
fn a_one_shot_timer_that_adds_itself_again_allocates_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let timer = Timer::new(&base, |timer| timer.add(Duration::ZERO).unwrap()).unwrap();
        timer.add(Duration::ZERO).unwrap();
        let count = allocations(&mut base, |base| _ = base.run(LoopFlags::ONCE).unwrap());
        assert_eq!(count, 0);
    });
}

#[test]
fn messages_and_closures_allocate_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (_mailbox, sender) = base.mailbox(|_: [u64; 4]| {}).unwrap();
        let remote = base.remote();
        let sent = allocations(&mut base, |base| {
            (0..100).for_each(|n| sender.send([n; 4]).unwrap());
            base.run(LoopFlags::NONBLOCK).unwrap();
        });
        let posted = allocations(&mut base, |base| {
            (0..100_u64).for_each(|n| remote.post(move |_| assert_ne!(n, 100)).unwrap());
            base.run(LoopFlags::NONBLOCK).unwrap();
        });
        assert_eq!((sent, posted), (0, 0));
    });
}
