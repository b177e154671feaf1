//! When the loop runs, waits and ends, and what it says then.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use event_core::testing::{Call, Faults};
use event_core::{Config, Event, EventBase, Features, LoopEnd, LoopFlags, Ready, Timer, What};
use tests::events::named;
use tests::{Log, OnDrop, each_backend};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_loop_without_events_ends_at_once_as_empty() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        for flags in [LoopFlags::empty(), LoopFlags::ONCE, LoopFlags::NONBLOCK] {
            assert_eq!(base.run(flags).unwrap(), LoopEnd::Empty);
            assert!(!base.got_exit() && !base.got_break());
        }
        assert_eq!(faults.count(Call::Wait), 0);
    });
}

#[test]
fn a_stop_that_a_callbacks_captures_ask_for_when_they_drop_is_before_the_next_callback() {
    each_backend(|bed| {
        for (timers, continues) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut base = bed.base();
            let ran = Rc::new(Cell::new(0));
            let mut fds = Vec::new();
            for _ in 0..2 {
                let (handle, count) = (base.handle().clone(), ran.clone());
                let says = OnDrop(move || {
                    let _ = if continues { handle.loopcontinue() } else { handle.loopbreak() };
                });
                let frees = base.handle().clone();
                if timers {
                    let timer = Timer::new(&base, move |timer| {
                        let _captured = &says;
                        count.set(count.get() + 1);
                        frees.free(timer.id()).unwrap();
                    })
                    .unwrap();
                    timer.add(Duration::ZERO).unwrap();
                    timer.detach();
                } else {
                    let (fd, peer) = bed.fd();
                    let event = Event::new(&base, fd.raw(), What::READ | What::PERSIST, move |event, _| {
                        let _captured = &says;
                        count.set(count.get() + 1);
                        frees.free(event.id()).unwrap();
                    })
                    .unwrap();
                    event.add(None).unwrap();
                    event.detach();
                    peer.write_all(b"x");
                    fds.push((fd, peer));
                }
            }
            if continues {
                assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
            } else {
                assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
            }
            assert_eq!(ran.get(), 1, "timers: {timers}, continues: {continues}");
            drop(fds);
        }
    });
}

#[test]
fn an_activation_that_is_taken_back_and_asked_for_anew_stands_behind_the_others() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let [a, b, c] = ["a", "b", "c"].map(|name| named(&base, &log, name));
        for event in [&a, &b, &c] {
            event.activate(Ready::READ).unwrap();
        }
        // Often enough that what was taken back is swept out in between.
        for _ in 0..tests::few_under_miri(1_000, 100) {
            a.del().unwrap();
            assert_eq!(a.pending(), Ready::empty());
            a.activate(Ready::WRITE).unwrap();
        }
        c.del().unwrap();
        assert_eq!((a.pending(), c.pending()), (Ready::WRITE, Ready::empty()));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["b", "a"]);
    });
}

#[test]
fn nothing_is_to_be_done_when_all_activations_are_taken_back() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let log = Log::new();
        let event = named(&base, &log, "called");
        event.activate(Ready::READ).unwrap();
        event.del().unwrap();
        assert_eq!(base.next_deadline(), None);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!((faults.count(Call::Wait), log.len()), (0, 0));
    });
}

#[test]
#[cfg_attr(miri, ignore = "the real kernel")]
fn activations_of_many_events_are_merged_and_taken_back_in_little_time() {
    let base = EventBase::new().unwrap();
    let event = || Event::new(&base, -1, What::empty(), |_, _| {}).unwrap();
    let events: Vec<Event> = (0..100_000).map(|_| event()).collect();
    let start = Instant::now();
    for _ in 0..2 {
        events.iter().for_each(|event| event.activate(Ready::READ).unwrap());
    }
    drop(events);
    // Minutes if each were searched for among all of them.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn the_loop_ends_by_itself_when_the_last_event_is_gone_and_can_run_again() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let timer = Timer::new(&base, move |_| sink.push(())).unwrap();
        for _ in 0..2 {
            timer.add(MS).unwrap();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert_eq!(log.take().len(), 1);
        }
    });
}

