//! A panic in a callback ends the event it belongs to, and nothing else.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use event_core::{Error, Event, LoopEnd, LoopFlags, Ready, Signal, Timer, What};
use tests::{Alive, Log, OnDrop, each_backend, must_panic, quiet_panic};

#[test]
fn a_panic_frees_exactly_its_event_and_the_next_dispatch_runs_the_rest_of_the_batch() {
    each_backend(|bed| {
        let mut base = bed.base();
        let alive = Alive::default();
        let log = Log::new();
        let events: Vec<Event> = (0..4)
            .map(|n| {
                let (sink, token) = (log.clone(), alive.token());
                let event = Event::new(&base, -1, What::PERSIST, move |_, _| {
                    let _ = &token;
                    sink.push(n);
                    if n == 1 {
                        quiet_panic("boom");
                    }
                })
                .unwrap();
                event.activate(Ready::READ).unwrap();
                event
            })
            .collect();
        must_panic("boom", || base.dispatch());
        assert_eq!(log.take(), [0, 1]);
        assert_eq!(alive.count(), 3, "the callback that panicked is dropped");
        assert!(matches!(events[1].add(None), Err(Error::Stale)));
        assert_eq!(base.running_event(), None);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [2, 3]);
        assert!([0, 2, 3].iter().all(|n: &usize| base.is_alive(events[*n].id())));
    });
}

#[test]
fn every_kind_of_event_ends_with_its_panic() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let read =
            Event::new(&base, fd.raw(), What::READ | What::PERSIST, |_, _| quiet_panic("read")).unwrap();
        read.add(Some(Duration::from_secs(60))).unwrap();
        must_panic("read", || base.dispatch());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty, "it is off its fd and its timer is gone");
        let timer = Timer::persistent(&base, |_| quiet_panic("timer")).unwrap();
        timer.add(Duration::ZERO).unwrap();
        must_panic("timer", || base.dispatch());
        assert!(matches!(timer.add(Duration::ZERO), Err(Error::Stale)));
        base.once(-1, What::empty(), None, |_| quiet_panic("once")).unwrap();
        must_panic("once", || base.dispatch());
        let signal = Signal::new(&base, libc::SIGWINCH, |_| quiet_panic("signal")).unwrap();
        signal.add().unwrap();
        signal.activate(Ready::SIGNAL).unwrap();
        must_panic("signal", || base.dispatch());
        assert!(matches!(signal.add(), Err(Error::Stale)));
        base.set_token_handler(|_, _, token, _, _| {
            if token == 1 {
                quiet_panic("token")
            }
        });
        let one = base.register_token(-1, false, What::PERSIST, None, 1).unwrap();
        let other = base.register_token(-1, false, What::PERSIST, None, 2).unwrap();
        base.activate(one, Ready::READ).unwrap();
        base.activate(other, Ready::READ).unwrap();
        must_panic("token", || base.dispatch());
        assert!(!base.is_alive(one) && base.is_alive(other));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_panic_in_a_posted_closure_leaves_the_rest_and_all_that_comes_later() {
    each_backend(|bed| {
        let mut base = bed.base();
        let ran = Arc::new(AtomicUsize::new(0));
        let remote = base.remote();
        let post = |ran: &Arc<AtomicUsize>| {
            let ran = ran.clone();
            remote.post(move |_| _ = ran.fetch_add(1, Ordering::Relaxed)).unwrap();
        };
        post(&ran);
        remote.post(|_| quiet_panic("posted")).unwrap();
        post(&ran);
        post(&ran);
        must_panic("posted", || base.dispatch());
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 3);
        post(&ran);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(ran.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn what_a_panic_in_a_posted_closure_leaves_goes_before_what_comes_later() {
    each_backend(|bed| {
        let mut base = bed.base();
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let remote = base.remote();
        let post = |n: u32| {
            let seen = seen.clone();
            // All of one type, so that they stand together.
            remote.post(move |_| if n == 2 { quiet_panic("posted") } else { seen.lock().unwrap().push(n) })
        };
        (0..5).for_each(|n| post(n).unwrap());
        must_panic("posted", || base.dispatch());
        (5..8).for_each(|n| post(n).unwrap());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(*seen.lock().unwrap(), [0, 1, 3, 4, 5, 6, 7]);
    });
}

#[test]
fn a_panic_of_another_event_between_messages_leaves_them_in_order() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(3).unwrap();
        let urgent = Event::new(&base, -1, What::empty(), |_, _| quiet_panic("urgent")).unwrap();
        urgent.set_priority(0).unwrap();
        let log = Log::new();
        let (sink, handle, id) = (log.clone(), base.handle(), urgent.id());
        let (_mailbox, sender) = base
            .mailbox(move |n: i32| {
                sink.push(n);
                if n == 2 {
                    handle.activate_now(id, Ready::READ).unwrap();
                }
            })
            .unwrap();
        (1..=4).for_each(|n| sender.send(n).unwrap());
        must_panic("urgent", || base.dispatch());
        sender.send(5).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [1, 2, 3, 4, 5]);
    });
}

