//! Timers: never early, in order, and fair to fds.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use event_core::testing::{Call, Faults};
use event_core::{Event, LoopEnd, LoopFlags, Ready, Timer, What};
use tests::{Log, each_backend, each_seed};

const MS: Duration = Duration::from_millis(1);

#[test]
fn timers_are_never_early() {
    each_backend(|bed| {
        let mut base = bed.base();
        let late = Log::new();
        let timers: Vec<Timer> = [0, 1, 100, 999, 1_000, 1_001, 2_500, 7_300]
            .into_iter()
            .map(Duration::from_micros)
            .map(|length| {
                let armed = Rc::new(Cell::new(None::<(Instant, Instant)>));
                let (late, start) = (late.clone(), armed.clone());
                let timer = Timer::new(&base, move |timer| {
                    let (real, looped) = start.get().unwrap();
                    assert!(timer.handle().now() >= looped + length);
                    late.push(real.elapsed().saturating_sub(length));
                    assert!(timer.handle().method() == "simulation" || real.elapsed() >= length);
                })
                .unwrap();
                armed.set(Some((Instant::now(), base.now())));
                timer.add(length).unwrap();
                timer
            })
            .collect();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(late.len(), timers.len());
    });
}

#[test]
fn simulated_timers_fire_at_their_very_nanosecond() {
    each_seed(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let lengths = [7_777_777, 1, 3_000_000_000, 40 * 60 * 1_000_000_000, 1_000_001];
        let timers: Vec<Timer> = lengths
            .into_iter()
            .map(|nanos| {
                let (log, sim) = (log.clone(), bed.sim().unwrap().clone());
                let timer = Timer::new(&base, move |_| log.push(sim.elapsed().as_nanos())).unwrap();
                timer.add(Duration::from_nanos(nanos)).unwrap();
                timer
            })
            .collect();
        base.dispatch().unwrap();
        assert_eq!(log.take(), [1, 1_000_001, 7_777_777, 3_000_000_000, 2_400_000_000_000]);
        drop(timers);
    });
}

#[test]
fn the_time_left_never_exceeds_what_was_asked_for() {
    each_backend(|bed| {
        let base = bed.base();
        let timer = Timer::new(&base, |_| {}).unwrap();
        for _ in 0..tests::few_under_miri(1000, 10) {
            timer.add(Duration::from_micros(100)).unwrap();
            assert!(timer.deadline().unwrap() <= base.now() + Duration::from_micros(100));
        }
    });
}

#[test]
fn equal_deadlines_fire_in_the_order_of_arming() {
    each_seed(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let timers: Vec<Timer> = (0..50)
            .map(|n| {
                let log = log.clone();
                Timer::new(&base, move |_| log.push(n)).unwrap()
            })
            .collect();
        timers.iter().for_each(|timer| timer.add(5 * MS).unwrap());
        // Armed anew it is the last of its deadline.
        timers[10].add(5 * MS).unwrap();
        timers[20].del().unwrap();
        timers[20].add(5 * MS).unwrap();
        base.dispatch().unwrap();
        let expected: Vec<_> = (0..50).filter(|n| ![10, 20].contains(n)).chain([10, 20]).collect();
        assert_eq!(log.take(), expected);
    });
}

#[test]
fn a_thousand_timers_fire_in_the_order_of_their_deadlines() {
    each_seed(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let many = tests::few_under_miri(1000_u64, 60);
        let lengths = (0..many).map(|n| n * 7919 % 1009);
        let timers: Vec<Timer> = lengths
            .enumerate()
            .map(|(n, length)| {
                let log = log.clone();
                let timer = Timer::new(&base, move |_| log.push((length, n))).unwrap();
                timer.add(Duration::from_micros(length)).unwrap();
                timer
            })
            .collect();
        timers.iter().skip(3).step_by(2).for_each(|timer| timer.del().unwrap());
        base.dispatch().unwrap();
        let fired = log.take();
        assert_eq!(fired.len() as u64, many / 2 + 1);
        assert!(fired.is_sorted());
    });
}

#[test]
fn a_zero_timer_that_arms_itself_again_waits_a_turn_and_an_fd_gets_served() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let fired = Rc::new(Cell::new(0));
        let count = fired.clone();
        let timer = Timer::new(&base, move |timer| {
            count.set(count.get() + 1);
            timer.add(Duration::ZERO).unwrap();
        })
        .unwrap();
        timer.add(Duration::ZERO).unwrap();
        let log = Log::new();
        let (sink, count, handle) = (log.clone(), fired.clone(), base.handle());
        let event = Event::new(&base, fd.raw(), What::READ | What::PERSIST, move |_, _| {
            sink.push(count.get());
            if sink.len() == 10 {
                handle.loopbreak().unwrap();
            }
        })
        .unwrap();
        event.add(None).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        let fired = log.take();
        // Between two visits of the fd the timer runs at most once.
        assert!(fired.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{fired:?}");
        assert!(fired[9] >= 5, "and it does run: {fired:?}");
    });
}

