//! What is dropped when, and what is left to say afterwards.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use event_core::testing::{Call, Faults, Sim};
use event_core::{
    BufferEvent, Direction, Error, Event, EventBase, EventId, Listener, LoopHandle, Ready, Signal, Timer,
    Watcher, What,
};
use tests::{Alive, Log, OnDrop, each_backend, must_panic, quiet_panic};

const MS: Duration = Duration::from_millis(1);

#[test]
fn dropping_an_event_voids_its_activation_and_drops_its_callback_at_once() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let alive = Alive::default();
        let token = alive.token();
        let event = Event::new(&base, fd.raw(), What::READ, move |_, _| panic!("{token:?}")).unwrap();
        event.add(Some(MS)).unwrap();
        event.activate_now(Ready::READ).unwrap();
        event.activate(Ready::READ).unwrap();
        peer.write_all(b"x");
        drop(event);
        assert_eq!(alive.count(), 0);
        base.dispatch().unwrap();
    });
}

#[test]
fn timers_and_signals_are_dropped_like_events() {
    each_backend(|bed| {
        let mut base = bed.base();
        let alive = Alive::default();
        let (one, other, third) = (alive.token(), alive.token(), alive.token());
        let timer = Timer::new(&base, move |_| panic!("{one:?}")).unwrap();
        timer.add(Duration::ZERO).unwrap();
        let persistent = Timer::persistent(&base, move |_| panic!("{other:?}")).unwrap();
        persistent.add(Duration::ZERO).unwrap();
        let signal = Signal::new(&base, libc::SIGWINCH, move |_| panic!("{third:?}")).unwrap();
        signal.add().unwrap();
        signal.activate(Ready::SIGNAL).unwrap();
        drop((timer, persistent, signal));
        assert_eq!(alive.count(), 0);
        base.dispatch().unwrap();
    });
}

#[test]
fn a_detached_event_belongs_to_the_loop_until_it_is_freed_by_its_id() {
    each_backend(|bed| {
        let mut base = bed.base();
        let alive = Alive::default();
        let log = Log::new();
        let ids: Vec<EventId> = (0..2)
            .map(|n| {
                let (token, sink) = (alive.token(), log.clone());
                let timer = Timer::new(&base, move |_| {
                    let _ = &token;
                    sink.push(n);
                })
                .unwrap();
                timer.add(Duration::ZERO).unwrap();
                timer.detach()
            })
            .collect();
        base.dispatch().unwrap();
        assert_eq!((log.take(), alive.count()), (vec![0, 1], 2));
        base.free(ids[0]).unwrap();
        assert_eq!(alive.count(), 1);
        drop(base);
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn a_once_event_that_never_fired_goes_with_the_loop() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, _peer) = bed.fd();
        let alive = Alive::default();
        for timeout in [None, Some(Duration::from_secs(3600))] {
            let token = alive.token();
            base.once(fd.raw(), What::READ, timeout, move |_| drop(token)).unwrap();
        }
        let token = alive.token();
        base.once(-1, What::empty(), None, move |_| drop(token)).unwrap();
        base.run(event_core::LoopFlags::NONBLOCK).unwrap();
        assert_eq!(alive.count(), 2, "one has fired");
        drop(base);
        assert_eq!(alive.count(), 0);
    });
}

