//! Watchers: what runs right before and right after every wait.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::{Call, Faults};
use event_core::{Error, Event, LoopEnd, LoopFlags, Ready, Timer, Watcher, What};
use tests::{Alive, Log, OnDrop, each_backend, each_seed, must_panic, quiet_panic};

const MS: Duration = Duration::from_millis(1);

#[test]
fn all_prepare_watchers_run_then_all_check_watchers_then_the_callbacks() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let note = |name| {
            let log = log.clone();
            move || log.push(name)
        };
        let (p1, p2) = (note("prepare 1"), note("prepare 2"));
        let _check1 = Watcher::check(&base, note("check 1")).unwrap();
        let prepare1 = Watcher::prepare(&base, move |_| p1()).unwrap();
        let check2 = Watcher::check(&base, note("check 2")).unwrap();
        let _prepare2 = Watcher::prepare(&base, move |_| p2()).unwrap();
        let fire = note("timer");
        let timer = Timer::new(&base, move |_| fire()).unwrap();
        timer.add(Duration::ZERO).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["prepare 1", "prepare 2", "check 1", "check 2", "timer"]);
        drop((prepare1, check2));
        timer.add(Duration::ZERO).unwrap();
        base.dispatch().unwrap();
        assert_eq!(log.take(), ["prepare 2", "check 1", "timer"]);
    });
}

#[test]
fn a_prepare_watcher_is_told_how_long_the_loop_is_about_to_wait() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let _watcher = Watcher::prepare(&base, move |info| sink.push(info.timeout())).unwrap();
        let timer = Timer::new(&base, |_| {}).unwrap();
        timer.add(5 * MS).unwrap();
        base.dispatch().unwrap();
        let told = log.take();
        let first = told[0].unwrap();
        assert!(first > 4 * MS && first <= 5 * MS, "{told:?}");

        base.run(LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
        assert_eq!(log.take(), [Some(Duration::ZERO)]);

        let event = Event::new(&base, -1, What::empty(), |_, _| {}).unwrap();
        event.activate(Ready::READ).unwrap();
        base.dispatch().unwrap();
        assert_eq!(log.take(), [Some(Duration::ZERO)], "there is work");

        let (fd, peer) = bed.fd();
        let event = Event::new(&base, fd.raw(), What::READ, |_, _| {}).unwrap();
        event.add(None).unwrap();
        peer.write_all(b"x");
        base.dispatch().unwrap();
        assert_eq!(log.take(), [None], "nothing but the fd can end this wait");
    });
}

#[test]
fn watchers_do_not_keep_the_loop_running() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let _prepare = Watcher::prepare(&base, |_| panic!("there is no wait")).unwrap();
        let _check = Watcher::check(&base, || panic!("there is no wait")).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(faults.count(Call::Wait), 0);
    });
}

#[test]
fn what_a_prepare_watcher_asks_for_counts_for_the_wait_that_follows() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let far = Timer::new(&base, |_| panic!("not before the other")).unwrap();
        far.add(Duration::from_secs(3600)).unwrap();
        let (sink, handle) = (log.clone(), base.handle());
        let near = Timer::new(&base, move |_| {
            sink.push("near");
            handle.loopbreak().unwrap();
        })
        .unwrap();
        let near = Rc::new(near);
        let added = near.clone();
        let _watcher = Watcher::prepare(&base, move |_| added.add(MS).unwrap()).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        assert_eq!(log.take(), ["near"]);
    });
}

#[test]
fn a_prepare_watcher_may_take_the_last_reason_to_wait_away() {
    each_backend(|bed| {
        let mut base = bed.base();
        let timer = Rc::new(Timer::new(&base, |_| panic!("it was deleted")).unwrap());
        timer.add(Duration::from_secs(3600)).unwrap();
        let _watcher = Watcher::prepare(&base, move |_| timer.del().unwrap()).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_prepare_watcher_may_stop_the_loop_before_it_waits() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let timer = Timer::new(&base, |_| {}).unwrap();
        timer.add(Duration::from_secs(3600)).unwrap();
        let handle = base.handle();
        let watcher = Watcher::prepare(&base, move |_| handle.loopbreak().unwrap()).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        assert_eq!(faults.count(Call::Wait), 0);
        drop(watcher);
        let handle = base.handle();
        let _watcher = Watcher::prepare(&base, move |_| handle.loopexit(None).unwrap()).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit, "after a turn that does not wait");
        assert_eq!(faults.count(Call::Wait), 1);
    });
}

#[test]
fn a_check_watcher_silences_what_it_frees_or_deletes() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let event = Event::new(&base, fd.raw(), What::READ, |_, _| panic!("freed")).unwrap();
        event.add(None).unwrap();
        let timer = Timer::new(&base, |_| panic!("deleted")).unwrap();
        timer.add(Duration::ZERO).unwrap();
        let mut victims = Some((event, timer));
        let _watcher = Watcher::check(&base, move || {
            if let Some((event, timer)) = victims.take() {
                drop(event);
                timer.del().unwrap();
            }
        })
        .unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_timer_of_no_length_from_a_watcher_waits_a_turn() {
    each_seed(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let timer = Rc::new(Timer::new(&base, move |_| sink.push("timer")).unwrap());
        let (sink, added) = (log.clone(), timer.clone());
        let mut once = true;
        let _watcher = Watcher::check(&base, move || {
            sink.push("check");
            if std::mem::take(&mut once) {
                added.add(Duration::ZERO).unwrap();
            }
        })
        .unwrap();
        base.once(-1, What::empty(), None, |_| {}).unwrap();
        base.dispatch().unwrap();
        assert_eq!(log.take(), ["check", "check", "timer"]);
    });
}

