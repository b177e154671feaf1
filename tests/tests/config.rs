//! What is set before a loop runs, and what ends a batch before its queue is empty.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use event_core::{Config, Event, EventBase, LoopEnd, LoopFlags, Ready, Timer, Watcher, What};
use tests::{Bed, Log, each_backend, each_seed};

const MS: Duration = Duration::from_millis(1);

/// Activates `n` events of priority 1 that note their number and do `each`.
fn batch(base: &EventBase, log: &Log<usize>, n: usize, each: impl Fn() + Clone + 'static) -> Vec<Event> {
    let make = |n| {
        let (sink, each) = (log.clone(), each.clone());
        let event = Event::new(base, -1, What::empty(), move |_, _| {
            sink.push(n);
            each();
        });
        let event = event.unwrap();
        event.set_priority(1).unwrap();
        event.activate_now(Ready::READ).unwrap();
        event
    };
    (0..n).map(make).collect()
}

/// An fd whose event is the most urgent and notes 100.
fn urgent(bed: &Bed, base: &EventBase, log: &Log<usize>) -> (Event, tests::Peer) {
    let (fd, peer) = bed.fd();
    let sink = log.clone();
    let event = Event::new(base, fd.raw(), What::READ, move |_, _| {
        let _ = fd.read();
        sink.push(100);
    });
    let event = event.unwrap();
    event.set_priority(0).unwrap();
    event.add(None).unwrap();
    (event, peer)
}

fn limited(bed: &Bed, time: Option<Duration>, callbacks: Option<usize>, from: u8) -> EventBase {
    let base = bed.base_configured(Config::new().max_dispatch_interval(time, callbacks, from));
    base.priority_init(2).unwrap();
    base
}

#[test]
fn a_batch_ends_after_so_many_callbacks_and_what_is_urgent_overtakes_the_rest() {
    each_backend(|bed| {
        let mut base = limited(bed, None, Some(3), 1);
        let log = Log::new();
        let (_urgent, peer) = urgent(bed, &base, &log);
        let peer = Rc::new(peer);
        let (sink, writer) = (log.clone(), peer.clone());
        let _events = batch(&base, &log, 7, move || {
            if sink.len() == 2 {
                writer.write_all(b"x");
            }
        });
        base.dispatch().unwrap();
        assert_eq!(log.take(), [0, 1, 2, 100, 3, 4, 5, 6]);
    });
}

#[test]
fn a_batch_without_a_limit_runs_to_its_end() {
    each_backend(|bed| {
        for base in [bed.base(), limited(bed, None, None, 0)] {
            let mut base = base;
            base.priority_init(2).unwrap();
            let log = Log::new();
            let (_urgent, peer) = urgent(bed, &base, &log);
            let peer = Rc::new(peer);
            let writer = peer.clone();
            let _events = batch(&base, &log, 3, move || _ = writer.write(b"x"));
            base.dispatch().unwrap();
            assert_eq!(log.take(), [0, 1, 2, 100]);
        }
    });
}

#[test]
fn batches_that_are_more_urgent_than_the_limit_run_to_their_end() {
    each_backend(|bed| {
        let mut base = limited(bed, None, Some(1), 2);
        let log = Log::new();
        let (_urgent, peer) = urgent(bed, &base, &log);
        let peer = Rc::new(peer);
        let writer = peer.clone();
        let _events = batch(&base, &log, 3, move || _ = writer.write(b"x"));
        base.dispatch().unwrap();
        assert_eq!(log.take(), [0, 1, 2, 100]);
    });
}

#[test]
fn a_limit_of_none_runs_one_callback_a_turn() {
    each_backend(|bed| {
        for (time, callbacks) in [(None, Some(0)), (Some(Duration::ZERO), None)] {
            let mut base = limited(bed, time, callbacks, 0);
            let log = Log::new();
            let _events = batch(&base, &log, 3, || {});
            for n in 0..3 {
                assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
                assert_eq!(log.take(), [n]);
            }
        }
    });
}

#[test]
fn a_batch_ends_after_so_much_time() {
    each_seed(|bed| {
        let mut base = limited(bed, Some(5 * MS), None, 1);
        let log = Log::new();
        let (_urgent, peer) = urgent(bed, &base, &log);
        peer.write_all(b"x");
        let sim = bed.sim().unwrap().clone();
        let _events = batch(&base, &log, 5, move || sim.advance(2 * MS));
        base.loopexit(Some(Duration::from_secs(1))).unwrap();
        base.dispatch().unwrap();
        assert_eq!(log.take(), [100, 0, 1, 2, 3, 4]);

        let (_urgent, peer) = urgent(bed, &base, &log);
        let peer = Rc::new(peer);
        let (sim, writer) = (bed.sim().unwrap().clone(), peer.clone());
        let _events = batch(&base, &log, 5, move || {
            sim.advance(2 * MS);
            let _ = writer.write(b"x");
        });
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(log.take(), [0, 1, 2, 100, 3, 4], "6 ms are over after three");
    });
}

