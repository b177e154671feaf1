//! Timers by the hundred in one callback: they share readings of the clock, and what is a timer and nothing else takes a
//! short way. Neither may show.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::{EventBase, EventCount, LoopEnd, Ready, Timer};
use tests::random::Random;
use tests::{Bed, Log, each_backend, each_seed, few_under_miri};

const MS: Duration = Duration::from_millis(1);

/// So many timers, each of which notes its number and what the loop's time is.
fn crowd(base: &EventBase, count: usize) -> (Rc<Vec<Timer>>, Log<(usize, Duration)>) {
    let log = Log::new();
    let timer = |n| {
        let log = log.clone();
        Timer::new(base, move |timer| log.push((n, timer.handle().elapsed()))).unwrap()
    };
    (Rc::new((0..count).map(timer).collect()), log)
}

/// Runs this in a callback, and breaks the loop.
fn in_callback(base: &mut EventBase, work: impl FnOnce() + 'static) {
    let handle = base.handle();
    base.once(-1, event_core::What::empty(), None, move |_| {
        work();
        handle.loopbreak().unwrap();
    })
    .unwrap();
    assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
}

#[test]
fn of_many_timers_that_a_callback_arms_none_is_early_and_few_share_a_reading() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let (timers, log) = crowd(&base, 101);
        let armed = Log::new();
        let (sink, world, crowd) = (armed.clone(), sim.clone(), timers.clone());
        in_callback(&mut base, move || {
            for timer in crowd.iter() {
                sink.push(world.elapsed());
                timer.add(500 * MS).unwrap();
                world.advance(MS);
            }
            world.advance(100 * MS);
        });
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let (armed, fired) = (armed.take(), log.take());
        assert!(fired.iter().map(|entry| entry.0).eq(0..101), "in the order of arming");
        for &(n, at) in &fired {
            let late = at.checked_sub(armed[n] + 500 * MS).expect("none is early");
            let most = match n {
                0..16 => Duration::ZERO,
                // Eight share the reading of the last of them; what is left when the callback ends, that of its end.
                16..96 => 7 * MS,
                _ => 105 * MS,
            };
            assert!(late <= most, "{n} is late by {late:?}");
        }
    });
}

#[test]
fn a_deadline_is_known_as_soon_as_somebody_asks() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let (timers, log) = crowd(&base, 40);
        let (crowd, handle) = (timers.clone(), base.handle());
        in_callback(&mut base, move || {
            for timer in crowd.iter() {
                timer.add(5 * MS).unwrap();
                assert_eq!(timer.pending(), Ready::TIMEOUT);
                let left = timer.info().unwrap().deadline.unwrap() - handle.clock_origin();
                assert_eq!(left, sim.elapsed() + 5 * MS);
                assert!(handle.next_deadline().unwrap() <= timer.deadline().unwrap());
                sim.advance(MS);
            }
            assert_eq!(handle.stats().timers, 40);
        });
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(log.take().iter().map(|entry| entry.0).eq(0..40));
    });
}

#[test]
fn what_a_callback_arms_and_takes_back_neither_fires_nor_keeps_the_loop() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (timers, log) = crowd(&base, 30);
        let crowd = timers.clone();
        in_callback(&mut base, move || {
            crowd.iter().for_each(|timer| timer.add(3600 * 1000 * MS).unwrap());
            // Armed twice, and the last of them stands with what shares a reading.
            crowd[29].add(MS).unwrap();
            crowd.iter().take(29).for_each(|timer| timer.del().unwrap());
            assert_eq!(crowd[28].pending(), Ready::empty());
        });
        assert_eq!(base.num_events(EventCount::ADDED), 1);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(log.take().iter().map(|entry| entry.0).eq([29]));
        assert_eq!(base.num_events(EventCount::all()), 0);
    });
}

#[test]
fn zero_timers_that_arm_themselves_and_others_wait_a_turn_each() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (timers, log) = crowd(&base, 50);
        let crowd = timers.clone();
        let turns = Rc::new(RefCell::new(0));
        let count = turns.clone();
        let first = Timer::new(&base, move |first| {
            *count.borrow_mut() += 1;
            if *count.borrow() == 1 {
                crowd.iter().for_each(|timer| timer.add(Duration::ZERO).unwrap());
            }
            if *count.borrow() <= 2 {
                first.add(Duration::ZERO).unwrap();
            }
        })
        .unwrap();
        first.add(Duration::ZERO).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(*turns.borrow(), 3);
        assert!(log.take().iter().map(|entry| entry.0).eq(0..50));
    });
}

#[test]
fn thousands_of_timers_fire_in_the_order_of_their_deadlines_and_of_arming() {
    each_seed(|bed| {
        let mut base = bed.base();
        const TIMERS: usize = few_under_miri(3_000, 60);
        let (timers, log) = crowd(&base, TIMERS);
        let random = Random::new(bed.seed());
        let next = |bound| random.draw(bound);
        let mut model: Vec<(Duration, usize)> = Vec::new();
        let start = base.elapsed();
        for step in 0..few_under_miri(8_000, 160) {
            let n = if step < TIMERS { step } else { next(TIMERS as u64) as usize };
            model.retain(|entry| entry.1 != n);
            if step >= TIMERS && next(3) == 0 {
                timers[n].del().unwrap();
            } else {
                // Many are equal.
                let after = MS * (1 + next(if n % 2 == 0 { 500 } else { 100_000 }) as u32);
                timers[n].add(after).unwrap();
                model.push((start + after, n));
            }
        }
        model.sort_by_key(|entry| entry.0);
        assert_eq!(base.stats().timers, model.len());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let expected: Vec<_> = model.iter().map(|&(deadline, n)| (n, deadline)).collect();
        assert_eq!(log.take(), expected);
    });
}