#[test]
fn a_watcher_may_free_itself_and_its_neighbours_while_it_runs() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let alive = Alive::default();
        let all: Rc<RefCell<Vec<Watcher>>> = Rc::default();
        for name in ["first", "second", "third"] {
            let (log, others, token) = (log.clone(), Rc::downgrade(&all), alive.token());
            let watcher = Watcher::prepare(&base, move |_| {
                log.push(name);
                if name == "second" {
                    let all = others.upgrade().unwrap().take();
                    drop(all);
                    log.push("still here");
                }
                let _ = &token;
            });
            all.borrow_mut().push(watcher.unwrap());
        }
        base.once(-1, What::empty(), Some(MS), |_| {}).unwrap();
        base.dispatch().unwrap();
        assert_eq!(log.take(), ["first", "second", "still here"]);
        assert_eq!(alive.count(), 0, "the second was dropped when it returned");
    });
}

#[test]
fn a_watcher_that_is_made_by_a_watcher_runs_from_the_next_turn_on() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (sink, handle) = (log.clone(), base.handle());
        let mut once = true;
        let _watcher = Watcher::check(&base, move || {
            sink.push("old");
            if std::mem::take(&mut once) {
                let sink = sink.clone();
                Watcher::check(&handle, move || sink.push("new")).unwrap().detach();
            }
        })
        .unwrap();
        for _ in 0..2 {
            base.once(-1, What::empty(), None, |_| {}).unwrap();
            base.dispatch().unwrap();
        }
        assert_eq!(log.take(), ["old", "old", "new"]);
    });
}

#[test]
fn a_panic_frees_the_watcher_and_loses_nothing_else() {
    each_backend(|bed| {
        for at_check in [false, true] {
            let mut base = bed.base();
            let log = Log::new();
            let alive = Alive::default();
            let token = alive.token();
            let panics = move || {
                let _ = &token;
                quiet_panic("in a watcher");
            };
            let _watcher = match at_check {
                true => Watcher::check(&base, panics),
                false => Watcher::prepare(&base, move |_| panics()),
            };
            let sink = log.clone();
            let _other = Watcher::check(&base, move || sink.push("other")).unwrap();
            let (fd, peer) = bed.fd();
            peer.write_all(b"x");
            let sink = log.clone();
            // Edge-triggered where that exists: the kernel says it once only.
            let event =
                Event::new(&base, fd.raw(), What::READ | What::ET, move |_, _| sink.push("event")).unwrap();
            event.add(None).unwrap();
            must_panic("in a watcher", || base.dispatch());
            assert_eq!(alive.count(), 0);
            base.dispatch().unwrap();
            assert_eq!(log.take(), ["other", "event"]);
        }
    });
}

#[test]
fn watchers_go_with_the_loop_also_in_a_cycle() {
    each_backend(|bed| {
        let alive = Alive::default();
        let base = bed.base();
        let handle = base.handle();
        let own: Rc<RefCell<Option<Watcher>>> = Rc::default();
        let (cycle, token) = (own.clone(), alive.token());
        *own.borrow_mut() = Some(Watcher::prepare(&base, move |_| _ = (&cycle, &token)).unwrap());
        drop(own);
        let token = alive.token();
        Watcher::check(&base, move || _ = &token).unwrap().detach();
        // The loop is called from the Drop of what it drops last.
        let last = base.handle();
        let goes = OnDrop(move || assert!(matches!(last.loopbreak(), Err(Error::LoopGone))));
        Watcher::check(&base, move || _ = &goes).unwrap().detach();
        assert_eq!(alive.count(), 2);
        drop(base);
        assert_eq!(alive.count(), 0);
        let token = alive.token();
        assert!(matches!(Watcher::check(&handle, move || _ = &token), Err(Error::LoopGone)));
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn a_watcher_is_not_what_a_single_turn_waits_for() {
    each_backend(|bed| {
        let mut base = bed.base();
        let turns = Rc::new(Cell::new(0));
        let count = turns.clone();
        let _watcher = Watcher::prepare(&base, move |_| count.set(count.get() + 1)).unwrap();
        let waker = base.waker();
        waker.wake();
        base.once(-1, What::empty(), Some(5 * MS), |_| {}).unwrap();
        assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
        assert!(turns.get() >= 2, "the wake ended a turn in which nothing ran");
    });
}

#[test]
fn a_watcher_knows_its_loop() {
    each_backend(|bed| {
        let base = bed.base();
        let watcher = Watcher::prepare(&base, |_| {}).unwrap();
        watcher.handle().loopexit(None).unwrap();
        let mut base = base;
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
    });
}
