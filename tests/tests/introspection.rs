//! Looking at a loop and at its events, and activating by fd and by signal.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use event_core::{
    Direction, Error, Event, EventCount, EventId, LoopEnd, LoopFlags, Ready, Signal, Timer, What,
};
use tests::{Log, each_backend};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn events_are_counted_by_kind() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, _peer) = bed.fd();
        let counts = |base: &event_core::LoopHandle| {
            [EventCount::ACTIVE, EventCount::VIRTUAL, EventCount::ADDED].map(|kind| base.num_events(kind))
        };
        assert_eq!(counts(&base), [0, 0, 0]);
        let event = Event::new(&base, fd.raw(), What::READ | What::PERSIST, |_, _| {}).unwrap();
        let timer = Timer::new(&base, |_| {}).unwrap();
        assert_eq!(counts(&base), [0, 0, 0]);
        event.add(Some(HOUR)).unwrap();
        event.add(None).unwrap();
        timer.add(HOUR).unwrap();
        assert_eq!(counts(&base), [0, 0, 2], "an event with a timeout is one");
        let hold = base.hold();
        event.activate_now(Ready::READ).unwrap();
        event.activate_now(Ready::WRITE).unwrap();
        timer.activate(Ready::TIMEOUT).unwrap();
        assert_eq!(counts(&base), [2, 1, 2]);
        assert_eq!(base.num_events(EventCount::all()), 5);
        drop(hold);
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(counts(&base), [0, 0, 1], "the timer was one-shot");
        event.activate(Ready::READ).unwrap();
        event.activate_now(Ready::READ).unwrap();
        drop(event);
        assert_eq!(counts(&base), [0, 0, 0]);
    });
}

#[test]
fn an_activation_that_is_taken_back_is_not_counted() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (handle, log) = (base.handle(), Log::new());
        let other = Rc::new(Timer::new(&base, |_| {}).unwrap());
        let (again, sink) = (other.clone(), log.clone());
        let first = Timer::new(&base, move |_| {
            sink.push(handle.num_events(EventCount::ACTIVE));
            again.add(HOUR).unwrap();
            sink.push(handle.num_events(EventCount::ACTIVE));
            again.del().unwrap();
        })
        .unwrap();
        first.add(MS).unwrap();
        other.add(MS).unwrap();
        bed.stall(2 * MS);
        base.dispatch().unwrap();
        assert_eq!(log.take(), [1, 0]);
    });
}

#[test]
fn what_other_threads_ask_for_is_no_event_of_the_programs() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let _watcher = {
            let handle = base.handle();
            event_core::Watcher::check(&base, move || sink.push(handle.num_events(EventCount::all())))
        };
        base.remote().post(|handle| handle.loopexit(None).unwrap()).unwrap();
        assert_eq!(base.run(LoopFlags::NO_EXIT_ON_EMPTY).unwrap(), LoopEnd::Exit);
        assert!(log.take().iter().all(|count| *count == 0));
        assert_eq!(base.max_events(EventCount::all(), false), 0);
    });
}

#[test]
fn the_highest_counts_are_kept_until_they_are_cleared() {
    each_backend(|bed| {
        let mut base = bed.base();
        let timers: Vec<Timer> = (0..3).map(|_| Timer::new(&base, |_| {}).unwrap()).collect();
        timers.iter().for_each(|timer| timer.add(Duration::ZERO).unwrap());
        drop((base.hold(), base.hold()));
        base.dispatch().unwrap();
        assert_eq!(base.num_events(EventCount::all()), 0);
        let most = |kind, clear| base.max_events(kind, clear);
        assert_eq!(most(EventCount::ADDED, false), 3);
        assert_eq!(most(EventCount::ACTIVE, false), 3);
        assert_eq!(most(EventCount::ADDED | EventCount::VIRTUAL, true), 5);
        assert_eq!(most(EventCount::ADDED | EventCount::VIRTUAL, false), 0);
        assert_eq!(most(EventCount::ACTIVE, false), 3, "it was not asked for");
        timers[0].add(HOUR).unwrap();
        assert_eq!(most(EventCount::ADDED, true), 1);
        assert_eq!(most(EventCount::ADDED, true), 1, "from what there is now");
    });
}