#[test]
fn a_zero_timer_fires_in_the_next_turn_once() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let timer = Timer::new(&base, move |timer| {
            sink.push(());
            if sink.len() < 4 {
                timer.add(Duration::ZERO).unwrap();
            }
        })
        .unwrap();
        timer.add(Duration::ZERO).unwrap();
        for n in 1..=4 {
            assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
            assert_eq!(log.len(), n);
        }
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn readiness_comes_before_timers_after_a_stall() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let sink = log.clone();
        let timer = Timer::new(&base, move |_| sink.push("timer")).unwrap();
        let sink = log.clone();
        // The answer's own watchdog: the answer, once it is there, calls it off.
        let watchdog = Timer::new(&base, move |_| sink.push("watchdog")).unwrap();
        let (sink, id) = (log.clone(), watchdog.id());
        let event = Event::new(&base, fd.raw(), What::READ, move |event, _| {
            sink.push("data");
            event.handle().del(id).unwrap();
        })
        .unwrap();
        timer.add(MS).unwrap();
        watchdog.add(2 * MS).unwrap();
        event.add(None).unwrap();
        peer.write_all(b"x");
        bed.stall(5 * MS);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["data", "timer"]);
    });
}

#[test]
fn a_persistent_timer_does_not_drift() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let log = Log::new();
        let sink = log.clone();
        let timer = Timer::persistent(&base, move |timer| {
            sink.push(sim.elapsed());
            // The callback takes time; the next one is due on the grid all the same.
            sim.advance(3 * MS);
            if sink.len() == 6 {
                timer.del().unwrap();
            }
        })
        .unwrap();
        timer.add(10 * MS).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [1, 2, 3, 4, 5, 6].map(|n| 10 * n * MS));
    });
}

#[test]
fn a_persistent_timer_fires_once_after_a_stall() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let timer = Timer::persistent(&base, move |_| sink.push(())).unwrap();
        timer.add(4 * MS).unwrap();
        bed.stall(14 * MS);
        let stalled = base.now();
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(log.take().len(), 1);
        assert!(timer.deadline().unwrap() >= stalled + 4 * MS, "counted from the end of the stall");
    });
}

#[test]
fn a_stall_of_a_persistent_timer_is_not_made_up_for_in_the_simulation() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let log = Log::new();
        let (sink, clock) = (log.clone(), sim.clone());
        let timer = Timer::persistent(&base, move |timer| {
            sink.push(clock.elapsed());
            if sink.len() == 3 {
                timer.del().unwrap();
            }
        })
        .unwrap();
        timer.add(100 * MS).unwrap();
        sim.advance(350 * MS);
        base.dispatch().unwrap();
        assert_eq!(log.take(), [350 * MS, 450 * MS, 550 * MS]);
    });
}

#[test]
fn a_persistent_timer_of_no_length_fires_once_a_turn() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let timer = Timer::persistent(&base, move |_| sink.push(())).unwrap();
        timer.add(Duration::ZERO).unwrap();
        for n in 1..=3 {
            base.run(LoopFlags::ONCE).unwrap();
            assert_eq!(log.len(), n);
        }
    });
}

#[test]
fn a_persistent_timer_is_armed_again_in_its_own_callback() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let timer = Timer::persistent(&base, move |timer| sink.push(timer.deadline().is_some())).unwrap();
        timer.add(MS).unwrap();
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), [true]);
        let sink = log.clone();
        let one_shot = Timer::new(&base, move |timer| sink.push(timer.deadline().is_some())).unwrap();
        timer.del().unwrap();
        one_shot.add(MS).unwrap();
        base.dispatch().unwrap();
        assert_eq!(log.take(), [false]);
    });
}

#[test]
fn activating_a_persistent_timer_by_hand_starts_its_period_anew() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let log = Log::new();
        let (sink, clock) = (log.clone(), sim.clone());
        let event = Event::new(&base, -1, What::PERSIST, move |event, ready| {
            sink.push((ready, clock.elapsed()));
            if sink.len() == 3 {
                event.del().unwrap();
            }
        })
        .unwrap();
        event.add(Some(200 * MS)).unwrap();
        let (handle, id) = (base.handle(), event.id());
        sim.at(100 * MS, move || handle.activate(id, Ready::READ).unwrap());
        base.dispatch().unwrap();
        let expected = [(Ready::READ, 100 * MS), (Ready::TIMEOUT, 300 * MS), (Ready::TIMEOUT, 500 * MS)];
        assert_eq!(log.take(), expected);
    });
}

