//! How a loop waits: for how long, with what called round it, and what acts on a wait that is under way.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::RefCell;
use std::time::{Duration, Instant};

use event_core::testing::{Call, Faults};
use event_core::{Event, EventBase, LoopEnd, LoopFlags, Ready, Timer, What};
use tests::events::named;
use tests::{Log, each_backend, each_seed, must_panic, quiet_panic};

const MS: Duration = Duration::from_millis(1);

#[test]
fn another_loop_can_drive_this_one() {
    each_backend(|bed| {
        let mut inner = bed.base();
        let Some(poll_fd) = inner.poll_fd() else { return };
        let log = Log::new();
        let (fd, peer) = bed.fd();
        let sink = log.clone();
        let event = Event::new(&inner, fd.raw(), What::READ, move |_, ready| sink.push(ready)).unwrap();
        event.add(None).unwrap();
        assert_eq!(inner.next_deadline(), None);
        let mut outer = bed.base();
        let watch = Event::new(&outer, poll_fd, What::READ, |_, _| {}).unwrap();
        watch.add(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(outer.run(LoopFlags::NONBLOCK).unwrap(), LoopEnd::Once);
        assert!(watch.pending().contains(Ready::READ), "nothing to do yet");
        peer.write_all(b"x");
        assert_eq!(outer.dispatch().unwrap(), LoopEnd::Empty);
        inner.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(log.take(), [Ready::READ]);
        let timer = Timer::new(&inner, |_| {}).unwrap();
        timer.add(Duration::from_secs(5)).unwrap();
        assert_eq!(inner.next_deadline(), timer.deadline());
        event.activate(Ready::READ).unwrap();
        assert!(inner.next_deadline().unwrap() <= Instant::now(), "there is work");
    });
}

#[test]
fn a_failing_wait_comes_out_of_dispatch_and_costs_no_event() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let log = Log::new();
        let sink = log.clone();
        let event = Event::new(&base, fd.raw(), What::READ, move |_, ready| sink.push(ready)).unwrap();
        event.add(None).unwrap();
        faults.fail(Call::Wait, 1, libc::EBADF);
        assert_eq!(base.dispatch().unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(!base.got_exit() && !base.got_break());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [Ready::READ]);
    });
}

#[test]
fn a_loop_with_nothing_ready_waits_once_for_its_timer() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let timer = Timer::new(&base, |_| {}).unwrap();
        timer.add(Duration::from_micros(30_300)).unwrap();
        base.dispatch().unwrap();
        // Two if the kernel came back a moment early; never a busy loop of waits of no length.
        assert!(faults.count(Call::Wait) <= 2, "{}", faults.count(Call::Wait));
    });
}

#[test]
fn the_wait_hook_is_called_round_every_wait_of_no_length_too() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let log = Log::new();
        let (before, after) = (log.clone(), log.clone());
        base.set_wait_hook(move || before.push("before"), move || after.push("after"));
        let event = Event::new(&base, -1, What::empty(), |_, _| {}).unwrap();
        event.activate(Ready::READ).unwrap();
        base.run(LoopFlags::NONBLOCK).unwrap();
        let timer = Timer::new(&base, |_| {}).unwrap();
        timer.add(MS).unwrap();
        base.dispatch().unwrap();
        let waits = usize::try_from(faults.count(Call::Wait)).unwrap();
        assert!(waits >= 2);
        assert_eq!(log.take(), ["before", "after"].repeat(waits));
    });
}

/// Runs `change` in the first wait hook of a loop that would otherwise sleep for an hour.
fn in_the_hook(
    bed: &tests::Bed,
    change: impl FnOnce(&EventBase) -> Box<dyn FnOnce()>,
) -> (LoopEnd, Duration) {
    let mut base = bed.base();
    let hour = Timer::new(&base, |_| panic!("slept for an hour")).unwrap();
    hour.add(Duration::from_secs(3600)).unwrap();
    hour.set_background(true).unwrap();
    let holder = Event::new(&base, -1, What::empty(), |_, _| {}).unwrap();
    holder.add(Some(Duration::from_secs(1800))).unwrap();
    let change = RefCell::new(Some(change(&base)));
    let release = holder.id();
    let handle = base.handle();
    base.set_wait_hook(
        move || {
            let change = change.borrow_mut().take();
            if let Some(change) = change {
                change();
                handle.set_background(release, true).unwrap();
            }
        },
        || {},
    );
    let start = base.now();
    let end = base.dispatch().unwrap();
    (end, base.now() - start)
}