/// Builds one of each kind of object whose callback captures a handle on the loop and its own handle.
fn one_of_each(bed: &tests::Bed, base: &event_core::EventBase, alive: &Alive) -> Vec<Box<dyn std::any::Any>> {
    let handle = base.handle();
    let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
    let (fd, peer) = bed.fd();
    let event_slot = Rc::new(RefCell::new(None::<Event>));
    let (token, own, loop_handle) = (alive.token(), event_slot.clone(), handle.clone());
    let event = Event::new(&handle, fd.raw(), What::READ | What::PERSIST, move |_, _| {
        let _ = (&token, &own, &loop_handle);
    })
    .unwrap();
    event.add(Some(Duration::from_secs(60))).unwrap();
    event.activate(Ready::READ).unwrap();
    *event_slot.borrow_mut() = Some(event);
    kept.push(Box::new((fd, peer)));

    let timer_slot = Rc::new(RefCell::new(None::<Timer>));
    let (token, own, loop_handle) = (alive.token(), timer_slot.clone(), handle.clone());
    let timer = Timer::new(&handle, move |_| _ = (&token, &own, &loop_handle)).unwrap();
    timer.add(Duration::from_secs(60)).unwrap();
    *timer_slot.borrow_mut() = Some(timer);

    let signal_slot = Rc::new(RefCell::new(None::<Signal>));
    let (token, own, loop_handle) = (alive.token(), signal_slot.clone(), handle.clone());
    let signal = Signal::new(&handle, libc::SIGWINCH, move |_| _ = (&token, &own, &loop_handle)).unwrap();
    signal.add().unwrap();
    *signal_slot.borrow_mut() = Some(signal);

    let mailbox_slot = Rc::new(RefCell::new(None));
    let (token, own, loop_handle) = (alive.token(), mailbox_slot.clone(), handle.clone());
    let (mailbox, sender) = handle.mailbox(move |_: i32| _ = (&token, &own, &loop_handle)).unwrap();
    sender.send(1).unwrap();
    *mailbox_slot.borrow_mut() = Some(mailbox);

    let (token, loop_handle) = (alive.token(), handle.clone());
    handle
        .once(-1, What::empty(), Some(Duration::from_secs(60)), move |_| drop((token, loop_handle)))
        .unwrap();

    let (token, loop_handle) = (alive.token(), handle.clone());
    handle.set_token_handler(move |_, _, _, _, _| _ = (&token, &loop_handle));
    handle.register_token(-1, false, What::empty(), None, 1).unwrap();

    let (one, other, loop_handle) = (alive.token(), alive.token(), handle.clone());
    handle.set_wait_hook(move || _ = (&one, &loop_handle), move || _ = &other);

    let (stream, peer) = bed.stream(&handle);
    let (token, own) = (alive.token(), stream.clone());
    stream.set_read_cb(move |_| _ = (&token, &own));
    let (token, own, loop_handle) = (alive.token(), stream.clone(), handle.clone());
    stream.set_event_cb(move |_, _| _ = (&token, &own, &loop_handle));
    stream.enable(Direction::READ).unwrap();
    kept.push(Box::new(peer));

    let (one, other) = BufferEvent::pair(&handle).unwrap();
    let (token, own, partner) = (alive.token(), one.clone(), other.clone());
    one.set_read_cb(move |_| _ = (&token, &own, &partner));
    one.enable(Direction::READ).unwrap();
    let (token, own) = (alive.token(), other.clone());
    other.set_read_cb(move |_| _ = (&token, &own));
    other.enable(Direction::READ).unwrap();

    let listener_slot = Rc::new(RefCell::new(None::<Listener>));
    let (token, own, loop_handle) = (alive.token(), listener_slot.clone(), handle.clone());
    let listener = Listener::bind(&handle, "127.0.0.1:0", move |_, _| {
        let _ = (&token, &own, &loop_handle);
    })
    .unwrap();
    *listener_slot.borrow_mut() = Some(listener);
    kept
}

#[test]
fn dropping_the_loop_cuts_every_cycle_of_callbacks_that_capture_themselves() {
    each_backend(|bed| {
        for run in [false, true] {
            let mut base = bed.base();
            let alive = Alive::default();
            let kept = one_of_each(bed, &base, &alive);
            assert_eq!(alive.count(), 13);
            if run {
                bed.settle(&mut base);
            }
            drop(base);
            assert_eq!(alive.count(), 0);
            drop(kept);
        }
    });
}

#[test]
fn the_loop_closes_what_it_owns_and_no_borrowed_fd() {
    each_backend(|bed| {
        let Some(sim) = bed.sim() else { return };
        let base = bed.base();
        let alive = Alive::default();
        let before = sim.open_fds();
        let kept = one_of_each(bed, &base, &alive);
        drop(base);
        // The first number that was opened is the event's fd, borrowed: it stays.
        assert_eq!(sim.open_fds().len(), before.len() + 1);
        drop(kept);
        assert_eq!(sim.open_fds(), before);
    });
}

/// A loop with objects of every kind, some of which panic as they are dropped, with something behind each: `kept` goes
/// after the loop.
fn with_panics(bed: &tests::Bed, alive: &Alive, posted: &Arc<()>) -> Stage {
    let base = bed.base();
    // What stands behind the panic drops all the same.
    let boom = |text| (OnDrop(move || quiet_panic(text)), alive.token());
    let remote = base.remote();
    for text in ["posted", "posted, too", "as well"] {
        let captured = (OnDrop(move || quiet_panic(text)), posted.clone());
        remote.post(move |_| drop(captured)).unwrap();
    }
    let (first, second) = (boom("first"), boom("second"));
    Event::new(&base, -1, What::empty(), move |_, _| _ = &first).unwrap().detach();
    let timer = Timer::new(&base, move |_| _ = &second).unwrap();
    timer.add(MS).unwrap();
    let mut kept = one_of_each(bed, &base, alive);
    kept.push(Box::new(timer));
    for captured in [boom("watcher"), boom("other watcher")] {
        kept.push(Box::new(Watcher::prepare(&base, move |_| _ = &captured).unwrap()));
    }
    Stage { base, kept }
}