#[test]
fn a_panic_in_a_mailbox_ends_it_and_hands_later_messages_back() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (mailbox, sender) = base
            .mailbox(|n: i32| {
                if n == 2 {
                    quiet_panic("mail")
                }
            })
            .unwrap();
        let log = Log::new();
        let sink = log.clone();
        let (_other, to_other) = base.mailbox(move |n: i32| sink.push(n)).unwrap();
        (1..=3).for_each(|n| sender.send(n).unwrap());
        to_other.send(4).unwrap();
        must_panic("mail", || base.dispatch());
        assert!(sender.send(5).is_err());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [4]);
        drop(mailbox);
    });
}

#[test]
fn an_event_that_frees_itself_and_panics_is_freed_once() {
    each_backend(|bed| {
        let mut base = bed.base();
        let alive = Alive::default();
        let token = alive.token();
        let own = Rc::new(RefCell::new(None::<Event>));
        let slot = own.clone();
        let event = Event::new(&base, -1, What::empty(), move |event, _| {
            drop(slot.borrow_mut().take());
            // The slot is taken again at once: the panic must not free the newcomer.
            Event::new(event.handle(), -1, What::empty(), |_, _| {}).unwrap().detach();
            let _ = &token;
            quiet_panic("after free");
        })
        .unwrap();
        event.activate(Ready::READ).unwrap();
        let id = event.id();
        *own.borrow_mut() = Some(event);
        must_panic("after free", || base.dispatch());
        assert_eq!(alive.count(), 0);
        assert!(!base.is_alive(id));
    });
}

#[test]
fn a_callback_that_replaces_itself_and_panics_ends_with_both() {
    each_backend(|bed| {
        let mut base = bed.base();
        let alive = Alive::default();
        let (one, other) = (alive.token(), Cell::new(Some(alive.token())));
        let event = Event::new(&base, -1, What::empty(), move |event, _| {
            let token = other.take();
            event.set_callback(move |_, _| _ = &token).unwrap();
            let _ = &one;
            quiet_panic("replaced");
        })
        .unwrap();
        event.activate(Ready::READ).unwrap();
        must_panic("replaced", || base.dispatch());
        assert_eq!(alive.count(), 0);
        assert!(matches!(event.add(None), Err(Error::Stale)));
    });
}

#[test]
fn the_captures_of_a_callback_that_panics_may_call_the_loop_as_they_drop() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (sink, handle) = (log.clone(), base.handle());
        let guard = OnDrop(move || {
            let sink = sink.clone();
            handle.once(-1, What::empty(), None, move |_| sink.push("made while unwinding")).unwrap();
        });
        let event = Event::new(&base, -1, What::empty(), move |_, _| {
            let _ = &guard;
            quiet_panic("boom");
        })
        .unwrap();
        event.activate(Ready::READ).unwrap();
        must_panic("boom", || base.dispatch());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["made while unwinding"]);
    });
}

#[test]
fn a_drop_that_panics_comes_out_too_and_the_loop_goes_on() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let guard = OnDrop(|| quiet_panic("drop"));
        let event = Event::new(&base, -1, What::empty(), move |event, _| {
            let _ = &guard;
            event.handle().free(event.id()).unwrap();
        })
        .unwrap();
        event.activate(Ready::READ).unwrap();
        let sink = log.clone();
        let other = Event::new(&base, -1, What::empty(), move |_, _| sink.push(())).unwrap();
        other.activate(Ready::READ).unwrap();
        must_panic("drop", || base.dispatch());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.len(), 1);
    });
}

#[test]
fn a_loop_that_runs_while_its_thread_unwinds_keeps_its_events() {
    each_backend(|bed| {
        let base = RefCell::new(bed.base());
        let log = Log::new();
        let sink = log.clone();
        let event = Event::new(&base.borrow(), -1, What::PERSIST, move |_, _| sink.push(())).unwrap();
        event.activate(Ready::READ).unwrap();
        must_panic("elsewhere", || {
            // Some program shuts its loop down in an orderly way whatever happens.
            let _last = OnDrop(|| _ = base.borrow_mut().dispatch().unwrap());
            quiet_panic("elsewhere");
        });
        assert_eq!(log.len(), 1);
        assert!(base.borrow().is_alive(event.id()));
    });
}

#[test]
fn a_panic_in_one_loop_does_not_touch_another() {
    each_backend(|bed| {
        let mut bases = [bed.base(), bed.base()];
        let log = Log::new();
        let sink = log.clone();
        let bad = Event::new(&bases[0], -1, What::empty(), |_, _| quiet_panic("boom")).unwrap();
        let good = Event::new(&bases[1], -1, What::empty(), move |_, _| sink.push(())).unwrap();
        bad.activate(Ready::READ).unwrap();
        good.activate(Ready::READ).unwrap();
        must_panic("boom", || bases[0].dispatch());
        assert_eq!(bases[1].dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.len(), 1);
    });
}

#[test]
fn a_stop_asked_before_the_panic_is_kept() {
    each_backend(|bed| {
        let mut base = bed.base();
        let handle = base.handle();
        let event = Event::new(&base, -1, What::empty(), move |_, _| {
            handle.loopbreak().unwrap();
            quiet_panic("boom");
        })
        .unwrap();
        event.activate(Ready::READ).unwrap();
        must_panic("boom", || base.dispatch());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
    });
}