#[test]
fn loopexit_finishes_the_turn() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (sink, handle) = (log.clone(), base.handle());
        let first = Event::new(&base, -1, What::empty(), move |_, _| {
            sink.push("first");
            handle.loopexit(None).unwrap();
        })
        .unwrap();
        let second = named(&base, &log, "second");
        first.activate(Ready::READ).unwrap();
        second.activate(Ready::READ).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        assert_eq!(log.take(), ["first", "second"]);
        assert!(base.got_exit() && !base.got_break());
    });
}

#[test]
fn loopbreak_stops_after_the_running_callback_and_keeps_the_rest() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (sink, handle) = (log.clone(), base.handle());
        let first = Event::new(&base, -1, What::empty(), move |_, _| {
            handle.loopbreak().unwrap();
            sink.push("first");
        })
        .unwrap();
        let second = named(&base, &log, "second");
        first.activate(Ready::READ).unwrap();
        second.activate(Ready::READ).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        assert_eq!(log.take(), ["first"]);
        assert!(base.got_break() && !base.got_exit());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["second"]);
        assert!(!base.got_break(), "each start of the loop forgets why the last one ended");
    });
}

#[test]
fn loopexit_before_the_loop_runs_lets_it_run_one_turn() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let log = Log::new();
        let sink = log.clone();
        let event = Event::new(&base, fd.raw(), What::READ | What::PERSIST, move |_, ready| sink.push(ready))
            .unwrap();
        event.add(None).unwrap();
        base.loopexit(None).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        assert_eq!(log.take(), [Ready::READ]);
        assert_eq!(base.run(LoopFlags::NONBLOCK).unwrap(), LoopEnd::Once, "it has been seen");
    });
}

#[test]
fn loopexit_ends_a_loop_that_has_nothing_to_do_as_exit() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.loopexit(None).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn loopbreak_before_the_loop_runs_ends_it_before_any_callback() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let event = named(&base, &log, "ran");
        event.activate(Ready::READ).unwrap();
        base.loopbreak().unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        assert!(log.is_empty());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["ran"]);
    });
}

#[test]
fn a_loop_that_ends_by_a_break_does_not_keep_the_exit_that_came_with_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let handle = base.handle();
        let event = Event::new(&base, -1, What::empty(), move |_, _| {
            handle.loopexit(None).unwrap();
            handle.loopbreak().unwrap();
        })
        .unwrap();
        event.activate(Ready::READ).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_delayed_exit_ends_the_loop_in_time_and_the_earliest_wins() {
    each_backend(|bed| {
        let mut base = bed.base();
        let long = Timer::new(&base, |_| unreachable!()).unwrap();
        long.add(Duration::from_secs(86_400)).unwrap();
        let start = base.now();
        base.loopexit(Some(Duration::from_secs(20))).unwrap();
        base.loopexit(Some(20 * MS)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        let took = base.now() - start;
        assert!(took >= 20 * MS && took < Duration::from_secs(20), "{took:?}");
        if bed.sim().is_some() {
            assert_eq!(took, 20 * MS);
        }
    });
}

#[test]
fn a_delayed_exit_keeps_the_loop_running_until_then() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.loopexit(Some(2 * MS)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
    });
}

#[test]
fn once_waits_for_a_user_callback_and_a_wake_is_none() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let timer = Timer::persistent(&base, move |_| sink.push(())).unwrap();
        timer.add(3 * MS).unwrap();
        base.waker().wake();
        assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
        assert_eq!(log.take().len(), 1, "the turn of the wake did not count");
        assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
        assert_eq!(log.take().len(), 1);
    });
}

#[test]
fn once_runs_all_callbacks_of_its_turn() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let events = [named(&base, &log, "a"), named(&base, &log, "b")];
        events.iter().for_each(|event| event.activate(Ready::READ).unwrap());
        assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
        assert_eq!(log.take(), ["a", "b"]);
    });
}

