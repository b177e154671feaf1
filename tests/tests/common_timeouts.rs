//! Common timeouts: many events in one queue of a duration.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::rc::Rc;
use std::time::Duration;

use event_core::{Error, Event, LoopFlags, Ready, Timer, What};
use tests::{Log, each_backend, each_seed};

const MS: Duration = Duration::from_millis(1);

#[test]
fn equal_durations_are_one_queue_and_another_loop_refuses_it() {
    each_backend(|bed| {
        let (base, other) = (bed.base(), bed.base());
        let common = base.common_timeout(MS).unwrap();
        assert_eq!(common, base.common_timeout(Duration::from_micros(1000)).unwrap());
        assert_ne!(common, base.common_timeout(2 * MS).unwrap());
        assert_ne!(common, other.common_timeout(MS).unwrap());
        assert_eq!(common.duration(), MS);
        let timer = Timer::new(&other, |_| {}).unwrap();
        assert!(matches!(timer.add_common(common), Err(Error::Invalid(_))));
        assert_eq!(timer.pending(), Ready::empty());
    });
}

#[test]
fn a_loop_has_at_most_256() {
    each_backend(|bed| {
        let base = bed.base();
        for n in 0..256 {
            base.common_timeout(n * MS).unwrap();
        }
        base.common_timeout(255 * MS).unwrap();
        assert!(matches!(base.common_timeout(256 * MS), Err(Error::Invalid(_))));
    });
}

#[test]
fn timers_of_queues_and_others_fire_in_the_order_of_their_deadlines_and_then_of_adding() {
    each_seed(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (five, ten) = (base.common_timeout(5 * MS).unwrap(), base.common_timeout(10 * MS).unwrap());
        let timers: Vec<Timer> = (0..8)
            .map(|n| {
                let sink = log.clone();
                Timer::new(&base, move |_| sink.push(n)).unwrap()
            })
            .collect();
        timers[7].add_common(ten).unwrap();
        timers[0].add_common(five).unwrap();
        timers[1].add(5 * MS).unwrap();
        timers[2].add_common(five).unwrap();
        timers[3].add(10 * MS).unwrap();
        timers[4].add_common(ten).unwrap();
        timers[5].add_common(five).unwrap();
        timers[6].add(6 * MS).unwrap();
        base.dispatch().unwrap();
        assert_eq!(log.take(), [0, 1, 2, 5, 6, 7, 3, 4]);
    });
}

#[test]
fn none_is_early_and_the_deadline_is_told() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let common = base.common_timeout(3 * MS).unwrap();
        let timers: Vec<Timer> = (0..20)
            .map(|_| {
                let (sink, handle) = (log.clone(), base.handle());
                Timer::new(&base, move |_| sink.push(handle.now())).unwrap()
            })
            .collect();
        let start = base.now();
        for timer in &timers {
            timer.add_common(common).unwrap();
            assert_eq!(timer.pending(), Ready::TIMEOUT);
            assert!(timer.deadline().unwrap() >= start + 3 * MS);
            assert!(timer.deadline().unwrap() <= base.now() + 3 * MS);
        }
        assert_eq!(base.next_deadline(), timers[0].deadline());
        let deadlines: Vec<_> = timers.iter().map(|timer| timer.deadline().unwrap()).collect();
        base.dispatch().unwrap();
        let fired = log.take();
        assert_eq!(fired.len(), 20);
        assert!(fired.iter().zip(deadlines).all(|(fired, deadline)| *fired >= deadline));
        assert!(timers.iter().all(|timer| timer.deadline().is_none() && timer.pending().is_empty()));
    });
}

#[test]
fn deleting_the_first_the_last_and_one_between_leaves_the_others() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let common = base.common_timeout(2 * MS).unwrap();
        let mut timers: Vec<Option<Timer>> = (0..6)
            .map(|n| {
                let sink = log.clone();
                let timer = Timer::new(&base, move |_| sink.push(n)).unwrap();
                timer.add_common(common).unwrap();
                Some(timer)
            })
            .collect();
        timers[0].as_ref().unwrap().del().unwrap();
        timers[2] = None;
        timers[5].as_ref().unwrap().del().unwrap();
        base.dispatch().unwrap();
        assert_eq!(log.take(), [1, 3, 4]);
        for timer in timers.iter().flatten() {
            timer.add_common(common).unwrap();
        }
        base.dispatch().unwrap();
        assert_eq!(log.take(), [0, 1, 3, 4, 5]);
    });
}

#[test]
fn adding_again_starts_anew_at_the_end_and_a_timeout_of_its_own_leaves_the_queue() {
    each_seed(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let common = base.common_timeout(5 * MS).unwrap();
        let timers: Vec<Timer> = (0..4)
            .map(|n| {
                let sink = log.clone();
                let timer = Timer::new(&base, move |_| sink.push(n)).unwrap();
                timer.add_common(common).unwrap();
                timer
            })
            .collect();
        timers[0].add_common(common).unwrap();
        timers[1].add(MS).unwrap();
        timers[2].add(20 * MS).unwrap();
        base.dispatch().unwrap();
        assert_eq!(log.take(), [1, 3, 0, 2]);
    });
}