#[test]
fn each_event_that_is_added_or_active_is_visited_once() {
    each_backend(|bed| {
        let base = bed.base();
        let (fd, _peer) = bed.fd();
        let idle = Event::new(&base, fd.raw(), What::READ, |_, _| {}).unwrap();
        let both = Event::new(&base, fd.raw(), What::READ | What::WRITE, |_, _| {}).unwrap();
        both.add(Some(HOUR)).unwrap();
        both.activate_now(Ready::READ).unwrap();
        let timer = Timer::new(&base, |_| {}).unwrap();
        timer.add_common(base.common_timeout(HOUR).unwrap()).unwrap();
        let signal = Signal::new(&base, libc::SIGWINCH, |_| {}).unwrap();
        signal.add().unwrap();
        let later = Event::new(&base, -1, What::empty(), |_, _| {}).unwrap();
        later.activate(Ready::WRITE).unwrap();
        let ids = || {
            let mut ids = Vec::new();
            let end = base.for_each_event(|event| {
                ids.push(event.id);
                ControlFlow::Continue(())
            });
            assert_eq!(end, ControlFlow::Continue(()));
            ids.sort();
            ids
        };
        let mut expected = vec![both.id(), timer.id(), signal.id(), later.id()];
        expected.sort();
        assert_eq!(ids(), expected);
        drop((both, later));
        assert_eq!(ids().len(), 2);
        assert!(!ids().contains(&idle.id()));
    });
}

#[test]
fn a_visitor_stops_where_it_breaks() {
    each_backend(|bed| {
        let base = bed.base();
        let timers: Vec<Timer> = (0..3).map(|_| Timer::new(&base, |_| {}).unwrap()).collect();
        timers.iter().for_each(|timer| timer.add(HOUR).unwrap());
        let mut visited = 0;
        let end = base.for_each_event(|_| {
            visited += 1;
            if visited == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((visited, end), (2, ControlFlow::Break(())));
    });
}

#[test]
fn a_visitor_may_free_what_it_visits_and_what_it_does_not() {
    each_backend(|bed| {
        let base = bed.base();
        let mut timers: Vec<Timer> = (0..6).map(|_| Timer::new(&base, |_| {}).unwrap()).collect();
        timers.iter().for_each(|timer| timer.add(HOUR).unwrap());
        let mut visited = Vec::new();
        let _ = base.for_each_event(|event| {
            visited.push(event.id);
            // The one at hand and another, and a new one.
            timers.retain(|timer| timer.id() != event.id);
            timers.pop();
            base.once(-1, What::empty(), Some(HOUR), |_| {}).unwrap();
            ControlFlow::Continue(())
        });
        assert!(timers.is_empty());
        assert!((3..6).contains(&visited.len()), "{visited:?}");
        assert_eq!(base.num_events(EventCount::ADDED), visited.len());
    });
}

#[test]
fn an_event_knows_what_it_was_made_with() {
    each_backend(|bed| {
        let base = bed.base();
        base.priority_init(3).unwrap();
        let (fd, _peer) = bed.fd();
        let event = Event::new(&base, fd.raw(), What::READ | What::ET, |_, _| {}).unwrap();
        assert_eq!(event.fd(), Some(fd.raw()));
        assert_eq!(event.what(), What::READ | What::ET);
        assert_eq!(event.priority(), 1);
        event.set_priority(2).unwrap();
        assert_eq!(event.priority(), 2);
        let timer = Timer::persistent(&base, |_| {}).unwrap();
        let signal = Signal::new(&base, Signal::USR2, |_| {}).unwrap();
        assert_eq!(signal.signal(), Some(Signal::USR2));
        assert_eq!((timer.priority(), signal.priority()), (1, 1));

        let info = timer.info().unwrap();
        assert_eq!((info.id, info.fd, info.signal), (timer.id(), None, None));
        assert_eq!((info.what, info.pending, info.deadline), (What::PERSIST, Ready::empty(), None));
        timer.add(HOUR).unwrap();
        timer.activate(Ready::TIMEOUT).unwrap();
        timer.set_background(true).unwrap();
        let info = timer.info().unwrap();
        assert_eq!(info.deadline, timer.deadline());
        assert!(info.is_active && info.is_background && !info.is_internal);
        assert_eq!(info.active, Ready::TIMEOUT);
        let info = signal.info().unwrap();
        assert_eq!((info.fd, info.signal, info.is_active), (None, Some(Signal::USR2), false));

        base.free(event.id()).unwrap();
        assert_eq!((event.fd(), event.what(), event.priority()), (None, What::empty(), 0));
        assert!(event.info().is_none() && base.event_info(event.id()).is_none());
    });
}

#[test]
fn an_event_is_running_in_its_own_callback_only() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let other = Rc::new(Timer::new(&base, |_| {}).unwrap());
        let (sink, seen) = (log.clone(), other.clone());
        let event = Event::new(&base, -1, What::empty(), move |event, _| {
            sink.push((event.is_running(), seen.is_running()));
        })
        .unwrap();
        event.activate(Ready::READ).unwrap();
        assert!(!event.is_running());
        base.dispatch().unwrap();
        assert!(!event.is_running());
        assert_eq!(log.take(), [(true, false)]);
    });
}

