//! Every public call is legal in every callback, and in the `Drop` of what a call lets go.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::{Call, Faults};
use event_core::{Event, EventId, LoopEnd, LoopFlags, LoopHandle, Ready, Signal, Timer, What};
use tests::{Alive, Log, OnDrop, each_backend};

const MS: Duration = Duration::from_millis(1);

/// Shared by the callbacks of a test: the events they do things to.
type Shelf = Rc<RefCell<Vec<Option<Event>>>>;

/// Takes an event off the shelf, so that its drop runs with the shelf free.
fn take(shelf: &Shelf, n: usize) -> Option<Event> {
    shelf.borrow_mut()[n].take()
}

/// Three events that note their number; the first also does `act`. All are active in one batch.
fn batch_of_three(
    base: &event_core::EventBase,
    log: &Log<usize>,
    act: impl Fn(&Event, &Shelf) + 'static,
) -> Shelf {
    let shelf = Shelf::default();
    let act = Rc::new(act);
    for n in 0..3 {
        let (sink, others, act) = (log.clone(), shelf.clone(), act.clone());
        let event = Event::new(base, -1, What::empty(), move |event, _| {
            sink.push(n);
            if n == 0 {
                act(event, &others);
            }
        })
        .unwrap();
        event.activate(Ready::READ).unwrap();
        shelf.borrow_mut().push(Some(event));
    }
    shelf
}

#[test]
fn freeing_a_later_event_in_the_same_batch_silences_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let _shelf = batch_of_three(&base, &log, |_, shelf| drop(take(shelf, 1)));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [0, 2]);
    });
}

#[test]
fn freeing_by_id_works_like_dropping() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let _shelf = batch_of_three(&base, &log, |event, shelf| {
            let id = shelf.borrow()[2].as_ref().unwrap().id();
            event.handle().free(id).unwrap();
            event.handle().free(id).unwrap();
            event.handle().free(event.id()).unwrap();
            assert!(!event.handle().is_alive(event.id()));
        });
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [0, 1]);
    });
}

#[test]
fn deleting_a_later_event_in_the_same_batch_silences_it_and_adding_it_again_does_not_wake_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let shelf = batch_of_three(&base, &log, |_, shelf| {
            let event = take(shelf, 1).unwrap();
            event.del().unwrap();
            event.add(Some(Duration::from_secs(3600))).unwrap();
            shelf.borrow_mut()[1] = Some(event);
        });
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(log.take(), [0, 2]);
        assert_eq!(shelf.borrow()[1].as_ref().unwrap().pending(), Ready::TIMEOUT);
    });
}

#[test]
fn an_event_may_drop_itself_and_its_captures_live_until_it_returns() {
    each_backend(|bed| {
        let mut base = bed.base();
        let alive = Alive::default();
        let (token, log) = (alive.token(), Log::new());
        let own = Rc::new(RefCell::new(None::<Event>));
        let (slot, sink) = (own.clone(), log.clone());
        let event = Event::new(&base, -1, What::empty(), move |event, _| {
            let taken = slot.borrow_mut().take();
            drop(taken);
            assert!(event.add(Some(MS)).is_err(), "it is freed");
            let _ = &token;
            sink.push(());
        })
        .unwrap();
        event.activate(Ready::READ).unwrap();
        *own.borrow_mut() = Some(event);
        assert_eq!(alive.count(), 1);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!((log.len(), alive.count()), (1, 0));
    });
}

#[test]
fn the_event_that_a_callback_is_shown_owns_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let event = Event::new(&base, -1, What::PERSIST, move |_, _| sink.push(())).unwrap();
        for _ in 0..3 {
            event.activate(Ready::READ).unwrap();
            base.run(LoopFlags::NONBLOCK).unwrap();
        }
        assert_eq!(log.len(), 3);
    });
}

#[test]
fn replacing_the_own_callback_drops_the_running_one_when_it_returns() {
    each_backend(|bed| {
        let mut base = bed.base();
        let alive = Alive::default();
        let log = Log::new();
        let (token, sink, counts) = (alive.token(), log.clone(), Log::new());
        let counter = counts.clone();
        let event = Event::new(&base, -1, What::PERSIST, move |event, _| {
            let sink_new = sink.clone();
            event.set_callback(move |_, _| sink_new.push("new")).unwrap();
            event
                .set_callback({
                    let sink = sink.clone();
                    move |_, _| sink.push("newest")
                })
                .unwrap();
            // Still there: this is the running one.
            let _ = &token;
            sink.push("old");
            counter.push(());
        })
        .unwrap();
        for _ in 0..3 {
            event.activate(Ready::READ).unwrap();
            base.run(LoopFlags::NONBLOCK).unwrap();
            assert_eq!(alive.count(), 0);
        }
        assert_eq!(log.take(), ["old", "newest", "newest"]);
        assert_eq!(counts.len(), 1);
    });
}