#[test]
fn persistent_timers_come_back_in_the_queue_and_do_not_drift() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let log = Log::new();
        let common = base.common_timeout(10 * MS).unwrap();
        let mut timers = Vec::new();
        for n in 0..3 {
            let (sink, world) = (log.clone(), sim.clone());
            let timer = Timer::persistent(&base, move |_| sink.push((n, world.elapsed()))).unwrap();
            timer.add_common(common).unwrap();
            timers.push(timer);
            sim.advance(MS);
        }
        base.loopexit(Some(40 * MS)).unwrap();
        base.dispatch().unwrap();
        let expected: Vec<_> =
            (1..=4).flat_map(|round| (0..3).map(move |n| (n, round * 10 * MS + n * MS))).collect();
        assert_eq!(log.take(), expected);
        // After a stall each fires once.
        sim.advance(95 * MS);
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(log.take().iter().map(|fired| fired.0).collect::<Vec<_>>(), [0, 1, 2]);
        let next = base.now() + 10 * MS;
        assert!(timers.iter().all(|timer| timer.deadline() == Some(next)));
    });
}

#[test]
fn activity_restarts_the_common_timeout_of_a_persistent_event() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let common = base.common_timeout(10 * MS).unwrap();
        let (sink, world, handle) = (log.clone(), sim.clone(), base.handle());
        let raw = fd.raw();
        let event = Event::new(&base, raw, What::READ | What::PERSIST, move |event, ready| {
            sink.push((ready, world.elapsed()));
            let _ = fd.read();
            if ready == Ready::TIMEOUT {
                event.del().unwrap();
                handle.loopexit(None).unwrap();
            }
        })
        .unwrap();
        event.add_common(common).unwrap();
        let quiet = Timer::new(&base, |_| {}).unwrap();
        quiet.add_common(common).unwrap();
        let peer = Rc::new(peer);
        let writer = peer.clone();
        sim.at(7 * MS, move || writer.write_all(b"x"));
        base.dispatch().unwrap();
        assert_eq!(log.take(), [(Ready::READ, 7 * MS), (Ready::TIMEOUT, 17 * MS)]);
        assert!(!quiet.pending().contains(Ready::TIMEOUT), "it fired at 10 ms");
    });
}

#[test]
fn what_is_added_while_the_loop_is_late_is_never_early() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let common = base.common_timeout(10 * MS).unwrap();
        let late = Timer::persistent(&base, |_| {}).unwrap();
        late.add_common(common).unwrap();
        sim.advance(15 * MS);
        let fresh = Timer::new(&base, |_| {}).unwrap();
        fresh.add_common(common).unwrap();
        base.run(LoopFlags::NONBLOCK).unwrap();
        // Due at 10 ms, seen at 15: at 20 it would have to overtake what is due at 25.
        assert_eq!(late.deadline(), fresh.deadline());
        assert_eq!(late.deadline(), Some(base.now() + 10 * MS));
    });
}

#[test]
fn a_timer_may_do_anything_to_the_queue_it_fires_from() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let common = base.common_timeout(MS).unwrap();
        let sink = log.clone();
        let mut others: Vec<Timer> = (1..4)
            .map(|n| {
                let sink = sink.clone();
                Timer::new(&base, move |_| sink.push(n)).unwrap()
            })
            .collect();
        let mut rounds = 2;
        let first = Timer::new(&base, move |timer| {
            sink.push(0);
            others.pop();
            for other in &others {
                other.add_common(common).unwrap();
            }
            if rounds > 0 {
                rounds -= 1;
                timer.add_common(common).unwrap();
            }
        })
        .unwrap();
        first.add_common(common).unwrap();
        base.dispatch().unwrap();
        let fired = log.take();
        assert_eq!(fired.iter().filter(|n| **n == 0).count(), 3, "{fired:?}");
        assert!(!fired.contains(&3), "it was dropped before it was ever added: {fired:?}");
    });
}

#[test]
fn a_loop_may_be_dropped_with_timers_in_its_queues() {
    each_backend(|bed| {
        let base = bed.base();
        let common = base.common_timeout(MS).unwrap();
        let handle = base.handle();
        let timers: Vec<Timer> = (0..3).map(|_| Timer::new(&base, |_| {}).unwrap()).collect();
        timers.iter().for_each(|timer| timer.add_common(common).unwrap());
        drop(base);
        assert!(timers.iter().all(|timer| timer.deadline().is_none()));
        assert!(matches!(timers[0].add_common(common), Err(Error::LoopGone)));
        assert!(matches!(handle.common_timeout(MS), Err(Error::LoopGone)));
    });
}

#[test]
fn a_warm_queue_allocates_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let common = base.common_timeout(Duration::from_micros(10)).unwrap();
        let timers: Vec<Timer> = (0..10).map(|_| Timer::persistent(&base, |_| {}).unwrap()).collect();
        timers.iter().for_each(|timer| timer.add_common(common).unwrap());
        let mut turns = |n: usize| (0..n).for_each(|_| _ = base.run(LoopFlags::ONCE).unwrap());
        turns(20);
        assert_eq!(allocation_counter::measure(|| turns(10)).count_total, 0);
    });
}