#[test]
fn a_due_timer_that_is_set_anew_before_it_runs_is_taken_back() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let second = Timer::new(&base, move |_| sink.push("second")).unwrap();
        let (sink, id) = (log.clone(), second.id());
        let first = Timer::new(&base, move |timer| {
            sink.push("first");
            timer.handle().add(id, Some(Duration::from_secs(3600))).unwrap();
        })
        .unwrap();
        first.add(MS).unwrap();
        second.add(MS).unwrap();
        bed.stall(3 * MS);
        base.run(LoopFlags::ONCE).unwrap();
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(log.take(), ["first"]);
        assert!(second.deadline().unwrap() > base.now() + Duration::from_secs(3000));
    });
}

#[test]
fn removing_the_nearer_timer_makes_the_loop_sleep_until_the_other() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let near = Timer::new(&base, |_| panic!("was removed")).unwrap();
        let far = Timer::new(&base, |_| {}).unwrap();
        near.add(2 * MS).unwrap();
        far.add(10 * MS).unwrap();
        near.del().unwrap();
        let start = base.now();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(base.now() - start >= 10 * MS);
        assert!(faults.count(Call::Wait) <= 2);
    });
}

#[test]
fn a_short_timer_added_after_a_long_stall_shortens_the_sleep() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let log = Log::new();
        let (sink, clock) = (log.clone(), sim.clone());
        let long = Timer::new(&base, move |_| sink.push(("long", clock.elapsed()))).unwrap();
        long.add(Duration::from_secs(60)).unwrap();
        sim.advance(Duration::from_secs(100));
        let (sink, clock) = (log.clone(), sim.clone());
        let short = Timer::new(&base, move |_| sink.push(("short", clock.elapsed()))).unwrap();
        short.add(10 * MS).unwrap();
        base.dispatch().unwrap();
        assert_eq!(
            log.take(),
            [("long", Duration::from_secs(100)), ("short", Duration::from_millis(100_010))]
        );
    });
}

#[test]
fn the_longest_of_timers_is_no_trouble() {
    each_backend(|bed| {
        let mut base = bed.base();
        let timer = Timer::new(&base, |_| unreachable!()).unwrap();
        timer.add(Duration::MAX).unwrap();
        assert_eq!(timer.pending(), Ready::TIMEOUT);
        let persistent = Timer::persistent(&base, |_| unreachable!()).unwrap();
        persistent.add(Duration::MAX).unwrap();
        assert_eq!(base.run(LoopFlags::NONBLOCK).unwrap(), LoopEnd::Once);
    });
}

#[test]
fn removing_timers_of_an_fds_event_keeps_the_event() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let events: Vec<Event> = (0..3)
            .map(|n| {
                let log = log.clone();
                let event =
                    Event::new(&base, fd.raw(), What::READ, move |_, ready| log.push((n, ready))).unwrap();
                event.add(Some(MS)).unwrap();
                event
            })
            .collect();
        events[0].remove_timer().unwrap();
        events[2].remove_timer().unwrap();
        bed.pass(&mut base, 4 * MS);
        assert_eq!(log.take(), [(1, Ready::TIMEOUT)]);
        peer.write_all(b"x");
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let mut told = log.take();
        told.sort_by_key(|entry| entry.0);
        assert_eq!(told, [(0, Ready::READ), (2, Ready::READ)]);
    });
}

#[test]
fn random_arming_and_disarming_agrees_with_a_sorted_list() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let fired = Log::new();
        let timers: Vec<Timer> = (0..40)
            .map(|n| {
                let (fired, sim) = (fired.clone(), sim.clone());
                Timer::new(&base, move |_| fired.push((sim.elapsed(), n))).unwrap()
            })
            .collect();
        // The model: (deadline, order of arming, timer).
        let model = RefCell::new(Vec::<(Duration, u32, usize)>::new());
        let mut state = 88172645463325252_u64;
        let mut random = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        for order in 0..tests::few_under_miri(2000, 200) {
            let n = random(40) as usize;
            match random(10) {
                0 => {
                    sim.advance(Duration::from_micros(random(300)));
                    base.run(LoopFlags::NONBLOCK).unwrap();
                    let now = sim.elapsed();
                    let mut model = model.borrow_mut();
                    model.sort_unstable();
                    let due = model.partition_point(|entry| entry.0 <= now);
                    let expected: Vec<_> = model.drain(..due).map(|entry| (now, entry.2)).collect();
                    assert_eq!(fired.take(), expected);
                }
                1 | 2 => {
                    timers[n].del().unwrap();
                    model.borrow_mut().retain(|entry| entry.2 != n);
                }
                _ => {
                    let length = Duration::from_micros(random(1000));
                    timers[n].add(length).unwrap();
                    let mut model = model.borrow_mut();
                    model.retain(|entry| entry.2 != n);
                    model.push((sim.elapsed() + length, order, n));
                }
            }
        }
    });
}