#[test]
fn the_dump_names_every_event() {
    each_backend(|bed| {
        let base = bed.base();
        assert_eq!(base.dump_events(), "Added events:\nActive events:\n");
        let (fd, _peer) = bed.fd();
        let event = Event::new(&base, fd.raw(), What::READ | What::PERSIST, |_, _| {}).unwrap();
        event.add(Some(HOUR)).unwrap();
        let signal = Signal::new(&base, libc::SIGWINCH, |_| {}).unwrap();
        signal.add().unwrap();
        signal.set_background(true).unwrap();
        let user = Event::new(&base, -1, What::empty(), |_, _| {}).unwrap();
        user.activate(Ready::READ | Ready::WRITE).unwrap();
        let (stream, _end) = bed.stream(&base);
        stream.enable(Direction::READ).unwrap();
        let dump = base.dump_events();
        let (added, active) = dump.split_once("Active events:\n").unwrap();
        let line = |part: &str, words: &[&str]| {
            let is_it = |line: &&str| words.iter().all(|word| line.contains(word));
            assert_eq!(part.lines().filter(is_it).count(), 1, "{words:?} in:\n{dump}");
        };
        line(added, &[&format!("on fd {}", fd.raw()), "READ|PERSIST", "timeout in 3"]);
        line(added, &[&format!("on signal {}", libc::SIGWINCH), "background"]);
        line(added, &["internal"]);
        line(active, &["on no fd", "active for READ|WRITE"]);
        assert_eq!(dump.lines().count(), 6, "{dump}");
    });
}