/// What a loop does that is asked at random for everything that a timer can be asked. Where events are counted no slot
/// takes the short way.
fn story(bed: &Bed, number: u64, counted: bool) -> Vec<String> {
    let mut base = bed.base();
    if counted {
        base.max_events(EventCount::ADDED, false);
    }
    let (log, start) = (Log::new(), base.elapsed());
    let timers: Rc<RefCell<Vec<Timer>>> = Rc::default();
    let common = [base.common_timeout(3 * MS).unwrap(), base.common_timeout(7 * MS).unwrap()];
    let random = Rc::new(Random::new(number));
    let left = Rc::new(Cell::new(0));
    for n in 0..40_usize {
        let (log, all, random, left) = (log.clone(), timers.clone(), random.clone(), left.clone());
        let timer = Timer::new(&base, move |timer| {
            let handle = timer.handle();
            log.push(format!("{n} at {:?}", handle.elapsed() - start));
            if left.get() == 0 {
                return;
            }
            left.set(left.get() - 1);
            let next = |bound| random.draw(bound);
            for _ in 0..80 {
                let of = next(40) as usize;
                let all = all.borrow();
                let Some(it) = all.get(of) else { continue };
                match next(if number.is_multiple_of(2) { 16 } else { 18 }) {
                    0 => it.activate(Ready::TIMEOUT).unwrap(),
                    1 => it.activate_now(Ready::TIMEOUT).unwrap(),
                    2 => it.set_background(next(2) == 0).unwrap(),
                    3 => handle.add(it.id(), None).unwrap(),
                    4 => handle.remove_timer(it.id()).unwrap(),
                    5 => log.push(format!("{:?}", it.info().map(|info| (info.pending, info.is_active)))),
                    6 => log.push(format!("{}", handle.num_events(EventCount::all()))),
                    7..10 => it.del().unwrap(),
                    16..18 => it.add_common(common[next(2) as usize]).unwrap(),
                    _ => it.add(MS * next(20) as u32).unwrap(),
                }
            }
        })
        .unwrap();
        timers.borrow_mut().push(timer);
    }
    for round in 0..few_under_miri(60, 3) {
        left.set(5);
        let n = random.below(40);
        {
            let timers = timers.borrow();
            timers[n % timers.len()].add(MS).unwrap();
        }
        let end = base.dispatch().unwrap();
        log.push(format!("round {round}: {end:?}, {}", base.num_events(EventCount::all())));
        let freed = timers.borrow_mut().pop();
        drop(freed);
        if timers.borrow().len() < 30 {
            break;
        }
    }
    log.take()
}

// A timer that was due together with one of a common timeout was still taken for a timer alone in the heap, though not in
// its slot. Armed again in its callback it counted for good: the loop never ended.
#[test]
fn a_timer_that_arms_itself_beside_a_common_timeout_lets_the_loop_end() {
    each_backend(|bed| {
        let mut base = bed.base();
        let common = base.common_timeout(5 * MS).unwrap();
        let other = Timer::new(&base, |_| {}).unwrap();
        other.add_common(common).unwrap();
        let (log, count) = (Log::new(), Cell::new(0));
        let noted = log.clone();
        let timer = Timer::new(&base, move |timer| {
            noted.push(());
            count.set(count.get() + 1);
            if count.get() < 3 {
                timer.add(MS).unwrap();
            }
        })
        .unwrap();
        timer.add(MS).unwrap();
        base.loopexit(Some(1000 * MS)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        assert_eq!(log.len(), 3);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

// A timer of a common timeout was added once more, without a timeout. From then on it was taken for a timer in the heap:
// deleting it did nothing, and it fired all the same.
#[test]
fn a_timer_of_a_common_timeout_that_is_added_again_can_be_deleted() {
    each_backend(|bed| {
        let mut base = bed.base();
        let common = base.common_timeout(MS).unwrap();
        let (timers, log) = crowd(&base, 2);
        for timer in timers.iter() {
            timer.add_common(common).unwrap();
            base.add(timer.id(), None).unwrap();
        }
        timers[0].del().unwrap();
        assert_eq!(timers[0].pending(), Ready::empty());
        timers[1].add(2 * MS).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(log.take().iter().map(|entry| entry.0).eq([1]));
    });
}

#[test]
fn a_timer_that_takes_the_short_way_does_what_any_other_does() {
    each_seed(|bed| {
        for number in 0..few_under_miri(5, 1) {
            let number = 5 * bed.seed() + number;
            assert_eq!(story(bed, number, false), story(bed, number, true), "story {number}");
        }
    });
}

#[test]
fn a_timer_that_a_message_arms_does_not_wait_for_the_messages_behind_it() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let (timers, log) = crowd(&base, 20);
        let (handle, clock) = (base.handle(), sim.clone());
        let (mailbox, sender) = base
            .mailbox(move |n: usize| match timers.get(n) {
                Some(timer) => handle.add(timer.id(), Some(100 * MS)).unwrap(),
                None => clock.advance(MS),
            })
            .unwrap();
        let start = base.elapsed();
        for n in 0..60 {
            sender.send(n).unwrap();
        }
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        drop(mailbox);
        // Had the last ones waited for a reading until the mailbox was empty they would be 40 ms late.
        assert!(log.take().iter().all(|&(_, at)| at == start + 100 * MS));
    });
}