struct Stage {
    base: EventBase,
    kept: Vec<Box<dyn std::any::Any>>,
}

#[test]
fn a_drop_that_panics_as_the_loop_ends_leaves_nothing_undropped() {
    each_backend(|bed| {
        let before = bed.sim().map(Sim::open_fds);
        let (alive, posted) = (Alive::default(), Arc::new(()));
        let Stage { base, kept } = with_panics(bed, &alive, &posted);
        assert_eq!((alive.count(), Arc::strong_count(&posted)), (17, 4));
        let handle = base.handle();
        must_panic("first", || drop(base));
        assert_eq!((alive.count(), Arc::strong_count(&posted)), (0, 1));
        assert!(matches!(handle.loopexit(None), Err(Error::LoopGone)));
        drop(kept);
        assert_eq!(bed.sim().map(Sim::open_fds), before);
    });
}

#[test]
fn a_loop_that_is_dropped_while_its_thread_unwinds_adds_no_panic_of_its_own() {
    each_backend(|bed| {
        let (alive, posted) = (Alive::default(), Arc::new(()));
        must_panic("the program's own", || {
            let _stage = with_panics(bed, &alive, &posted);
            quiet_panic("the program's own");
        });
        assert_eq!((alive.count(), Arc::strong_count(&posted)), (0, 1));
    });
}

#[test]
fn calls_on_a_dropped_loop_say_that_it_is_gone() {
    each_backend(|bed| {
        let base = bed.base();
        let handle = base.handle();
        let event = Event::new(&base, -1, What::PERSIST, |_, _| {}).unwrap();
        let timer = Timer::new(&base, |_| {}).unwrap();
        let signal = Signal::new(&base, libc::SIGWINCH, |_| {}).unwrap();
        event.activate(Ready::READ).unwrap();
        timer.add(MS).unwrap();
        drop(base);
        let gone = |result: Result<(), Error>| assert!(matches!(result, Err(Error::LoopGone)), "{result:?}");
        gone(event.add(None));
        gone(event.del());
        gone(event.activate(Ready::READ));
        gone(event.activate_now(Ready::READ));
        gone(event.remove_timer());
        gone(event.set_priority(0));
        gone(event.set_background(true));
        gone(event.set_callback(|_, _| {}));
        gone(timer.add(MS));
        gone(timer.set_callback(|_| {}));
        gone(signal.add());
        gone(signal.set_callback(|_| {}));
        gone(handle.free(event.id()));
        gone(handle.loopexit(None));
        gone(handle.loopexit(Some(MS)));
        gone(handle.loopbreak());
        gone(handle.priority_init(2));
        gone(handle.once(-1, What::empty(), None, |_| unreachable!()));
        gone(handle.register_token(-1, false, What::empty(), None, 1).map(drop));
        gone(handle.mailbox(|_: i32| unreachable!()).map(drop));
        gone(Event::new(&handle, -1, What::empty(), |_, _| {}).map(drop));
        gone(Timer::new(&handle, |_| {}).map(drop));
        gone(Timer::persistent(&handle, |_| {}).map(drop));
        gone(Signal::new(&handle, libc::SIGWINCH, |_| {}).map(drop));
        gone(handle.remote().post(|_| unreachable!()));
        // What only looks has an answer all the same.
        assert_eq!((event.pending(), event.deadline()), (Ready::empty(), None));
        assert!(!handle.is_alive(event.id()));
        assert_eq!((handle.next_deadline(), handle.running_event()), (None, None));
        let _ = (handle.now(), handle.wall_clock(), handle.method(), handle.features(), handle.priorities());
        let _ = (format!("{event:?} {timer:?} {signal:?}"), handle.got_exit(), handle.got_break());
        assert_eq!(handle.method(), bed.method);
        drop((event, timer, signal));
    });
}

#[test]
fn ids_stay_stale_for_ever_after_the_loop_is_gone() {
    each_backend(|bed| {
        let base = bed.base();
        let handle = base.handle();
        let ids: Vec<EventId> =
            (0..10).map(|_| Event::new(&base, -1, What::empty(), |_, _| {}).unwrap().detach()).collect();
        drop(base);
        for _ in 0..10 {
            assert!(Event::new(&handle, -1, What::empty(), |_, _| {}).is_err());
        }
        assert!(ids.iter().all(|id| !handle.is_alive(*id) && handle.pending(*id).is_empty()));
    });
}

