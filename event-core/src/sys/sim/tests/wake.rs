//! Waking, signals and the ways to hang.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use super::*;
use crate::sys::seam::WAKE_TAG;

#[test]
fn a_waker_that_was_used_ends_every_wait_until_it_is_cleared() {
    let stage = Stage::new();
    stage.sys.waker().wake();
    for timeout in [Some(ms(50)), None, NOW] {
        assert_eq!(stage.wait(timeout), [(WAKE_TAG, Report::READ)]);
    }
    assert_eq!(stage.elapsed(), Duration::ZERO);
    stage.sys.waker().clear();
    assert_eq!(stage.wait(Some(ms(50))), []);
}

#[test]
fn a_wait_without_limit_sleeps_until_another_thread_wakes_it() {
    let stage = Stage::new();
    let waker = stage.sys.waker();
    let thread = thread::spawn(move || waker.wake());
    assert_eq!(stage.wait(None), [(WAKE_TAG, Report::READ)]);
    thread.join().unwrap();
}

#[test]
fn patience_lets_a_thread_go_before_the_clock() {
    let stage = Stage::new();
    stage.world.set_patience(Duration::from_secs(30));
    let waker = stage.sys.waker();
    let thread = thread::spawn(move || waker.wake());
    assert_eq!(stage.wait(Some(ms(1))), [(WAKE_TAG, Report::READ)]);
    assert_eq!(stage.elapsed(), Duration::ZERO);
    thread.join().unwrap();
}

fn panic_text(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
    payload.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn a_wait_that_nothing_can_end_is_a_deadlock() {
    let stage = Stage::new();
    let (a, _) = stage.pair(false);
    stage.add(a, Interest::READ);
    stage.world.deadlock_limit.set(ms(1));
    let text = panic_text(|| drop(stage.wait(None)));
    assert!(text.starts_with("simulation deadlock") && text.contains("none of its 1 fds"), "{text}");
}

#[test]
fn a_report_that_is_never_answered_is_a_livelock() {
    let stage = Stage::new();
    let (a, _) = stage.pair(false);
    stage.add(a, Interest::WRITE);
    stage.world.with(|state| state.max_unanswered = 10);
    for _ in 0..10 {
        assert_eq!(stage.wait(Some(ms(5))).len(), 1);
    }
    stage.send(a, b"x").unwrap();
    let spin = || (0..=10).for_each(|_| drop(stage.wait(Some(ms(5)))));
    assert!(panic_text(spin).starts_with("simulation livelock"));
}

#[test]
fn waits_that_time_ends_are_no_livelock() {
    let stage = Stage::new();
    stage.world.with(|state| state.max_unanswered = 10);
    for _ in 0..50 {
        stage.wait(Some(ms(1)));
        stage.wait(NOW);
    }
    assert_eq!(stage.elapsed(), ms(50));
}

#[test]
fn signals_are_counted_for_each_loop_that_wants_them() {
    let stage = Stage::new();
    let other = Sim::new(Rc::clone(&stage.world));
    for wrong in [0, -1, 65, libc::SIGKILL, libc::SIGSTOP] {
        assert_eq!(code(stage.sys.signal_add(wrong)), libc::EINVAL);
    }
    let raise = |signal| stage.world.with(|state| state.raise(signal));
    assert!(!raise(libc::SIGTERM));
    stage.sys.signal_add(libc::SIGTERM).unwrap();
    stage.sys.signal_add(libc::SIGHUP).unwrap();
    other.signal_add(libc::SIGHUP).unwrap();
    assert!(raise(libc::SIGTERM) && raise(libc::SIGTERM) && raise(libc::SIGHUP));
    assert_eq!(stage.wait(Some(ms(1))), [(WAKE_TAG, Report::READ)]);
    let take = |sys: &Sim| {
        let mut out = Vec::new();
        sys.take_signals(&mut out);
        out
    };
    assert_eq!(take(&stage.sys), [(libc::SIGHUP, 1), (libc::SIGTERM, 2)]);
    assert_eq!(take(&stage.sys), []);
    assert_eq!(take(&other), [(libc::SIGHUP, 1)]);
    raise(libc::SIGTERM);
    stage.sys.signal_del(libc::SIGTERM);
    assert_eq!(take(&stage.sys), []);
    assert!(!raise(libc::SIGTERM));
}