#[test]
fn what_the_wait_hook_changes_acts_on_the_wait_that_follows() {
    each_backend(|bed| {
        let soon = Duration::from_secs(10);
        let log = Log::<&str>::new();
        let (end, took) = in_the_hook(bed, |base| {
            let timer = named(base, &log, "timer");
            Box::new(move || {
                timer.add(Some(2 * MS)).unwrap();
                timer.detach();
            })
        });
        assert_eq!((end, log.take()), (LoopEnd::Empty, vec!["timer"]));
        assert!(took >= 2 * MS && took < soon, "{took:?}");
        let (end, took) = in_the_hook(bed, |base| {
            let event = named(base, &log, "activated");
            Box::new(move || {
                event.activate(Ready::READ).unwrap();
                event.detach();
            })
        });
        assert_eq!((end, log.take()), (LoopEnd::Empty, vec!["activated"]));
        assert!(took < soon, "{took:?}");
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let (end, took) = in_the_hook(bed, |base| {
            let sink = log.clone();
            let event = Event::new(base, fd.raw(), What::READ, move |_, _| sink.push("readable")).unwrap();
            Box::new(move || {
                event.add(None).unwrap();
                event.detach();
            })
        });
        assert_eq!((end, log.take()), (LoopEnd::Empty, vec!["readable"]));
        assert!(took < soon, "{took:?}");
        let (end, took) = in_the_hook(bed, |base| {
            let handle = base.handle();
            Box::new(move || handle.loopexit(None).unwrap())
        });
        assert_eq!(end, LoopEnd::Exit);
        assert!(took < soon, "{took:?}");
        let (end, took) = in_the_hook(bed, |base| {
            let handle = base.handle();
            Box::new(move || handle.loopbreak().unwrap())
        });
        assert_eq!(end, LoopEnd::Break);
        assert!(took < soon, "{took:?}");
        let (end, took) = in_the_hook(bed, |_| Box::new(|| {}));
        assert_eq!(end, LoopEnd::Empty, "the last event was let go in the hook");
        assert!(took < soon, "{took:?}");
    });
}

#[test]
fn taking_the_last_timer_away_during_the_wait_ends_the_loop() {
    each_backend(|bed| {
        let mut base = bed.base();
        let timer = Event::new(&base, -1, What::empty(), |_, _| unreachable!()).unwrap();
        timer.add(Some(Duration::from_secs(3600))).unwrap();
        let (handle, id) = (base.handle(), timer.id());
        base.set_wait_hook(move || handle.remove_timer(id).unwrap(), || {});
        let start = base.now();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(base.now() - start < Duration::from_secs(60));
    });
}

#[test]
fn the_time_that_the_wait_hook_takes_is_not_slept_again() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let fired = Log::new();
        let (clock, sink) = (sim.clone(), fired.clone());
        let timer = Timer::new(&base, move |_| sink.push(clock.elapsed())).unwrap();
        timer.add(10 * MS).unwrap();
        base.set_wait_hook(move || sim.advance(4 * MS), || {});
        base.dispatch().unwrap();
        assert_eq!(fired.take(), [10 * MS]);
    });
}

#[test]
fn what_is_changed_during_the_wait_acts_at_once() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let fired = Log::new();
        let (clock, sink) = (sim.clone(), fired.clone());
        let timer = Timer::new(&base, move |_| sink.push(clock.elapsed())).unwrap();
        let id = timer.id();
        let hour = Timer::new(&base, |_| panic!("slept for an hour")).unwrap();
        hour.add(Duration::from_secs(3600)).unwrap();
        let (handle, hour_id) = (base.handle(), hour.id());
        sim.at(5 * MS, move || {
            handle.add(id, Some(2 * MS)).unwrap();
            handle.del(hour_id).unwrap();
        });
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(fired.take(), [7 * MS]);
    });
}

#[test]
fn a_panicking_wait_hook_loses_no_report() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let log = Log::new();
        let sink = log.clone();
        let what = What::READ | What::ET | What::PERSIST;
        let event = Event::new(&base, fd.raw(), what, move |_, ready| sink.push(ready)).unwrap();
        event.add(None).unwrap();
        base.set_wait_hook(|| {}, || quiet_panic("hook"));
        must_panic("hook", || base.run(LoopFlags::NONBLOCK));
        base.set_wait_hook(|| {}, || {});
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(log.take(), [Ready::READ]);
        base.set_wait_hook(|| quiet_panic("hook"), || {});
        must_panic("hook", || base.run(LoopFlags::NONBLOCK));
    });
}