#[test]
fn nonblock_does_not_wait_and_says_once_while_something_is_pending() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let timer = named(&base, &log, "timer");
        timer.add(Some(Duration::from_secs(3600))).unwrap();
        let start = Instant::now();
        assert_eq!(base.run(LoopFlags::NONBLOCK).unwrap(), LoopEnd::Once);
        assert!(start.elapsed() < Duration::from_secs(60));
        if let Some(sim) = bed.sim() {
            assert_eq!(sim.elapsed(), Duration::ZERO);
        }
        timer.activate(Ready::READ).unwrap();
        assert_eq!(base.run(LoopFlags::NONBLOCK).unwrap(), LoopEnd::Once);
        assert_eq!(log.take(), ["timer"]);
        assert_eq!(base.run(LoopFlags::NONBLOCK).unwrap(), LoopEnd::Empty, "a one-shot event is used up");
    });
}

#[test]
fn nonblock_goes_on_while_something_is_active() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(2).unwrap();
        let log = Log::new();
        let (low, high) = (named(&base, &log, "low"), named(&base, &log, "high"));
        high.set_priority(0).unwrap();
        low.set_priority(1).unwrap();
        low.activate(Ready::READ).unwrap();
        high.activate(Ready::READ).unwrap();
        assert_eq!(base.run(LoopFlags::NONBLOCK).unwrap(), LoopEnd::Once);
        assert_eq!(log.take(), ["high", "low"]);
    });
}

#[test]
fn no_exit_on_empty_waits_for_what_other_threads_send() {
    each_backend(|bed| {
        let mut base = bed.base();
        let remote = base.remote();
        let thread = std::thread::spawn(move || remote.loopexit().unwrap());
        assert_eq!(base.run(LoopFlags::NO_EXIT_ON_EMPTY).unwrap(), LoopEnd::Exit);
        thread.join().unwrap();
    });
}

#[test]
fn the_loop_is_empty_when_only_background_events_are_left() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (fd, _peer) = bed.fd();
        let background = named(&base, &log, "background");
        background.add(Some(Duration::from_secs(3600))).unwrap();
        background.set_background(true).unwrap();
        let watching =
            Event::new(&base, fd.raw(), What::READ | What::PERSIST, |_, _| unreachable!()).unwrap();
        watching.set_background(true).unwrap();
        watching.add(None).unwrap();
        let timer = named(&base, &log, "timer");
        timer.add(Some(MS)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["timer"]);
        background.set_background(false).unwrap();
        assert_eq!(base.run(LoopFlags::NONBLOCK).unwrap(), LoopEnd::Once, "now it holds the loop");
        background.del().unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_background_event_runs_like_any_other_while_the_loop_does() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let background = named(&base, &log, "background");
        background.set_background(true).unwrap();
        background.add(Some(MS)).unwrap();
        let timer = named(&base, &log, "timer");
        timer.add(Some(3 * MS)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["background", "timer"]);
        background.activate(Ready::READ).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["background"], "what is active runs before the loop ends");
    });
}

#[test]
fn an_event_that_waits_for_nothing_does_not_hold_the_loop() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, _peer) = bed.fd();
        let idle = Event::new(&base, fd.raw(), What::PERSIST, |_, _| unreachable!()).unwrap();
        idle.add(None).unwrap();
        let nowhere = Event::new(&base, -1, What::READ | What::PERSIST, |_, _| unreachable!()).unwrap();
        nowhere.add(None).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn the_cached_time_is_one_for_a_turn_until_it_is_updated() {
    each_backend(|bed| {
        let mut base = bed.base();
        let times = Log::new();
        let events: Vec<Event> = (0..3)
            .map(|n| {
                let (times, handle, sim) = (times.clone(), base.handle(), bed.sim().cloned());
                Event::new(&base, -1, What::empty(), move |_, _| {
                    if n == 2 {
                        handle.update_cache_time();
                    }
                    times.push(handle.now());
                    match &sim {
                        Some(sim) => sim.advance(2 * MS),
                        None => std::thread::sleep(2 * MS),
                    }
                })
                .unwrap()
            })
            .collect();
        events.iter().for_each(|event| event.activate(Ready::READ).unwrap());
        base.dispatch().unwrap();
        let times = times.take();
        assert_eq!(times[0], times[1]);
        assert!(times[2] >= times[1] + 4 * MS, "{times:?}");
        assert!(base.now() >= times[2] + 2 * MS, "outside of the loop the clock is read");
    });
}