#[test]
fn what_is_dropped_with_the_loop_may_call_it_and_hears_that_it_is_gone() {
    each_backend(|bed| {
        let base = bed.base();
        let log = Log::new();
        let ids = Rc::new(RefCell::new(Vec::<EventId>::new()));
        for _ in 0..3 {
            let (sink, handle, others) = (log.clone(), base.handle(), ids.clone());
            let guard = OnDrop(move || {
                sink.push(matches!(handle.add(others.borrow()[0], None), Err(Error::LoopGone)));
                for id in others.borrow().iter() {
                    assert!(matches!(handle.free(*id), Err(Error::LoopGone)));
                }
                assert!(Event::new(&handle, -1, What::empty(), |_, _| {}).is_err());
                handle.set_wait_hook(|| {}, || {});
                handle.waker().wake();
            });
            let event = Event::new(&base, -1, What::empty(), move |_, _| _ = &guard).unwrap();
            ids.borrow_mut().push(event.detach());
        }
        drop(base);
        assert_eq!(log.take(), [true; 3]);
    });
}

#[test]
fn what_is_set_on_a_dropped_loop_is_dropped_and_leaks_nothing() {
    each_backend(|bed| {
        let base = bed.base();
        let handle = base.handle();
        drop(base);
        let alive = Alive::default();
        let (one, other, own) = (alive.token(), alive.token(), handle.clone());
        handle.set_wait_hook(move || _ = (&one, &own), move || _ = &other);
        let (token, own) = (alive.token(), handle.clone());
        handle.set_token_handler(move |_, _, _, _, _| _ = (&token, &own));
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn a_callback_that_captures_the_loops_owner_is_the_programs_own_cycle() {
    each_backend(|bed| {
        // The way out is to take the base out of what the callback captured.
        struct App {
            base: Cell<Option<event_core::EventBase>>,
        }
        let app = Rc::new(App { base: Cell::new(Some(bed.base())) });
        let alive = Alive::default();
        let (token, own) = (alive.token(), app.clone());
        let base = app.base.take().unwrap();
        let timer = Timer::new(&base, move |_| _ = (&token, &own)).unwrap();
        timer.add(Duration::from_secs(60)).unwrap();
        timer.detach();
        app.base.set(Some(base));
        drop(app.base.take());
        assert_eq!((alive.count(), Rc::strong_count(&app)), (0, 1));
    });
}

#[test]
fn a_loop_with_active_events_may_be_dropped() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(2).unwrap();
        let alive = Alive::default();
        let kept: Vec<Event> = (0..10)
            .map(|n| {
                let (token, handle) = (alive.token(), base.handle());
                let event = Event::new(&base, -1, What::empty(), move |_, _| {
                    let _ = &token;
                    handle.loopbreak().unwrap();
                })
                .unwrap();
                event.set_priority(n % 2).unwrap();
                event.activate(Ready::READ).unwrap();
                event
            })
            .collect();
        base.dispatch().unwrap();
        drop(base);
        assert_eq!(alive.count(), 0);
        drop(kept);
    });
}

#[test]
fn dropping_events_takes_each_off_its_fd_once() {
    each_backend(|bed| {
        let faults = Faults::new();
        let base = bed.base_with(&faults);
        let (fd, _peer) = bed.fd();
        let events = [What::READ, What::WRITE, What::READ].map(|what| {
            let event = Event::new(&base, fd.raw(), what | What::PERSIST, |_, _| {}).unwrap();
            event.add(None).unwrap();
            event
        });
        let before = faults.count(Call::Change);
        drop(events);
        assert_eq!(faults.count(Call::Change) - before, 1, "the last of them tells the kernel");
        drop(base);
        assert_eq!(faults.count(Call::Change) - before, 1);
    });
}

#[test]
fn handles_outlive_the_loop_without_keeping_its_callbacks() {
    each_backend(|bed| {
        let handle: LoopHandle;
        let alive = Alive::default();
        {
            let base = bed.base();
            handle = base.handle();
            let token = alive.token();
            Event::new(&base, -1, What::empty(), move |_, _| _ = &token).unwrap().detach();
        }
        assert_eq!(alive.count(), 0);
        assert!(matches!(handle.loopexit(None), Err(Error::LoopGone)));
    });
}