#[test]
fn loopcontinue_ends_the_batch_and_loses_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(2).unwrap();
        let log = Log::new();
        let (_urgent, peer) = urgent(bed, &base, &log);
        let peer = Rc::new(peer);
        let (handle, sink, writer) = (base.handle(), log.clone(), peer.clone());
        let _events = batch(&base, &log, 4, move || {
            if sink.len() == 2 {
                writer.write_all(b"x");
                handle.loopcontinue().unwrap();
            }
        });
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [0, 1, 100, 2, 3]);
    });
}

#[test]
fn loopcontinue_outside_of_a_callback_does_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(2).unwrap();
        let log = Log::new();
        let _events = batch(&base, &log, 3, || {});
        base.loopcontinue().unwrap();
        assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
        assert_eq!(log.take(), [0, 1, 2]);
    });
}

#[test]
fn loopcontinue_stops_messages_and_posted_closures_too() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (sink, handle) = (log.clone(), base.handle());
        let (_mailbox, sender) = base
            .mailbox(move |n: usize| {
                sink.push(n);
                handle.loopcontinue().unwrap();
            })
            .unwrap();
        (0..3).for_each(|n| sender.send(n).unwrap());
        for n in 0..3 {
            while log.is_empty() {
                base.run(LoopFlags::ONCE | LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
            }
            assert_eq!(log.take(), [n], "a message a turn");
        }
        let turns = Rc::new(Cell::new(0));
        let count = turns.clone();
        let _watcher = Watcher::prepare(&base, move |_| count.set(count.get() + 1)).unwrap();
        let remote = base.remote();
        let (sender, receiver) = std::sync::mpsc::channel();
        let again = sender.clone();
        remote
            .post(move |handle| {
                handle.loopcontinue().unwrap();
                sender.send(1).unwrap();
            })
            .unwrap();
        remote.post(move |_| again.send(2).unwrap()).unwrap();
        let ran = (0..10).map(|_| {
            bed.run_until(&mut base, || turns.take() > 0);
            receiver.try_iter().collect::<Vec<i32>>()
        });
        let ran: Vec<_> = ran.filter(|ran| !ran.is_empty()).collect();
        assert_eq!(ran, [[1], [2]], "in a turn each");
    });
}

#[test]
fn the_cached_time_stands_still_in_a_turn_unless_it_is_not_wanted() {
    each_backend(|bed| {
        for no_cache in [false, true] {
            let config = if no_cache { Config::new().no_cache_time() } else { Config::new() };
            let mut base = bed.base_configured(config);
            let log = Log::new();
            let (sink, handle, sim) = (log.clone(), base.handle(), bed.sim().cloned());
            let timer = Timer::new(&base, move |_| {
                let (now, elapsed) = (handle.now(), handle.elapsed());
                match &sim {
                    Some(sim) => sim.advance(2 * MS),
                    None => std::thread::sleep(2 * MS),
                }
                sink.push((handle.now() - now >= 2 * MS, handle.elapsed() - elapsed >= 2 * MS));
            })
            .unwrap();
            timer.add(Duration::ZERO).unwrap();
            base.dispatch().unwrap();
            assert_eq!(log.take(), [(no_cache, no_cache)]);
        }
    });
}

/// What was logged by this process.
struct Lines(Mutex<Vec<String>>);

static LINES: Lines = Lines(Mutex::new(Vec::new()));

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().unwrap().push(format!("{} {}", record.level(), record.args()));
    }

    fn flush(&self) {}
}

#[test]
#[cfg_attr(miri, ignore = "a process of its own")]
fn event_show_method_has_the_choice_logged() {
    const NAME: &str = "event_show_method_has_the_choice_logged";
    if !tests::is_child(NAME) {
        // The environment of a process is set when it starts.
        for (ignored, expected) in [(false, 1), (true, 0)] {
            let mut child = tests::child(NAME);
            child.env("EVENT_SHOW_METHOD", "1").env("EXPECTED", expected.to_string());
            let output = if ignored { child.env("IGNORED", "1").output() } else { child.output() };
            let output = output.unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        return;
    }
    log::set_logger(&LINES).unwrap();
    log::set_max_level(log::LevelFilter::Info);
    let config = match std::env::var_os("IGNORED") {
        Some(_) => Config::new().ignore_env(),
        None => Config::new(),
    };
    let base = EventBase::with_config(config).unwrap();
    let lines = LINES.0.lock().unwrap();
    assert_eq!(lines.len().to_string(), std::env::var("EXPECTED").unwrap());
    assert!(lines.iter().all(|line| *line == format!("INFO the event loop uses {}", base.method())));
}
