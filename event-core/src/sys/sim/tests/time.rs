//! The clock, latency and actions.

use std::cell::RefCell;

use super::*;

#[test]
fn a_wait_with_nothing_ready_jumps_to_its_deadline_and_others_do_not() {
    let stage = Stage::new();
    assert_eq!(stage.sys.now(), Time::default());
    assert_eq!(stage.wait(NOW), []);
    assert_eq!(stage.elapsed(), Duration::ZERO);
    assert_eq!(stage.wait(Some(Duration::from_nanos(1))), []);
    assert_eq!(stage.elapsed(), Duration::from_nanos(1));
    let (a, _) = stage.pair(false);
    stage.add(a, Interest::WRITE);
    assert_eq!(stage.wait(Some(ms(100))).len(), 1);
    assert_eq!(stage.elapsed(), Duration::from_nanos(1));
    stage.world.with(|state| state.advance(ms(5)));
    let since_2026 = stage.sys.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap() - stage.elapsed();
    assert_eq!(since_2026.as_secs(), (56 * 365 + 14) * 86_400);
}

#[test]
fn bytes_under_way_end_a_wait_when_they_arrive() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.latency(b, ms(20));
    stage.add(a, Interest::READ);
    stage.send(b, b"x").unwrap();
    assert_eq!(stage.wait(Some(ms(15))), []);
    assert_eq!(stage.wait(Some(ms(15))), [(a as u64, Report::READ)]);
    assert_eq!(stage.elapsed(), ms(20));
    assert_eq!(stage.recv(a).unwrap(), b"x");
}

#[test]
fn nothing_overtakes_and_what_is_under_way_fills_the_buffer() {
    let stage = Stage::new();
    stage.world.with(|state| state.default_capacity = 4);
    let (a, b) = stage.pair(false);
    stage.latency(a, ms(20));
    stage.send(b, b"ab").unwrap();
    stage.latency(a, Duration::ZERO);
    stage.send(b, b"cdef").unwrap();
    assert_eq!(code(stage.send(b, b"x")), libc::EAGAIN);
    stage.sys.close(b);
    assert_eq!(code(stage.recv(a)), libc::EAGAIN);
    stage.world.with(|state| state.advance(ms(20)));
    assert_eq!(stage.recv(a).unwrap(), b"abcd");
    assert_eq!(probe(&stage, a, "r"), [0]);
}

#[test]
fn a_reset_takes_a_round_trip() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.latency(a, ms(10));
    stage.sys.close(b);
    assert_eq!(stage.send(a, b"x").unwrap(), 1);
    stage.add(a, Interest::empty() | Interest::CLOSED);
    assert_eq!(stage.wait(None), [(a as u64, Report::CLOSED)]);
    assert_eq!(stage.elapsed(), ms(10));
    stage.sys.change(a, 0, Interest::CLOSED, Interest::EDGE).unwrap();
    assert_eq!(stage.wait(None), [(0, Report::ERR | Report::HUP)]);
    assert_eq!(stage.elapsed(), ms(20));
}

#[test]
fn with_an_endless_latency_nothing_arrives() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.latency(a, Duration::MAX);
    stage.send(b, b"x").unwrap();
    stage.add(a, Interest::READ);
    assert_eq!(stage.wait(Some(Duration::from_secs(1 << 30))), []);
    stage.world.with(|state| state.advance(Duration::MAX));
    assert_eq!(stage.wait(NOW), []);
}

#[test]
fn several_resets_are_one() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.latency(a, ms(10));
    stage.send(a, b"x").unwrap();
    stage.close_by_rst(b);
    stage.world.with(|state| state.advance(ms(10)));
    assert_eq!(probe(&stage, a, "o"), [libc::ECONNRESET]);
    // The byte reached nobody and is answered by a reset, too.
    stage.world.with(|state| state.advance(ms(10)));
    assert_eq!(probe(&stage, a, "os"), [0, PIPE]);
}

#[test]
fn actions_run_in_a_wait_at_their_time_and_in_order() {
    let stage = Stage::new();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let note = |name: &'static str| {
        let (seen, world) = (Rc::clone(&seen), Rc::clone(&stage.world));
        move || seen.borrow_mut().push((name, world.with(|state| state.elapsed())))
    };
    stage.at(ms(20), note("late"));
    stage.at(ms(10), note("first"));
    stage.at(ms(10), note("second"));
    stage.world.with(|state| state.advance(ms(9)));
    assert_eq!(seen.borrow().len(), 0);
    assert_eq!(stage.wait(Some(ms(6))), []);
    assert_eq!(*seen.borrow(), [("first", ms(10)), ("second", ms(10))]);
    stage.world.with(|state| state.advance(ms(50)));
    assert_eq!(seen.borrow().len(), 2, "advance runs no user code");
    assert_eq!(stage.wait(NOW), []);
    assert_eq!(seen.borrow()[2], ("late", ms(65)));
}

#[test]
fn an_action_may_do_anything_and_what_it_does_ends_the_wait() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.add(a, Interest::READ);
    let world = Rc::clone(&stage.world);
    stage.at(ms(5), move || {
        let again = Rc::clone(&world);
        world.with(|state| {
            state.at(
                Duration::ZERO,
                Box::new(move || {
                    again.with(|state| {
                        let id = state.file_of(b).unwrap();
                        state.send(id, &[IoSlice::new(b"x")], By::Program).unwrap();
                    });
                }),
            );
        });
        world.with(|state| state.close(0)).unwrap_err();
    });
    assert_eq!(stage.wait(None), [(a as u64, Report::READ)]);
    assert_eq!(stage.elapsed(), ms(5));
}

#[test]
fn what_an_action_schedules_for_now_waits_for_the_next_look_at_what_is_ready() {
    fn again(world: &Rc<World>, runs: Rc<Cell<u32>>) {
        let of_action = Rc::clone(world);
        let action = move || {
            runs.set(runs.get() + 1);
            again(&of_action, runs);
        };
        world.with(|state| state.at(Duration::ZERO, Box::new(action)));
    }
    let stage = Stage::new();
    let runs = Rc::new(Cell::new(0));
    again(&stage.world, Rc::clone(&runs));
    assert_eq!(stage.wait(NOW), []);
    assert_eq!(stage.wait(NOW), []);
    assert_eq!(runs.get(), 2);
}

#[test]
fn actions_that_nothing_will_run_are_dropped_with_the_last_loop() {
    let stage = Stage::new();
    let (world, guard) = (Rc::clone(&stage.world), Rc::new(()));
    let (held, of_world) = (Rc::clone(&guard), Rc::clone(&world));
    stage.at(ms(5), move || drop((held, of_world)));
    let second = Sim::new(Rc::clone(&world));
    drop(second);
    assert_eq!(Rc::strong_count(&guard), 2);
    drop(stage);
    assert_eq!((Rc::strong_count(&guard), Rc::strong_count(&world)), (1, 1));
}