#[test]
fn token_events_share_one_handler_that_learns_token_reason_and_count() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let sink = log.clone();
        base.set_token_handler(move |_, id, token, ready, times| sink.push((id, token, ready, times)));
        let read = base.register_token(fd.raw(), false, What::READ | What::PERSIST, None, 7).unwrap();
        let timer = base.register_token(-1, false, What::empty(), Some(0), 8).unwrap();
        base.add(read, None).unwrap();
        base.add(timer, Some(MS)).unwrap();
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), [(timer, 8, Ready::TIMEOUT, 1)]);
        assert_eq!(base.pending(timer), Ready::empty(), "one-shot");
        peer.write_all(b"x");
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), [(read, 7, Ready::READ, 1)]);
        base.free(read).unwrap();
        assert!(!base.is_alive(read));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(base.register_token(-1, false, What::empty(), Some(1), 9).is_err(), "no such priority");
    });
}

#[test]
fn a_token_handler_may_free_re_add_and_replace_itself() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        base.set_token_handler(move |handle, id, token, _, _| {
            sink.push(("old", token));
            let sink = sink.clone();
            handle.set_token_handler(move |handle, id, token, _, _| {
                sink.push(("new", token));
                handle.free(id).unwrap();
            });
            handle.add(id, Some(Duration::ZERO)).unwrap();
        });
        let id = base.register_token(-1, false, What::empty(), None, 3).unwrap();
        base.activate(id, Ready::WRITE).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [("old", 3), ("new", 3)]);
        assert!(!base.is_alive(id));
    });
}

#[test]
#[cfg_attr(miri, ignore = "the real kernel")]
fn the_backend_can_be_chosen_by_name_and_by_feature() {
    let methods: Vec<_> = EventBase::supported_methods().collect();
    let best = EventBase::with_config(Config::new().ignore_env()).unwrap();
    assert_eq!(best.method(), methods[0]);
    if let Some(second) = methods.get(1) {
        let base = EventBase::with_config(Config::new().ignore_env().avoid_method(methods[0])).unwrap();
        assert_eq!(base.method(), *second);
    }
    let none = methods.iter().fold(Config::new(), |config, method| config.avoid_method(method));
    assert!(EventBase::with_config(none.avoid_method("kind of unheard of")).is_err());
    for feature in [Features::EDGE, Features::O1, Features::ANY_FD, Features::EARLY_CLOSE] {
        if let Ok(base) = EventBase::with_config(Config::new().ignore_env().require_features(feature)) {
            assert!(base.features().contains(feature));
        }
    }
    let plain =
        EventBase::with_config(Config::new().ignore_env().require_features(Features::ANY_FD)).unwrap();
    assert_ne!(plain.method(), "epoll", "it takes no regular files");
}

#[test]
fn several_loops_of_one_thread_run_inside_each_other() {
    each_backend(|bed| {
        let mut outer = bed.base();
        let log = Log::new();
        let inner = Rc::new(RefCell::new(bed.base()));
        let (sink, base) = (log.clone(), inner.clone());
        let event = Event::new(&outer, -1, What::empty(), move |_, _| {
            let end = base.borrow_mut().dispatch().unwrap();
            sink.push(end);
        })
        .unwrap();
        let ran = Rc::new(Cell::new(false));
        let flag = ran.clone();
        let timer = Timer::new(&inner.borrow(), move |_| flag.set(true)).unwrap();
        timer.add(Duration::ZERO).unwrap();
        event.activate(Ready::READ).unwrap();
        outer.dispatch().unwrap();
        assert_eq!(log.take(), [LoopEnd::Empty]);
        assert!(ran.get());
        drop((event, inner));
    });
}