#[test]
fn a_neighbours_callback_may_be_replaced_and_is_dropped_at_once() {
    each_backend(|bed| {
        let mut base = bed.base();
        let alive = Alive::default();
        let log = Log::new();
        let token = alive.token();
        let victim = Event::new(&base, -1, What::empty(), move |_, _| _ = &token).unwrap();
        let victim = Rc::new(victim);
        let (other, sink, count) = (victim.clone(), log.clone(), Rc::new(alive));
        let alive = count.clone();
        let event = Event::new(&base, -1, What::empty(), move |_, _| {
            let sink = sink.clone();
            other.set_callback(move |_, _| sink.push("replaced")).unwrap();
            assert_eq!(count.count(), 0);
        })
        .unwrap();
        event.activate(Ready::READ).unwrap();
        victim.activate(Ready::READ).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["replaced"], "the activation was for the event, not for the callback");
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn a_callback_may_replace_itself_and_then_free_itself() {
    each_backend(|bed| {
        let mut base = bed.base();
        let alive = Alive::default();
        let (one, other) = (alive.token(), Cell::new(Some(alive.token())));
        let event = Event::new(&base, -1, What::empty(), move |event, _| {
            let token = other.take();
            event.set_callback(move |_, _| _ = &token).unwrap();
            event.handle().free(event.id()).unwrap();
            let _ = &one;
        })
        .unwrap();
        event.activate(Ready::READ).unwrap();
        base.dispatch().unwrap();
        assert_eq!(alive.count(), 0);
    });
}

/// Everything that a program can ask of a loop, from wherever this is called.
fn every_call(handle: &LoopHandle, log: &Log<&'static str>) {
    let sink = log.clone();
    let event = Event::new(handle, -1, What::PERSIST, move |_, _| sink.push("activated")).unwrap();
    event.add(Some(Duration::from_secs(3600))).unwrap();
    event.add(None).unwrap();
    event.remove_timer().unwrap();
    event.set_priority(0).unwrap();
    event.activate(Ready::READ).unwrap();
    event.activate_now(Ready::WRITE).unwrap();
    let _ = (event.pending(), event.deadline(), format!("{event:?}"), event.handle().clone());
    event.set_background(true).unwrap();
    event.set_callback(|_, _| {}).unwrap();
    event.del().unwrap();
    let sink = log.clone();
    event.set_callback(move |_, _| sink.push("activated")).unwrap();
    event.activate(Ready::READ).unwrap();
    let id = event.detach();
    assert!(handle.is_alive(id));
    let timer = Timer::new(handle, |_| {}).unwrap();
    timer.add(MS).unwrap();
    drop(timer);
    let timer = Timer::persistent(handle, |_| {}).unwrap();
    timer.set_callback(|_| {}).unwrap();
    drop(timer);
    let signal = Signal::new(handle, libc::SIGWINCH, |_| {}).unwrap();
    signal.add().unwrap();
    drop(signal);
    let sink = log.clone();
    handle.once(-1, What::empty(), None, move |_| sink.push("once")).unwrap();
    let (mailbox, sender) = handle.mailbox(|_: i32| {}).unwrap();
    sender.send(1).unwrap();
    drop(mailbox);
    handle.remote().post(|_| {}).unwrap();
    handle.waker().wake();
    handle.set_token_handler(|_, _, _, _, _| {});
    let token = handle.register_token(-1, false, What::empty(), None, 1).unwrap();
    handle.add(token, Some(MS)).unwrap();
    handle.free(token).unwrap();
    handle.set_wait_hook(|| {}, || {});
    handle.update_cache_time();
    let _ = handle.priority_init(1);
    let _ = (handle.now(), handle.wall_clock(), handle.running_event(), handle.next_deadline());
    let _ =
        (handle.method(), handle.features(), handle.priorities(), handle.poll_fd(), format!("{handle:?}"));
    let _ = (handle.got_exit(), handle.got_break(), handle.open_file_limit());
    handle.loopexit(Some(Duration::from_secs(3600))).unwrap();
    handle.loopexit(None).unwrap();
    handle.loopbreak().unwrap();
}

#[test]
fn every_call_is_legal_in_every_kind_of_callback() {
    each_backend(|bed| {
        type Start = fn(&LoopHandle, Box<dyn FnOnce(&LoopHandle)>);
        let kinds: [Start; 7] = [
            |handle, act| {
                let mut act = Some(act);
                let event =
                    Event::new(handle, -1, What::empty(), move |e, _| (act.take().unwrap())(e.handle()));
                let event = event.unwrap();
                event.activate(Ready::READ).unwrap();
                event.detach();
            },
            |handle, act| {
                let mut act = Some(act);
                let timer = Timer::new(handle, move |timer| (act.take().unwrap())(timer.handle())).unwrap();
                timer.add(Duration::ZERO).unwrap();
                timer.detach();
            },
            |handle, act| {
                let own = handle.clone();
                handle.once(-1, What::empty(), None, move |_| act(&own)).unwrap();
            },
            |handle, act| {
                let (own, mut act) = (handle.clone(), Some(act));
                let (mailbox, sender) = handle.mailbox(move |_: ()| (act.take().unwrap())(&own)).unwrap();
                mailbox.detach();
                sender.send(()).unwrap();
            },
            |handle, act| {
                let act = Cell::new(Some(act));
                handle.set_token_handler(move |handle, _, _, _, _| (act.take().unwrap())(handle));
                let id = handle.register_token(-1, false, What::empty(), None, 1).unwrap();
                handle.activate(id, Ready::READ).unwrap();
            },
            |handle, act| {
                let (own, act) = (handle.clone(), Cell::new(Some(act)));
                let before = move || {
                    if let Some(act) = act.take() {
                        act(&own);
                    }
                };
                handle.set_wait_hook(before, || {});
            },
            |handle, act| {
                let (own, act) = (handle.clone(), Cell::new(Some(act)));
                let after = move || {
                    if let Some(act) = act.take() {
                        act(&own);
                    }
                };
                handle.set_wait_hook(|| {}, after);
                handle.waker().wake();
            },
        ];
        for (n, start) in kinds.into_iter().enumerate() {
            let mut base = bed.base();
            let log = Log::new();
            let sink = log.clone();
            start(&base, Box::new(move |handle| every_call(handle, &sink)));
            assert_eq!(base.run(LoopFlags::NO_EXIT_ON_EMPTY).unwrap(), LoopEnd::Break, "kind {n}");
            base.run(LoopFlags::NONBLOCK).unwrap();
            assert_eq!(log.take(), ["activated", "once"], "kind {n}");
        }
    });
}

#[test]
fn every_call_is_legal_in_the_drop_of_what_a_callback_captured() {
    each_backend(|bed| {
        type End = fn(&LoopHandle, Event);
        let ends: [End; 5] = [
            |_, event| drop(event),
            |handle, event| handle.free(event.id()).unwrap(),
            |_, event| event.set_callback(|_, _| {}).unwrap(),
            |handle, event| {
                // Dropped by the loop when the callback, which frees its event, returns.
                let (id, slot) = (event.id(), Rc::new(Cell::new(None)));
                let keep = slot.clone();
                handle.once(-1, What::empty(), None, move |_| drop(keep.take())).unwrap();
                event.activate(Ready::READ).unwrap();
                slot.set(Some(event));
                let _ = id;
            },
            |handle, event| {
                let own = handle.clone();
                let id = event.detach();
                handle.once(-1, What::empty(), None, move |_| own.free(id).unwrap()).unwrap();
            },
        ];
        for (n, end) in ends.into_iter().enumerate() {
            let mut base = bed.base();
            let log = Log::new();
            let (sink, handle) = (log.clone(), base.handle());
            let guard = OnDrop(move || every_call(&handle, &sink));
            let event = Event::new(&base, -1, What::empty(), move |_, _| _ = &guard).unwrap();
            end(&base, event);
            assert_eq!(base.run(LoopFlags::NO_EXIT_ON_EMPTY).unwrap(), LoopEnd::Break, "end {n}");
            base.run(LoopFlags::NONBLOCK).unwrap();
            assert_eq!(log.take(), ["activated", "once"], "end {n}");
        }
    });
}

#[test]
fn the_drop_of_a_refused_callback_may_call_the_loop() {
    each_backend(|bed| {
        let base = bed.base();
        let handle = base.handle();
        let event = Event::new(&base, -1, What::empty(), |_, _| {}).unwrap();
        base.free(event.id()).unwrap();
        let dropped = Rc::new(Cell::new(0));
        let guard = |handle: &LoopHandle| {
            let (handle, dropped) = (handle.clone(), dropped.clone());
            OnDrop(move || {
                dropped.set(dropped.get() + 1);
                let _ = Event::new(&handle, -1, What::empty(), |_, _| {});
                let _ = handle.loopexit(None);
            })
        };
        let refused = guard(&handle);
        assert!(event.set_callback(move |_, _| _ = &refused).is_err());
        assert_eq!(dropped.get(), 1);
        let refused = guard(&handle);
        assert!(base.once(-1, What::PERSIST, None, move |_| drop(refused)).is_err());
        assert_eq!(dropped.get(), 2);
        drop(base);
        let refused = guard(&handle);
        assert!(Event::new(&handle, -1, What::empty(), move |_, _| _ = &refused).is_err());
        let refused = guard(&handle);
        assert!(handle.mailbox(move |_: i32| _ = &refused).is_err());
        assert_eq!(dropped.get(), 4);
    });
}

#[test]
fn no_callback_runs_inside_a_call_that_the_user_made() {
    each_backend(|bed| {
        let mut base = bed.base();
        let inside = Rc::new(Cell::new(false));
        let log = Log::new();
        let (flag, sink) = (inside.clone(), log.clone());
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let target = Event::new(&base, fd.raw(), What::READ, move |_, _| {
            assert!(!flag.get());
            sink.push(());
        })
        .unwrap();
        let (flag, id) = (inside.clone(), target.id());
        let event = Event::new(&base, -1, What::empty(), move |event, _| {
            flag.set(true);
            event.handle().add(id, Some(Duration::ZERO)).unwrap();
            event.handle().activate_now(id, Ready::READ).unwrap();
            event.handle().activate(id, Ready::READ).unwrap();
            flag.set(false);
        })
        .unwrap();
        event.activate(Ready::READ).unwrap();
        base.dispatch().unwrap();
        assert!(!log.is_empty());
    });
}

#[test]
fn a_one_shot_event_may_be_activated_again_in_its_own_callback() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let event = Event::new(&base, -1, What::empty(), move |event, ready| {
            sink.push(ready);
            match sink.len() {
                1 => event.activate(Ready::WRITE).unwrap(),
                2 => event.activate_now(Ready::TIMEOUT).unwrap(),
                _ => {}
            }
        })
        .unwrap();
        event.activate(Ready::READ).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [Ready::READ, Ready::WRITE, Ready::TIMEOUT]);
    });
}