#[test]
fn activating_by_fd_reaches_the_events_that_wait_for_it_there() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, _peer) = bed.fd();
        let (other_fd, _other_peer) = bed.fd();
        let log = Log::new();
        let event = |name: &'static str, fd: i32, what| {
            let sink = log.clone();
            Event::new(&base, fd, what, move |_, ready| sink.push((name, ready))).unwrap()
        };
        let reader = event("reader", fd.raw(), What::READ);
        let both = event("both", fd.raw(), What::READ | What::WRITE | What::PERSIST);
        let idle = event("idle", fd.raw(), What::READ);
        let other = event("other", other_fd.raw(), What::READ);
        reader.add(None).unwrap();
        other.add(None).unwrap();
        let active = |fd: i32, ready| base.active_by_fd(fd, ready).unwrap();
        assert_eq!(active(fd.raw(), Ready::READ), 1);
        both.add(Some(HOUR)).unwrap();
        assert_eq!(active(fd.raw(), Ready::WRITE), 1);
        assert_eq!(active(fd.raw(), Ready::TIMEOUT), 1, "the one with a timeout");
        assert_eq!(active(fd.raw(), Ready::SIGNAL), 0);
        let free = fd.raw().max(other_fd.raw()) + 100;
        assert_eq!(
            (active(-1, Ready::all()), active(i32::MAX, Ready::all()), active(free, Ready::all())),
            (0, 0, 0)
        );
        both.set_background(true).unwrap();
        other.set_background(true).unwrap();
        base.run(LoopFlags::NONBLOCK).unwrap();
        let mut ran = log.take();
        ran.sort_by_key(|entry| entry.0);
        let [(_, of_both), (_, of_reader)] = ran[..] else { panic!("{ran:?}") };
        assert_eq!(of_reader, Ready::READ);
        assert!(of_both.contains(Ready::WRITE), "{of_both:?}");
        assert_eq!(reader.pending(), Ready::empty(), "it was one-shot");
        assert_eq!(idle.pending(), Ready::empty());
    });
}

#[test]
fn activating_by_signal_reaches_every_event_of_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let count = Rc::new(Cell::new(0));
        let signal = |number| {
            let count = count.clone();
            Signal::new(&base, number, move |_| count.set(count.get() + 1)).unwrap()
        };
        let all = [signal(libc::SIGWINCH), signal(libc::SIGWINCH), signal(libc::SIGURG)];
        all.iter().for_each(|signal| signal.add().unwrap());
        all.iter().for_each(|signal| signal.set_background(true).unwrap());
        assert_eq!(base.active_by_signal(libc::SIGWINCH).unwrap(), 2);
        assert_eq!(base.active_by_signal(libc::SIGCONT).unwrap(), 0);
        assert_eq!(base.active_by_signal(-1).unwrap(), 0);
        // Background events are run all the same when they are active.
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(count.get(), 2);
    });
}

#[test]
fn a_loop_that_is_gone_has_no_events_and_says_so() {
    each_backend(|bed| {
        let base = bed.base();
        let timer = Timer::new(&base, |_| {}).unwrap();
        timer.add(HOUR).unwrap();
        timer.activate_now(Ready::TIMEOUT).unwrap();
        let hold = base.hold();
        let handle = base.handle();
        drop(base);
        drop(hold);
        assert_eq!(handle.num_events(EventCount::all()), 0);
        assert_eq!(handle.dump_events(), "Added events:\nActive events:\n");
        assert!(timer.info().is_none() && !timer.is_running());
        let _ = handle.for_each_event(|event| panic!("{event}"));
        assert!(matches!(handle.active_by_fd(0, Ready::READ), Err(Error::LoopGone)));
        assert!(matches!(handle.active_by_signal(1), Err(Error::LoopGone)));
        assert!(matches!(handle.loopcontinue(), Err(Error::LoopGone)));
    });
}

#[test]
fn a_loop_that_another_one_drives_asks_for_a_run_while_the_kernel_is_still_to_be_told() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        stream.enable(Direction::READ).unwrap();
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(base.next_deadline(), None);
        let writer = stream.clone();
        base.once(-1, What::empty(), None, move |_| writer.write(vec![0; 4 << 20]).unwrap()).unwrap();
        base.run(LoopFlags::NONBLOCK).unwrap();
        // The batch's flush was cut short: whoever waits for the loop's fd now must run it once before.
        assert!(base.next_deadline().is_some_and(|at| at <= base.now()));
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(base.next_deadline(), None);
        drop(peer);
    });
}

#[test]
fn an_id_is_shown_the_same_everywhere() {
    each_backend(|bed| {
        let base = bed.base();
        let timer = Timer::new(&base, |_| {}).unwrap();
        timer.add(HOUR).unwrap();
        let id: EventId = timer.id();
        let text = base.event_info(id).unwrap().to_string();
        assert!(base.dump_events().contains(text.split(" on ").next().unwrap()), "{text}");
    });
}