#[test]
fn callbacks_that_make_and_free_events_at_random_never_confuse_the_loop() {
    each_backend(|bed| {
        let mut base = bed.base();
        let ids = Rc::new(RefCell::new(Vec::<EventId>::new()));
        let state = Rc::new(Cell::new(0x2545_f491_4f6c_dd1d_u64));
        let alive = Rc::new(Alive::default());
        let calls = Rc::new(Cell::new(0));
        #[derive(Clone)]
        struct World(Rc<RefCell<Vec<EventId>>>, Rc<Cell<u64>>, Rc<Alive>, Rc<Cell<u32>>);
        fn random(world: &World, bound: usize) -> usize {
            let mut state = world.1.get();
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            world.1.set(state);
            (state % bound as u64) as usize
        }
        fn make(handle: &LoopHandle, world: &World) {
            let (own, token) = (world.clone(), world.2.token());
            let what = if random(world, 2) == 0 { What::PERSIST } else { What::empty() };
            let event = Event::new(handle, -1, what, move |event, _| {
                let _ = &token;
                act(event.handle(), &own);
            })
            .unwrap();
            event.activate(Ready::READ).unwrap();
            world.0.borrow_mut().push(event.detach());
        }
        fn act(handle: &LoopHandle, world: &World) {
            world.3.set(world.3.get() + 1);
            if world.3.get() > tests::few_under_miri(3_000, 200) {
                handle.loopexit(None).unwrap();
                return;
            }
            for _ in 0..random(world, 4) {
                let count = world.0.borrow().len();
                let id = world.0.borrow().get(random(world, count.max(1))).copied();
                let Some(id) = id else { return make(handle, world) };
                match random(world, 8) {
                    0 => handle.free(id).unwrap(),
                    1 => drop(handle.del(id)),
                    2 | 3 => drop(handle.activate(id, Ready::WRITE)),
                    4 => drop(handle.activate_now(id, Ready::READ)),
                    5 => drop(handle.add(id, Some(Duration::from_micros(random(world, 50) as u64)))),
                    _ => make(handle, world),
                }
            }
        }
        let world = World(ids, state, alive.clone(), calls.clone());
        (0..10).for_each(|_| make(&base, &world));
        while calls.get() < tests::few_under_miri(2_000, 150) {
            if base.dispatch().unwrap() == LoopEnd::Empty {
                (0..5).for_each(|_| make(&base, &world));
            }
        }
        let living = world.0.borrow().iter().filter(|id| base.is_alive(**id)).count();
        assert_eq!(alive.count(), living, "a callback lives exactly as long as its event");
        drop(base);
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn freeing_in_a_callback_tells_the_kernel_at_once() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let (fd, peer) = bed.fd();
        let counts = Log::new();
        let (sink, calls) = (counts.clone(), faults.clone());
        let event = Event::new(&base, fd.raw(), What::READ | What::PERSIST, move |event, _| {
            let before = calls.count(Call::Change);
            event.handle().free(event.id()).unwrap();
            sink.push(calls.count(Call::Change) - before);
        })
        .unwrap();
        event.add(None).unwrap();
        peer.write_all(b"x");
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(counts.take(), [1]);
    });
}
